"""A collection of COCO's exact shape, or another's, with random numbers in place of its pictures.

Before features are extracted for hours, everything that follows can be tried on a stand-in: steps, memory and
disk are those of the real thing. There is something to learn too, so that a loss which falls shows that all
is well.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from vsecore.arguments import checked
from vsecore.data.feature_folder import BLOCK, Meta
from vsecore.data.features import open_precomp
from vsecore.data.files import expanded
from vsecore.data.folder_writer import FolderWriter
from vsecore.data.noise import noise
from vsecore.data.splits import CAPTIONS_A_PICTURE as CAPTIONS
from vsecore.data.splits import Dataset, FeatureKind, Split, UnreadPictures

Collection = Literal["coco", "flickr30k", "flickr8k"]

PICTURES: dict[Collection, dict[str, int]] = {
    "coco": {"train": 113_287, "dev": 5_000, "test": 5_000},
    "flickr30k": {"train": 29_000, "dev": 1_014, "test": 1_000},
    "flickr8k": {"train": 6_000, "dev": 1_000, "test": 1_000},
}
"""The splits of Karpathy and Fei-Fei 2015, COCO's training pictures with "restval"."""

ELEMENTS: dict[FeatureKind, tuple[int, int]] = {"region": (36, 2048), "grid": (49, 2048), "patch": (196, 768)}
"""Elements of a picture and their width: the field's regions, ResNet's cells, the patches of ViT-Base."""

WORDS = 10_000
"""About as many words as occur at least four times in COCO's captions."""
COMMON = 50
"""The first of them stand for words such as "a" and "on", which no element shows."""
LENGTHS = (7, 14)
"""The shortest and the longest caption, in words; their mean is COCO's, between ten and eleven. The
longest of 128 real ones has about 25, to which a batch is padded, so steps on a GPU take longer then."""


@dataclass(frozen=True)
class Shape:
    """How many pictures each split of a collection has, and of what kind and size their features are."""

    pictures: Mapping[str, int]
    kind: FeatureKind
    elements: int
    """N, how many a picture has."""
    feature_dim: int
    """F, the width of an element."""

    @classmethod
    @checked
    def of(
        cls,
        collection: Collection,
        kind: Literal["region", "grid", "patch"] = "region",
        share: Annotated[float, Field(gt=0, le=1)] = 1.0,
    ) -> "Shape":
        """Return the shape of a known collection, or of a share of its pictures."""
        counts = {name: max(1, round(share * count)) for name, count in PICTURES[collection].items()}
        return cls(counts, kind, *ELEMENTS[kind])

    @property
    def bytes_on_disk(self) -> int:
        """What the features take in half precision."""
        return 2 * sum(self.pictures.values()) * self.elements * self.feature_dim


def rehearsal(shape: Shape, seed: int = 0) -> Dataset:
    """Return a dataset of some shape whose pictures are drawn when they are read, and stored nowhere.

    Each element of a picture is one of `WORDS` things: its features are the thing's fixed vector. Frequent
    things come often, as words do. A caption names some of its picture's things among common words.
    """
    things = np.random.default_rng(seed).standard_normal((WORDS, shape.feature_dim), np.float32)
    things = np.abs(things).astype(np.float16)  # features after a ReLU are not negative
    splits = {}
    for name, count in shape.pictures.items():
        drawn = DrawnPictures(things, count, shape.elements, seed, name)
        owner = np.repeat(np.arange(count), CAPTIONS)
        names = [f"{name} {row}" for row in range(count)]
        splits[name] = Split(name, drawn, drawn.captions(), owner, names)
    return Dataset("rehearsal", splits["train"], splits["dev"], splits["test"], shape.kind)


class DrawnPictures(UnreadPictures):
    """Features (n, N, F) in half precision that are drawn when they are read.

    The name of the split and the seed decide which of the `things`, (T, F), the elements of a picture are.
    """

    dtype = np.dtype(np.float16)

    def __init__(self, things: np.ndarray, count: int, elements: int, seed: int, name: str) -> None:
        self.things, self.rows, self.one = things, range(count), (elements, things.shape[1])
        self.elements, self.seed, self.name = elements, seed, name

    def read(self, rows: np.ndarray) -> np.ndarray:
        return self.things[self.shown(rows)]

    def shown(self, rows: np.ndarray) -> np.ndarray:
        """Return which things some pictures show, (B, N)."""
        draws = noise(self.seed, 0, f"things of {self.name}", rows, self.elements)
        # From `COMMON` on, each is about as frequent as 1 over its place.
        return np.minimum(COMMON * (WORDS / COMMON) ** draws, WORDS - 1).astype(np.int64)

    def captions(self) -> list[str]:
        """Return five captions of each picture, picture after picture."""
        shortest, longest = LENGTHS
        captions = []
        for start in range(0, len(self), BLOCK):
            pictures = np.arange(start, min(start + BLOCK, len(self)))
            rows = (pictures[:, None] * CAPTIONS + np.arange(CAPTIONS)).ravel()  # (C,)
            draws = noise(self.seed, 0, f"captions of {self.name}", rows, 1 + 2 * longest)
            lengths = shortest + (draws[:, 0] * (longest - shortest + 1)).astype(int)
            seen = np.repeat(self.shown(pictures), CAPTIONS, 0)  # (C, N)
            named = np.take_along_axis(seen, (draws[:, 1 : 1 + longest] * self.elements).astype(int), 1)
            common = (draws[:, 1 + longest :] * 2 * COMMON).astype(int)  # half of the words are common ones
            words = np.where(common < COMMON, common, named)  # (C, longest)
            captions += [
                " ".join(f"w{word}" for word in row[:length])
                for row, length in zip(words.tolist(), lengths, strict=True)
            ]
        return captions


def write_rehearsal(folder: str | Path, shape: Shape, seed: int = 0) -> Dataset:
    """Write a rehearsal as a folder of features, which a training then reads from disk like a real one.

    If it is interrupted, the same call continues.
    """
    drawn = rehearsal(shape, seed)
    splits = {split.name: split for split in (drawn.train, drawn.dev, drawn.test)}
    meta = Meta.of(
        splits,
        dataset=None,
        backbone="drawn numbers",
        backbone_sha256=f"seed {seed}",
        kind=shape.kind,
        dtype="float16",
        elements=shape.elements,
        feature_dim=shape.feature_dim,
    )
    writer = FolderWriter(expanded(folder), meta, splits)
    return open_precomp(writer.fill(lambda name, blocks: ([splits[name].pictures[x]] for x in blocks)))
