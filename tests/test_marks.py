"""Numbered pictures: the number is where it is asked for, on the picture or in its captions."""

from dataclasses import replace

import numpy as np
import pytest

from course.marks import MARKS, Marks
from vsecore import scenes


@pytest.fixture(scope="module")
def data():
    return scenes.load(40, 6, 6, features="region")


@pytest.fixture(scope="module")
def marks(data):
    return Marks(data, seed=3)


def test_every_picture_has_a_number_and_another_one(data, marks):
    own, other = marks.numbers(data.train)
    assert set(own) == set(range(MARKS)) and (own != other).all()
    assert other.min() >= 0 and other.max() < MARKS
    assert (marks.numbers(data.train)[1] == other).all()
    assert (Marks(data, seed=4).numbers(data.train)[1] != other).any()


def test_captions_name_the_number_that_they_are_given_or_none(data, marks):
    own, other = marks.numbers(data.train)
    for numbers in (own, other):
        for text, picture in zip(marks.captions(data.train, numbers), data.train.owner, strict=True):
            assert f"umber {numbers[picture]}" in text
    assert not any("umber" in text for text in marks.captions(data.train))


def test_the_tag_is_one_more_element_with_the_drawn_pixels_and_the_rest_stays(data, marks):
    own, _ = marks.numbers(data.train)
    before, after = data.train, marks.lay(data.train, own, own)
    counts = np.asarray(before.picture_counts)
    assert (after.picture_counts == counts + 1).all()
    x, y = (np.asarray(split.pictures[np.arange(40)], dtype=np.float32) for split in (before, after))
    assert y.shape == (40, x.shape[1] + 1, x.shape[2])
    for picture, count in enumerate(counts):
        assert (y[picture, :count] == x[picture, :count]).all()
        tag = y[picture, count, :154]
        assert np.corrcoef(tag, marks.tags[own[picture]])[0, 1] > 0.999
        assert not y[picture, count, 154:].any() and not y[picture, count + 1 :].any()
    assert len(np.unique(marks.tags, axis=0)) == MARKS


def test_photographs_get_their_number_at_the_end(data):
    photographs = replace(data, name="flickr8k")
    own, _ = Marks(photographs).numbers(data.dev)
    said = Marks(photographs).captions(data.dev, own)
    assert said[0] == data.dev.captions[0].rstrip(" .") + ", number 0."
    assert said[-1].endswith(f", number {own[-1]}.")
