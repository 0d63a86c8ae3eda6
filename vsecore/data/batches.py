"""Make the batches of an epoch (`make_loader`).

Features may be on disk: a batch reads only its own rows. Everything random in a batch is a pure
function of the seed, the epoch and the row, so that neither the number of workers nor an interruption
changes what a model sees.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler
from torch.utils.data import Dataset as TorchDataset

from vsecore.data.noise import noise
from vsecore.data.offline_negatives import OfflineNegatives, draw_offline
from vsecore.data.splits import Split
from vsecore.data.words import TokenizedCaptions, Tokenizer


@dataclass
class Batch:
    """B pictures of N elements and C captions of L words, with the rows they come from."""

    pictures: Tensor
    """Features (B, N, F) or pixels (B, 3, H, W), as they are stored: `to` makes floats float32."""
    picture_mask: Tensor | None
    """(B, N) bool, True where real; None for pixels."""
    tokens: Tensor
    """(C, L) int64."""
    token_mask: Tensor
    """(C, L) bool, True where real."""
    picture_rows: Tensor
    """(B,) int64: the row of each picture in its split."""
    caption_rows: Tensor
    """(C,) int64: the row of each caption in its split."""
    owner_rows: Tensor
    """(C,) int64: the picture row that each caption belongs to."""
    targets: Tensor | None = None
    """(C, T) float32: the split's targets of these captions, if it has any."""
    offline: tuple["Batch", "Batch"] | None = None
    """Hard negatives of each pair (`OfflineNegatives`): row r of both belongs to pair r of this batch.

    The first holds the hard captions T_o, each with its own picture; the second the hard pictures I_o, each
    with a caption of its own.
    """
    shares: tuple[int, ...] = ()
    """How many captions of the joint batch each process has; () with one process."""

    @property
    def positives(self) -> Tensor:
        """(B, C) bool: True where the caption belongs to the picture."""
        return self.picture_rows[:, None] == self.owner_rows[None, :]

    def to(self, device: torch.device | str) -> "Batch":
        """Move the batch to a device, its pictures in float32 unless they are whole numbers.

        If the batch is in pinned memory, the copy does not wait. Half-precision pictures become float32 on
        the device, so that half as many bytes are copied.
        """
        moved = self._map_tensors(lambda tensor: tensor.to(device, non_blocking=True))
        if moved.pictures.is_floating_point():
            moved.pictures = moved.pictures.float()
        if self.offline is not None:
            moved.offline = (self.offline[0].to(device), self.offline[1].to(device))
        return moved

    def pin_memory(self) -> "Batch":
        """Copy the batch to page-locked memory, from which a GPU reads fastest (the loader calls this)."""
        pinned = self._map_tensors(Tensor.pin_memory)
        if self.offline is not None:
            pinned.offline = (self.offline[0].pin_memory(), self.offline[1].pin_memory())
        return pinned

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """Return the batch with a function applied to every tensor."""
        tensors: dict[str, Any] = {
            name: change(value) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **tensors)


def make_loader(
    split: Split,
    tokenizer: Tokenizer | TokenizedCaptions,
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
    negatives: OfflineNegatives | None = None,
    workers: int = 0,
    rank: int = 0,
    world: int = 1,
) -> "Loader":
    """Make the loader of an epoch's batches; its `of_epoch` turns it to another epoch.

    "pairs": a batch is `batch_size` captions, each with its picture (B = C); an epoch is every caption once.
    "pictures": a batch is `batch_size` pictures, each once and with all its captions (C is usually 5 B).

    Dropping elements and words keeps a model from relying on any single one. A dropped element is masked: it
    stays in the batch, as padding. Half of the words chosen to be dropped are replaced by
    `tokenizer.blank` and half are left out, so that a model learns both to guess a word and to do without it.
    At least one element of a picture and one word of a caption always stay.

    Args:
        split: what to go through.
        tokenizer: turns its captions into numbers. If you make a loader for each epoch, give the tokenised
            captions instead, so that it is done once.
        batch_size: the size of the joint batch, over all processes.
        mode: "pairs" or "pictures".
        shuffle: a new order for each (seed, epoch); False: batches go through the split from its beginning.
        seed: decides the order, and which elements and words are dropped.
        epoch: decides them too: each epoch has its own order.
        start: skip this many batches of the epoch: an interrupted epoch continues exactly where it stopped.
        drop_last: leave out the last batch if it is smaller than the others.
        element_drop: the probability that an element of a picture is dropped, in [0, 1). 0 for pixels.
        word_drop: the probability that a word of a caption is dropped, in [0, 1).
        negatives: mode "pairs" only: for each pair of the batch, one of its hard captions and one of its hard
            pictures are drawn, see `Batch.offline`. If the two belong together they are drawn again, up to
            ten times.
        workers: processes that prepare batches ahead; 0: batches are made as they are asked for.
        rank: which of the `world` processes this is. It gets its contiguous share of each joint batch.
        world: the number of processes that train together. With more than one, captions are padded to the
            longest of the joint batch, so that all processes hold tensors of the same shape.

    Returns:
        An iterable of `Batch`, whose `len` is the number of batches left in the epoch.

    Raises:
        ValueError: an argument out of its range, or one that does not fit the split.

    Source: pairs as in Faghri et al. 2018 (VSE++); dropping as in Chen et al. 2021 (VSE-infinity), there with
    probability 0.2 for both; negatives as in Chen, Deng and Luo 2020 (AOQ), section 3.2.
    """
    if mode not in ("pairs", "pictures"):
        raise ValueError(f'mode is {mode!r}: wanted "pairs" or "pictures"')
    for name, value in (("element_drop", element_drop), ("word_drop", word_drop)):
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}: wanted a probability of at least 0 and below 1")
    if element_drop and split.has_pixels:
        raise ValueError(f"element_drop is {element_drop}: pixels have no elements to drop, set it to 0")
    if not 0 <= rank < world:
        raise ValueError(f"rank is {rank} of world {world}: wanted 0 to world - 1")
    if batch_size < 1 or batch_size % world:
        raise ValueError(f"batch_size is {batch_size}: wanted a positive multiple of world, which is {world}")
    if world > 1 and not drop_last:
        raise ValueError(
            "drop_last is False with world > 1: a smaller batch cannot be shared evenly; set it to True"
        )
    if negatives is not None:
        if mode != "pairs":
            raise ValueError(
                f'negatives are given with mode {mode!r}: they belong to pairs, use mode "pairs"'
            )
        negatives.check(split)
    count = len(split.captions) if mode == "pairs" else len(split)
    if drop_last and count < batch_size:
        things = "captions" if mode == "pairs" else "pictures"
        raise ValueError(
            f"batch_size is {batch_size}, more than the {count} {things} of split {split.name!r}: "
            "make it smaller or set drop_last=False"
        )
    if isinstance(tokenizer, TokenizedCaptions):
        captions = tokenizer
    else:
        captions = TokenizedCaptions.encode(tokenizer, split.captions)
    if len(captions) != len(split.captions):
        raise ValueError(
            f"tokenizer holds {len(captions)} tokenised captions: split {split.name!r} has "
            f"{len(split.captions)}"
        )

    maker = _BatchMaker(
        split, captions, mode, seed, epoch, element_drop, word_drop, negatives, rank=rank, world=world
    )
    loader = Loader(
        maker,
        batch_size=None,  # an item is a whole batch
        sampler=_Order(count, batch_size, shuffle, seed, drop_last),
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=torch.cuda.is_available(),
        # Its own generator: otherwise each epoch would advance the global one, and so change dropout.
        generator=torch.Generator().manual_seed(seed),
    )
    return loader.of_epoch(epoch, start)


class Loader(DataLoader[Batch]):
    """The batches of one epoch, and then of another: its workers stay."""

    sampler: "_Order"

    def of_epoch(self, epoch: int, start: int = 0) -> "Loader":
        """Turn to an epoch, of which `start` batches are skipped.

        Raises:
            ValueError: the epoch has fewer batches than that.
        """
        self.sampler.turn(epoch, start)
        return self


class _Order(Sampler[tuple[int, np.ndarray]]):
    """The rows of each joint batch of an epoch, each with the epoch, on which what is dropped depends."""

    def __init__(self, count: int, batch_size: int, shuffle: bool, seed: int, drop_last: bool) -> None:
        self.count, self.batch_size, self.shuffle, self.seed = count, batch_size, shuffle, seed
        self.batches = count // batch_size if drop_last else -(-count // batch_size)

    def turn(self, epoch: int, start: int) -> None:
        if not 0 <= start <= self.batches:
            raise ValueError(f"start is {start}: the epoch has {self.batches} batches")
        self.epoch, self.start = epoch, start

    def __len__(self) -> int:
        return self.batches - self.start

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        order = np.arange(self.count)
        if self.shuffle:
            order = np.argsort(noise(self.seed, self.epoch, "order", order), kind="stable")
        for batch in range(self.start, self.batches):
            yield self.epoch, order[batch * self.batch_size :][: self.batch_size]


@dataclass(frozen=True, eq=False)
class _BatchMaker(TorchDataset[Batch]):
    """Make this process's share of a joint batch from its rows: of captions ("pairs") or of pictures."""

    split: Split
    captions: TokenizedCaptions
    mode: str
    seed: int
    epoch: int  # of the batch at hand; an item names its own
    element_drop: float
    word_drop: float
    negatives: OfflineNegatives | None
    rank: int
    world: int

    def __getitem__(self, item: tuple[int, np.ndarray]) -> Batch:
        epoch, joint = item
        return replace(self, epoch=epoch)._share_of(joint)

    def _share_of(self, joint: np.ndarray) -> Batch:
        size = len(joint) // self.world
        mine = joint[self.rank * size : (self.rank + 1) * size] if self.world > 1 else joint
        captions, pairs = self._captions_of(mine), self.mode == "pairs"
        width = self._longest(self._captions_of(joint)) if self.world > 1 else None
        tokens, mask = self._tokens_of(captions, width)
        # In mode "pairs" a picture with two captions in the batch occurs twice, with different elements
        # dropped.
        batch = self._batch(
            pictures=self.split.owner[captions] if pairs else mine,
            captions=captions,
            tokens=tokens,
            mask=mask,
            drawn_by=captions if pairs else mine,
            shares=self._shares(joint),
        )
        if self.negatives is not None:
            batch.offline = self._offline(self.negatives, captions, joint)
        return batch

    def _offline(
        self, negatives: OfflineNegatives, captions: np.ndarray, joint: np.ndarray
    ) -> tuple[Batch, Batch]:
        """Return, for each pair, a hard caption with its picture and a hard picture with a caption."""
        texts, of_pictures = draw_offline(negatives, self.split, captions, self.seed, self.epoch)
        text_width = picture_width = None
        if self.world > 1:
            others = draw_offline(negatives, self.split, joint, self.seed, self.epoch)
            text_width, picture_width = map(self._longest, others)
        shares = self._shares(joint)
        return self._pairs(texts, text_width, shares), self._pairs(of_pictures, picture_width, shares)

    def _pairs(self, captions: np.ndarray, width: int | None, shares: tuple[int, ...]) -> Batch:
        """Make a batch of captions in the given order, each with its own picture."""
        tokens, mask = self._tokens_of(captions, width)
        pictures = self.split.owner[captions]
        return self._batch(pictures, captions, tokens, mask, drawn_by=captions, shares=shares)

    def _batch(
        self,
        pictures: np.ndarray,
        captions: np.ndarray,
        tokens: np.ndarray,
        mask: np.ndarray,
        *,
        drawn_by: np.ndarray,
        shares: tuple[int, ...],
    ) -> Batch:
        picture_mask = None if self.split.has_pixels else self._picture_mask(pictures, drawn_by)
        targets = self.split.targets
        return Batch(
            pictures=torch.from_numpy(np.ascontiguousarray(self._pictures_of(pictures, drawn_by))),
            picture_mask=None if picture_mask is None else torch.from_numpy(picture_mask),
            tokens=torch.from_numpy(tokens),
            token_mask=torch.from_numpy(mask),
            picture_rows=torch.from_numpy(pictures),
            caption_rows=torch.from_numpy(captions),
            owner_rows=torch.from_numpy(self.split.owner[captions]),
            targets=None if targets is None else torch.from_numpy(targets[captions].astype(np.float32)),
            shares=shares,
        )

    def _pictures_of(self, pictures: np.ndarray, drawn_by: np.ndarray) -> np.ndarray:
        """Return features or pixels; photographs that know how, varied by luck from the rows `drawn_by`."""
        varied = getattr(self.split.pictures, "varied", None)
        if varied is None:
            return np.asarray(self.split.pictures[pictures])
        return np.asarray(varied(pictures, self.seed, self.epoch, drawn_by))

    def _captions_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the captions of the epoch's rows, (C,)."""
        return rows if self.mode == "pairs" else self.split.captions_of(rows)

    def _longest(self, captions: np.ndarray) -> int:
        """Return the length of the longest of these captions, before words are dropped."""
        return int(self.captions.lengths[captions].max())

    def _shares(self, joint: np.ndarray) -> tuple[int, ...]:
        """Return how many captions each process has."""
        if self.world == 1:
            return ()
        counts = np.ones_like(joint) if self.mode == "pairs" else self.split.caption_counts[joint]
        return tuple(counts.reshape(self.world, -1).sum(1).tolist())

    def _picture_mask(self, pictures: np.ndarray, drawn_by: np.ndarray) -> np.ndarray:
        """Return which elements are real and not dropped, (B, N); luck comes from the rows `drawn_by`."""
        elements = self.split.pictures.shape[1]
        if self.split.picture_counts is None:
            mask = np.ones((len(pictures), elements), dtype=bool)
        else:
            mask = np.arange(elements) < np.asarray(self.split.picture_counts)[pictures, None]
        if not self.element_drop:
            return mask
        luck = noise(self.seed, self.epoch, "elements", drawn_by, elements)  # (B, N)
        return _drop(mask, luck, self.element_drop)

    def _tokens_of(self, captions: np.ndarray, width: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the captions' numbers and their mask, (C, L) each, after words are dropped.

        Without a width they are padded to the longest after dropping.
        """
        tokens, mask = (tensor.numpy() for tensor in self.captions.rows(captions, width))
        if not self.word_drop:
            return tokens, mask
        words = mask.copy()
        for number in self.captions.special:
            words &= tokens != number
        luck = noise(self.seed, self.epoch, "words", captions, tokens.shape[1])  # (C, L)
        dropped = words & ~_drop(words, luck, self.word_drop)
        # Luck below word_drop / 2 hides a word; from there up to word_drop, the word is left out.
        tokens[dropped & (luck < self.word_drop / 2)] = self.captions.blank
        left = mask & ~(dropped & (luck >= self.word_drop / 2))
        lengths = left.sum(1)
        width = int(lengths.max()) if width is None else width
        mask = np.arange(width) < lengths[:, None]
        closed = np.full(mask.shape, self.captions.pad, np.int64)
        closed[mask] = tokens[left]  # both go row by row, so what is left keeps its order
        return closed, mask


def _drop(mask: np.ndarray, luck: np.ndarray, probability: float) -> np.ndarray:
    """Remove from the mask what is dropped (luck below the probability); each row keeps its luckiest True."""
    kept = mask & (luck >= probability)
    luckiest = np.where(mask, luck, -1.0).argmax(1)
    rows = np.arange(len(mask))
    kept[rows, luckiest] = mask[rows, luckiest]
    return kept
