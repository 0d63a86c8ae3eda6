"""A figure of what runs find: queries on which two systems differ, or which one answers right or wrong."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vsecore.experiments.compare import FOUND, Kind, Systems, largest_changes
from vsecore.experiments.comparison import OURS, PAPERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Pixels = Callable[[int], np.ndarray]
"""Returns a picture of the split, (H, W, 3), by its row."""


def choose(systems: Systems, kind: Kind, count: int = 4, containing: str = "") -> list[int]:
    """Return the rows of the queries that tell most, of those whose caption, or one of them, has some words.

    Of the first two systems: half of the rows where the second gains most on the first, and half where it
    loses most, by the factor between their ranks. Of a single one: half that it answers right, and half that
    it answers worst.
    """
    split, words = systems.split, containing.lower()
    captions = [row for row, caption in enumerate(split.captions) if words in caption.lower()]
    rows = np.array(captions if kind == "captions" else np.unique(split.owner[captions]), dtype=int)
    ranks = [1 + systems.median_ranks(name, kind)[rows] for name in systems.runs]
    best, worst = (count + 1) // 2, count // 2
    if len(ranks) > 1:
        gained, lost = largest_changes(*ranks[:2])
        return [int(row) for row in rows[[*gained[:best], *lost[:worst]]]]
    right, missed = np.flatnonzero(ranks[0] == 1), np.flatnonzero(ranks[0] > 1)
    spread = np.linspace(0, len(right) - 1, min(best, len(right))).astype(int)
    hardest = missed[np.argsort(-ranks[0][missed], kind="stable")]
    return [int(row) for row in rows[[*right[spread], *hardest[:worst]]]]


def figure(systems: Systems, kind: Kind, queries: Sequence[int], pixels: Pixels) -> Any:
    """Draw each query, and below it what the first seed of each system finds first; right ones are marked.

    `queries` are rows of the split; what is returned is a `matplotlib.figure.Figure`.
    """
    from matplotlib.figure import Figure  # takes a second, and only this needs it
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    lines = [(query, name, runs[0]) for query in queries for name, runs in systems.runs.items()]
    split, height = systems.split, 2.1 * max(1, len(lines))
    # Room for the lines above pictures, and above the first of them.
    layout = ConstrainedLayoutEngine(h_pad=0.25, rect=(0, 0, 1, 1 - 0.2 / height))
    drawn = Figure(figsize=(9, height), layout=layout)
    widths = [1] * FOUND if kind == "captions" else [1, FOUND - 1]
    grid = drawn.subplots(max(1, len(lines)), len(widths), squeeze=False, width_ratios=widths)
    for axes in grid.flat:
        axes.set_axis_off()
    for row, (query, name, run) in zip(grid, lines, strict=False):
        rank, found = 1 + int(run.ranks[kind][query]), run.found[kind][query].tolist()
        if kind == "captions":
            title = f"“{split.captions[query]}”\n{name}: its picture is number {rank}"
            row[0].text(0, 1.06, title, fontsize=9, transform=row[0].transAxes).set_in_layout(False)
            for axes, picture in zip(row, found, strict=False):
                _show(axes, pixels(picture), right=picture == split.owner[query])
        else:
            _show(row[0], pixels(query), right=False)
            row[1].set_title(f"{name}: its best caption is number {rank}", loc="left", fontsize=9)
            for place, caption in enumerate(found):
                right = split.owner[caption] == query
                text = textwrap.shorten(f"{'✓' if right else '✗'} {split.captions[caption]}", 90)
                style = {"fontsize": 9, "color": OURS if right else PAPERS}
                row[1].text(0, 0.85 - 0.2 * place, text, transform=row[1].transAxes, **style)
    return drawn


def _show(axes: Axes, picture: np.ndarray, right: bool) -> None:
    """Show a picture, framed and with a tick if it is right."""
    axes.imshow(picture)
    if right:
        height, width = np.shape(picture)[:2]  # of Pillow's pictures too
        axes.plot([0, width, width, 0, 0], [0, 0, height, height, 0], color=OURS, linewidth=4, clip_on=False)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text(0.04, 0.86, "✓", color=OURS, fontsize=14, bbox=box, transform=axes.transAxes)
