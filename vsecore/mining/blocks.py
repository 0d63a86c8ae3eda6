"""The search itself: every picture is compared with every caption, in blocks that serve both directions."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from vsecore.mining.again import Score, search_again
from vsecore.mining.best import NOTHING, Best
from vsecore.mining.pairs import Own
from vsecore.mining.threads import on_threads


class Search:
    """A search over blocks of pictures and captions.

    Rows are dealt into blocks like cards, so that each block is a fair sample, and until the end what is
    found is kept in the order of the blocks.

    Args:
        score: computes a block of scores; several threads call it at the same time.
        own: the true pairs.
        kept: how many captions each picture keeps, and how many pictures each caption.
        block: how many pictures, and captions, are compared at a time.
        device: where the scores are.
        checked: whether scores may be NaN or infinite, so that each block is looked through.
        advice: what to do about such scores, for the error.

    Attributes:
        texts: keys of the captions that were found, (Ni, k), in the order of the blocks.
        best_pictures: the best pictures so far of the captions, in the order of the blocks.
        done: how many pictures have been compared with all captions; the first rows of `texts` are theirs.
    """

    def __init__(
        self,
        score: Score,
        own: Own,
        kept: tuple[int, int],
        block: tuple[int, int],
        device: torch.device,
        checked: bool,
        advice: str,
    ) -> None:
        self.score, self.own, self.kept, self.block = score, own, kept, block
        self.device, self.checked, self.advice = device, checked, advice
        self.tops, self.lefts = deal(own.pictures, block[0]), deal(own.captions, block[1])
        self.texts = torch.full((own.pictures, kept[0]), NOTHING, dtype=torch.int64, device=device)
        self.best_pictures = Best(own.captions, kept[1], device, dealt=own.pictures)
        self.done = 0

    def restore(self, texts: Tensor, pictures: Tensor, floor: Tensor) -> None:
        """Go on from where an earlier search with the same blocks stood.

        Args:
            texts: the first rows of its `texts`, of the pictures that were done.
            pictures: what its `best_pictures.keep()` returned.
            floor: its `best_pictures.floor` after that.

        Raises:
            ValueError: these do not come from such a search.
        """
        best = self.best_pictures
        wanted = [(len(texts), self.kept[0]), (self.own.captions, best.k), (self.own.captions,)]
        found = [texts, pictures, floor]
        kinds = [torch.int64, torch.int64, torch.float32]
        if (
            len(texts) not in _starts(self.tops)
            or [tuple(numbers.shape) for numbers in found] != wanted
            or [numbers.dtype for numbers in found] != kinds
        ):
            raise ValueError("these numbers come from another search, or are damaged")
        if len(texts):
            self.texts[: len(texts)] = texts.to(self.device)
            best.restore(pictures, floor)
            self.done = len(texts)

    def run(self, workers: int, after: Callable[[], None] = lambda: None) -> tuple[Tensor, Tensor]:
        """Search on from where the search stands.

        Args:
            workers: how many blocks of pictures are searched for at the same time, each by its own thread.
            after: called whenever some blocks of pictures are done.

        Returns:
            The keys of the best captions of each picture (Ni, k), and of the best pictures of each caption
            (Nc, k), best first.

        Raises:
            ValueError: a score is NaN or infinite, and scores are checked.
        """
        starts = _starts(self.tops)
        locks = [threading.Lock() for _ in self.lefts]
        for begin in range(starts.index(self.done), len(self.tops), workers):
            numbers = range(begin, min(begin + workers, len(self.tops)))

            def work(worker: int, workers: int, numbers: range = numbers) -> Iterator[None]:
                shift = worker * len(self.lefts) // workers  # so that workers are rarely at the same captions
                return self._compare(numbers[worker], starts, shift, locks)

            on_threads(work, len(numbers))
            self.done = starts[numbers.stop]
            after()
        texts = _in_order(self.texts, self.tops)
        pictures = _in_order(self.best_pictures.keep(), self.lefts)
        for found, of_pictures in ((texts, True), (pictures, False)):
            unfilled = (found[:, -1] == NOTHING).nonzero().squeeze(1)
            search_again(found, unfilled, self.score, self.own, self.block, of_pictures)
        return texts, pictures

    def _compare(
        self, number: int, starts: list[int], shift: int, locks: list[threading.Lock]
    ) -> Iterator[None]:
        """Compare a block of pictures with all captions."""
        top, places = self.tops[number], _starts(self.lefts)
        best_texts = Best(len(top), self.kept[0], self.device, dealt=self.own.captions)
        for turn in range(len(self.lefts)):
            here = (shift + turn) % len(self.lefts)
            left = self.lefts[here]
            scores = self.score(_rows(top), _rows(left))  # (b, c)
            # The sum is fast, and not finite if a score is not, though it may be too large otherwise.
            if self.checked and not scores.sum().isfinite() and not scores.isfinite().all():
                raise ValueError(
                    f"scores of pictures {top[0]} to {top[-1]} are not finite numbers: {self.advice}"
                )
            self.own.leave_out(scores, top, left)
            best_texts.add(scores, 0, left)
            with locks[here]:
                self.best_pictures.add(scores, places[here], top, dim=0)
            yield
        self.texts[starts[number] : starts[number + 1]] = best_texts.keep()


def deal(rows: int, size: int) -> list[range]:
    """Deal rows like cards into as few blocks of at most `size` as possible: each is a fair sample."""
    blocks = -(-rows // size)
    return [range(first, rows, blocks) for first in range(blocks)]


def _rows(block: range) -> slice:
    return slice(block.start, None, block.step)


def _starts(blocks: list[range]) -> list[int]:
    """Return where each block begins if they are laid one behind the other, and where the last one ends."""
    return [0, *itertools.accumulate(map(len, blocks))]


def _in_order(keys: Tensor, blocks: list[range]) -> Tensor:
    """Bring keys (n, k) from the order of the blocks into that of the rows."""
    ordered = torch.empty_like(keys)
    for block, some in zip(blocks, keys.split([len(block) for block in blocks]), strict=True):
        ordered[_rows(block)] = some
    return ordered
