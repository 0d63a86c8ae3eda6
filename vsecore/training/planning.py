"""What a training will cost, before it is paid for: `plan` takes some real steps and counts the rest."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from vsecore.arguments import Positive, checked
from vsecore.data.files import without_progress
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.splits import Dataset, Split
from vsecore.data.words import Tokenizer
from vsecore.embedding import Embedding
from vsecore.evaluation import evaluate
from vsecore.mining.models import Search, search_embedded
from vsecore.model import VSE
from vsecore.processes import from_main_process
from vsecore.recipes import Recipe
from vsecore.scoring import encode, score_embedded
from vsecore.training.distributed import hardware, peak_memory
from vsecore.training.loop import fit
from vsecore.training.run import Event

PROBED = 256
"""Pictures that are embedded to know what all of them take."""
LONG_ENOUGH = 0.5
"""Seconds of comparing beside which the fixed cost of a call no longer counts."""
TARGET_DIM = 384
"""The width of a caption's target where there is none yet: that of all-MiniLM-L6-v2."""


@dataclass(frozen=True)
class Cost:
    """What a training will cost on this machine."""

    device: str
    """The name of the processor or GPU."""
    steps: int
    """Steps of an epoch."""
    epochs: int
    step_seconds: float
    """Seconds of a step, its data included, the mean over those that were tried."""
    evaluation_seconds: float
    """Seconds that the development split takes after each epoch."""
    memory_bytes: int
    """The most memory that this process has had."""
    gpu_memory_bytes: int
    """The most memory of the GPU that the training takes; 0: there is none."""
    feature_bytes: int
    """The features on disk, of all splits; 0: the recipe reads pixels."""
    run_bytes: int
    """The run's folder, nearly all of it weights and the optimizer's state."""
    mining_seconds: float = 0.0
    """Seconds that mining takes between two rounds."""
    first_round: Cost | None = None

    @property
    def seconds(self) -> float:
        """Seconds of everything."""
        before = 0.0 if self.first_round is None else self.first_round.seconds + self.mining_seconds
        return before + self.epochs * (self.steps * self.step_seconds + self.evaluation_seconds)

    def rows(self) -> dict[str, str]:
        """Return what the cost is made of, in words, for a table."""
        rows = {"processor": self.device}
        if self.first_round is not None:
            rows["first round"] = duration(self.first_round.seconds)
            rows["mining"] = duration(self.mining_seconds)
        rows |= {
            "steps": f"{self.steps:,} an epoch, {self.epochs} epochs",
            "a step": f"{self.step_seconds:.3g} s",
            "an evaluation": f"{duration(self.evaluation_seconds)}, after each epoch",
            "in all": duration(self.seconds),
            "memory": f"{self.memory_bytes / 1e9:.1f} GB",
        }
        if self.gpu_memory_bytes:
            rows["memory of the GPU"] = f"{self.gpu_memory_bytes / 1e9:.1f} GB"
        if self.feature_bytes:
            rows["features on disk"] = f"{self.feature_bytes / 1e9:.1f} GB"
        return rows | {"the run on disk": f"{self.run_bytes / 1e9:.2f} GB"}


def duration(seconds: float) -> str:
    """Say how long something takes, in a unit that suits it."""
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds" if seconds >= 0.999 else f"{1000 * seconds:.3g} ms"


class EnoughError(Exception):
    """Ends a training at once, from a callback that has seen enough."""


class _StepTimer:
    """A callback that times the steps of a training, and ends it after some seconds.

    The very first step does not count, unless it is the only one: memory must be taken, and caches filled.
    """

    event: Event
    device: torch.device
    """Where the steps ran; a training that has ended moves its model to the CPU."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.steps, self._before = seconds, list[float](), time.perf_counter()

    def __call__(self, event: Event) -> None:
        _finish_on_gpu()
        self.event, before, self._before = event, self._before, time.perf_counter()
        self.device = next(event.system.parameters()).device
        if event.kind == "step":
            self.steps.append(self._before - before)
        enough = from_main_process(lambda: sum(self.steps[1:]) >= self.seconds)  # several end together
        self._before = time.perf_counter()
        if enough:
            raise EnoughError


@checked
def plan(recipe: Recipe, data: Dataset, *, seconds: Positive = 20.0, **keywords: Any) -> Cost:
    """Take real steps of a recipe for some seconds, and count what the whole training will take.

    The steps are those of `fit`, data and all, on this machine; they are thrown away. Offline negatives, and
    targets of captions, are replaced by made-up ones, which take as long. Pretrained weights that rest for
    some epochs are counted as if they learned in all, so that the training takes this at most. Other programs
    on this machine make the training longer, and so does a disk that is slower than memory if the features do
    not fit there.

    Args:
        recipe: what will be trained.
        data: what on. A `data.rehearsal` of the same shape will do where the data are not there yet, as long
            as memory and disk have room for the real ones.
        seconds: how long to take steps, of each round.
        keywords: settings as for `fit`: `device`, `precision`, `workers`.
    """
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()  # what ran before in this process is not this training's
    # While pretrained weights rest, steps take less time and memory than those that train them.
    recipe = replace(recipe, training=replace(recipe.training, frozen_epochs=0))
    if recipe.predicts_targets and data.train.targets is None:
        same = np.broadcast_to(np.float32(TARGET_DIM**-0.5), (len(data.train.captions), TARGET_DIM))
        data = replace(data, train=replace(data.train, targets=same))
    first = None
    if recipe.first_round is not None:
        first = plan(recipe.of_first_round(), data, seconds=seconds, **keywords)
        # The weights of a first round take no longer to train than new ones.
        recipe = replace(recipe, first_round=None)
    tokenizer = recipe.tokenizer(data.train.captions)
    negatives = _some_negatives(data.train) if recipe.learns_offline else None
    timer = _StepTimer(seconds)
    with contextlib.suppress(EnoughError), without_progress():  # its bar would show a training
        fit(recipe, data, tokenizer=tokenizer, negatives=negatives, callback=timer, **keywords)
    system, settings = timer.event.system.to(timer.device), recipe.training
    model, steps = system.model, timer.steps[1:] or timer.steps
    examples = len(data.train.captions) if settings.batches == "pairs" else len(data.train)
    pictures = [split.pictures for split in (data.train, data.dev, data.test)]
    feature_bytes = sum(int(np.prod(x.shape, dtype=np.int64)) * x.dtype.itemsize for x in pictures)
    return Cost(
        device=hardware(timer.device),
        steps=examples // settings.batch_size,
        epochs=settings.epochs,
        step_seconds=sum(steps) / len(steps),
        evaluation_seconds=_seconds_of(
            lambda v, t, owner: evaluate(score_embedded(model, v, t), owner), model, data.dev, tokenizer
        ),
        memory_bytes=peak_memory(),
        gpu_memory_bytes=torch.cuda.max_memory_allocated(),  # 0 without one
        feature_bytes=0 if data.feature_kind == "pixels" else feature_bytes,
        # Weights, their best, and two moments of each, in float32; a first round's stay beside them.
        run_bytes=4 * 4 * sum(weight.numel() for weight in system.parameters())
        + (0 if first is None else first.run_bytes),
        mining_seconds=0.0
        if first is None
        else _seconds_of(
            lambda *embedded: Search.run(*search_embedded(model, *embedded)), model, data.train, tokenizer
        ),
        first_round=first,
    )


@torch.inference_mode()
def _seconds_of(
    compare: Callable[[Embedding, Embedding, np.ndarray], object],
    model: VSE,
    split: Split,
    tokenizer: Tokenizer,
) -> float:
    """Return what embedding a split and comparing all pairs will take, from what it takes on a few pictures.

    Embedding takes time by the number of pictures, comparing by that of pairs. Comparing is timed on as many
    copies of the few as take `LONG_ENOUGH`, since a call's fixed cost would be multiplied, too.
    """
    few = split.subset(min(PROBED, len(split)))
    model.eval()
    embedded = encode(model, few, tokenizer)  # the first time is slower
    began = time.perf_counter()
    encode(model, few, tokenizer)
    embedding = time.perf_counter() - began

    def comparing(copies: int) -> float:
        v, t = (side[torch.arange(len(side)).repeat(copies)] for side in embedded)
        owner = np.concatenate([few.owner + copy * len(few) for copy in range(copies)])
        began = time.perf_counter()
        compare(v, t, owner)
        _finish_on_gpu()
        return time.perf_counter() - began

    most, copies = -(-len(split) // len(few)), 1
    if (took := comparing(1)) < LONG_ENOUGH:  # else near enough, though the first time is slower
        while (took := comparing(copies)) < LONG_ENOUGH and copies < most:
            copies = min(2 * copies, most)
    share = len(few) / len(split)
    pairs = share * len(few.captions) / len(split.captions) * copies**2
    return embedding / share + took / pairs


def _some_negatives(split: Split) -> OfflineNegatives:
    """Return other pictures and their captions as if they were the hardest."""
    first = np.unique(split.owner, return_index=True)[1]  # (n,)   a caption of each picture
    others = 1 + np.arange(min(4, len(split) - 1))
    following = (np.arange(len(split))[:, None] + others) % len(split)  # (n, k)
    return OfflineNegatives(first[following].astype(np.int32), following[split.owner].astype(np.int32))


def _finish_on_gpu() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
