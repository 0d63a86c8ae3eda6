"""Each system's own learning rate, chosen on the development split: one for all would favour some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from vsecore.experiments.experiment import Candidates, Mined, at_scale, digest_of
from vsecore.recipes import Recipe
from vsecore.records import Record

LADDER = tuple(1e-3 * 2.0**step for step in range(-4, 5))
"""The learning rates that can be tried, each twice the one before."""
FIRST = (1e-3, 2e-3, 4e-3)
"""The rates tried for every system; then come the best one's neighbours, until it is not at the edge."""
SEED = 0
"""The seed of the trainings that choose a learning rate."""


def at_rate(name: str, changes: Mapping[str, Any], rate: float) -> Recipe:
    """Return a recipe with this learning rate.

    Args:
        name: the recipe's name, in the form of `recipes.get`.
        changes: other changes to the recipe.
        rate: the learning rate.
    """
    return _at_rate(name, tuple(changes.items()), rate)


@cache
def _at_rate(name: str, changes: tuple[tuple[str, Any], ...], rate: float) -> Recipe:
    return at_scale(name, {**dict(changes), "training.learning_rate": rate})


def digest_at(name: str, changes: Mapping[str, Any], rate: float, mined: Mined | None = None) -> str:
    """Return the digest of a training with this learning rate; it is the same on all features."""
    return digest_of(_hash_at(name, tuple(changes.items()), rate), mined)


@cache
def _hash_at(name: str, changes: tuple[tuple[str, Any], ...], rate: float) -> str:
    return _at_rate(name, changes, rate).hash()


def development_curve(entry: Record) -> list[float]:
    """Return the rsum on the development split after each epoch, from the record of a training."""
    found = {
        int(metric.removeprefix("dev_rsum_")): value
        for metric, value in entry.metrics.items()
        if metric.startswith("dev_rsum_")
    }
    return [found[epoch] for epoch in sorted(found)]


def recorded(
    name: str, changes: Mapping[str, Any], entries: Iterable[Record], mined: Mined | None = None
) -> dict[float, list[Record]]:
    """Return the records of a recipe at each learning rate that was tried, from all seeds, lowest rate first.

    Args:
        name: the recipe's name, with its variants.
        changes: other changes to the recipe.
        entries: records of the data; those of other recipes are left out.
        mined: where its offline negatives come from, see `Mined`.
    """
    mine = [entry for entry in entries if entry.name == name]
    if not mine:
        return {}
    digests = {rate: digest_at(name, changes, rate, mined) for rate in LADDER}
    by_rate = {rate: [entry for entry in mine if entry.config_hash == digests[rate]] for rate in LADDER}
    return {rate: found for rate, found in by_rate.items() if found}


def tried(by_rate: Mapping[float, Iterable[Record]]) -> dict[float, float]:
    """Return the best rsum on dev at each learning rate, from the seed used for tuning; see `recorded`."""
    return {
        rate: max(curve)
        for rate, entries in by_rate.items()
        for entry in entries
        if entry.seed == SEED and (curve := development_curve(entry))
    }


def best(results: Mapping[float, float]) -> float:
    """Return the learning rate with the highest rsum on dev."""
    return max(results, key=lambda rate: results[rate])


def is_settled(results: Mapping[float, float]) -> bool:
    """Whether at least three rates were tried, and one on either side of the best."""
    return len(results) >= len(FIRST) and min(results) < best(results) < max(results)


def still_to_try(results: Mapping[float, float]) -> list[float]:
    """Return the learning rates to try next: the first three, then the best one's untried neighbours."""
    if missing := [rate for rate in FIRST if rate not in results]:
        return missing
    place = LADDER.index(best(results))
    return [rate for rate in LADDER[max(place - 1, 0) : place + 2] if rate not in results]


def tuned(
    candidates: Candidates, changes: Mapping[str, Any], results_of: Callable[[str], Mapping[float, float]]
) -> Recipe | None:
    """Return the recipe that did best on the development split, with its best learning rate.

    Args:
        candidates: the recipes to choose from.
        changes: those that all systems of the experiment share.
        results_of: maps a recipe's name to its best rsum on dev at each rate that was tried.

    Returns:
        None if a candidate has not been tried, or if there are several and the tuning of one is unfinished.
    """
    results = {name: results_of(name) for name in candidates.recipes}
    if not all(results.values()) or (len(results) > 1 and any(map(still_to_try, results.values()))):
        return None
    name = max(results, key=lambda name: max(results[name].values()))
    return at_rate(name, candidates.changes(changes), best(results[name]))
