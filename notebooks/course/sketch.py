"""What schemes are sketched with: boxes, arrows, and points on a circle."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

Point = tuple[float, float]
Colour = str | tuple[str, float]
"""A colour, or a colour and how opaque it is."""


def canvas(size: Point, x: Point, y: Point) -> tuple[Figure, Axes]:
    """Return a figure of a size in inches, and empty axes that reach from x[0] to x[1], y[0] to y[1]."""
    figure, axes = plt.subplots(figsize=size)
    axes.set(xlim=x, ylim=y)
    axes.axis("off")
    return figure, axes


def box(axes: Axes, middle: Point, size: Point, text: str, fill: Colour = "white", **style: Any) -> None:
    """Draw a box with a text in its middle; `style` is that of a matplotlib patch."""
    (x, y), (width, height) = middle, size
    look = {"boxstyle": "round,pad=0,rounding_size=0.1", "edgecolor": "0.4", "facecolor": fill} | style
    axes.add_patch(FancyBboxPatch((x - width / 2, y - height / 2), width, height, **look))
    axes.text(x, y, text, ha="center", va="center", fontsize=9, linespacing=0.95)


def rectangle(box: Sequence[float] | np.ndarray, **style: Any) -> Rectangle:
    """The rectangle of a box: left, top, right, bottom."""
    left, top, right, bottom = box
    return Rectangle((left, top), right - left, bottom - top, **style)


def arrow(axes: Axes, start: Point, end: Point, colour: str = "0.4", head: str = "-|>", **style: Any) -> None:
    """Draw an arrow; its head is one of matplotlib's arrow styles."""
    look = {"arrowstyle": head, "color": colour, "shrinkA": 0, "shrinkB": 0} | style
    axes.annotate("", end, start, arrowprops=look)


def circle(axes: Axes, title: str, x: Point, y: Point) -> None:
    """Draw the unit circle on axes without a frame that reach from x[0] to x[1], y[0] to y[1]."""
    axes.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.82", zorder=0))
    axes.set(aspect="equal", xlim=x, ylim=y)
    axes.set_title(title, loc="center", fontsize=10)
    axes.axis("off")


def on_circle(angles: float | np.ndarray) -> np.ndarray:
    """The points of the unit circle at these angles, in radians from the right, (2,) or (2, n)."""
    return np.stack([np.cos(angles), np.sin(angles)])
