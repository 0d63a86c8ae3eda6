"""What notebook 05 draws: the block, what it needs, choices beside chance; and who is left of whom."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from course import plots
from course.sketch import arrow, box, canvas
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
    pairs = {(names[i], names[j]) for relation, i, j in scene.relations if relation == "left of"}
    return sorted(pair for pair in pairs if alone.issuperset(pair))


@plots.shown("""The two steps of the block, each a chain of boxes from left to right. Above: x, norm,
    attention, plus, which makes z. Below: z, norm, network, plus, which gives the output. In each a line,
    called residual, leads around both boxes to the plus.""")
def block() -> Figure:
    """Draw the two steps of the Transformer block below each other, each with its residual."""
    figure, axes = canvas((5.4, 3.5), (-0.1, 7.2), (-0.6, 3.2))
    steps = (2, "x", "attention:\nask all others", 5, "z"), (0, "z", "network:\neach alone", 4, "out")
    residual = plots.COLOURS[1]
    for y, start, text, colour, end in steps:
        box(axes, (1.85, y), (1.2, 0.9), "norm", "0.9")
        box(axes, (4.05, y), (2.2, 0.9), text, plots.COLOURS[colour])
        for tail, tip in ((0.3, 1.25), (2.45, 2.95), (5.15, 5.6), (5.95, 6.5)):
            arrow(axes, (tail, y), (tip, y), "0.25")
        axes.plot([0.7, 0.7, 5.78], [y, y + 0.8, y + 0.8], color=residual)
        arrow(axes, (5.78, y + 0.8), (5.78, y + 0.15), residual)
        axes.text(3.2, y + 0.88, "residual", color=residual, ha="center")
        for x, name, size in ((0.12, start, 11), (5.78, "+", 14), (6.8, end, 11)):
            axes.text(x, y, name, ha="center", va="center", fontsize=size, style="italic")
    return figure


@plots.shown("""Above: how large the largest of forty-nine shares is; divided by the root it is small for
    nearly all queries, not divided it is often close to one. Below: how alike elements are after each block;
    with the residual they grow alike slowly, without it they are nearly the same after two blocks.""")
def broken(largest: Mapping[str, np.ndarray], depths: plots.Lines) -> Figure:
    """Draw the largest share of each query, and how alike elements are after each block."""
    figure, panels = plt.subplots(2, 1, figsize=(5.8, 5.4))
    for (name, shares), colour, hatch in zip(largest.items(), plots.COLOURS, ("", "//"), strict=False):
        weights = np.full(len(shares), 100 / len(shares))
        style = {"color": colour, "hatch": hatch, "alpha": 0.75}
        panels[0].hist(shares, np.linspace(0, 1, 31), weights=weights, label=name, **style)
    title = "Without the root, one element often gets nearly everything"
    panels[0].set(xlabel="the largest share of 49", ylabel="queries (%)", title=title)
    panels[0].legend()
    title = "Without residuals, all elements become alike"
    plots.curves(panels[1], depths, x="blocks passed", y="mean cosine of two elements", title=title)
    panels[1].set_ylim(-0.05, 1.05)
    return figure


def against_chance(rows: Mapping[str, plots.Span]) -> None:
    """Draw how often the correct picture of two is preferred: dots with intervals, and a line at chance."""
    figure, axes = plt.subplots(figsize=(6, 1.2 + 0.35 * len(rows)))
    plots.spans(axes, rows, x="correct picture of two (%), 95 % interval")
    axes.axvline(50, color=plots.COLOURS[1], linestyle="--")
    axes.text(50, -0.45, "chance ", color=plots.COLOURS[1], ha="right", fontsize=9)
    axes.set(xlim=(35, 102), ylim=(len(rows) - 0.5, -0.75))
    told = ", ".join(f"{name} {middle:.1f} %" for name, (middle, *_) in rows.items())
    alt = f"How often the correct one of two pictures is preferred, beside a line at chance: {told}."
    plots.show(figure, alt)
