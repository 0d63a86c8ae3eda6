"""From paired differences to a verdict: t-tests, Holm's correction, and a margin of equivalence."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import scipy  # its parts come when they are asked for: that of statistics takes a second

from vsecore.experiments.claims import Kind

Verdict = Literal["reproduced", "contradicted", "no difference", "mixed", "undecided"]

SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class Doubts:
    """How surprising the differences of two systems are under each of these assumptions about their mean."""

    mean: float
    """The mean difference."""
    margin: float
    """What is too small to matter."""
    equal: float
    """p-value if the true mean is 0."""
    beyond: float
    """p-value if it is at the margin or beyond, in either direction."""
    worse: float
    """p-value if it is at minus the margin or below."""
    not_worse: float
    """p-value if it is at minus the margin or above."""


def doubts(differences: Sequence[float], margin: float) -> Doubts:
    """Test paired differences, of two seeds or more: against 0, and against the margin on either side."""
    if len(differences) < 2:
        raise ValueError(f"differences are {list(differences)}: a spread needs at least two")

    def p_value(bound: float, alternative: str) -> float:
        if math.isclose(min(differences), max(differences)):  # no doubt is left; t would divide by 0
            above = differences[0] - bound
            return float(not {"greater": above > 0, "less": above < 0, "two-sided": above != 0}[alternative])
        return float(scipy.stats.ttest_1samp(differences, bound, alternative=alternative).pvalue)

    worse = p_value(-margin, "greater")
    return Doubts(
        statistics.mean(differences),
        margin,
        equal=p_value(0.0, "two-sided"),
        beyond=max(worse, p_value(margin, "less")),
        worse=worse,
        not_worse=p_value(-margin, "less"),
    )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of a mean by Student's t; `nan`, `nan` for a single value."""
    if len(values) < 2:
        return math.nan, math.nan
    reach = float(scipy.stats.t.ppf(1 - SIGNIFICANCE / 2, len(values) - 1) * scipy.stats.sem(values))
    return statistics.mean(values) - reach, statistics.mean(values) + reach


def holm(p_values: Sequence[float], questions: int | None = None) -> list[float]:
    """Raise the p-values of several questions, so that all answers together err no more often than one.

    The smallest of m is multiplied by m, the next by m - 1, and so on; none may fall below the one before.
    `questions` is m where some cannot be answered yet.

    Source: Holm 1979.
    """
    count = len(p_values) if questions is None else questions
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, min(1.0, (count - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def corrected(several: Sequence[Doubts], questions: int) -> list[Doubts]:
    """Apply Holm's correction to the doubts about claims by one measure, each kind of doubt by itself.

    `questions` is how many claims of the experiment are judged by it. This includes those that cannot be
    judged yet. Once they can be, the p-values of the others may fall but never rise, so that what is decided
    stays decided.
    """
    kinds = ("equal", "beyond", "worse", "not_worse")
    raised = [holm([getattr(case, kind) for case in several], questions) for kind in kinds]
    return [Doubts(case.mean, case.margin, *values) for case, *values in zip(several, *raised, strict=True)]


def judge(left: Doubts, kind: Kind) -> Verdict:
    """Return the verdict on a claim by one measure, from the doubts that are left after correction.

    "no difference" if the mean surely lies within the margin, even if it is surely not 0. For "reproduced" or
    "contradicted" it must surely not be 0, and lie beyond the margin. A claim of "no worse" is reproduced if
    the mean surely lies above minus the margin, and contradicted if it surely lies below; a claim of "the
    same" is reproduced where any other would be "no difference", and contradicted where any other would be
    reproduced or contradicted. "undecided" if these seeds leave it open.
    """
    if kind == "no worse":
        if left.worse < SIGNIFICANCE:
            return "reproduced"
        return "contradicted" if left.not_worse < SIGNIFICANCE else "undecided"
    same = kind == "the same"
    if left.beyond < SIGNIFICANCE:
        return "reproduced" if same else "no difference"
    if left.equal < SIGNIFICANCE and abs(left.mean) > left.margin:
        return "reproduced" if left.mean > 0 and not same else "contradicted"
    return "undecided"


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Combine the verdicts of several measures: theirs if they agree, "mixed" if two disagree.

    If those that are decided agree, but not all are decided, "undecided".
    """
    if len({*verdicts} - {"undecided"}) > 1:
        return "mixed"
    return verdicts[0] if len({*verdicts}) == 1 else "undecided"
