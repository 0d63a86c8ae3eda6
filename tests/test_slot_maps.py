"""Maps of slots: the right colour on the right cell, absolute scales, nothing that does not fit."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from course import slot_maps
from course.plots import COLOURS

PIXELS = np.full((40, 40, 3), 200, np.uint8)


@pytest.fixture(autouse=True)
def no_window() -> None:
    plt.switch_backend("agg")


def halves() -> torch.Tensor:
    """Two slots on a grid of 4 by 4: one takes the upper half, the other the lower; (2, 16)."""
    upper = torch.zeros(4, 4)
    upper[:2] = 1
    return torch.stack([upper.flatten(), 1 - upper.flatten()])


def test_a_cell_has_the_colour_of_the_slot_that_takes_it() -> None:
    drawn = slot_maps.painted(PIXELS, halves(), COLOURS[:2])
    assert drawn.shape == (40, 40, 3) and drawn.min() >= 0 and drawn.max() <= 1
    for pixel, colour in ((drawn[2, 20], COLOURS[0]), (drawn[-3, 20], COLOURS[1])):
        expected = np.array(to_rgb(colour))
        np.testing.assert_allclose(pixel / pixel.sum(), expected / expected.sum(), atol=1e-6)


def test_what_no_slot_takes_stays_grey() -> None:
    drawn = slot_maps.painted(PIXELS, torch.zeros(1, 16), COLOURS[:1])
    assert np.ptp(drawn, axis=2).max() == 0 and drawn.min() > 0.4


def test_every_slot_and_round_has_a_panel_and_a_true_caption_a_tick() -> None:
    shares = halves().expand(3, 2, 16)
    figure = slot_maps.slot_rounds(PIXELS, shares, ["a red kite", "a dog"], [True, False])
    said = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert len(figure.axes) == 2 + 2 * 3 + 2 and said == ["✓ a red kite", "nearest caption", "✗ a dog"]
    plt.close(figure)


def test_modules_stand_side_by_side_in_one_row_a_picture() -> None:
    maps = {"one": halves()[None].expand(2, 2, 16), "other": halves()[None].expand(2, 2, 16)}
    figure = slot_maps.slot_rows([PIXELS, PIXELS], maps)
    seen = [axes for axes in figure.axes if axes.get_visible()]
    assert len(seen) == 2 * (1 + 2 + 2)
    assert {axes.get_title("left") or axes.get_title() for axes in seen} == {"", "one", "other"}
    plt.close(figure)


def test_points_have_a_colour_a_slot_and_a_marker_a_side() -> None:
    figure, axes = plt.subplots()
    points = np.arange(16.0).reshape(8, 2)
    slot_maps.set_points(axes, points, np.tile([0, 1], 4), np.arange(8) >= 4)
    assert len(axes.collections) == 4
    sizes = [float(drawn.get_sizes()[0]) for drawn in axes.collections]
    assert sizes[0] > sizes[1], "a later slot lies over the earlier ones and must leave a ring of them"
    slot_maps.slot_legend(figure, 2)
    assert len(figure.legends[0].get_texts()) == 4
    plt.close(figure)


def test_tables_of_pairs_say_what_is_small_and_what_is_nothing() -> None:
    shares = torch.tensor([[0.9997, 0.0003], [0.0, 0.0]])
    figure = slot_maps.pair_tables(torch.eye(2), {"MIL": shares})
    assert [text.get_text() for text in figure.axes[1].texts] == ["100.0", "<0.1", "0", "0"]
    assert figure.axes[0].texts[0].get_text() == "1.00"
    plt.close(figure)
