"""Training as a film: where one batch of test pictures and captions stands on the sphere, step by step.

`python -m course.explainer NAME` records a film anew.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import yaml
from safetensors.torch import load_file, save
from torch import Tensor

from course.explainer import trained
from course.explainer.twins import packed
from vsecore import records
from vsecore.data.files import write_whole
from vsecore.data.splits import Split
from vsecore.data.words import Tokenizer
from vsecore.embedding import unit
from vsecore.experiments.watching import observe_losses
from vsecore.losses import negatives_kept
from vsecore.scoring import encode
from vsecore.training import Event, evaluate_split, fit

EPOCHS = 15
BATCH = tuple(range(0, 960, 15))
"""The test pictures that are followed, B = 64 of them, each with the longest of its captions."""
EARLY = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 100, 120, 140, 160, 200, 250)
"""The steps within the first epoch that are kept, besides the end of every epoch: most happens there."""


class Film(NamedTuple):
    """A training that is shown: its button, the system that it trains, a notebook, and what to look for."""

    title: str
    system: str
    notebook: str
    look: str


_FILE = Path(__file__).with_name("films.yml")
FILMS = {name: Film(**shown) for name, shown in yaml.safe_load(_FILE.read_text(encoding="utf-8")).items()}
"""The films by the names of their files, in the order of the buttons."""


class Camera:
    """A callback of `fit` that keeps the batch's vectors at some steps, and what happened up to them."""

    def __init__(self, batch: Split, words: Tokenizer) -> None:
        self.batch, self.words = batch, words
        self.vectors: list[Tensor] = []
        self.numbers: list[dict[str, float]] = []
        self.since: list[dict[str, float]] = []

    def __call__(self, event: Event) -> None:
        """Note a step; at the chosen ones, and at the end of each epoch, keep a frame."""
        if event.kind == "step":
            kept = negatives_kept(event.scores, positives=event.positives)
            seen: dict[str, Tensor | float] = {"step": event.step, "negatives": kept}
            seen |= observe_losses(event)
            self.since.append({name: float(value) for name, value in seen.items()})
        if event.kind == "evaluated" or event.step in EARLY:
            sides = encode(event.model, self.batch, self.words)
            self.vectors.append(torch.stack([unit(side.needed("vectors")) for side in sides]))  # (2, B, D)
            mean = {name: float(np.mean([one[name] for one in self.since])) for name in self.since[0]}
            last = {name: value for name, value in self.since[-1].items() if name in ("step", "multiplier")}
            self.numbers.append(mean | last)
            self.since.clear()


def batch_of(test: Split) -> Split:
    """Return the pictures that are followed, each with the longest of its captions."""
    rows = np.array(BATCH)
    captions = [max((test.captions[at] for at in np.flatnonzero(test.owner == row)), key=len) for row in rows]
    return replace(test.take(rows, test.pictures[rows]), captions=captions, owner=np.arange(len(rows)))


def developed(vectors: Tensor) -> dict[str, Tensor]:
    """Project frames to the plane, and measure in all dimensions how captions find their pictures.

    Args:
        vectors: unit vectors of B pictures and their captions, (F, 2, B, D).

    Returns:
        `points`, the vectors' shadow on the plane of the last frame's first two principal components,
        (F, 2, B, 2), and `share`, how much of the last frame's variance each of the two keeps; for each
        caption the cosine with its picture (`own`), with the nearest wrong picture (`wrong`), which that is
        (`which`), each (F, B); and the mean cosine of all wrong pairs, `others` (F,).
    """
    last = vectors[-1].flatten(0, 1)  # (2B, D)
    spread, axes = torch.linalg.svd(last - last.mean(0))[1:]
    scores = vectors[:, 1] @ vectors[:, 0].mT  # (F, B captions, B pictures)
    pairs = torch.eye(scores.shape[1], dtype=torch.bool)
    wrong, which = scores.masked_fill(pairs, -torch.inf).max(-1)
    return {
        "points": vectors @ axes[:2].T,
        "share": (spread**2 / (spread**2).sum())[:2],
        "own": scores[:, pairs],
        "wrong": wrong,
        "which": which.byte(),
        "others": scores[:, ~pairs].mean(1),
    }


def told(name: str, test: Split) -> dict[str, object]:
    """Return a film for JSON; its measures come in the order in which the page draws them."""
    film, parts = FILMS[name], load_file(trained.FOLDER / f"{name}.safetensors")
    own, wrong = parts["own"].float(), parts["wrong"].float()  # (F, B)
    found = 100 * (own > wrong).float().mean(1)
    measures = parts | {"own": own.mean(1), "wrong": wrong.mean(1), "found": found}
    first = ("multiplier", "reconstruction", "bound") if "bound" in parts else ("negatives",)
    shown = (*first, "own", "wrong", "others", "found", "contrast")
    return {
        "title": film.title,
        "notebook": film.notebook,
        "look": film.look,
        "pictures": BATCH,
        "captions": batch_of(test).captions,
        "epochs": (parts["step"] * EPOCHS / parts["step"][-1]).tolist(),
        "steps": parts["step"].tolist(),
        "share": round(100 * float(parts["share"].sum())),
        "points": packed(parts["points"].float().flatten(1)),
        "own": packed(own),
        "wrong": packed(wrong),
        "which": parts["which"].tolist(),
        "measures": {key: [round(float(value), 3) for value in measures[key]] for key in shown},
    }


def make(name: str) -> None:
    """Record a film: train its system, store the frames in half precision, and keep a record of the run."""
    system = FILMS[name].system
    data, words = trained.data_of(system), trained.vocabulary()
    camera = Camera(batch_of(replace(data.test, targets=None)), words)
    recipe = trained.recipe_of(system).override({"training.epochs": EPOCHS})
    run = fit(recipe, data, seed=0, tokenizer=words, callback=camera)
    # A number for each frame, (F,), by name; the vectors of all frames are (F, 2, B, D).
    numbers = {key: torch.tensor([one[key] for one in camera.numbers]) for key in camera.numbers[0]}
    kept = {
        key: value if key in ("step", "which") else value.half()
        for key, value in (developed(torch.stack(camera.vectors)) | numbers).items()
    }
    write_whole(trained.FOLDER / f"{name}.safetensors", save(kept))
    metrics = evaluate_split(run.model, data.test, words)
    records.write(records.record_run(run, metrics, f"the explainer's {name}"), trained.RECORDS)
