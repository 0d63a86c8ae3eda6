"""The figures of notebook 16: a latent target, a multiplier's path, and what it does to both losses."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from course.plots import COLOURS, DASHES, MARKERS

BOXES = {
    "picture": (0.0, 1.1, 1.3, "0.92"),
    "caption": (0.0, 0.0, 1.3, "0.92"),
    "image\nencoder": (2.0, 1.1, 1.3, "#cfe3f1"),
    "caption\nencoder": (2.0, 0.0, 1.3, "#cfe3f1"),
    "$v$": (4.0, 1.1, 0.6, "white"),
    "$z$": (4.0, 0.0, 0.6, "white"),
    "contrastive\nloss": (6.0, 0.55, 1.6, "#fbdcc8"),
    "decoder $h$": (6.0, -0.8, 1.6, "#c9ebdf"),
    "MiniLM": (2.0, -1.2, 1.3, "#c9ebdf"),
    "target $y$": (6.0, -1.65, 1.6, "#c9ebdf"),
    "reconstruction\nloss": (8.6, -1.2, 1.9, "#fbdcc8"),
}
"""Where each box stands, how wide it is, and its colour: x, y, width, colour."""
ARROWS = (
    ("picture", "image\nencoder"),
    ("image\nencoder", "$v$"),
    ("$v$", "contrastive\nloss"),
    ("caption", "caption\nencoder"),
    ("caption\nencoder", "$z$"),
    ("$z$", "contrastive\nloss"),
    ("$z$", "decoder $h$"),
    ("caption", "MiniLM"),
    ("MiniLM", "target $y$"),
    ("decoder $h$", "reconstruction\nloss"),
    ("target $y$", "reconstruction\nloss"),
)


def overview() -> Figure:
    """Draw both encoders, both losses, and what only training needs."""
    figure, axes = plt.subplots(figsize=(9.2, 3.3))
    training = plt.Rectangle((1.2, -2.1), 8.5, 1.7, fc="#eef7f3", ec=COLOURS[2], linestyle="--", lw=1)
    axes.add_patch(training)
    axes.text(9.6, -2.03, "used in training only", ha="right", fontsize=9, color=COLOURS[2])
    for name, (x, y, width, colour) in BOXES.items():
        axes.add_patch(plt.Rectangle((x - width / 2, y - 0.3), width, 0.6, fc=colour, ec="0.3"))
        axes.text(x, y, name, ha="center", va="center", fontsize=9, linespacing=0.95)
    for start, end in ARROWS:
        (x, y, width, _), (to_x, to_y, to_width, _) = BOXES[start], BOXES[end]
        ends = (to_x - to_width / 2, to_y), (x + width / 2, y)
        axes.annotate("", *ends, arrowprops={"arrowstyle": "->", "color": "0.3", "shrinkA": 0, "shrinkB": 1})
    axes.set(xlim=(-0.8, 9.8), ylim=(-2.15, 1.5))
    axes.axis("off")
    return figure


def controller(runs: Mapping[str, np.ndarray], bound: float, size: tuple[float, float]) -> Figure:
    """Draw the multiplier and the loss of toy models against the step.

    Args:
        runs: for each model (steps, 3): the multiplier that is used, the one behind it, the loss.
        bound: what the loss should not exceed.
        size: of the figure, in inches.
    """
    figure, panels = plt.subplots(1, 2, figsize=size)
    for style, (name, seen) in enumerate(runs.items()):
        look = {"color": COLOURS[style], "linestyle": DASHES[style]}
        panels[0].plot(seen[:, 1], label=name, **look)
        panels[1].plot(seen[:, 2], **look)
    panels[0].set(xlabel="step", ylabel="λ")
    panels[1].set(xlabel="step", ylabel="loss that has a bound")
    panels[0].axhline(0, color="0.5", linewidth=1)
    panels[1].axhline(bound, color="0.4", linestyle=":")
    panels[1].annotate("bound", (0, bound), (2, 3), textcoords="offset points", fontsize=9)
    for axes in panels:
        axes.axvline(len(seen) / 2, color="0.8", linewidth=1)
    if len(runs) > 1:
        panels[0].legend()
    return figure


def trajectories(tracks: Mapping[str, Mapping[str, Sequence[float]]], bounds: Mapping[str, float]) -> Figure:
    """Draw what each system's measures were after each epoch, in a panel for each measure.

    Args:
        tracks: measure -> system -> a number for each epoch.
        bounds: the bound of each system that has one; drawn in the panel of the reconstruction loss.
    """
    figure, grid = plt.subplots(2, 2, figsize=(9.2, 5.6), sharex=True)
    systems = list(dict.fromkeys(name for lines in tracks.values() for name in lines))
    for axes, (measure, lines) in zip(grid.flat, tracks.items(), strict=True):
        for name, values in lines.items():
            style = systems.index(name)
            look = {"color": COLOURS[style], "linestyle": DASHES[style], "marker": MARKERS[style]}
            axes.plot(range(1, len(values) + 1), values, label=name, markersize=4, **look)
            if measure.startswith("reconstruction") and name in bounds:
                axes.axhline(bounds[name], color=COLOURS[style], linestyle=":", linewidth=1.2)
        axes.set_ylabel(measure)
    for axes in grid[1]:
        axes.set_xlabel("epoch")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=len(systems))
    return figure


def top_captions(rows: Sequence[tuple[np.ndarray, Mapping[str, Sequence[str]]]]) -> Figure:
    """Draw pictures, each beside the captions that systems rank first, a column for each system."""
    columns = 1 + len(rows[0][1])
    widths = [1, *[2.1] * (columns - 1)]
    figure, grid = plt.subplots(len(rows), columns, figsize=(10.6, 2.3 * len(rows)), width_ratios=widths)
    for axes_row, (pixels, found) in zip(grid, rows, strict=True):
        axes_row[0].imshow(pixels)
        for axes, (name, captions) in zip(axes_row[1:], found.items(), strict=True):
            lines = [textwrap.fill(text, 50, subsequent_indent="    ") for text in captions]
            axes.text(0, 1, "\n".join(lines), va="top", fontsize=9, linespacing=1.3)
            axes.set_title(name)
        for axes in axes_row:
            axes.axis("off")
    return figure
