"""The best items of many anchors, kept while blocks of scores go by.

Selecting must cost little beside the matrix product that makes the scores. So a block is compared once with a
floor for each anchor: a score that k items reach. Few scores pass, and only those are collected, in a buffer;
when it is full, the k best of it remain, and the floor rises.

A floor that is known from the first block alone lets many pass: of n items about k ln(n / k), since it rises
step by step. If the first block is a fair sample of all items, the floor can be guessed. Of 4,000 items from
100,000, about 12 are among the best 300, and hardly ever 24. So 300 of all items almost surely reach the
sample's 24th best score, and only about twice as many do. Whether the guess was right shows at the end:
either k items reached it, and then the best of them are the answer; or places are left empty, and the anchor
must be searched again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

NOTHING = torch.iinfo(torch.int64).min
"""The key of a place that no item has taken yet."""
LAST = 2**31 - 1
THREAD = 2**16
"""Numbers that are worth a thread of their own."""
SPARE = 64
"""Places in a buffer beyond the k best, at least."""


class Best:
    """The k items that score highest with each anchor, of all items seen so far.

    A score and an item's row make one whole number, the key, which sorts as we want: higher scores first,
    and among equal scores the lower row first. So every set of scores has exactly one answer.

    Without `dealt`, the items of an anchor must come in the order of their rows: then an item that ties with
    the k-th best so far is never better.

    Args:
        anchors: how many there are.
        k: how many items each keeps.
        device: where the scores are.
        dealt: how many items there are, if each block holds a fair sample of them; they may come in any
            order. Then the floors are guessed, and an anchor whose guess was too high has empty places left.
    """

    def __init__(
        self, anchors: int, k: int, device: torch.device | str = "cpu", dealt: int | None = None
    ) -> None:
        self.k, self.width, self.dealt = k, k + max(k, SPARE), dealt
        self.keys = torch.full((anchors, self.width), NOTHING, dtype=torch.int64, device=device)
        self.used = torch.zeros(anchors, dtype=torch.int64, device=device)
        self.begun = np.zeros(anchors, dtype=bool)  # whether an anchor has seen items
        lowest = torch.finfo(torch.float32).min  # -inf marks what must not be kept
        self.floor = torch.full((anchors,), lowest, dtype=torch.float32, device=device)
        self.least = torch.full((anchors,), NOTHING, dtype=torch.int64, device=device)  # key of the k-th best

    def add(self, scores: Tensor, first_anchor: int, items: range, dim: int = 1) -> None:
        """Look at a block of scores: those of some anchors in a row with some items in a row.

        Args:
            scores: (a, c), in memory row after row; -inf where an item must not be kept.
            first_anchor: the number of the first anchor.
            items: the rows of the items.
            dim: the dimension of the items: 1; or 0 for scores (c, a).
        """
        anchors = scores.shape[1 - dim]
        here = slice(first_anchor, first_anchor + anchors)
        if not self.begun[here].any():
            self.begun[here] = True
            rank = self.k if self.dealt is None else likely_rank(self.k, len(items), self.dealt)
            self.floor[here] = torch.maximum(self.floor[here], _kth_at_least(scores, rank, dim))
        place = _nonzero(scores, self.floor[here].unsqueeze(dim))  # (n,)
        if not len(place):
            return
        columns = scores.shape[1]
        row = place // columns
        anchor, item = (row, place - row * columns) if dim else (place - row * columns, row)
        keys = keys_of(scores.reshape(-1).index_select(0, place), items.start + items.step * item)
        if self.dealt is not None:  # of many items that tie with the floor, only lower rows are better
            better = keys > self.least[here].index_select(0, anchor)
            if not better.all():
                anchor, keys = anchor[better], keys[better]
        if not dim:
            order = _order(anchor, anchors)
            anchor, keys = anchor.index_select(0, order), keys.index_select(0, order)
        self._collect(here, anchor, keys)

    def keep(self) -> Tensor:
        """Return the keys of the k best of each anchor, best first, then `NOTHING`: (anchors, k)."""
        for start in range(0, len(self.keys), 4096):
            here = slice(start, start + 4096)
            self._prune(here, self.keys[here])
        return _descending(self.keys[:, : self.k])

    def restore(self, keys: Tensor, floor: Tensor) -> None:
        """Take up the keys that an earlier `keep` returned, and the floors that it left.

        A guessed floor must stay: what did not reach it was not kept, so nothing lower may fill the places.
        """
        self.floor.copy_(floor)
        self._prune(slice(None), keys.to(self.keys.device))
        self.used = (self.keys != NOTHING).sum(1)
        self.begun[:] = True

    def _collect(self, here: slice, anchor: Tensor, keys: Tensor) -> None:
        """Put keys (n,) into the buffers of their anchors, (n,) ascending, counted from the slice's first."""
        used = self.used[here]
        counts = anchor.bincount(minlength=len(used))  # (a,)
        rank = torch.arange(len(anchor), device=anchor.device)  # (n,)
        first = counts.cumsum(0) - counts  # (a,)
        if int((used + counts).max()) <= self.width:
            begin = torch.arange(len(used), device=anchor.device) * self.width + used - first  # (a,)
            self.keys[here].view(-1).scatter_(0, begin.index_select(0, anchor) + rank, keys)
            self.used[here] += counts
            return
        most = int(counts.max())
        begin = torch.arange(len(used), device=anchor.device) * most - first
        found = keys.new_full((len(used) * most,), NOTHING)
        found.scatter_(0, begin.index_select(0, anchor) + rank, keys)
        self.used[here] += counts
        self._prune(here, torch.cat([self.keys[here], found.view(-1, most)], 1))

    def _prune(self, here: slice, keys: Tensor) -> None:
        """Keep only the k best of these keys (a, n), and raise the floor to what a later item must reach."""
        best = _largest(keys, self.k)  # (a, k)
        least = best.amin(1)
        short = (least == NOTHING).nonzero().squeeze(1)
        if len(short):  # of fewer than k items the free places come last, where the next items go
            best[short] = best[short].sort(dim=1, descending=True).values
        self.keys[here, : self.k] = best
        self.keys[here, self.k :] = NOTHING
        self.used[here] = self.used[here].clamp(max=self.k)
        self.least[here] = least
        lowest = scores_of(least)
        if self.dealt is None:
            lowest = torch.nextafter(lowest, torch.full_like(lowest, torch.inf))
        self.floor[here] = torch.maximum(self.floor[here], lowest)


def likely_rank(k: int, sample: int, total: int) -> int:
    """Return the rank, at most k, of a sample's item that k of all items almost surely reach.

    The sample holds about k sample / total of the k best, and hardly ever three standard deviations more.
    """
    expected = k * sample / total
    return min(k, math.ceil(expected + 3 * math.sqrt(expected)) + 1)


def _kth_at_least(scores: Tensor, k: int, dim: int) -> Tensor:
    """Return a score that the k-th best item of each anchor reaches; hardly less than the k-th best.

    The items are dealt into groups. The best of k groups are k items, so that the k-th best of the groups'
    best is such a score; and there are fewer groups than items to select from.
    """
    items = scores.shape[dim]
    lowest = torch.finfo(torch.float32).min
    if items < k:
        return torch.full((scores.shape[1 - dim],), lowest, device=scores.device)
    size = next(size for size in (8, 4, 2, 1) if size == 1 or items // size >= 4 * k)
    groups = items // size
    best = scores.narrow(dim, 0, groups * size).unflatten(dim, (size, groups)).amax(dim)
    best = best if dim else best.T.contiguous()  # (a, groups)
    return _largest(best, k).amin(1).float().clamp(min=lowest)


def _largest(x: Tensor, k: int) -> Tensor:
    """Return the k largest numbers of each row (a, n), in any order: (a, k).

    On a CPU by numpy, which moves only the numbers; `topk` also moves their places, and takes four times as
    long.
    """
    if x.device.type != "cpu" or x.dtype not in (torch.int64, torch.float32):
        return x.topk(k, dim=1, sorted=False).values
    return _on_all_threads(lambda part: np.partition(part, x.shape[1] - k, axis=1)[:, -k:], x)


def _descending(keys: Tensor) -> Tensor:
    """Return each row's keys (a, k), largest first; numpy takes a sixth of the time of `sort`."""
    if keys.device.type != "cpu":
        return keys.sort(dim=1, descending=True).values
    return _on_all_threads(lambda part: np.sort(part, axis=1)[:, ::-1], keys)


def _on_all_threads(work: Callable[[np.ndarray], np.ndarray], x: Tensor) -> Tensor:
    """Do work on the rows of x, some on each thread: numpy keeps to one, but lets others run meanwhile."""
    threads = min(torch.get_num_threads(), 1 + x.numel() // THREAD)
    if threads == 1:
        parts = [work(x.numpy())]
    else:
        with ThreadPoolExecutor(threads) as pool:
            parts = list(pool.map(work, np.array_split(x.numpy(), threads)))
    return torch.from_numpy(np.concatenate(parts))


def _nonzero(scores: Tensor, floor: Tensor) -> Tensor:
    """Return the flat places of the scores (r, c) that reach their floor, ascending: (n,).

    Few do, so the answers, one byte each, are looked through eight at a time.
    """
    count = scores.numel()
    reached = torch.empty(-(-count // 8) * 8, dtype=torch.bool, device=scores.device)
    reached[count:] = False
    torch.ge(scores, floor, out=reached[:count].view(scores.shape))
    eights = reached.view(torch.int64)
    words = eights.nonzero().squeeze(1)  # (w,)
    found = eights.index_select(0, words).view(torch.bool)  # (8w,)
    if found.device.type == "cpu":  # numpy is faster at what is not sparse
        inside = torch.from_numpy(np.flatnonzero(found.numpy()))
    else:
        inside = found.nonzero().squeeze(1)
    return words.index_select(0, inside >> 3) * 8 + (inside & 7)  # (n,)


def _order(anchor: Tensor, anchors: int) -> Tensor:
    """Return the order that sorts the anchors and leaves each one's items in their order."""
    if anchor.device.type == "cpu" and anchors <= 2**16:  # numpy sorts 16 bits by counting
        return torch.from_numpy(np.argsort(anchor.numpy().astype(np.uint16), kind="stable"))
    return anchor.argsort(stable=True)


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


def rows_of(keys: Tensor) -> Tensor:
    """Return the rows of the items in keys, int32.

    Raises:
        RuntimeError: a place is empty, and has no row.
    """
    if (keys == NOTHING).any():
        raise RuntimeError(
            f"keys hold {int((keys == NOTHING).sum())} empty places: each must hold an item; a score was not "
            "finite, or mining has a fault"
        )
    return (LAST - (keys & 0xFFFFFFFF)).to(torch.int32)
