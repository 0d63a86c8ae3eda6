"""What needs no training loop: chance, and a ridge regression from pooled features to words.

They stand beside every trained system: a number above chance is not yet a good number.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vsecore.data.splits import Split
from vsecore.data.words import tokenize


def chance_scores(test: Split, seed: int = 0) -> Tensor:
    """Uniform random similarities of a split's n pictures and Nc captions, (n, Nc)."""
    return torch.rand(len(test), len(test.captions), generator=torch.Generator().manual_seed(seed))


def ridge_scores(train: Split, test: Split, alpha: float = 1.0, minimum_count: int = 5) -> Tensor:
    """Predict the words of a picture's captions from its mean element; compare with captions by cosine.

    Words are weighted by their rarity (tf-idf); a picture's target is the mean over its captions, less the
    mean over all pictures.

    Args:
        train: what the regression is fitted to.
        test: what is scored.
        alpha: the penalty on the weights, > 0.
        minimum_count: rarer words of the training captions are left out.

    Returns:
        Similarities of the n test pictures and Nc test captions, (n, Nc).
    """
    from sklearn.feature_extraction.text import TfidfVectorizer  # seconds of import, for this baseline alone
    from sklearn.linear_model import Ridge

    words = TfidfVectorizer(tokenizer=tokenize, token_pattern=None, min_df=minimum_count, sublinear_tf=True)
    captions = words.fit_transform(train.captions)  # (Nc, V), sparse
    target = np.zeros((len(train), captions.shape[1]), np.float32)  # (n, V)
    np.add.at(target, train.owner, captions.toarray().astype(np.float32))
    target /= np.bincount(train.owner, minlength=len(train))[:, None]
    model = Ridge(alpha=alpha).fit(_pooled(train), target - target.mean(0))
    predicted = model.predict(_pooled(test)).astype(np.float32)  # (n, V)   what is special about each picture
    predicted /= np.linalg.norm(predicted, axis=1, keepdims=True)
    return torch.from_numpy(predicted @ words.transform(test.captions).toarray().T.astype(np.float32))


def _pooled(split: Split) -> np.ndarray:
    """The mean of each picture's real elements, scaled to length one: (n, F)."""
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
