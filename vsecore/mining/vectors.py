"""Mining by the inner product of vectors.

On a GPU half precision finds candidates fast, and float32 decides. Why the answer is the float32 one: write
a', b' for vectors a, b rounded to bfloat16. Then

    a'·b' - a·b = (a' - a)·b' + a·(b' - b),

which by Cauchy and Schwarz is at most |a' - a| |b'| + |a| |b' - b|; these lengths are measured. Summing D
products in float32 adds at most D 2^-24 |a'| |b'|, whatever the order; we allow twice that, since a GPU may
cut off instead of rounding. The float32 answer itself is off by no more than the same with |a| |b|. `bound`
adds these up. At last the product is rounded to bfloat16. Rounding keeps the order, so a score that came out
as at most s was at most s + rounding(s), and one that came out as s was at least s - rounding(s), where
rounding(s) is 2^-8 |s| plus the smallest normal number, below which the precision ends.

So let a list hold more than k candidates, the k-th with score s, the last with score r. Each item outside
came out as at most r. If r + rounding(r) + bound < s - rounding(s) - bound, none of them can reach the k
best: only candidates need a float32 score. An anchor for which this does not hold is compared with every item
again, in float32.
"""

from __future__ import annotations

import threading
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.mining.blocks import CHUNK, Rows, Score, Search, TruePairs, workers_on
from vsecore.mining.topk import SPARE, keys_of, rows_of, scores_of

HALF = torch.bfloat16
BUDGET = 2**28
"""Bytes that a block of scores, and what is made of it, may take."""
BYTES = 64
"""Of each score of a block, at most: the score, and what is made of it."""
ROWS = 1024
"""Pictures of a block, at most: its captions are then so many that they are a good sample."""


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
    precision: Literal["auto", "float32", "bfloat16"] = "auto",
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
        budget: how many bytes a block, and what is made of it, may take if `block` is None. On a CPU each of
            torch's threads has a block of its own.
        precision: of the products that find candidates. What bfloat16 cannot decide, float32 does, so that
            the answer is float32's. "auto" takes bfloat16 on a GPU.

    Returns:
        Rows, int32: texts (Ni, k) and pictures (Nc, k), hardest first.

    Raises:
        ValueError: shapes do not fit, a number is NaN or infinite, scores would exceed float32, an option is
            not among those allowed, or there are no negatives.

    Source: Chen, Deng and Luo 2020 (AOQ), section 3.2.
    """
    if precision not in ("auto", "float32", "bfloat16"):
        raise ValueError(f'precision is {precision!r}: wanted "auto", "float32" or "bfloat16"')
    v, t = _checked("images", images), _checked("captions", captions)
    if v.shape[1] != t.shape[1] or v.device != t.device:
        raise ValueError(
            f"captions is {tuple(t.shape)} on {t.device}: it must have the width and the device of images, "
            f"{tuple(v.shape)} on {v.device}"
        )
    # No score, nor a part of its sum, exceeds the product of the lengths.
    if not float(v.norm(dim=1).max()) * float(t.norm(dim=1).max()) < torch.finfo(torch.float32).max / 4:
        raise ValueError("images and captions are so long that scores would not be finite: scale them down")
    pairs = TruePairs(owner, len(v), len(t))
    size = _block(block, budget, len(v), len(t))
    kept, workers = pairs.at_most(texts, pictures), workers_on(v.device)
    with torch.autocast(v.device.type, enabled=False):  # else some products would be in half precision
        search = Search(_product(v, t, size), pairs, kept, size, v.device)
        if precision == "bfloat16" or (precision == "auto" and v.device.type == "cuda"):
            wide = pairs.at_most(texts + max(texts // 2, SPARE), pictures + max(pictures // 2, SPARE))
            found = _candidates(v.to(HALF), t.to(HALF), pairs, wide, size, workers)
            keys = (
                _decided(found[0], kept[0], v, t, search, True),
                _decided(found[1], kept[1], t, v, search, False),
            )
        else:
            keys = search.run(workers)
    return OfflineNegatives(rows_of(keys[0]).cpu().numpy(), rows_of(keys[1]).cpu().numpy())


def _candidates(
    v: Tensor, t: Tensor, pairs: TruePairs, kept: tuple[int, int], size: tuple[int, int], workers: int
) -> tuple[Tensor, Tensor]:
    """Search in half precision, with partial sums in float32, as the bound supposes."""
    settings = torch.backends.cuda.matmul
    before = settings.allow_bf16_reduced_precision_reduction
    settings.allow_bf16_reduced_precision_reduction = False
    try:
        return Search(_product(v, t, size), pairs, kept, size, v.device).run(workers)
    finally:
        settings.allow_bf16_reduced_precision_reduction = before


def _decided(
    keys: Tensor, k: int, anchors: Tensor, items: Tensor, search: Search, of_pictures: bool
) -> Tensor:
    """Return the float32 keys of the k best items, (n, k), best first.

    `keys` (n, k or more) are those of the candidates that half precision has found; anchors (n, D) and items
    (m, D) are float32. The anchors that are not certain are compared by `search`.
    """
    reached, last = scores_of(keys[:, k - 1]), scores_of(keys[:, -1])  # (n,) each
    error = bound(anchors, items)
    certain = last + rounding(last) + error < reached - rounding(reached) - error
    found = keys.new_empty(len(keys), k)
    size = max(1, CHUNK // (keys.shape[1] * items.shape[1]))
    for part in certain.nonzero().squeeze(1).split(size):
        rows = rows_of(keys[part])  # (p, c)
        exact = (items[rows] @ anchors[part].unsqueeze(2)).squeeze(2)
        found[part] = keys_of(exact, rows).topk(k, dim=1).values
    search.search_again(found, (~certain).nonzero().squeeze(1), of_pictures)
    return found


def bound(anchors: Tensor, items: Tensor) -> Tensor:
    """Bound how far an anchor's bfloat16 scores, before they are rounded, are from float32's: (n,)."""
    a, b = anchors.to(HALF).float(), items.to(HALF).float()
    size, item = anchors.norm(dim=1), float(items.norm(dim=1).max())  # (n,)
    rounded, rounded_item = a.norm(dim=1), float(b.norm(dim=1).max())
    lost, lost_item = (a - anchors).norm(dim=1), float((b - items).norm(dim=1).max())
    summing = 2 * anchors.shape[1] * 2.0**-24
    total = lost * rounded_item + size * lost_item + summing * (rounded * rounded_item + size * item)
    return 1.001 * total  # the lengths themselves are computed in float32


def rounding(scores: Tensor) -> Tensor:
    """Bound how far rounding to bfloat16 can have moved these scores."""
    return torch.finfo(HALF).eps / 2 * scores.abs() + torch.finfo(HALF).smallest_normal


def _product(v: Tensor, t: Tensor, block: tuple[int, int]) -> Score:
    """Return what computes blocks of the product v tᵀ; each thread always in the same memory."""
    memory = threading.local()

    def score(pictures: Rows, captions: Rows) -> Tensor:
        if not hasattr(memory, "numbers"):  # fresh memory for each block would cost time
            memory.numbers = v.new_empty(min(block[0], len(v)) * min(block[1], len(t)))
        some, others = v[pictures], t[captions]
        out = memory.numbers[: len(some) * len(others)].view(len(some), len(others))
        return torch.mm(some, others.T, out=out)  # (b, c)

    return score


def _checked(name: str, vectors: Tensor | np.ndarray) -> Tensor:
    """Return vectors as float32, after checking them."""
    x = torch.as_tensor(vectors).detach()
    if x.ndim != 2 or 0 in x.shape or not x.is_floating_point():
        raise ValueError(f"{name} is {x.dtype} {tuple(x.shape)}: wanted floats (rows, D), none of them 0")
    if not x.isfinite().all():
        raise ValueError(f"{name} holds NaN or infinity: wanted finite numbers")
    return x.float()


def _block(block: int | tuple[int, int] | None, budget: int, pictures: int, captions: int) -> tuple[int, int]:
    """Return how many pictures and captions to compare at a time."""
    if block is None:
        rows = min(pictures, ROWS)
        return rows, max(1, min(captions, budget // (BYTES * rows)))
    rows, columns = block if isinstance(block, tuple) else (block, block)
    if not (isinstance(rows, int) and isinstance(columns, int) and rows >= 1 and columns >= 1):
        raise ValueError(f"block is {block!r}: wanted one whole number, or two, at least 1")
    return rows, columns
