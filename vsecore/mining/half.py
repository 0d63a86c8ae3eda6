"""Half precision finds candidates fast; float32 decides.

Why the answer is the float32 one. Write a', b' for vectors a, b rounded to half precision. Then

    a'·b' - a·b = (a' - a)·b' + a·(b' - b),

which by Cauchy and Schwarz is at most |a' - a| |b'| + |a| |b' - b|. These lengths are measured, so that
numbers too small or too large for the precision are accounted for. Summing D products in float32 adds at most
D 2^-24 |a'| |b'|, whatever the order; we allow twice that, since a GPU may cut off instead of rounding. The
float32 answer itself is off by no more than the same with |a| |b|. `bound` adds these up. At last the product
is rounded to half precision. Rounding keeps the order, so a score that came out as at most s was at most
s + rounding(s), and one that came out as s was at least s - rounding(s). Here rounding(s) is u|s|, with u =
2^-8 for bfloat16 and 2^-11 for float16, plus the smallest normal number, below which the precision ends.

So let a list hold more than k candidates, the k-th with score s, the last with score r. Each item outside
came out as at most r. If r + rounding(r) + bound < s - rounding(s) - bound, none of them can reach the k
best: only candidates need a float32 score. An anchor for which this does not hold is compared with every item
again, in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vsecore.mining.again import CHUNK, Score, search_again
from vsecore.mining.best import keys_of, rows_of, scores_of
from vsecore.mining.pairs import Own


def bound(anchors: Tensor, items: Tensor, dtype: torch.dtype) -> Tensor:
    """Bound how far an anchor's half-precision scores, before they are rounded, are from float32's: (n,)."""
    a, b = anchors.to(dtype).float(), items.to(dtype).float()
    size, item = anchors.norm(dim=1), float(items.norm(dim=1).max())  # (n,)
    rounded, rounded_item = a.norm(dim=1), float(b.norm(dim=1).max())
    lost, lost_item = (a - anchors).norm(dim=1), float((b - items).norm(dim=1).max())
    summing = 2 * anchors.shape[1] * 2.0**-24
    total = lost * rounded_item + size * lost_item + summing * (rounded * rounded_item + size * item)
    return 1.001 * total  # the lengths themselves are computed in float32


def rounding(scores: Tensor, dtype: torch.dtype) -> Tensor:
    """Bound how far rounding to half precision can have moved these scores."""
    kind = torch.finfo(dtype)
    return kind.eps / 2 * scores.abs() + kind.smallest_normal


def settle(
    keys: Tensor,
    k: int,
    anchors: Tensor,
    items: Tensor,
    own: Own,
    of_pictures: bool,
    dtype: torch.dtype,
    score: Score,
    block: tuple[int, int],
) -> Tensor:
    """Return the float32 keys of the k best items, of candidates that half precision has found.

    Args:
        keys: the candidates' keys (n, more than k), best first.
        k: how many to keep.
        anchors: (n, D) float32.
        items: (m, D) float32.
        own: the true pairs.
        of_pictures: whether the anchors are the pictures.
        dtype: of the half-precision scores.
        score: computes a block of float32 scores.
        block: how many pictures, and captions, it compares at a time.

    Returns:
        (n, k) keys, best first.
    """
    reached, last = scores_of(keys[:, k - 1]), scores_of(keys[:, -1])  # (n,) each
    error = bound(anchors, items, dtype)
    certain = last + rounding(last, dtype) + error < reached - rounding(reached, dtype) - error
    found = keys.new_empty(len(keys), k)
    size = max(1, CHUNK // (keys.shape[1] * items.shape[1]))
    for part in certain.nonzero().squeeze(1).split(size):
        rows = rows_of(keys[part])  # (p, c)
        exact = (items[rows] @ anchors[part].unsqueeze(2)).squeeze(2)
        found[part] = keys_of(exact, rows).topk(k, dim=1).values
    search_again(found, (~certain).nonzero().squeeze(1), score, own, block, of_pictures)
    return found
