"""The figures of notebook 13: sets of vectors on a circle, PIE-Net, and Gaussians in a plane."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Ellipse
from PIL import Image

from course.plots import COLOURS, MARKERS


def bare(axes: Axes) -> None:
    """Take ticks, grid and frame off."""
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    axes.spines[:].set_visible(False)


def compromise(degrees: float) -> Figure:
    """Draw one caption vector between two pictures so far apart, and beside it a set of two."""
    figure, panels = plt.subplots(1, 2, figsize=(7.6, 3.7))
    angle = np.deg2rad(degrees / 2)
    arrows = {"one vector for the caption": [0.0], "a set of two": [angle - 0.12, 0.12 - angle]}
    for axes, (title, ends) in zip(panels, arrows.items(), strict=True):
        axes.add_patch(Circle((0, 0), 1, fill=False, color="0.75"))
        for name, at in (("picture A", angle), ("picture B", -angle)):
            axes.plot(np.cos(at), np.sin(at), "o", color=COLOURS[0], markersize=10)
            axes.text(1.12 * np.cos(at), 1.16 * np.sin(at), name, va="center")
        for end in ends:
            arrow = {"arrowstyle": "-|>", "color": COLOURS[1], "lw": 2.2}
            axes.annotate("", (np.cos(end), np.sin(end)), (0, 0), arrowprops=arrow)
        axes.set(xlim=(-1.1, 1.75), ylim=(-1.3, 1.3), title=title)
        axes.set_aspect("equal")
        bare(axes)
    return figure


def readings(pixels: np.ndarray, fits: Mapping[str, int]) -> Figure:
    """Draw a picture beside captions that are true of it, each with how many pictures it fits."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.1), width_ratios=[1, 1.7])
    left.imshow(pixels)
    right.set_title("it fits   caption", fontsize=10, loc="left")
    for place, (sentence, count) in enumerate(fits.items()):
        height = 0.94 - place / len(fits)
        right.text(0.08, height, count, va="center", ha="right", fontsize=9)
        right.text(0.12, height, sentence, va="center", fontsize=9)
    for axes in (left, right):
        bare(axes)
    return figure


def pie_net() -> Figure:
    """Draw PIE-Net with two heads: elements, attention, what a head found, residual, set."""
    figure, axes = plt.subplots(figsize=(8.8, 3.1))
    weights = np.array([[0.7, 0.15, 0.1, 0.05], [0.05, 0.1, 0.15, 0.7]])
    for n in range(4):
        axes.text(0, 2.1 - 0.7 * n, f"$x_{n + 1}$", ha="center", va="center", bbox=_box("0.92"))
    axes.text(0, -0.85, r"global $\phi$", ha="center", va="center", bbox=_box("#fbdcc8"))
    for k, height in enumerate((1.75, 0.35)):
        for n in range(4):
            line = {"color": COLOURS[2 * k], "lw": 7 * weights[k, n], "alpha": 0.7}
            axes.plot([0.35, 1.9], [2.1 - 0.7 * n, height], **line, solid_capstyle="round")
        stages = (f"$z_{k + 1}$", r"$\sigma(W\,\cdot\,)$", "+", "LN", f"$s_{k + 1}$")
        places = (2.25, 3.75, 5.0, 6.0, 7.1)
        for x, name in zip(places, stages, strict=True):
            colour = "#fbdcc8" if name == "+" else "#cfe3f1" if name.startswith("$s") else "white"
            axes.text(x, height, name, ha="center", va="center", bbox=_box(colour))
        for start, end in itertools.pairwise(places):
            _arrow(axes, (start + 0.35, height), (end - (0.6 if end == 3.75 else 0.35), height))
    axes.plot([0.75, 4.6], [-0.85, -0.85], color="0.4", lw=1)
    for height in (0.0, 1.4):
        axes.plot([4.6, 4.6], [-0.85, height - 0.05], color="0.4", lw=1)
        _arrow(axes, (4.6, height - 0.05), (4.85, height + 0.17))
    axes.text(1.1, 2.45, "attention of each head", ha="center", fontsize=9)
    axes.set(xlim=(-0.9, 7.7), ylim=(-1.2, 2.6))
    axes.axis("off")
    return figure


def _box(colour: str) -> dict[str, str]:
    return {"boxstyle": "round,pad=0.35", "fc": colour}


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "0.4"})


def on_circle(axes: Axes, angles: np.ndarray, shares: np.ndarray, start: np.ndarray) -> None:
    """Draw two sets on the unit circle, where they began, and a line for each pair's share of the gradient.

    Args:
        axes: where to draw.
        angles: of the picture's and of the caption's vectors, (2, K).
        shares: (K, K) numbers that add up to 1.
        start: the angles before the first step, (2, K).
    """
    axes.add_patch(Circle((0, 0), 1, fill=False, color="0.8"))
    points, before = (np.stack([np.cos(one), np.sin(one)], -1) for one in (angles, start))  # (2, K, 2)
    for (i, j), share in np.ndenumerate(shares):
        if share > 0.005:
            pair = np.stack([points[0, i], points[1, j]])
            axes.plot(*pair.T, color="0.3", lw=0.4 + 9 * share, alpha=0.45, zorder=1)
    for side, name in enumerate(("picture", "caption")):
        size, marker = (90, 26)[side], MARKERS[side]
        (x0, y0), (x, y) = before[side].T, points[side].T
        axes.scatter(x0, y0, s=size, marker=marker, facecolors="none", edgecolors="0.65")
        axes.scatter(x, y, s=size, marker=marker, color=COLOURS[side], zorder=3 + side, label=name)
    axes.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15))
    axes.set_aspect("equal")
    bare(axes)


def strip(films: Mapping[str, tuple[np.ndarray, np.ndarray]], steps: Sequence[int]) -> Figure:
    """Draw a row for each film, of angles (S, 2, K) and shares (S, K, K), and a column for each step."""
    size = (2.0 * len(steps), 2.05 * len(films) + 0.4)
    figure, grid = plt.subplots(len(films), len(steps), figsize=size, squeeze=False)
    for row, (name, (angles, shares)) in zip(grid, films.items(), strict=True):
        for axes, step in zip(row, steps, strict=True):
            on_circle(axes, angles[step], shares[step], angles[0])
            if row is grid[0]:
                axes.set_title(f"step {step}", fontsize=10, loc="center")
        row[0].set_ylabel(name, fontsize=10)
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
    axes.scatter(*points.T, color="black", zorder=3)
    for number, point in enumerate(points):
        axes.annotate(f"picture {number + 1}", point, (5, 6), textcoords="offset points", fontsize=9)
    for row, (mean, deviation, name) in enumerate(zip(means, deviations, names, strict=True)):
        for times in (1, 2):
            width, height = 2 * times * deviation
            colour, alpha = COLOURS[row], 0.3 / times
            axes.add_patch(Ellipse(tuple(mean), width, height, color=colour, alpha=alpha, lw=0))
        axes.plot(*mean, MARKERS[row + 1], color=COLOURS[row], label=name)
    axes.set(xlabel="dimension 1", ylabel="dimension 2")
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(loc="best", fontsize=9)
    return figure
