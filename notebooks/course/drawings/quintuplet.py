"""The drawings of notebook 09: seven similarities, gradients, a hierarchy, a collapse, gains."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from course.plots import COLOURS, DASHES, curve_panels, name_rows, show, shown
from course.sketch import arrow, canvas
from course.wording import counted
from vsecore import records
from vsecore.paths import results

SYSTEM = "aoq_vsepp_region_gru"
LOSSES = {"OffTri": "+offline_triplet", "OffQuin": "+offline_quintuplet", "AdapOffQuin": ""}
RECORDED = {"VSE++": "+online", **LOSSES, "offline alone": "+only_offline"}
MEASURES = {"i2t_r1": "picture to text", "t2i_r1": "text to picture"}
UP = {"hat": 3, "anchor": 2, "off": 1, "own": 0}
NAMES = {
    "hat": ("$\\hat v$, online", "$\\hat t$, online"),
    "anchor": ("$v$", "$t$"),
    "off": ("$v_{off}$, offline", "$t_{off}$, offline"),
    "own": ("$v_{own}$, the picture of $t_{off}$", "$t_{own}$, a caption of $v_{off}$"),
}
KINDS = {
    "the pair: raise": (COLOURS[2], 3, [("anchor", "anchor")]),
    "online": (COLOURS[0], 2, [("anchor", "hat"), ("hat", "anchor")]),
    "offline": (COLOURS[1], 2, [("anchor", "off"), ("off", "anchor")]),
    "no common element": (COLOURS[3], 2, [("off", "off"), ("own", "own")]),
    "belong together, not in the loss": ("0.75", 1, [("off", "own"), ("own", "off")]),
}
"""The lines of each kind, a picture and a caption each, with their colour and width."""


@shown("""R@1 on the development split after each epoch, from picture to text and from text to picture: the
    first round, and two second rounds with offline negatives. A dotted line marks the best of the first
    round; the first epochs, in which all learn from all negatives, are shaded.""")
def rounds(histories: Mapping[str, Sequence[Mapping[str, Any]]], early: int) -> Figure:
    """Show R@1 after each epoch of each training; the first `early` epochs are shaded."""
    panels = {
        f"R@1, {title} (%)": {name: [epoch[measure] for epoch in one] for name, one in histories.items()}
        for measure, title in MEASURES.items()
    }
    figure, both = curve_panels(panels, x="epoch", size=(9.2, 3.4))
    for axes, lines in zip(both, panels.values(), strict=True):
        axes.axhline(max(lines["first round"]), color="0.5", linestyle=":")
        axes.axvspan(0.5, early + 0.5, color="0.93", zorder=0)
        axes.set(xlim=(0.5, None), ylim=(0, None))
    both[0].annotate("all negatives:\nthe same loss", (0.6, 2), fontsize=8, color="0.3")
    return figure


@shown("""Pictures on the left, captions on the right: the online negatives, the pair, the offline negatives,
    and what these own. Lines join picture v with the captions t, t hat and t off, caption t with v hat and v
    off, v off with t off, and v own with t own. Thin lines join each offline negative with what it owns.""")
def seven() -> Figure:
    """Show the seven similarities of a pair as lines between pictures and captions."""
    figure, axes = canvas((6.2, 3.8), (-0.9, 1.9), (-0.2, 3.2))
    for place, (left, right) in NAMES.items():
        axes.text(-0.09, UP[place], left, ha="right", va="center")
        axes.text(1.09, UP[place], right, va="center")
        axes.plot(0, UP[place], "s", color="0.2", markersize=9)
        axes.plot(1, UP[place], "o", color="0.2", markersize=9)
    for (kind, (colour, width, lines)), dash in zip(KINDS.items(), DASHES, strict=False):
        for number, (left, right) in enumerate(lines):
            label = None if number else kind
            axes.plot([0, 1], [UP[left], UP[right]], dash, color=colour, lw=width, zorder=0, label=label)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2)
    return figure


@shown("""Three maps of gradients over the similarity of the offline negative, across, and of the online
    negative, upwards, for a pair at one half. Below an online similarity of 0.3 only the offline hinge acts.
    Above it, the pair is pulled up and the online negative pushed down, the more so the harder the online
    negative. The online negative's sign turns around in a part of the triangle; the pair is pulled up
    everywhere. The offline negative is pushed down where it beats the pair and the online negative is low,
    and pulled up where the online negative is high.""")
def gradients(maps: Sequence[np.ndarray]) -> Figure:
    """Show the gradients of equation 6, for a pair at 0.5, offline across and online upwards."""
    figure, panels = plt.subplots(1, 3, figsize=(8.6, 3.4), sharey=True)
    titles = ("the pair", "the online negative", "the offline negative")
    for axes, push, title in zip(panels, maps, titles, strict=True):
        image = axes.imshow(push, "PuOr_r", origin="lower", extent=(-0.2, 1, -0.2, 1), vmin=-4, vmax=4)
        axes.plot([0.25, 1], [-0.2, 0.55], color="black", linewidth=1.6)
        axes.axvline(0.5, color="0.35", linestyle=":", linewidth=1)
        axes.axhline(0.5, color="0.35", linestyle=":", linewidth=1)
        axes.grid(False)
        axes.set(xlabel="similarity of the\noffline negative", title=title)
    panels[0].set_ylabel("similarity of the online negative")
    panels[0].text(0.76, -0.18, "negative\nweight,\nopen hinge", ha="center", fontsize=8)
    arrow(panels[0], (0.85, 0.07), (0.93, 0.38), "black", "->")
    figure.colorbar(image, ax=panels, label="gradient\n(− pulled up, + pushed down)", extend="both")
    return figure


@shown("""Distributions of three similarities, of pairs, offline negatives and online negatives, for random
    weights, after the first round and after the second round with AdapOffQuin.""")
def hierarchy(similar: Mapping[str, Sequence[np.ndarray]]) -> Figure:
    """Show how pairs, offline and online negatives are distributed; each model has seven (B,)."""
    figure, panels = plt.subplots(1, 3, figsize=(8.6, 3), sharey=True)
    edges = np.linspace(-0.5, 1, 51)
    for axes, (title, seven) in zip(panels, similar.items(), strict=True):
        kinds = {
            "pair": (seven[0], COLOURS[2]),
            "offline": (np.concatenate(seven[3:5]), COLOURS[1]),
            "online": (np.concatenate(seven[1:3]), COLOURS[0]),
        }
        for (kind, (values, colour)), dash in zip(kinds.items(), DASHES, strict=False):
            shares = 100 * np.histogram(values, edges)[0] / values.size
            axes.stairs(shares, edges, label=kind, color=colour, linestyle=dash, linewidth=1.8)
            if kind == "pair":  # filled, so that it shows where another line covers it
                axes.stairs(shares, edges, fill=True, color=colour, alpha=0.25)
        axes.set(xlabel="similarity", title=title)
    panels[0].set_ylabel("share (%)")
    panels[0].legend(loc="upper right")
    return figure


@shown("""Trainings with only the offline terms, with a margin of zero and of 0.2. Left the loss for each
    pair, right the spread of the similarities of a batch, both against the step.""")
def only_offline(seen: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """Show loss and spread, step by step, of trainings with only the offline terms."""
    labels = {"loss": "loss, for each pair", "spread": "spread of the similarities in a batch"}
    lines = {label: {name: list(one[key]) for name, one in seen.items()} for key, label in labels.items()}
    figure, (left, right) = curve_panels(lines, x="step, only offline terms", size=(8.8, 3.2))
    left.axhline(4 * 0.2, color="0.4", linestyle=":", linewidth=1)
    left.annotate("dotted: all vectors alike, margin 0.2", (2, 1.05), color="0.3", fontsize=9)
    left.set_ylim(0, 1.15)
    right.set_ylim(0, None)
    return figure


@cache
def _trained() -> list[records.Record]:
    folders = (results() / "experiments", results() / "long_lists")
    found = [run for folder in folders for run in records.find(folder, data="scenes_near_duplicates")]
    ours = [run for run in found if run.name.startswith(SYSTEM) and "left_out" not in run.data]
    return [run for run in ours if run.config["training"]["epochs"] == 15]


def by_seed(loss: str, texts: int, rate: float, measure: str = "rsum") -> dict[int, float]:
    """Return what is recorded of VSE++ with a loss of `RECORDED`, by seed; "VSE++" is its own.

    `texts` is the length of the lists of captions, which "VSE++" has none of, and `rate` the learning rate.
    """
    return {
        run.seed: run.metrics[measure]
        for run in _trained()
        if run.name == SYSTEM + RECORDED[loss]
        if run.config["training"]["learning_rate"] == rate
        if loss == "VSE++" or run.config["first_round"]["texts"] == texts
    }


def average(loss: str, texts: int, rate: float, measure: str = "rsum") -> float:
    """Return the mean over the seeds of `by_seed`."""
    return float(np.mean(list(by_seed(loss, texts, rate, measure).values())))


def gaps(loss: str, texts: int, rate: float, measure: str = "rsum") -> list[float]:
    """Return by how much a loss is above VSE++ with the same rate, for each seed that both have."""
    ours, online = (by_seed(each, texts, rate, measure) for each in (loss, "VSE++"))
    return [ours[seed] - online[seed] for seed in sorted(ours.keys() & online.keys())]


def gains(rows: Mapping[str, Sequence[float]]) -> None:
    """Show by how much each training is above VSE++, a dot for each seed; a bar marks the mean."""
    figure, axes = plt.subplots(figsize=(6.2, 0.5 * len(rows) + 0.9))
    for place, (name, each) in enumerate(rows.items()):
        colour = COLOURS[1 if "25" in name else 0]
        axes.plot(each, [place] * len(each), "s" if "25" in name else "o", color=colour, alpha=0.7)
        axes.plot([np.mean(each)] * 2, [place - 0.3, place + 0.3], color=colour, linewidth=2)
    axes.axvline(0, color="0.4", linestyle=":")
    labels = [f"{name} ({counted(len(each), 'seed')})" for name, each in rows.items()]
    name_rows(axes, (label.replace(", ", ",\n", 1) for label in labels))
    axes.set_xlabel("gain in rsum over VSE++")
    means = [f"{label} {np.mean(each):+.1f}" for label, each in zip(labels, rows.values(), strict=True)]
    show(figure, alt=f"The gain in rsum over VSE++, a dot for each seed. The means: {', '.join(means)}.")
