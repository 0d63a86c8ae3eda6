"""Baselines without a training loop: chance, and a ridge regression from pooled features to words.

Every trained system is compared with them: a number above chance is not yet a good number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsecore.data.splits import Split
from vsecore.data.words import tokenize

BLOCK = 4096
"""How many rows are converted to float64 at a time."""


def chance_scores(test: Split, seed: int = 0) -> Tensor:
    """Uniform random similarities of a split's n pictures and Nc captions, (n, Nc)."""
    return torch.rand(len(test), len(test.captions), generator=torch.Generator().manual_seed(seed))


def ridge_scores(train: Split, test: Split, alpha: float = 1.0, minimum_count: int = 5) -> Tensor:
    """Predict the words of a picture's captions from its mean element; compare with captions by cosine.

    Words are weighted by their rarity (tf-idf); a picture's target is the mean over its captions, minus the
    mean over all pictures. Captions stay sparse: COCO's would fill 45 GB otherwise; its weights fill a
    quarter of one.

    Args:
        train: what the regression is fitted to; its pictures are features.
        test: what is scored; its pictures are features too.
        alpha: the penalty on the weights, > 0.
        minimum_count: rarer words of the training captions are left out.

    Returns:
        Similarities of the n test pictures and Nc test captions, (n, Nc).

    Raises:
        ValueError: alpha is not positive, or pictures are pixels.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer  # takes seconds, and only this needs it

    if not alpha > 0:
        raise ValueError(f"alpha is {alpha}: wanted a positive number")
    words = TfidfVectorizer(tokenizer=tokenize, token_pattern=None, min_df=minimum_count, sublinear_tf=True)
    captions = words.fit_transform(train.captions)  # (Nc, V), sparse
    seen = _pooled(train)  # (n, F)
    weights = _ridge_weights(seen, captions, train.owner, alpha)  # (F, V)
    unusual = _pooled(test) - seen.mean(0, dtype=np.float64)  # (n, F)   what sets each picture apart
    predicted = unusual @ weights  # (n, V)
    predicted /= np.linalg.norm(predicted, axis=1, keepdims=True)
    read = words.transform(test.captions).astype(np.float32)  # (Nc, V), sparse
    return torch.from_numpy(np.ascontiguousarray((read @ predicted.T.astype(np.float32)).T))


def _ridge_weights(seen: np.ndarray, captions: Any, owner: np.ndarray, alpha: float) -> np.ndarray:
    """The weights of a ridge regression from pictures to the mean of their captions, both centred.

    With X the centred pictures and Y the means, they solve (XᵀX + alpha) W = XᵀY. Y need not be centred,
    since the rows of X add up to zero, and need not be built: each caption adds its share to XᵀY.

    Args:
        seen: pictures, (n, F).
        captions: sparse, (Nc, V).
        owner: the picture of each caption, (Nc,).
        alpha: the penalty.

    Returns:
        (F, V) float64.
    """
    mean = seen.mean(0, dtype=np.float64)  # (F,)
    share = 1 / np.bincount(owner, minlength=len(seen))  # (n,)
    gram = alpha * np.eye(seen.shape[1])  # (F, F)
    products = np.zeros((captions.shape[1], seen.shape[1]))  # (V, F)
    for start in range(0, len(seen), BLOCK):
        x = seen[start : start + BLOCK] - mean  # (b, F)
        gram += x.T @ x
    for start in range(0, len(owner), BLOCK):
        pictures = owner[start : start + BLOCK]
        x = (seen[pictures] - mean) * share[pictures, None]  # (b, F)
        products += captions[start : start + BLOCK].T @ x
    return np.linalg.solve(gram, products.T)


def _pooled(split: Split) -> np.ndarray:
    """The mean of each picture's real elements, scaled to length one: (n, F)."""
    if split.has_pixels:
        raise ValueError(f"split {split.name!r} holds pixels: wanted features (pictures, elements, width)")
    means = np.empty((len(split), split.pictures.shape[2]), np.float32)
    for start in range(0, len(split), 256):
        rows = np.arange(start, min(start + 256, len(split)))
        block = np.asarray(split.pictures[rows], np.float32)  # (b, N, F)
        counts = (
            np.full(len(rows), block.shape[1]) if split.picture_counts is None else split.picture_counts[rows]
        )
        real = np.arange(block.shape[1]) < counts[:, None]  # (b, N)
        means[rows] = (block * real[..., None]).sum(1) / counts[:, None]
    return means / np.linalg.norm(means, axis=1, keepdims=True)
