"""The baselines: chance knows nothing, and ridge learns words that the features hold."""

import numpy as np
import pytest
import torch

from vsecore.course.baselines import chance_scores, ridge_scores
from vsecore.data.splits import Split
from vsecore.evaluation import evaluate

WORDS = [f"word{number}" for number in range(30)]


def invented(name: str, count: int, seed: int, junk: float = 0.0) -> Split:
    """Pictures of three words each: real elements are linear in the words, padding is junk."""
    dice = np.random.default_rng(seed)
    looks = np.random.default_rng(0).standard_normal((len(WORDS), 40))
    chosen = [dice.choice(len(WORDS), 3, replace=False) for _ in range(count)]
    pictures = np.stack(
        [np.stack([looks[row].sum(0)] * 2 + [np.full(40, junk)]) for row in chosen]
    )  # (n, 3, 40)
    captions = [" ".join(WORDS[word] for word in row) for row in chosen]
    ids = [f"{name}{row}" for row in range(count)]
    return Split(name, pictures.astype(np.float32), captions, np.arange(count), ids, np.full(count, 2))


def test_ridge_reads_the_words_from_the_features() -> None:
    train, test = invented("train", 400, seed=1), invented("test", 50, seed=2)
    scores = ridge_scores(train, test)
    assert scores.shape == (50, 50)
    assert evaluate(scores, test.owner)["rsum"] > 500


def test_padding_never_changes_a_score() -> None:
    train, test = invented("train", 100, seed=1), invented("test", 20, seed=2)
    damaged = invented("test", 20, seed=2, junk=1e4)
    torch.testing.assert_close(ridge_scores(train, test), ridge_scores(train, damaged))


def test_chance_is_chance_and_repeats_itself() -> None:
    test = invented("test", 500, seed=2)
    assert torch.equal(chance_scores(test, 3), chance_scores(test, 3))
    assert evaluate(chance_scores(test), test.owner)["rsum"] == pytest.approx(2 * (0.2 + 1 + 2), abs=5)
