"""How a multiplier moved in a training, and the losses beside it.

Source: Bleeker, Yates and de Rijke 2023 (LTD), section 5.3 and figure 3.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import cast

from torch import Tensor

from vsecore.experiments.watching import by_epoch
from vsecore.losses import LOSSES, Loss
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


def observe(event: Event) -> dict[str, Tensor | float]:
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
    """Return the metrics that the constants of this module name, those that the losses have.

    Args:
        steps: for each step of a training, what `observe` returned, and its "epoch".
    """
    contrasts, decoded, multipliers = (
        list(by_epoch(steps, name).values()) for name in ("contrast", "reconstruction", "multiplier")
    )
    contrast_means, decoded_means = (
        [statistics.mean(losses) for losses in epochs] for epochs in (contrasts, decoded)
    )
    overall = statistics.mean(value for values in contrasts for value in values)
    found = dict(zip(CONTRAST, (overall, contrast_means[-1]), strict=True))
    for begins, values in (
        (CONTRASTS, contrast_means),
        (RECONSTRUCTIONS, decoded_means),
        (MULTIPLIERS, [values[-1] for values in multipliers]),
    ):
        found |= {f"{begins}{epoch}": value for epoch, value in enumerate(values, start=1)}
    if multipliers:
        bound, path = steps[0]["bound"], [value for values in multipliers for value in values]
        met = next((epoch for epoch, loss in enumerate(decoded_means, start=1) if loss <= bound), 0)
        found |= {
            ABOVE_BOUND: 100 * (decoded_means[-1] / bound - 1),
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
