"""The figure of an experiment: a row for each arm, a dot for each seed, their mean with its interval."""

import itertools
import math
import statistics
import textwrap
from collections.abc import Collection, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course import plots
from course.plots import COLOURS, name_rows
from course.wording import counted
from vsecore.experiments import Studied
from vsecore.experiments.claims import RETRIEVAL
from vsecore.experiments.statistics import interval
from vsecore.experiments.verdicts import differences as gaps

Arms = Mapping[str, Studied]
AXES = {
    "rsum": "rsum,\nsum of six recalls",
    "i2t_map_at_r": "mAP@R, %,\nto text",
    "t2i_map_at_r": "mAP@R, %,\nto picture",
}


def show(found: Arms) -> None:
    """Show arms that were trained on scenes, without their ridge regression."""
    plots.show(compared(found, "scenes", ridge=False), alt=words_for(found, "the scenes", ridge=False))


def compared(found: Arms, data: str, oracle: float | None = None, ridge: bool = True) -> Figure:
    """Draw the arms of an experiment, the one with the highest mean rsum first.

    The name of the data decides what is measured. With `ridge`, each row has a line at its ridge regression,
    and all have one at the rsum of the oracle, if there is one.
    """
    order = by_rsum(found)
    recorded = {measure for arm in found.values() for measure, seeds in arm.results.items() if seeds}
    drawn = [measure for measure in RETRIEVAL.measures_on(data) if measure in recorded]
    figure, grid = plt.subplots(
        1,
        len(drawn),
        figsize=(5.8, 1.9 + 0.36 * len(order)),  # wide enough for a desk, and not too wide for a phone
        width_ratios=[2 if measure == "rsum" else 1 for measure in drawn],
        sharey=True,
        squeeze=False,
    )
    widths = itertools.count(16)  # of labels, in letters: those of three lines would touch
    width = next(one for one in widths if all(len(textwrap.wrap(arm, one)) < 3 for arm in order))
    names = [textwrap.fill(arm, width) for arm in order]
    for axes, measure in zip(grid.flat, drawn, strict=True):
        values = (found[arm].results.get(measure, {}).values() for arm in order)
        rows(axes, dict(zip(names, values, strict=True)))
        axes.set_xlabel(AXES[measure], fontsize=9)
        if measure != "rsum":
            axes.locator_params(axis="x", nbins=3, integer=True)  # more labels would touch
    first = grid[0, 0]
    ridges = {place: found[arm].baseline.get("rsum") for place, arm in enumerate(order) if ridge}
    if known := {place: rsum for place, rsum in ridges.items() if rsum is not None}:
        ends = dict.fromkeys(f"{end(known.values()):.1f}" for end in (min, max))
        label = f"ridge regression, {' to '.join(ends)}"
        style = {"color": COLOURS[1], "linestyle": "--", "label": label}
        first.vlines([*known.values()], np.subtract([*known], 0.5), np.add([*known], 0.5), **style)
    if oracle is not None:
        first.axvline(oracle, color=COLOURS[6], linestyle=":", label=f"oracle, {oracle:.1f}")
    figure.legend(*first.get_legend_handles_labels(), loc="outside upper left", ncols=3, fontsize=9)
    return figure


def rows(
    axes: Axes,
    seeds: Mapping[str, Collection[float]],
    colours: Sequence[str] = (COLOURS[0],),
    raised: float = 0.0,
) -> None:
    """Draw a row for each name: a pale dot for each seed, and their mean with its 95 % interval.

    There is one colour for all rows, or one for each. The dots may stand above the mean, `raised` by so much.
    """
    for place, (values, colour) in enumerate(zip(seeds.values(), itertools.cycle(colours), strict=False)):
        if values:
            dot, line = (None, None) if place else ("a seed", "mean and 95 % interval")
            axes.plot([*values], [place - raised] * len(values), "o", color=COLOURS[5], alpha=0.55, label=dot)
            axes.plot(interval([*values]), [place, place], color=colour, label=line)
            axes.plot(statistics.mean(values), place, "|", color=colour, markersize=13, markeredgewidth=2.4)
    name_rows(axes, seeds)


def by_rsum(found: Arms) -> list[str]:
    """The arms in order of their mean rsum, the highest first."""
    return sorted(found, key=lambda arm: -found[arm].rsum)


def gap(ours: Studied, theirs: Studied, measure: str = "rsum") -> tuple[float, float, float]:
    """The mean difference of two arms over the seeds that they share, and its 95 % interval."""
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
    return np.array([curve for _, curve in sorted(arm.epochs(f"{measure}_").items())])


def words_for(found: Arms, data: str, oracle: float | None = None, ridge: bool = True) -> str:
    """What the figure shows, for a reader who cannot see it."""
    order = by_rsum(found)
    arms = [f"{arm} {found[arm].rsum:.1f} ({counted(len(found[arm].seeds), 'seed')})" for arm in order]
    baselines = sorted({arm.baseline["rsum"] for arm in found.values() if ridge and arm.baseline})
    lines = [
        f"A dot for each seed of each system on {data}, with their mean and its 95 % interval.",
        f"Mean rsum: {', '.join(arms)}.",
    ]
    for measure, label in AXES.items():
        if measure != "rsum" and all(found[arm].results.get(measure) for arm in found):
            means = ", ".join(f"{arm} {mean(found[arm], measure):.1f}" for arm in order)
            lines.append(f"Mean {' '.join(label.split())}: {means}.")
    if baselines:
        sums = " and ".join(f"{one:.1f}" for one in baselines)
        lines.append(f"A line for ridge regression stands at {sums}.")
    if oracle is not None:
        lines.append(f"A line for the oracle stands at {oracle:.1f}.")
    return " ".join(lines)
