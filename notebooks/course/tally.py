"""The figure of all verdicts: a bar for each paper and each data, divided by what came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from course.plots import COLOURS
from vsecore.experiments import Outcome
from vsecore.experiments.verdicts import Judgement

_COLOURS: dict[Judgement, str] = {
    "reproduced": COLOURS[2],
    "contradicted": COLOURS[1],
    "no difference": COLOURS[0],
    "mixed": COLOURS[4],
    "undecided": COLOURS[5],
    "too small to say": "0.72",
    "not tried": "0.93",
}
"""The colour of each verdict; the last two say nothing of a claim, and are grey."""
_DARK = ("reproduced", "contradicted", "no difference")


def tallied(outcomes: Mapping[str, Sequence[Outcome]]) -> Figure:
    """Draw how often each verdict came out.

    Args:
        outcomes: the outcomes of each row by its name, at least one row.
    """
    counts = {name: Counter(outcome.judgement for outcome in several) for name, several in outcomes.items()}
    figure, axes = plt.subplots(figsize=(8.4, 1.2 + 0.34 * len(counts)))
    reached = dict.fromkeys(counts, 0)
    for verdict in get_args(Judgement):
        of_rows = [count[verdict] for count in counts.values()]
        if not any(of_rows):
            continue
        bars = axes.barh(
            range(len(counts)),
            of_rows,
            left=list(reached.values()),
            color=_COLOURS[verdict],
            edgecolor="white",
            label=verdict,
        )
        axes.bar_label(
            bars,
            [str(number or "") for number in of_rows],
            label_type="center",
            fontsize=8,
            color="white" if verdict in _DARK else "black",
        )
        for name, number in zip(counts, of_rows, strict=True):
            reached[name] += number
    axes.set_yticks(range(len(counts)), list(counts))
    axes.set(xlabel="claims", ylim=(len(counts) - 0.5, -0.5))
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside upper left", ncols=4, fontsize=9)
    return figure


def words_for(outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """Say what `tallied` shows, for a reader who cannot see it."""
    bars = []
    for name, several in outcomes.items():
        counts = Counter(outcome.judgement for outcome in several)
        verdicts = [f"{counts[verdict]} {verdict}" for verdict in get_args(Judgement) if counts[verdict]]
        bars.append(f"{name}: {', '.join(verdicts)}")
    return f"A bar for each paper and each data, divided by verdict. {'; '.join(bars)}."
