"""The drawings of notebook 08: harder negatives, gaps, reach, true negatives, near duplicates."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from course.plots import COLOURS, DASHES, MARKERS, bare, curves, draw_picture, picture_row, shown
from course.sketch import arrow, canvas

KINDS = ("its own", "online", "offline, 1st", "offline, 2nd", "offline, 3rd", "offline, 4th")
LEADS = ("a batch", "all that are false", "all")


def clearest(scores: Tensor, in_batch: Tensor, mined: Tensor, true: Tensor) -> tuple[int, list[int]]:
    """Find an anchor whose mined negatives are far harder than its batch's, and none of them true.

    Given are the scores of n anchors with all items, (n, N), the batch's items (B,), the hardest items (n or
    more, at least 3), and which items are true of which anchor, its own among them, (n, N). The result is the
    anchor, and the rows of its online and its three offline negatives.
    """
    online = in_batch[scores[:, in_batch].argmax(1, keepdim=True)]  # (n, 1)
    four = torch.cat([online, mined[: len(scores), :3]], 1)  # (n, 4)
    found = scores.gather(1, four)
    lead = found[:, 1:].amin(1) - found[:, 0]
    lead[true.gather(1, four).any(1)] = -torch.inf
    anchor = int(lead.argmax())
    return anchor, four[anchor].tolist()


@shown("""Above, a caption with five pictures: its own, the hardest of a batch, and the three hardest of the
    whole training set, of which the caption is not true. The last three differ from its own in a detail.
    Below, a picture with five captions of the same kinds.""")
def harder(caption: str, five: Sequence[np.ndarray], picture: np.ndarray, captions: Sequence[str]) -> Figure:
    """Show a caption with five pictures and a picture with five captions: its own and four negatives."""
    figure, panels = plt.subplot_mosaic([list("abcde"), list("fgggg")], figsize=(8.8, 4.2))
    for name, pixels, kind in zip("abcde", five, KINDS, strict=False):
        draw_picture(panels[name], pixels)
        panels[name].set_xlabel(kind, fontsize=9)
    panels["a"].set_title(textwrap.fill(caption, 90), fontsize=10)
    draw_picture(panels["f"], picture)
    bare(panels["g"])
    for place, (said, kind) in enumerate(zip(captions, KINDS, strict=False)):
        panels["g"].text(0.0, 0.9 - 0.2 * place, kind, fontsize=9, color="0.4")
        panels["g"].text(0.16, 0.9 - 0.2 * place, said, fontsize=9)
    return figure


@shown("""A row of circles, the negatives from the hardest to the easiest. Five are filled: a batch has drawn
    them. They cut the row into six gaps. The first filled circle is the hardest of the batch.""")
def gaps(listed: int = 29, drawn: Sequence[int] = (5, 11, 14, 20, 26)) -> Figure:
    """Show a sorted list of negatives, cut into gaps by those that a batch has drawn."""
    figure, axes = canvas((6.4, 1.7), (-0.5, listed + 1.5), (-1.1, 0.8))
    for number, (low, high) in enumerate(pairwise([0, *drawn, listed + 1]), 1):
        axes.plot([low + 0.5, high - 0.5], [0.35, 0.35], color="0.6")
        axes.text((low + high) / 2, 0.5, f"gap {number}", ha="center", fontsize=8, color="0.3")
    for place in range(1, listed + 1):
        face = COLOURS[1] if place in drawn else "white"
        axes.plot(place, 0, "o", color=COLOURS[1], markerfacecolor=face, markersize=7)
    labels = {1: "place 1", drawn[0]: "the hardest\nof the batch", listed: f"place N = {listed}"}
    for place, label in labels.items():
        axes.text(place, -0.62, label, ha="center", va="top", fontsize=8)
        arrow(axes, (place, -0.6), (place, -0.15))
    return figure


@shown("""The share of batches whose hardest negative is among the top k of the whole training set, against k
    on a logarithmic axis. For captions and for pictures of our training set the points of the model lie on
    the exact lines. The line of COCO's captions lies far below: a few percent at k = 100.""")
def reach(
    chance: Callable[[int, int, int], float],
    among: Mapping[str, int],
    drawn: int,
    found: Mapping[str, np.ndarray],
) -> Figure:
    """Show how many batches reach the top k: the exact chance as lines, the places found as points."""
    figure, axes = plt.subplots(figsize=(6.2, 3.7))
    tops = np.unique(np.geomspace(1, 20_000, 60).astype(int))
    for style, (name, count) in enumerate(among.items()):
        ks = [int(top) for top in tops if top <= count - drawn]
        exact = [100 * chance(k, count, drawn) for k in ks]
        axes.plot(ks, exact, DASHES[style], color=COLOURS[style], label=f"{name}, exact")
        if name in found:
            seen = [100 * np.mean(found[name] <= k) for k in ks[::6]]
            axes.plot(ks[::6], seen, MARKERS[style], color=COLOURS[style], label=f"{name}, our model")
    axes.axvline(100, color="0.6", linestyle=":")
    axes.set(xscale="log", xlabel="top k of the whole training set", ylabel="batches that reach it (%)")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.legend(loc="upper left", fontsize=8)
    return figure


@shown("""A caption, its own picture and its four hardest negatives in the training set. A frame and a tick
    mark the pictures of which the caption is true: its own, and three of the four negatives.""")
def ticked(caption: str, pictures: Sequence[np.ndarray], true: Sequence[bool]) -> Figure:
    """Show a caption's own picture and its four hardest negatives, with a tick where the caption is true."""
    return picture_row(pictures, (KINDS[0], *KINDS[2:]), marked=[True, *true], heading=caption)


@shown("""The share of mined negatives that are true of their anchor, against how many of the hardest are
    counted. Both lines, captions mined for a picture and pictures mined for a caption, begin at more than a
    fifth and fall with depth, far above the share among all pairs.""")
def true_share(shares: Mapping[str, Mapping[int, float]], all_pairs: float) -> Figure:
    """Show which share of the hardest k is true of its anchor, in percent."""
    figure, axes = plt.subplots(figsize=(6.2, 3.5))
    lines = {name: (list(each), list(each.values())) for name, each in shares.items()}
    curves(axes, lines, x="the hardest k", y="true of their anchor (%)")
    axes.axhline(all_pairs, color="0.5", linestyle=":", linewidth=1)
    axes.text(1, all_pairs + 0.4, "all pairs", fontsize=8, color="0.3")
    depths = max((list(each) for each in shares.values()), key=len)
    axes.set(xscale="log", ylim=(0, None))
    axes.set_xticks(depths, [str(depth) for depth in depths])
    axes.minorticks_off()
    return figure


@shown("""Left: the mean lead of a caption's own picture, against the share of near duplicates. The lead over
    the hardest of a batch is largest, that over the hardest of all is smallest and falls, and that over the
    hardest that is really false lies between them. Right: how often the hardest of all is true, which rises
    steeply.""")
def near_duplicates(knob: Mapping[float, Sequence[float]]) -> Figure:
    """Show three mean leads, times 100, and how often the hardest of all is true, against the knob."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), width_ratios=[1.5, 1])
    across = list(knob)
    *leads, true = zip(*knob.values(), strict=True)
    series = {kind: (across, each) for kind, each in zip(LEADS, leads, strict=True)}
    curves(left, series, x="share of near duplicates", y="mean lead in similarity × 100")
    left.axhline(0, color="0.5", linewidth=1)
    left.set_ylim(None, 24)
    left.legend(loc="upper right", fontsize=9, title="over the hardest of")
    curves(right, {"": (across, true)}, x="share of near duplicates", y="the hardest of all is true (%)")
    right.set_ylim(0, 100)
    return figure
