"""What the steps of a training show, kept beside its run: one that was killed goes on with all of it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from torch import Tensor

from vsecore.data.files import read_text, write_atomically
from vsecore.training import Event
from vsecore.typed import from_json

WATCHED = "watched.json"


class Watch:
    """A callback of `fit` that remembers what each step shows.

    Numbers stay on their device until the run is saved, since reading one waits for a GPU.

    Args:
        folder: the run's; what is remembered is written there before each checkpoint.
        looks: what is looked at: each maps a step's event to numbers by name.
    """

    def __init__(
        self, folder: Path, looks: Iterable[Callable[[Event], Mapping[str, Tensor | float]]]
    ) -> None:
        self.path, self.looks = folder / WATCHED, tuple(looks)
        self.seen: dict[str, dict[str, Tensor | float]] = {}  # by the step's number
        if self.path.is_file():
            text = read_text(self.path)
            self.seen |= from_json(str(self.path), text, dict[str, dict[str, int | float]])

    def __call__(self, event: Event) -> None:
        """Remember a step; one that is taken again after a kill shows the same again."""
        if event.kind != "step":
            return
        self.seen[str(event.step)] = {"epoch": event.epoch}
        for look in self.looks:
            self.seen[str(event.step)] |= look(event)
        if event.saved:
            numbers = self.steps()
            with write_atomically(self.path, "w") as file:
                json.dump(dict(zip(self.seen, numbers, strict=True)), file)

    def steps(self) -> list[dict[str, float]]:
        """Return what every step showed, and its epoch, in order."""
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
