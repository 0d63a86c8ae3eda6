"""Sentences as words, and as numbers.

Two tokenizers share one interface (`Tokenizer`): `Vocabulary` (from `vsecore.data.vocabulary`), whole words
counted in the training split, for a GRU; `BERTTokenizer` (from `vsecore.data.word_pieces`), the word pieces
that a BERT was trained on.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

_WORD = re.compile(r"\w+?(?=n't\b)|n't\b|'\w+|\w+")


def tokenize(text: str) -> list[str]:
    """Return the words of a sentence, in lower case, without punctuation.

    Contractions are cut where GloVe cuts them: "doesn't" is "does", "n't"; "dog's" is "dog", "'s".
    """
    return _WORD.findall(text.lower().replace("’", "'"))


def padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Return C rows of numbers, padded to the longest, (C, L) int64, and which are real, (C, L) bool."""
    longest = max(map(len, rows))
    numbers = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])  # (C, L)
    lengths = torch.tensor([len(row) for row in rows])
    return numbers, torch.arange(longest) < lengths[:, None]


class Tokenizer(Protocol):
    """Turns sentences into numbers. `Vocabulary` and `BERTTokenizer` are the two here."""

    pad: int
    unknown: int
    blank: int
    """What replaces a word that is hidden on purpose (`word_drop`)."""
    special: frozenset[int]
    """Numbers that are not words: start, end, padding. They are never hidden."""

    def __len__(self) -> int:
        """Return the size of the vocabulary: every number is below it."""

    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return C captions as numbers (C, L) int64, padded to the longest, and their mask (C, L) bool."""

    def words_of(self, caption: str) -> list[tuple[str, list[int]]]:
        """Return the words of a caption, each with the places of its numbers in `encode`'s row."""

    def save(self, folder: str | Path) -> None:
        """Write what `load` needs into a folder."""


class TokenizedCaptions:
    """Captions as numbers, tokenised once: a batch takes its rows and never tokenises again.

    All numbers are in one array, caption after caption, without padding: COCO's 566,000 training captions
    need about 30 MB.

    Args:
        numbers: the tokens of all Nc captions, one after the other, whole numbers.
        lengths: how many of them each caption has, (Nc,), each at least 1.
        pad: what shorter captions are padded with.
        blank: what replaces a word that is hidden on purpose.
        special: numbers that are not words.

    Raises:
        ValueError: the lengths do not add up to the numbers, or a caption has none.
    """

    def __init__(
        self, numbers: np.ndarray, lengths: np.ndarray, *, pad: int, blank: int, special: frozenset[int]
    ) -> None:
        self.numbers, self.lengths = numbers.astype(np.int32), lengths.astype(np.int64)
        self.pad, self.blank, self.special = pad, blank, special
        if self.lengths.sum() != len(self.numbers):
            raise ValueError(
                f"lengths add up to {self.lengths.sum()} and there are {len(self.numbers)} numbers: "
                "wanted the same"
            )
        if (self.lengths < 1).any():
            raise ValueError(
                f"caption {(self.lengths < 1).argmax()} has no tokens: wanted at least one in each"
            )
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)])  # (Nc + 1,)

    @classmethod
    def encode(cls, tokenizer: Tokenizer, captions: Sequence[str]) -> "TokenizedCaptions":
        """Tokenise captions.

        Args:
            tokenizer: turns sentences into numbers.
            captions: Nc sentences.

        Raises:
            ValueError: `captions` is empty or one string.
        """
        sentences = checked_sentences(captions)
        numbers, lengths = [], []
        # In blocks, since a tokenizer pads all the captions that it is given to the longest.
        for start in range(0, len(sentences), 4096):
            tokens, mask = tokenizer.encode(sentences[start : start + 4096])
            numbers.append(tokens[mask].numpy())
            lengths.append(mask.sum(1).numpy())
        return cls(
            np.concatenate(numbers),
            np.concatenate(lengths),
            pad=tokenizer.pad,
            blank=tokenizer.blank,
            special=tokenizer.special,
        )

    def __len__(self) -> int:
        """Return Nc, the number of captions."""
        return len(self.lengths)

    def rows(self, rows: np.ndarray, width: int | None = None) -> tuple[Tensor, Tensor]:
        """Return some captions as `Tokenizer.encode` would give them.

        Args:
            rows: C rows of captions.
            width: L, at least the length of the longest caption; None: that length.

        Returns:
            Numbers (C, L) int64 and their mask (C, L) bool.
        """
        lengths = self.lengths[rows]
        width = int(lengths.max()) if width is None else width
        mask = np.arange(width) < lengths[:, None]  # (C, L)
        places = self.offsets[rows][:, None] + np.arange(width)  # (C, L)   runs on into the next caption,
        read = self.numbers.take(places, mode="clip")
        tokens = np.where(mask, read, np.int64(self.pad))  # which is padded over here
        return torch.from_numpy(tokens), torch.from_numpy(mask)


def checked_sentences(captions: Iterable[str]) -> list[str]:
    """Return the captions as a list.

    Raises:
        ValueError: there are none, or they are one string.
    """
    if isinstance(captions, str):
        raise ValueError(f"captions is one string ({captions[:30]!r}): wanted a list of them")
    sentences = list(captions)
    if not sentences:
        raise ValueError("captions is empty: wanted at least one sentence")
    return sentences
