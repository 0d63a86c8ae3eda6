"""The search itself: every picture is compared with every caption, in blocks that serve both directions."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from vsecore.mining.topk import TopK

Score = Callable[[slice, slice], Tensor]
"""Computes the scores of b pictures with c captions, (b, c) row after row; the caller may overwrite them."""


class Search:
    """A search over blocks of pictures and captions.

    Args:
        score: computes a block of scores; several threads call it at the same time.
        owner: the picture of each caption, (Nc,) int64 on the CPU: true pairs are left out.
        pictures: how many pictures there are.
        wanted: how many captions each picture gets, and how many pictures each caption, if there are so many.
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
        owner: Tensor,
        pictures: int,
        wanted: tuple[int, int],
        block: tuple[int, int],
        device: torch.device,
    ) -> None:
        captions = len(owner) - int(owner.bincount(minlength=pictures).max())  # that are not a picture's own
        if captions < 1 or pictures < 2:
            raise ValueError(
                f"there are {pictures} pictures with {len(owner)} captions: negatives need at least two "
                "pictures that have captions"
            )
        self.score, self.owner, self.device = score, owner, device
        self.block = min(block[0], pictures), min(block[1], len(owner))
        self.texts = torch.empty((pictures, min(wanted[0], captions)), dtype=torch.int64, device=device)
        self.pictures = TopK(len(owner), min(wanted[1], pictures - 1), device)
        self.done = 0
        self._lefts = _blocks(len(owner), self.block[1])
        self._locks, self._stopped = [threading.Lock() for _ in self._lefts], threading.Event()

    def state(self) -> dict[str, np.ndarray]:
        """Return what `restore` needs to go on from here."""
        found = {"texts": self.texts[: self.done], "pictures": self.pictures.best()}
        return {name: x.cpu().numpy() for name, x in found.items()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from where an earlier search of the same pairs, with the same blocks, stood."""
        texts, pictures = (torch.from_numpy(state[name]) for name in ("texts", "pictures"))
        self.texts[: len(texts)] = texts.to(self.device)
        self.pictures.restore(pictures)
        self.done = len(texts)

    def run(self, workers: int, after: Callable[[], None] = lambda: None) -> tuple[Tensor, Tensor]:
        """Search on from where the search stands.

        Each of the `workers`, a thread, searches for a block of pictures; `after` is called whenever some are
        done. Return the keys of the best captions of each picture (Ni, k), and of the best pictures of each
        caption (Nc, k), best first.
        """
        tops = [top for top in _blocks(len(self.texts), self.block[0]) if top.start >= self.done]
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
        self._stopped.clear()
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
        texts = TopK(top.stop - top.start, self.texts.shape[1], self.device)
        for turn in range(len(self._lefts)):
            if self._stopped.is_set():
                return
            here = (shift + turn) % len(self._lefts)
            left = self._lefts[here]
            scores = self.score(top, left)  # (b, c)
            row = self.owner[left] - top.start  # (c,)
            own = ((row >= 0) & (row < len(scores))).nonzero().squeeze(1)
            scores[row[own].to(scores.device), own.to(scores.device)] = -torch.inf
            texts.add(scores, 0, left.start)
            with self._locks[here]:
                self.pictures.add(scores, left.start, top.start, dim=0)
        self.texts[top] = texts.best()


def workers_on(device: torch.device) -> int:
    """Return how many threads keep a device busy: one on a GPU, on a CPU as many as torch has."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def _blocks(rows: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
