"""Anchors whose best items are looked for once more, among all items."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vsecore.mining.best import Best
from vsecore.mining.pairs import Own

CHUNK = 2**24
"""Numbers computed at a time."""
Rows = slice | Tensor
"""Which pictures, or which captions."""
Score = Callable[[Rows, Rows], Tensor]
"""Computes the scores of b pictures with c captions, (b, c) row after row; they may be overwritten, by the
caller and by the next call in the same thread."""


def search_again(
    found: Tensor, some: Tensor, score: Score, own: Own, block: tuple[int, int], of_pictures: bool
) -> None:
    """Compare some anchors with every item, and put the keys of their best into `found`.

    Args:
        found: (n, k) keys, best first.
        some: the rows of those anchors, (s,).
        score: computes a block of scores.
        own: the true pairs.
        block: how many pictures, and captions, are compared at a time; fewer anchors get more items.
        of_pictures: whether the anchors are the pictures.
    """
    if not len(some):
        return
    items = own.captions if of_pictures else own.pictures
    pairs = min(block[0], own.pictures) * min(block[1], own.captions)
    for part in some.split(max(1, min(block[0 if of_pictures else 1], CHUNK // items))):
        items_at_a_time = max(1, pairs // len(part))
        best = Best(len(part), found.shape[1], found.device)
        hidden = own.mask(part, of_pictures)  # (p, m)
        for start in range(0, items, items_at_a_time):
            here = slice(start, min(start + items_at_a_time, items))
            if of_pictures:
                scores, mask = score(part, here), hidden[:, here]
            else:
                scores, mask = score(here, part), hidden[:, here].T
            scores.masked_fill_(mask, -torch.inf)
            best.add(scores, 0, range(here.start, here.stop), dim=1 if of_pictures else 0)
        found[part] = best.keep()
