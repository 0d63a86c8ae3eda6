"""Figures in one house style: quiet axes, colours that colour-blind readers can tell apart, words for all."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.attention import Seen, WordMaps, attend, word_maps

__all__ = [
    "COLOURS",
    "DASHES",
    "MARKERS",
    "Seen",
    "WordMaps",
    "attend",
    "curve",
    "curves",
    "heatmap",
    "house_style",
    "picture_row",
    "show",
    "spans",
    "word_maps",
]

# Okabe and Ito's palette for colour-blind readers, without its yellow, which is too light for lines on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Lines also differ by dash and marker, so that a figure survives a black-and-white printer.
DASHES = ("-", "--", "-.", ":", "-", "--", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def house_style() -> None:
    """Set matplotlib to the course's style, for this process. Safe to call twice."""
    plt.rcParams.update(
        {
            "figure.dpi": 110,
            "savefig.bbox": "tight",
            "figure.constrained_layout.use": True,
            "font.size": 10,
            "axes.titlesize": 11,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "grid.linewidth": 0.6,
            "legend.frameon": False,
            "lines.linewidth": 1.8,
            "axes.prop_cycle": plt.cycler(color=COLOURS),
            "image.cmap": "cividis",
        }
    )


def show(figure: Figure, alt: str) -> None:
    """Show a figure together with the words that say what is on it.

    The words are the plain-text form of the output: screen readers and the book's `alt` attribute take them,
    and the test of the stored notebooks compares them, since pixels differ between machines.

    Args:
        figure: the figure; it is closed afterwards.
        alt: a sentence or two for a reader who cannot see it: what is shown and what is to be seen in it.

    Raises:
        ValueError: `alt` is too short to say anything.
    """
    if len(alt.split()) < 4:
        raise ValueError(f"alt is {alt!r}; say in a sentence what the figure shows and what to see in it")
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    plt.close(figure)
    display({"image/png": picture.getvalue(), "text/plain": alt}, raw=True)


def curves(
    axes: Axes,
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    x: str,
    y: str,
    title: str = "",
) -> None:
    """Draw named lines on `axes`; each has a colour, a dash and a marker of its own.

    Args:
        axes: where to draw.
        lines: name -> (x values, y values), of equal length.
        x: label of the x axis, with its unit.
        y: label of the y axis, with its unit.
        title: what the reader should see.
    """
    for index, (name, (across, up)) in enumerate(lines.items()):
        style = index % len(COLOURS)
        axes.plot(
            across,
            up,
            label=name,
            color=COLOURS[style],
            linestyle=DASHES[style],
            marker=MARKERS[style] if len(across) <= 40 else None,
            markersize=4,
        )
    axes.set(xlabel=x, ylabel=y, title=title)
    if len(lines) > 1:
        axes.legend()


def curve(lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, x: str, y: str, alt: str) -> None:
    """Show named lines as a figure of their own; the arguments are those of `curves` and `show`."""
    figure, axes = plt.subplots(figsize=(5.6, 2.8))
    curves(axes, lines, x=x, y=y)
    show(figure, alt)


def spans(
    axes: Axes, rows: Mapping[str, tuple[float, float, float]], *, x: str = "", title: str = ""
) -> None:
    """Draw a named row for each (middle, low, high): a dot and its interval, the first row on top."""
    for place, (middle, low, high) in enumerate(rows.values()):
        axes.plot([low, high], [place, place], color=COLOURS[0])
        axes.plot(middle, place, "o", color=COLOURS[0])
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set(xlabel=x, title=title, ylim=(len(rows) - 0.5, -0.5))
    axes.grid(axis="y", visible=False)


def picture_row(
    pictures: Sequence[np.ndarray],
    titles: Sequence[str],
    *,
    marked: Sequence[bool] | None = None,
    heading: str = "",
    columns: int = 5,
) -> Figure:
    """Lay pictures out in rows, each with a title under it; `marked` ones get a frame and a tick.

    Args:
        pictures: uint8 arrays (height, width, 3).
        titles: one a picture.
        marked: which pictures to frame (the right answers), or None.
        heading: a line above all.
        columns: pictures a row.
    """
    columns = min(columns, len(pictures))
    rows = -(-len(pictures) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(2.1 * columns, 2.6 * rows), squeeze=False)
    for index, axes in enumerate(grid.flat):
        axes.grid(False)
        axes.set(xticks=[], yticks=[])
        if index >= len(pictures):
            axes.set_visible(False)
            continue
        right = marked is not None and bool(marked[index])
        axes.imshow(pictures[index], interpolation="lanczos")
        words = textwrap.fill(("✓ " if right else "") + titles[index], 30)
        axes.set_xlabel(words, fontsize=8.5, labelpad=6)
        for spine in axes.spines.values():
            spine.set(visible=right, color=COLOURS[2], linewidth=3)
    if heading:
        figure.suptitle(heading, fontsize=11)
    return figure


def heatmap(axes: Axes, values: np.ndarray, *, x: str, y: str, label: str, title: str = "") -> None:
    """Draw a matrix with its colour bar.

    Args:
        axes: where to draw.
        values: (rows, columns).
        x: what the columns are.
        y: what the rows are.
        label: what a colour means, with its unit.
        title: what the reader should see.
    """
    style: dict[str, Any] = {}
    if values.min() < 0 < values.max():  # two directions from nothing: two colours, and nothing is white
        reach = float(np.abs(values).max())
        style = {"cmap": "PuOr_r", "vmin": -reach, "vmax": reach}
    image = axes.imshow(values, aspect="auto", **style)
    axes.grid(False)
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.figure.colorbar(image, ax=axes, label=label)
