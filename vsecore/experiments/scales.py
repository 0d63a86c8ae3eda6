"""The width and length of training for an experiment on some data; all its arms share them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from vsecore.experiments.experiment import Candidates, at_scale
from vsecore.recipes import Recipe

Scale = Literal["paper", "fair", "lesson"]
"""At the scale of the paper, recipes have their own width, epochs and learning rate. Fair trainings may be
judged: each system has a learning rate of its own (see `tuning`), and all have the same width and number of
epochs; `gates` asks whether they were enough. A lesson takes minutes, and so it ranks the systems by how fast
they learn."""

LESSON_SCALE: dict[str, dict[str, Any]] = {
    "scenes": {
        "dim": 128,
        "text.encoder.word_dim": 64,
        "training.epochs": 3,
        "training.learning_rate": 2e-3,
        "training.warmup_steps": 0,
        "training.decay_epochs": 2,
    },
    "flickr8k": {
        "dim": 128,
        "text.encoder.word_dim": 50,
        "training.epochs": 3,
        "training.learning_rate": 2e-3,
        "training.schedule": "cosine",
    },
}
"""Changes that let the papers' recipes, meant for COCO and a GPU, run in minutes on two cores."""

FAIR_SCALE: dict[str, dict[str, Any]] = {
    "scenes": {
        "dim": 128,
        "text.encoder.word_dim": 64,
        "training.epochs": 15,
        "training.schedule": "cosine",
        "first_round.texts": 25,
        "first_round.pictures": 5,
    },
    "flickr8k": {
        "dim": 512,
        "text.encoder.word_dim": 300,
        "training.epochs": 15,
        "training.schedule": "cosine",
        "first_round.texts": 40,
        "first_round.pictures": 8,
    },
}
"""Changes that give each system long enough for most to level off, with a schedule that ends low. Lists of
mined negatives shrink with the training set: see `experiment.at_scale`."""


def changes_of(scale: Scale, data: str) -> dict[str, Any]:
    """Return the changes that a scale makes to each recipe; all photographs have those of Flickr8k.

    Raises:
        ValueError: the scale is unknown.
    """
    if scale not in get_args(Scale):
        raise ValueError(f"scale is {scale!r}: wanted one of {', '.join(get_args(Scale))}")
    if scale == "paper":
        return {}
    changes = FAIR_SCALE if scale == "fair" else LESSON_SCALE
    return changes.get(data, changes["flickr8k"])


def recipe_at(candidates: Candidates, changes: Mapping[str, Any]) -> Recipe | None:
    """Return the one recipe of a system, with changes; None if there are several to choose from on dev."""
    own = candidates.changes(changes)
    return at_scale(candidates.recipes[0], own) if len(candidates.recipes) == 1 else None
