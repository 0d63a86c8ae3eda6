"""Pretrained vectors for words: text files of GloVe or fastText, or GloVe from an installed package."""

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from vsecore.data import glove
from vsecore.data.vocabulary import Vocabulary

_LONGEST_ROW = 1 << 20


@dataclass(frozen=True)
class VectorReport:
    """Which words of a vocabulary a vectors file has."""

    found: int
    """How many words have a vector in the file."""
    by_lower_case: int
    """How many of the words found match a word of the file only if case is ignored."""
    missing: list[str]
    """Words that the file lacks."""

    def __str__(self) -> str:
        total = self.found + len(self.missing)
        shown = ", ".join(self.missing[:5]) + (", ..." if len(self.missing) > 5 else "")
        return f"{self.found} of {total} words found, {len(self.missing)} from noise ({shown or 'none'})"


def load_vectors(path: str | Path, vocabulary: Vocabulary, seed: int = 0) -> tuple[Tensor, VectorReport]:
    """Load trained vectors for the words of a vocabulary from a text file of GloVe or fastText.

    A file of 400,000 lines takes seconds to read. The result for a vocabulary is cached, so that a second
    call does not read the file again unless it has changed.

    A word that the file lacks is looked up again, ignoring case. Words still missing, and the special ones,
    start near the mean of the others: the mean, plus noise of a tenth of their spread. Padding is zero.

    Args:
        path: a row for each word: the word, then d numbers. fastText's first line ("rows d") is understood.
            "glove" means all of GloVe 6B in width 50, from the package that the extra "offline" brings.
        vocabulary: the words that are wanted; V is its length.
        seed: the seed of the noise.

    Returns:
        The vectors, (V, d) float32, row by number, and what was found.

    Raises:
        FileNotFoundError: no such file, or the package is not installed.
        ValueError: a row has the wrong width or holds no numbers, or no word was found.

    Source: Pennington, Socher and Manning 2014 (GloVe); Bojanowski et al. 2017 (fastText).
    """
    path = Path(path)
    if path.is_file():
        state = path.stat()
        found, words, by_lower_case = _read_vectors(
            path.resolve(), (state.st_mtime_ns, state.st_size), tuple(vocabulary.words)
        )
    elif str(path) == glove.NAME:
        found, words = glove.read(tuple(vocabulary.words))
        by_lower_case = 0
    else:
        raise FileNotFoundError(
            f"no vectors file {path}: name a text file of GloVe or fastText, or write glove for the vectors "
            'that the extra "offline" brings'
        )
    dice = torch.Generator().manual_seed(seed)
    spread = 0.1 * found.std(0, correction=0)
    matrix = found.mean(0) + spread * torch.randn(len(vocabulary), found.shape[1], generator=dice)  # (V, d)
    matrix[torch.tensor([vocabulary.numbers[word] for word in words])] = found
    matrix[vocabulary.pad] = 0
    known = set(words)
    missing = [word for word in vocabulary.words if word not in known]
    return matrix, VectorReport(len(found), by_lower_case, missing)


@functools.lru_cache(maxsize=4)
def _read_vectors(
    path: Path, version: tuple[int, int], words: tuple[str, ...]
) -> tuple[Tensor, tuple[str, ...], int]:
    """Read the vectors of some words from a file; cached, since each system of an experiment needs the same.

    Args:
        path: as for `load_vectors`.
        version: when the file was written, and its size, so that a file that has changed is read again.
        words: the known words of the vocabulary.

    Returns:
        The vectors found, (found, d); their words, in the same order; how many were found only by ignoring
        case.
    """
    exact: dict[str, list[float]] = {}
    folded: dict[str, list[float]] = {}
    wanted, wanted_folded = set(words), {word.lower() for word in words}
    for number, word, values in _vector_rows(path):
        if word not in wanted and word.lower() not in wanted_folded:
            continue
        try:
            vector = [float(value) for value in values]
        except ValueError:
            raise ValueError(f"{path}, line {number} ({word!r}): wanted numbers after the word") from None
        exact.setdefault(word, vector)
        # Keep the first, which is the most frequent: both kinds of file are sorted.
        folded.setdefault(word.lower(), vector)

    rows = {word: exact.get(word, folded.get(word.lower())) for word in words}
    found = {word: row for word, row in rows.items() if row is not None}
    if not found:
        raise ValueError(
            f"{path} has no vector for any of the {len(words)} words: is it a file of word vectors?"
        )
    vectors = torch.tensor(list(found.values()))  # (found, d)
    bad = ~vectors.isfinite().all(1)
    if bad.any():
        word = list(found)[int(bad.int().argmax())]
        raise ValueError(f"{path} holds NaN or infinite numbers for {word!r}: get the file again")
    return vectors, tuple(found), sum(word not in exact for word in found)


def _vector_rows(path: Path) -> Iterable[tuple[int, str, list[str]]]:
    """Yield line number, word and values (as text) of each row, after checking its width."""
    width = promised = number = 0
    # newline="\n": some words hold characters that Python would take for an end of line.
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        # In lines of bounded length: a single line of a damaged file may be larger than the memory.
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_ROW), ""), start=1):
            if number == 1 and ("\0" in line or len(line) == _LONGEST_ROW):
                raise ValueError(
                    f"{path} is not a text file of word vectors: unpack it, or get the text file"
                )
            if len(line) == _LONGEST_ROW:
                raise ValueError(
                    f"{path}, line {number} has {_LONGEST_ROW} characters or more, which no row of word "
                    "vectors has: get the file again"
                )
            line = line.rstrip(" \r\n")
            if number == 1:
                first = line.split(" ")
                if re.fullmatch("[0-9]{1,18} [0-9]{1,18}", line):  # fastText
                    promised, width = map(int, first)
                    continue
                width = len(first) - 1
            # Split from the right, since a few words of GloVe 840B contain spaces.
            word, *values = line.rsplit(" ", width)
            if len(values) < width or not width or _ends_in_number(word):
                raise ValueError(
                    f"{path}, line {number} has {line.count(' ')} numbers, the rows before it {width}: "
                    "wanted a word and as many numbers in each row; get the file again, it may be cut off"
                )
            yield number, word, values
    if promised not in (0, number - 1):
        raise ValueError(
            f"{path} has {number - 1} rows, but its first line promises {promised}: it may be cut off, so "
            "get the file again, or correct that line"
        )


def _ends_in_number(word: str) -> bool:
    """Whether a word with spaces ends in a number, which means that the row is too wide."""
    _, blank, last = word.rpartition(" ")
    try:
        float(last)
    except ValueError:
        return False
    return bool(blank)
