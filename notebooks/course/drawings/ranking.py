"""The figures of notebook 04: a hinge, what a loss pushes, a collapse, intervals, a long training."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Wedge
from scipy.stats import sem, t

from course import dots
from course.plots import COLOURS, bands, curve_panels, curves, heatmap, show, shown
from course.sketch import arrow, circle, on_circle


@shown("""Left: a circle with a picture at the top and its caption a little to the right. A shaded zone around
    the picture reaches beyond the caption by an arc labelled margin m; the hardest negative lies inside the
    zone, an easy negative far outside. Right: the cost of a negative against its similarity, zero until one
    margin below the caption's own similarity, then a rising straight line; the margin is labelled.""")
def hinge(margin: float = 0.2, own: float = 30) -> Figure:
    """Show a picture, its caption (so many degrees away) and two negatives on a circle, and their cost."""
    edge = np.degrees(np.arccos(np.cos(np.radians(own)) - margin))  # where the zone ends
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 4.1))
    circle(left, "", (-1.5, 1.5), (-1.05, 1.25))
    left.add_patch(Wedge((0, 0), 1, 90 - edge, 90 + edge, color=COLOURS[4], alpha=0.22, linewidth=0))
    points = {
        "picture": (90, "center"),
        "its caption": (90 - own, "left"),
        "hardest\nnegative": (129, "right"),
        "an easy\nnegative": (205, "right"),
    }
    for (name, (angle, side)), colour in zip(points.items(), COLOURS, strict=False):
        x, y = on_circle(np.radians(angle))
        left.plot([0, x], [0, y], "o-", color=colour, markevery=[1])
        left.text(1.1 * x, 1.1 * y, name, color=colour, ha=side)
    arc = on_circle(np.radians(np.linspace(90 - own, 90 - edge, 30)))  # (2, 30)
    left.plot(*1.05 * arc, color=COLOURS[6], linewidth=4)
    left.text(1.2 * arc[0, 20], 1.1 * arc[1, 20] - 0.08, "margin m")
    left.text(-0.24, 0.66, "too\nclose", ha="center", fontsize=9)
    positive, across = np.cos(np.radians(own)), np.linspace(-0.2, 1, 121)
    cost = {"hinge": (across.tolist(), (margin + across - positive).clip(min=0).tolist())}
    curves(right, cost, x="similarity of the negative, s(v, t')", y="cost")
    for place, name in ((positive, "s(v, t)"), (positive - margin, "s(v, t) − m")):
        right.axvline(place, color="0.5", linestyle=":")
        right.text(place - 0.01, 0.02, name, rotation=90, ha="right", va="bottom")
    arrow(right, (positive, 0.25), (positive - margin, 0.25), COLOURS[6], "<->")
    right.text(positive - margin / 2, 0.26, "margin\nm", ha="center", fontsize=9, linespacing=1.1)
    return figure


@shown("""Two heat maps of gradients over a batch of twelve, on one colour scale. With all negatives many
    cells off the diagonal get a weak push; with the hardest negative each picture and each caption pushes
    away at most one. A box marks the worst mistake, picture 3 with caption 7, which gets a larger share on
    the right.""")
def pushes(shares: Mapping[str, np.ndarray], boxed: tuple[int, int]) -> Figure:
    """Show which similarities each loss pushes, (B, B) in percent of its push, with a box at one of them."""
    reach = max(float(np.abs(push).max()) for push in shares.values())
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.7), sharey=True)
    for axes, (name, push) in zip(panels, shares.items(), strict=True):
        image = heatmap(axes, push, names=(range(len(push)),) * 2, vmin=-reach, vmax=reach, aspect="equal")
        corner = boxed[1] - 0.5, boxed[0] - 0.5
        axes.add_patch(plt.Rectangle(corner, 1, 1, fill=False, linewidth=1.6))
        axes.set(xlabel="caption", title=name)
    panels[0].set_ylabel("picture")
    figure.colorbar(image, ax=panels, label="share of the push, %\n(− together, + apart)")
    return figure


def followed(runs: Mapping[str, Mapping[str, Sequence[float]]], margin: float) -> None:
    """Show the loss and the mean similarity of trainings, step by step, and the loss of a collapsed batch."""
    labels = {"loss": "loss of a batch", "alike": "mean similarity of all pairs"}
    panels = {label: {name: list(run[key]) for name, run in runs.items()} for key, label in labels.items()}
    figure, (left, right) = curve_panels(panels, x="step", size=(8.6, 3.2))
    pairs = next(iter(runs.values()))["pairs"]
    floor = 2 * margin * float(np.mean(pairs))
    left.axhline(floor, color="0.3", linestyle=":")
    left.text(len(pairs), 0.94 * floor, "2 · P · m", ha="right", va="top", color="0.3")
    left.set_ylim(0, 2 * floor)
    right.set_ylim(-0.35, 1.05)
    show(
        figure,
        alt="The loss of a batch and the mean similarity of all its pairs, step by step, for "
        f"{' and '.join(runs)}. A dotted line marks two margins for each positive pair, the loss of a "
        "collapsed batch.",
    )


def intervals(cases: Mapping[str, Sequence[float]], margin: float) -> None:
    """Show paired differences, their mean, its 95 % and 90 % intervals, and the band of ± the margin."""
    figure, axes = plt.subplots(figsize=(6.2, 2.9))
    axes.axvspan(-margin, margin, color="0.9", zorder=0)
    axes.axvline(0, color="0.5", linewidth=1)
    dots.rows(axes, cases, raised=0.25)
    for row, values in enumerate(cases.values()):
        reach = t.ppf(0.95, len(values) - 1) * sem(values)  # of 90 %: one tail in twenty on either side
        ends = [np.mean(values) - reach, np.mean(values) + reach]
        axes.plot(ends, [row, row], color=COLOURS[0], linewidth=5, alpha=0.6)
    axes.set_xlabel("difference of two systems in rsum, one dot a seed")
    said = "; ".join(f"{name}: mean {np.mean(values):.1f}" for name, values in cases.items())
    show(
        figure,
        alt="A row for each case: five differences as dots, their mean, a thin 95 % interval and a thick "
        f"90 % interval, over a grey band of what is too small to matter, {margin:g} to either side of "
        f"zero. {said}.",
    )


def long_run(ways: Mapping[str, Sequence[Mapping[str, float]]], epochs: int, decay: int) -> None:
    """Show several ways to train by the metrics of each seed: while training, and at its best epoch."""
    figure, panels = plt.subplot_mosaic([["curve"] * 3, [*dots.AXES]], figsize=(9, 6.4), height_ratios=[7, 5])
    top, names = panels["curve"], [name.replace(", ", ",\n") for name in ways]
    tracks = {
        name: np.array([[one[f"dev_rsum_{epoch}"] for epoch in range(1, epochs + 1)] for one in seeds])
        for name, seeds in ways.items()
    }
    bands(top, tracks, x="epoch", y="rsum of 500 development pictures")
    top.set_title("While training: mean and range of the seeds")
    top.axvline(decay + 0.5, color="0.5", linestyle=":")
    top.text(decay + 0.7, 40, "learning rate falls to a tenth", fontsize=9)
    top.legend(loc="center right")
    for key, label in dots.AXES.items():
        rows = {name: [one[key] for one in seeds] for name, seeds in zip(names, ways.values(), strict=True)}
        dots.rows(panels[key], rows, COLOURS)
        panels[key].set_xlabel(label)
        panels[key].tick_params(labelleft=key == "rsum")
    panels["rsum"].set_title("At the best epoch: 1,000 test pictures, one dot a seed, 95 % interval")
    show(
        figure,
        alt=f"Above: rsum on the development split after each epoch for {'; '.join(ways)}, each the mean "
        "of its seeds with its range; a dotted line marks where the learning rate falls. Below: rsum "
        "and mAP@R in both directions on the test split, a dot for each seed, with means and "
        "intervals.",
    )
