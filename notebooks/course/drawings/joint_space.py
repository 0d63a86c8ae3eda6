"""The figures and tables of notebook 03: the sphere, a rank, recalls against size, and orders of systems."""

from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown
from matplotlib.figure import Figure

from course.plots import COLOURS, MARKERS, shown
from course.sketch import arrow, circle, on_circle
from course.wording import table
from vsecore import records
from vsecore.data import coco_judgements


@shown("""A circle of radius one. Arrows from its middle lead to a picture and, a little further round, to its
    caption; another caption lies on the far side. An arc marks the angle between picture and caption, a
    dashed line their distance.""")
def angle_and_distance() -> Figure:
    """Show a picture, its caption and another caption on a circle, with an angle and a distance."""
    figure, axes = plt.subplots(figsize=(4.8, 3.6))
    circle(axes, "", (-2.0, 1.9), (-1.15, 1.4))
    points = {"a picture, v": 100, "its caption, t": 50, "another caption": 215}
    tips = on_circle(np.radians(list(points.values()))).T  # (3, 2)
    for name, (x, y), colour in zip(points, tips, COLOURS, strict=False):
        arrow(axes, (0, 0), (x, y), colour, linewidth=2)
        axes.text(1.08 * x, 1.08 * y, name, color=colour, ha="right" if x < 0 else "left", va="center")
    axes.plot(*tips[:2].T, color="0.3", linestyle="--")
    arrow(axes, (0.5, 1.22), (0.27, 0.98), "0.6", "-")
    axes.text(0.3, 1.24, "distance", color="0.3")
    axes.plot(*0.3 * on_circle(np.radians(np.linspace(50, 100, 40))), color="0.3")
    axes.text(0.1, 0.37, "angle", color="0.3", ha="center")
    return figure


@shown("""A histogram of the similarities of all other pictures to one caption. A line marks its own picture,
    far to the right; the few negatives to the right of the line are those in front of it.""")
def in_front(others: np.ndarray, own: float) -> Figure:
    """Show the similarities of all other pictures to a caption, and a line at its own picture's."""
    figure, axes = plt.subplots(figsize=(6.4, 3.0))
    step = (max(others.max(), own) - others.min()) / 40
    edges = own + step * np.arange(-60, 60)  # the own score is one of them
    axes.hist(others, bins=edges, color="0.75", label="other pictures")
    axes.hist(others[others >= own], bins=edges, color=COLOURS[1], label="negatives in front")
    axes.axvline(own, color=COLOURS[0], label="its own picture")
    axes.set(xlabel="similarity to one caption", ylabel="pictures (logarithmic above 1)", yscale="symlog")
    axes.set(xlim=(others.min() - step, 1), yticks=(0, 1, 2, 5, 10, 20, 50))  # no cosine is above 1
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    return figure


@shown("""Left: recalls of our system fall as more pictures are searched, and the dots lie near the lines of
    the formula fitted at a tenth of the pictures. Right: predicted against published recalls at COCO 5K for
    six systems; nearly all points lie on the diagonal, those of SCAN a little above.""")
def recall_by_size(
    measured: Mapping[int, Mapping[str, float]],
    formula: Callable[[int, int], float],
    fitted_at: int,
    published: Mapping[str, Sequence[tuple[float, float]]],
) -> Figure:
    """Show recalls against the pictures searched, beside a formula's; and published ones."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 4.0))
    across = np.logspace(np.log10(min(measured)), np.log10(max(measured)), 30).round().astype(int)
    for k, colour, marker in zip((1, 5, 10), COLOURS, MARKERS, strict=False):
        left.plot(across, [formula(int(n), k) for n in across], color=colour)
        heights = [row[f"t2i_r{k}"] for row in measured.values()]
        left.plot(list(measured), heights, marker, color=colour, markerfacecolor="white", label=f"R@{k}")
    left.axvline(fitted_at, color="0.6", linestyle=":")
    left.annotate("fitted here", (fitted_at, 3), ha="right", va="bottom", rotation=90, color="0.4")
    left.set(xscale="log", ylim=(0, 102), xlabel="pictures searched, n", ylabel="recall (%)")
    left.xaxis.set_major_formatter("{x:,.0f}")
    left.set_title("Our system. Lines: the formula")
    left.legend(loc="lower left", bbox_to_anchor=(0.28, 0))
    right.plot([25, 95], [25, 95], color="0.7", linewidth=1)
    for (system, pairs), colour, marker in zip(published.items(), COLOURS, MARKERS, strict=False):
        right.plot(*zip(*pairs, strict=True), marker, color=colour, label=system)
    right.set(xlabel="predicted from COCO 1K (%)", ylabel="published at COCO 5K (%)", aspect="equal")
    right.set_title("Published systems: R@1, R@5, R@10")
    right.legend(fontsize=8, loc="upper left")
    return figure


@shown("""Systems as dots by R@1 and by mAP@R on the truth, with a dotted line at the oracle's R@1. From text
    to picture the dots rise together and stay left of the oracle's line. From picture to text they lie far
    right of it, and systems of nearly equal R@1 differ in mAP@R.""")
def orders(ways: Mapping[str, tuple[list[float], list[float]]], limits: Mapping[str, float]) -> Figure:
    """Show systems by R@1 and mAP@R in both directions, with a line at the oracle's R@1."""
    figure, panels = plt.subplots(1, 2, figsize=(9.0, 3.6))
    for axes, (title, (recall, precision)) in zip(panels, ways.items(), strict=True):
        axes.plot(recall, precision, "o", color=COLOURS[0], alpha=0.7)
        axes.axvline(limits[title], color=COLOURS[1], linestyle=":")
        place = axes.get_xaxis_transform()  # y as a share of the panel's height
        axes.text(limits[title], 0.03, "oracle", transform=place, rotation=90, ha="right", va="bottom")
        axes.set(xlabel="R@1 (%)", ylabel="mAP@R on the truth (%)", title=title, xlim=(0, 100))
    return figure


def benchmarks() -> Markdown:
    """The published numbers on ECCV Caption and CxC as a table, with the rsum at COCO 5K beside them."""
    columns = ("eccv_t2i_map_at_r", "eccv_t2i_r_precision", "eccv_t2i_r1", "cxc_t2i_r1")
    entries, rows = records.published(), []
    for entry in (one for one in entries if columns[0] in one.metrics):
        same = (one for one in entries if one.system == entry.system)
        (coco,) = (one for one in same if one.data.startswith("coco, 5,000"))
        values = (coco.rsum, *(entry.metrics[column] for column in columns))
        source = f"{entry.source}; measured in {entry.read_in}"
        rows.append([entry.system, str(entry.models), *(f"{value:.1f}" for value in values), source])
    heads = ["system, text to picture", "models averaged", "rsum of both ways, COCO 5K"]
    heads += ["ECCV mAP@R", "ECCV R-precision", "ECCV R@1", "CxC R@1", "source"]
    return Markdown(table(heads, rows))


def judged_right() -> dict[str, int]:
    """How many pairs of COCO's test split are own pairs, and how many more did people find right?"""
    split = coco_judgements.split_ids()
    known = {int(number) for number in split.captions}
    pairs: dict[str, set[tuple[int, int]]] = {}
    for benchmark in ("coco", "cxc", "eccv"):
        captions, pictures = coco_judgements.right_items(benchmark)
        named = {(p, c) for p, several in captions.items() for c in several}
        named |= {(p, c) for c, several in pictures.items() for p in several}
        pairs[benchmark] = {(p, c) for p, c in named if c in known}
    further = (pairs["cxc"] | pairs["eccv"]) - pairs["coco"]
    return {"own pairs": len(pairs["coco"]), "further pairs that people found right": len(further)}
