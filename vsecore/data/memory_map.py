"""Features or pixels that are mapped from disk."""

import functools
import os
import warnings
from pathlib import Path
from typing import IO, Any

import numpy as np

from vsecore.data.splits import UnreadPictures
from vsecore.typed import short


class MappedPictures(UnreadPictures):
    """Features or pixels that stay on disk: rows are read when they are asked for.

    Unlike numpy's own memory map, it is sent to another process as the file's name, not its content. Rows in
    random order are read by their exact bytes: for a row that is touched through a map, the system would
    read its neighbours too, many times as much as is wanted. A ValueError tells of a damaged file.

    Args:
        path: a `.npy` file of features, (n, N, F) floats, or of pixels, (n, 3, H, W) uint8 or floats.
        rows: which of its rows these pictures are; None: all.
    """

    def __init__(self, path: Path, rows: range | None = None) -> None:
        self.path = Path(path)
        self._map = _open_npy(self.path)
        self.dtype, self.one = self._map.dtype, self._map.shape[1:]
        self.rows = range(len(self._map)) if rows is None else rows

    @functools.cached_property
    def _file(self) -> IO[bytes] | None:
        """The file, to read rows from; None where they do not lie one after the other, or on Windows."""
        if not hasattr(os, "preadv") or not self._map.flags.c_contiguous:
            return None
        file = self.path.open("rb", buffering=0)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        return file

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Read the bytes of some rows of the file, (R, ...), in the order in which they lie on the disk."""
        if self._file is None:
            return np.asarray(np.take(self._map, rows, axis=0))
        out = np.empty((len(rows), *self.one), self.dtype)  # (R, N, F)
        size = self._map[0].nbytes
        for place in np.argsort(rows).tolist():
            left, at = memoryview(out[place]).cast("B"), self._map.offset + int(rows[place]) * size
            while len(left):
                read = os.preadv(self._file.fileno(), [left], at)
                if not read:
                    raise ValueError(f"{self.path} was cut off while it was read: get the file again")
                left, at = left[read:], at + read
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return all pictures: the file's own pages, which are read-only, or a copy if one is needed."""
        return np.array(self._map[self.rows.start : self.rows.stop : self.rows.step], dtype, copy=copy)

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedPictures, (self.path, self.rows)


def _open_npy(path: Path) -> np.memmap[Any, Any]:
    """Map a file whose size and numbers are as they should be."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: get it, or extract the features from pictures")
    try:
        with path.open("rb") as file:
            later = np.lib.format.read_magic(file) > (1, 0)  # whose headers may claim 4 GB, which numpy reads
            if later and int.from_bytes(file.read(4), "little") > 1 << 16:
                raise ValueError("its header is too long")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers that look odd, or were written by Python 2
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            dtype, shape, held = mapped.dtype, mapped.shape, path.stat().st_size - mapped.offset
            if held != mapped.nbytes:
                raise ValueError(f"{held} bytes for {dtype} {short(shape)}, wanted {mapped.nbytes}")
    # numpy parses a header as Python code, which fails in as many ways as code can.
    except Exception as error:
        problem = str(error).partition("\n")[0][:100]
        raise ValueError(f"{path} is not a .npy file, or is cut off ({problem}): get it again") from None
    is_pixels = len(shape) == 4 and shape[1] == 3
    is_float = dtype.kind == "f" and dtype.itemsize <= 8 and dtype.isnative
    fits = (len(shape) == 3 and is_float) or (is_pixels and (is_float or dtype == np.uint8))
    if not fits or min(shape) < 1:
        raise ValueError(
            f"{path} holds {dtype} {short(shape)}: wanted floats (n, N, F), or pixels (n, 3, H, W) as "
            "floats or uint8, in this machine's byte order"
        )
    return mapped
