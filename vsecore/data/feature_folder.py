"""The files of a folder of features.

For each split it holds `{split}_ims.npy` (n, N, F), `{split}_caps.txt` (one caption per line) and
`{split}_ids.txt`. It may hold `{split}_boxes.npy` (n, N, 4), the box of each element; `{split}_counts.txt`,
how many elements of each picture are real; `{split}_caption_counts.txt`, how many captions each has, if not
five; and `{split}_caption_ids.txt`, COCO's numbers of the captions, which CxC and ECCV Caption ask for.

`meta.json` says how the features were made. It is written last: a folder that has one is whole. Until then
`extraction.json` stands for it, and `{split}_made.npy` says which rows are there. In a whole folder
`checksums.json` has a digest of each `BLOCK` rows, so that damage is noticed.
"""

import contextlib
import functools
import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from vsecore.arguments import Count
from vsecore.data import files
from vsecore.data.annotations import DatasetName
from vsecore.data.sources import COLLECTIONS
from vsecore.data.splits import (
    CAPTIONS_A_PICTURE,
    FeatureKind,
    Split,
    UnreadPictures,
    captions_sha256,
    lines_sha256,
)
from vsecore.typed import short

META, UNFINISHED, CHECKSUMS = "meta.json", "extraction.json", "checksums.json"
BLOCK = 256
"""How many rows share a digest."""

DType = Literal["float16", "float32"]


@dataclass(frozen=True)
class Meta:
    """How features were made: the content of `meta.json`, which folders that papers share do not have."""

    dataset: DatasetName | None = None
    backbone: str = ""
    backbone_sha256: str = ""
    kind: FeatureKind = "region"
    picture_size: Count | None = None
    """The side that pictures were given; None: the features come from elsewhere."""
    dtype: DType | None = None
    elements: Count | None = None
    """N; where pictures have different numbers, the largest."""
    feature_dim: Count | None = None
    captions_a_picture: Count = CAPTIONS_A_PICTURE
    """Of the picture that has most."""
    pictures: dict[str, Count] = field(default_factory=dict)
    picture_ids_sha256: dict[str, str] = field(default_factory=dict)
    captions_sha256: dict[str, str] = field(default_factory=dict)
    """A sha256 over the pictures' names and the captions. Captions may change: no feature depends on them."""
    boxes: bool = False
    counts_sha256: dict[str, str] = field(default_factory=dict)
    """A sha256 over how many elements each picture has; empty: all have N."""
    unreadable: dict[str, list[str]] = field(default_factory=dict)
    """The ids of the pictures that were left out of each split because their files cannot be read."""

    @classmethod
    def of(cls, splits: Mapping[str, Split], **others: Any) -> "Meta":
        """Return what `meta.json` will say of features of these splits, given what captions do not tell.

        Captions must be in the pictures' order: only a caption's line number says which picture it has.
        """
        if others["dtype"] not in ("float16", "float32"):
            raise ValueError(f'dtype is {others["dtype"]!r}: wanted "float16" or "float32"')
        if not splits:
            raise ValueError("there are no splits: wanted those of karpathy.load_karpathy")
        least = CAPTIONS_A_PICTURE if others["dataset"] in COLLECTIONS else 1
        most = 0
        for name, split in splits.items():
            counts = split.caption_counts
            most = max(most, int(counts.max()))
            if counts.min() < least or (np.diff(split.owner) < 0).any():
                odd = split.picture_ids[int(counts.argmin())]
                raise ValueError(
                    f"{name}: {odd} has {counts.min()} captions: "
                    f"wanted {least} or more, in the pictures' order"
                )
        return cls(
            captions_a_picture=most,
            pictures={name: len(split.picture_ids) for name, split in splits.items()},
            picture_ids_sha256={name: lines_sha256(split.picture_ids) for name, split in splits.items()},
            captions_sha256={name: captions_sha256(split) for name, split in splits.items()},
            **others,
        )

    @property
    def network(self) -> str:
        """The network that made the features, with a digest of its weights; "": nobody knows."""
        return " ".join(filter(None, [self.backbone, self.backbone_sha256[:12]]))

    def as_json(self) -> str:
        """Return as text what is known."""
        known = {name: value for name, value in asdict(self).items() if value not in (None, "", {}, False)}
        return json.dumps(known, indent=1)


class FeatureRows:
    """The rows of one split on disk, with their boxes if `meta` says so; several processes may write them."""

    def __init__(self, folder: Path, meta: Meta, name: str) -> None:
        assert meta.elements is not None and meta.feature_dim is not None
        self.count = meta.pictures[name]
        self.path, self._made = folder / f"{name}_ims.npy", folder / f"{name}_made.npy"
        shape = self.count, meta.elements, meta.feature_dim
        self._arrays = {self.path: (np.dtype(meta.dtype), shape)}
        if meta.boxes:
            self._arrays[folder / f"{name}_boxes.npy"] = np.dtype(np.float32), (*shape[:2], 4)

    def bytes_lacking(self) -> int:
        """What the files will take on disk that are not there, or have other shapes."""
        lacking = (kind for path, kind in self._arrays.items() if not self._fits(path))
        return sum(dtype.itemsize * math.prod(shape) for dtype, shape in lacking)

    @property
    def fit(self) -> bool:
        """Whether the files have their shapes and sizes."""
        return all(map(self._fits, self._arrays))

    def digests(self) -> dict[str, list[str]]:
        """Return the digest of each block of each file."""
        return {path.name: list(_digests(path)) for path in self._arrays}

    def damaged(self) -> Iterator[tuple[Path, int]]:
        """Yield the file and the first row of each block whose digest is another one than is known.

        Folders of other programs have no digests.
        """
        kept = self.path.with_name(CHECKSUMS)
        digests = files.read_json(kept, dict[str, list[str]]) if kept.exists() else {}
        for path in self._arrays:
            if known := digests.get(path.name):
                for block, digest in enumerate(_digests(path)):
                    if known[block : block + 1] != [digest]:
                        yield path, block * BLOCK

    def made(self) -> np.ndarray:
        """Return which rows of an unfinished folder are there, (n,) bool; none if nothing says so."""
        # A pipe would make us wait for its other end; a damaged header fails in as many ways as code can.
        with contextlib.suppress(Exception):
            if self._made.is_file():
                made = np.load(self._made, allow_pickle=False)
                if made.shape == (self.count,) and made.dtype.kind in "bi":  # once numbers, 0 for a lack
                    return np.asarray(made != 0)
        return np.zeros(self.count, bool)

    def note(self, made: np.ndarray | None) -> None:
        """Write down which rows are there, (n,) bool; None: nobody needs to know any more."""
        if made is None:
            self._made.unlink(missing_ok=True)
            return
        with files.write_atomically(self._made) as file:
            np.save(file, made)

    def make_files(self) -> None:
        """Make the files that are not there, or have other shapes."""
        for path, (dtype, shape) in self._arrays.items():
            if not self._fits(path):
                path.unlink(missing_ok=True)  # it may be a link or a pipe
                np.lib.format.open_memmap(path, "w+", dtype, shape)

    def write(self, rows: np.ndarray, arrays: Sequence[np.ndarray]) -> None:
        """Write m rows, and note that they are there once they have reached the disk.

        The arrays are (m, N, F) in the type of the file, and (m, N, 4) if elements have boxes.
        """
        for path, values in zip(self._arrays, arrays, strict=True):
            _overwrite(path, self.count, rows, values)
        _overwrite(self._made, self.count, rows, np.ones(len(rows), bool))

    def _fits(self, path: Path) -> bool:
        try:
            found = MappedPictures(path)
        except (ValueError, OSError):
            return False
        return (found.dtype, found.shape) == self._arrays[path]


def read_meta(folder: Path) -> Meta | None:
    """Return what a folder was begun with; None: it was not begun."""
    for path in (folder / META, folder / UNFINISHED):
        if path.exists():
            meta: Meta = files.read_json(path, Meta)
            return meta
    return None


def find_damage(folder: Path, meta: Meta) -> dict[str, str]:
    """Return a sentence for each split of a folder with digests whose rows do not match them."""
    problems: dict[str, str] = {}
    for name in meta.pictures:
        rows = FeatureRows(folder, meta, name)
        for path, start in rows.damaged() if rows.fit else [(rows.path, None)]:
            place = "" if start is None else f", rows {start} to {start + BLOCK - 1},"
            problems.setdefault(name, f"{path}{place} is damaged or cut off: run the same extraction again")
    return problems


def first_not_finite(features: np.ndarray) -> int | None:
    """Return the first row of (n, ...) that holds NaN or infinity."""
    bad = ~np.isfinite(features).all(tuple(range(1, features.ndim)))
    return int(bad.argmax()) if bad.any() else None


def _digests(path: Path) -> Iterator[str]:
    rows = MappedPictures(path)
    for start in files.progress(range(0, len(rows), BLOCK), desc=f"verify {path.stem}", unit="block"):
        yield hashlib.sha256(np.asarray(rows[start : start + BLOCK]).tobytes()).hexdigest()


def _overwrite(path: Path, count: int, rows: np.ndarray, values: np.ndarray) -> None:
    """Write some rows of a `.npy` file that has `count` of them.

    They are written, not mapped: a full disk then raises an error and does not kill the process silently.
    """
    try:
        with path.open("r+b") as file:
            for row, value in zip(rows.tolist(), values, strict=True):
                # From the end, since the header's length is open.
                file.seek((row - count) * value.nbytes, os.SEEK_END)
                file.write(value.tobytes())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}; the same command goes on") from error


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

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedPictures, (self.path, self.rows)


def _open_npy(path: Path) -> np.memmap[Any, Any]:
    """Map a file whose size and numbers are as they should be."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: get it, or extract the features from pictures")
    with files.damage_named(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about headers that look odd, or were written by Python 2
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        dtype, shape, held = mapped.dtype, mapped.shape, path.stat().st_size - mapped.offset
        if held != mapped.nbytes:
            raise ValueError(f"{held} bytes for {dtype} {short(shape)}, wanted {mapped.nbytes}")
    is_pixels = len(shape) == 4 and shape[1] == 3
    is_float = dtype.kind == "f" and dtype.itemsize <= 8 and dtype.isnative
    fits = (len(shape) == 3 and is_float) or (is_pixels and (is_float or dtype == np.uint8))
    if not fits or min(shape) < 1:
        raise ValueError(
            f"{path} holds {dtype} {short(shape)}: wanted floats (n, N, F), or pixels (n, 3, H, W) as "
            "floats or uint8, in this machine's byte order"
        )
    return mapped
