"""What each slot of a set looks at, drawn over the picture; and many sets as points in a plane.

A slot has the same colour in every figure.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import interpolate

from course.plots import COLOURS, bare, heatmap, name_rows


def painted(pixels: np.ndarray, values: Tensor, colours: Sequence[str]) -> np.ndarray:
    """Lay one colour for each slot over a picture, which stays visible: the more, the larger its value.

    `values` says how much of each cell a slot takes, (K, N) in [0, 1]; the cells are a square grid, row by
    row, and between their middles values are interpolated. The result is (H, W, 3), in [0, 1].
    """
    side = math.isqrt(values.shape[1])
    grid = values.detach().float().view(1, -1, side, side)
    much = interpolate(grid, size=pixels.shape[:2], mode="bilinear")[0].clamp(0, 1).numpy()  # (K, H, W)
    paint = np.array([to_rgb(colour) for colour in colours])  # (K, 3)
    light = 0.3 + 0.7 * pixels / 255
    mixed = light * (1 - 0.62 * much.sum(0)).clip(0)[..., None]
    return (mixed + 0.62 * np.einsum("khw,kc->hwc", much, paint)).clip(0, 1)


def slot_rounds(
    pixels: np.ndarray, shares: Tensor, captions: Sequence[str], right: Sequence[bool] | None
) -> Figure:
    """Draw a picture, what each slot takes of it in each round, and the caption that each slot is nearest to.

    `shares` are those of each cell for each slot, (T, K, N), a picture's of `SlotSetPrediction.attention`.
    All maps have one scale, from no share of a cell to all of it. Below the picture, all slots of the last
    round lie over it at once. A tick marks the captions that are `right`, and a cross the others; None:
    nobody knows.
    """
    rounds, slots, _ = shares.shape
    layout: list[Any] = []
    for slot in range(slots):
        left = ["picture" if slot < max(1, slots // 2) else "all"] * 2
        layout.append([*left, *(f"{slot} {number}" for number in range(rounds)), f"words {slot}"])
    size, widths = (10.2, 1.36 * slots + 0.3), [*[1] * (rounds + 2), 1.8]
    figure, panels = plt.subplot_mosaic(layout, figsize=size, width_ratios=widths)
    bare(*panels.values())
    colours: Sequence[str] = COLOURS[:slots]
    style: dict[str, Any] = {"fontsize": 10, "loc": "center"}
    panels["picture"].imshow(pixels, interpolation="lanczos")
    panels["picture"].set_title("the picture", **style)
    panels["all"].imshow(painted(pixels, shares[-1], colours))
    panels["all"].set_title("all slots, last round", **style)
    for slot, colour in enumerate(colours):
        for number in range(rounds):
            axes = panels[f"{slot} {number}"]
            axes.imshow(painted(pixels, shares[number, slot : slot + 1], [colour]))
            axes.set_title("" if slot else f"round {number + 1}", **style)
        panels[f"{slot} 0"].set_ylabel(f"slot {slot + 1}", color=colour, fontsize=10)
        words = panels[f"words {slot}"]
        mark = "" if right is None else "✓ " if right[slot] else "✗ "
        words.text(0.02, 0.5, textwrap.fill(mark + captions[slot], 30), va="center", fontsize=9)
    panels["words 0"].text(0.02, 0.94, "nearest caption", va="top", fontsize=10)
    return figure


def band(alphas: Sequence[float], values: Sequence[float], hard: float, slots: int) -> Figure:
    """Draw smooth-Chamfer against alpha, between Chamfer and the log of the slots' number above it."""
    figure, axes = plt.subplots(figsize=(6.6, 3.2))
    upper = [hard + math.log(slots) / alpha for alpha in alphas]
    axes.fill_between(alphas, hard, upper, color="0.92", label="between Chamfer and log K / α above it")
    axes.plot(alphas, values, color=COLOURS[0], label="smooth-Chamfer")
    axes.axhline(hard, color=COLOURS[1], linestyle="--", label="Chamfer")
    axes.axvline(16, color="0.5", linestyle=":", label="the paper's α")
    axes.set(xscale="log", xlabel="α", ylabel="similarity of one pair")
    axes.set_xticks(ticks := [1, 2, 4, 8, 16, 32, 64, 128], [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.legend(frameon=True, framealpha=1, edgecolor="none")
    return figure


def one_at_a_time(
    results: Mapping[str, Mapping[int, float]], whole: float, other: Mapping[str, float]
) -> Figure:
    """Draw, for the vectors of each side, the rsum with only one of them and without one of them.

    `results` is what is recorded of a system by seed, such as "rsum_pictures_only_1", each a dot; `whole` is
    the rsum of all vectors, and `other` another system's name and rsum, for a second line.
    """
    figure, panels = plt.subplots(1, 2, figsize=(9.2, 3), sharex=True, sharey=True)
    rows = [(way, k) for way in ("only", "without") for k in range(1, 5)]
    for axes, (side, key) in zip(panels, (("pictures", "pictures"), ("captions", "texts")), strict=True):
        for place, (way, k) in enumerate(rows):
            rsums = results[f"rsum_{key}_{way}_{k}"].values()
            marker = "o" if way == "only" else "s"
            axes.plot([*rsums], [place] * len(rsums), marker, color=COLOURS[k - 1], alpha=0.6)
        axes.axvline(whole, color="0.3", linestyle=":", label=f"all vectors, {whole:.1f}")
        for name, rsum in other.items():
            axes.axvline(rsum, color=COLOURS[1], linestyle="--", label=f"{name}, {rsum:.1f}")
        axes.set(xlabel="rsum", title=f"vectors of {side}")
    name_rows(panels[0], (f"{way} {k}" for way, k in rows))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def map_of_sets(points: np.ndarray, slots: int) -> Figure:
    """Draw the vectors of many sets as points: the colour is the slot, the marker the side.

    Thin lines join the vectors of a set. In `points`, (n, 2), these come one after the other, first the
    pictures' sets, then as many of captions.
    """
    figure, axes = plt.subplots(figsize=(6.6, 4.8))
    sets = points.reshape(2, -1, slots, 2)  # side, set, slot
    for one in sets.reshape(-1, slots, 2):
        axes.plot(*np.concatenate([one, one[:1]]).T, color="0.8", linewidth=0.4, zorder=1)
    for side, name, marker in zip(sets, ("pictures", "captions"), "o^", strict=True):
        for slot, colour in enumerate(COLOURS[:slots]):
            axes.plot(*side[:, slot].T, marker, color=colour, markersize=4.7, markeredgewidth=0, zorder=2)
        axes.plot([], [], marker, color="0.4", label=f"of {name}")
    for slot, colour in enumerate(COLOURS[:slots]):
        axes.plot([], [], "s", color=colour, label=f"slot {slot + 1}")
    bare(axes)
    axes.set_aspect("equal", adjustable="datalim")
    figure.legend(loc="outside lower center", ncols=slots + 2, fontsize=9)
    return figure


def pair_tables(cosines: Tensor, shares: Mapping[str, Tensor]) -> Figure:
    """Draw the cosines of two sets, (K, L), and the share of each pair in the gradient of each similarity.

    The shares are (K, L) numbers in [0, 1] that add up to 1, and have one colour scale, so that two tables
    can be compared.
    """
    across = 2 if len(shares) == 3 else 3  # four tables make a square
    down = -(-(1 + len(shares)) // across)
    figure, grid = plt.subplots(down, across, figsize=(2.3 * across, 2.5 * down))
    panels, spare = grid.ravel()[: 1 + len(shares)], grid.ravel()[1 + len(shares) :]
    for axes in spare:
        axes.axis("off")
    rows, columns = (range(1, size + 1) for size in cosines.shape)
    style: dict[str, Any] = {"cmap": "Greys", "vmin": -1.0, "vmax": 2.4}
    heatmap(panels[0], cosines.numpy(), names=(rows, columns), written="{:.2f}".format, **style)
    panels[0].set_title("cosines", fontsize=9)
    style = {"cmap": "Blues", "vmin": 0.0, "vmax": 0.6}
    for axes, (name, table) in zip(panels[1:], shares.items(), strict=True):
        heatmap(axes, table.numpy(), names=(rows, columns), written=_percent, **style)
        axes.set_title(f"{name} (%)", fontsize=9)
    for axes in panels:
        axes.set_xlabel("caption's vector")
    for axes in grid[:, 0]:
        axes.set_ylabel("picture's vector")
    return figure


def _percent(share: float) -> str:
    """A share in percent with one decimal; what would round to nothing says so."""
    return "<0.1" if 0 < share < 0.0005 else f"{100 * share:.1f}" if share else "0"
