"""The batches of an epoch (`make_loader`).

Features may lie on disk: a batch reads its own rows and no more. Everything random in a batch is a pure
function of the seed, the epoch and the row, so that neither the number of workers nor an interruption
changes what a model sees.
"""

import hashlib
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from vsecore.data.splits import Split
from vsecore.data.words import Tokenizer


@dataclass
class Batch:
    """B pictures of N elements and C captions of L words, with the rows they come from."""

    pictures: Tensor  # (B, N, F) float32
    picture_mask: Tensor  # (B, N) bool, True where real
    tokens: Tensor  # (C, L) int64
    token_mask: Tensor  # (C, L) bool, True where real
    picture_rows: Tensor  # (B,) int64: the row of each picture in its split
    caption_rows: Tensor  # (C,) int64: the row of each caption in its split
    owner_rows: Tensor  # (C,) int64: the picture row that each caption belongs to

    @property
    def positives(self) -> Tensor:
        """(B, C) bool: True where the caption belongs to the picture."""
        return self.picture_rows[:, None] == self.owner_rows[None, :]

    def to(self, device: torch.device | str) -> "Batch":
        """The batch on a device. The copy does not wait where the batch lies in pinned memory."""
        return Batch(*(getattr(self, field.name).to(device, non_blocking=True) for field in fields(self)))

    def pin_memory(self) -> "Batch":
        """The batch in page-locked memory, from which a GPU reads fastest (the loader calls this)."""
        return Batch(*(getattr(self, field.name).pin_memory() for field in fields(self)))


def make_loader(
    split: Split,
    tokenizer: Tokenizer,
    batch_size: int,
    *,
    mode: Literal["pairs", "pictures"] = "pairs",
    shuffle: bool = True,
    seed: int = 0,
    epoch: int = 0,
    start: int = 0,
    drop_last: bool = True,
    element_drop: float = 0.0,
    word_drop: float = 0.0,
    workers: int = 0,
    rank: int = 0,
    world: int = 1,
) -> DataLoader[Batch]:
    """The batches of one epoch.

    "pairs": a batch is `batch_size` captions, each with its picture (B = C); an epoch is every caption once.
    "pictures": a batch is `batch_size` pictures, each once and with all its captions (C is usually 5 B).

    Dropping elements and words makes a model rely on no single one. A dropped element is masked: it stays
    in the batch, as padding. Of the words chosen to be dropped, half are hidden behind `tokenizer.blank` and
    half are left out, so that a model learns both to guess and to do without. At least one element of a
    picture and one word of a caption always stay.

    Args:
        split: what to go through.
        tokenizer: turns its captions into numbers.
        batch_size: of the joint batch, over all processes.
        mode: "pairs" or "pictures".
        shuffle: a new order for each (seed, epoch); False: the order of the split.
        seed: of the order and of what is dropped.
        epoch: likewise; another epoch, another order.
        start: leave out so many batches of the epoch: an interrupted epoch goes on exactly where it stopped.
        drop_last: leave out the last batch if it is smaller than the others.
        element_drop: the probability that an element of a picture is dropped, in [0, 1).
        word_drop: the probability that a word of a caption is dropped, in [0, 1).
        workers: processes that prepare batches ahead; 0: batches are made as they are asked for.
        rank: which of the `world` processes this is. It gets its contiguous share of each joint batch.
        world: the number of processes that train together.

    Returns:
        An iterable of `Batch`, whose `len` is the number of batches left in the epoch.

    Raises:
        ValueError: an argument out of its range.

    Source: pairs as in Faghri et al. 2018 (VSE++); dropping as in Chen et al. 2021 (VSE-infinity), there with
    probability 0.2 for both.
    """
    if mode not in ("pairs", "pictures"):
        raise ValueError(f'mode is {mode!r}: wanted "pairs" or "pictures"')
    for name, value in (("element_drop", element_drop), ("word_drop", word_drop)):
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}: wanted a probability of at least 0 and below 1")
    if not 0 <= rank < world:
        raise ValueError(f"rank is {rank} of world {world}: wanted 0 to world - 1")
    if batch_size < 1 or batch_size % world:
        raise ValueError(f"batch_size is {batch_size}: wanted a positive multiple of world, which is {world}")
    if world > 1 and not drop_last:
        raise ValueError(
            "drop_last is False with world > 1: a smaller batch cannot be shared evenly; set it to True"
        )
    count = len(split.captions) if mode == "pairs" else len(split)
    if drop_last and count < batch_size:
        things = "captions" if mode == "pairs" else "pictures"
        raise ValueError(
            f"batch_size is {batch_size}, more than the {count} {things} of split {split.name!r}: "
            "make it smaller or set drop_last=False"
        )

    if shuffle:
        order = np.argsort(noise(seed, epoch, "order", np.arange(count)), kind="stable")
    else:
        order = np.arange(count)
    batches = [order[first : first + batch_size] for first in range(0, count, batch_size)]
    if drop_last and len(batches[-1]) < batch_size:
        batches.pop()
    if not 0 <= start <= len(batches):
        raise ValueError(f"start is {start}: the epoch has {len(batches)} batches")
    share = batch_size // world
    shares = [batch[rank * share : (rank + 1) * share] for batch in batches[start:]]
    return DataLoader(
        _Rows(split, tokenizer, mode, seed, epoch, element_drop, word_drop),
        batch_size=None,  # an item is a whole batch
        sampler=shares,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        # Its own generator: else each epoch would take a number from the global one, and dropout with it.
        generator=torch.Generator().manual_seed(seed),
    )


class _Rows(TorchDataset[Batch]):
    """Makes the batch of given rows: of captions in mode "pairs", of pictures in mode "pictures"."""

    def __init__(
        self,
        split: Split,
        tokenizer: Tokenizer,
        mode: str,
        seed: int,
        epoch: int,
        element_drop: float,
        word_drop: float,
    ) -> None:
        self.split, self.tokenizer, self.mode = split, tokenizer, mode
        self.seed, self.epoch = seed, epoch
        self.element_drop, self.word_drop = element_drop, word_drop
        # The captions of picture p are by_picture[first[p] : first[p + 1]].
        self.by_picture = np.argsort(split.owner, kind="stable")
        self.first = np.searchsorted(split.owner[self.by_picture], np.arange(len(split) + 1))

    def __getitem__(self, rows: np.ndarray) -> Batch:
        if self.mode == "pairs":
            captions, pictures = rows, self.split.owner[rows]
        else:
            captions = np.concatenate([self.by_picture[self.first[p] : self.first[p + 1]] for p in rows])
            pictures = rows
        tokens, token_mask = self.tokenizer.encode([self.split.captions[row] for row in captions])
        if self.word_drop:
            tokens, token_mask = self._drop_words(tokens, token_mask, captions)
        # In the pairs' order of captions, a picture with two captions in the batch stands there twice.
        drawn_by = captions if self.mode == "pairs" else pictures
        return Batch(
            pictures=torch.from_numpy(np.ascontiguousarray(self.split.pictures[pictures])).float(),
            picture_mask=torch.from_numpy(self._picture_mask(pictures, drawn_by)),
            tokens=tokens,
            token_mask=token_mask,
            picture_rows=torch.from_numpy(pictures),
            caption_rows=torch.from_numpy(captions),
            owner_rows=torch.from_numpy(self.split.owner[captions]),
        )

    def _picture_mask(self, pictures: np.ndarray, drawn_by: np.ndarray) -> np.ndarray:
        elements = self.split.pictures.shape[1]
        mask = np.ones((len(pictures), elements), dtype=bool)
        if self.split.picture_counts is not None:
            mask = np.arange(elements) < np.asarray(self.split.picture_counts)[pictures, None]
        if not self.element_drop:
            return mask
        luck = noise(self.seed, self.epoch, "elements", drawn_by, elements)  # (B, N)
        return _keep(mask, luck, self.element_drop)

    def _drop_words(self, tokens: Tensor, mask: Tensor, captions: np.ndarray) -> tuple[Tensor, Tensor]:
        luck = noise(self.seed, self.epoch, "words", captions, tokens.shape[1])  # (C, L)
        special = np.isin(tokens.numpy(), list(self.tokenizer.special))
        words = mask.numpy() & ~special
        dropped = torch.from_numpy(words & ~_keep(words, luck, self.word_drop))
        # The lower half of the luck below word_drop is hidden, the upper half left out.
        hidden = dropped & torch.from_numpy(luck < self.word_drop / 2)
        tokens = torch.where(hidden, self.tokenizer.blank, tokens)
        left = mask & (hidden | ~dropped)
        order = torch.argsort((~left).long(), dim=1, stable=True)  # what is left, in its order, then padding
        longest = int(left.sum(1).max())
        left = left.gather(1, order)[:, :longest]
        return torch.where(left, tokens.gather(1, order)[:, :longest], self.tokenizer.pad), left


def _keep(mask: np.ndarray, luck: np.ndarray, drop: float) -> np.ndarray:
    """Where the mask is True and luck at least `drop`; in each row the luckiest True always stays."""
    kept = mask & (luck >= drop)
    luckiest = np.where(mask, luck, -1.0).argmax(1)
    rows = np.arange(len(mask))
    kept[rows, luckiest] = mask[rows, luckiest]
    return kept


def noise(seed: int, epoch: int, purpose: str, rows: np.ndarray, width: int | None = None) -> np.ndarray:
    """Uniform numbers in [0, 1) that depend on their own place alone, not on what was drawn before.

    A counter (seed, epoch, purpose, row, column) is scrambled by the finaliser of SplitMix64: no state, hence
    the same numbers in any process, for any order and any batch.

    Args:
        seed: any whole number.
        epoch: likewise.
        purpose: keeps one use apart from another.
        rows: R row numbers.
        width: how many numbers for each row; None: one, without an axis for it.

    Returns:
        (R, width) float64, or (R,).

    Source: Steele, Lea and Flood 2014, Fast Splittable Pseudorandom Number Generators.
    """
    key = hashlib.sha256(f"{seed}/{epoch}/{purpose}".encode()).digest()
    state = _scramble(rows.astype(np.uint64) + np.uint64(int.from_bytes(key[:8], "little")))
    if width is not None:
        golden = np.uint64(0x9E3779B97F4A7C15)
        state = _scramble(state[:, None] + golden * np.arange(1, width + 1, dtype=np.uint64))
    return (state >> np.uint64(11)) * 2.0**-53


def _scramble(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
