"""What several commands share: how a function becomes a command, options, and how results are printed."""

from __future__ import annotations

import inspect
import re
import tempfile
import typing
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

if TYPE_CHECKING:
    from vsecore.data.photographs import View
    from vsecore.data.splits import Dataset, FeatureKind
    from vsecore.recipes import Recipe
    from vsecore.training import Run

F = TypeVar("F", bound=Callable[..., None])

HELP = {
    "data": "'scenes', 'scenes_near_duplicates', 'scenes_ambiguous', or a folder of extracted features (see "
    "vse data extract); for a recipe that reads pixels, a folder of photographs and captions.",
    "device": "auto uses a GPU if there is one.",
    "dtype": "Precision on disk, half or single.",
    "folds": "Mean over this many folds (COCO 1K: 5).",
    "index": "The folder that the index is kept in.",
    "out": "The folder to write features into.",
    "parts": "A Python file that registers parts of your own. Repeatable.",
    "precision": "auto uses bfloat16 if the GPU has it in hardware.",
    "recipe": "A recipe's name or file (see vse recipes).",
    "record": "Write a record into this folder, such as assets/results.",
    "resume": "Continue the run in the folder.",
    "seed": "Seeds everything that is random.",
    "set": "A field of the recipe: training.epochs=10. Repeatable.",
    "split": "Which split. testall: all 5,000 test pictures of COCO, where test has only 1,000.",
    "url": "A Qdrant server, such as http://localhost:6333. [default: none is needed]",
    "vectors": "A text file of word vectors, or glove: those of the extra offline.",
    "workers": "Processes that prepare batches.",
}
"""What the options do that several commands have, unless a command's docstring says otherwise."""


class Kind:
    """What typer is told of an argument or option, such as its smallest value, in an annotation."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings


def command(app: typer.Typer, name: str | None = None, own_parts: bool = False) -> Callable[[F], F]:
    """Add a function to an app as a command; its parameters say what the command takes.

    A parameter before the star is an argument, one after it the option of its name, and True or False is a
    flag. What they do stands under "Options:" in the docstring, or in `HELP`. With `own_parts` the command
    also takes --parts, files that run before it begins.
    """

    def add(function: F) -> F:
        text, _, listed = (inspect.getdoc(function) or "").partition("\n\nOptions:\n")
        told = HELP | dict(re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", listed, re.MULTILINE))
        kinds = typing.get_type_hints(function)
        marked = typing.get_type_hints(function, include_extras=True)

        def declared(parameter: inspect.Parameter) -> inspect.Parameter:
            hint, plain = marked[parameter.name], parameter.name.strip("_")
            settings: dict[str, Any] = {
                "help": " ".join(told[plain].split()),
                "show_default": parameter.default != "",
            }
            for member in (hint, *typing.get_args(hint)):  # of "Count | None" too
                for mark in getattr(member, "__metadata__", ()):
                    settings |= mark.settings
            is_option = parameter.kind is inspect.Parameter.KEYWORD_ONLY
            make, names = (
                (typer.Option, [f"--{plain.replace('_', '-')}"]) if is_option else (typer.Argument, [])
            )
            return parameter.replace(annotation=Annotated[kinds[parameter.name], make(*names, **settings)])

        def run(**options: Any) -> None:
            options.pop("parts", None)  # which have been loaded
            function(**options)

        parameters = [*inspect.signature(function).parameters.values()]
        if own_parts:
            kinds["parts"], marked["parts"] = list[Path] | None, Parts
            parameters.append(inspect.Parameter("parts", inspect.Parameter.KEYWORD_ONLY, default=None))
        taken = inspect.Signature(list(map(declared, parameters)))
        run.__signature__ = taken  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in taken.parameters.values()}
        app.command(name or function.__name__, help=text)(run)
        return function

    return add


def _load_parts(files: list[Path] | None) -> list[Path] | None:
    for file in files or ():
        from vsecore.recipes.own_parts import load_parts

        load_parts(file)
    return files


def check_writable(option: str, path: Path | None, folder: bool = True) -> None:
    """Refuse, before hours of work, a folder (or a file) that could not be written at the end."""
    if path is None:
        return
    if not folder and path.is_dir():
        raise OSError(f"{option} {path} is a folder: name a file")
    # Writing a file replaces it by a new one in the same folder.
    place = path.absolute() if folder else path.absolute().parent
    above = next(one for one in (place, *place.parents) if one.exists())
    if not above.is_dir():
        raise OSError(f"{option} {path} cannot be made: {above} is a file, not a folder")
    try:  # the system's own answer lets root write everywhere, even on a read-only disk
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        raise OSError(f"{option} {path} cannot be written: {error.strerror}") from None


def _checked(folder: bool) -> Callable[[typer.CallbackParam, Path | None], Path | None]:
    def check(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
        from vsecore.data.files import expanded

        name, path = parameter.opts[0], path and expanded(path)
        check_writable(name if name.startswith("-") else name.upper(), path, folder)
        return path

    return check


Parts = Annotated[list[Path], Kind(callback=_load_parts, is_eager=True)]  # before anything else names a part
Folder = Annotated[Path, Kind(callback=_checked(folder=True))]
"""A folder to write into, and `File` a file to write: see `check_writable`."""
File = Annotated[Path, Kind(callback=_checked(folder=False))]
Present = Annotated[Path, Kind(exists=True, dir_okay=False)]
Count = Annotated[int, Kind(min=1)]
Whole = Annotated[int, Kind(min=0)]
Seed = Annotated[int, Kind(min=0, max=2**63 - 1)]
Collection = Literal["coco", "flickr30k", "flickr8k"]
SplitName = Literal["train", "dev", "test", "testall"]
Device = Literal["auto", "cpu"]
Precision = Literal["auto", "float32", "bfloat16"]


def read_settings(pairs: Sequence[str] | None) -> dict[str, str]:
    """Read repeated --set NAME=VALUE options; a ValueError names one without an equals sign."""
    settings = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set {pair!r} has no '='; write it as --set training.epochs=10")
        settings[name.strip()] = value.strip()
    return settings


def open_dataset(
    data: str, features: FeatureKind, view: View | None = None, boxes: bool = False, test: str = "test"
) -> Dataset:
    """Open a world of scenes by its name, or a folder of extracted features or of photographs.

    `features` says what the recipe reads, and `view` how photographs are cut. With `boxes`, a folder's
    features get its boxes beside them; scenes have them there. A folder may be tested on its split "testall",
    which is its "test" if that has COCO's 5,000 test pictures.
    """
    from vsecore import scenes
    from vsecore.data.boxes import with_boxes
    from vsecore.data.features import open_precomp
    from vsecore.data.karpathy import from_files, load_karpathy
    from vsecore.data.photographs import View
    from vsecore.experiments import WORLDS
    from vsecore.experiments.recording import COCO_5K

    if test == "testall" and (features == "pixels" or data in WORLDS):
        raise ValueError(f"the split is testall, and {data} has none: only folders of features may have it")
    if features == "pixels" and data in WORLDS:
        raise ValueError(
            f"--data is {data}, and this recipe reads pixels: name a folder of photographs and captions"
        )
    if features == "pixels":
        return from_files(load_karpathy(Path(data)), view or View())
    if data in WORLDS:
        return replace(scenes.load(features=features, **WORLDS[data]), name=data)
    try:
        dataset = open_precomp(Path(data), test="testall" if test == "testall" else "test")
    except FileNotFoundError:
        dataset = open_precomp(Path(data))
        if len(dataset.test) != COCO_5K:
            raise
    return with_boxes(dataset) if boxes else dataset


def fitting(sources: Sequence[str], features: FeatureKind) -> Sequence[str]:
    """Leave out features if a recipe reads photographs, and photographs if not; but never all sources."""
    from vsecore.data.features import holds_features
    from vsecore.data.files import expanded
    from vsecore.experiments import WORLDS

    there = [one for one in sources if one in WORLDS or expanded(one).is_dir()]
    other = [one for one in there if (one in WORLDS or holds_features(one)) == (features == "pixels")]
    return [one for one in sources if one not in other] or sources


def open_for(recipe: Recipe, data: str, test: str = "test") -> Dataset:
    """Open data of the kind that a recipe reads; see `open_dataset`."""
    view = recipe.view() if recipe.features == "pixels" else None
    return open_dataset(data, recipe.features, view, recipe.image.boxes, test)


def open_run(folder: Path, data: str, test: str = "test") -> tuple[Run, Dataset]:
    """Load a run, and open data for it; refuse features of another network than it was trained on."""
    from vsecore.training import load_run
    from vsecore.training.identity import check_features

    run = load_run(folder)
    dataset = open_dataset(data, run.recipe.features, run.model.view, run.recipe.image.boxes, test)
    check_features(folder, run.data, data, dataset)
    return run, dataset


def spoken(metrics: dict[str, float]) -> str:
    """Return the six recalls and their sum in one line."""
    both = [" / ".join(f"{metrics[f'{way}_r{k}']:.1f}" for k in (1, 5, 10)) for way in ("i2t", "t2i")]
    return f"picture to text {both[0]}, text to picture {both[1]}, rsum {metrics['rsum']:.1f}"
