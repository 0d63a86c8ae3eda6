"""Numbers recorded at each step of a training and kept with its run, so that a kill loses none of them."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from vsecore.data.files import read_text, write_atomically
from vsecore.losses import Rule, negatives_kept
from vsecore.training import Event
from vsecore.typed import from_json

WATCHED = "watched.json"
RULES: tuple[Rule, ...] = ("released", "printed")
Observe = Callable[[Event], Mapping[str, Tensor | float]]
"""Maps a step's event to numbers by name."""


class Watch:
    """A callback of `fit` that records some numbers of each step.

    Numbers stay on their device until the run is saved, since reading one waits for a GPU.

    Args:
        folder: the run's folder; the numbers are written there before each checkpoint.
        observe: functions that return the numbers of a step.
    """

    def __init__(self, folder: Path, observe: Iterable[Observe]) -> None:
        self.path, self.observe = folder / WATCHED, tuple(observe)
        self.seen: dict[str, dict[str, Tensor | float]] = {}  # by the step's number
        if self.path.is_file():
            kind = dict[str, dict[str, int | float]]
            self.seen |= from_json(str(self.path), read_text(self.path), kind)

    def __call__(self, event: Event) -> None:
        """Record a step; one that is taken again after a kill gives the same numbers again."""
        if event.kind != "step":
            return
        self.seen[str(event.step)] = {"epoch": event.epoch}
        for observe in self.observe:
            self.seen[str(event.step)] |= observe(event)
        if event.saved:
            numbers = dict(zip(self.seen, self.steps(), strict=True))
            with write_atomically(self.path, "w") as file:
                json.dump(numbers, file)

    def steps(self) -> list[dict[str, float]]:
        """Return the numbers of every step, and its epoch, in order."""
        for seen in self.seen.values():
            seen.update({name: value.item() for name, value in seen.items() if isinstance(value, Tensor)})
        return list(self.seen.values())  # type: ignore[arg-type]  # numbers by now


def by_epoch(steps: Iterable[Mapping[str, float]], name: str) -> dict[int, list[float]]:
    """Return the values that steps showed of something, by epoch; {}: none showed it."""
    found: dict[int, list[float]] = defaultdict(list)
    for step in steps:
        if name in step:
            found[int(step["epoch"])].append(step[name])
    return found


def observe_negatives(event: Event) -> dict[str, Tensor | float]:
    """Return how many negatives each rule of AdOpt keeps of a step."""
    return {f"negatives_{rule}": negatives_kept(event.scores, rule, event.positives) for rule in RULES}


def negatives_by_epoch(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return how many negatives each rule of AdOpt keeps, the mean over the steps of each epoch."""
    return {
        f"negatives_{rule}_{epoch + 1}": statistics.mean(kept)
        for rule in RULES
        for epoch, kept in by_epoch(steps, f"negatives_{rule}").items()
    }
