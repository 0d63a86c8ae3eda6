"""The drawings of notebook 10: sort, weigh and sum; AdPool; what counts where in a scene."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.plots import COLOURS, bare, curves, draw_picture, heat_on
from course.sketch import arrow, box, canvas


def sort_weigh_sum(elements: np.ndarray, theta: np.ndarray) -> Figure:
    """Draw how a pooler sorts each dimension, weighs the places, and sums; a cell keeps its colour.

    The elements are (N, D), N at most 7, and `theta` are the weights of the places, (N,).
    """
    order = np.argsort(-elements, axis=0)  # (N, D)
    u = np.take_along_axis(elements, order, 0)
    count, dim = elements.shape
    figure, panels = plt.subplots(1, 4, figsize=(10, 2.9), width_ratios=[5, 5, 2.2, 5])
    bare(*panels)
    for axes in panels:
        axes.set(xlim=(0, dim), ylim=(count, 0))
    _cells(panels[0], elements, np.tile(np.arange(count)[:, None], dim))
    _cells(panels[1], u, order)
    panels[2].barh(np.arange(count) + 0.5, theta, color="0.6")
    for place, weight in enumerate(theta):
        panels[2].text(weight + 0.03, place + 0.5, f"{weight:.1f}", va="center")
    parts = theta[:, None] * u  # (N, D)
    for j, total in enumerate(parts.sum(0)):
        top = 0.0
        for i in range(count):
            panels[3].bar(j + 0.5, parts[i, j], 0.8, top, color=COLOURS[order[i, j]], alpha=0.35, ec="white")
            top += parts[i, j]
        panels[3].text(j + 0.5, total + 0.2, f"{total:.1f}", ha="center")
    panels[0].set(title="four cells", ylabel="cell", xlabel="dimension")
    panels[1].set(title="1. sort each dimension", ylabel="place", xlabel="dimension")
    panels[2].set(title="2. weigh", xlim=(0, 0.95))
    panels[3].set(title="3. sum", xlabel="dimension", ylim=(0, parts.sum(0).max() + 1))
    return figure


def two_levels() -> Figure:
    """Draw AdPool: the token level above, the embedding level below, and the balance that mixes them."""
    figure, axes = canvas((9.6, 3.9), (0, 22), (10.6, 0))
    elements = np.array([[3, 0, 7], [8, 4, 1], [5, 9, 2], [1, 2, 4]])
    order = np.argsort(-elements, axis=0)
    of_cell = np.tile(np.arange(4)[:, None], 3)
    _cells(axes, elements, of_cell, (0.2, 3.6))
    _cells(axes, np.take_along_axis(elements, order, 0), order, (6.6, 0.8))
    _cells(axes, elements, of_cell, (6.6, 6.5))
    for row, weight in enumerate((0.6, 0.3, 0.1, 0.0)):
        axes.barh(1.3 + row, 2.6 * weight + 0.05, 0.6, left=10.0, color=COLOURS[0])
    shares = np.exp(elements) / np.exp(elements).sum(0)
    for (row, column), share in np.ndenumerate(shares):
        axes.barh(7.0 + row, 0.8 * share + 0.03, 0.6, left=10.0 + column, color=COLOURS[1])
    for y, turn, level, name, weights, colour in (
        (2.8, -1, "token level: sort, then weigh rows", "$v_\\mathrm{tok}$", "θ", COLOURS[0]),
        (8.5, 1, "embedding level: weigh each value", "$v_\\mathrm{emb}$", "δ", COLOURS[1]),
    ):
        axes.text(6.6, y - 2.25, level, color=colour)
        axes.text(13.3, y, weights, ha="center", va="center", color=colour, fontsize=12)
        box(axes, (16.1, y), (2.0, 1.0), name, (colour, 0.35))
        for start, end in (
            ((13.8, y), (15.0, y)),
            ((17.2, y), (18.6, 5.6 + 0.7 * turn)),
            ((3.5, 5.6 + 0.4 * turn), (6.3, y)),
        ):
            arrow(axes, start, end)
    box(axes, (20.2, 5.6), (3.0, 1.6), "balance ω gives $v$", (COLOURS[2], 0.35))
    return figure


def over_the_scene(picture: np.ndarray, maps: Mapping[str, np.ndarray]) -> Figure:
    """Lay what each cell counts, in percent, over the picture; the scale is the same for all maps."""
    figure, panels = plt.subplots(1, 1 + len(maps), figsize=(1.7 * (1 + len(maps)), 2.3))
    most = max(float(values.max()) for values in maps.values())
    draw_picture(panels[0], picture, "the scene")
    for axes, (name, values) in zip(panels[1:], maps.items(), strict=True):
        shown = heat_on(axes, picture, values, name, vmin=0, vmax=most)
    figure.colorbar(shown, ax=panels, label="mean weight of the cell (%)", shrink=0.75)
    return figure


def levels(theta: Mapping[int, Sequence[float]], parts: Mapping[str, Sequence[float]]) -> Figure:
    """Draw what AdPool has learned: weights of the places in captions, and how its levels are balanced.

    `theta` has the mean weights by the number of words, and `parts` the token level's part in each set, from
    0 to 1.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.2))
    lines = {f"{count} words": (range(1, count + 1), weights) for count, weights in theta.items()}
    curves(left, lines, x="place", y="mean weight θ", title="token level, captions")
    left.set_ylim(bottom=0)
    left.xaxis.get_major_locator().set_params(integer=True)
    for (name, part), hatch in zip(parts.items(), ("", "//"), strict=True):
        percent = np.full(len(part), 100 / len(part))
        right.hist(part, np.linspace(0, 1, 41), weights=percent, label=name, hatch=hatch, alpha=0.8)
    right.set(xlabel="ω, part of the token level", ylabel="sets (%)", title="balance")
    right.legend()
    return figure


def _cells(axes: Axes, values: np.ndarray, cell: np.ndarray, corner: tuple[float, float] = (0, 0)) -> None:
    """A table of numbers, coloured by the cell that each comes from; its top left is in the corner."""
    for (i, j), value in np.ndenumerate(values):
        x, y = corner[0] + j, corner[1] + i
        axes.add_patch(plt.Rectangle((x, y), 1, 1, fc=COLOURS[cell[i, j]], alpha=0.35, ec="white"))
        axes.text(x + 0.5, y + 0.5, value, ha="center", va="center")
