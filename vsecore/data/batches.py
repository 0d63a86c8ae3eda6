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

        def move(tensor: Tensor) -> Tensor:
            moved = tensor.to(device, non_blocking=True)
            return moved.float() if tensor is self.pictures and moved.is_floating_point() else moved

        return self._map(move, lambda batch: batch.to(device))

    def pin_memory(self) -> "Batch":
        """Copy the batch to page-locked memory, from which a GPU reads fastest (the loader calls this)."""
        return self._map(Tensor.pin_memory, Batch.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor], inner: Callable[["Batch"], "Batch"]) -> "Batch":
        """Return the batch with one function applied to every tensor, and one to the offline batches."""
        changed: dict[str, Any] = {
            name: change(value) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        if self.offline is not None:
            changed["offline"] = (inner(self.offline[0]), inner(self.offline[1]))
        return replace(self, **changed)


@dataclass(frozen=True, eq=False)
class Batches(TorchDataset["Batch"]):
    """How the batches of a split are put together, and one process's share of each.

    "pairs": a batch is `batch_size` captions, each with its picture (B = C); an epoch is every caption once.
    "pictures": a batch is `batch_size` pictures, each once and with all its captions (C is usually 5 B).

    Dropping elements and words keeps a model from relying on any single one. A dropped element is masked: it
    stays in the batch, as padding. Half of the words chosen to be dropped are replaced by
    `tokenizer.blank` and half are left out, so that a model learns both to guess a word and to do without it.
    At least one element of a picture and one word of a caption always stay.

    Raises:
        ValueError: an option out of its range, or one that does not fit the split.

    Source: pairs as in Faghri et al. 2018 (VSE++); dropping as in Chen et al. 2021 (VSE-infinity), there with
    probability 0.2 for both; negatives as in Chen, Deng and Luo 2020 (AOQ), section 3.2.
    """

    split: Split
    captions: TokenizedCaptions
    batch_size: int
    """The size of the joint batch, over all processes. What is left at the end of an epoch makes no batch."""
    mode: Literal["pairs", "pictures"] = "pairs"
    seed: int = 0
    """Decides, with the epoch, the order, and which elements and words are dropped."""
    element_drop: float = 0.0
    """The probability that an element of a picture is dropped, in [0, 1). 0 for pixels."""
    word_drop: float = 0.0
    """The probability that a word of a caption is dropped, in [0, 1)."""
    negatives: OfflineNegatives | None = None
    """Mode "pairs" only: for each pair, one of its hard captions and one of its hard pictures are drawn (see
    `Batch.offline`). If the two belong together they are drawn again, up to ten times."""
    share: tuple[int, int] = (0, 1)
    """Which process this is, and how many train together. Each gets its contiguous share of a joint batch,
    and captions are padded to the longest of it, so that all hold tensors of the same shape."""

    def __post_init__(self) -> None:
        """Refuse options that do not fit."""
        rank, world = self.share
        things = "captions" if self.mode == "pairs" else "pictures"
        for name, wrong, wanted in (
            ("mode", self.mode not in ("pairs", "pictures"), '"pairs" or "pictures"'),
            ("element_drop", not 0 <= self.element_drop < 1, "a probability of at least 0 and below 1"),
            ("element_drop", self.element_drop and self.split.has_pixels, "0: pixels have no elements"),
            ("word_drop", not 0 <= self.word_drop < 1, "a probability of at least 0 and below 1"),
            ("share", not 0 <= rank < world, "a rank below the number of processes"),
            ("batch_size", self.batch_size < 1 or self.batch_size % world, f"a multiple of {world}"),
            ("batch_size", self.batch_size > self.count, f"at most the {self.count} {things} of the split"),
        ):
            if wrong:
                raise ValueError(f"{name} is {getattr(self, name)!r}: wanted {wanted}")
        if len(self.captions) != len(self.split.captions):
            raise ValueError(
                f"captions are {len(self.captions)}: split {self.split.name!r} has {len(self.split.captions)}"
            )
        if self.negatives is not None:
            if self.mode != "pairs":
                raise ValueError(f'negatives belong to pairs: mode is {self.mode!r}, wanted "pairs"')
            self.negatives.check(self.split)

    @property
    def count(self) -> int:
        """How many captions or pictures an epoch goes through."""
        return len(self.split.captions) if self.mode == "pairs" else len(self.split)

    def __getitem__(self, item: tuple[int, np.ndarray]) -> Batch:
        """Make this process's share of a joint batch, given the epoch and the joint batch's rows."""
        epoch, joint = item
        rank, world = self.share
        mine = joint.reshape(world, -1)[rank]
        pairs = self.mode == "pairs"
        captions = self._captions_of(mine)
        width = self._longest(self._captions_of(joint))
        # In mode "pairs" a picture with two captions in the batch occurs twice, with different elements
        # dropped.
        pictures = self.split.owner[captions] if pairs else mine
        batch = self._batch(
            epoch, pictures, captions, captions if pairs else mine, width, self._shares(joint)
        )
        if self.negatives is not None:
            # For each pair, a hard caption with its picture and a hard picture with a caption.
            texts, of_pictures = draw_offline(self.negatives, self.split, captions, self.seed, epoch)
            widths: list[int | None] = [None, None]
            if world > 1:
                others = draw_offline(self.negatives, self.split, joint, self.seed, epoch)
                widths = [self._longest(rows) for rows in others]
            first, second = (
                self._batch(epoch, self.split.owner[rows], rows, rows, width, batch.shares)
                for rows, width in zip((texts, of_pictures), widths, strict=True)
            )
            batch.offline = (first, second)
        return batch

    def _batch(
        self,
        epoch: int,
        pictures: np.ndarray,
        captions: np.ndarray,
        drawn_by: np.ndarray,
        width: int | None,
        shares: tuple[int, ...],
    ) -> Batch:
        """Make a batch of pictures (B,) and captions (C,); pictures draw by the rows `drawn_by`."""
        split, targets = self.split, self.split.targets
        tokens, token_mask = self._tokens_of(epoch, captions, width)
        # Photographs know how to vary their cut.
        varied = getattr(split.pictures, "varied", None)
        shown = varied(pictures, self.seed, epoch, drawn_by) if varied else split.pictures[pictures]
        mask = None
        if not split.has_pixels:
            elements = split.pictures.shape[1]
            counts = np.full(len(split), elements) if split.picture_counts is None else split.picture_counts
            mask = np.arange(elements) < np.asarray(counts)[pictures, None]  # (B, N)
            if self.element_drop:
                draws = noise(self.seed, epoch, "elements", drawn_by, elements)  # (B, N)
                mask = _drop(mask, draws, self.element_drop)
        return Batch(
            pictures=torch.from_numpy(np.ascontiguousarray(shown)),
            picture_mask=None if mask is None else torch.from_numpy(mask),
            tokens=torch.from_numpy(tokens),
            token_mask=torch.from_numpy(token_mask),
            picture_rows=torch.from_numpy(pictures),
            caption_rows=torch.from_numpy(captions),
            owner_rows=torch.from_numpy(split.owner[captions]),
            targets=None if targets is None else torch.from_numpy(targets[captions].astype(np.float32)),
            shares=shares,
        )

    def _captions_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the captions of the epoch's rows, (C,)."""
        return rows if self.mode == "pairs" else self.split.captions_of(rows)

    def _longest(self, captions: np.ndarray) -> int | None:
        """Return the length of the longest caption of a joint batch, before words are dropped.

        None with one process: then only what is left after dropping counts.
        """
        return int(self.captions.lengths[captions].max()) if self.share[1] > 1 else None

    def _shares(self, joint: np.ndarray) -> tuple[int, ...]:
        """Return how many captions each process has; () with one process."""
        if self.share[1] == 1:
            return ()
        counts = np.ones_like(joint) if self.mode == "pairs" else self.split.caption_counts[joint]
        return tuple(counts.reshape(self.share[1], -1).sum(1).tolist())

    def _tokens_of(
        self, epoch: int, captions: np.ndarray, width: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the captions' numbers and their mask, (C, L) each, after words are dropped.

        Without a width they are padded to the longest after dropping.
        """
        tokens, mask = (tensor.numpy() for tensor in self.captions.rows(captions, width))
        if not self.word_drop:
            return tokens, mask
        words = mask.copy()
        for number in self.captions.special:
            words &= tokens != number
        draws = noise(self.seed, epoch, "words", captions, tokens.shape[1])  # (C, L)
        dropped = words & ~_drop(words, draws, self.word_drop)
        # A draw below word_drop / 2 hides a word; from there up to word_drop, the word is left out.
        tokens[dropped & (draws < self.word_drop / 2)] = self.captions.blank
        left = mask & ~(dropped & (draws >= self.word_drop / 2))
        lengths = left.sum(1)
        width = int(lengths.max()) if width is None else width
        mask = np.arange(width) < lengths[:, None]
        closed = np.full(mask.shape, self.captions.pad, np.int64)
        closed[mask] = tokens[left]  # both go row by row, so what is left keeps its order
        return closed, mask


def make_loader(
    split: Split,
    tokenizer: Tokenizer | TokenizedCaptions,
    batch_size: int,
    *,
    epoch: int = 0,
    start: int = 0,
    workers: int = 0,
    **options: Any,
) -> "Loader":
    """Make the loader of an epoch's batches; its `of_epoch` turns it to another epoch.

    Args:
        split: what to go through.
        tokenizer: turns its captions into numbers. If you make a loader for each epoch, give the tokenised
            captions instead, so that it is done once.
        batch_size: the size of a batch, over all processes.
        epoch: each has its own order, and drops other elements and words.
        start: skip this many batches of the epoch: an interrupted epoch continues exactly where it stopped.
        workers: processes that prepare batches ahead; 0: batches are made as they are asked for.
        options: `mode`, `seed`, `element_drop`, `word_drop`, `negatives` and `share`: see `Batches`.

    Returns:
        An iterable of `Batch`, whose `len` is the number of batches left in the epoch.

    Raises:
        ValueError: an argument out of its range, or one that does not fit the split.
    """
    captions = tokenizer
    if not isinstance(captions, TokenizedCaptions):
        captions = TokenizedCaptions.encode(captions, split.captions)
    batches = Batches(split, captions, batch_size, **options)
    loader = Loader(
        batches,
        batch_size=None,  # an item is a whole batch
        sampler=_Order(batches.count, batch_size, batches.seed),
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=torch.cuda.is_available(),
        # Its own generator: otherwise each epoch would advance the global one, and so change dropout.
        generator=torch.Generator().manual_seed(batches.seed),
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
        if not 0 <= start <= self.sampler.batches:
            raise ValueError(f"start is {start}: the epoch has {self.sampler.batches} batches")
        self.sampler.epoch, self.sampler.start = epoch, start
        return self


class _Order(Sampler[tuple[int, np.ndarray]]):
    """The rows of each joint batch of an epoch, each with the epoch, on which what is dropped depends."""

    epoch = start = 0

    def __init__(self, count: int, batch_size: int, seed: int) -> None:
        self.count, self.batch_size, self.seed = count, batch_size, seed
        self.batches = count // batch_size

    def __len__(self) -> int:
        return self.batches - self.start

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        order = np.argsort(noise(self.seed, self.epoch, "order", np.arange(self.count)), kind="stable")
        for batch in range(self.start, self.batches):
            yield self.epoch, order[batch * self.batch_size :][: self.batch_size]


def _drop(mask: np.ndarray, draws: np.ndarray, probability: float) -> np.ndarray:
    """Remove from the mask what draws a number below the probability; each row keeps its highest draw."""
    kept = mask & (draws >= probability)
    highest = np.where(mask, draws, -1.0).argmax(1)
    rows = np.arange(len(mask))
    kept[rows, highest] = mask[rows, highest]
    return kept
