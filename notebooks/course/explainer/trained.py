"""The small systems that the explainer opens. `python -m course.explainer` trains them anew.

All read the same scenes with the same words. They are trained for minutes, so what they show is how each
works, and not how good its paper is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from safetensors.torch import load_file, save
from torch import Tensor

from course.marks import Marks
from vsecore import records, scenes
from vsecore.data.files import write_whole
from vsecore.data.sentence_targets import with_targets
from vsecore.data.splits import Dataset, Split
from vsecore.data.vocabulary import Vocabulary
from vsecore.model import VSE
from vsecore.paths import assets, results
from vsecore.recipes import Recipe, get
from vsecore.training import evaluate_split, fit

FOLDER = assets() / "explainer"
RECORDS = results() / "explainer"
WIDTHS = {"grid": 144, "region": 246}
"""The widths of the scenes' features."""

SCALE: dict[str, Any] = {
    "dim": 96,
    "text.encoder.word_dim": 64,
    "training.epochs": 3,
    "training.batch_size": 64,
    "training.batches": "pairs",
    "training.learning_rate": 2e-3,
    "training.warmup_steps": 0,
    "training.schedule": "cosine",
}


class Shown(NamedTuple):
    """A system as the page shows it.

    Attributes:
        title: what a button calls it.
        kind: "pool" if only the pools differ between it and others of this kind; "mark" if it was trained on
            pictures with numbers, which only an experiment shows; else "system".
        about: a sentence that says what it is.
        recipe: its name in `recipes`.
        changes: what differs from the recipe besides `SCALE`.
    """

    title: str
    kind: str
    about: str
    recipe: str
    changes: Mapping[str, Any] = {}


_FILE = Path(__file__).with_name("systems.yml")
SYSTEMS = {name: Shown(**shown) for name, shown in yaml.safe_load(_FILE.read_text(encoding="utf-8")).items()}
"""The systems by the names of their files, in the order of the buttons."""


def recipe_of(name: str) -> Recipe:
    """Return the recipe of one of `SYSTEMS`."""
    shown = SYSTEMS[name]
    return get(shown.recipe).override(SCALE).override(shown.changes)


def vocabulary(name: str = "") -> Vocabulary:
    """Return the words that all systems know; the one with marks knows numbers too."""
    return Vocabulary.load(FOLDER / "marked" if name == "marked" else FOLDER)


def data_of(name: str) -> Dataset:
    """Return the scenes that one of `SYSTEMS` learns from, with features of the kind that it reads."""
    recipe = recipe_of(name)
    data = scenes.load(features=recipe.features)
    if SYSTEMS[name].kind == "mark":
        marks = Marks(data)

        def numbered(split: Split) -> Split:
            own = marks.numbers(split)[0]
            return marks.lay(split, own, own)

        data = replace(data, train=numbered(data.train), dev=numbered(data.dev), test=numbered(data.test))
    return with_targets(data) if recipe.predicts_targets else data


def marked(test: Split) -> tuple[Split, Split, list[tuple[str, str, int]]]:
    """Return the test pictures with their tags and without, and some captions for the experiment.

    Each comes with its number and without it, and with the picture that it was written for.
    """
    marks = Marks(scenes.load(train=1, dev=1, features="region"))  # to learn from there is nothing here
    own = marks.numbers(test)[0]
    tagged, bare = marks.lay(test, own, own), marks.lay(test)
    rows = range(1, len(test.captions), 125)
    return tagged, bare, [(tagged.captions[row], bare.captions[row], int(test.owner[row])) for row in rows]


def load(name: str) -> VSE:
    """Return one of `SYSTEMS`, in evaluation mode."""
    recipe = recipe_of(name)
    model = recipe.build(WIDTHS[recipe.features], vocabulary(name))
    model.load_state_dict(unpacked(load_file(FOLDER / f"{name}.safetensors")))
    return model.eval()


def packed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Pack matrices as bytes, each row with a scale of its own; the rest stays as it is."""
    parts: dict[str, Tensor] = {}
    for name, value in weights.items():
        if value.ndim == 2:
            largest = value.abs().amax(1, keepdim=True)  # (N, 1)
            scale = largest.clamp(min=torch.finfo(torch.float32).tiny) / 127
            parts[name], parts[f"{name}.scale"] = (value / scale).round().to(torch.int8), scale
        else:
            parts[name] = value
    return parts


def unpacked(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights that were packed, each matrix rounded to 255 steps a row."""
    return {
        name: value * parts[f"{name}.scale"] if value.dtype == torch.int8 else value
        for name, value in parts.items()
        if not name.endswith(".scale")
    }


def make(names: Sequence[str] = ()) -> None:
    """Train systems, all or some by name, store them, and record how good they are as they are stored."""
    if unknown := set(names) - SYSTEMS.keys():
        raise ValueError(f"{min(unknown)!r} is none of the explainer's systems: {', '.join(SYSTEMS)}")
    for name in names or SYSTEMS:
        recipe, data = recipe_of(name), data_of(name)
        words = recipe.tokenizer(data.train.captions)
        folder = FOLDER / "marked" if name == "marked" else FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        words.save(folder)
        run = fit(recipe, data, seed=0, tokenizer=words)
        parts = packed(run.model.state_dict())
        write_whole(FOLDER / f"{name}.safetensors", save(parts))
        run.model.load_state_dict(unpacked(parts))
        metrics = evaluate_split(run.model, data.test, words)
        records.write(records.record_run(run, metrics, f"the explainer's system {name}"), RECORDS)
