"""Each system's own learning rate, chosen on the development split: one for all would favour some of them."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count, takewhile
from typing import Any, TypeVar

from vsecore.experiments.experiment import System
from vsecore.experiments.scales import at_scale
from vsecore.recipes import Recipe
from vsecore.recipes.plain import as_json
from vsecore.records import Record

T = TypeVar("T")

LADDER = tuple(1e-3 * 2.0**step for step in range(-4, 5))
"""The learning rates that can be tried, each twice the one before."""
FIRST = (1e-3, 2e-3, 4e-3)
"""The rates tried for every system; then come the best one's neighbours, until it is not at the edge."""
DIVERGED = "diverged"
"""The folder, beside the results, of the records of rates that diverged, and their one metric."""
SEED = 0
"""The seed of the trainings that choose a learning rate."""


def at_rate(name: str, changes: Mapping[str, Any], rate: float) -> Recipe:
    """Return a recipe, named as `recipes.get` reads it, with changes and with this learning rate."""
    return _at_rate(name, json.dumps(as_json(changes)), rate)[0]


def digest_at(system: System, name: str, changes: Mapping[str, Any], rate: float) -> str:
    """Return the digest of a system's training by one of its recipes, with changes and this learning rate."""
    return system.digest(_at_rate(name, json.dumps(as_json(system.changes(changes))), rate)[1])


@cache  # many claims and pages ask for the same
def _at_rate(name: str, changes: str, rate: float) -> tuple[Recipe, str]:
    recipe = at_scale(name, json.loads(changes)).override({"training.learning_rate": rate})
    return recipe, recipe.hash()


def development_curve(entry: Record) -> list[float]:
    """Return the rsum on the development split after each epoch, from the record of a training."""
    if DIVERGED in entry.metrics:
        return [-math.inf]
    return of_each_epoch(entry.metrics, "dev_rsum_")


def of_each_epoch(results: Mapping[str, T], begins: str) -> list[T]:
    """Return what is recorded of each epoch, in order, under names that begin like this and end in it."""
    names = (f"{begins}{epoch}" for epoch in count(1))
    return [results[name] for name in takewhile(results.__contains__, names)]


def recorded(
    system: System, name: str, changes: Mapping[str, Any], entries: Iterable[Record]
) -> dict[float, list[Record]]:
    """Return a recipe's records at each learning rate that was tried, from all seeds, lowest rate first.

    `name` is one of the system's recipes; `changes` are those that all systems of the experiment share.
    """
    own, found = [entry for entry in entries if entry.name == name], dict[float, list[Record]]()
    for rate in LADDER if own else ():
        digest = digest_at(system, name, changes, rate)
        if several := [entry for entry in own if entry.config_hash == digest]:
            found[rate] = several
    return found


def tried(by_rate: Mapping[float, Iterable[Record]]) -> dict[float, float]:
    """Return the best rsum on dev at each learning rate, from the seed used for tuning; see `recorded`.

    A rate at which any seed diverged has minus infinity, like one at which that for tuning did.
    """
    found = dict[float, float]()
    for rate, several in by_rate.items():
        for entry in several:
            if entry.seed == SEED and (curve := development_curve(entry)):
                gone = any(DIVERGED in one.metrics for one in several)
                found[rate] = -math.inf if gone else max(curve)
    return found


def best(results: Mapping[float, float]) -> float:
    """Return the learning rate with the highest rsum on dev."""
    return max(results, key=lambda rate: results[rate])


def is_settled(results: Mapping[float, float]) -> bool:
    """Whether at least three rates were tried, and one on either side of the best."""
    return len(results) >= len(FIRST) and min(results) < best(results) < max(results)


def still_to_try(
    results: Mapping[float, float], first: Sequence[float] = FIRST, ladder: Sequence[float] = LADDER
) -> list[float]:
    """Return the learning rates to try next: the first ones, then the best one's untried neighbours."""
    if missing := [rate for rate in first if rate not in results]:
        return missing
    place = ladder.index(best(results))
    return [rate for rate in ladder[max(place - 1, 0) : place + 2] if rate not in results]


def search(
    train: Callable[[float], float],
    first: Sequence[float] = FIRST,
    ladder: Sequence[float] = LADDER,
    results: dict[float, float] | None = None,
) -> dict[float, float]:
    """Return the highest rsum on dev, which `train` returns, at each learning rate that was tried.

    These are the first ones, and others of the ladder until the best is not at the edge of those tried. One
    that diverges has minus infinity; a FloatingPointError says that all did. `results` of an
    earlier call that another error ended are gone on from.
    """
    results = {} if results is None else results
    while rates := still_to_try(results, first, ladder):
        for rate in rates:
            found = -math.inf
            with suppress(FloatingPointError):
                found = train(rate)
            results[rate] = found
    if not any(map(math.isfinite, results.values())):
        raise FloatingPointError(f"the training diverges at every learning rate from {min(results):.3g} on")
    return results


def tuned(
    system: System, changes: Mapping[str, Any], results_of: Callable[[str], Mapping[float, float]]
) -> Recipe | None:
    """Return the recipe that did best on the development split, with its best learning rate.

    `results_of` maps a recipe's name to its best rsum on dev at each rate that was tried. None if a recipe
    has not been tried, or if there are several and the tuning of one is unfinished.
    """
    results = {name: results_of(name) for name in system.recipes}
    if not all(results.values()) or (len(results) > 1 and any(map(still_to_try, results.values()))):
        return None
    name = max(results, key=lambda name: max(results[name].values()))
    return at_rate(name, system.changes(changes), best(results[name]))
