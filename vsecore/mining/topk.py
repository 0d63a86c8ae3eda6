"""The k best items of many anchors, kept while blocks of scores go by.

Selecting must cost little beside the matrix product that makes the scores. So a block is compared once with a
floor for each anchor, a score that k of the items seen so far reach. Few scores pass; only those are
collected, in a buffer, and when it is full its k best remain and the floor rises.
"""

import numpy as np
import torch
from torch import Tensor

EMPTY = torch.iinfo(torch.int64).min
"""The key of a place that no item has taken."""
LAST_ROW = 2**31 - 1
SPARE = 64
"""Places in a buffer beyond the k best, at least."""
LOWEST = torch.finfo(torch.float32).min
"""A floor that every score reaches, except -inf, which marks what must not be kept."""


class TopK:
    """The k items that score highest with each anchor, of all items seen so far, in any order.

    A score and an item's row make one whole number, the key, which sorts as we want: higher scores first,
    and among equal scores the lower row first. So every set of scores has exactly one answer.
    """

    def __init__(self, anchors: int, k: int, device: torch.device | str = "cpu") -> None:
        self.k, self.width = k, k + max(k, SPARE)
        self.keys = torch.full((anchors, self.width), EMPTY, dtype=torch.int64, device=device)
        self.used = torch.zeros(anchors, dtype=torch.int64, device=device)
        self.floor = torch.full((anchors,), LOWEST, device=device)

    def add(self, scores: Tensor, first_anchor: int, first_item: int, dim: int = 1) -> None:
        """Look at a block of scores: those of some anchors in a row with some items, from the first of each.

        Scores are (a, c), in memory row after row, or with dim 0, the dimension of the items, (c, a); -inf
        where an item must not be kept.
        """
        anchors, columns = scores.shape[1 - dim], scores.shape[1]
        here = slice(first_anchor, first_anchor + anchors)
        if float(self.floor[first_anchor]) == LOWEST and scores.shape[dim] >= self.k:
            kth = largest(scores if dim else scores.T.contiguous(), self.k).amin(1)  # (a,)
            self.floor[here] = torch.maximum(self.floor[here], kth)
        reached = scores >= self.floor[here].unsqueeze(dim)
        if reached.device.type == "cpu":  # in a third of torch's time, where little is true
            place = torch.from_numpy(np.flatnonzero(reached.numpy()))  # (n,)
        else:
            place = reached.view(-1).nonzero().squeeze(1)
        if not len(place):
            return
        row = place // columns
        anchor, item = (row, place - row * columns) if dim else (place - row * columns, row)
        keys = keys_of(scores.reshape(-1).index_select(0, place), first_item + item)
        if not dim:
            order = anchor.argsort(stable=True)
            anchor, keys = anchor.index_select(0, order), keys.index_select(0, order)
        self._collect(here, anchor, keys)

    def best(self) -> Tensor:
        """Return the keys of the k best of each anchor, best first, then `EMPTY`: (anchors, k)."""
        for start in range(0, len(self.keys), 4096):
            here = slice(start, start + 4096)
            self._prune(here, self.keys[here])
        return descending(self.keys[:, : self.k])

    def restore(self, keys: Tensor) -> None:
        """Take up the keys that an earlier `best` returned."""
        self._prune(slice(None), keys.to(self.keys.device))
        self.used = (self.keys != EMPTY).sum(1)

    def _collect(self, here: slice, anchor: Tensor, keys: Tensor) -> None:
        """Put keys (n,) into the buffers of their anchors, (n,) ascending, counted from the slice's first."""
        used = self.used[here]
        counts = anchor.bincount(minlength=len(used))  # (a,)
        fits = int((used + counts).max()) <= self.width
        if fits:
            table, begin = self.keys[here], used
        else:
            table = keys.new_full((len(used), int(counts.max())), EMPTY)
            begin = torch.zeros_like(used)
        begin = begin + torch.arange(len(used), device=keys.device) * table.shape[1]
        begin -= counts.cumsum(0) - counts  # the number of an anchor's first key among all of these
        rank = torch.arange(len(keys), device=keys.device)
        table.view(-1).scatter_(0, begin.index_select(0, anchor) + rank, keys)
        self.used[here] += counts
        if not fits:
            self._prune(here, torch.cat([self.keys[here], table], 1))

    def _prune(self, here: slice, keys: Tensor) -> None:
        """Keep only the k best of these keys (a, n), and raise the floor to the lowest of them."""
        best = largest(keys, self.k)  # (a, k)
        least = best.amin(1)
        short = (least == EMPTY).nonzero().squeeze(1)
        if len(short):  # the empty places come last, where the next items go
            best[short] = best[short].sort(dim=1, descending=True).values
        self.keys[here, : self.k] = best
        self.keys[here, self.k :] = EMPTY
        self.used[here] = self.used[here].clamp(max=self.k)
        self.floor[here] = torch.maximum(self.floor[here], scores_of(least))


def largest(x: Tensor, k: int) -> Tensor:
    """Return the k largest numbers of each row (a, n), in any order: (a, k).

    On a CPU by numpy, which moves only the numbers; `topk` also moves their places, and takes four times as
    long.
    """
    if x.device.type != "cpu":
        return x.topk(k, dim=1, sorted=False).values
    return torch.from_numpy(np.partition(x.numpy(), x.shape[1] - k, axis=1)[:, -k:])


def descending(keys: Tensor) -> Tensor:
    """Return each row's keys (a, k), largest first; on a CPU by numpy, in a sixth of the time of `sort`."""
    if keys.device.type != "cpu":
        return keys.sort(dim=1, descending=True).values
    return torch.from_numpy(np.sort(keys.numpy(), axis=1)[:, ::-1].copy())


def keys_of(scores: Tensor, rows: Tensor) -> Tensor:
    """Make whole numbers (int64) that sort by float32 score, and by row, lower first, where scores tie."""
    bits = (scores.float() + 0.0).view(torch.int32)  # adding 0 turns -0 into 0, with which it ties
    ordered = torch.where(bits < 0, bits ^ LAST_ROW, bits)  # sorts as the scores do
    return (ordered.long() << 32) | (LAST_ROW - rows.long())


def scores_of(keys: Tensor) -> Tensor:
    """Return the float32 scores that are in keys; -inf for `EMPTY`."""
    ordered = (keys >> 32).to(torch.int32)
    bits = torch.where(ordered < 0, ordered ^ LAST_ROW, ordered)
    return torch.where(keys == EMPTY, -torch.inf, bits.view(torch.float32))


def rows_of(keys: Tensor) -> Tensor:
    """Return the rows of the items in keys, int32."""
    return (LAST_ROW - (keys & 0xFFFFFFFF)).to(torch.int32)
