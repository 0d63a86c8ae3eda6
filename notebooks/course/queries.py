"""Which picture some systems of the scoreboard put first for each caption of the test split.

Such trainings take half an hour, so that what came of them is stored. ``python -m course.queries`` repeats
them: each system has the settings of its record, and seed 0.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor

from course import standings
from vsecore import scenes
from vsecore.data.files import read_json, write_json
from vsecore.paths import results
from vsecore.training import encode, fit

FOLDER = results() / "queries"
SYSTEMS = {"VSE++": "VSE++", "2AD": "2AD on whole input", "VSRN": "VSRN", "SCAN": "SCAN, image to text"}
"""Rows of the scoreboard that see the whole input in training, by the name that a figure has room for."""


def first_pictures() -> dict[str, Tensor]:
    """Return for each of `SYSTEMS` the row of every caption's first picture, (Nc,)."""
    return {name: torch.tensor(read_json(stored(name))["first_pictures"]) for name in SYSTEMS}


def stored(name: str) -> Path:
    """Where the first pictures of one of `SYSTEMS` lie."""
    return FOLDER / f"{name}-seed0.json"


def repeat(name: str) -> None:
    """Train one of `SYSTEMS` as its record says, and store its first pictures."""
    arm, dataset = standings.found("17")[SYSTEMS[name]], scenes.load(features="region")
    recipe = standings.recipe_of(arm)
    assert recipe is not None  # none of them is an ensemble
    run = fit(recipe, dataset, seed=0)
    v, t = encode(run.model, dataset.test, run.tokenizer)
    first: list[int] = run.model.scores(v, t).argmax(0).tolist()
    of = {"name": arm.title[0], "config_hash": arm.title[1], "seed": 0}
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_json(stored(name), of | {"fingerprint": dataset.fingerprint(), "first_pictures": first})


if __name__ == "__main__":
    for system in sys.argv[1:] or SYSTEMS:
        repeat(system)
