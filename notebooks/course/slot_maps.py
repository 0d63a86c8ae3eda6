"""What each slot of a set looks at, drawn over the picture; and many sets as points in a plane.

A slot has the same colour in every figure.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor
from torch.nn.functional import interpolate

from course.attention import pale
from course.plots import COLOURS

MARKS = {"pictures": "o", "captions": "^"}
"""The markers of the two sides' vectors in `set_points`."""


def painted(pixels: np.ndarray, values: Tensor, colours: Sequence[str]) -> np.ndarray:
    """Lay one colour for each slot over a pale grey picture, the more of it the larger its value.

    Args:
        pixels: the picture, uint8 (H, W, 3).
        values: how much of each cell a slot takes, (K, N) numbers in [0, 1]; the cells are a square grid, row
            by row. Between the middles of cells, values are interpolated.
        colours: K colours.

    Returns:
        (H, W, 3) numbers in [0, 1].
    """
    side = math.isqrt(values.shape[1])
    grid = values.detach().float().view(1, -1, side, side)
    much = interpolate(grid, size=pixels.shape[:2], mode="bilinear")[0].clamp(0, 1).numpy()  # (K, H, W)
    paint = np.array([to_rgb(colour) for colour in colours])  # (K, 3)
    rest = (1 - much.sum(0)).clip(0)[..., None]  # (H, W, 1)   what no slot takes stays white
    tint = (np.einsum("khw,kc->hwc", much, paint) + rest).clip(0, 1)
    mixed: np.ndarray = pale(pixels, 0.45) * tint
    return mixed


def slot_rounds(
    pixels: np.ndarray,
    shares: Tensor,
    captions: Sequence[str],
    right: Sequence[bool] | None = None,
) -> Figure:
    """Draw a picture, what each slot takes of it in each round, and the caption that each slot is nearest to.

    Each map is scaled to its own largest share, since a slot may have a small part of many cells. Below the
    picture, all slots of the last round lie over it at once, with their shares as they are.

    Args:
        pixels: the picture, uint8 (H, W, 3).
        shares: of each cell for each slot, (T, K, N), a picture's of `SlotSetPrediction.attention`.
        captions: K captions, one for each slot.
        right: which of them are true of the picture; these get a tick, others a cross. None: nobody knows.
    """
    rounds, slots, _ = shares.shape
    figure = plt.figure(figsize=(10.2, 1.36 * slots + 0.3))
    half = max(1, slots // 2)
    grid = figure.add_gridspec(slots, rounds + 3, width_ratios=[1, 1, *[1] * rounds, 1.8])
    colours = COLOURS[:slots]
    whole = figure.add_subplot(grid[:half, :2])
    whole.imshow(pixels, interpolation="lanczos")
    whole.set_title("the picture", fontsize=10, loc="center")
    both = figure.add_subplot(grid[half:, :2])
    both.imshow(painted(pixels, shares[-1], colours))
    both.set_title("all slots, last round", fontsize=10, loc="center")
    axes_of_all = [whole, both]
    for slot in range(slots):
        for number in range(rounds):
            axes = figure.add_subplot(grid[slot, 2 + number])
            values = shares[number, slot : slot + 1]  # (1, N)
            scaled = values / values.max().clamp(min=1e-9)
            axes.imshow(painted(pixels, scaled, colours[slot : slot + 1]))
            if slot == 0:
                axes.set_title(f"round {number + 1}", fontsize=10, loc="center")
            if number == 0:
                axes.set_ylabel(f"slot {slot + 1}", color=colours[slot], fontsize=10)
            axes_of_all.append(axes)
        words = figure.add_subplot(grid[slot, -1])
        mark = "" if right is None else "✓ " if right[slot] else "✗ "
        said = textwrap.fill(mark + captions[slot], 30)
        words.text(0.02, 0.5, said, va="center", fontsize=9, transform=words.transAxes)
        if slot == 0:
            words.text(0.02, 0.94, "nearest caption", va="top", fontsize=10, transform=words.transAxes)
        axes_of_all.append(words)
    _bare(axes_of_all)
    return figure


def slot_rows(pictures: Sequence[np.ndarray], maps: Mapping[str, Tensor]) -> Figure:
    """Draw each picture with the maps of its slots, from two modules or more side by side.

    The slots' numbers stand below the last row.

    Args:
        pictures: each uint8 (H, W, 3).
        maps: name -> (B, K, N), numbers from 0 to 1 for each picture.
    """
    widths = [1.0]
    for each in maps.values():
        widths += [0.12, *[1.0] * each.shape[1]]
    figure, grid = plt.subplots(
        len(pictures),
        len(widths),
        figsize=(1.2 * sum(widths), 1.22 * len(pictures) + 0.45),
        squeeze=False,
        width_ratios=widths,
    )
    for row, pixels in enumerate(pictures):
        grid[row, 0].imshow(pixels, interpolation="lanczos")
        place = 1
        for name, each in maps.items():
            grid[row, place].set_visible(False)
            for slot, values in enumerate(each[row]):
                axes = grid[row, place + 1 + slot]
                axes.imshow(painted(pixels, values[None], COLOURS[slot : slot + 1]))
                if row == 0 and slot == 0:
                    axes.set_title(name, fontsize=10)
                if row == len(pictures) - 1:
                    axes.set_xlabel(f"slot {slot + 1}", color=COLOURS[slot], fontsize=9)
            place += 1 + each.shape[1]
    _bare(list(grid.flat))
    return figure


def set_points(axes: Axes, points: np.ndarray, slots: np.ndarray, of_captions: np.ndarray) -> None:
    """Draw the vectors of many sets as points: the colour is the slot, the marker the side.

    A later slot has smaller markers and lies over the earlier ones, so that where the vectors of a set fall
    on one spot, all their colours are seen as rings.

    Args:
        axes: where to draw.
        points: (n, 2).
        slots: which slot each comes from, (n,).
        of_captions: whether it belongs to a caption, (n,).
    """
    for name, marker in MARKS.items():
        of_side = of_captions if name == "captions" else ~of_captions
        for slot in np.unique(slots):
            here = of_side & (slots == slot)
            axes.scatter(
                points[here, 0],
                points[here, 1],
                s=4 + 52 * (1 - slot / (slots.max() + 1)) ** 2,
                marker=marker,
                linewidths=0,
                color=COLOURS[slot],
                zorder=2 + slot,
            )
    axes.set(xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="datalim")
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set(visible=True, color="0.8")


def pair_tables(cosines: Tensor, shares: Mapping[str, Tensor]) -> Figure:
    """Draw the cosines of two sets and, for each similarity, the share of the gradient that each pair gets.

    All shares have one colour scale, so that two tables can be compared.

    Args:
        cosines: cosines of a picture's K vectors with a caption's L, (K, L).
        shares: similarity -> (K, L) numbers in [0, 1] that add up to 1.
    """
    figure, panels = plt.subplots(1, 1 + len(shares), figsize=(2.3 * (1 + len(shares)), 2.75))
    for axes, (name, table) in zip(panels, {"cosines": cosines, **shares}.items(), strict=True):
        of_cosines = axes is panels[0]
        low, high = (-1.0, 2.4) if of_cosines else (0.0, 0.6)
        axes.imshow(table.numpy(), cmap="Greys" if of_cosines else "Blues", vmin=low, vmax=high)
        for (row, column), value in np.ndenumerate(table.numpy()):
            said = f"{value:.2f}" if of_cosines else _percent(value)
            white = not of_cosines and value > 0.35
            axes.text(column, row, said, ha="center", va="center", fontsize=9, color="w" if white else "k")
        axes.grid(False)
        axes.set_xticks(range(table.shape[1]), range(1, table.shape[1] + 1))
        axes.set_yticks(range(table.shape[0]), range(1, table.shape[0] + 1))
        axes.set_title(name if of_cosines else f"{name} (%)", fontsize=9)
        axes.set_xlabel("caption's vector")
    panels[0].set_ylabel("picture's vector")
    return figure


def _percent(share: float) -> str:
    """A share in percent with one decimal; what would round to nothing says so."""
    return "<0.1" if 0 < share < 0.0005 else f"{100 * share:.1f}" if share else "0"


def slot_legend(figure: Figure, slots: int) -> None:
    """Explain the colours and markers of `set_points` below a figure's panels."""
    dots = [Line2D([], [], marker="s", linestyle="", color=COLOURS[slot]) for slot in range(slots)]
    sides = [Line2D([], [], marker=marker, linestyle="", color="0.4") for marker in MARKS.values()]
    names = [f"slot {slot + 1}" for slot in range(slots)] + [f"of {side}" for side in MARKS]
    figure.legend([*dots, *sides], names, loc="outside lower center", ncols=slots + 2, fontsize=9)


def _bare(panels: Sequence[Axes]) -> None:
    """Take ticks, grid and frame off pictures and texts."""
    for axes in panels:
        axes.grid(False)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
