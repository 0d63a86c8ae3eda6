"""Pictures with captions as arrays: a part of a collection (`Split`), and its three parts (`Dataset`)."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

FeatureKind = Literal["grid", "region", "patch"]


class Pictures(Protocol):
    """The features of n pictures, in memory or on disk. A numpy array, or a memory map, is one.

    Numbers may be of half precision; a batch makes them float32.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, N, F): pictures, elements of each, width of an element."""

    def __len__(self) -> int:
        """The number of pictures."""

    def __getitem__(self, rows: Any, /) -> Any:
        """With an array of B rows: their features, (B, N, F). With a slice: those pictures, as `Pictures`."""


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Pictures and their captions: one part (train, dev or test) of a dataset.

    Args:
        name: "train", "dev" or "test".
        pictures: features of the pictures' elements, (n, N, F).
        captions: Nc sentences.
        owner: the picture of each caption, (Nc,) whole numbers below n. Every picture owns a caption.
        picture_ids: n names, file names or numbers as the source calls them.
        picture_counts: how many of the N elements of each picture are real, (n,); None: all.

    Raises:
        ValueError: the parts do not fit each other.
    """

    name: str
    pictures: Pictures
    captions: list[str]
    owner: np.ndarray
    picture_ids: list[str]
    picture_counts: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Refuse parts that do not fit each other, before hours of training do it."""
        shape = tuple(self.pictures.shape)
        if len(shape) != 3 or 0 in shape:
            raise ValueError(
                f"pictures of split {self.name!r} have shape {shape}: "
                "wanted (pictures, elements, width), none of them 0"
            )
        count = shape[0]
        if not self.captions:
            raise ValueError(f"split {self.name!r} has no captions: each of its {count} pictures needs one")
        owner = np.asarray(self.owner)
        if owner.shape != (len(self.captions),) or owner.dtype.kind not in "iu":
            raise ValueError(
                f"owner of split {self.name!r} is {owner.dtype} {owner.shape}: "
                f"wanted one whole number for each caption, ({len(self.captions)},)"
            )
        if owner.min() < 0 or owner.max() >= count:
            raise ValueError(
                f"owner of split {self.name!r} names pictures {owner.min()} to {owner.max()}: "
                f"there are pictures 0 to {count - 1}"
            )
        if len(self.picture_ids) != count:
            raise ValueError(
                f"picture_ids of split {self.name!r} has {len(self.picture_ids)} entries: "
                f"wanted {count}, one for each picture"
            )
        alone = np.flatnonzero(np.bincount(owner, minlength=count) == 0)
        if alone.size:
            raise ValueError(
                f"split {self.name!r} has {alone.size} pictures without a caption, the first is "
                f"{self.picture_ids[alone[0]]!r} (row {alone[0]}): give each a caption, or leave it out"
            )
        if self.picture_counts is not None:
            counts = np.asarray(self.picture_counts)
            if counts.shape != (count,) or counts.min() < 1 or counts.max() > shape[1]:
                raise ValueError(
                    f"picture_counts of split {self.name!r} has shape {counts.shape}, values {counts.min()} "
                    f"to {counts.max()}: wanted ({count},) with values 1 to {shape[1]}"
                )
        object.__setattr__(self, "owner", owner.astype(np.int64))

    def __len__(self) -> int:
        """The number of pictures."""
        return len(self.pictures)

    def __repr__(self) -> str:
        """One line: the captions of COCO would fill a notebook."""
        count, elements, width = self.pictures.shape
        return (
            f"Split({self.name!r}: {count} pictures of ({elements}, {width}), {len(self.captions)} captions)"
        )

    def subset(self, pictures: int) -> "Split":
        """The first so many pictures, with their captions.

        Raises:
            ValueError: fewer than 1, or more than there are.
        """
        if not 1 <= pictures <= len(self):
            raise ValueError(f"pictures is {pictures}: split {self.name!r} has 1 to {len(self)} to give")
        kept = np.flatnonzero(self.owner < pictures)
        return replace(
            self,
            pictures=self.pictures[:pictures],
            captions=[self.captions[row] for row in kept],
            owner=self.owner[kept],
            picture_ids=self.picture_ids[:pictures],
            picture_counts=None if self.picture_counts is None else self.picture_counts[:pictures],
        )

    def fingerprint(self) -> str:
        """A sha256 that changes with the captions, their pictures, or the features.

        Of the features it reads their shape and 64 rows spread evenly, so that 33 GB on disk stay there.
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


@dataclass(frozen=True, eq=False)
class Dataset:
    """Three splits that belong together.

    Args:
        name: "scenes", "flickr8k", "flickr30k", "coco" or your own.
        train: what models learn from, and vocabularies are made of.
        dev: what decides when a model is best.
        test: what is reported.
        feature_kind: what an element of a picture is: a cell of a "grid", a "region" or a "patch".

    Raises:
        ValueError: an unknown kind, or splits whose features differ in width.
    """

    name: str
    train: Split
    dev: Split
    test: Split
    feature_kind: FeatureKind

    def __post_init__(self) -> None:
        """Refuse splits that one model could not read."""
        if self.feature_kind not in ("grid", "region", "patch"):
            raise ValueError(f'feature_kind is {self.feature_kind!r}: wanted "grid", "region" or "patch"')
        widths = {split.name: split.pictures.shape[2] for split in (self.train, self.dev, self.test)}
        if len(set(widths.values())) > 1:
            raise ValueError(
                f"splits of {self.name!r} differ in the width of their features, {widths}: "
                "make all with one backbone"
            )

    @property
    def feature_dim(self) -> int:
        """F, the width of a picture's elements."""
        return int(self.train.pictures.shape[2])

    def fingerprint(self) -> str:
        """A sha256 that changes with any split (see `Split.fingerprint`)."""
        parts = [self.name, self.feature_kind, *(s.fingerprint() for s in (self.train, self.dev, self.test))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()
