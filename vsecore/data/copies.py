"""Pictures that are copies of one another, and splits of one's own that keep copies together."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from vsecore.data.files import digest_of, progress
from vsecore.data.picture_files import open_picture

SAME = 3.0
"""Mean difference of two pictures' small copies, of 255 levels, below which they may be the same picture."""
ALIKE = 0.02
"""The square of that difference may be at most this share of the variance of the picture's own pixels, or all
pictures of small things on white would be one."""
FLAT = 50.0
"""Variance below which a small copy shows too little to say that two pictures are the same."""


def copies(pictures: Sequence[Path], sure: bool = False) -> list[list[Path]]:
    """Group files that show the same picture: the same bytes, or saved again at another size or quality.

    Of a picture that cannot be read, only the bytes are compared, and if we must be `sure`, of nearly flat
    ones.
    """
    if not pictures:
        return []
    small = np.stack([_small(path) for path in progress(pictures, desc="compare", unit="picture")])  # (n, F)
    variance = small.reshape(len(small), -1, 3).var(1).mean(1)  # (n,)   within each colour
    squares = np.square(small).sum(1)  # (n,)
    flat = ALIKE * variance < SAME**2  # (n,)
    limits = np.where(flat, ALIKE * variance, SAME**2) * small.shape[1]  # (n,)
    limits[((variance < FLAT) & sure) | (squares == 0)] = -1  # of zeros, nothing was read
    count = len(pictures)
    links, same = list[sparse.csr_array](), np.arange(count)
    for start in range(0, len(pictures), 1024):
        block = small[start : start + 1024]
        gaps = squares[start : start + 1024, None] + squares - 2 * block @ small.T  # (b, n)
        links.append(sparse.csr_array(gaps <= np.minimum(limits[start : start + 1024, None], limits)))
    first: dict[bytes, int] = {}
    for row in np.flatnonzero(flat).tolist():
        same[row] = first.setdefault(digest_of(pictures[row]), row)
    identical = sparse.csr_array((np.ones(count, bool), (np.arange(count), same)), (count, count))
    graph = sparse.vstack(links) + identical  # (n, n)
    _, group = connected_components(graph, directed=False)
    return [[pictures[int(row)] for row in np.flatnonzero(group == one)] for one in np.unique(group)]


def share_out(groups: Sequence[Sequence[Path]]) -> dict[Path, str]:
    """Give a tenth of the pictures, at least two, to dev and to test; copies stay together."""
    wanted = max(2, round(sum(map(len, groups)) / 10))
    made: dict[str, list[Path]] = {"test": [], "dev": [], "train": []}
    for group in sorted(groups, key=lambda group: min(sha256(digest_of(file)).digest() for file in group)):
        name = next((name for name in ("test", "dev") if len(made[name]) < wanted), "train")
        made[name].extend(group)
    return {file: name for name, files in made.items() for file in files}


def _small(path: Path) -> np.ndarray:
    """Return a copy of 16 x 16 pixels, (768,); of a picture that cannot be read, zeros.

    Colours are centred, so that the sums of products above are whole numbers that float32 holds exactly.
    """
    try:
        return np.asarray(open_picture(path, at_least=32).resize((16, 16)), np.float32).ravel() - 128
    except (ValueError, OSError):
        return np.zeros(16 * 16 * 3, np.float32)
