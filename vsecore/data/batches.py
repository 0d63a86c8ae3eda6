"""Make the batches of an epoch (`make_loader`).

Everything random in a batch is a pure function of the seed, the epoch and the row, so that neither the number
of workers nor an interruption changes what a model sees.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler
from torch.utils.data import Dataset as TorchDataset

from vsecore.data.noise import noise
from vsecore.data.offline_negatives import OfflineNegatives, draw_offline
from vsecore.data.photographs import Photographs
from vsecore.data.splits import Split
from vsecore.data.words import TokenizedCaptions, Tokenizer

Mode = Literal["pairs", "pictures"]


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

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """Return the batch with a function applied to every tensor, those of its offline batches too."""
        changed: dict[str, Any] = {
            name: change(value) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        if self.offline is not None:
            changed["offline"] = tuple(part.map(change) for part in self.offline)
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> "Batch":
        """Move the batch to a device, and only there turn half precision into float32.

        So half as many bytes are copied, and from pinned memory the copy does not wait.
        """

        def move(tensor: Tensor) -> Tensor:
            moved = tensor.to(device, non_blocking=True)
            return moved.float() if moved.is_floating_point() else moved

        return self.map(move)

    def pin_memory(self) -> "Batch":
        """Copy the batch to page-locked memory (the loader calls this)."""
        return self.map(Tensor.pin_memory)


@dataclass(frozen=True, eq=False)
class Batches(TorchDataset["Batch"]):
    """How the batches of a split are put together, and one process's share of each.

    "pairs": a batch is `batch_size` captions, each with its picture (B = C); an epoch is every caption once.
    "pictures": a batch is `batch_size` pictures, each once and with all its captions (C is usually 5 B).

    Dropping elements and words keeps a model from relying on any single one. A dropped element is masked: it
    stays in the batch, as padding. Half of the words chosen to be dropped are replaced by
    `tokenizer.blank` and half are left out, so that a model learns both to guess a word and to do without it.
    At least one element of a picture and one word of a caption always stay.

    Source: pairs as in Faghri et al. 2018 (VSE++); dropping as in Chen et al. 2021 (VSE-infinity), there with
    probability 0.2 for both; negatives as in Chen, Deng and Luo 2020 (AOQ), section 3.2.
    """

    split: Split
    captions: TokenizedCaptions
    batch_size: int
    """The size of the joint batch, over all processes. What is left at the end of an epoch makes no batch."""
    mode: Mode = "pairs"
    seed: int = 0
    """Decides, with the epoch, the order, and which elements and words are dropped."""
    element_drop: float = 0.0
    """The probability that an element of a picture is dropped, in [0, 1). 0 for pixels."""
    word_drop: float = 0.0
    """The probability that a word of a caption is dropped, in [0, 1)."""
    negatives: OfflineNegatives | None = None
    """Mode "pairs" only: for each pair, one of its hard captions and one of its hard pictures are drawn: see
    `Batch.offline`."""
    share: tuple[int, int] = (0, 1)
    """Which process this is, and how many train together. Each gets its contiguous share of a joint batch,
    and captions are padded to its longest caption, so that all hold tensors of the same shape."""

    def __post_init__(self) -> None:
        rank, world = self.share
        size, pixels, known = self.batch_size, self.split.has_pixels, len(self.captions)
        for name, given, fits, wanted in (
            ("mode", self.mode, self.mode in get_args(Mode), f"one of {get_args(Mode)}"),
            ("element_drop", self.element_drop, 0 <= self.element_drop < 1, "at least 0 and below 1"),
            ("element_drop", self.element_drop, not (self.element_drop and pixels), "0 for pixels"),
            ("word_drop", self.word_drop, 0 <= self.word_drop < 1, "at least 0 and below 1"),
            ("share", self.share, 0 <= rank < world, "a rank below the number of processes"),
            ("batch_size", size, size >= 1 and size % world == 0, f"a multiple of {world}"),
            ("training.batch_size", size, size <= self.count, f"at most {self.count}, all that an epoch has"),
            ("mode", self.mode, self.negatives is None or self.mode == "pairs", '"pairs" with negatives'),
            ("len(captions)", known, known == len(self.split.captions), "all captions of the split"),
        ):
            if not fits:
                raise ValueError(f"{name} is {given!r}: wanted {wanted}")
        if self.negatives is not None:
            self.negatives.check(self.split)

    @property
    def count(self) -> int:
        """How many captions or pictures an epoch goes through."""
        return len(self.split.captions) if self.mode == "pairs" else len(self.split)

    def __getitem__(self, item: tuple[int, np.ndarray]) -> Batch:
        """Make this process's share of a joint batch, given the epoch and the joint batch's rows."""
        epoch, joint = item
        batch = self._batch(epoch, joint)
        if self.negatives is not None:
            # For each pair, a hard caption with its picture and a hard picture with a caption.
            texts, of_pictures = draw_offline(self.negatives, self.split, joint, self.seed, epoch)
            batch.offline = self._batch(epoch, texts), self._batch(epoch, of_pictures)
        return batch

    def _batch(self, epoch: int, joint: np.ndarray) -> Batch:
        """Make a share of a joint batch of captions, each with its picture, or of pictures.

        What is dropped depends on these rows: of a picture with two captions, other elements each time.
        """
        split, targets, (rank, world) = self.split, self.split.targets, self.share
        rows, pairs = joint.reshape(world, -1)[rank], self.mode == "pairs"
        pictures, captions = (split.owner[rows], rows) if pairs else (rows, split.captions_of(rows))
        width, shares = None, ()
        if world > 1:
            counts = np.ones_like(joint) if pairs else split.caption_counts[joint]
            shares = tuple(counts.reshape(world, -1).sum(1).tolist())
            width = int(self.captions.lengths[joint if pairs else split.captions_of(joint)].max())
        tokens, token_mask = self._tokens(epoch, captions, width)
        if isinstance(split.pictures, Photographs):
            shown = split.pictures.varied(pictures, self.seed, epoch, rows)
        else:
            shown = split.pictures[pictures]
        mask = None
        if not split.has_pixels:
            mask = split.real_elements(pictures)  # (B, N)
            if self.element_drop:
                draws = noise(self.seed, epoch, "elements", rows, mask.shape[1])  # (B, N)
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

    def _tokens(self, epoch: int, captions: np.ndarray, width: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the captions' numbers and their mask, (C, L) each, after words are dropped."""
        tokens, mask = (tensor.numpy() for tensor in self.captions.rows(captions, width))
        if not self.word_drop:
            return tokens, mask
        words = mask & ~np.isin(tokens, list(self.captions.special))
        draws = noise(self.seed, epoch, "words", captions, tokens.shape[1])  # (C, L)
        dropped = words & ~_drop(words, draws, self.word_drop)
        # A draw below word_drop / 2 hides a word; from there up to word_drop, the word is left out.
        tokens[dropped & (draws < self.word_drop / 2)] = self.captions.blank
        left = mask & ~(dropped & (draws >= self.word_drop / 2))
        lengths = left.sum(1)
        mask = np.arange(lengths.max() if width is None else width) < lengths[:, None]
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
    """Make the loader of an epoch's batches; `of_epoch` turns it to another epoch.

    Args:
        split: what to go through.
        tokenizer: turns its captions into numbers; or the captions already tokenised.
        batch_size: the size of a batch, over all processes.
        epoch: each has its own order, and drops other elements and words.
        start: skip this many batches of the epoch: an interrupted epoch continues exactly where it stopped.
        workers: processes that prepare batches ahead; 0: batches are made as they are asked for.
        options: `mode`, `seed`, `element_drop`, `word_drop`, `negatives` and `share`: see `Batches`.
    """
    captions = TokenizedCaptions.encode(tokenizer, split.captions)
    batches = Batches(split, captions, batch_size, **options)
    loader = Loader(
        batches,
        batch_size=None,  # an item is a whole batch
        sampler=_Order(batches),
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
        """Go to an epoch and skip its first `start` batches; a ValueError if it has fewer."""
        if not 0 <= start <= self.sampler.batches:
            raise ValueError(f"start is {start}: the epoch has {self.sampler.batches} batches")
        self.sampler.epoch, self.sampler.start = epoch, start
        return self


class _Order(Sampler[tuple[int, np.ndarray]]):
    """The rows of each joint batch of an epoch, each with the epoch, on which what is dropped depends."""

    epoch = start = 0

    def __init__(self, source: Batches) -> None:
        self.source, self.batches = source, source.count // source.batch_size

    def __len__(self) -> int:
        return self.batches - self.start

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        source, size = self.source, self.source.batch_size
        order = np.argsort(noise(source.seed, self.epoch, "order", np.arange(source.count)), kind="stable")
        for batch in range(self.start, self.batches):
            yield self.epoch, order[batch * size : (batch + 1) * size]


def _drop(mask: np.ndarray, draws: np.ndarray, probability: float) -> np.ndarray:
    """Remove from the mask what draws a number below the probability; each row keeps its highest draw."""
    kept = mask & (draws >= probability)
    highest = np.where(mask, draws, -1.0).argmax(1)
    rows = np.arange(len(mask))
    kept[rows, highest] = mask[rows, highest]
    return kept
