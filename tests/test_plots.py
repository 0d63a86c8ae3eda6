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


def test_a_heatmap_with_two_signs_is_white_at_nothing() -> None:
    _, axes = plt.subplots()
    plots.heatmap(axes, np.array([[-1.0, 3.0]]), x="x", y="y", label="push")
    assert axes.images[0].get_clim() == (-3.0, 3.0)


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
