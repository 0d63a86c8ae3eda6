"""How soon a training passes the best that another one reached.

Source: Chen, Deng and Luo 2020 (AOQ), section 4.3 and figure 4, by the recall at 1 on the development split.
"""

from __future__ import annotations

from typing import Literal

from vsecore.experiments.gates import Studied

Followed = Literal["rsum", "i2t_r1", "t2i_r1"]
"""What is recorded of the development split after each epoch; the recalls only where negatives are mined."""


def epochs_to_pass(system: Studied, baseline: Studied, measure: Followed = "rsum") -> dict[int, int | None]:
    """Return the first epoch in which a system is above the best epoch of a baseline, on the dev split.

    Args:
        system: whose epochs are counted, from 1; for one that is trained in two rounds, in the second.
        baseline: trained from the same seeds.
        measure: of the development split.

    Returns:
        For each seed that both have, the epoch; None if none is above the baseline's best.
    """
    mine, other = curves(system, measure), curves(baseline, measure)
    return {
        seed: next((epoch for epoch, value in enumerate(mine[seed], 1) if value > max(other[seed])), None)
        for seed in sorted(mine.keys() & other.keys())
    }


def curves(arm: Studied, measure: Followed) -> dict[int, list[float]]:
    """Return a measure of the development split after each epoch, by seed."""
    return arm.epochs(f"dev_{measure}_")
