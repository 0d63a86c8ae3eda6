"""Pictures with captions as arrays: a part of a collection (`Split`), and its three parts (`Dataset`)."""

import copy
import functools
import hashlib
import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np

FeatureKind = Literal["grid", "region", "patch", "pixels"]
"""What a picture is given as: elements of one of three kinds, or its pixels."""


class UnreadPictures(ABC):
    """Pictures that are read when they are asked for: a slice stays unread, numbers of rows are read."""

    dtype: np.dtype[Any]
    one: tuple[int, ...]
    """(N, F) or (3, H, W)."""
    rows: range
    """Which of all rows these pictures are."""

    @abstractmethod
    def read(self, rows: np.ndarray) -> np.ndarray:
        """Read R rows, as they are numbered before any slice, (R, ...)."""

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), *self.one

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice):
            part = copy.copy(self)
            part.rows = self.rows[rows]
            return part
        if isinstance(rows, tuple) or np.asarray(rows).dtype.kind not in "iu":
            raise TypeError(f"rows are {rows!r}: wanted a slice, a number or an array of numbers")
        rows = np.asarray(rows)
        if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"rows are {rows.min()} to {rows.max()}: there are 0 to {len(self) - 1}")
        read = self.read((self.rows.start + self.rows.step * rows).ravel())
        return read.reshape(*rows.shape, *self.one)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[np.arange(len(self))], dtype)


Pictures = np.ndarray | UnreadPictures
"""n pictures as features or as pixels, in memory or on disk; a memory map is an array."""
CAPTIONS_A_PICTURE = 5
"""The published collections have at least so many; of those with more, the first five are used."""
LONGEST_CAPTION = 10_000
"""In characters. Anything longer is a damaged file, not a caption, and would take minutes to read."""


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Pictures and their captions: one part of a dataset. They must fit each other."""

    name: str  #: "train", "dev" or "test"
    pictures: Pictures
    """Features of their elements, (n, N, F) floats; or pixels, (n, 3, H, W), uint8 or floats."""
    captions: list[str]  #: Nc sentences
    owner: np.ndarray  #: the picture of each caption, (Nc,) whole numbers; every picture has a caption
    picture_ids: list[str]  #: n names, such as the source's file names or numbers
    picture_counts: np.ndarray | None = None  #: how many elements of each are real, (n,); None: all
    targets: np.ndarray | None = None
    """Something to predict for each caption, such as a sentence encoder's vectors, (Nc, T) floats."""
    caption_ids: list[str] | None = None
    """COCO's number of each caption, Nc, which CxC and ECCV Caption ask for; None: unknown."""

    def __post_init__(self) -> None:
        """Refuse parts that do not fit each other, before hours of training are lost."""
        owner = np.asarray(self.owner)
        object.__setattr__(self, "owner", owner.astype(np.int64) if owner.dtype.kind in "iu" else owner)
        for part, fits, found, wanted in self._checks():
            if not fits:
                raise ValueError(f"{part} of split {self.name!r} has {found}: wanted {wanted}")

    def _checks(self) -> Iterator[tuple[str, bool, object, object]]:
        """Yield a part, whether it fits, what it has and what is wanted; later checks trust earlier ones."""
        shape, dtype, owner = tuple(self.pictures.shape), self.pictures.dtype, self.owner
        count, captions, longest = len(self), len(self.captions), max(map(len, self.captions), default=0)
        shaped = 0 not in shape and (len(shape) == 3 or (len(shape) == 4 and shape[1] == 3))
        yield "pictures", shaped, shape, "(pictures, elements, width) or (pictures, 3, height, width)"
        numbers = dtype.kind == "f" or (self.has_pixels and dtype == np.uint8)
        yield "pictures", numbers, dtype, "floats, or uint8 for pixels"
        wanted = f"some, each of at most {LONGEST_CAPTION} characters"
        fits = captions > 0 and longest <= LONGEST_CAPTION
        yield "captions", fits, f"{captions}, the longest of {longest} characters", wanted
        fits = owner.shape == (captions,) and owner.dtype.kind == "i"
        yield "owner", fits, f"{owner.dtype} {owner.shape}", f"a whole number for each of {captions} captions"
        fits = bool(owner.min() >= 0 and owner.max() < count)
        yield "owner", fits, f"{owner.min()} to {owner.max()}", f"rows of pictures, 0 to {count - 1}"
        names = self.picture_ids
        yield "picture_ids", len(names) == count, f"{len(names)} entries", count
        numbered = captions if self.caption_ids is None else len(self.caption_ids)
        yield "caption_ids", numbered == captions, f"{numbered} entries", captions
        without = f"no caption of {names[int(self.caption_counts.argmin())]!r}"
        yield "owner", bool(self.caption_counts.all()), without, "at least one of each picture"
        if self.picture_counts is not None:
            counts, most = np.asarray(self.picture_counts), 0 if self.has_pixels else shape[1]
            fits = counts.shape == (count,) and bool(counts.min() >= 1 and counts.max() <= most)
            wanted = "None for pixels" if self.has_pixels else f"values 1 to {most}, ({count},)"
            yield "picture_counts", fits, f"{counts.shape}, or values out of range", wanted
        if self.targets is not None:
            targets = self.targets
            fits = targets.ndim == 2 and len(targets) == captions and bool(targets.size)
            found = f"{targets.dtype} {targets.shape}"
            yield "targets", fits and targets.dtype.kind == "f", found, f"floats ({captions}, width)"
            # Sums by row, since a comparison of each number would be a large copy.
            finite = bool(np.isfinite(targets.sum(1, dtype=np.float64)).all())
            yield "targets", finite, "NaN or infinity", "finite numbers"

    def __len__(self) -> int:
        return int(self.pictures.shape[0])

    def __repr__(self) -> str:
        count, *rest = self.pictures.shape
        size = f"{rest[1]}×{rest[2]} pixels" if self.has_pixels else f"({rest[0]}, {rest[1]})"
        targets = "" if self.targets is None else f", targets of width {self.targets.shape[1]}"
        return f"Split({self.name!r}: {count} pictures of {size}, {len(self.captions)} captions{targets})"

    @property
    def has_pixels(self) -> bool:
        """Whether the pictures are pixels rather than features."""
        return len(self.pictures.shape) == 4

    def real_elements(self, rows: np.ndarray | slice) -> np.ndarray:
        """Return which elements of B pictures of features are real, (B, N) bool."""
        elements = self.pictures.shape[1]
        counts = np.full(len(self), elements) if self.picture_counts is None else self.picture_counts
        return np.asarray(np.arange(elements) < np.asarray(counts)[rows, None])

    @functools.cached_property
    def caption_counts(self) -> np.ndarray:
        """How many captions each picture has, (n,) int64."""
        return np.bincount(self.owner, minlength=len(self))

    @property
    def caption_numbers(self) -> list[int]:
        """How many captions each picture has; [] if each has five, as in the published collections."""
        return [] if (self.caption_counts == CAPTIONS_A_PICTURE).all() else self.caption_counts.tolist()

    @functools.cached_property
    def _captions_by_picture(self) -> tuple[np.ndarray, np.ndarray]:
        """The captions' rows, (Nc,), picture after picture, and where each picture's begin, (n,)."""
        return np.argsort(self.owner, kind="stable"), np.cumsum(self.caption_counts) - self.caption_counts

    def captions_of(self, pictures: np.ndarray) -> np.ndarray:
        """Return the rows (C,) of all captions of some pictures (B,), picture after picture."""
        rows, begins = self._captions_by_picture
        counts = self.caption_counts[pictures]  # (B,)
        places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)  # (C,) 0 1 2 0 1
        return rows[np.repeat(begins[pictures], counts) + places]

    def subset(self, pictures: int) -> Self:
        """Return a split of the first pictures, with their captions."""
        if not 1 <= pictures <= len(self):
            raise ValueError(f"pictures is {pictures}: wanted 1 to {len(self)} for split {self.name!r}")
        return self.take(np.arange(pictures), self.pictures[:pictures])

    def take(self, rows: np.ndarray, pictures: Pictures) -> Self:
        """Return a split of some pictures, with their captions: `pictures` are those in `rows`, in order."""
        kept = np.flatnonzero(np.isin(self.owner, rows))
        return replace(
            self,
            pictures=pictures,
            captions=[self.captions[row] for row in kept],
            owner=np.searchsorted(rows, self.owner[kept]),
            picture_ids=[self.picture_ids[row] for row in rows],
            picture_counts=None if self.picture_counts is None else self.picture_counts[rows],
            targets=None if self.targets is None else self.targets[kept],
            caption_ids=None if self.caption_ids is None else [self.caption_ids[row] for row in kept],
        )

    def shows_the_same(self, other: "Split") -> bool:
        """Whether another split has the same captions of the same pictures, in the same order.

        Only letters and digits count: folders of features differ in punctuation and in names of pictures.
        """
        ours, theirs = (
            ["".join(re.findall(r"[a-z0-9]", one.lower())) or one for one in split.captions]
            for split in (self, other)
        )
        return ours == theirs and np.array_equal(self.owner, other.owner)

    def names_digest(self) -> str:
        """Return twelve digits of a sha256 over the pictures' names: all who test on them get the same."""
        return lines_sha256(self.picture_ids)[:12]

    def fingerprint(self) -> str:
        """Return a sha256 that changes with the captions, their pictures, or the features, and nothing else.

        It reads only the shape of the features and 64 evenly spaced rows, not all 33 GB on disk.
        """
        digest = hashlib.sha256()
        for part in (self.name, *self.captions, *self.picture_ids):
            encoded = part.encode()
            digest.update(len(encoded).to_bytes(8, "little") + encoded)
        digest.update(self.owner.astype("<i8").tobytes())
        if self.picture_counts is not None:
            digest.update(np.asarray(self.picture_counts).astype("<i8").tobytes())
        rows = np.unique(np.linspace(0, len(self) - 1, 64).astype(np.int64))
        digest.update(str(tuple(self.pictures.shape)).encode())
        digest.update(np.asarray(self.pictures[rows]).astype("<f4").tobytes())
        return digest.hexdigest()


def captions_sha256(split: Split) -> str:
    """Return a sha256 over the names of pictures, captions and, if not five each, their numbers."""
    return lines_sha256(split.picture_ids, split.captions, map(str, split.caption_numbers))


def lines_sha256(*texts: Iterable[str]) -> str:
    """Return a sha256 over lines of text, such as the names of pictures and then their captions."""
    return hashlib.sha256("\n".join(itertools.chain(*texts)).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Dataset:
    """Three splits that belong together; a ValueError if one model could not read them all."""

    name: str  #: "scenes", "flickr8k", "flickr30k", "coco" or your own
    train: Split  #: what models are trained on, and vocabularies built from
    dev: Split  #: what decides which epoch is best
    test: Split  #: what is reported
    feature_kind: FeatureKind  #: cells of a "grid", "region"s, "patch"es, or "pixels"
    network: str = ""
    """The network that made the features, with a digest of its weights; "": unknown, or none did."""

    def __post_init__(self) -> None:
        kinds, splits = get_args(FeatureKind), (self.train, self.dev, self.test)
        if self.feature_kind not in kinds:
            raise ValueError(f"feature_kind is {self.feature_kind!r}: wanted one of {', '.join(kinds)}")
        shapes = {split.name: tuple(split.pictures.shape) for split in splits}
        if any(split.has_pixels != (self.feature_kind == "pixels") for split in splits):
            raise ValueError(
                f"feature_kind is {self.feature_kind!r}, and pictures have the shapes {shapes}: wanted "
                "'pixels' for (n, 3, H, W), another kind for (n, N, F)"
            )
        if len({shape[2:] for shape in shapes.values()}) > 1:
            raise ValueError(f"splits of {self.name!r} differ in the width of features or pictures: {shapes}")

    @property
    def feature_dim(self) -> int:
        """F, the width of a picture's elements; 3, the colours, for pixels."""
        return int(self.train.pictures.shape[1 if self.train.has_pixels else 2])

    def part(self, name: str) -> Split:
        """Return a split by its name; "testall" is the test split of data that were opened with that."""
        found: Split = getattr(self, "test" if name == "testall" else name)
        return found

    def fingerprint(self) -> str:
        """Return a sha256 that changes with any split (see `Split.fingerprint`)."""
        parts = [self.name, self.feature_kind, *(s.fingerprint() for s in (self.train, self.dev, self.test))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()
