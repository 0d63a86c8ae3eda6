"""The baselines: chance knows nothing; ridge and CCA learn words that the features hold."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.linalg import eigh
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge

from vsecore.baselines import cca_scores, chance_scores, ridge_scores
from vsecore.data.splits import Split
from vsecore.data.words import tokenize
from vsecore.evaluation import evaluate
from vsecore.similarity import cosine

WORDS = [f"word{number}" for number in range(30)]


def invented(name, count, seed, junk=0.0):
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


@pytest.mark.parametrize("alpha", [0.1, 1.0, 30.0])
def test_scores_are_those_of_dense_ridge(alpha):
    """scikit-learn's regression to the means of the captions, made dense; pictures have 1 to 3 captions."""
    train, test = invented("train", 120, seed=1), invented("test", 30, seed=2)
    more = [f"{caption} word3 odd" for caption in train.captions[:40]] + train.captions[30:50]
    owner = np.concatenate([train.owner, np.arange(40), np.arange(30, 50)])
    order = np.random.default_rng(3).permutation(len(owner))
    captions = [[*train.captions, *more][row] for row in order]
    train = replace(train, captions=captions, owner=owner[order])

    def seen(split):
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


def test_captions_are_never_made_dense(monkeypatch):
    from scipy import sparse

    for kind in (sparse.csr_matrix, sparse.csc_matrix):
        for name in ("toarray", "todense"):
            monkeypatch.setattr(kind, name, lambda self, *_, **__: pytest.fail("captions became dense"))
    ridge_scores(invented("train", 100, seed=1), invented("test", 20, seed=2))


def test_chance_is_chance_and_repeats_itself():
    test = invented("test", 500, seed=2)
    assert torch.equal(chance_scores(test, 3), chance_scores(test, 3))
    assert evaluate(chance_scores(test), test.owner)["rsum"] == pytest.approx(2 * (0.2 + 1 + 2), abs=5)


def test_cca_ignores_padding():
    train, test = invented("train", 100, seed=1), invented("test", 20, seed=2)
    noisy = invented("train", 100, seed=1, junk=1e3), invented("test", 20, seed=2, junk=1e3)
    assert torch.equal(cca_scores(train, test), cca_scores(*noisy))


def test_cca_solves_the_generalised_eigenvalue_problem():
    """Hotelling's formulation, on dense matrices of all pairs; pictures have one or two captions."""
    train, test = invented("train", 120, seed=1), invented("test", 30, seed=2)
    captions, owner = [*train.captions, *train.captions[:40]], np.concatenate([train.owner, np.arange(40)])
    train = replace(train, captions=captions, owner=owner)
    words = TfidfVectorizer(tokenizer=tokenize, token_pattern=None, min_df=2, sublinear_tf=True)
    t = words.fit_transform(captions).toarray()  # (Nc, V)

    def seen(split):
        means = split.pictures[:, :2].mean(1)
        rooted = np.sign(means) * np.sqrt(np.abs(means))
        return (rooted / np.linalg.norm(rooted, axis=1, keepdims=True)).astype(float)

    centre = seen(train)[owner].mean(0)
    x, y = (seen(train) - centre)[owner], t - t.mean(0)
    cx, cy, cxy = x.T @ x, y.T @ y, x.T @ y
    cx += 3.0 * np.trace(cx) / len(cx) * np.eye(len(cx))
    cy += np.trace(cy) / len(cy) * np.eye(len(cy))
    squares, pictures = eigh(cxy @ np.linalg.solve(cy, cxy.T), cx)
    squares, pictures = squares[::-1][:10], pictures[:, ::-1][:, :10]
    # The caption's direction is what predicts the picture's, scaled to unit variance; times the correlation.
    v = (seen(test) - centre) @ pictures * np.sqrt(squares)
    read = words.transform(test.captions).toarray() - t.mean(0)
    wanted = cosine(torch.from_numpy(v), torch.from_numpy(read @ np.linalg.solve(cy, cxy.T @ pictures)))
    assert torch.allclose(cca_scores(train, test, width=10).double(), wanted, atol=1e-4)


def test_cca_learns_of_a_rare_word_from_those_like_it(tmp_path):
    """Of two words that always mean the same, one is seen in training once."""
    train, test = invented("train", 300, seed=1), invented("test", 60, seed=2)
    captions = [
        caption.replace("word1 ", "twin ") if row == 0 else caption
        for row, caption in enumerate(train.captions)
    ]
    train = replace(train, captions=captions)
    test = replace(test, captions=[caption.replace("word1", "twin") for caption in test.captions])
    dice = np.random.default_rng(0)
    known = {word: dice.standard_normal(30) for word in WORDS}
    known["twin"] = known["word1"]
    path = tmp_path / "vectors.txt"
    path.write_text("".join(f"{word} {' '.join(map(str, vector))}\n" for word, vector in known.items()))
    plain, helped = (
        cca_scores(train, test, vectors, minimum_count=1, picture_penalty=0.1) for vectors in (None, path)
    )
    own = torch.arange(60)
    concerned = torch.tensor(["twin" in caption for caption in test.captions])
    assert (helped[own, own] - plain[own, own])[concerned].mean() > 0
