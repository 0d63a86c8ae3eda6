"""The figures of notebook 15: what a shortcut costs, word by word and step by step."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from course.plots import COLOURS, MARKERS, Lines, curves, name_rows


def by_word(auc: Mapping[str, np.ndarray], words: Sequence[str], ordered_by: str) -> Figure:
    """Draw a row for each word, with the AUC of its probe on the vectors of each system, in percent.

    The rows are ordered by one of the systems.
    """
    figure, axes = plt.subplots(figsize=(7.2, 0.19 * len(words) + 1))
    order = np.argsort(-auc[ordered_by])
    for style, (name, values) in enumerate(auc.items()):
        axes.plot(values[order], range(len(words)), MARKERS[style], color=COLOURS[style], label=name)
    name_rows(axes, (words[row] for row in order), fontsize=8)
    axes.axvline(50, color="0.5", linestyle=":")
    axes.set(xlabel="AUC of the probe (%); dotted: chance", xlim=(48, 101))
    axes.legend(loc="lower left", bbox_to_anchor=(0.06, 0.0))
    return figure


def side_by_side(
    panels: Mapping[str, Lines], x: Sequence[str], y: Sequence[str], top: Sequence[float | None]
) -> Figure:
    """Draw curves in panels beside each other, with the labels of their axes, and where each y axis ends."""
    figure, grid = plt.subplots(1, len(panels), figsize=(9.2, 3.2))
    for axes, (title, lines), across, up, end in zip(grid, panels.items(), x, y, top, strict=True):
        curves(axes, lines, x=across, y=up, title=title)
        axes.set_ylim(0, end)
    return figure
