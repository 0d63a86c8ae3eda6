"""Features or pixels that are mapped from disk and sent between processes as a file name."""

from pathlib import Path
from typing import Any

import numpy as np


class MappedPictures:
    """Features or pixels that stay on disk: rows are read when they are asked for.

    Unlike numpy's own memory map, it is sent to another process as the file's name, not its content.

    Args:
        path: a `.npy` file of features, (n, N, F) floats, or of pixels, (n, 3, H, W) uint8 or floats.
        rows: which of its rows these pictures are; None: all.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is another kind of file, or is cut off.
    """

    def __init__(self, path: Path, rows: range | None = None) -> None:
        self.path = Path(path)
        self._map = _open_npy(self.path)
        self.rows = range(len(self._map)) if rows is None else rows

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, N, F) or (n, 3, H, W)."""
        return len(self.rows), *self._map.shape[1:]

    @property
    def dtype(self) -> np.dtype:
        """The numbers' type on disk."""
        return self._map.dtype

    def __len__(self) -> int:
        """The number of pictures."""
        return len(self.rows)

    def __getitem__(self, rows: Any) -> Any:
        """A slice: fewer pictures, still on disk. A number or an array of numbers: those pictures."""
        if isinstance(rows, slice):
            return MappedPictures(self.path, self.rows[rows])
        if isinstance(rows, tuple) or np.asarray(rows).dtype.kind not in "iu":
            raise TypeError(f"rows are {rows!r}: wanted a slice, a number or an array of numbers")
        rows = np.asarray(rows)
        if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"rows {rows.min()} to {rows.max()}: {self.path} has 0 to {len(self) - 1}")
        return np.asarray(np.take(self._map, self.rows.start + self.rows.step * rows, axis=0))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All of them: the file's own pages, which are read-only, or a copy in memory if one is needed."""
        return np.array(self._map[self.rows.start : self.rows.stop : self.rows.step], dtype, copy=copy)

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedPictures, (self.path, self.rows)


def _open_npy(path: Path) -> np.ndarray:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: get it, or extract the features from pictures")
    try:
        mapped: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is not a .npy file, or is cut off ({error}): get the file again") from None
    is_features = mapped.ndim == 3 and mapped.dtype.kind == "f"
    is_pixels = (
        mapped.ndim == 4 and mapped.shape[1] == 3 and (mapped.dtype.kind == "f" or mapped.dtype == np.uint8)
    )
    if 0 in mapped.shape or not (is_features or is_pixels):
        raise ValueError(
            f"{path} holds {mapped.dtype} {mapped.shape}: wanted floats (pictures, elements, width), "
            "or pixels (pictures, 3, height, width) as uint8 or floats"
        )
    return mapped
