"""Photographs from files."""

import struct
from pathlib import Path

from PIL import Image


def open_picture(path: str | Path, at_least: int | None = None) -> Image.Image:
    """Read a photograph.

    Args:
        path: a file of any format that Pillow knows.
        at_least: a side in pixels that is enough: a large JPEG is then decoded at a fraction of its size,
            which is faster. None: the whole size.

    Returns:
        The picture, in memory, in RGB.

    Raises:
        ValueError: the file is missing, is no picture, is cut off, or would fill the memory.
    """
    try:
        with Image.open(path) as picture:
            if at_least is not None:
                picture.draft("RGB", (at_least, at_least))
            return picture.convert("RGB")
    # What Pillow raises on a damaged file depends on the format and on the damage.
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} is no picture that can be read ({error}): get the file again") from None
