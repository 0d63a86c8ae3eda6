"""The figures of notebook 13: sets of vectors on a circle, PIE-Net, and Gaussians in a plane."""

import io
import itertools
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from PIL import Image

from course.plots import COLOURS, MARKERS, bare, draw_picture
from course.sketch import arrow, box, canvas, circle, on_circle


def compromise(degrees: float) -> Figure:
    """Draw one caption vector between two pictures so far apart, and beside it a set of two."""
    figure, panels = plt.subplots(1, 2, figsize=(7.6, 3.7))
    angle = np.deg2rad(degrees / 2)
    arrows = {"one vector for the caption": [0.0], "a set of two": [angle - 0.12, 0.12 - angle]}
    for axes, (title, ends) in zip(panels, arrows.items(), strict=True):
        circle(axes, title, (-1.1, 1.75), (-1.3, 1.3))
        for name, (x, y) in (("picture A", on_circle(angle)), ("picture B", on_circle(-angle))):
            axes.plot(x, y, "o", color=COLOURS[0], markersize=10)
            axes.text(1.12 * x, 1.16 * y, name, va="center")
        for end in ends:
            arrow(axes, (0, 0), tuple(on_circle(end)), COLOURS[1], linewidth=2.2)
    return figure


def readings(pixels: np.ndarray, fits: Mapping[str, int]) -> Figure:
    """Draw a picture beside captions that are true of it, each with how many pictures it fits."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.1), width_ratios=[1, 1.4])
    draw_picture(left, pixels)
    bare(right)
    right.set_title("Pictures of the test set that each caption is true of", fontsize=10)
    for place, (sentence, count) in enumerate(fits.items()):
        height = 0.94 - place / len(fits)
        right.text(0.1, height, count, va="center", ha="right")
        right.text(0.14, height, sentence, va="center")
    return figure


def pie_net() -> Figure:
    """Draw PIE-Net with two heads: elements, attention, what a head found, residual, set."""
    figure, axes = canvas((8.8, 3.1), (-0.9, 7.7), (-1.2, 2.6))
    weights = np.array([[0.7, 0.15, 0.1, 0.05], [0.05, 0.1, 0.15, 0.7]])
    for n in range(4):
        box(axes, (0, 2.1 - 0.7 * n), (0.55, 0.5), f"$x_{n + 1}$", "0.92")
    box(axes, (0, -0.85), (1.25, 0.5), r"global $\phi$", "#fbdcc8")
    stages = [(2.25, 0.6, "$z_{k}$", "white"), (3.75, 1.1, r"$\sigma(W\,\cdot\,)$", "white")]
    stages += [(5.0, 0.5, "+", "#fbdcc8"), (6.0, 0.6, "LN", "white"), (7.1, 0.6, "$s_{k}$", "#cfe3f1")]
    for k, y in enumerate((1.75, 0.35)):
        for n in range(4):
            line = {"color": COLOURS[2 * k], "lw": 7 * weights[k, n], "alpha": 0.7}
            axes.plot([0.35, 1.9], [2.1 - 0.7 * n, y], **line, solid_capstyle="round")
        for x, width, name, colour in stages:
            box(axes, (x, y), (width, 0.55), name.replace("{k}", str(k + 1)), colour)
        for (start, wide, *_), (end, next_wide, *_) in itertools.pairwise(stages):
            arrow(axes, (start + wide / 2, y), (end - next_wide / 2, y))
        axes.plot([4.6, 4.6], [-0.85, y - 0.4], color="0.4", lw=1)
        arrow(axes, (4.6, y - 0.4), (4.8, y - 0.25))
    axes.plot([0.65, 4.6], [-0.85, -0.85], color="0.4", lw=1)
    axes.text(1.1, 2.45, "attention of each head", ha="center", fontsize=9)
    return figure


def two_sets(axes: Axes, angles: np.ndarray, shares: np.ndarray, start: np.ndarray) -> None:
    """Draw two sets on the unit circle, where they began, and a line for each pair's share of the gradient.

    The angles are (2, K), of the picture's and of the caption's vectors, and the shares (K, K) add up to 1.
    """
    circle(axes, "", (-1.15, 1.15), (-1.15, 1.15))
    points, before = on_circle(angles), on_circle(start)  # (2, 2, K): across and up, of each side
    for (i, j), share in np.ndenumerate(shares):
        if share > 0.005:
            pair = points[:, [0, 1], [i, j]]  # (2, 2)
            axes.plot(*pair, color="0.3", lw=0.4 + 9 * share, alpha=0.45, zorder=1)
    for side, name in enumerate(("picture", "caption")):
        size, marker = (90, 26)[side], MARKERS[side]
        (x0, y0), (x, y) = before[:, side], points[:, side]
        axes.scatter(x0, y0, s=size, marker=marker, facecolors="none", edgecolors="0.65")
        axes.scatter(x, y, s=size, marker=marker, color=COLOURS[side], zorder=3 + side, label=name)


def strip(films: Mapping[str, tuple[np.ndarray, np.ndarray]], steps: Sequence[int]) -> Figure:
    """Draw a row for each film, of angles (S, 2, K) and shares (S, K, K), and a column for each step."""
    size = (2.0 * len(steps), 2.05 * len(films) + 0.4)
    figure, grid = plt.subplots(len(films), len(steps), figsize=size, squeeze=False)
    for row, (name, (angles, shares)) in zip(grid, films.items(), strict=True):
        for axes, step in zip(row, steps, strict=True):
            two_sets(axes, angles[step], shares[step], angles[0])
            if axes in grid[0]:
                axes.set_title(f"step {step}", fontsize=10, loc="center")
        row[0].text(-1.2, 0, name, rotation=90, ha="right", va="center")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def picture_of(figure: Figure) -> np.ndarray:
    """The figure as pixels, uint8 (H, W, 3); it is closed."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=75)
    plt.close(figure)
    return np.asarray(Image.open(file).convert("RGB"))


def gaussians(points: np.ndarray, means: np.ndarray, deviations: np.ndarray, names: Sequence[str]) -> Figure:
    """Draw pictures as points in the plane (n, 2) and captions as ellipses of one and two deviations."""
    figure, axes = plt.subplots(figsize=(5.4, 4.2))
    axes.plot(*points.T, "o", markersize=8, color="black", zorder=3)
    for number, point in enumerate(points):
        axes.annotate(f"picture {number + 1}", point, (5, 6), textcoords="offset points", fontsize=9)
    for row, (mean, deviation, name) in enumerate(zip(means, deviations, names, strict=True)):
        for times in (1, 2):
            width, height = 2 * times * deviation
            colour, alpha = COLOURS[row], 0.3 / times
            axes.add_patch(Ellipse(tuple(mean), width, height, color=colour, alpha=alpha, lw=0))
        axes.plot(*mean, MARKERS[row + 1], color=COLOURS[row], label=name, zorder=4, markersize=5)
    axes.set(xlabel="dimension 1", ylabel="dimension 2")
    axes.set_aspect("equal", adjustable="datalim")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=1, fontsize=9)
    return figure
