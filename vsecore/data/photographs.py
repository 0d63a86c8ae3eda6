"""Photographs that are decoded when a batch asks for them, so that networks can be trained on pixels."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from PIL import Image
from pydantic import Field

from vsecore.data.karpathy import CaptionSplit, load_karpathy
from vsecore.data.noise import noise
from vsecore.data.picture_files import open_picture
from vsecore.data.splits import Dataset, Split

_RESAMPLING = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
LONGEST = 20
"""A picture that is more than so many times as long as wide is cut to that first."""
Side = Annotated[int, Field(ge=8, le=4096)]


@dataclass(frozen=True)
class View:
    """How a network sees a photograph: as a square, the same way each time, or varied in training.

    Args:
        side: side of the square, in pixels.
        resize: the shorter side is first brought to this many pixels, then the middle is cut out; None: the
            whole picture is squeezed into the square.
        resampling: how Pillow computes the new pixels.
        smallest_crop: in training, the smallest share of a picture's area that a random cut may keep, above 0
            and at most 1.
        flip: whether half of the pictures are mirrored in training.

    Raises:
        ValueError: the square is larger than what is resized, or a share is out of its range.
    """

    side: Side = 224
    resize: Side | None = 256
    resampling: Literal["bicubic", "bilinear"] = "bicubic"
    smallest_crop: float = 0.08
    flip: bool = True

    def __post_init__(self) -> None:
        """Refuse a square that cannot be cut out."""
        if self.resize is not None and self.resize < self.side:
            raise ValueError(f"resize is {self.resize}: wanted at least side, which is {self.side}")
        if not 0 < self.smallest_crop <= 1:
            raise ValueError(f"smallest_crop is {self.smallest_crop}: wanted above 0 and at most 1")

    def plain(self, picture: Image.Image) -> np.ndarray:
        """Return a picture as it is evaluated, (3, side, side) uint8."""
        width, height = picture.size
        if self.resize is not None and max(width, height) > LONGEST * min(width, height):
            # Its ends are cut off before it is made larger: of a line of pixels, that would fill the memory.
            wide, high = (min(side, LONGEST * min(width, height)) for side in (width, height))
            left, top = (width - wide) // 2, (height - high) // 2
            picture = picture.crop((left, top, left + wide, top + high))
            width, height = picture.size
        if self.resize is not None:
            shorter = min(width, height)
            width, height = (int(self.resize * long / shorter) for long in (width, height))
        else:
            width = height = self.side
        left, top = (width - self.side) // 2, (height - self.side) // 2
        seen = picture.resize((width, height), _RESAMPLING[self.resampling])
        return _as_array(seen.crop((left, top, left + self.side, top + self.side)))

    def varied(self, picture: Image.Image, draws: np.ndarray) -> np.ndarray:
        """Return a random cut of a picture, perhaps mirrored, (3, side, side) uint8.

        The cut's area is a uniform share of the picture's and the logarithm of its ratio of width to height
        is uniform between 3/4 and 4/3; a side that would be longer than the picture's is cut short.

        Args:
            picture: a photograph.
            draws: five numbers in [0, 1): for the area, the ratio, the place (two), the mirror.

        Source: Szegedy et al. 2015 (the random cut); used for training from pixels by Faghri et al. 2018
        (VSE++), section 4.1.
        """
        width, height = picture.size
        area = width * height * (self.smallest_crop + (1 - self.smallest_crop) * draws[0])
        ratio = (4 / 3) ** (2 * draws[1] - 1)  # of width to height
        wide = min(width, max(1, round((area * ratio) ** 0.5)))
        high = min(height, max(1, round((area / ratio) ** 0.5)))
        left, top = int(draws[2] * (width - wide + 1)), int(draws[3] * (height - high + 1))
        box = (left, top, left + wide, top + high)
        seen = picture.resize((self.side, self.side), _RESAMPLING[self.resampling], box=box)
        if self.flip and draws[4] < 0.5:
            seen = seen.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return _as_array(seen)


class Photographs:
    """Pixels of picture files, (n, 3, side, side) uint8, read when they are asked for.

    Args:
        files: n pictures.
        view: how they are seen.

    Raises:
        ValueError: when a picture is read that cannot be; the message names its file.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, files: Sequence[Path] | np.ndarray, view: View) -> None:
        self.files, self.view = np.asarray(files, object), view

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, 3, side, side)."""
        return len(self.files), 3, self.view.side, self.view.side

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.files)

    def __getitem__(self, rows: Any) -> Any:
        """Return some pictures as they are evaluated: a slice stays on disk, an array of rows is read."""
        if isinstance(rows, slice):
            return Photographs(self.files[rows], self.view)
        read = self._read(np.atleast_1d(rows), self.view.plain)
        return read if np.ndim(rows) else read[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return all pictures as they are evaluated."""
        return self[np.arange(len(self))].astype(dtype or self.dtype, copy=False)

    def varied(self, rows: np.ndarray, seed: int, epoch: int, drawn_by: np.ndarray) -> np.ndarray:
        """Return some pictures as a training step sees them, (B, 3, side, side).

        Args:
            rows: B pictures.
            seed: decides, with the epoch and `drawn_by`, what is cut out and which pictures are mirrored.
            epoch: see `seed`.
            drawn_by: B rows of pictures or captions, on which each cut depends: a picture that a batch holds
                twice, with two captions, is cut in two ways.
        """
        return self._read(rows, self.view.varied, noise(seed, epoch, "views", drawn_by, 5))

    def _read(self, rows: np.ndarray, see: Callable[..., np.ndarray], *draws: np.ndarray) -> np.ndarray:
        def cut(path: Path, *numbers: np.ndarray) -> np.ndarray:
            return see(open_picture(path), *numbers)

        if not len(rows):
            return np.empty((0, *self.shape[1:]), np.uint8)
        with ThreadPoolExecutor(min(len(rows), os.cpu_count() or 1)) as pool:  # leaves Python's lock
            return np.stack(list(pool.map(cut, self.files[rows], *draws)))


def load_photographs(root: str | Path, view: View | None = None) -> Dataset:
    """Open a folder of photographs and captions without extracting features: a batch reads its own pictures.

    Args:
        root: as for `karpathy.load_karpathy`.
        view: how the pictures are seen; None: the middle of a picture, 224 pixels wide.

    Raises:
        FileNotFoundError: the folder, the annotations or picture files are missing.
        ValueError: the annotations are damaged (see `load_karpathy`).
    """
    return from_files(load_karpathy(root), view or View())


def from_files(splits: Mapping[str, CaptionSplit], view: View) -> Dataset:
    """Make a dataset of pixels from "train", "dev" and "test" as `load_karpathy` gives them."""
    train, dev, test = (
        Split(
            name=name,
            pictures=Photographs(splits[name].files, view),
            captions=splits[name].captions,
            owner=splits[name].owner,
            picture_ids=splits[name].picture_ids,
            caption_ids=splits[name].caption_ids,
        )
        for name in ("train", "dev", "test")
    )
    return Dataset(splits["train"].dataset, train, dev, test, "pixels")


def _as_array(picture: Image.Image) -> np.ndarray:
    return np.ascontiguousarray(np.asarray(picture).transpose(2, 0, 1))  # (3, H, W)
