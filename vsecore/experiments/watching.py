"""What is followed of each step of a training: the losses, a multiplier, and the negatives that AdOpt keeps.

Source: Bleeker, Yates and de Rijke 2023 (LTD), section 5.3 and figure 3.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import cast

from torch import Tensor

from vsecore.data.files import read_json, write_json
from vsecore.losses import LOSSES, Loss, Rule, negatives_kept
from vsecore.recipes import Recipe
from vsecore.training import Event

WATCHED = "watched.json"
RULES: tuple[Rule, ...] = ("released", "printed")

CONTRAST = ("contrast_mean", "contrast_end")
"""The contrastive loss: its mean over all steps of the training, and over those of the last epoch."""
ABOVE_BOUND = "reconstruction_above_bound"
"""How far the reconstruction loss of the last epoch is above its bound, in percent of the bound."""
BOUND_MET = "bound_met"
"""The first epoch whose mean reconstruction loss is not above the bound, counted from 1; 0: there is none."""
HIGHEST, LOWEST = "multiplier_highest", "multiplier_lowest"
"""The limits between which the multiplier moved, over all steps."""
LEFT = "multiplier_left"
"""The multiplier at the end, in percent of its highest value."""
RETURNS = "multiplier_returns"
"""How many times the multiplier rose from 0."""
CONTRASTS, RECONSTRUCTIONS, MULTIPLIERS = "contrast_in_", "reconstruction_in_", "multiplier_after_"
"""Prefixes of what is recorded for each epoch: the mean losses, and the multiplier at its end."""


class Watch:
    """A callback of `fit` that keeps numbers of each step in the run's folder, so that a kill loses none.

    They are what the functions `observe` return by name. They stay on their device until the run is saved,
    since reading one waits for a GPU.
    """

    def __init__(
        self, folder: Path, observe: Iterable[Callable[[Event], Mapping[str, Tensor | float]]]
    ) -> None:
        self.path, self.observe = folder / WATCHED, tuple(observe)
        self.seen: dict[str, dict[str, Tensor | float]] = {}  # by the step's number
        if self.path.is_file():
            self.seen |= read_json(self.path, dict[str, dict[str, int | float]])

    def __call__(self, event: Event) -> None:
        """Record a step; one that is taken again after a kill gives the same numbers again."""
        if event.kind != "step":
            return
        self.seen[str(event.step)] = {"epoch": event.epoch}
        for observe in self.observe:
            self.seen[str(event.step)] |= observe(event)
        if event.saved:
            write_json(self.path, dict(zip(self.seen, self.steps(), strict=True)))

    def steps(self) -> list[dict[str, float]]:
        """Return the numbers of every step, and its epoch, in order."""
        for seen in self.seen.values():
            seen.update({name: value.item() for name, value in seen.items() if isinstance(value, Tensor)})
        return list(self.seen.values())  # type: ignore[arg-type]  # numbers by now


def observe_negatives(event: Event) -> dict[str, Tensor | float]:
    """Return how many negatives each rule of AdOpt keeps of a step."""
    return {f"negatives_{rule}": negatives_kept(event.scores, rule, event.positives) for rule in RULES}


def observe_losses(event: Event) -> dict[str, Tensor | float]:
    """Return a step's contrastive loss, and that of a loss with a bound, its multiplier and the bound."""
    terms, seen = dict(event.terms), dict[str, Tensor | float]()
    for name, loss in event.system.losses.items():
        constraint = cast(Loss, loss).constraint
        if constraint is None:
            continue
        del terms[name]
        seen["reconstruction"] = cast(Tensor, constraint.reconstruction)
        if constraint.multiplier is not None:
            seen |= {"bound": constraint.multiplier.bound, "multiplier": constraint.multiplier.value}
    return seen | {"contrast": cast(Tensor, sum(terms.values()))}


def metrics(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the metrics that the constants of this module name, and the negatives kept in each epoch.

    A training's steps hold what was observed, and their "epoch"; what was not observed gives no metrics.
    """
    epochs = [list(several) for _, several in groupby(steps, key=lambda step: step["epoch"])]
    seen = steps[0].keys() if steps else set()
    found = {
        f"{begins}{number}": summed([step[name] for step in epoch])
        for name, begins, summed in (
            *((f"negatives_{rule}", f"negatives_{rule}_", statistics.mean) for rule in RULES),
            ("contrast", CONTRASTS, statistics.mean),
            ("reconstruction", RECONSTRUCTIONS, statistics.mean),
            ("multiplier", MULTIPLIERS, lambda values: values[-1]),
        )
        for number, epoch in enumerate(epochs, start=1)
        if name in seen
    }
    if "contrast" in seen:
        overall = statistics.mean(step["contrast"] for step in steps)
        found |= dict(zip(CONTRAST, (overall, found[f"{CONTRASTS}{len(epochs)}"]), strict=True))
    if "multiplier" in seen:
        bound, path = steps[0]["bound"], [step["multiplier"] for step in steps]
        losses = [found[f"{RECONSTRUCTIONS}{number}"] for number in range(1, len(epochs) + 1)]
        met = next((epoch for epoch, loss in enumerate(losses, start=1) if loss <= bound), 0)
        found |= {
            ABOVE_BOUND: 100 * (losses[-1] / bound - 1),
            BOUND_MET: float(met),
            HIGHEST: max(path),
            LOWEST: min(path),
            LEFT: 100 * path[-1] / (max(path) or 1.0),
            RETURNS: float(sum(before == 0 < after for before, after in pairwise(path))),
        }
    return found


def asked_of(recipe: Recipe) -> set[str]:
    """Return which metrics of its losses and its multiplier a record of this recipe must have."""
    bounded = any(
        LOSSES.takes(part.name, "bound") and part.options.get("bound") is not None for part in recipe.losses
    )
    return {*CONTRAST, *((ABOVE_BOUND, BOUND_MET, HIGHEST, LOWEST, LEFT, RETURNS) if bounded else ())}
