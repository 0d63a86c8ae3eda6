"""Read photographs from files, and bring them to the size that a network reads."""

import contextlib
import importlib
import os
import struct
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image, ImageOps

T = TypeVar("T")

FORMATS = ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF"]
"""Plain pictures. Pillow's other formats are refused: an EPS file, for example, is a program to be run."""

HEIC_SUFFIXES: set[str] = set()
"""The endings of phones' pictures, if the extra `heic` is installed; its library decodes them."""
with contextlib.suppress(ImportError):
    pillow_heif = importlib.import_module("pillow_heif")
    pillow_heif.register_heif_opener()
    FORMATS.append("HEIF")
    HEIC_SUFFIXES.update((".heic", ".heif", ".hif"))

# What Pillow raises for a damaged file depends on the format and on the damage.
_BOMB = Image.DecompressionBombError
_DAMAGE = (OSError, SyntaxError, ValueError, EOFError, struct.error, MemoryError, _BOMB)
# Damage in what a camera has noted beside the picture does not matter.
warnings.filterwarnings("ignore", module=r"PIL\.(TiffImagePlugin|JpegImagePlugin|PngImagePlugin)")


Picture = str | Path | Image.Image | np.ndarray
"""A picture's file, or the picture itself: Pillow's, or an array (H, W, 3) uint8."""


def open_picture(path: Picture, at_least: int | None = None) -> Image.Image:
    """Read a photograph as people see it.

    The picture is turned as EXIF says. Transparent pictures are put on white, as on a page. Grey of 16 bits
    is divided by 257, so that white stays white (of colours with 16 bits, the upper eight are taken, which is
    at most 1 darker). An animation gives its first picture.

    Args:
        path: a JPEG, PNG, WebP, BMP, GIF or TIFF file; or a picture in memory.
        at_least: a side in pixels that is enough: a large JPEG is then decoded at a fraction of its size,
            which is faster. None: the whole size.

    Returns:
        The picture, in memory, in RGB; a ValueError if it cannot be read.
    """
    if isinstance(path, np.ndarray):
        if path.dtype != np.uint8 or path.ndim != 3 or path.shape[2] != 3:
            raise ValueError(f"an array of a picture is {path.dtype} {path.shape}: wanted uint8 (H, W, 3)")
        return Image.fromarray(path)
    if isinstance(path, Image.Image):
        return _upright(path)
    try:
        if not Path(path).is_file():  # a pipe would make us wait for its other end
            raise FileNotFoundError("no such file")
        with Image.open(path, formats=FORMATS) as picture:
            if at_least is not None:
                picture.draft("RGB", (at_least, at_least))
            return _upright(picture)
    except _BOMB as error:
        raise ValueError(f"{path} is too large to be read ({error}): save it smaller") from None
    except _DAMAGE as error:
        raise ValueError(f"{path} cannot be read as a picture ({error}): get it again") from None


def _upright(picture: Image.Image) -> Image.Image:
    picture.load()
    with contextlib.suppress(*_DAMAGE):  # where EXIF is damaged, the picture itself is whole
        picture = ImageOps.exif_transpose(picture)
    if picture.mode in ("I", "F"):
        raise ValueError(f"nothing says which of its numbers is white: mode {picture.mode}")
    if picture.mode.startswith("I;16"):
        grey = np.asarray(picture).astype(np.uint32)  # (H, W)
        return Image.fromarray(((grey + 128) // 257).astype(np.uint8)).convert("RGB")
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    seen = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen).convert("RGB")


def decoded_ahead(decode: Callable[[Path], T], batches: Sequence[Sequence[Path]]) -> Iterator[list[T]]:
    """Yield what `decode` makes of the files of each batch; threads work at most two batches ahead."""
    waiting: deque[list[Future[T]]] = deque()
    pool = ThreadPoolExecutor(min(os.cpu_count() or 1, 16))
    try:
        for batch in [*batches, [], []]:
            waiting.append([pool.submit(decode, path) for path in batch])
            if len(waiting) > 2 and (ready := waiting.popleft()):
                yield [future.result() for future in ready]
    finally:
        pool.shutdown(cancel_futures=True)
