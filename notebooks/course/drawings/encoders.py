"""The figures of notebook 02: heat maps over a picture, its elements, and ways to read a sentence."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from course import plots
from course.sketch import arrow, rectangle

Box = Sequence[float]  # left, top, right, bottom, in the cells of a grid of seven by seven


def words_on(pixels: np.ndarray, heats: Mapping[str, np.ndarray]) -> None:
    """Draw a picture, and beside it how strongly each cell, (7, 7), speaks for each word."""
    figure, panels = plt.subplots(1, 1 + len(heats), figsize=(1.9 * (1 + len(heats)), 2.3))
    plots.draw_picture(panels[0], pixels, "the picture")
    for axes, (word, heat) in zip(panels[1:], heats.items(), strict=True):
        plots.heat_on(axes, pixels, heat, word)
    alt = (
        f"A picture, and a heat map over it for each of the words {', '.join(heats)}. The cells that speak "
        "most strongly for a word, in yellow, lie on the thing that it names, or that has the colour."
    )
    plots.show(figure, alt)


@plots.shown("""The same picture with its elements drawn over it: cells as thin lines of a grid of seven by
    seven, regions as a box around each thing, patches as squares that are cut apart.""")
def elements(pixels: np.ndarray, kinds: Sequence[str], boxes: Sequence[Box]) -> Figure:
    """Draw the elements of each kind over a picture; `boxes` are those of the regions."""
    figure, panels = plt.subplots(1, len(kinds), figsize=(3 * len(kinds), 3.2), squeeze=False)
    for axes, kind in zip(panels[0], kinds, strict=True):
        plots.bare(axes)
        axes.imshow(pixels, extent=(0, 7, 7, 0), interpolation="lanczos")
        axes.set_title(kind)
        if kind == "regions":
            for number, box in enumerate(boxes):
                colour = plots.COLOURS[number % len(plots.COLOURS)]
                axes.add_patch(rectangle(box, fill=False, ec=colour, linewidth=2.5))
            continue
        cut = kind == "patches"  # patches are cut apart, cells are not
        for draw in (axes.hlines, axes.vlines):
            draw(range(8), 0, 7, color="white" if cut else "black", linewidth=5 if cut else 0.8)
    return figure


@plots.shown("""Heat maps over the picture, of how far one framed element moves when a square is painted over.
    The cell and the region move most for squares near them and little or not at all for far ones; the patch
    moves most for its own square, and a little for all.""")
def moved(pixels: np.ndarray, heats: Mapping[str, np.ndarray], frames: Mapping[str, Box]) -> Figure:
    """Draw how far the framed element of each kind moves when a square, one of (7, 7), is painted over."""
    figure, panels = plt.subplots(1, len(heats), figsize=(3 * len(heats), 3.4), squeeze=False)
    for axes, (kind, heat) in zip(panels[0], heats.items(), strict=True):
        seen = np.ma.masked_less(heat, 1e-3)
        image = plots.heat_on(axes, pixels, seen, f"one of the {kind}", norm=LogNorm(1e-3, 1))
        axes.add_patch(rectangle(frames[kind], fill=False, ec=plots.COLOURS[1], linewidth=2.5))
    label = "the vector moves (share of its length)"
    figure.colorbar(image, ax=list(panels[0]), label=label, shrink=0.85)
    return figure


@plots.shown("""Accuracy of linear probes with intervals, a row each for cells, regions, patches, the place
    alone, and the place with the thing here. The kind of the thing here is read nearly always from all three;
    that of the farthest thing hardly more often than from the place, and no more often than from place
    and thing.""")
def probes(found: Mapping[tuple[str, str], plots.Span], kinds: Sequence[str], asked: Sequence[str]) -> Figure:
    """Draw the accuracy of each probe with its interval: a row for each kind, a colour for each question."""
    figure, axes = plt.subplots(figsize=(6.2, 2.7))
    for style, question in enumerate(asked):
        shift = 0.2 * (style - (len(asked) - 1) / 2)
        rows = {kind: found[kind, question] for kind in kinds}
        plots.spans(axes, rows, style=style, shift=shift, label=question)
    axes.set(xlim=(0, 100), xlabel="accuracy of a linear probe (%)")
    figure.legend(loc="outside upper left", ncols=4)
    return figure


@plots.shown("""Three drawings of a sentence of five words below and a vector for each above. In the table an
    arrow leads straight up from each word; in the BiGRU messages also pass between neighbours, in both
    directions; with attention arrows lead from every word to every vector.""")
def readers() -> Figure:
    """Draw what the vector of a word depends on: in a table, in a bidirectional GRU, in a Transformer."""
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.9))
    Way = tuple[tuple[float, float], tuple[float, float], bool]
    up: list[Way] = [((i, 0), (i, 2), i == 2) for i in range(5)]  # where from, where to, whether it counts
    along: list[Way] = [((i, 0.85), (i + 1, 0.85), i < 2) for i in range(4)]  # forwards, and then backwards
    along += [((i + 1, 1.25), (i, 1.25), i >= 2) for i in range(4)]
    read: list[Way] = [((i, 0), (i, 0.85 if i < 2 else 1.25), True) for i in (0, 1, 3, 4)]  # the others
    across: list[Way] = [((i, 0), (j, 2), j == 2) for i in range(5) for j in range(5) if i != j]
    ways = {"a table of word vectors": up, "BiGRU": up + read + along, "attention (notebook 05)": up + across}
    for axes, (title, arrows) in zip(panels, ways.items(), strict=True):
        for start, end, counts in sorted(arrows, key=lambda one: one[2]):
            colour, width = (plots.COLOURS[0], 1.8) if counts else ("0.82", 0.9)
            arrow(axes, start, end, colour, shrinkA=6, shrinkB=6, linewidth=width)
        for i, word in enumerate(("a", "girl", "holds", "an", "umbrella")):
            axes.plot(i, 2, "o", color=plots.COLOURS[1] if i == 2 else "0.6", markersize=9)
            axes.plot(i, 0, "o", color="0.35", markersize=6)
            axes.text(i, -0.28, word, ha="center", va="top", fontsize=9)
        axes.set(xlim=(-0.6, 4.6), ylim=(-0.75, 2.35), title=title)
        axes.axis("off")
    return figure
