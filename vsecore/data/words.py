"""Sentences as words, and as numbers.

Two kinds of tokenizer share one interface (`Tokenizer`): `Vocabulary` (from `vsecore.data.vocabulary`), whole
words counted in the training split, and those of `vsecore.data.word_pieces`, the word pieces that a language
model or a pair of towers was trained on.
"""

import itertools
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import regex
import torch
from torch import Tensor

from vsecore.typed import short

_MARK = r"[\p{M}\u200c\u200d--[\ufe00-\ufe0f\u20d0-\u20ff]]"
"""Marks and joiners belong to the letter before them; those that only colour or frame a sign do not."""
_ALONE = (
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\u30fc\uff70\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
    r"&&\p{L}]"
)
"""Letters of scripts that put no blanks between words: each is a word of its own."""
_LETTER = rf"[[\p{{L}}\p{{N}}_]--{_ALONE}]{_MARK}*+"
_WORD = regex.compile(
    rf"{_ALONE}{_MARK}*+|(?:{_LETTER})+?(?=n't\b)|n't\b|'(?:{_LETTER})+|(?:{_LETTER})+", regex.VERSION1
)
_ASCII_WORD = re.compile(r"\w+?(?=n't\b)|n't\b|'\w+|\w+", re.ASCII)


def tokenize(text: str) -> list[str]:
    """Return the words of a sentence, in lower case and Unicode's composed form (NFC), without punctuation.

    Contractions are cut where GloVe cuts them: "doesn't" is "does", "n't"; "dog's" is "dog", "'s". Of scripts
    without blanks between words, such as Chinese and Thai, every letter is a word.
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())  # the same, several times as fast
    return _WORD.findall(unicodedata.normalize("NFC", text).lower().replace("’", "'"))


class Tokenizer(ABC):
    """Turns sentences into numbers.

    A class method `load(folder)` reads what `save` wrote, and raises a FileNotFoundError where there is no
    such file and a ValueError where it is damaged.
    """

    pad: int
    unknown: int
    blank: int
    """What replaces a word that is hidden on purpose (`word_drop`)."""
    special: frozenset[int]
    """Numbers that are not words: start, end, padding. They are never hidden."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the size of the vocabulary: every number is below it."""

    @abstractmethod
    def numbers_of(self, captions: list[str]) -> list[list[int]]:
        """Return the numbers of each caption, with those that mark its start and its end."""

    @abstractmethod
    def words_of(self, caption: str) -> list[tuple[str, list[int]]]:
        """Return the words of a caption in lower case, each with the places of its numbers in `encode`'s row.

        Punctuation is left out.
        """

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write one file into a folder, which is all that `load` needs."""

    def is_cut(self, caption: str) -> bool:
        """Whether a caption is longer than what is read of it."""
        return False

    def encode(self, captions: Iterable[str]) -> tuple[Tensor, Tensor]:
        """Turn C captions into numbers (C, L) int64, padded to the longest, and their mask (C, L) bool."""
        return TokenizedCaptions.encode(self, captions).rows(slice(None))


@dataclass(frozen=True, eq=False)
class TokenizedCaptions:
    """Captions as numbers, tokenised once: a batch takes its rows and never tokenises again.

    `encode` makes them. There is no padding: COCO's 566,000 training captions need about 30 MB.
    """

    numbers: np.ndarray
    """The numbers of all captions, one after the other, int32."""
    lengths: np.ndarray
    """How many of them each caption has, (Nc,) int64."""
    offsets: np.ndarray
    """Where each caption begins, (Nc,) int64."""
    pad: int
    blank: int
    special: frozenset[int]

    @classmethod
    def encode(
        cls, tokenizer: "Tokenizer | TokenizedCaptions", captions: Iterable[str]
    ) -> "TokenizedCaptions":
        """Tokenise Nc captions, unless they are given in place of the tokenizer."""
        if isinstance(tokenizer, TokenizedCaptions):
            return tokenizer
        sentences = checked_sentences(captions)
        numbers: list[np.ndarray] = []
        lengths: list[int] = []
        for start in range(0, len(sentences), 4096):  # in blocks, since lists need far more memory
            rows = tokenizer.numbers_of(sentences[start : start + 4096])
            numbers.append(np.fromiter(itertools.chain.from_iterable(rows), np.int32))
            lengths += map(len, rows)
        counts = np.array(lengths)
        marks = tokenizer.pad, tokenizer.blank, tokenizer.special
        return cls(np.concatenate(numbers), counts, np.cumsum(counts) - counts, *marks)

    def __len__(self) -> int:
        return len(self.lengths)

    def rows(self, rows: np.ndarray | slice, width: int | None = None) -> tuple[Tensor, Tensor]:
        """Return C captions as `Tokenizer.encode` would give them: numbers (C, L) int64 and their mask, bool.

        The width L is at least the length of the longest caption; None: that length.
        """
        lengths = self.lengths[rows]
        width = int(lengths.max()) if width is None else width
        mask = np.arange(width) < lengths[:, None]  # (C, L)
        places = self.offsets[rows][:, None] + np.arange(width)  # (C, L)   runs on into the next caption,
        read = self.numbers.take(places, mode="clip")
        tokens = np.where(mask, read, np.int64(self.pad))  # which is padded over here
        return torch.from_numpy(tokens), torch.from_numpy(mask)


def checked_sentences(captions: Iterable[str]) -> list[str]:
    """Return the captions as a list; refuse none, one string, or one that is no sentence."""
    if isinstance(captions, str):
        raise ValueError(f"captions is one string ({captions[:30]!r}): wanted a list of them")
    sentences = list(captions)
    if not sentences:
        raise ValueError("captions is empty: wanted at least one sentence")
    if odd := [one for one in sentences if not isinstance(one, str)]:
        raise ValueError(f"captions has {short(odd[0])}, a {type(odd[0]).__name__}: wanted sentences (str)")
    return sentences
