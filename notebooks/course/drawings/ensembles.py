"""The drawings of notebook 12: how the members of an ensemble vote, and what pairs of systems gain."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from course.plots import COLOURS, MARKERS


def votes(names: Sequence[str], heights: Mapping[str, Sequence[float]]) -> Figure:
    """Draw each system's similarities of some pictures with one caption as bars; the highest is marked.

    The first picture is the caption's own, and striped.
    """
    figure, panels = plt.subplots(1, len(heights), figsize=(9.2, 2.9), sharey=True)
    top = max(max(values) for values in heights.values())
    for axes, (system, values) in zip(panels, heights.items(), strict=True):
        bars = axes.bar(range(len(names)), values, color="0.75")
        bars[0].set(color=COLOURS[0], hatch="//", edgecolor="white")
        first = max(range(len(names)), key=values.__getitem__)
        axes.annotate("first", (first, values[first] + 0.02), ha="center", fontsize=9)
        axes.set(title=system, ylim=(0, top + 0.15))
        axes.set_xticks(range(len(names)), names)
        axes.grid(axis="x", visible=False)
    panels[0].set_ylabel("similarity")
    return figure


def gains(pairs: Sequence[tuple[str, float, float]]) -> Figure:
    """Draw what pairs of systems gain, each with its kind, the correlation of its mistakes and its gain."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    kinds = dict.fromkeys(kind for kind, _, _ in pairs)
    for kind, colour, marker in zip(kinds, COLOURS, MARKERS, strict=False):
        points = [point for name, *point in pairs if name == kind]
        axes.plot(*zip(*points, strict=True), marker, color=colour, label=kind, markersize=8)
    axes.set(xlabel="correlation of the two systems' mistakes, ρ", ylabel="gain in rsum")
    axes.legend(loc="lower left")
    return figure
