"""Figures: they need words, and the house style keeps lines apart without colour."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from course import drawings, plots, widgets


@pytest.fixture(autouse=True)
def no_window() -> None:
    plt.switch_backend("agg")
    plots.house_style()


def test_a_figure_without_words_is_refused() -> None:
    figure, _ = plt.subplots()
    with pytest.raises(ValueError, match="alt"):
        plots.show(figure, alt="a plot")


def test_the_shown_figure_carries_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    monkeypatch.setattr(plots, "display", lambda data, raw: shown.append(data))
    figure, axes = plt.subplots()
    axes.plot([0, 1])
    plots.show(figure, alt="A line that rises from left to right.")
    assert shown[0]["text/plain"] == "A line that rises from left to right."
    assert shown[0]["image/png"].startswith(b"\x89PNG")
    assert not plt.fignum_exists(figure.number)


def test_the_drawing_of_the_whole_says_which_stage_is_lit(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    monkeypatch.setattr(plots, "display", lambda data, raw: shown.append(data["text/plain"]))
    drawings.system()
    drawings.system("pool")
    drawings.system(["learn", "compare"])
    starts = (
        "The whole system from left to right. ",
        "with pool coloured",
        "with compare and learn coloured",
    )
    assert all(start in words for start, words in zip(starts, shown, strict=True))
    with pytest.raises(ValueError, match="'guess'"):
        drawings.system("guess")


def test_only_the_boxes_of_a_lit_stage_are_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[plt.Figure] = []
    monkeypatch.setattr(plots, "show", lambda figure, alt: figures.append(figure))
    drawings.system("pool")
    (axes,) = figures[0].axes
    lit = [patch for patch in axes.patches if patch.get_linewidth() == 1.8]
    assert [round(patch.get_x() + patch.get_width() / 2, 2) for patch in lit] == [4.65, 4.65]
    plt.close(figures[0])


def test_lines_differ_by_more_than_colour() -> None:
    _, axes = plt.subplots()
    lines = {str(number): ([0, 1], [number, number]) for number in range(len(plots.COLOURS))}
    plots.curves(axes, lines, x="step", y="loss")
    looks = [(line.get_linestyle(), line.get_marker()) for line in axes.lines]
    assert len(set(looks)) == len(looks)
    assert axes.get_xlabel() == "step" and axes.get_legend() is not None


def test_marked_pictures_get_a_tick() -> None:
    pictures = [np.zeros((8, 8, 3), np.uint8)] * 3
    figure = plots.picture_row(pictures, ["a", "b", "c"], marked=[True, False, True], columns=2, heading="x")
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels[:3] == ["✓ a", "b", "✓ c"] and not figure.axes[3].get_visible()


def test_a_heatmap_with_two_signs_is_white_at_nothing_and_writes_so_that_it_can_be_read() -> None:
    _, axes = plt.subplots()
    names = (["row"], ["left", "right"])
    plots.heatmap(axes, np.array([[-0.5, 3.0]]), names=names, label="push", written="{:.1f}".format)
    assert axes.images[0].get_clim() == (-3.0, 3.0)
    written = [(text.get_text(), text.get_color()) for text in axes.texts]
    assert written == [("-0.5", "black"), ("3.0", "white")]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["left", "right"]


def test_rows_stand_from_the_top_and_kinds_beside_each_other() -> None:
    _, axes = plt.subplots()
    rows = {"a": (2.0, 1.0, 3.0), "b": (5.0, 4.0, 6.0)}
    plots.spans(axes, rows, x="rsum")
    plots.spans(axes, rows, style=1, shift=0.2)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "b"] and axes.get_ylim() == (
        1.5,
        -0.5,
    )
    interval, middle = axes.lines[6:]
    assert interval.get_xydata().tolist() == [[4.0, 1.2], [6.0, 1.2]]
    assert [*middle.get_xdata(), *middle.get_ydata()] == [5.0, 1.2] and middle.get_marker() == plots.MARKERS[
        1
    ]


def test_panels_share_one_legend_and_a_name_keeps_its_look() -> None:
    lines = {"x": ([1], [1]), "y": ([1], [2])}
    figure, (left, right) = plots.curve_panels(
        {"up": lines, "across": {"y": lines["y"]}}, x="step", size=(6, 3)
    )
    assert right.lines[0].get_color() == left.lines[1].get_color() and right.get_ylabel() == "across"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["x", "y"]
    assert left.get_legend() is None
    plt.close(figure)


def test_a_band_reaches_from_the_lowest_seed_to_the_highest() -> None:
    _, axes = plt.subplots()
    plots.bands(axes, {"a": np.array([[1.0, 2.0], [3.0, 6.0]])}, x="epoch", y="rsum")
    assert axes.lines[0].get_xydata().tolist() == [[1, 2], [2, 4]]
    assert axes.collections[0].get_paths()[0].get_extents().intervaly.tolist() == [1, 6]


def test_heat_has_the_colours_and_the_picture_is_grey() -> None:
    _, axes = plt.subplots()
    heat = plots.heat_on(axes, np.full((8, 8, 3), (0, 90, 255), np.uint8), np.eye(2), "word", vmax=3)
    assert axes.images[0].get_array().ndim == 2 and axes.images[1] is heat and heat.get_clim()[1] == 3
    assert axes.images[0].get_extent() == heat.get_extent() == [0, 2, 2, 0]


def test_the_search_box_answers_and_tells_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    asked = []

    def answer(sentence: str) -> None:
        asked.append(sentence)
        if sentence == "wrong":
            raise ValueError("unknown word")

    box = widgets.search_box(answer, start="a dog").children[0]
    box.value = "two dogs"
    box.value = "wrong"
    assert asked == ["two dogs", "wrong"]
    assert "unknown word" in capsys.readouterr().out
