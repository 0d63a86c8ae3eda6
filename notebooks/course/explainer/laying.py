"""The explainer: the book's page on which a sentence finds its picture, with systems that run in the page.

A page that is opened as a file may load scripts and pictures and nothing else, so all that it needs is
written as scripts: systems, the pictures' features, and what is true of which picture. What computes and
draws stands in `page`.
"""

import copy
import functools
import re
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import torch
from IPython.display import IFrame
from PIL import Image

from course.engine import FIRST_RECIPE, first_engine
from course.explainer import film, trained
from course.explainer.twins import exported, index, packed, script_name, write_script
from vsecore import paths, records, scenes
from vsecore.data.splits import FeatureKind, Split
from vsecore.experiments import WORLDS
from vsecore.scenes import grammar
from vsecore.scenes.build import boxes_of
from vsecore.scenes.facts import SIDE
from vsecore.training import Run, load_run

SCRIPTS = Path(__file__).with_name("page")
FIRST_EXAMPLES = (
    "two boats on the lake",
    "a red kite above the beach",
    "a girl holding a balloon",
    "a snowman beside a tree",
    "three sheep on the farm",
    "a yellow bus in the street",
)
"""What the buttons ask. The page says of which pictures these are true; other sentences it cannot parse."""
ORDER = ("a man to the left of a woman", "a woman to the left of a man")
"""One sentence and the same words in another order."""
EXAMPLES = (*FIRST_EXAMPLES, *ORDER)
CHUNK = 25
"""Pictures whose features come in one script."""
ALIKE: dict[str, tuple[str, ...]] = {
    "colours": tuple(words[0] for words in grammar.COLOUR_WORDS.values()),
    "things": tuple(
        names[0][0] for noun, names in grammar.NOUN_WORDS.items() if " " not in names[0][0] and noun != "palm"
    ),
    "several things": tuple(
        names[0][1] for noun, names in grammar.NOUN_WORDS.items() if " " not in names[0][1] and noun != "palm"
    ),
    "numbers": ("two", "three", "four"),
    "sizes": ("small", "large"),
    "sides": ("left", "right"),
    "relations": ("above", "below", "beside", "behind"),
    "places": ("beach", "park", "street", "harbour", "farm", "lake"),
}
"""Words that may stand in each other's place."""


def lay_explainer(folder: Path, names: Sequence[str] = tuple(trained.SYSTEMS)) -> None:
    """Write everything that the explainer loads into a folder, with some of the systems and the first engine.

    The same weights give the same bytes. A folder that exists is replaced, but for the runs that were
    exported there.
    """
    part = folder.with_name(f".{folder.name}.part")  # whole or not at all
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(SCRIPTS, part)
    tests: dict[FeatureKind, Split] = {
        kind: scenes.load(train=1, dev=1, features=kind).test for kind in ("grid", "region")
    }
    write_script(part, "world", world(names))
    first, vocabulary = first_engine()
    write_script(part, "first", exported(first, FIRST_RECIPE, vocabulary, tests["grid"], "First engine"))
    for name in names:
        recipe, model, words = trained.recipe_of(name), trained.load(name), trained.vocabulary(name)
        read, more = tests[recipe.features], dict[str, object]()
        if trained.SYSTEMS[name].kind == "mark":
            read, bare, spoken = trained.marked(read)
            more = {"bare": index(model, bare, words)["index"], "spoken": spoken}
        write_script(part, name, exported(model, recipe, words, read) | more)
    for name in film.FILMS:
        write_script(part, name, film.told(name, tests["grid"]))
    for kind, split in tests.items():
        lay_features(part, kind, split)
    (part / "pictures").mkdir()
    for row, pixels in enumerate(scenes.pixels("test")):
        Image.fromarray(pixels).save(part / "pictures" / f"{row}.webp", quality=75)
    for run in folder.glob("run-*.js"):
        shutil.copy2(run, part)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def explain(run: Run | str | Path, name: str = "yours", height: int = 900) -> IFrame:
    """Open a run of your own, from `fit`, or by its folder, in the explainer; `name` is on its button.

    Python serves the page on this machine: where notebooks run on another one, take
    `python -m course explain` instead.

    Raises:
        ValueError: a part of the system has no JavaScript twin, or it was trained on photographs.
    """
    content = own(run if isinstance(run, Run) else load_run(run), name)
    folder = (paths.ROOT if paths.is_checkout() else Path().absolute()) / "build" / "explainer"
    if _outdated(folder):
        lay_explainer(folder)
    path = write_script(folder, script_name(name), content)
    return IFrame(f"{served(folder)}/index.html?run={path.stem}", "100%", height)


def own(run: Run, name: str) -> dict[str, object]:
    """Return a run as the explainer reads it, under a name; errors as for `explain`."""
    if run.data["name"] not in WORLDS:
        raise ValueError(
            f"run was trained on {run.data['name']}, and the explainer shows scenes: train one on them "
            "(vse train RECIPE --out FOLDER, without --data)"
        )
    test = scenes.load(train=1, dev=1, features=run.recipe.features).test
    return exported(copy.deepcopy(run.model).cpu(), run.recipe, run.tokenizer, test, name)


def _outdated(folder: Path) -> bool:
    """Whether the explainer is not there, or was written before one of the files that it is made from."""
    last = folder / "pictures"  # what `lay_explainer` writes last
    own = (*SCRIPTS.parent.glob("*.*"), *SCRIPTS.iterdir())
    sources = (*own, *paths.assets().rglob("*.safetensors"), *paths.PACKAGE.rglob("*.py"))
    return not last.is_dir() or last.stat().st_mtime < max(path.stat().st_mtime for path in sources)


class _Handler(SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")  # a run may be exported again under its name
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass  # or every picture would be a line below the cell


@functools.cache
def served(folder: Path) -> str:
    """Serve a folder to browsers on this machine as long as Python runs; return its address.

    JupyterLab opens a page of its own files without their rights: the page gets no script and no picture.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def lay_features(folder: Path, kind: str, split: Split) -> None:
    """Write what the picture encoders read, in eight bits, some pictures a script."""
    counts = split.picture_counts
    for start in range(0, len(split), CHUNK):
        rows = range(start, min(start + CHUNK, len(split)))
        block = torch.from_numpy(np.asarray(split.pictures[np.arange(rows.start, rows.stop)], np.float32))
        sizes = [block.shape[1] if counts is None else int(counts[row]) for row in rows]
        parts = packed(torch.cat([picture[:size] for picture, size in zip(block, sizes, strict=True)]))
        parts.pop("fine", None)
        write_script(folder, f"{kind}-{start // CHUNK}", {"features": parts, "counts": sizes})


def told(name: str) -> tuple[str, str, str, str]:
    """Return a system's name, title, kind, and what the page says of it."""
    shown, recipe = trained.SYSTEMS[name], trained.recipe_of(name)
    rsum = records.find(trained.RECORDS, config_hash=recipe.hash())[-1].metrics["rsum"]
    result = f"{recipe.training.epochs} epochs; its rsum (six recalls in %) is {rsum:.0f} of 600."
    return name, shown.title, shown.kind, f"{shown.about} Trained for {result}"


def world(names: Iterable[str]) -> dict[str, object]:
    """Return the test pictures' captions and boxes, and of which pictures each sentence of ours is true."""
    made = scenes.pictures("test")
    drawn = [picture.scene for picture in made]
    captions = [caption for picture in made for caption in picture.captions]
    asked = []
    for sentence in dict.fromkeys(one for example in EXAMPLES for one in (example, *changed(example))):
        with suppress(ValueError):  # "three sheep" with another word may be no sentence of the world
            asked.append(scenes.Caption(sentence, scenes.parse(sentence), annotator=""))
    relevance = scenes.relevance([*captions, *asked], drawn)  # (Nc + asked, Ni)
    true = [np.flatnonzero(row).tolist() for row in relevance]
    return {
        "captions": [[caption.text for caption in picture.captions] for picture in made],
        "truth": true[: len(captions)],
        "asked": {one.text: rows for one, rows in zip(asked, true[len(captions) :], strict=True)},
        "examples": EXAMPLES,
        "first": len(FIRST_EXAMPLES),
        "order": ORDER,
        "negatives": [row for row in range(3, len(captions), 35) if 3 <= relevance[row].sum() <= 20],
        "systems": [told(name) for name in names],
        "films": [(name, shown.title) for name, shown in film.FILMS.items()],
        "alike": ALIKE,
        "boxes": [(boxes_of(scene) / SIDE).tolist() for scene in drawn],
        "things": [["the whole picture", *(thing.kind for thing in scene.things)] for scene in drawn],
        "chunk": CHUNK,
    }


def changed(sentence: str) -> Iterator[str]:
    """Yield the sentence with one of its words replaced, as a click on the word replaces it."""
    for word in dict.fromkeys(re.findall(r"\w+", sentence)):
        for group in ALIKE.values():
            if word in group:
                yield from (re.sub(rf"\b{word}\b", other, sentence) for other in group if other != word)
