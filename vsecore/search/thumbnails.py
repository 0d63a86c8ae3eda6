"""Small copies of pictures for a page, made once and kept beside the index."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from PIL import Image, ImageOps

from vsecore.data.files import write_atomically
from vsecore.data.picture_files import open_picture

FOLDER = "thumbnails"
SIDE = 360
"""Neither side of a small copy is longer, in pixels."""
LARGE = 1600
"""Nor of a large one."""


class Thumbnails:
    """Small copies of pictures, as JPEG.

    Args:
        folder: of the index; None: nothing is kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = None if folder is None else folder / FOLDER

    def small(self, path: Path, digest: str) -> bytes:
        """Return a small copy of a picture.

        Args:
            path: the picture's file.
            digest: of its bytes, by which the copy is kept, so that a changed picture gets another.

        Raises:
            ValueError: the picture cannot be read.
        """
        kept = None if self.folder is None else self.folder / digest[:2] / f"{digest}.jpg"
        if kept is not None:
            with contextlib.suppress(ValueError):  # it is missing or damaged: it is made again
                open_picture(kept)
                return kept.read_bytes()
        made = jpeg(path, SIDE)
        if kept is not None:
            with contextlib.suppress(OSError), write_atomically(kept) as file:  # it may not be ours to write
                file.write(made)
        return made


def jpeg(path: Path, side: int) -> bytes:
    """Return a picture as JPEG, its longer side at most `side` pixels; without EXIF, so without a place.

    Raises:
        ValueError: it cannot be read.
    """
    picture = open_picture(path, at_least=side)
    if max(picture.size) > side:
        picture = ImageOps.contain(picture, (side, side), Image.Resampling.LANCZOS)
    written = io.BytesIO()
    picture.save(written, "JPEG", quality=85)
    return written.getvalue()
