"""Mining by the inner product of vectors."""

import numpy as np
import torch
from torch import Tensor

from vsecore.arguments import Count, checked
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.evaluation import check_owner
from vsecore.mining.blocks import Search, workers_on
from vsecore.mining.topk import rows_of

BUDGET = 2**28
"""Bytes that a block of scores, and what is made of it, may take; on a CPU each thread has one."""
BYTES = 64
"""Of each score of a block, at most: the score, and what is made of it."""
ROWS = 1024
"""Pictures of a block, at most."""


@checked
@torch.inference_mode()
def mine_offline_negatives(
    images: Tensor | np.ndarray,
    captions: Tensor | np.ndarray,
    owner: Tensor | np.ndarray,
    texts: Count = 300,
    pictures: Count = 60,
    *,
    block: Count | tuple[Count, Count] | None = None,
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
            None: as many as fit into `BUDGET`. The answer does not depend on it.

    Returns:
        Rows, int32: texts (Ni, k) and pictures (Nc, k), hardest first.

    Raises:
        ValueError: shapes do not fit, a number is NaN or infinite, scores would exceed float32, an option is
            not among those allowed, or there are no negatives.

    Source: Chen, Deng and Luo 2020 (AOQ), section 3.2.
    """
    v, t = _finite("images", images), _finite("captions", captions)
    if v.shape[1] != t.shape[1] or v.device != t.device:
        raise ValueError(
            f"captions is {tuple(t.shape)} on {t.device}: it must have the width and the device of images, "
            f"{tuple(v.shape)} on {v.device}"
        )
    # No score, nor a part of its sum, exceeds the product of the lengths.
    if not float(v.norm(dim=1).max()) * float(t.norm(dim=1).max()) < torch.finfo(torch.float32).max / 4:
        raise ValueError("images and captions are so long that scores would not be finite: scale them down")
    if block is None:
        rows = min(len(v), ROWS)
        block = rows, BUDGET // (BYTES * rows)
    size = block if isinstance(block, tuple) else (block, block)

    def score(pictures: slice, captions: slice) -> Tensor:
        return v[pictures] @ t[captions].T  # (b, c)

    with torch.autocast(v.device.type, enabled=False):  # else some products would be in half precision
        search = Search(score, check_owner(owner, len(v), len(t)), len(v), (texts, pictures), size, v.device)
        found = search.run(workers_on(v.device))
    return OfflineNegatives(*(rows_of(keys).cpu().numpy() for keys in found))


def _finite(name: str, vectors: Tensor | np.ndarray) -> Tensor:
    """Return vectors as float32, after checking them."""
    x = torch.as_tensor(vectors).detach()
    if x.ndim != 2 or 0 in x.shape or not x.is_floating_point():
        raise ValueError(f"{name} is {x.dtype} {tuple(x.shape)}: wanted floats (rows, D), none of them 0")
    if not x.isfinite().all():
        raise ValueError(f"{name} holds NaN or infinity: wanted finite numbers")
    return x.float()
