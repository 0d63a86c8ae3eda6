"""Each system's own learning rate, chosen on the development split: one for all would favour some of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vsecore.recipes import Recipe, get
from vsecore.records import Record

LADDER = tuple(1e-3 * 2.0**step for step in range(-4, 5))
"""The learning rates that can be tried, each twice the one before."""
FIRST = (1e-3, 2e-3, 4e-3)
"""Those that are tried of every system; then the neighbours of the best, until it is not at the edge."""
SEED = 0
"""Of the trainings that choose."""


def at_rate(name: str, scale: Mapping[str, Any], rate: float) -> Recipe:
    """A recipe with this learning rate.

    Args:
        name: as `recipes.get` reads it.
        scale: other changes to the recipe.
        rate: the learning rate.
    """
    return get(name, {**scale, "training.learning_rate": rate})


def development_rsum(entry: Record) -> float:
    """The best rsum on the development split that the record of a training tells."""
    return max(value for metric, value in entry.metrics.items() if metric.startswith("dev_rsum_"))


def tried(name: str, scale: Mapping[str, Any], entries: Iterable[Record]) -> dict[float, float]:
    """What is recorded of a system's learning rates: the best rsum on dev of each, lowest rate first.

    Args:
        name: of the system's recipe, with its variants.
        scale: of the experiment.
        entries: records of the data; those of other systems and seeds are left out.
    """
    mine = {entry.config_hash: entry for entry in entries if entry.name == name and entry.seed == SEED}
    digests = {rate: at_rate(name, scale, rate).hash() for rate in LADDER}
    return {rate: development_rsum(mine[digest]) for rate, digest in digests.items() if digest in mine}


def best(results: Mapping[float, float]) -> float:
    """The learning rate with the highest rsum on dev."""
    return max(results, key=lambda rate: results[rate])


def still_to_try(results: Mapping[float, float]) -> list[float]:
    """The learning rates to try next: the first three, then the neighbours of the best that lack a result."""
    if missing := [rate for rate in FIRST if rate not in results]:
        return missing
    place = LADDER.index(best(results))
    return [rate for rate in LADDER[max(place - 1, 0) : place + 2] if rate not in results]
