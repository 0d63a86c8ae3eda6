"""What notebooks 06 and 07 draw: words and boxes, pools, what a pair costs, who stands where."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import leaky_relu, normalize

from course import dots
from course.attention import Seen, places_of
from course.lesson import Lesson
from course.plots import COLOURS, MARKERS, bare, curves, heatmap, name_rows, shown
from course.sketch import arrow, rectangle
from vsecore import scenes
from vsecore.data.splits import Dataset, Split
from vsecore.data.words import Tokenizer
from vsecore.experiments import Studied
from vsecore.scenes.grammar import NOUN_WORDS
from vsecore.scenes.truth import NOUNS

KINDS = {word: NOUNS[n] for n, names in NOUN_WORDS.items() if n in NOUNS for pair in names for word in pair}
"""The kinds of things that a word may name."""


class Named(NamedTuple):
    """Words that name a thing of their picture: caption and place, (M,), and the thing's boxes, (M, N)."""

    caption: Tensor
    word: Tensor
    boxes: Tensor


def named(lesson: Lesson, dataset: Dataset, split: Split, tokenizer: Tokenizer) -> Named:
    """Find them in a part of the development split; there are none among photographs."""
    count = split.pictures.shape[1]
    found: list[tuple[int, int, np.ndarray]] = []
    made = scenes.pictures("dev", len(dataset.dev)) if lesson.data == "scenes" else []
    for row, (caption, owner) in enumerate(zip(split.captions, split.owner, strict=True)):
        things = made[owner].scene.things if made else ()  # their boxes follow the whole picture's
        for word, places in tokenizer.words_of(caption):
            hits = [number for number, thing in enumerate(things, 1) if thing.kind in KINDS.get(word, ())]
            if hits:
                found.append((row, places[0], np.isin(np.arange(count), hits)))
    rows, first, boxes = zip(*found, strict=True) if found else ((), (), ())
    return Named(
        torch.tensor(rows, dtype=torch.long),
        torch.tensor(first, dtype=torch.long),
        torch.tensor(np.array(boxes, dtype=bool)).view(-1, count),
    )


def boxes_of(lesson: Lesson, dataset: Dataset, row: int, count: int) -> list[str]:
    """Name a development picture's boxes: the whole picture, then its things."""
    if lesson.data != "scenes":
        return ["all", *map(str, range(1, count))]
    things = scenes.pictures("dev", len(dataset.dev))[row].scene.things
    return ["all", *(thing.kind for thing in things)]


@shown("""Three tables of a caption's words by a picture's boxes, in colours: the affinities, the same after
    clipping and dividing each column by its length, and the weights after the softmax, where a few boxes of
    each row have most of the weight.""")
def tables(affinity: Tensor, places: Mapping[str, int], boxes: Sequence[str]) -> Figure:
    """Draw some words of the affinities, (L, N), and the two steps that make SCAN's weights of them."""
    divided = normalize(leaky_relu(affinity, 0.1), dim=0)  # (L, N)
    steps = {"1. affinities": affinity, "2. clipped, divided": divided}
    steps["3. softmax"] = (9 * divided).softmax(1)
    figure, panels = plt.subplots(3, 1, figsize=(5.2, 7.4), sharex=True)
    for axes, (title, table) in zip(panels, steps.items(), strict=True):
        heatmap(axes, table[list(places.values())].numpy(), names=(list(places), boxes), label="")
        axes.set_title(title)
    return figure


@shown("""How many times as much as one vector each three other ways cost, on a logarithmic axis: by our
    count, by a clock here, and by DivE's count and clock. By each count, SCAN lies far to the right of sets
    of four.""")
def costs(series: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw how many times as much as the first way each way costs; a colour and a marker for each series."""
    ways = list(next(iter(series.values())))
    figure, axes = plt.subplots(figsize=(6.2, 2.8))
    for style, (label, values) in enumerate(series.items()):
        at = [ways.index(way) + 0.16 * (style - 1.5) for way in values]
        axes.plot(list(values.values()), at, MARKERS[style], color=COLOURS[style], label=label)
    name_rows(axes, (way.replace(", ", ",\n") for way in ways))
    axes.set(xscale="log", xlabel="times as much as one vector each")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    figure.legend(loc="outside upper center", ncols=len(series))
    return figure


@shown("""For left or right and for other relations: how often each of six systems prefers the right picture
    of two. All means lie between 48 and 53 %, inside a grey band around one half that shows what guessing
    gives.""")
def relations(systems: Mapping[str, Studied], reach: Mapping[str, float]) -> Figure:
    """Draw how often each system prefers the correct picture of two, with intervals over seeds.

    `reach` says for each measure how far from 50 the pairs alone may bring a system that guesses.
    """
    figure, panels = plt.subplots(len(reach), 1, figsize=(5.8, 5), sharex=True)
    titles = {"pairs_left_right": "left or right", "pairs_other": "other relations"}
    for axes, (key, band) in zip(panels, reach.items(), strict=True):
        axes.axvspan(50 - band, 50 + band, color="0.9", label="what guessing gives, 95 %")
        dots.rows(axes, {name: arm.results[key].values() for name, arm in systems.items()})
        axes.set_title(titles[key])
    axes.set_xlabel("correct picture of two (%)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure


@shown("""Two drawings. Above, node pooling: four boxes are collected into two pools, three words into two
    pools, and each pool of the boxes is compared with the pool of the words that has the same number. Below,
    node cross-attention: every box is joined with every word by a line, some lines strong and most of them
    weak.""")
def two_ways() -> Figure:
    """Draw node pooling and node cross-attention, with four nodes of a picture and three of a caption."""
    figure, panels = plt.subplots(2, 1, figsize=(5.4, 5.2))
    sides = (("boxes", 0, (0.0, 0.33, 0.67, 1.0)), ("words", 3, (0.1, 0.5, 0.9)))
    titles = {
        "node pooling": "pools, compared one by one",
        "node cross-attention": "every node looks at all nodes of the other side",
    }
    for axes, (title, note) in zip(panels, titles.items(), strict=True):
        for (name, across, places), colour, marker in zip(sides, COLOURS, MARKERS[1::-1], strict=False):
            axes.plot([across] * len(places), places, marker, color=colour, markersize=9)
            axes.text(across, 1.12, name, ha="center", color=colour)
        axes.text(1.5, -0.19, note, ha="center")
        axes.set(title=title, xlim=(-0.5, 3.5), ylim=(-0.2, 1.25))
        axes.axis("off")
    for pool, up in enumerate((0.25, 0.75)):
        for (_, start, places), across, colour in zip(sides, (1, 2), COLOURS, strict=False):
            for place, other in enumerate(places):
                strong = 0.8 if place % 2 == pool else 0.15
                panels[0].plot([start, across], [other, up], color=colour, alpha=strong, linewidth=1)
            panels[0].plot(across, up, "D", color=colour, markersize=10)
        arrow(panels[0], (1.1, up), (1.9, up), COLOURS[2], "<->")
    (_, _, boxes), (_, _, words) = sides
    for left in boxes:
        for right in words:
            strong = 0.8 if abs(left - right) < 0.2 else 0.15
            panels[1].plot([0, 3], [left, right], color="0.3", alpha=strong, linewidth=1)
    return figure


@shown("""Eight times the same picture in grey, once for each pool, with the pool's weight of each box in
    orange. Below each stand the two words of the caption with the largest weights, and their weights.""")
def pools(seen: Seen, on_boxes: Tensor, on_words: Tensor, words: Sequence[str], caption: str) -> Figure:
    """Draw on which boxes each pool looks, (P, N), and under it the words that it reads most, (P, L)."""
    figure, grid = plt.subplots(2, len(on_boxes) // 2, figsize=(6.2, 4.6))
    places = places_of(seen, on_boxes.shape[1])
    for number, axes in enumerate(grid.flat):
        bare(axes)
        axes.imshow(seen.pixels.mean(-1), extent=(0, 1, 1, 0), cmap="gray", alpha=0.55)
        weights = on_boxes[number]
        if seen.boxes is None:  # of so many cells, each has little
            weights = weights / weights.max()
        for box, weight in zip(places, weights.tolist(), strict=False):
            axes.add_patch(rectangle(box, facecolor=COLOURS[1], alpha=0.75 * weight, linewidth=0))
        best = on_words[number].argsort(descending=True)[:2].tolist()
        read = (f"{words[place]} {100 * on_words[number, place]:.0f} %" for place in best)
        axes.set(title=f"pool {number + 1}", xlabel="\n".join(read))
    figure.suptitle(caption, fontsize=11)
    return figure


@shown("""Two tables of eight by eight, the pool that reads a word in the rows and the pool that looks at the
    picture in the columns. A colour says how much of its weight the second puts on the thing that the first
    reads of. In both, the diagonal is somewhat brighter than the rest.""")
def meetings(tables: Mapping[str, Tensor]) -> Figure:
    """Draw tables of the pool that reads by the pool that looks, (P, P), in percent, on one scale."""
    figure, panels = plt.subplots(1, len(tables), figsize=(6.2, 2.9), sharey=True)
    top = max(float(table.max()) for table in tables.values())
    for axes, (title, table) in zip(panels, tables.items(), strict=True):
        names = (range(1, len(table) + 1),) * 2
        image = heatmap(axes, table.numpy(), names=names, vmin=0, vmax=top, cmap="viridis", aspect="equal")
        axes.set(title=title, xlabel="the pool that looks")
    panels[0].set_ylabel("the pool that reads")
    figure.colorbar(image, ax=panels, label="weight on the thing, %", shrink=0.8)
    return figure


@shown("""The largest share of attention against the number of words: the most that is possible falls from
    about 60 to 30 per cent, and the trained model lies just above an even share. With cosines times nine,
    nearly all attention could go to one word.""")
def shares(sizes: Sequence[int], found: Sequence[float]) -> Figure:
    """Draw the largest share of a softmax over cosines (%) by the number of words: bounds and a model."""
    n, e = np.array(sizes), np.e
    lines = {
        "cosines times 9, at most": 100 / (1 + (n - 1) * e**-18),
        "cosines, at most": 100 * e / (e + (n - 1) / e),
        "trained model": np.array(found),
        "an even share": 100 / n,
    }
    figure, axes = plt.subplots(figsize=(6.2, 3.6))
    drawn = {name: (sizes, line.tolist()) for name, line in lines.items()}
    curves(axes, drawn, x="words of the caption, marks included", y="largest share (%)")
    axes.legend(loc="center right", bbox_to_anchor=(1, 0.74))
    return figure
