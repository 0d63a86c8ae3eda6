"""The rows of one split in a folder of features, written in any order, also by several processes at once.

While a folder is unfinished, `{split}_made.npy` says which rows are there. Once it is whole, each `BLOCK`
rows have a digest in `checksums.json`, so that damage is noticed.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from vsecore.data import files
from vsecore.data.memory_map import MappedPictures

BLOCK = 256
"""How many rows share a digest."""


class FeatureRows:
    """The rows of one split: `{name}_ims.npy`, and for regions `{name}_boxes.npy`, (n, N, 4) float32.

    Args:
        folder: the folder of features.
        name: the name of the split.
        shape: (n, N, F).
        dtype: the type of the numbers on disk.
        boxes: whether each element has a box.
    """

    def __init__(
        self, folder: Path, name: str, shape: tuple[int, int, int], dtype: str, boxes: bool = False
    ) -> None:
        self.count = shape[0]
        self.path = folder / f"{name}_ims.npy"
        self.made = folder / f"{name}_made.npy"
        self._arrays = {self.path: (np.dtype(dtype), shape)}
        if boxes:
            self._arrays[folder / f"{name}_boxes.npy"] = np.dtype(np.float32), (*shape[:2], 4)
        self._unmarked: list[tuple[int, int]] = []

    @property
    def fit(self) -> bool:
        """Whether the files have their shapes and sizes."""
        return all(map(self._fits, self._arrays))

    def missing(self, digests: Mapping[str, list[str]] | None) -> np.ndarray:
        """Return which rows must be made, (n,) bool.

        `digests` is what `checksums.json` of a finished folder says; None: the folder is unfinished.
        """
        if not self.fit:
            return np.ones(self.count, bool)
        if digests is None:
            return ~self._read_made()
        missing = np.zeros(self.count, bool)
        for _, start in self.damaged(digests):
            missing[start : start + BLOCK] = True
        return missing

    def damaged(self, digests: Mapping[str, list[str]]) -> Iterator[tuple[Path, int]]:
        """Yield the file and the first row of each block that is not what was written."""
        for path in self._arrays:
            known = digests.get(path.name)
            for block, digest in enumerate(self._digests(path) if known else ()):
                if known and known[block : block + 1] != [digest]:
                    yield path, block * BLOCK

    def digests(self) -> dict[str, list[str]]:
        """Return the digest of each block of each file."""
        return {path.name: list(self._digests(path)) for path in self._arrays}

    def bytes_missing(self, missing: np.ndarray) -> int:
        """Return how many bytes the rows that are missing will take."""
        row = sum(dtype.itemsize * int(np.prod(shape[1:])) for dtype, shape in self._arrays.values())
        return row * int(missing.sum()) + self.count

    def note_missing(self, missing: np.ndarray) -> None:
        """Write down which rows are missing, before the folder counts as unfinished."""
        with files.write_atomically(self.made) as file:
            np.save(file, ~missing)

    def begin(self) -> None:
        """Make the files that are not there, or have other shapes."""
        for path, (dtype, shape) in self._arrays.items():
            if not self._fits(path):
                path.unlink(missing_ok=True)  # it may be a link or a pipe
                np.lib.format.open_memmap(path, "w+", dtype, shape)

    def write(self, start: int, arrays: Sequence[np.ndarray]) -> None:
        """Write some rows. They count as made after `mark`. Several processes may write, each its own rows.

        Args:
            start: the index of the first of these rows.
            arrays: (m, N, F) in the type of the file, and (m, N, 4) if elements have boxes.
        """
        for path, rows in zip(self._arrays, arrays, strict=True):
            _overwrite(path, start, self.count, rows)
        self._unmarked.append((start, len(arrays[0])))

    def mark(self) -> None:
        """Mark what was written as made, after it has reached the disk."""
        if self._unmarked:
            _flush(*self._arrays)
        for start, count in self._unmarked:
            _overwrite(self.made, start, self.count, np.ones(count, bool))
        self._unmarked.clear()

    def check(self) -> None:
        """Raise an OSError if a row is not there: a network disk may lose what other processes write."""
        if not self._read_made().all():
            raise OSError(f"{self.path} lacks rows that were written: run the same extraction again")

    def _fits(self, path: Path) -> bool:
        """Whether a file has the right shape, type and size."""
        try:
            found = MappedPictures(path)
        except (ValueError, OSError):
            return False
        return (found.dtype, found.shape) == self._arrays[path]

    def _read_made(self) -> np.ndarray:
        """Return which rows are there, (n,) bool; none if the file that says so is damaged."""
        try:
            if self.made.is_file():  # a pipe would make us wait for its other end
                made = np.load(self.made, allow_pickle=False)
                if made.shape == (self.count,) and made.dtype.kind in "bi":  # once numbers, 0 for a lack
                    return np.asarray(made != 0)
        except Exception:  # a damaged header fails in as many ways as Python code can
            pass
        return np.zeros(self.count, bool)

    def _digests(self, path: Path) -> Iterator[str]:
        rows = MappedPictures(path)
        blocks = range(0, self.count, BLOCK)
        for start in files.progress(blocks, desc=f"verify {path.stem}", unit="block"):
            yield hashlib.sha256(np.asarray(rows[start : start + BLOCK]).tobytes()).hexdigest()


def first_not_finite(features: np.ndarray) -> int | None:
    """Return the first row of (n, ...) that holds NaN or infinity."""
    bad = ~np.isfinite(features).all(tuple(range(1, features.ndim)))
    return int(bad.argmax()) if bad.any() else None


def as_stored(features: np.ndarray, dtype: str, names: Sequence[object]) -> np.ndarray:
    """Return features (m, N, F) as "float16" or "float32".

    Raises:
        ValueError: one is no real number, not finite, or too large for the type; `names` says what each was
            made from.
    """
    if features.dtype.kind not in "fiu":
        raise ValueError(f"{names[0]} holds {features.dtype}: wanted real numbers")
    with np.errstate(over="ignore"):
        stored = features.astype(dtype)
    bad = first_not_finite(stored)
    if bad is not None:
        raise ValueError(
            f'features of {names[bad]} are not finite in {dtype}: set dtype="float32", or use other weights'
        )
    return stored


def _overwrite(path: Path, start: int, count: int, rows: np.ndarray) -> None:
    """Write rows into a `.npy` file of `count` rows.

    They are written, not mapped: a full disk then raises an error and does not kill the process silently.
    """
    try:
        with path.open("r+b") as file:
            # From the end, since the header's length is open.
            file.seek((start - count) * rows[0].nbytes, os.SEEK_END)
            file.write(rows.tobytes())
    except OSError as error:
        raise OSError(
            f"{path} cannot be written ({error.strerror}): once that is solved, the same command goes on"
        ) from error


def _flush(*paths: Path) -> None:
    for path in paths:
        with path.open("r+b") as file:
            os.fsync(file.fileno())
