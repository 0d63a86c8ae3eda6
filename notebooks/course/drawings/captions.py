"""The figures of notebook 01: captions beside pictures, facts and who says them, and pairs that are true."""

import html
import textwrap
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from course.facts import Fact, says
from course.plots import COLOURS, Span, bare, curves, draw_picture, heatmap, name_rows, show, shown, spans
from course.sketch import canvas
from vsecore import scenes
from vsecore.scenes import Picture


@shown("""Pictures, one below the other, each with its captions beside it. The captions of a picture differ in
    what they name, in length, and in how exact they are.""")
def beside(pictures: Sequence[np.ndarray], words: Sequence[Sequence[str]], titles: Sequence[str]) -> Figure:
    """Show pictures below each other, each with its captions beside it."""
    figure, grid = plt.subplots(len(pictures), 2, figsize=(8.2, 4.6), width_ratios=[1, 4.4])
    for (left, right), pixels, said, title in zip(grid, pictures, words, titles, strict=True):
        draw_picture(left, pixels)
        left.set_title(title, fontsize=9, color="0.4")
        lines = [textwrap.fill(f"{n}  {one}", 82, subsequent_indent="    ") for n, one in enumerate(said, 1)]
        right.text(0, 0.5, "\n".join(lines), va="center", linespacing=1.45, transform=right.transAxes)
        bare(right)
    return figure


@shown("""A picture, its five captions, and a chart of its facts against the captions: a large dot where a
    caption says a fact. No caption says all, and some facts, in orange, have no large dot at all.""")
def who_says_what(picture: Picture) -> Figure:
    """Show a picture, its captions, and a chart of its facts against the captions."""
    found, said = says(picture)
    figure, panels = plt.subplot_mosaic(
        "pf;cc", figsize=(8.2, 5.4), height_ratios=[2.6, 1], width_ratios=[1, 1.15]
    )
    draw_picture(panels["p"], scenes.draw(picture.scene, size=224))
    lines = [f"{number}  {caption.text}" for number, caption in enumerate(picture.captions, 1)]
    panels["c"].text(0.02, 1, "\n".join(lines), va="top", linespacing=1.45)
    bare(panels["c"])
    axes = panels["f"]
    dots = (said, 60, COLOURS[0], "says it"), (~said, 8, "0.75", "leaves it out")
    for which, size, colour, label in dots:
        fact, caption = np.nonzero(which)
        axes.scatter(caption, fact, s=size, color=colour, label=label, zorder=3)
    name_rows(axes, (words for _, words, _ in found), fontsize=9)
    for tick, heard in zip(axes.get_yticklabels(), (said.sum(1) > 0).tolist(), strict=True):
        tick.set_color("0.1" if heard else COLOURS[1])
    axes.set_xticks(range(5), list("12345"))
    axes.set(xlabel="caption", xlim=(-0.5, 4.5))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncol=2)
    return figure


def page(picture: Picture) -> str:
    """Return the captions of a picture as HTML, with its facts and who says them folded below."""
    lines = "".join(f"<li>{html.escape(caption.text)}</li>" for caption in picture.captions)
    found, said = says(picture)
    rows = "".join(_row(fact, by) for fact, by in zip(found, said, strict=True))
    silent = int((~said.any(1)).sum())
    heads = "".join(f"<th scope='col'>{number}</th>" for number in range(1, len(picture.captions) + 1))
    return (
        f"<ol style='margin: 0; padding-left: 1.4em'>{lines}</ol><details style='margin-top: .8em'>"
        f"<summary style='display: list-item; cursor: pointer'>{len(found)} facts, and who says them; "
        f"{silent} are said by nobody</summary>"
        "<table style='margin: .4em 0; line-height: 1.35'>"
        f"<tr><th scope='col' style='text-align: left'>said in caption</th>{heads}</tr>{rows}"
        "</table></details>"
    )


def _row(fact: Fact, by: np.ndarray) -> str:
    dots = ("<b>●</b>" if one else "<span style='opacity: .3'>·</span>" for one in by)
    cells = "".join(f"<td style='padding: 0 .5em; text-align: center'>{dot}</td>" for dot in dots)
    return f"<tr><td style='text-align: left'>{fact[1]}</td>{cells}</tr>"


@shown("""A table in colours: the share of the facts of each kind that each of the five annotators says, and
    that any of them says. Together the five name nearly every thing, every place and count, but only a part
    of sizes, relations and facings.""")
def shares(table: np.ndarray, kinds: Sequence[str], annotators: Sequence[str]) -> Figure:
    """Show which percentage of the facts of each kind each annotator says; the last row is all together."""
    figure, axes = plt.subplots(figsize=(8, 3.6))
    names = ([*annotators, "any of the five"], kinds)
    heatmap(axes, table, names=names, label="said (%)", written="{:.0f}".format)
    axes.set_xlabel("kind of fact")
    axes.axhline(len(table) - 1.5, color="white", linewidth=4)
    return figure


@shown("""Three beaches with umbrellas on the left, six captions on the right. Solid lines join each caption
    to the picture that it was written for; dashed lines join captions to other pictures of which they are
    true as well: umbrella on the beach is true of all three.""")
def true_pairs(pictures: Sequence[Picture], picked: Sequence[tuple[int, int]]) -> Figure:
    """Show pictures, some of their captions as (picture, caption), and a line for each pair that is true."""
    figure, axes = canvas((8.4, 5.2), (0, 10.4), (len(picked) - 0.05, -0.05))
    axes.set_aspect("equal")
    for level, picture in enumerate(pictures):
        place = (0, 1.9, 2 * level + 1.9, 2 * level)
        axes.imshow(scenes.draw(picture.scene, size=224), extent=place, interpolation="lanczos")
    for height, (owner, number) in enumerate(picked):
        caption = pictures[owner].captions[number]
        axes.text(5.1, height + 0.45, caption.text, va="center")
        for level, picture in enumerate(pictures):
            if scenes.holds(caption.form, picture.scene):
                colour, dash = (COLOURS[0], "-") if level == owner else (COLOURS[1], "--")
                axes.plot([2, 5], [2 * level + 0.95, height + 0.45], color=colour, linestyle=dash)
    axes.plot([], [], color=COLOURS[0], label="written for it")
    axes.plot([], [], color=COLOURS[1], linestyle="--", label="true of it, and called false")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncol=2)
    return figure


@shown("""Pictures as rows, captions as columns. A blue staircase runs down the diagonal: each picture with
    its five captions. Around it lie orange cells: true pairs of a caption with a foreign picture.""")
def relevance(truth: np.ndarray, own: np.ndarray) -> Figure:
    """Show which caption is true of which picture, (Nc, Ni) each, with the own pairs in another colour."""
    figure, axes = plt.subplots(figsize=(8.4, 2.6))
    seen = (truth.astype(int) + own).T  # (Ni, Nc)   0 false, 1 true, 2 own
    heatmap(axes, seen, cmap=ListedColormap(["#f2f2f0", COLOURS[1], COLOURS[0]]))
    axes.set(xlabel="captions, five a picture", ylabel="pictures")
    for colour, name in ((COLOURS[0], "own"), (COLOURS[1], "true, and called false")):
        axes.scatter([], [], marker="s", color=colour, label=name)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncol=2)
    return figure


def called_false(shares: Mapping[str, Span]) -> None:
    """Show a share for each annotator, in percent, with the ends of its interval."""
    figure, axes = plt.subplots(figsize=(6.4, 2.5))
    spans(axes, shares, x="true pairs called false (%)")
    said = "; ".join(f"{name}: {share:.0f} %" for name, (share, *_) in shares.items())
    show(
        figure,
        alt="A dot with its interval for each annotator: the share of the true pairs of its captions "
        f"that the protocol calls false. {said}.",
    )


@shown("""The share of captions with at least one false negative in their batch, against the size of the
    batch: it grows from nearly nothing to a third and more. Crosses, counted in drawn batches, lie on the
    line of all.""")
def by_batch(sizes: Sequence[int], lines: Mapping[str, Sequence[float]], counted: Sequence[float]) -> Figure:
    """Show the share of captions that meet a false negative, by the size of the batch, and counted ones."""
    figure, axes = plt.subplots(figsize=(6, 3.3))
    named = {name: (sizes, line) for name, line in lines.items()}
    curves(axes, named, x="pictures in a batch, B", y="captions that meet\na false negative (%)")
    axes.scatter(sizes, counted, s=46, color="k", marker="x", zorder=3, label="all, counted in drawn batches")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.legend(fontsize=8.5)
    return figure
