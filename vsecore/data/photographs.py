"""Photographs that are decoded when a batch asks for them, so that networks can be trained on pixels."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from PIL import Image
from pydantic import Field

from vsecore.data.noise import noise
from vsecore.data.picture_files import open_picture
from vsecore.data.splits import UnreadPictures

_RESAMPLING = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
LONGEST = 20
"""A picture that is more than so many times as long as wide is cut to that first."""
Side = Annotated[int, Field(ge=8, le=4096)]


@dataclass(frozen=True)
class View:
    """How a network sees a photograph: as a square, the same way each time, or varied in training."""

    side: Side = 224  #: side of the square, in pixels
    resize: Side | None = 256
    """The shorter side is first brought to this many pixels, then the middle is cut out; None: the whole
    picture is squeezed into the square."""
    resampling: Literal["bicubic", "bilinear"] = "bicubic"  #: how Pillow computes the new pixels
    smallest_crop: float = 0.08  #: the smallest share of a picture's area that a random cut may keep, up to 1
    flip: bool = True  #: whether half of the pictures are mirrored in training

    def __post_init__(self) -> None:
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
        is uniform between 3/4 and 4/3; a side that would be longer than the picture's is cut short. Five
        draws in [0, 1) decide the area, the ratio, the place (two) and the mirror.

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


class Photographs(UnreadPictures):
    """Pixels of n picture files, (n, 3, side, side) uint8, seen by a view when they are asked for."""

    dtype = np.dtype(np.uint8)

    def __init__(self, files: Sequence[Path], view: View) -> None:
        self.files, self.view, self.one = list(files), view, (3, view.side, view.side)
        self.rows = range(len(self.files))

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Return some pictures as they are evaluated, (R, 3, side, side)."""
        return self._seen(rows, self.view.plain)

    def varied(self, rows: np.ndarray, seed: int, epoch: int, drawn_by: np.ndarray) -> np.ndarray:
        """Return some pictures as a training step sees them, (B, 3, side, side).

        Each cut depends on the seed, the epoch and a row of `drawn_by`, of pictures or captions: a picture
        that a batch holds twice, with two captions, is cut in two ways.
        """
        places = self.rows.start + self.rows.step * rows
        return self._seen(places, self.view.varied, noise(seed, epoch, "views", drawn_by, 5))

    def _seen(self, rows: np.ndarray, see: Callable[..., np.ndarray], *draws: np.ndarray) -> np.ndarray:
        def cut(row: int, *numbers: np.ndarray) -> np.ndarray:
            return see(open_picture(self.files[row]), *numbers)

        if not len(rows):
            return np.empty((0, *self.one), np.uint8)
        with ThreadPoolExecutor(min(len(rows), os.cpu_count() or 1)) as pool:  # leaves Python's lock
            return np.stack(list(pool.map(cut, rows, *draws)))


def _as_array(picture: Image.Image) -> np.ndarray:
    return np.ascontiguousarray(np.asarray(picture).transpose(2, 0, 1))  # (3, H, W)
