"""The rows of a folder of features on disk, each with a checksum.

A checksum covers the numbers of a row and its boxes, the picture that they were made from, and the settings.
So the order of writing does not matter, and nothing on disk is simply trusted: after a kill, a power cut,
damage, or a new picture under an old name, the rows that do not match their checksums are made again.
"""

import contextlib
import errno
import hashlib
import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from vsecore.data import files

CHECKSUMS = np.dtype([("picture", "u1", 32), ("row", "u1", 32)])
"""Kept for each row: a sha256 of the picture's file, and one of row, picture and settings together."""


@dataclass(frozen=True)
class Verdict:
    """Which rows of a split on disk can be used."""

    missing: np.ndarray
    """(n,) bool: the rows that must be made, for whatever reason."""
    changed: list[int]
    """The rows whose picture is now a different one."""
    damaged: list[int]
    """The rows whose numbers or checksums are not what was written."""
    whole: bool
    """Whether no row is missing, and the files have their real names, headers and sizes."""


class _Column:
    """A `.npy` file with one array for each row: a hidden file until all rows are made.

    Args:
        path: the file's name when it is whole.
        dtype: the type of its numbers.
        shape: of all rows together.
    """

    def __init__(self, path: Path, dtype: str, shape: tuple[int, ...]) -> None:
        self.finished = path
        self.partial = path.with_name(f".{path.name}.part")
        self.header = _header(np.dtype(dtype), shape)
        self.row_bytes = math.prod(shape[1:]) * np.dtype(dtype).itemsize
        self.size = len(self.header) + shape[0] * self.row_bytes

    @property
    def path(self) -> Path:
        """Where its rows are now."""
        return self.finished if self.finished.exists() else self.partial

    def place(self, row: int) -> int:
        """Return where a row begins, in bytes."""
        return len(self.header) + row * self.row_bytes


class FeatureRows:
    """The rows of one split: `{name}_ims.npy`, a hidden file until it is whole, and `{name}_sums.npy`.

    Regions also have `{name}_boxes.npy`, (n, N, 4) float32: left, top, right and bottom of each, in pixels of
    the picture.

    Args:
        folder: the folder of features.
        name: the name of the split.
        shape: (n, N, F).
        dtype: the type of the numbers on disk.
        settings: whatever else determines the numbers, such as the network, as any text.
        boxes: whether each element has a box.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        shape: tuple[int, int, int],
        dtype: str,
        settings: str,
        boxes: bool = False,
    ) -> None:
        self.name = name
        self._features = _Column(folder / f"{name}_ims.npy", dtype, shape)
        self._columns = [self._features]
        if boxes:
            self._columns.append(_Column(folder / f"{name}_boxes.npy", "float32", (*shape[:2], 4)))
        self.checksums = folder / f"{name}_sums.npy"
        self._settings = hashlib.sha256(settings.encode()).digest()
        self._count = shape[0]
        self._sums_header = _header(CHECKSUMS, shape[:1])
        self.sums_size = len(self._sums_header) + self._count * CHECKSUMS.itemsize

    @property
    def finished(self) -> Path:
        """The file of features under its real name."""
        return self._features.finished

    def inspect(self, pictures: Sequence[Path] | None = None) -> Verdict:
        """Check every row on disk against its checksum, and every picture's file too.

        Args:
            pictures: the file of each row; None: pictures are not looked at.

        Raises:
            ValueError: something other than a file is where one should be.
        """
        refuse_all_but_files(*self._files())
        missing = np.ones(self._count, bool)
        changed: list[int] = []
        damaged: list[int] = []
        has_its_name = self.finished.exists()
        if not self._features.path.exists():
            return Verdict(missing, changed, damaged, whole=False)
        sums, sums_are_whole = self._read_sums()
        there = [column for column in self._columns if column.path.exists()]
        with contextlib.ExitStack() as stack:
            opened = [(stack.enter_context(column.path.open("rb")), column) for column in there]
            begin_well = all(file.read(len(column.header)) == column.header for file, column in opened)
            for row in files.progress(range(self._count), desc=f"verify {self.name}", unit="row"):
                picture, checksum = sums["picture"][row].tobytes(), sums["row"][row].tobytes()
                if not (has_its_name or any(checksum)):
                    continue  # the row was never made
                numbers = b""
                for file, column in opened:
                    file.seek(column.place(row))
                    numbers += file.read(column.row_bytes)
                if checksum != self._checksum(picture, numbers):
                    damaged.append(row)
                elif pictures is not None and picture != digest_of(pictures[row]):
                    changed.append(row)
                else:
                    missing[row] = False
        whole = begin_well and sums_are_whole and self.have_their_sizes()
        return Verdict(missing, changed, damaged, whole and not missing.any())

    def are_on_disk(self) -> bool:
        """Whether there is a file of the rows, whatever it holds."""
        return self._features.path.exists()

    def missing_checksums(self) -> str:
        """Say that the checksums are missing; "" if they are there."""
        lacking = "is missing, and without it nothing shows whether the rows are whole"
        return "" if self.checksums.exists() else f"{self.checksums} {lacking}"

    def have_their_sizes(self) -> bool:
        """Whether the files with the real names are there, neither cut off nor too long."""
        return all(
            column.finished.is_file() and _size(column.finished) == column.size for column in self._columns
        )

    def bytes_to_take(self) -> int:
        """Return how many bytes the disk must still have room for."""
        pairs = [(column.path, column.size) for column in self._columns]
        pairs.append((self.checksums, self.sums_size))
        return sum(max(0, size - _bytes_on_disk(path)) for path, size in pairs)

    def reserve(self) -> None:
        """Reserve room on disk for all rows and checksums; rows that are there already stay as they are.

        A file that had its real name loses it. A process that has it mapped sees rows change when they are
        made again, but copying 30 GB for the sake of one row would be worse.

        Raises:
            ValueError: a link, or something other than a file, is where a file should be.
            OSError: there is not enough room.
        """
        refuse_all_but_files(*self._files(), links=False)
        places = [(column.partial, column.header, column.size) for column in self._columns]
        for column in self._columns:
            if column.finished.exists():
                column.finished.replace(column.partial)
        for path, header, size in (*places, (self.checksums, self._sums_header, self.sums_size)):
            path.touch()
            with path.open("r+b") as file:  # not for appending: where a disk cannot reserve, that fails
                _take_room(file.fileno(), size)
                file.truncate(size)
                file.write(header)

    def discard(self) -> None:
        """Remove what `reserve` has made."""
        for column in self._columns:
            column.partial.unlink(missing_ok=True)
        self.checksums.unlink(missing_ok=True)

    def write(
        self, start: int, rows: np.ndarray, pictures: Sequence[bytes], boxes: np.ndarray | None = None
    ) -> None:
        """Write some rows, and then their checksums. A process that is killed loses at most these.

        Several processes may write at once, each its own rows.

        Args:
            start: the index of the first of these rows.
            rows: (m, N, F), in the type of the file.
            pictures: for each, the sha256 of the picture that it was made from.
            boxes: (m, N, 4) float32; None: elements have no boxes.

        Raises:
            OSError: they cannot be written.
        """
        arrays = [rows] if boxes is None else [rows, boxes]
        sums = np.zeros(len(rows), CHECKSUMS)
        for place, picture in enumerate(pictures):
            numbers = b"".join(array[place].tobytes() for array in arrays)
            sums["picture"][place] = np.frombuffer(picture, np.uint8)
            sums["row"][place] = np.frombuffer(self._checksum(picture, numbers), np.uint8)
        written = [
            (column.partial, column.place(start), array)
            for column, array in zip(self._columns, arrays, strict=True)
        ]
        # Written, not mapped, so that a full disk raises an error and does not kill the process silently.
        for path, offset, content in (
            *written,
            (self.checksums, len(self._sums_header) + start * CHECKSUMS.itemsize, sums),
        ):
            try:
                with path.open("r+b") as file:
                    file.seek(offset)
                    file.write(content.tobytes())
            except OSError as error:
                raise OSError(
                    f"{path} cannot be written ({error.strerror}): once that is solved, the same "
                    "extraction goes on from there"
                ) from error

    def finish(self) -> None:
        """Give the files their real names, once everything is on the disk; the features get theirs last."""
        for path in (*(column.partial for column in self._columns), self.checksums):
            with path.open("r+b") as file:
                os.fsync(file.fileno())
        for column in reversed(self._columns):
            column.partial.replace(column.finished)

    def _files(self) -> list[Path]:
        """Return every file that is written, under both its names."""
        names = [path for column in self._columns for path in (column.finished, column.partial)]
        return [*names, self.checksums]

    def _read_sums(self) -> tuple[np.ndarray, bool]:
        """Return (n,) CHECKSUMS, zeros where there are none, and whether the file is as it should be."""
        content = b""
        if self.checksums.exists():
            with self.checksums.open("rb") as file:
                content = file.read(self.sums_size)
        whole = content.startswith(self._sums_header) and _size(self.checksums) == self.sums_size
        sums = np.frombuffer(content.ljust(self.sums_size, b"\0"), CHECKSUMS, offset=len(self._sums_header))
        return sums, whole

    def _checksum(self, picture: bytes, row: bytes) -> bytes:
        digest = hashlib.sha256(self._settings + picture)
        digest.update(row)
        return digest.digest()


def digest_of(path: Path) -> bytes:
    """Return the sha256 of a file's content; b"" for anything but a file."""
    if not path.is_file():  # a pipe would make us wait for its other end
        return b""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """Return the header of a `.npy` file of these numbers."""
    begin = io.BytesIO()
    description = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(begin, description)
    return begin.getvalue()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _bytes_on_disk(path: Path) -> int:
    """Return the room that a file takes, which is less than its size if some of it was never written."""
    if not path.exists():
        return 0
    status = path.stat()
    blocks = getattr(status, "st_blocks", None)  # Windows counts none
    return status.st_size if blocks is None else 512 * blocks


def _take_room(file: int, size: int) -> None:
    """Reserve room on disk for a file, so that a full disk is noticed before any row is written."""
    reserve = getattr(os, "posix_fallocate", None)  # macOS and Windows have none
    if reserve is None:
        return
    try:
        reserve(file, 0, size)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):  # some disks cannot reserve
            raise


def refuse_all_but_files(*paths: Path, links: bool = True) -> None:
    """Refuse a path where a file is to be written if anything but a file is there.

    Raises:
        ValueError: something else is there.
    """
    for path in paths:
        if (path.exists() and not path.is_file()) or (path.is_symlink() and not links):
            kind = "a link" if path.is_symlink() else "not a file"
            raise ValueError(f"{path} is {kind}: move it away, or name another folder for the features")
