"""The drawings of notebook 11: which negatives count, four spaces on a circle, K through a training."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.plots import COLOURS, Lines, bands, curves
from course.sketch import circle, on_circle

STAGES = {
    "early: many negatives count": (62, (112, 98, 81, 74, 52, 43, 127, 136, 146, 155), 6),
    "late: the hardest few count": (83, (112, 62, 20, -25, 160, 195, 222, 250, 280, 310), 2),
}
"""The angles of a caption and of the negatives, where the picture is at 90 degrees, and how many count."""

TURNS = np.arange(40) * 2 * np.pi / 40
CLUMP = 0.06 * np.random.default_rng(3).normal(size=40)
SPACES = {
    "collapsed, apart": (CLUMP, np.pi / 2 + CLUMP[::-1]),
    "uniform": (TURNS, np.random.default_rng(2).permutation(TURNS)),
    "aligned": (0.8 + 4 * CLUMP, 0.8 + 4 * CLUMP + 0.03),
    "aligned and uniform": (TURNS, TURNS + 0.06),
}
"""The angles of forty pictures and of their captions, in radians."""


def which_count() -> Figure:
    """Draw a picture, its caption and ten negatives on a circle, early and late in training."""
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.9))
    for axes, (title, (own, others, kept)) in zip(panels, STAGES.items(), strict=True):
        circle(axes, title, (-1.6, 1.6), (-1.15, 1.35))
        nearest = sorted(others, key=lambda turn: abs(turn - 90))
        for rank, turn in enumerate(nearest):
            x, y = on_circle(np.radians(turn))
            face, label = (COLOURS[1], "counts") if rank < kept else ("white", "does not")
            if rank < kept:
                axes.plot([0, x], [0, y], color=COLOURS[1], linewidth=0.9)
            name = f"a negative that {label}" if rank in (0, kept) else None
            axes.plot(x, y, "s", color=COLOURS[1], mfc=face, ms=7, label=name)
        for turn, name, style, colour, side in (
            (90, "picture", "o", COLOURS[0], "right"),
            (own, "its caption", "^", COLOURS[2], "left"),
        ):
            x, y = on_circle(np.radians(turn))
            axes.plot([0, x], [0, y], style + "-", color=colour, markevery=[1], ms=10)
            axes.text(1.13 * x, 1.13 * y + 0.05, name, color=colour, ha=side)
        axes.text(0, -0.45, f"K = {kept}\nof {len(others)} negatives", ha="center")
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def spaces(words: Mapping[str, str]) -> Figure:
    """Draw the pictures and captions of `SPACES` on circles, each pair joined by a line, with words below."""
    figure, panels = plt.subplots(1, len(words), figsize=(2.4 * len(words), 3.2))
    for axes, (name, below) in zip(panels, words.items(), strict=True):
        circle(axes, name, (-1.2, 1.2), (-2.1, 1.1))
        v, t = map(on_circle, SPACES[name])  # (2, B)
        axes.plot(*np.stack([v, 0.88 * t], 1), color="0.8", linewidth=0.7, zorder=0)
        axes.plot(*v, "o", color=COLOURS[0], markersize=5, label="pictures")
        axes.plot(*0.88 * t, "^", color=COLOURS[1], markersize=4, label="captions")
        axes.text(0, -1.25, below, ha="center", va="top", fontsize=9)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def count(axes: Axes, lines: Lines, x: str, most: int) -> None:
    """Draw how many negatives count, on a logarithmic axis from the hardest alone to all of the batch."""
    curves(axes, lines, x=x, y="negatives that count")
    ticks = [one for one in (1, 4, 16, 64) if one < most] + [most]
    axes.set(yscale="log", ylim=(0.8, 1.7 * most), yticks=ticks, yticklabels=ticks)
    axes.minorticks_off()


def whole_training(kept: Lines, reached: Mapping[str, np.ndarray], most: int) -> Figure:
    """Draw K by the epoch, and rsum by the epoch, of (seeds, epochs); `most` negatives are in a batch."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.7))
    count(left, kept, "epoch", most)
    left.legend(loc="center right", fontsize=9)
    bands(right, reached, x="epoch", y="rsum on 500 development pictures")
    right.set_ylim(0, None)
    right.legend(loc="lower right", title="shaded: lowest to highest seed")
    return figure
