"""The figures of notebook 16: a latent target, a multiplier's path, and what it does to both losses."""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from course.dots import by_epoch
from course.plots import COLOURS, bare, curve_panels, curves, draw_picture
from course.sketch import arrow, box, canvas
from vsecore.experiments import Studied

BOXES = {
    "picture": (0.0, 1.1, 1.3, "0.92"),
    "caption": (0.0, 0.0, 1.3, "0.92"),
    "image\nencoder": (2.0, 1.1, 1.3, "#cfe3f1"),
    "caption\nencoder": (2.0, 0.0, 1.3, "#cfe3f1"),
    "$v$": (4.0, 1.1, 0.6, "white"),
    "$z$": (4.0, 0.0, 0.6, "white"),
    "contrastive\nloss": (6.0, 0.55, 1.6, "#fbdcc8"),
    "decoder $h$": (6.0, -0.8, 1.6, "#c9ebdf"),
    "MiniLM": (2.0, -1.2, 1.3, "#c9ebdf"),
    "target $y$": (6.0, -1.65, 1.6, "#c9ebdf"),
    "reconstruction\nloss": (8.6, -1.2, 1.9, "#fbdcc8"),
}
"""Where each box stands, how wide it is, and its colour: x, y, width, colour."""
CHAINS = (
    ("picture", "image\nencoder", "$v$", "contrastive\nloss"),
    ("caption", "caption\nencoder", "$z$", "contrastive\nloss"),
    ("$z$", "decoder $h$", "reconstruction\nloss"),
    ("caption", "MiniLM", "target $y$", "reconstruction\nloss"),
)
"""The boxes that arrows lead through."""


def overview() -> Figure:
    """Draw both encoders, both losses, and what only training needs."""
    figure, axes = canvas((9.2, 3.3), (-0.8, 9.8), (-2.15, 1.5))
    axes.add_patch(plt.Rectangle((1.2, -2.1), 8.5, 1.7, fc="#eef7f3", ec=COLOURS[2], linestyle="--", lw=1))
    axes.text(9.6, -2.03, "used in training only", ha="right", fontsize=9, color=COLOURS[2])
    for name, (x, y, width, colour) in BOXES.items():
        box(axes, (x, y), (width, 0.6), name, colour)
    for start, end in chain.from_iterable(map(pairwise, CHAINS)):
        (x, y, width, _), (to_x, to_y, to_width, _) = BOXES[start], BOXES[end]
        arrow(axes, (x + width / 2, y), (to_x - to_width / 2, to_y))
    return figure


def controller(runs: Mapping[str, np.ndarray], bound: float, size: tuple[float, float]) -> Figure:
    """Draw the multiplier and the loss of toy models against the step, and the bound of the loss.

    Of each model there is (steps, 3): the multiplier that is used, the one behind it, the loss.
    """
    figure, panels = plt.subplots(1, 2, figsize=size)
    for axes, column, label in zip(panels, (1, 2), ("λ", "loss that has a bound"), strict=True):
        lines = {name: (range(len(seen)), seen[:, column].tolist()) for name, seen in runs.items()}
        curves(axes, lines, x="step", y=label, legend=column == 1)
        axes.axvline(len(next(iter(runs.values()))) / 2, color="0.8", linewidth=1)
    panels[0].axhline(0, color="0.5", linewidth=1)
    panels[1].axhline(bound, color="0.4", linestyle=":")
    panels[1].annotate("bound", (0, bound), (2, 3), textcoords="offset points", fontsize=9)
    return figure


PANELS = {
    "rsum, development split": "dev_rsum",
    "λ, linear below 1": "multiplier_after",
    "reconstruction loss": "reconstruction_in",
    "contrastive loss": "contrast_in",
}
"""The label of each panel of `trajectories`, and what is recorded after each epoch."""


def trajectories(
    found: Mapping[str, Studied], bounds: Mapping[str, float]
) -> tuple[Figure, dict[str, dict[str, np.ndarray]]]:
    """Draw what systems' measures were after each epoch, the mean over seeds, in a panel for each measure.

    The means are returned too: for each panel those of each system, (epochs,). A system's bound, if it has
    one, is drawn in the panel of the reconstruction loss. An rsum below 440 is left out, so that the last
    epochs can be told apart.
    """
    tracks = {
        label: {name: by_epoch(arm, key).mean(0) for name, arm in found.items() if arm.epochs(f"{key}_")}
        for label, key in PANELS.items()
    }
    figure, grid = curve_panels(tracks, x="epoch", size=(9.2, 5.6))
    rsum, multiplier, reconstruction, _ = grid
    rsum.set_ylim(bottom=440)
    rsum.set_ylabel(f"{rsum.get_ylabel()}\n(from 440)")
    multiplier.set_yscale("symlog", linthresh=1)
    multiplier.set_ylim(bottom=-0.1)
    multiplier.set_yticks([0, 1, 2, 5, 10, 20, 50], ["0", "1", "2", "5", "10", "20", "50"])
    for line in reconstruction.get_lines():
        if bound := bounds.get(str(line.get_label())):
            reconstruction.axhline(bound, color=line.get_color(), linestyle=":", linewidth=1.2)
    return figure, tracks


def top_captions(rows: Sequence[tuple[np.ndarray, Mapping[str, Sequence[str]]]]) -> Figure:
    """Draw pictures, each beside the captions that systems rank first, a column for each system."""
    columns = len(rows[0][1])
    widths, size = [1, *[1.55] * columns], (9.4, 2.6 * len(rows))
    figure, grid = plt.subplots(len(rows), 1 + columns, figsize=size, width_ratios=widths)
    bare(*grid.flat)
    for (left, *panels), (pixels, found) in zip(grid, rows, strict=True):
        draw_picture(left, pixels)
        for axes, (name, captions) in zip(panels, found.items(), strict=True):
            lines = [textwrap.fill(text, 38, subsequent_indent="    ") for text in captions]
            axes.text(0, 1, "\n".join(lines), va="top", linespacing=1.25)
            axes.set_title(name)
    return figure
