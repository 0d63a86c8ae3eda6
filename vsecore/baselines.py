"""Baselines without a training loop: chance, ridge regression to words, canonical correlation analysis."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix, hstack
from torch import Tensor

from vsecore.arguments import Count, Positive, checked
from vsecore.data.joining import mean_elements
from vsecore.data.splits import Split
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.word_vectors import load_vectors
from vsecore.data.words import tokenize
from vsecore.similarity import cosine


def chance_scores(test: Split, seed: int = 0) -> Tensor:
    """Draw uniform random similarities of a split's n pictures and Nc captions, (n, Nc)."""
    return torch.rand(len(test), len(test.captions), generator=torch.Generator().manual_seed(seed))


@checked
def ridge_scores(train: Split, test: Split, alpha: Positive = 1.0, minimum_count: Count = 5) -> Tensor:
    """Predict the words of a picture's captions from its mean element; compare by cosine: (n, Nc).

    Words are weighted by their rarity (tf-idf), and those in fewer training captions than `minimum_count` are
    left out; a picture's target is the mean over its captions, minus the mean over all pictures. `alpha` is
    the penalty on the weights. Captions stay sparse: COCO's would fill 45 GB otherwise; the weights fill a
    quarter of a gigabyte.
    """
    words, captions = _read(train, minimum_count)  # (Nc, V), sparse
    seen = _pooled(train)  # (n, F)
    mean = seen.mean(0, dtype=np.float64)  # (F,)
    x = seen - mean  # (n, F)   what sets each picture apart
    # W solves (XᵀX + alpha) W = XᵀY. Y, the means of the captions, need not be centred: X's rows add up to 0.
    products = _by_picture(captions, train).T @ (x / train.caption_counts[:, None])  # (V, F)
    weights = np.linalg.solve(x.T @ x + alpha * np.eye(len(mean)), products.T)  # (F, V)
    predicted = (_pooled(test) - mean) @ weights  # (n, V)
    predicted /= np.linalg.norm(predicted, axis=1, keepdims=True)
    read = words.transform(test.captions).astype(np.float32)  # (Nc, V), sparse
    return torch.from_numpy(np.ascontiguousarray((read @ predicted.T.astype(np.float32)).T))


@checked
def cca_scores(
    train: Split,
    test: Split,
    vectors: str | Path | None = None,
    width: Count = 150,
    picture_penalty: Positive = 3.0,
    word_penalty: Positive = 1.0,
    minimum_count: Count = 2,
) -> Tensor:
    """Find the directions in which pictures and captions vary together; compare there by cosine: (n, Nc).

    Canonical correlation analysis learns a joint space as VSE does, by two linear maps, but solves for the
    best ones at once. A picture is the mean of its elements, a caption its words, weighted by their rarity
    (tf-idf) and, with word vectors, also the mean of these: so words seen a few times are helped by those
    like them. Of `width` directions, the most correlated, each counts by its correlation, so that uncertain
    ones count little. A penalty, in units of the mean variance, is added to the variance of each direction of
    pictures, and another to that of words; it keeps directions of little variance from fitting noise.

    Source: Hotelling 1936; with penalties and weighted directions as in Gong et al. 2014; the square root of
    the features from Perronnin et al. 2010.
    """
    words, captions = _read(train, minimum_count)  # (Nc, V), sparse
    read = words.transform(test.captions)  # (Nc, V), sparse
    if vectors is not None:
        captions, read = _with_vectors([captions, read], words, vectors)  # (Nc, V + d)
    seen, counts = _pooled(train, root=True), train.caption_counts  # (n, F), (n,)
    picture_mean = np.average(seen, axis=0, weights=counts)  # (F,)   over the pairs, as is all that follows
    word_mean = np.asarray(captions.mean(0)).ravel()  # (V,)
    x = seen - picture_mean  # (n, F)
    of_pictures = x.T @ (x * counts[:, None])  # (F, F)
    of_words = (captions.T @ captions).toarray() - len(train.owner) * np.outer(word_mean, word_mean)  # (V, V)
    shared = _by_picture(captions, train).T @ x  # (V, F)
    left, right = _whitening(of_pictures, picture_penalty), _whitening(of_words, word_penalty)
    both = np.linalg.solve(right, np.linalg.solve(left, shared.T).T)  # (V, F)   correlations, all whitened
    squares, directions = np.linalg.eigh(both.T @ both)  # ascending
    directions = directions[:, ::-1][:, :width]  # (F, K)
    correlations = np.sqrt(squares[::-1][:width].clip(min=0))  # (K,)
    from_pictures = np.linalg.solve(left.T, directions) * correlations  # (F, K)
    from_words = np.linalg.solve(right.T, both @ directions)  # (V, K)   already times the correlations
    v = (_pooled(test, root=True) - picture_mean) @ from_pictures  # (n, K)
    t = read @ from_words - word_mean @ from_words  # (Nc, K)
    return cosine(torch.from_numpy(v), torch.from_numpy(t)).float()


def _read(train: Split, minimum_count: int) -> tuple[Any, Any]:
    """Return the words of the training captions, and these captions as sparse rows of tf-idf (Nc, V)."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # takes seconds, and only this needs it

    words = TfidfVectorizer(tokenizer=tokenize, token_pattern=None, min_df=minimum_count, sublinear_tf=True)
    return words, words.fit_transform(train.captions)


def _with_vectors(captions: Sequence[Any], words: Any, vectors: str | Path) -> list[Any]:
    """Append to captions (Nc, V) the weighted sum of their words' vectors: (Nc, V + d)."""
    vocabulary = Vocabulary(list(words.get_feature_names_out()))
    known = load_vectors(vectors, vocabulary)[0][-len(vocabulary.words) :].numpy()  # (V, d)
    known = known - known.mean(0)
    known /= 2 * np.linalg.norm(known, axis=1, keepdims=True)  # half the length of a word's own entry
    return [hstack([each, csr_matrix(each @ known)], format="csr") for each in captions]


def _whitening(products: np.ndarray, penalty: float) -> np.ndarray:
    """Return the Cholesky factor of sums of products (D, D), with the penalty added to each variance."""
    return np.linalg.cholesky(products + penalty * np.trace(products) / len(products) * np.eye(len(products)))


def _by_picture(captions: Any, split: Split) -> Any:
    """Return the sum of each picture's captions, (n, V), sparse as they are, (Nc, V)."""
    return csr_matrix((np.ones(len(split.owner)), (split.owner, np.arange(len(split.owner))))) @ captions


def _pooled(split: Split, root: bool = False) -> np.ndarray:
    """Return the mean of each picture's real elements, or its signed square `root`, of length one: (n, F)."""
    means = mean_elements(split)
    if root:
        means = np.sign(means) * np.sqrt(np.abs(means))
    return means / np.linalg.norm(means, axis=1, keepdims=True)
