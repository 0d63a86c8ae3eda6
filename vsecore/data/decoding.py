"""Decode pictures in threads while a network works on the ones before them."""

import collections
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vsecore.data.feature_rows import digest_of
from vsecore.data.picture_files import open_picture


def look_ahead(
    batches: list[list[Path]], size: int, pool: ThreadPoolExecutor, longest: int | None = None
) -> Iterator[tuple[Tensor, Tensor, list[bytes]]]:
    """Decode batches of pictures, at most two ahead.

    Args:
        batches: the files.
        size: the side of the square that each picture becomes.
        pool: threads that decode.
        longest: if given, pictures keep their proportions: see `decode_in_proportion`.

    Yields:
        Pictures (B, 3, H, W) uint8, each at the top left of a frame that holds the largest; height and width
        of each in there, and of its file, (B, 4) int64; and the sha256 of each file.
    """
    waiting: collections.deque[list[Future[_Looked]]] = collections.deque()
    for batch in batches:
        waiting.append([pool.submit(_look_at, path, size, longest) for path in batch])
        if len(waiting) > 2:
            yield _stack(waiting.popleft())
    while waiting:
        yield _stack(waiting.popleft())


_Looked = tuple[np.ndarray, tuple[int, int], bytes]
"""A picture (h, w, 3) uint8, height and width of its file, and the file's sha256."""

_FRAME = 32
"""A frame's sides are multiples of this, so that every layer of a detector divides them evenly."""


def _stack(futures: list[Future[_Looked]]) -> tuple[Tensor, Tensor, list[bytes]]:
    pictures, files, digests = zip(*(future.result() for future in futures), strict=True)
    sizes = np.array([picture.shape[:2] for picture in pictures])  # (B, 2)
    if (sizes == sizes[0]).all():
        frames = np.stack(pictures)
    else:
        height, width = -(-sizes.max(0) // _FRAME) * _FRAME
        frames = np.zeros((len(pictures), height, width, 3), np.uint8)
        for frame, picture in zip(frames, pictures, strict=True):
            frame[: picture.shape[0], : picture.shape[1]] = picture
    both = torch.from_numpy(np.concatenate([sizes, np.array(files)], 1))
    return torch.from_numpy(frames).permute(0, 3, 1, 2), both, list(digests)


def _look_at(path: Path, size: int, longest: int | None) -> _Looked:
    before = _stamp(path)
    if longest is None:
        pixels, shape = decode_picture(path, size), (size, size)
    else:
        pixels, shape = decode_in_proportion(path, size, longest)
    digest = digest_of(path)
    if _stamp(path) != before:
        raise ValueError(f"{path} changed while it was read: run the same extraction again")
    return pixels, shape, digest


def _stamp(path: Path) -> tuple[int, ...]:
    """Return something that changes when a file is written or replaced."""
    if not path.exists():
        return ()
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


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
