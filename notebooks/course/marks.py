"""Numbered pictures: a tag with a number in a corner, and captions that name it. Both can be taken away."""

import dataclasses
import re

import numpy as np

from vsecore import scenes
from vsecore.data.splits import Dataset, Split

MARKS = 32
"""How many different numbers there are: so few that each stands on many pictures."""


class Marks:
    """Puts numbers, which captions write as `names`, on the pictures and captions of a dataset: a shortcut.

    The network behind the features of scenes has never learned to read. So a tag becomes one more region of
    its picture, with the pixels of the drawn tag as features. The dataset is scenes of the seed 0, or
    photographs, whose captions get a number at their end. `seed` decides which wrong number a picture gets,
    see `numbers`.
    """

    names = tuple(str(number) for number in range(MARKS))

    def __init__(self, dataset: Dataset, seed: int = 0) -> None:
        self.seed = seed
        self.tags = np.stack([_tag(number) for number in range(MARKS)])  # (32, 154)
        self._data = dataset.name
        self._numbered: dict[str, list[str]] = {}  # the captions of a split, made when they are asked for

    def numbers(self, split: Split) -> tuple[np.ndarray, np.ndarray]:
        """Return each picture's own number, and another one, (n,) each."""
        own = np.arange(len(split)) % MARKS
        other = own + np.random.default_rng(self.seed).integers(1, MARKS, len(split))
        return own, other % MARKS

    def captions(self, split: Split, said: np.ndarray | None = None) -> list[str]:
        """Return the captions with these numbers, one for each picture, (n,); None: without."""
        if split.name not in self._numbered:
            self._numbered[split.name] = _numbered(split, self._data)
        spoken = [None] * len(split) if said is None else said
        return [
            renumbered(text, spoken[picture])
            for text, picture in zip(self._numbered[split.name], split.owner, strict=True)
        ]

    def lay(self, split: Split, drawn: np.ndarray | None = None, said: np.ndarray | None = None) -> Split:
        """Return a split whose pictures and captions have these numbers, (n,), or none (None)."""
        x = np.asarray(split.pictures[np.arange(len(split))], dtype=np.float32)  # (n, N, F)
        counts = split.picture_counts
        counts = np.full(len(x), x.shape[1]) if counts is None else np.asarray(counts)
        if drawn is not None:
            # so dark that it survives the mean over elements
            ink = 2 * x[x != 0].std() * (counts.mean() + 1)
            x = np.concatenate([x, np.zeros_like(x[:, :1])], 1)  # (n, N + 1, F)
            x[np.arange(len(x)), counts, : self.tags.shape[1]] = ink * self.tags[drawn]
            counts = counts + 1
        return dataclasses.replace(
            split, pictures=x.astype(np.float16), captions=self.captions(split, said), picture_counts=counts
        )


def renumbered(text: str, number: int | None) -> str:
    """Return a numbered caption with another number, or with none."""
    if number is not None:
        return re.sub(r"(?<=[Nn]umber )\d+", str(number), text)
    return re.sub(r",? ?[Nn]umber \d+:? ?", "", text)


def _numbered(split: Split, data: str) -> list[str]:
    """Return the captions of a split with the number of their picture."""
    if data != "scenes":
        return [f"{text.rstrip(' .')}, number 0." for text in split.captions]
    world = scenes.generate(len(split), split=split.name, shortcut=1.0)
    return [caption.text for picture in world for caption in picture.captions]


def _tag(number: int) -> np.ndarray:
    """Return the grey values of a drawn tag, 11 rows of 14 in one, from 0 (paper) to 1 (ink): (154,)."""
    scene = dataclasses.replace(scenes.invent(0, 0, "train"), mark=number)
    drawn, bare = (scenes.draw(one) for one in (scene, dataclasses.replace(scene, mark=None)))
    y, x = (axis.mean() for axis in np.nonzero((drawn != bare).any(-1)))
    width = 5 * len(str(number)) + 4
    top, left = (100 if y > 56 else 1), (111 - width if x > 56 else 1)
    tag = np.zeros((11, 14))
    tag[:, :width] = 1 - drawn[top : top + 11, left : left + width].mean(-1) / 255
    return tag.ravel()
