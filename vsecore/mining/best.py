"""The best items of many anchors, kept while blocks of scores go by."""

from __future__ import annotations

import torch
from torch import Tensor

NOTHING = torch.iinfo(torch.int64).min
"""The key of a place that no item has taken yet."""
LAST = 2**31 - 1


class Best:
    """The k items that score highest with each anchor, of all items seen so far.

    A score and an item's row make one whole number, the key, which sorts as we want: higher scores first,
    and among equal scores the lower row first. So every set of scores has exactly one answer.

    Items must come in the order of their rows: then an item that ties with the k-th best is never better.

    Args:
        anchors: how many there are.
        k: how many items each keeps.
        device: where the scores are.
    """

    def __init__(self, anchors: int, k: int, device: torch.device | str = "cpu") -> None:
        self.k = k
        self.keys = torch.full((anchors, k), NOTHING, dtype=torch.int64, device=device)  # descending

    @property
    def lowest(self) -> Tensor:
        """The score that an item must exceed to be kept, (anchors,): the k-th best; -inf before that."""
        return scores_of(self.keys[:, -1])

    @property
    def rows(self) -> Tensor:
        """The rows of the items, best first: (anchors, k) int32."""
        return (LAST - (self.keys & 0xFFFFFFFF)).to(torch.int32)

    def add(self, scores: Tensor, first_anchor: int, first_item: int) -> None:
        """Look at a block of scores (a, c): those of some anchors in a row with some items in a row.

        A score of -inf says that the item must not be kept.
        """
        here = slice(first_anchor, first_anchor + len(scores))
        lowest = self.lowest[here]
        if scores.shape[1] > self.k:  # the block's own k-th best is a bound too
            own = scores.topk(self.k, dim=1, sorted=False).values.amin(1)  # (a,)
            better = (scores >= own[:, None]) & (scores > lowest[:, None])  # (a, c)
        else:
            better = scores > lowest[:, None]
        anchor, item = better.nonzero(as_tuple=True)  # (n,) each, anchor after anchor
        if not len(anchor):
            return
        counts = better.sum(1)  # (a,)
        place = torch.arange(len(anchor), device=scores.device) - (counts.cumsum(0) - counts)[anchor]
        found = self.keys.new_full((len(scores), int(counts.max())), NOTHING)
        found[anchor, place] = keys_of(scores[anchor, item], first_item + item)
        self.keys[here] = torch.cat([self.keys[here], found], 1).topk(self.k, dim=1).values


def keys_of(scores: Tensor, rows: Tensor) -> Tensor:
    """Make whole numbers (int64) that sort by float32 score, and by row, lower first, where scores tie."""
    bits = (scores.float() + 0.0).view(torch.int32)  # adding 0 turns -0 into 0, with which it ties
    ordered = torch.where(bits < 0, bits ^ LAST, bits)  # sorts as the scores do
    return (ordered.long() << 32) | (LAST - rows.long())


def scores_of(keys: Tensor) -> Tensor:
    """Return the float32 scores that are in keys; -inf for `NOTHING`."""
    ordered = (keys >> 32).to(torch.int32)
    bits = torch.where(ordered < 0, ordered ^ LAST, ordered)
    return torch.where(keys == NOTHING, -torch.inf, bits.view(torch.float32))
