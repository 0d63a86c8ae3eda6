"""How a multiplier moved in a training, and the losses beside it.

Source: Bleeker, Yates and de Rijke 2023 (LTD), section 5.3 and figure 3.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import cast

from torch import Tensor

from vsecore.losses import LOSSES
from vsecore.losses.lagrange import Constraint
from vsecore.recipes import Recipe
from vsecore.training import Event

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


class ConstraintWatch:
    """A callback of `fit` that follows the contrastive loss, and a loss with a bound and its multiplier."""

    note = (
        "of each epoch the mean contrastive loss; where captions are decoded also the mean reconstruction "
        "loss, and with a bound the multiplier at its end"
    )

    def __init__(self) -> None:
        # What each step tells, by epoch, counted from 0.
        self.contrasts: dict[int, list[Tensor]] = defaultdict(list)
        self.reconstructions: dict[int, list[Tensor]] = defaultdict(list)
        self.multipliers: dict[int, list[Tensor]] = defaultdict(list)
        self.bound: float | None = None

    def __call__(self, event: Event) -> None:
        """Keep what a step tells; it is read at the end, since reading it now would wait for a GPU."""
        if event.metrics is not None:
            return
        terms = dict(event.terms)
        for name, loss in event.system.losses.items():
            constraint = getattr(loss, "constraint", None)
            if not isinstance(constraint, Constraint):
                continue
            del terms[name]
            self.reconstructions[event.epoch].append(cast(Tensor, constraint.reconstruction))
            if constraint.multiplier is not None:
                self.bound = constraint.multiplier.bound
                self.multipliers[event.epoch].append(constraint.multiplier.value)
        self.contrasts[event.epoch].append(cast(Tensor, sum(terms.values())))

    def metrics(self) -> dict[str, float]:
        """Return the metrics that the constants of this module name, those that the losses have."""
        contrasts, reconstructions, multipliers = (
            {epoch: [float(value) for value in values] for epoch, values in several.items()}
            for several in (self.contrasts, self.reconstructions, self.multipliers)
        )
        means = [statistics.mean(values) for values in contrasts.values()]
        everything = [value for values in contrasts.values() for value in values]
        found = dict(zip(CONTRAST, (statistics.mean(everything), means[-1]), strict=True))
        found |= _numbered(CONTRASTS, means)
        decoded = [statistics.mean(values) for values in reconstructions.values()]
        found |= _numbered(RECONSTRUCTIONS, decoded)
        if self.bound is not None:
            found |= _numbered(MULTIPLIERS, [values[-1] for values in multipliers.values()])
            found |= _of_bound(decoded, self.bound)
            found |= _of_path([value for values in multipliers.values() for value in values])
        return found


def asked_of(recipe: Recipe) -> set[str]:
    """Return which metrics of its losses and its multiplier a record of this recipe must have."""
    bounded = any(
        LOSSES.takes(part.name, "bound") and part.options.get("bound") is not None for part in recipe.losses
    )
    return {*CONTRAST, *((ABOVE_BOUND, BOUND_MET, HIGHEST, LOWEST, LEFT, RETURNS) if bounded else ())}


def _of_bound(decoded: Sequence[float], bound: float) -> Mapping[str, float]:
    """Compare the mean reconstruction loss of each epoch with its bound."""
    met = next((epoch for epoch, loss in enumerate(decoded, start=1) if loss <= bound), 0)
    return {ABOVE_BOUND: 100 * (decoded[-1] / bound - 1), BOUND_MET: float(met)}


def _of_path(path: Sequence[float]) -> Mapping[str, float]:
    """Describe the path of a multiplier, its value after each step."""
    risen = sum(before == 0 < after for before, after in pairwise(path))
    return {
        HIGHEST: max(path),
        LOWEST: min(path),
        LEFT: 100 * path[-1] / (max(path) or 1.0),
        RETURNS: float(risen),
    }


def _numbered(begins: str, values: Sequence[float]) -> dict[str, float]:
    """Name a value of each epoch."""
    return {f"{begins}{epoch}": value for epoch, value in enumerate(values, start=1)}
