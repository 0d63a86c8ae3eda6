"""Maps of slots: the right colour on the right cell, absolute scales, nothing that does not fit."""

import numpy as np
import torch
from matplotlib.colors import to_rgb

from course import slot_maps
from course.plots import COLOURS

PIXELS = np.full((40, 40, 3), 200, np.uint8)


def test_a_cell_has_the_colour_of_the_slot_that_takes_it():
    upper = torch.arange(16) < 8  # a half of 4 × 4 cells
    drawn = slot_maps.painted(PIXELS, torch.stack([upper, ~upper]).float(), COLOURS[:2])
    assert drawn.shape == (40, 40, 3) and drawn.min() >= 0 and drawn.max() <= 1
    for pixel, colour in ((drawn[2, 20], COLOURS[0]), (drawn[-3, 20], COLOURS[1])):
        expected = np.array(to_rgb(colour))
        assert pixel.argmax() == expected.argmax(), "the slot's colour leads"


def test_what_no_slot_takes_is_the_picture_and_a_taken_cell_still_shows_it():
    picture = np.random.default_rng(0).integers(0, 255, (40, 40, 3)).astype(np.uint8)
    bare, full = (slot_maps.painted(picture, torch.full((1, 16), share), COLOURS[:1]) for share in (0.0, 1.0))
    np.testing.assert_allclose(bare, 0.3 + 0.7 * picture / 255, atol=1e-6)
    np.testing.assert_allclose(full, 0.38 * bare + 0.62 * np.array(to_rgb(COLOURS[0])), atol=1e-6)
