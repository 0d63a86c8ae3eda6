"""The drawings of notebook 17: rates, two measures of each system, what ideas add, which captions fail."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from course import dots, plots
from course.plots import COLOURS, MARKERS, name_rows
from course.wording import counted, signed
from vsecore.experiments import Studied

Change = tuple[float, float, float, int]
"""A mean difference, the ends of its interval, and how many seeds there are; see `dots.change`."""
GROUPS = {
    "one vector for each side": (
        "VSE++",
        "Transformers (thesis)",
        "VSRN",
        "TERN",
        "AOQ: VSRN and AdapOffQuin",
        "PCME",
        "VSE∞",
        "2AD: AdPool and AdOpt",
        "2AD on whole input",
        "LTD, constraint",
    ),
    "words compared with regions": ("SCAN, text to image", "SCAN, image to text", "BFAN"),
    "sets of vectors": ("PVSE", "DivE"),
    "ensembles": ("2AD, regions and grid", "2AD, regions, grid and patches"),
}
"""Rows of the scoreboard, by what they compare."""


def rates(tried: Mapping[str, Mapping[float, float]]) -> None:
    """Draw what systems reach on the development split at each learning rate."""
    figure, axes = plt.subplots(figsize=(6.6, 3.2))
    lines = {name: (list(sums), list(sums.values())) for name, sums in tried.items()}
    plots.curves(axes, lines, x="learning rate", y="rsum of 500 dev pictures")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    known = sorted({rate for sums in tried.values() for rate in sums})
    axes.set_xscale("log", base=2)
    axes.set_xticks(known, [f"{rate:g}" for rate in known])
    told = (f"{name} is highest at {max(sums, key=sums.__getitem__):g}" for name, sums in tried.items())
    plots.show(figure, alt=f"Rsum on the development split against the learning rate. {'; '.join(told)}.")


def two_measures(arms: Mapping[str, Studied]) -> None:
    """Draw rows of the scoreboard by rsum and mAP@R, with their names at the right, apart from each other."""
    points = {
        name: (arms[name].rsum, sum(dots.mean(arms[name], f"{way}_map_at_r") for way in ("i2t", "t2i")) / 2)
        for names in GROUPS.values()
        for name in names
    }
    figure, axes = plt.subplots(figsize=(8.2, 5.6))
    right = max(rsum for rsum, _ in points.values()) + 4
    colour_of: dict[str, str] = {}
    for (group, names), colour, marker in zip(GROUPS.items(), COLOURS, MARKERS, strict=False):
        axes.plot(*zip(*map(points.__getitem__, names), strict=True), marker, color=colour, label=group)
        colour_of |= dict.fromkeys(names, colour)
    least, height = 0.045 * np.ptp([value for _, value in points.values()]), -np.inf
    for name, (rsum, value) in sorted(points.items(), key=lambda item: item[1][1]):
        height = max(value, height + least)
        ends = [rsum, right - 0.5], [value, height]
        axes.plot(*ends, color=colour_of[name], linewidth=0.6, alpha=0.5, zorder=0)
        axes.text(right, height, f"{name} ({value:.1f})", va="center", fontsize=8.5)
    axes.set(xlabel="rsum", ylabel="mAP@R in %, mean of both directions")
    axes.legend(loc="upper left")
    told = "; ".join(f"{name} {rsum:.1f} and {value:.1f} %" for name, (rsum, value) in points.items())
    plots.show(figure, alt=f"Systems by rsum and mAP@R, which rise together, but loosely: {told}.")


def ideas(alone: Mapping[str, Change], added: Mapping[str, Change]) -> None:
    """Draw what each idea changes, added to the baseline of its own paper and added to 2AD."""
    rows = list(added)
    figure, axes = plt.subplots(figsize=(8.2, 0.9 + 0.5 * len(rows)))
    ways = ("over its own baseline", alone), ("in 2AD", added)
    for (label, changes), shift, colour, marker in zip(ways, (-0.14, 0.14), COLOURS, "oD", strict=False):
        for name, (middle, low, high, count) in changes.items():
            place, few = rows.index(name) + shift, count < 3
            axes.plot([low, high], [place, place], color=colour)
            axes.plot(middle, place, marker, color=colour, markerfacecolor="white" if few else colour)
            words = signed(middle).replace("-", "−") + (f", {counted(count, 'seed')}" if few else "")
            side, end = (1, np.nanmax([middle, high])) if middle > 0 else (-1, np.nanmin([middle, low]))
            style: dict[str, Any] = {"ha": "left" if side > 0 else "right", "va": "center", "fontsize": 8.5}
            axes.annotate(words, (end, place), (7 * side, 0), textcoords="offset points", **style)
        axes.plot([], [], marker, color=colour, label=label)
    name_rows(axes, rows)
    axes.axvline(0, color="0.4", linewidth=1)
    axes.set_xlabel("difference in rsum")
    axes.margins(x=0.12)
    axes.set_xlim(left=axes.get_xlim()[0] - 12)  # where the words for a loss stand
    axes.legend(loc="lower right")
    told = (f"{name} {changes[name][0]:+.1f} {label}" for label, changes in ways for name in changes)
    plots.show(figure, alt=f"What ideas change in rsum, with intervals: {'; '.join(told)}.")


def sentences(
    right: Mapping[str, Sequence[float]],
    broken: Mapping[str, Sequence[float]],
    kinds: Sequence[str],
    blind: Sequence[float],
) -> None:
    """Draw where systems go wrong: by how many things a caption names, and by which claim is broken.

    All is in percent: how often the first picture is true, for one thing, two, and more; how often a claim of
    each kind is the only one that is false; and how often it would be for a system that knows all but this
    kind.
    """
    figure, (left, axes) = plt.subplots(1, 2, figsize=(9.2, 3.8), width_ratios=[1, 1.5])
    lines = {name: ([1, 2, 3], values) for name, values in right.items()}
    across, up = "things that the caption names", "first picture is true, %"
    plots.curves(left, lines, x=across, y=up, legend=False)
    left.set_xticks([1, 2, 3], ["one", "two", "three\nor more"])
    places = np.arange(len(kinds))
    axes.barh(places, blind, color="0.88", label="blind to this kind")
    shifts = np.linspace(-0.3, 0.3, len(broken))
    for (name, values), shift, colour, marker in zip(broken.items(), shifts, COLOURS, MARKERS, strict=False):
        axes.plot(values, places + shift, marker, color=colour, label=name, markersize=5)
    name_rows(axes, kinds)
    axes.set_xlabel("captions whose first picture\nbreaks this claim alone, %")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=5)
    told = "; ".join(f"{name} {', '.join(f'{one:.0f}' for one in values)}" for name, values in right.items())
    plots.show(
        figure,
        alt=f"Left, how often the first picture is true in percent, for one, two and more things: {told}. "
        "Right, for each kind of claim, how often it is the only one that is broken, beside the grey bar of "
        "a system that is blind to it: far below it for places and colours, nearer for relations.",
    )
