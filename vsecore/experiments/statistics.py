"""From paired differences to a verdict: Holm's correction, and a margin within which nothing differs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

Kind = Literal["better", "no worse", "our question"]
"""What a claim says of its two systems; "our question": the paper claims nothing, but a reader will ask."""

Verdict = Literal["reproduced", "contradicted", "no difference", "mixed", "undecided"]

SIGNIFICANCE = 0.05


def p_above(differences: Sequence[float], bound: float = 0.0) -> float:
    """How surprising these differences were if their true mean were not above a bound (paired t-test).

    Args:
        differences: one for each seed, at least two.
        bound: what the mean is compared with.

    Raises:
        ValueError: fewer than two differences.
    """
    if len(differences) < 2:
        raise ValueError(f"differences are {list(differences)}: a spread needs at least two")
    mean, spread = statistics.mean(differences), statistics.stdev(differences)
    if spread == 0:  # no doubt is left
        return 0.0 if mean > bound else 1.0
    from scipy.stats import t  # takes a second, and only this needs it

    return float(t.sf((mean - bound) / (spread / math.sqrt(len(differences))), len(differences) - 1))


def p_different(differences: Sequence[float]) -> float:
    """How surprising these differences were if their true mean were 0, in either direction."""
    one_sided = p_above(differences), p_above([-difference for difference in differences])
    return min(1.0, 2 * min(one_sided))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values of several questions, raised so that all answers together err no more often than one.

    The smallest of m is multiplied by m, the next by m - 1, and so on; none falls below one before it.

    Source: Holm 1979.
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def judge(differences: Sequence[float], adjusted: float, margin: float, kind: Kind) -> Verdict:
    """The verdict on a claim by one measure.

    Args:
        differences: the one system minus the other, one for each seed.
        adjusted: `p_different` of them, after Holm's correction.
        margin: what is too small to matter, in the unit of the measure.
        kind: of the claim.

    Returns:
        "no difference" if the mean is within the margin beyond doubt (two one-sided tests), even where it is
        not 0 beyond doubt. A claim of "no worse" is reproduced if the mean is above minus the margin beyond
        doubt. "undecided" if these seeds leave it open.
    """
    above = p_above(differences, -margin) < SIGNIFICANCE
    below = p_above([-difference for difference in differences], -margin) < SIGNIFICANCE
    if kind == "no worse" and above:
        return "reproduced"
    if above and below:
        return "no difference"
    if adjusted < SIGNIFICANCE:
        return "reproduced" if statistics.mean(differences) > 0 else "contradicted"
    return "undecided"


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of several measures: theirs if they agree, else "mixed"."""
    return verdicts[0] if len(set(verdicts)) == 1 else "mixed"
