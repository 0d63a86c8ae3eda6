"""The drawings of notebook 18: rows that a step reads, pairs that a batch compares, what re-ranking finds."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course.plots import COLOURS, curves, heatmap, shown


@shown("""Which rows of the features' file each of the first steps reads: short marks, spread over the whole
    file in each step, at other places in each.""")
def rows_read(steps: Sequence[np.ndarray], count: int) -> Figure:
    """Show which rows of a file of `count` rows each step reads."""
    figure, axes = plt.subplots(figsize=(7, 2.6))
    for step, rows in enumerate(steps):
        axes.plot(rows, [step] * len(rows), "|", color=COLOURS[0], markersize=9)
    axes.set(xlabel="row of the file", ylabel="step", xlim=(0, count), ylim=(len(steps) - 0.4, -0.6))
    return figure


@shown("""Two squares of pictures against captions. On the left, one batch, all pairs are compared. On the
    right, small batches, only those in squares along the diagonal; everything else is dark.""")
def compared(batch: int, part: int) -> Figure:
    """Show which pairs one batch compares, and which of them small batches do."""
    whole = np.ones((batch, batch))
    parts = np.kron(np.eye(batch // part), np.ones((part, part)))
    figure, panels = plt.subplots(1, 2, figsize=(7.4, 3.2))
    titles = f"one batch of {batch}", f"{batch // part} batches of {part}"
    for axes, pairs, title in zip(panels, (whole, parts), titles, strict=True):
        image = heatmap(axes, pairs + np.eye(batch), vmin=0, vmax=2, aspect="equal")
        axes.set(title=title, xlabel="caption", ylabel="picture")
    meanings = ("never compared", "negatives", "positives")
    keys = [Patch(color=image.cmap(value / 2), label=name) for value, name in enumerate(meanings)]
    figure.legend(handles=keys, loc="outside lower center", ncols=3)
    return figure


@shown("""How many captions find their picture first against the multiply-adds for a query, on a logarithmic
    axis. The curve rises steeply from one candidate to ten and then flattens; all pictures cost many times as
    much.""")
def reranked(costs: Mapping[int, float], found: Mapping[int, float]) -> Figure:
    """Show the share of queries that find their picture first against what a query costs, by candidates."""
    figure, axes = plt.subplots(figsize=(6.4, 3.3))
    line = {"": (list(costs.values()), list(found.values()))}
    curves(axes, line, x="multiply-adds for a query", y="picture found first (%)")
    for k in found:
        axes.annotate(f"k = {k}", (costs[k], found[k]), (4, -12), textcoords="offset points", fontsize=9)
    axes.set(xscale="log", ylim=(0, None))
    return figure
