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
        assert pixel.argmax() == expected.argmax(), "the slot's colour leads"


def test_what_no_slot_takes_is_the_picture_and_a_taken_cell_still_shows_it() -> None:
    picture = np.random.default_rng(0).integers(0, 255, (40, 40, 3)).astype(np.uint8)
    bare, full = (slot_maps.painted(picture, torch.full((1, 16), share), COLOURS[:1]) for share in (0.0, 1.0))
    np.testing.assert_allclose(bare, 0.3 + 0.7 * picture / 255, atol=1e-6)
    np.testing.assert_allclose(full, 0.38 * bare + 0.62 * np.array(to_rgb(COLOURS[0])), atol=1e-6)


def test_every_slot_and_round_has_a_panel_and_a_true_caption_a_tick() -> None:
    shares = halves().expand(3, 2, 16)
    figure = slot_maps.slot_rounds(PIXELS, shares, ["a red kite", "a dog"], [True, False])
    said = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert len(figure.axes) == 2 + 2 * 3 + 2 and said == ["✓ a red kite", "nearest caption", "✗ a dog"]
    plt.close(figure)


def test_points_have_a_colour_a_slot_and_a_marker_a_side() -> None:
    figure = slot_maps.map_of_sets(np.arange(16.0).reshape(8, 2), slots=2)  # two pictures, two captions
    (axes,) = figure.axes
    drawn = [line for line in axes.lines if line.get_marker() != "None" and len(line.get_xdata())]
    looks = {(line.get_color(), line.get_marker()): line.get_xydata()[:, 0].tolist() for line in drawn}
    assert looks == {
        (COLOURS[0], "o"): [0, 4],
        (COLOURS[1], "o"): [2, 6],
        (COLOURS[0], "^"): [8, 12],
        (COLOURS[1], "^"): [10, 14],
    }
    joined = [line for line in axes.lines if line.get_marker() == "None"]
    assert len(joined) == 4, "a line joins the vectors of each set"
    assert len(figure.legends[0].get_texts()) == 4
    plt.close(figure)


def test_tables_of_pairs_say_what_is_small_and_what_is_nothing() -> None:
    shares = torch.tensor([[0.9997, 0.0003], [0.0, 0.0]])
    figure = slot_maps.pair_tables(torch.eye(2), {"MIL": shares})
    assert [text.get_text() for text in figure.axes[1].texts] == ["100.0", "<0.1", "0", "0"]
    assert figure.axes[0].texts[0].get_text() == "1.00"
    plt.close(figure)
