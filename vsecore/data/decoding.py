"""Decode pictures in threads while a network works on the ones before them."""

import collections
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vsecore.data.picture_files import open_picture

_FRAME = 32
"""A frame's sides are multiples of this, so that every layer of a detector divides them evenly."""

_Decoded = tuple[np.ndarray, tuple[int, int]]
"""A picture (h, w, 3) uint8, and height and width of its file."""


def look_ahead(
    batches: Sequence[Sequence[Path]], size: int, pool: ThreadPoolExecutor, longest: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Decode batches of pictures, at most two ahead.

    Args:
        batches: the files.
        size: the side of the square that each picture becomes.
        pool: threads that decode.
        longest: if given, pictures keep their proportions: see `decode_in_proportion`.

    Yields:
        Pictures (B, 3, H, W) uint8, each at the top left of a frame that holds the largest; and height and
        width of each in there, and of its file, (B, 4) int64.
    """

    def decode(path: Path) -> _Decoded:
        if longest is None:
            return decode_picture(path, size), (size, size)
        return decode_in_proportion(path, size, longest)

    waiting: collections.deque[list[Future[_Decoded]]] = collections.deque()
    for batch in [*batches, [], []]:
        waiting.append([pool.submit(decode, path) for path in batch])
        if len(waiting) > 2 and (ready := waiting.popleft()):
            yield _stack([future.result() for future in ready])


def _stack(decoded: list[_Decoded]) -> tuple[Tensor, Tensor]:
    sizes = np.array([picture.shape[:2] for picture, _ in decoded])  # (B, 2)
    height, width = sizes.max(0)
    if (sizes != sizes[0]).any():
        height, width = -(-height // _FRAME) * _FRAME, -(-width // _FRAME) * _FRAME
    frames = np.zeros((len(decoded), height, width, 3), np.uint8)
    for frame, (picture, _) in zip(frames, decoded, strict=True):
        frame[: picture.shape[0], : picture.shape[1]] = picture
    both = np.concatenate([sizes, np.array([file for _, file in decoded])], 1)
    return torch.from_numpy(frames).permute(0, 3, 1, 2), torch.from_numpy(both)


def decode_picture(path: Path, size: int) -> np.ndarray:
    """Return one picture, squashed to a square: (size, size, 3) uint8."""
    # Decoded at no less than twice the wanted size: faster than in full, and still twice as fine.
    picture = open_picture(path, at_least=2 * size)
    return np.asarray(picture.resize((size, size), Image.Resampling.BICUBIC))


def decode_in_proportion(path: Path, shortest: int, longest: int) -> tuple[np.ndarray, tuple[int, int]]:
    """Return one picture in its own proportions, at the size that detectors are trained on.

    Args:
        path: the file.
        shortest: what its shorter side becomes, in pixels.
        longest: what its longer side may be at most; where it would be more, both become smaller.

    Returns:
        The picture (h, w, 3) uint8, and height and width of the file's own picture.
    """
    picture = open_picture(path)
    scale = min(shortest / min(picture.size), longest / max(picture.size))
    width, height = (max(1, round(scale * side)) for side in picture.size)
    resized = picture.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(resized), (picture.height, picture.width)
