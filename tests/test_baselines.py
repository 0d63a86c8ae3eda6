"""The baselines: chance knows nothing, and ridge learns words that the features hold."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge

from vsecore import baselines
from vsecore.baselines import chance_scores, ridge_scores
from vsecore.data.splits import Split
from vsecore.data.words import tokenize
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


@pytest.mark.parametrize("alpha", [0.1, 1.0, 30.0])
def test_scores_are_those_of_dense_ridge(alpha: float) -> None:
    """scikit-learn's regression to the means of the captions, made dense; pictures have 1 to 3 captions."""
    train, test = invented("train", 120, seed=1), invented("test", 30, seed=2)
    more = [f"{caption} word3 odd" for caption in train.captions[:40]] + train.captions[30:50]
    owner = np.concatenate([train.owner, np.arange(40), np.arange(30, 50)])
    order = np.random.default_rng(3).permutation(len(owner))
    captions = [[*train.captions, *more][row] for row in order]
    train = replace(train, captions=captions, owner=owner[order])

    def seen(split: Split) -> np.ndarray:
        means = split.pictures[:, :2].mean(1)
        return means / np.linalg.norm(means, axis=1, keepdims=True)

    words = TfidfVectorizer(tokenizer=tokenize, token_pattern=None, min_df=5, sublinear_tf=True)
    read = words.fit_transform(train.captions).toarray()  # (Nc, V)
    target = np.stack([read[train.owner == picture].mean(0) for picture in range(len(train))])  # (n, V)
    model = Ridge(alpha=alpha).fit(seen(train).astype(float), target)
    predicted = model.predict(seen(test).astype(float)) - target.mean(0)
    predicted /= np.linalg.norm(predicted, axis=1, keepdims=True)
    wanted = predicted @ words.transform(test.captions).toarray().T
    scores = ridge_scores(train, test, alpha=alpha)
    assert scores.dtype == torch.float32
    np.testing.assert_allclose(scores, wanted, atol=2e-6)


def test_ridge_is_the_same_in_blocks_and_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = invented("train", 100, seed=1), invented("test", 20, seed=2)
    once = ridge_scores(train, test)
    monkeypatch.setattr(baselines, "BLOCK", 7)
    torch.testing.assert_close(ridge_scores(train, test), once, atol=1e-6, rtol=0)


def test_captions_are_never_made_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy import sparse

    for kind in (sparse.csr_matrix, sparse.csc_matrix):
        for name in ("toarray", "todense"):
            monkeypatch.setattr(kind, name, lambda self, *_, **__: pytest.fail("captions became dense"))
    ridge_scores(invented("train", 100, seed=1), invented("test", 20, seed=2))


def test_what_ridge_cannot_read_is_refused() -> None:
    train, test = invented("train", 100, seed=1), invented("test", 20, seed=2)
    with pytest.raises(ValueError, match="alpha is 0"):
        ridge_scores(train, test, alpha=0)
    pixels = replace(test, pictures=np.zeros((20, 3, 8, 8), np.uint8), picture_counts=None)
    with pytest.raises(ValueError, match="split 'test' holds pixels"):
        ridge_scores(train, pixels)


def test_padding_never_changes_a_score() -> None:
    train, test = invented("train", 100, seed=1), invented("test", 20, seed=2)
    damaged = invented("test", 20, seed=2, junk=1e4)
    torch.testing.assert_close(ridge_scores(train, test), ridge_scores(train, damaged))


def test_chance_is_chance_and_repeats_itself() -> None:
    test = invented("test", 500, seed=2)
    assert torch.equal(chance_scores(test, 3), chance_scores(test, 3))
    assert evaluate(chance_scores(test), test.owner)["rsum"] == pytest.approx(2 * (0.2 + 1 + 2), abs=5)
