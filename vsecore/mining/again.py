"""Anchors whose best items are looked for once more, among all items."""

from __future__ import annotations

import torch
from torch import Tensor

from vsecore.mining.best import Best
from vsecore.mining.pairs import Own

CHUNK = 2**24
"""Numbers computed at a time."""


def search_again(
    found: Tensor, some: Tensor, anchors: Tensor, items: Tensor, own: Own, of_pictures: bool
) -> None:
    """Compare some anchors with every item, and put the keys of their best into `found`.

    Args:
        found: (n, k) keys, best first.
        some: the rows of those anchors, (s,).
        anchors: (n, D).
        items: (m, D).
        own: the true pairs.
        of_pictures: whether the anchors are the pictures.
    """
    for part in some.split(max(1, CHUNK // len(items))):
        best = Best(len(part), found.shape[1], found.device)
        scores = anchors[part] @ items.T  # (p, m)
        scores.masked_fill_(own.mask(part, of_pictures), -torch.inf)
        best.add(scores, 0, range(len(items)))
        found[part] = best.keep()
