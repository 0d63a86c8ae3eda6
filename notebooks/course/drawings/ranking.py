"""The figures of notebook 04: a hinge, what a loss pushes, a collapse, intervals, a long training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Wedge
from scipy.stats import sem, t

from course.plots import COLOURS, MARKERS, curves, show
from vsecore.experiments.statistics import interval


def hinge(margin: float = 0.2, own: float = 30) -> None:
    """Show a picture, its caption (so many degrees away) and two negatives on a circle, and their cost."""
    edge = np.degrees(np.arccos(np.cos(np.radians(own)) - margin))  # where the zone ends
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 4.1))
    left.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.75"))
    left.add_patch(Wedge((0, 0), 1, 90 - edge, 90 + edge, color=COLOURS[4], alpha=0.22, linewidth=0))
    points = {
        "picture": (0, "center"),
        "its caption": (own, "left"),
        "hardest\nnegative": (-39, "right"),
        "an easy\nnegative": (-115, "right"),
    }
    for (name, (angle, side)), colour in zip(points.items(), COLOURS, strict=False):
        across, up = np.sin(np.radians(angle)), np.cos(np.radians(angle))
        left.plot([0, across], [0, up], color=colour)
        left.plot(across, up, "o", color=colour)
        left.annotate(name, (1.1 * across, 1.1 * up), color=colour, ha=side)
    arc = np.radians(np.linspace(own, edge, 30))
    left.plot(1.05 * np.sin(arc), 1.05 * np.cos(arc), color=COLOURS[6], linewidth=4)
    left.annotate("margin m", (1.2 * np.sin(arc[20]), 1.1 * np.cos(arc[20]) - 0.08))
    left.annotate("too\nclose", (-0.24, 0.66), ha="center", fontsize=9)
    left.set(xlim=(-1.5, 1.5), ylim=(-1.05, 1.25), aspect="equal")
    left.axis("off")
    positive, across = np.cos(np.radians(own)), np.linspace(-0.2, 1, 121)
    cost = {"hinge": (across.tolist(), (margin + across - positive).clip(min=0).tolist())}
    curves(right, cost, x="similarity of the negative, s(v, t')", y="cost")
    for place, name in ((positive, "s(v, t)"), (positive - margin, "s(v, t) − m")):
        right.axvline(place, color="0.5", linestyle=":")
        right.annotate(name, (place - 0.01, 0.02), rotation=90, ha="right")
    arrow = {"arrowstyle": "<->", "color": COLOURS[6], "shrinkA": 0, "shrinkB": 0}
    right.annotate("", (positive - margin, 0.25), (positive, 0.25), arrowprops=arrow)
    right.annotate("margin m", (positive - margin / 2, 0.265), ha="center", fontsize=9)
    show(
        figure,
        alt="Left: a circle with a picture at the top and its caption a little to the right. A shaded "
        "zone around the picture reaches beyond the caption by an arc labelled margin m; the hardest "
        "negative lies inside the zone, an easy negative far outside. Right: the cost of a negative "
        "against its similarity, zero until one margin below the caption's own similarity, then a "
        "rising straight line; the margin is labelled.",
    )


def pushes(shares: Mapping[str, np.ndarray], boxed: tuple[int, int]) -> None:
    """Show which similarities each loss pushes, (B, B) in percent of its push, with a box at one of them."""
    reach = max(float(np.abs(push).max()) for push in shares.values())
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.7), sharey=True)
    for axes, (name, push) in zip(panels, shares.items(), strict=True):
        image = axes.imshow(push, cmap="PuOr_r", vmin=-reach, vmax=reach)
        corner = boxed[1] - 0.5, boxed[0] - 0.5
        axes.add_patch(plt.Rectangle(corner, 1, 1, fill=False, linewidth=1.6))
        axes.grid(False)
        axes.set(xlabel="caption", title=name, xticks=range(len(push)), yticks=range(len(push)))
    panels[0].set_ylabel("picture")
    figure.colorbar(image, ax=panels, label="share of the push, %\n(− together, + apart)")
    show(
        figure,
        alt="Two heat maps of gradients over a batch of twelve, on one colour scale. With all negatives "
        "many cells off the diagonal get a weak push; with the hardest negative each picture and each "
        "caption pushes away at most one. A box marks the worst mistake, picture 3 with caption 7, "
        "which gets a larger share on the right.",
    )


def followed(runs: Mapping[str, Mapping[str, Sequence[float]]], margin: float) -> None:
    """Show the loss and the mean similarity of trainings, step by step, and the loss of a collapsed batch."""
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.2))
    for axes, key, label in zip(
        panels, ("loss", "alike"), ("loss of a batch", "mean similarity of all pairs"), strict=True
    ):
        lines = {name: (range(1, len(run[key]) + 1), run[key]) for name, run in runs.items()}
        curves(axes, lines, x="step", y=label)
    pairs = next(iter(runs.values()))["pairs"]
    floor = 2 * margin * float(np.mean(pairs))
    panels[0].axhline(floor, color="0.3", linestyle=":")
    panels[0].annotate("2 · P · m", (len(pairs), 0.94 * floor), ha="right", va="top", color="0.3")
    panels[0].set_ylim(0, 2 * floor)
    panels[1].set_ylim(-0.35, 1.05)
    show(
        figure,
        alt="The loss of a batch and the mean similarity of all its pairs, step by step, for "
        f"{' and '.join(runs)}. A dotted line marks two margins for each positive pair, the loss of a "
        "collapsed batch.",
    )


def intervals(cases: Mapping[str, Sequence[float]], margin: float) -> None:
    """Show paired differences, their mean, its 95 % and 90 % intervals, and the band of ± the margin."""
    figure, axes = plt.subplots(figsize=(7.6, 2.9))
    axes.axvspan(-margin, margin, color="0.9", zorder=0)
    axes.axvline(0, color="0.5", linewidth=1)
    for row, values in enumerate(cases.values()):
        axes.plot(interval(values), [row, row], color=COLOURS[0], linewidth=1.5)
        reach = t.ppf(0.95, len(values) - 1) * sem(values)  # of 90 %: one tail in twenty on either side
        ends = [np.mean(values) - reach, np.mean(values) + reach]
        axes.plot(ends, [row, row], color=COLOURS[0], linewidth=5, alpha=0.6)
        axes.plot(np.mean(values), row, "|", color=COLOURS[6], markersize=15, markeredgewidth=2.4)
        axes.plot(values, [row - 0.25] * len(values), "o", color=COLOURS[5], markersize=5)
    axes.set_yticks(range(len(cases)), list(cases))
    axes.set(xlabel="difference of two systems in rsum, one dot a seed", ylim=(len(cases) - 0.5, -0.6))
    axes.grid(axis="y", visible=False)
    said = "; ".join(f"{name}: mean {np.mean(values):.1f}" for name, values in cases.items())
    show(
        figure,
        alt="A row for each case: five differences as dots, their mean, a thin 95 % interval and a thick "
        f"90 % interval, over a grey band of what is too small to matter, {margin:g} to either side of "
        f"zero. {said}.",
    )


def long_run(ways: Mapping[str, Sequence[Mapping[str, float]]], epochs: int, decay: int) -> None:
    """Show several ways to train by the metrics of each seed: while training, and at its end."""
    ends = {
        "rsum": "rsum",
        "i2t_map_at_r": "mAP@R in %\npicture to text",
        "t2i_map_at_r": "mAP@R in %\ntext to picture",
    }
    figure, panels = plt.subplot_mosaic([["curve"] * 3, [*ends]], figsize=(9, 6.4), height_ratios=[1.4, 1])
    across, top = range(1, epochs + 1), panels["curve"]
    for (name, seeds), colour, dot in zip(ways.items(), COLOURS, MARKERS, strict=False):
        curve = np.array([[one[f"dev_rsum_{epoch}"] for epoch in across] for one in seeds])
        top.plot(across, curve.mean(0), color=colour, marker=dot, markersize=4, label=name)
        top.fill_between(across, curve.min(0), curve.max(0), color=colour, alpha=0.2, linewidth=0)
    top.axvline(decay + 0.5, color="0.5", linestyle=":")
    top.annotate("learning rate falls to a tenth", (decay + 0.7, 40), fontsize=9)
    top.set(
        xlabel="epoch",
        ylabel="rsum of 500 development pictures",
        title="While training: mean and range of the seeds",
    )
    top.legend(loc="center right")
    for key, label in ends.items():
        for row, (seeds, colour, dot) in enumerate(zip(ways.values(), COLOURS, MARKERS, strict=False)):
            values = [one[key] for one in seeds]
            panels[key].plot(values, [row] * len(values), dot, color=colour, alpha=0.5)
            panels[key].plot(interval(values), [row, row], color=colour)
            panels[key].plot(np.mean(values), row, "|", color=colour, markersize=14, markeredgewidth=2.4)
        panels[key].set(xlabel=label, ylim=(len(ways) - 0.4, -0.6), yticks=[])
    panels["rsum"].set_yticks(range(len(ways)), [name.replace(", ", ",\n") for name in ways])
    panels["rsum"].set_title("At the end: 1,000 test pictures, a dot for each seed, 95 % interval")
    show(
        figure,
        alt=f"Above: rsum on the development split after each epoch for {'; '.join(ways)}, each the mean "
        "of its seeds with its range; a dotted line marks where the learning rate falls. Below: rsum "
        "and mAP@R in both directions on the test split, a dot for each seed, with means and "
        "intervals.",
    )
