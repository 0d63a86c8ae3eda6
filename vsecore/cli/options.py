"""What several commands share: options, how they are read and checked, and how results are printed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vsecore import paths

if TYPE_CHECKING:
    from vsecore.data.photographs import View
    from vsecore.data.splits import Dataset, FeatureKind
    from vsecore.recipes import Recipe
    from vsecore.training import Run


def _load_parts(files: list[Path] | None) -> list[Path] | None:
    for file in files or ():
        from vsecore.recipes.own_parts import load_parts

        load_parts(file)
    return files


PartsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--parts",
        is_eager=True,  # before anything else names a part
        callback=_load_parts,
        help="A Python file that registers parts of your own. Repeatable.",
    ),
]


def with_parts(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that also takes `--parts`, files that run before it begins."""

    @functools.wraps(command)
    def also(parts: list[Path] | None = None, **options: Any) -> None:
        command(**options)

    taken = inspect.signature(command, eval_str=True)
    parts = inspect.Parameter("parts", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=PartsOption)
    also.__signature__ = taken.replace(parameters=[*taken.parameters.values(), parts])  # type: ignore[attr-defined]
    also.__annotations__ = {"parts": PartsOption} | {
        name: parameter.annotation for name, parameter in taken.parameters.items()
    }
    return also


def check_writable(option: str, path: Path | None, folder: bool = True) -> None:
    """Refuse, before hours of work, a folder (or a file) that could not be written at the end."""
    if path is None:
        return
    if path.exists() and path.is_dir() != folder:
        come, wanted = ("a file", "a folder") if folder else ("a folder", "a file")
        raise OSError(f"{option} {path} is {come}: name {wanted}")
    above = next((one for one in (path, *path.absolute().parents) if one.exists()), path)
    if not path.exists() and not above.is_dir():
        raise OSError(f"{option} {path} cannot be created: {above} is a file")
    # Writing a file replaces it by a new one in the same folder.
    if not paths.can_be_written(above if above.is_dir() else above.parent):
        raise OSError(f"{option} {path} cannot be written: {above} belongs to someone else, or is read-only")


def _checked(folder: bool) -> Callable[[typer.CallbackParam, Path | None], Path | None]:
    def check(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
        name = parameter.opts[0]
        check_writable(name if name.startswith("-") else name.upper(), path, folder)
        return path

    return check


writable, writable_file = _checked(folder=True), _checked(folder=False)
"""Callbacks that check the folder, or the file, which an option or argument names: see `check_writable`."""
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seeds everything that is random.")]
DataOption = Annotated[
    str,
    typer.Option(
        "--data",
        help="'scenes', 'scenes_near_duplicates', or a folder of extracted features (see vse data extract); "
        "for a recipe that reads pixels, a folder of photographs and captions.",
    ),
]
SeveralData = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help="As for vse train. Repeatable: systems may read several kinds of features. [default: scenes]",
    ),
]
Collection = Literal["coco", "flickr30k", "flickr8k"]
Features = Annotated[Literal["grid", "region", "patch"], typer.Option(help="What an element is.")]
RecordOption = Annotated[
    Path | None,
    typer.Option(
        "--record", callback=writable, help="Write a record into this folder, such as assets/results."
    ),
]
VectorsOption = Annotated[
    Path | None,
    typer.Option("--vectors", help="A text file of word vectors, or glove: those of the extra offline."),
]
SettingsOption = Annotated[
    list[str] | None, typer.Option("--set", help="A field of the recipe: training.epochs=10. Repeatable.")
]
SplitName = Literal["train", "dev", "test", "testall"]
SplitOption = Annotated[
    SplitName,
    typer.Option(
        "--split",
        help="Which split. testall: all 5,000 test pictures of COCO, where test has only 1,000.",
    ),
]
Folds = Annotated[int | None, typer.Option(min=1, help="Mean over this many folds (COCO 1K: 5).")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the folder.")]
Workers = Annotated[int, typer.Option(min=0, help="Processes that prepare batches.")]
Device = Annotated[Literal["auto", "cpu"], typer.Option(help="auto uses a GPU if there is one.")]
Precision = Annotated[
    Literal["auto", "float32", "bfloat16"],
    typer.Option(help="auto uses bfloat16 if the GPU has it in hardware."),
]


def complete_recipe(incomplete: str) -> list[str]:
    """Return the recipes that begin so, or after a plus sign the variants, for the shell's completion.

    They are read from their files, since importing them takes longer than anybody waits for a name.
    """
    import yaml

    works = (Path(__file__).parents[1] / "recipes").glob("*.yaml")
    base, plus, begun = incomplete.rpartition("+")
    kept = (
        yaml.safe_load(work.read_bytes()).get("variants" if plus else "recipes") for work in sorted(works)
    )
    return [f"{base}{plus}{name}" for work in kept for name in work or () if name.startswith(begun)]


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
    features get its boxes beside them; scenes have them there. A folder may be tested on its split "testall".
    """
    from vsecore import scenes
    from vsecore.data.boxes import with_boxes
    from vsecore.data.features import open_precomp
    from vsecore.data.karpathy import load_photographs
    from vsecore.experiments import WORLDS

    if test == "testall" and (features == "pixels" or data in WORLDS):
        raise ValueError(f"the split is testall, and {data} has none: only folders of features may have it")
    if features == "pixels" and data in WORLDS:
        raise ValueError(
            f"--data is {data}, and this recipe reads pixels: name a folder of photographs and captions, "
            "as for vse data extract"
        )
    if features == "pixels":
        return load_photographs(Path(data), view)
    if data in WORLDS:
        return replace(scenes.load(features=features, **WORLDS[data]), name=data)
    dataset = open_precomp(Path(data), test="testall" if test == "testall" else "test")
    return with_boxes(dataset) if boxes else dataset


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
