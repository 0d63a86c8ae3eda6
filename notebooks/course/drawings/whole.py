"""The course in one drawing: two encoders, one space, a matrix of scores, a loss."""

from __future__ import annotations

from collections.abc import Iterable

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from course import plots

__all__ = ["system"]

STAGES = {  # what each stage does, for the words of the drawing
    "encode": "two encoders turn a picture and a caption into elements, one vector each",
    "pool": "a pool makes one vector of the elements of each side",
    "compare": "in one space, the cosine of every picture with every caption gives a matrix of scores",
    "learn": "a loss wants the scores on the diagonal, those of true pairs, to be the largest",
}
_QUIET, _LINE = "#EDEDED", "#6B6B6B"


def _box(axes: Axes, place: tuple[float, float], size: tuple[float, float], text: str, lit: bool) -> None:
    """A box with a text in its middle, coloured where its stage is lit."""
    shape = FancyBboxPatch(
        place,
        *size,
        boxstyle="round,pad=0,rounding_size=0.12",
        facecolor="#FFE1A8" if lit else _QUIET,
        edgecolor="black" if lit else _LINE,
        linewidth=1.8 if lit else 0.9,
    )
    axes.add_patch(shape)
    middle = place[0] + size[0] / 2, place[1] + size[1] / 2
    axes.text(*middle, text, ha="center", va="center", fontsize=9)


def system(lit: str | Iterable[str] = tuple(STAGES)) -> None:
    """Show the whole system as a small drawing, with the stages of this notebook coloured.

    Args:
        lit: a stage or several of "encode", "pool", "compare" and "learn"; all of them if it is not given.

    Raises:
        ValueError: there is no such stage.
    """
    stages = {lit} if isinstance(lit, str) else set(lit)
    if unknown := sorted(stages - set(STAGES)):
        raise ValueError(f"lit has {unknown}; the stages are {', '.join(STAGES)}")
    figure, axes = plt.subplots(figsize=(8.6, 2.1))
    encode, pool, compare, learn = (stage in stages for stage in STAGES)
    for height, source, elements in (
        (1.15, "picture", "image\nencoder"),
        (0.0, "caption", "caption\nencoder"),
    ):
        axes.text(0.5, height + 0.4, source, ha="center", va="center", fontsize=9, style="italic")
        _box(axes, (1.3, height), (1.4, 0.8), elements, encode)
        for row in range(4):  # the elements, then the one vector that a pool makes of them
            axes.plot([3.15, 3.65], [height + 0.1 + 0.2 * row] * 2, color=plots.COLOURS[0], linewidth=4)
        _box(axes, (4.2, height), (0.9, 0.8), "pool", pool)
        axes.plot([5.5, 6.0], [height + 0.4] * 2, color=plots.COLOURS[1], linewidth=4)
        for start, end in ((0.95, 1.28), (2.72, 3.08), (3.75, 4.18), (5.12, 5.42)):
            axes.annotate("", (end, height + 0.4), (start, height + 0.4), arrowprops=_arrow())
        axes.annotate("", (6.58, 0.97 + 0.12 * (height - 0.5)), (6.08, height + 0.4), arrowprops=_arrow())
    _box(axes, (6.62, 0.42), (1.1, 1.1), "one space:\ncosine", compare)
    axes.annotate("", (8.1, 0.97), (7.75, 0.97), arrowprops=_arrow())
    for row in range(4):
        for column in range(4):
            own = row == column
            square = plt.Rectangle(
                (8.15 + 0.3 * column, 1.27 - 0.3 * row),
                0.27,
                0.27,
                facecolor=plots.COLOURS[0] if own else "#D5E4EF" if compare else _QUIET,
                edgecolor="black" if compare else _LINE,
                linewidth=1.2 if compare else 0.6,
            )
            axes.add_patch(square)
    axes.text(8.74, 0.14, "scores", ha="center", fontsize=9)
    axes.annotate("", (9.85, 0.97), (9.42, 0.97), arrowprops=_arrow())
    _box(axes, (9.9, 0.57), (0.9, 0.8), "loss", learn)
    for middle, name in zip((2.5, 4.65, 7.9, 10.35), STAGES, strict=True):
        weight = "bold" if name in stages else "normal"
        axes.text(middle, 2.2, name, ha="center", fontsize=10, weight=weight)
    axes.set(xlim=(0, 11), ylim=(-0.1, 2.5))
    axes.axis("off")
    plots.show(figure, alt=_words(stages))


def _arrow() -> dict[str, object]:
    return {"arrowstyle": "-|>", "color": _LINE, "shrinkA": 0, "shrinkB": 0}


def _words(stages: set[str]) -> str:
    """The drawing in words, which name what is coloured."""
    told = "; ".join(f"{name}: {what}" for name, what in STAGES.items())
    if stages == set(STAGES):
        return f"The whole system from left to right. {told}."
    here = " and ".join(name for name in STAGES if name in stages) or "nothing"
    return f"The whole system from left to right, with {here} coloured. {told}."
