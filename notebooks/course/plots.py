"""Figures in one house style: quiet axes, colours that colour-blind readers can tell apart, words for all."""

import functools
import io
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from course.attention import word_maps as word_maps

P = ParamSpec("P")
Lines = Mapping[str, tuple[Sequence[float], Sequence[float]] | list[float] | np.ndarray]
"""Lines by their names: the x values and the y values of each, or y values alone, at 1, 2 and so on."""
Span = tuple[float, float, float]
"""A middle, and the low and the high end of its interval."""

# Okabe and Ito's palette for colour-blind readers, without its yellow, which is too light for lines on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Lines also differ by dash and marker, so that a figure survives a black-and-white printer.
DASHES = ("-", "--", "-.", ":", "-", "--", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def house_style() -> None:
    """Set matplotlib to the course's style, for this process. Safe to call twice."""
    plt.rcParams.update(
        {
            "figure.dpi": 110,
            "savefig.bbox": "tight",
            "figure.constrained_layout.use": True,
            "font.size": 10,
            "axes.titlesize": 11,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "grid.linewidth": 0.6,
            "legend.frameon": False,
            "lines.linewidth": 1.8,
            "axes.prop_cycle": plt.cycler(color=COLOURS),
            "image.cmap": "cividis",
        }
    )


def show(figure: Figure, alt: str) -> None:
    """Show a figure, and close it. `alt` says in a sentence or two what is shown and what is to be seen.

    These words are the plain-text form of the output: screen readers and the book's `alt` attribute take
    them, and the test of the stored notebooks compares them, since pixels differ between machines.
    """
    if len(alt.split()) < 4:
        raise ValueError(f"alt is {alt!r}; say in a sentence what the figure shows and what to see in it")
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    plt.close(figure)
    display({"image/png": picture.getvalue(), "text/plain": alt}, raw=True)


def shown(alt: str) -> Callable[[Callable[P, Figure]], Callable[P, None]]:
    """Make a function that draws a figure show it; its words, `alt`, may stand on several lines."""

    def showing(draw: Callable[P, Figure]) -> Callable[P, None]:
        @functools.wraps(draw)
        def draw_and_show(*given: P.args, **named: P.kwargs) -> None:
            show(draw(*given, **named), " ".join(alt.split()))

        return draw_and_show

    return showing


# ---------------------------------------------------------------- lines


def curves(
    axes: Axes,
    lines: Lines,
    *,
    x: str,
    y: str,
    title: str = "",
    legend: bool = True,
    order: Sequence[str] = (),
) -> None:
    """Draw named lines on `axes`; each has a colour, a dash and a marker of its own.

    `x` and `y` are the labels of the axes, with their units. Several lines get a legend, unless there is one
    elsewhere. `order` has the names of the lines of all panels, where some lack some of them, so that a name
    keeps its look.
    """
    order = list(order or lines)
    for name, line in lines.items():
        across, up = line if isinstance(line, tuple) else (range(1, len(line) + 1), line)
        style = order.index(name) % len(COLOURS)
        marker = MARKERS[style] if len(across) <= 40 else None
        look: dict[str, Any] = {"color": COLOURS[style], "linestyle": DASHES[style], "marker": marker}
        axes.plot(across, up, label=name, markersize=4, **look)
    axes.set(xlabel=x, ylabel=y, title=title)
    if legend and len(lines) > 1:
        axes.legend()


def curve(lines: Lines, *, x: str, y: str, alt: str) -> None:
    """Show named lines as a figure of their own; the arguments are those of `curves` and `show`."""
    figure, axes = plt.subplots(figsize=(5.6, 2.8))
    curves(axes, lines, x=x, y=y)
    show(figure, alt)


def curve_panels(
    panels: Mapping[str, Lines], *, x: str, size: tuple[float, float]
) -> tuple[Figure, list[Axes]]:
    """Draw lines in panels, two a row, with one legend above them all; return the figure and its panels.

    `panels` has the lines of each panel by the label of its y axis, and `size` is that of the figure, in
    inches.
    """
    figure, grid = plt.subplots(len(panels) // 2, 2, figsize=size, sharex=True, squeeze=False)
    order = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    for axes, (y, lines) in zip(grid.flat, panels.items(), strict=True):
        curves(axes, lines, x=x, y=y, legend=False, order=order)
    for axes in grid[:-1].flat:
        axes.set_xlabel("")  # it stands below them all
    handles, names = grid[0, 0].get_legend_handles_labels()
    ncols = 3 if len(names) == 5 else min(4, len(names))  # five names stand as three and two
    figure.legend(handles, names, loc="outside upper left", ncols=ncols)
    return figure, list(grid.flat)


def bands(axes: Axes, seeds: Mapping[str, np.ndarray], *, x: str, y: str) -> None:
    """Draw means over seeds, of (seeds, epochs) by name, as lines, shaded from the lowest to the highest."""
    curves(axes, {name: each.mean(0) for name, each in seeds.items()}, x=x, y=y)
    for each, colour in zip(seeds.values(), COLOURS, strict=False):
        epochs = range(1, each.shape[1] + 1)
        axes.fill_between(epochs, each.min(0), each.max(0), color=colour, alpha=0.2, linewidth=0)


# ---------------------------------------------------------------- rows


def name_rows(axes: Axes, names: Iterable[str], **text: Any) -> None:
    """Make an axis of rows 0, 1 and so on, the first on top; `text` is how their names look."""
    names = list(names)
    axes.set_yticks(range(len(names)), names, **text)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)


def spans(
    axes: Axes,
    rows: Mapping[str, Span],
    *,
    x: str = "",
    style: int = 0,
    shift: float = 0.0,
    label: str | None = None,
) -> None:
    """Draw a named row for each (middle, low, high): a marker and its interval, the first row on top.

    Where several kinds share the rows, `style` is the number of a kind's colour and marker, `shift` how far
    below their rows they stand, and `label` what the legend calls them.
    """
    colour, marker = COLOURS[style], MARKERS[style]
    for place, (middle, low, high) in enumerate(rows.values()):
        axes.plot([low, high], [place + shift] * 2, color=colour)
        axes.plot(middle, place + shift, marker, color=colour, label=None if place else label)
    name_rows(axes, rows)
    axes.set_xlabel(x)


# ---------------------------------------------------------------- pictures


def bare(*panels: Axes) -> None:
    """Take ticks, grid and frame off."""
    for axes in panels:
        axes.grid(False)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)


def draw_picture(axes: Axes, pixels: np.ndarray, title: str = "") -> None:
    """Draw a picture, uint8 (H, W, 3), with nothing around it but a title."""
    bare(axes)
    axes.imshow(pixels, interpolation="lanczos")
    axes.set_title(title, fontsize=10)


def heat_on(axes: Axes, pixels: np.ndarray, heat: np.ndarray, title: str = "", **style: Any) -> AxesImage:
    """Lay what cells count, (rows, columns), over a picture in grey, so that only the heat has colours.

    A cell is one wide and one high. The heat is returned for a colour bar, and `style` is its `norm`, or
    `vmin` and `vmax`, as `imshow` takes them.
    """
    bare(axes)
    rows, columns = heat.shape
    axes.imshow(pixels.mean(-1), extent=(0, columns, rows, 0), interpolation="lanczos", cmap="gray")
    axes.set_title(title, fontsize=10)
    return axes.imshow(heat, extent=(0, columns, rows, 0), cmap="viridis", alpha=0.68, **style)


def picture_row(
    pictures: Sequence[np.ndarray],
    titles: Sequence[str],
    *,
    marked: Sequence[bool] | None = None,
    heading: str = "",
    columns: int = 5,
) -> Figure:
    """Lay pictures out in rows of so many columns, each with a title under it, and a heading above all.

    The `marked` ones, which are the right answers, get a frame and a tick.
    """
    columns = min(columns, len(pictures))
    rows = -(-len(pictures) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(2.1 * columns, 2.6 * rows), squeeze=False)
    bare(*grid.flat)
    for index, axes in enumerate(grid.flat):
        if index >= len(pictures):
            axes.set_visible(False)
            continue
        right = marked is not None and bool(marked[index])
        axes.imshow(pictures[index], interpolation="lanczos")
        words = textwrap.fill(("✓ " if right else "") + titles[index], 30)
        axes.set_xlabel(words, fontsize=8.5, labelpad=6)
        axes.spines[:].set(visible=right, color=COLOURS[2], linewidth=3)
    if heading:
        figure.suptitle(heading, fontsize=11)
    return figure


def heatmap(
    axes: Axes,
    values: np.ndarray,
    *,
    names: tuple[Sequence[object], Sequence[object]] = ((), ()),
    label: str | None = None,
    written: Callable[[Any], str] | None = None,
    **style: Any,
) -> AxesImage:
    """Draw a matrix in colours, and return the image, for a colour bar of several panels.

    `names` are those of the rows and of the columns; where there are none, they are numbered. `label` says
    what a colour means, beside a colour bar. `written` makes the text in the cell of a value, such as
    "{:.0f}".format. `style` is as `imshow` takes it.
    """
    if values.min() < 0 < values.max():  # two directions from nothing: two colours, and nothing is white
        reach = float(np.abs(values).max())
        style = {"cmap": "PuOr_r", "vmin": -reach, "vmax": reach} | style
    image = axes.imshow(values, **{"aspect": "auto"} | style)
    axes.grid(False)
    for axis, these in zip((axes.yaxis, axes.xaxis), names, strict=True):
        if these:
            axis.set_ticks(range(len(these)), [str(name) for name in these])
    if written:
        light = image.to_rgba(values)[..., :3].mean(-1) > 0.5  # (rows, columns)
        for (row, column), value in np.ndenumerate(values):
            ink = "black" if light[row, column] else "white"
            axes.text(column, row, written(value), ha="center", va="center", fontsize=9, color=ink)
    if label is not None:
        axes.figure.colorbar(image, ax=axes, label=label)
    return image
