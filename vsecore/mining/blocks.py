"""The search itself: every picture is compared with every caption, in blocks that serve both directions."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from vsecore.mining.topk import EMPTY, TopK, descending, keys_of, largest

CHUNK = 2**24
"""Numbers computed at a time for anchors that are compared with all items again."""
Rows = slice | Tensor
"""Which pictures, or which captions."""
Score = Callable[[Rows, Rows], Tensor]
"""Computes the scores of b pictures with c captions, (b, c) row after row; they may be overwritten, by the
caller and by the next call in the same thread."""


class TruePairs:
    """Which captions are a picture's own, to be left out.

    Args:
        owner: the picture of each caption, (Nc,), in any order.
        pictures: how many pictures there are.
        captions: how many captions there are.

    Raises:
        ValueError: owner is not one whole number for each caption, or names a picture that is not there.
    """

    def __init__(self, owner: Tensor | np.ndarray, pictures: int, captions: int) -> None:
        owner = torch.as_tensor(owner).detach().cpu()
        if owner.shape != (captions,) or owner.is_floating_point() or owner.is_complex():
            raise ValueError(
                f"owner is {owner.dtype} {tuple(owner.shape)}: wanted whole numbers ({captions},)"
            )
        if int(owner.min()) < 0 or int(owner.max()) >= pictures:
            raise ValueError(
                f"owner names pictures {int(owner.min())} to {int(owner.max())}: wanted 0 to {pictures - 1}"
            )
        self.owner, self.pictures, self.captions = owner.long(), pictures, captions

    def at_most(self, texts: int, pictures: int) -> tuple[int, int]:
        """Cut the wanted numbers of negatives to what every picture, and every caption, has.

        Raises:
            ValueError: a picture has no negative.
        """
        captions = self.captions - int(self.owner.bincount(minlength=self.pictures).max())
        if captions < 1 or self.pictures < 2:
            raise ValueError(
                f"there are {self.pictures} pictures with {self.captions} captions: negatives need at "
                "least two pictures that have captions"
            )
        return min(texts, captions), min(pictures, self.pictures - 1)

    def leave_out(self, scores: Tensor, pictures: range, captions: range) -> None:
        """Set the true pairs in a block of scores (b, c), of these rows, to -inf, in place."""
        place = self.owner[captions.start : captions.stop : captions.step] - pictures.start  # (c,)
        inside = (place >= 0) & (place < pictures.stop - pictures.start) & (place % pictures.step == 0)
        caption = inside.nonzero().squeeze(1)
        row = place[caption] // pictures.step
        scores[row.to(scores.device), caption.to(scores.device)] = -torch.inf


class Search:
    """A search over blocks of pictures and captions.

    Rows are dealt into blocks like cards, so that each block is a fair sample, and until the end what is
    found is kept in the order of the blocks.

    Args:
        score: computes a block of scores; several threads call it at the same time.
        pairs: the true pairs.
        kept: how many captions each picture keeps, and how many pictures each caption.
        block: how many pictures, and captions, are compared at a time.
        device: where the scores are.

    Attributes:
        texts: keys of the captions that were found, (Ni, k), in the order of the blocks.
        pictures: the best pictures so far of the captions, in the order of the blocks.
        done: how many pictures have been compared with all captions; the first rows of `texts` are theirs.
    """

    def __init__(
        self,
        score: Score,
        pairs: TruePairs,
        kept: tuple[int, int],
        block: tuple[int, int],
        device: torch.device,
    ) -> None:
        self.score, self.pairs, self.kept, self.device = score, pairs, kept, device
        self.block = min(block[0], pairs.pictures), min(block[1], pairs.captions)
        self.tops, self.lefts = deal(pairs.pictures, block[0]), deal(pairs.captions, block[1])
        self._top_starts, self._left_starts = (
            [0, *itertools.accumulate(map(len, blocks))] for blocks in (self.tops, self.lefts)
        )
        self.texts = torch.full((pairs.pictures, kept[0]), EMPTY, dtype=torch.int64, device=device)
        self.pictures = TopK(pairs.captions, kept[1], pairs.pictures, device)
        self.done = 0
        self._locks, self._stopped = [threading.Lock() for _ in self.lefts], threading.Event()

    def state(self) -> dict[str, np.ndarray]:
        """Return what `restore` needs to go on from here."""
        found = {"texts": self.texts[: self.done], "pictures": self.pictures.best()}
        return {name: x.cpu().numpy() for name, x in (found | {"floor": self.pictures.floor}).items()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from where an earlier search of the same pairs, with the same blocks, stood."""
        texts, pictures, floor = (torch.from_numpy(state[name]) for name in ("texts", "pictures", "floor"))
        self.done = len(texts)
        self.texts[: self.done] = texts.to(self.device)
        self.pictures.restore(pictures, floor)

    def run(self, workers: int, after: Callable[[], None] = lambda: None) -> tuple[Tensor, Tensor]:
        """Search on from where the search stands.

        Args:
            workers: how many blocks of pictures are searched for at the same time, each by its own thread.
            after: called whenever some blocks of pictures are done.

        Returns:
            The keys of the best captions of each picture (Ni, k), and of the best pictures of each caption
            (Nc, k), best first.
        """
        for first in range(self._top_starts.index(self.done), len(self.tops), workers):
            numbers = range(first, min(first + workers, len(self.tops)))
            self._compare_on_threads(numbers)
            self.done = self._top_starts[numbers.stop]
            after()
        found = _in_order(self.texts, self.tops), _in_order(self.pictures.best(), self.lefts)
        for keys, of_pictures in zip(found, (True, False), strict=True):
            self.search_again(keys, (keys[:, -1] == EMPTY).nonzero().squeeze(1), of_pictures)
        return found

    def _compare_on_threads(self, numbers: range) -> None:
        """Compare some blocks of pictures with all captions, each in a thread of its own.

        A product of matrices keeps all threads busy, but what is done with its numbers keeps only one. When a
        thread fails, or the user interrupts, the others stop after their block of captions.
        """
        workers, threads = len(numbers), torch.get_num_threads()
        if workers == 1:  # in this thread, with its device and its stream
            self._compare(numbers[0], 0)
            return

        @torch.inference_mode()  # each thread has a mode of its own
        def part(number: int) -> None:
            torch.set_num_threads(max(1, threads // workers))  # in this thread
            try:  # begin apart, so that workers are rarely at the same captions
                self._compare(number, (number - numbers.start) * len(self.lefts) // workers)
            except BaseException:
                self._stopped.set()
                raise

        try:
            with ThreadPoolExecutor(workers) as pool:
                try:
                    for done in [pool.submit(part, number) for number in numbers]:
                        done.result()
                except BaseException:
                    self._stopped.set()
                    raise
        finally:
            torch.set_num_threads(threads)  # each worker has changed what threads that begin later get

    def _compare(self, number: int, shift: int) -> None:
        """Compare a block of pictures with all captions, from the block of captions `shift` on."""
        top = self.tops[number]
        texts = TopK(len(top), self.kept[0], self.pairs.captions, self.device)
        for turn in range(len(self.lefts)):
            if self._stopped.is_set():
                return
            here = (shift + turn) % len(self.lefts)
            left = self.lefts[here]
            scores = self.score(_rows(top), _rows(left))  # (b, c)
            self.pairs.leave_out(scores, top, left)
            texts.add(scores, 0, left)
            with self._locks[here]:
                self.pictures.add(scores, self._left_starts[here], top, dim=0)
        self.texts[self._top_starts[number] : self._top_starts[number + 1]] = texts.best()

    def search_again(self, keys: Tensor, anchors: Tensor, of_pictures: bool) -> None:
        """Compare some anchors (s,) with every item, and put the keys of their best into `keys` (n, k)."""
        if not len(anchors):
            return
        owner, own = self.pairs.owner.to(keys.device), torch.arange(self.pairs.pictures, device=keys.device)
        items = self.pairs.captions if of_pictures else self.pairs.pictures
        if not of_pictures:
            owner, own = own, owner  # of which picture an item is, and an anchor
        for part in anchors.split(max(1, min(self.block[0 if of_pictures else 1], CHUNK // items))):
            best = keys.new_empty(len(part), 0)
            size = max(1, min(self.block[0] * self.block[1], CHUNK) // len(part))
            for rows in torch.arange(items, device=keys.device).split(size):
                here = slice(int(rows[0]), int(rows[-1]) + 1)
                scores = self.score(part, here) if of_pictures else self.score(here, part).T  # (p, c)
                scores = scores.masked_fill(owner[here] == own[part, None], -torch.inf)
                best = torch.cat([best, keys_of(scores, rows)], 1)
                best = largest(best, min(keys.shape[1], best.shape[1]))
            keys[part] = descending(best)


def deal(rows: int, size: int) -> list[range]:
    """Deal rows like cards into as few blocks of at most `size` as possible: each is a fair sample."""
    blocks = -(-rows // size)
    return [range(first, rows, blocks) for first in range(blocks)]


def workers_on(device: torch.device) -> int:
    """Return how many threads keep a device busy: one on a GPU, on a CPU as many as torch has."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def _rows(block: range) -> slice:
    return slice(block.start, None, block.step)


def _in_order(keys: Tensor, blocks: list[range]) -> Tensor:
    """Bring keys (n, k) from the order of the blocks into that of the rows."""
    ordered = torch.empty_like(keys)
    for block, some in zip(blocks, keys.split([len(block) for block in blocks]), strict=True):
        ordered[_rows(block)] = some
    return ordered
