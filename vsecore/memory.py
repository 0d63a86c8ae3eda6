"""This machine's memory: how much a process has had, and whether a model or a text fits into it."""

import sys
from pathlib import Path

import psutil

from vsecore.typed import short

COPIES = 4
"""Of a text while it is read: bytes, characters, lines, and the result."""


def check_room(what: str, weights: int) -> None:
    """Refuse a model if this many weights alone need more memory than the machine has."""
    memory = psutil.virtual_memory().total
    if weights * 4 > memory:  # bytes in float32
        raise ValueError(
            f"{what} has {short(weights)} weights, too many for {memory / 2**30:,.0f} GB: make it smaller"
        )


def check_text(path: Path) -> None:
    """Refuse a text file that would fill this machine's memory: a damaged file may claim any size."""
    size = path.stat().st_size
    if size < 2**20:  # fits anywhere; asking the system takes longer than reading it
        return
    memory = psutil.virtual_memory().total
    if size * COPIES > memory:
        raise ValueError(
            f"{path} has {size / 2**30:,.1f} GB, too many for this machine's memory: "
            "it may be damaged; get it again"
        )


def peak_memory() -> int:
    """Return the most memory that this process ever had, in bytes."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource  # which Windows does not have

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in kilobytes
