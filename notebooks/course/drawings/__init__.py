"""What the notebooks draw: the whole system here, and their own figures in a module for each subject."""

from collections.abc import Iterable

import matplotlib.pyplot as plt

from course import plots
from course.sketch import Colour, arrow, box, canvas

STAGES = {  # what each stage does, for the words of the drawing
    "encode": "two encoders turn a picture and a caption into elements, one vector each",
    "pool": "a pool makes one vector of the elements of each side",
    "compare": "in one space, the cosine of every picture with every caption gives a matrix of scores",
    "learn": "a loss wants the scores on the diagonal, those of true pairs, to be the largest",
}
_QUIET, _LINE = "#EDEDED", "#6B6B6B"


def system(lit: str | Iterable[str] = tuple(STAGES)) -> None:
    """Show the whole system as a small drawing, with the stages of this notebook coloured, or else all.

    The stages are "encode", "pool", "compare" and "learn".
    """
    stages = {lit} if isinstance(lit, str) else set(lit)
    if unknown := sorted(stages - set(STAGES)):
        raise ValueError(f"lit has {unknown}; the stages are {', '.join(STAGES)}")
    figure, axes = canvas((5.7, 2.0), (0, 11), (-0.1, 2.5))
    blue, orange = plots.COLOURS[:2]
    # What is coloured where its stage is lit: a fill, and the colour and the width of its frame.
    lit_look: tuple[Colour, str, float] = ("#FFE1A8", "black", 1.8)
    look = {name: lit_look if name in stages else (_QUIET, _LINE, 0.9) for name in STAGES}

    def part(stage: str, middle: tuple[float, float], size: tuple[float, float], text: str) -> None:
        fill, edge, width = look[stage]
        box(axes, middle, size, text, fill, edgecolor=edge, linewidth=width)

    for y, source, encoder in ((1.55, "picture", "image\nencoder"), (0.4, "caption", "caption\nencoder")):
        axes.text(0.42, y, source, ha="center", va="center", fontsize=9, style="italic")
        part("encode", (2.0, y), (1.4, 0.8), encoder)
        for row in range(4):  # the elements, then the one vector that a pool makes of them
            axes.plot([3.15, 3.65], [y - 0.3 + 0.2 * row] * 2, color=blue, linewidth=4)
        part("pool", (4.65, y), (0.9, 0.8), "pool")
        axes.plot([5.42, 5.85], [y, y], color=orange, linewidth=4)
        for start, end in ((1.04, 1.28), (2.72, 3.08), (3.75, 4.18), (5.1, 5.35)):
            arrow(axes, (start, y), (end, y), _LINE)
        arrow(axes, (5.95, y), (6.36, 0.97 + 0.12 * (y - 0.9)), _LINE)
    part("compare", (7.2, 0.97), (1.64, 1.1), "one space:\ncosine")
    arrow(axes, (8.03, 0.97), (8.27, 0.97), _LINE)
    other, edge, width = ("#D5E4EF", "black", 1.2) if "compare" in stages else (_QUIET, _LINE, 0.6)
    for row in range(4):
        for column in range(4):
            place, fill = (8.32 + 0.3 * column, 1.27 - 0.3 * row), blue if row == column else other
            square = plt.Rectangle(place, 0.3, 0.3, fc=fill, ec=edge, lw=width, snap=False)
            axes.add_patch(square)
    axes.text(8.91, 0.14, "scores", ha="center", va="top", fontsize=9)
    arrow(axes, (9.57, 0.97), (9.98, 0.97), _LINE)
    part("learn", (10.47, 0.97), (0.9, 0.8), "loss")
    for middle, name in zip((2.0, 4.65, 7.9, 10.47), STAGES, strict=True):
        axes.text(middle, 2.2, name, ha="center", weight="bold" if name in stages else "normal")
    here = " and ".join(name for name in STAGES if name in stages) or "nothing"
    coloured = "" if stages == set(STAGES) else f", with {here} coloured"
    told = "; ".join(f"{name}: {what}" for name, what in STAGES.items())
    plots.show(figure, alt=f"The whole system from left to right{coloured}. {told}.")
