"""The search itself: every picture is compared with every caption, in blocks that serve both directions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from vsecore.mining.topk import TopK

Score = Callable[[slice, slice], Tensor]
"""Computes the scores of b pictures with c captions, (b, c) row after row; they may be overwritten, by the
caller and by the next call in the same thread."""


class TruePairs:
    """Which captions are a picture's own, by the `owner` (Nc,) of each caption, to be left out."""

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
        """Cut the wanted numbers of negatives to what every picture, and every caption, has."""
        captions = self.captions - int(self.owner.bincount(minlength=self.pictures).max())
        if captions < 1 or self.pictures < 2:
            raise ValueError(
                f"there are {self.pictures} pictures with {self.captions} captions: negatives need at "
                "least two pictures that have captions"
            )
        return min(texts, captions), min(pictures, self.pictures - 1)

    def leave_out(self, scores: Tensor, pictures: slice, captions: slice) -> None:
        """Set the true pairs in a block of scores (b, c), of these rows, to -inf, in place."""
        row = self.owner[captions] - pictures.start  # (c,)
        caption = ((row >= 0) & (row < len(scores))).nonzero().squeeze(1)
        scores[row[caption].to(scores.device), caption.to(scores.device)] = -torch.inf


class Search:
    """A search over blocks of pictures and captions.

    Args:
        score: computes a block of scores; several threads call it at the same time.
        pairs: the true pairs.
        kept: how many captions each picture keeps, and how many pictures each caption.
        block: how many pictures, and captions, are compared at a time.
        device: where the scores are.

    Attributes:
        texts: keys of the captions that were found, (Ni, k), best first.
        pictures: the best pictures so far of each caption.
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
        self.texts = torch.empty((pairs.pictures, kept[0]), dtype=torch.int64, device=device)
        self.pictures = TopK(pairs.captions, kept[1], device)
        self.done = 0
        self._lefts = _blocks(pairs.captions, self.block[1])
        self._locks, self._stopped = [threading.Lock() for _ in self._lefts], threading.Event()

    def state(self) -> dict[str, np.ndarray]:
        """Return what `restore` needs to go on from here."""
        found = {"texts": self.texts[: self.done], "pictures": self.pictures.best()}
        return {name: x.cpu().numpy() for name, x in found.items()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from where an earlier search of the same pairs, with the same blocks, stood."""
        texts, pictures = (torch.from_numpy(state[name]) for name in ("texts", "pictures"))
        self.done = len(texts)
        self.texts[: self.done] = texts.to(self.device)
        self.pictures.restore(pictures)

    def run(self, workers: int, after: Callable[[], None] = lambda: None) -> tuple[Tensor, Tensor]:
        """Search on from where the search stands.

        Each of the `workers`, a thread, searches for a block of pictures; `after` is called whenever some are
        done. Return the keys of the best captions of each picture (Ni, k), and of the best pictures of each
        caption (Nc, k), best first.
        """
        tops = [top for top in _blocks(self.pairs.pictures, self.block[0]) if top.start >= self.done]
        for first in range(0, len(tops), workers):
            some = tops[first : first + workers]
            self._compare_on_threads(some)
            self.done = some[-1].stop
            after()
        return self.texts, self.pictures.best()

    def _compare_on_threads(self, tops: list[slice]) -> None:
        """Compare some blocks of pictures with all captions, each in a thread of its own.

        A product of matrices keeps all threads busy, but what is done with its numbers keeps only one. When a
        thread fails, or the user interrupts, the others stop after their block of captions.
        """
        workers, threads = len(tops), torch.get_num_threads()
        if workers == 1:  # in this thread, with its device and its stream
            self._compare(tops[0], 0)
            return

        @torch.inference_mode()  # each thread has a mode of its own
        def part(number: int) -> None:
            torch.set_num_threads(max(1, threads // workers))  # in this thread
            try:  # begin apart, so that workers are rarely at the same captions
                self._compare(tops[number], number * len(self._lefts) // workers)
            except BaseException:
                self._stopped.set()
                raise

        try:
            with ThreadPoolExecutor(workers) as pool:
                try:
                    for done in [pool.submit(part, number) for number in range(workers)]:
                        done.result()
                except BaseException:
                    self._stopped.set()
                    raise
        finally:
            torch.set_num_threads(threads)  # each worker has changed what threads that begin later get

    def _compare(self, top: slice, shift: int) -> None:
        """Compare a block of pictures with all captions, from the block of captions `shift` on."""
        texts = TopK(top.stop - top.start, self.kept[0], self.device)
        for turn in range(len(self._lefts)):
            if self._stopped.is_set():
                return
            here = (shift + turn) % len(self._lefts)
            left = self._lefts[here]
            scores = self.score(top, left)  # (b, c)
            self.pairs.leave_out(scores, top, left)
            texts.add(scores, 0, left.start)
            with self._locks[here]:
                self.pictures.add(scores, left.start, top.start, dim=0)
        self.texts[top] = texts.best()


def workers_on(device: torch.device) -> int:
    """Return how many threads keep a device busy: one on a GPU, on a CPU as many as torch has."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def _blocks(rows: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
