"""The figure of an experiment: a row for each arm, a dot for each seed, their mean with its interval."""

from __future__ import annotations

import itertools
import math
import statistics
import textwrap
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.plots import COLOURS
from course.wording import seeds
from vsecore.experiments import Studied
from vsecore.experiments.claims import RETRIEVAL
from vsecore.experiments.statistics import interval

AXES = {
    "rsum": "rsum, sum of six recalls",
    "i2t_map_at_r": "mAP@R in %\npicture to text",
    "t2i_map_at_r": "mAP@R in %\ntext to picture",
}


def compared(
    found: Mapping[str, Studied], data: str, oracle: float | None = None, ridge: bool = True
) -> Figure:
    """Draw the arms of an experiment, the one with the highest mean rsum first.

    Args:
        found: what is recorded of each arm, at least one.
        data: the name of the data, which decides what is measured.
        oracle: the rsum of the oracle; None: without it.
        ridge: whether to draw each row's ridge regression.
    """
    order = by_rsum(found)
    drawn = [
        measure
        for measure in RETRIEVAL.measures_on(data)
        if any(arm.results.get(measure) for arm in found.values())
    ]
    figure, grid = plt.subplots(
        1,
        len(drawn),
        figsize=(8, 1.6 + 0.36 * len(order)),
        width_ratios=[2.2 if measure == "rsum" else 1 for measure in drawn],
        sharey=True,
        squeeze=False,
    )
    for axes, measure in zip(grid.flat, drawn, strict=True):
        _rows(axes, [found[arm].results.get(measure, {}) for arm in order])
        axes.set(xlabel=AXES[measure], ylabel="")
    first = grid[0, 0]
    first.set_yticks(range(len(order)), [textwrap.fill(arm, 24) for arm in order])
    first.set_ylim(len(order) - 0.5, -0.5)  # the best on top
    _references(first, [found[arm].baseline.get("rsum") if ridge else None for arm in order], oracle)
    figure.legend(*first.get_legend_handles_labels(), loc="outside upper left", ncols=4, fontsize=9)
    return figure


def by_rsum(found: Mapping[str, Studied]) -> list[str]:
    """The arms in order of their mean rsum, the highest first."""
    return sorted(found, key=lambda arm: -found[arm].rsum)


def gaps(ours: Studied, theirs: Studied, measure: str = "rsum") -> list[float]:
    """The difference of two arms from each seed that they share."""
    first, second = ours.results[measure], theirs.results[measure]
    return [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]


def gap(ours: Studied, theirs: Studied, measure: str = "rsum") -> tuple[float, float, float]:
    """The mean of these differences, and its 95 % interval."""
    apart = gaps(ours, theirs, measure)
    return statistics.mean(apart), *interval(apart)


def change(ours: Studied, theirs: Studied) -> tuple[float, float, float, int]:
    """The gap in rsum and from how many seeds it is known; of two seeds or one the interval is NaN."""
    count = len(ours.seeds & theirs.seeds)
    middle, *ends = gap(ours, theirs)
    low, high = ends if count > 2 else (math.nan, math.nan)
    return middle, low, high, count


def mean(arm: Studied, measure: str) -> float:
    """A measure of an arm, the mean over its seeds."""
    return statistics.mean(arm.results[measure].values())


def by_epoch(arm: Studied, measure: str) -> np.ndarray:
    """What is recorded after each epoch, (seeds, epochs), such as "dev_rsum"."""
    epochs = itertools.takewhile(arm.results.__contains__, (f"{measure}_{n}" for n in itertools.count(1)))
    columns = [arm.results[name] for name in epochs]
    return np.array([[column[seed] for column in columns] for seed in sorted(arm.seeds)])


def words_for(
    found: Mapping[str, Studied], data: str, oracle: float | None = None, ridge: bool = True
) -> str:
    """What the figure shows, for a reader who cannot see it."""
    arms = [f"{arm} {found[arm].rsum:.1f} ({seeds(len(found[arm].seeds))})" for arm in by_rsum(found)]
    baselines = sorted({arm.baseline["rsum"] for arm in found.values() if ridge and arm.baseline})
    lines = [
        f"A dot for each seed of each system on {data}, with their mean and its 95 % interval.",
        f"Mean rsum: {', '.join(arms)}.",
    ]
    if baselines:
        sums = " and ".join(f"{one:.1f}" for one in baselines)
        lines.append(f"A line for ridge regression stands at {sums}.")
    if oracle is not None:
        lines.append(f"A line for the oracle stands at {oracle:.1f}.")
    return " ".join(lines)


def _rows(axes: Axes, rows: Sequence[Mapping[int, float]]) -> None:
    """A dot for each seed, above the interval of the mean."""
    dots = [(str(place), value) for place, row in enumerate(rows) for value in row.values()]
    tidy = {"arm": [arm for arm, _ in dots], "value": [value for _, value in dots]}
    order = [str(place) for place in range(len(rows))]
    seaborn.stripplot(
        tidy, x="value", y="arm", order=order, jitter=False, size=6, alpha=0.55, color=COLOURS[5], ax=axes
    )
    seaborn.pointplot(
        tidy,
        x="value",
        y="arm",
        order=order,
        errorbar=interval,
        linestyle="none",
        marker="|",
        markersize=13,
        markeredgewidth=2.4,
        color=COLOURS[0],
        err_kws={"linewidth": 1.8},
        ax=axes,
    )


def _references(axes: Axes, baselines: Sequence[float | None], oracle: float | None) -> None:
    """What the sums are held against: each row's own ridge regression, and one oracle for all."""
    axes.plot([], [], "o", color=COLOURS[5], alpha=0.55, label="a seed")
    axes.plot([], [], "-", color=COLOURS[0], label="mean and 95 % interval")
    known = [(place, baseline) for place, baseline in enumerate(baselines) if baseline is not None]
    if known:
        places = [place for place, _ in known]
        axes.vlines(
            [baseline for _, baseline in known],
            [place - 0.5 for place in places],
            [place + 0.5 for place in places],
            color=COLOURS[1],
            linestyle="--",
            label=f"ridge regression, {_between([baseline for _, baseline in known])}",
        )
    if oracle is not None:
        axes.axvline(oracle, color=COLOURS[6], linestyle=":", label=f"oracle, {oracle:.1f}")


def _between(values: Sequence[float]) -> str:
    """One value, or the lowest and the highest."""
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"
