"""Mining: the same as sorting every row and every column, whatever the blocks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import recipe, small_data, train

from vsecore.mining import load_negatives, mine, mine_offline_negatives
from vsecore.training import score_split


def collection(seed, pictures=9, dim=5, ties=True):
    """Vectors, and one to four captions a picture, in any order."""
    dice = np.random.default_rng(seed)
    owner = np.concatenate(
        [np.arange(pictures), dice.integers(pictures, size=int(dice.integers(3 * pictures)))]
    )
    dice.shuffle(owner)
    v, t = dice.normal(size=(pictures, dim)), dice.normal(size=(len(owner), dim))
    if ties:  # whole numbers, whose products are exact: most scores tie
        v, t = v.round(), t.round()
    return v.astype(np.float32), t.astype(np.float32), owner


def by_sorting(scores, owner, texts, pictures):
    """Sort every row and every column of (Ni, Nc) scores, and leave out what is the anchor's own."""
    n, captions = scores.shape
    texts = min(texts, captions - np.bincount(owner, minlength=n).max())
    pictures = min(pictures, n - 1)
    order = np.argsort(-scores, axis=1, kind="stable")
    other = np.argsort(-scores.T, axis=1, kind="stable")
    return (
        np.array([[c for c in order[p] if owner[c] != p][:texts] for p in range(n)]),
        np.array([[p for p in other[c] if owner[c] != p][:pictures] for c in range(captions)]),
    )


def same(found, wanted):
    return np.array_equal(found.texts, wanted[0]) and np.array_equal(found.pictures, wanted[1])


@given(
    seed=st.integers(0, 10_000),
    ties=st.booleans(),
    block=st.tuples(st.integers(1, 12), st.integers(1, 40)),
    texts=st.integers(1, 12),
    pictures=st.integers(1, 9),
)
@settings(max_examples=150, deadline=None)
def test_mining_is_sorting_whatever_the_blocks(seed, ties, block, texts, pictures):
    v, t, owner = collection(seed, ties=ties)
    found = mine_offline_negatives(v, t, owner, texts, pictures, block=block)
    assert found.texts.dtype == found.pictures.dtype == np.int32
    assert same(found, by_sorting(v @ t.T, owner, texts, pictures))


def test_a_trained_model_is_mined_and_kept(tmp_path):
    run, data = train(recipe()), small_data()
    found = mine(run.model, data.train, run.tokenizer, 7, 5, folder=tmp_path)
    scores = score_split(run.model, data.train, run.tokenizer).numpy()
    assert same(found, by_sorting(scores, data.train.owner, 7, 5))
    again = load_negatives(tmp_path, data.train)
    assert same(again, (found.texts, found.pictures))
    with pytest.raises(ValueError, match="texts: 7 in the folder, 8 now"):
        mine(run.model, data.train, run.tokenizer, 8, 5, folder=tmp_path)
    with torch.no_grad():
        next(run.model.parameters()).add_(1)
    with pytest.raises(ValueError, match="the model: not the same"):
        mine(run.model, data.train, run.tokenizer, 7, 5, folder=tmp_path)
