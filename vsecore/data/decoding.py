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
    batches: list[list[Path]], size: int, pool: ThreadPoolExecutor
) -> Iterator[tuple[Tensor, list[bytes]]]:
    """Yield batches of pictures (B, 3, size, size) uint8 and their files' sha256, at most two ahead."""
    waiting: collections.deque[list[Future[tuple[np.ndarray, bytes]]]] = collections.deque()
    for batch in batches:
        waiting.append([pool.submit(_look_at, path, size) for path in batch])
        if len(waiting) > 2:
            yield _stack(waiting.popleft())
    while waiting:
        yield _stack(waiting.popleft())


def _stack(futures: list[Future[tuple[np.ndarray, bytes]]]) -> tuple[Tensor, list[bytes]]:
    pictures, digests = zip(*(future.result() for future in futures), strict=True)
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2), list(digests)  # (B, 3, size, size)


def _look_at(path: Path, size: int) -> tuple[np.ndarray, bytes]:
    """Return a picture, and the sha256 of its file."""
    before = _stamp(path)
    pixels, digest = decode_picture(path, size), digest_of(path)
    if _stamp(path) != before:
        raise ValueError(f"{path} changed while it was read: run the same extraction again")
    return pixels, digest


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
