"""What notebook 05 draws: the block, what it needs, choices beside chance; and who is left of whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyBboxPatch

from course import plots
from vsecore.scenes.facts import Scene, Thing


def called(thing: Thing) -> str:
    """What a thing is called: its colour and its kind."""
    if thing.kind in ("girl", "boy", "woman", "man"):
        return f"a {thing.kind} in {thing.colour}"
    return f"{'an' if thing.colour == 'orange' else 'a'} {thing.colour} {thing.kind}"


def left_of(scene: Scene) -> list[tuple[str, str]]:
    """Who stands left of whom, among the things that no other in the scene is called like."""
    names = [called(thing) for thing in scene.things]
    alone = {name for name in names if names.count(name) == 1}
    return sorted(
        {
            (names[i], names[j])
            for relation, i, j in scene.relations
            if relation == "left of" and {names[i], names[j]} <= alone
        }
    )


def block() -> None:
    """Draw the Transformer block as a chain of boxes, with its two residuals."""
    figure, axes = plt.subplots(figsize=(9.2, 2.3))
    arrow = {"arrowstyle": "-|>", "color": "0.25", "shrinkA": 0, "shrinkB": 0}
    boxes = {
        1.2: ("norm", "0.9", 0.9),
        2.6: ("attention:\nask all others", plots.COLOURS[5], 1.6),
        5.6: ("norm", "0.9", 0.9),
        7.0: ("network:\neach alone", plots.COLOURS[4], 1.6),
    }
    for place, (text, colour, wide) in boxes.items():
        shape = FancyBboxPatch((place, -0.3), wide, 0.6, boxstyle="round,pad=0.05", fc=colour, ec="0.4")
        axes.add_patch(shape)
        axes.text(place + wide / 2, 0, text, ha="center", va="center", fontsize=9)
    ways = (0.3, 1.15), (2.15, 2.55), (4.25, 4.7), (5.0, 5.55), (6.55, 6.95), (8.65, 9.1), (9.4, 10.0)
    for start, end in ways:
        axes.annotate("", (end, 0), (start, 0), arrowprops=arrow)
    for start, end in ((0.6, 4.85), (5.2, 9.25)):
        axes.plot([start, start, end], [0, 0.75, 0.75], color=plots.COLOURS[1])
        axes.annotate("", (end, 0.15), (end, 0.75), arrowprops=arrow | {"color": plots.COLOURS[1]})
        axes.text(end, 0, "+", ha="center", va="center", fontsize=13)
        middle = (start + end) / 2, 0.8
        axes.text(*middle, "residual", color=plots.COLOURS[1], ha="center", fontsize=9)
    for place, height, name in ((0.12, 0, "x"), (5.2, -0.28, "z"), (10.2, 0, "out")):
        axes.text(place, height, name, ha="center", va="center", style="italic")
    axes.set(xlim=(0, 10.5), ylim=(-0.5, 1.05))
    axes.axis("off")
    alt = (
        "The block as a chain of boxes from left to right: x, norm, attention, plus, which makes z; norm, "
        "network, plus, which gives the output. Two lines, called residual, lead around attention and around "
        "the network to the two pluses."
    )
    plots.show(figure, alt)


def broken(largest: Mapping[str, np.ndarray], depths: Mapping[str, Sequence[float]]) -> None:
    """Draw the largest share of each query, and how alike elements are after each block."""
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 3))
    for (name, shares), colour, hatch in zip(largest.items(), plots.COLOURS, ("", "//"), strict=False):
        panels[0].hist(
            shares,
            np.linspace(0, 1, 31),
            weights=np.full(len(shares), 100 / len(shares)),
            label=name,
            color=colour,
            hatch=hatch,
            alpha=0.75,
        )
    title = "Without the root one gets nearly all"
    panels[0].set(xlabel="the largest share of 49", ylabel="queries (%)", title=title)
    panels[0].legend()
    lines = {name: (range(1, 1 + len(alike)), alike) for name, alike in depths.items()}
    title = "Without residuals all become alike"
    plots.curves(panels[1], lines, x="blocks passed", y="mean cosine of two elements", title=title)
    panels[1].set_ylim(-0.05, 1.05)
    alt = (
        "Left: how large the largest of forty-nine shares is; divided by the root it is small for nearly all "
        "queries, not divided it is often close to one. Right: how alike elements are after each block; "
        "with the residual they grow alike slowly, without it they are nearly the same after two blocks."
    )
    plots.show(figure, alt)


def against_chance(rows: Mapping[str, tuple[float, float, float]]) -> None:
    """Draw how often the right picture of two is preferred: a dot with its interval, and a line at chance."""
    figure, axes = plt.subplots(figsize=(7, 1.2 + 0.35 * len(rows)))
    for place, (middle, low, high) in enumerate(rows.values()):
        axes.plot([low, high], [place, place], color=plots.COLOURS[0])
        axes.plot(middle, place, "o", color=plots.COLOURS[0])
    axes.axvline(50, color=plots.COLOURS[1], linestyle="--")
    axes.annotate("chance ", (50, -0.45), color=plots.COLOURS[1], ha="right", fontsize=9)
    axes.set(xlabel="right picture of two (%), 95 % interval", yticks=range(len(rows)), xlim=(35, 102))
    axes.set_yticklabels(list(rows))
    axes.set_ylim(len(rows) - 0.5, -0.75)
    told = ", ".join(f"{name} {middle:.1f} %" for name, (middle, *_) in rows.items())
    alt = f"How often the right one of two pictures is preferred, beside a line at chance: {told}."
    plots.show(figure, alt)
