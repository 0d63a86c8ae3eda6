"""Mining by the inner product of vectors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.mining.best import Best
from vsecore.mining.pairs import Own

BUDGET = 2**28
"""Bytes that a block of scores, and what is made of it, may take."""
BYTES = 24
"""Of each score of a block, at most: the score, and what is made of it."""


@torch.inference_mode()
def mine_offline_negatives(
    images: Tensor | np.ndarray,
    captions: Tensor | np.ndarray,
    owner: Tensor | np.ndarray,
    texts: int = 300,
    pictures: int = 60,
    *,
    block: int | tuple[int, int] | None = None,
    budget: int = BUDGET,
) -> OfflineNegatives:
    """Find the captions that score highest with each picture, and the pictures for each caption.

    A score is the inner product of the two vectors in float32, which for unit vectors is the cosine. The
    search is exact: it looks at every pair, in blocks, and each block serves both directions. A true pair is
    never among the negatives. Among equal scores the lower row comes first.

    Args:
        images: (Ni, D), on any device.
        captions: (Nc, D), on the same device.
        owner: the picture of each caption, (Nc,), in any order; pictures may have different numbers of
            captions.
        texts: how many captions each picture gets. If some picture has fewer negatives, all get that many.
        pictures: how many pictures each caption gets; if there are fewer, all of them.
        block: how many pictures are compared with how many captions at a time; a single number means both.
            None: chosen by the budget. The answer does not depend on it.
        budget: how many bytes a block, and what is made of it, may take if `block` is None.

    Returns:
        Rows, int32: texts (Ni, k) and pictures (Nc, k), hardest first.

    Raises:
        ValueError: shapes do not fit, a number is NaN or infinite, or there are no negatives.

    Source: Chen, Deng and Luo 2020 (AOQ), section 3.2.
    """
    v, t = _checked("images", images), _checked("captions", captions)
    if v.shape[1] != t.shape[1] or v.device != t.device:
        raise ValueError(
            f"captions is {tuple(t.shape)} on {t.device}: it must have the width and the device of images, "
            f"{tuple(v.shape)} on {v.device}"
        )
    own = Own(owner, len(v), len(t))
    rows, columns = _block(block, len(v), len(t), budget)
    texts, pictures = own.most(texts, pictures)
    best_texts, best_pictures = Best(len(v), texts, v.device), Best(len(t), pictures, v.device)
    for top in range(0, len(v), rows):
        for left in range(0, len(t), columns):
            scores = v[top : top + rows] @ t[left : left + columns].T  # (b, c)
            own.leave_out(scores, top, left)
            best_texts.add(scores, top, left)
            best_pictures.add(scores.T.contiguous(), left, top)
    return OfflineNegatives(best_texts.rows.cpu().numpy(), best_pictures.rows.cpu().numpy())


def _checked(name: str, vectors: Tensor | np.ndarray) -> Tensor:
    """Return vectors as float32, after checking them."""
    x = torch.as_tensor(vectors).detach()
    if x.ndim != 2 or 0 in x.shape or not x.is_floating_point():
        raise ValueError(f"{name} is {x.dtype} {tuple(x.shape)}: it must be floats (rows, D), none of them 0")
    x = x.float()
    if not x.isfinite().all():
        raise ValueError(f"{name} holds NaN or infinity: it must be finite numbers")
    return x


def _block(block: int | tuple[int, int] | None, pictures: int, captions: int, budget: int) -> tuple[int, int]:
    """Return how many pictures and captions to compare at a time."""
    if block is None:
        rows = min(pictures, 1024)
        return rows, max(1, min(captions, budget // (BYTES * rows)))
    rows, columns = (block, block) if isinstance(block, int) else block
    if min(rows, columns) < 1:
        raise ValueError(f"block is {block}: it must be at least 1")
    return rows, columns
