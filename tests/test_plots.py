"""Figures: they need words, and the house style keeps lines apart without colour."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from course import plots, widgets


@pytest.fixture(autouse=True)
def no_window():
    plt.switch_backend("agg")
    plots.house_style()


def test_a_figure_without_words_is_refused():
    figure, _ = plt.subplots()
    with pytest.raises(ValueError, match="alt"):
        plots.show(figure, alt="a plot")


def test_the_shown_figure_carries_its_words(monkeypatch):
    shown = []
    monkeypatch.setattr(plots, "display", lambda data, raw: shown.append(data))
    figure, axes = plt.subplots()
    axes.plot([0, 1])
    plots.show(figure, alt="A line that rises from left to right.")
    assert shown[0]["text/plain"] == "A line that rises from left to right."
    assert shown[0]["image/png"].startswith(b"\x89PNG")
    assert not plt.fignum_exists(figure.number)


def test_lines_differ_by_more_than_colour():
    _, axes = plt.subplots()
    lines = {str(number): ([0, 1], [number, number]) for number in range(len(plots.COLOURS))}
    plots.curves(axes, lines, x="step", y="loss")
    looks = [(line.get_linestyle(), line.get_marker()) for line in axes.lines]
    assert len(set(looks)) == len(looks)
    assert axes.get_xlabel() == "step" and axes.get_legend() is not None


def test_a_band_reaches_from_the_lowest_seed_to_the_highest():
    _, axes = plt.subplots()
    plots.bands(axes, {"a": np.array([[1.0, 2.0], [3.0, 6.0]])}, x="epoch", y="rsum")
    assert axes.lines[0].get_xydata().tolist() == [[1, 2], [2, 4]]
    assert axes.collections[0].get_paths()[0].get_extents().intervaly.tolist() == [1, 6]


def test_the_search_box_answers_and_tells_mistakes(capsys):
    asked = []

    def answer(sentence):
        asked.append(sentence)
        if sentence == "wrong":
            raise ValueError("unknown word")

    box = widgets.search_box(answer).children[0]
    box.value = "two dogs"
    box.value = "wrong"
    assert asked == ["two dogs", "wrong"]
    assert "unknown word" in capsys.readouterr().out
