"""End everything that a process has started, however well it hid."""

from __future__ import annotations

import ctypes
import signal
import sys
import time
from contextlib import suppress

import psutil

PATIENCE = 10  # seconds for processes to end that make new ones while they are ended
_ADOPT, _END_WITH_PARENT = 36, 1  # in linux/prctl.h


def adopt_orphans() -> None:
    """From now on, what loses its parent below this process becomes its child, so `end_new` can find it.

    Only Linux has this. Elsewhere a process that detaches itself survives.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_ADOPT, 1, 0, 0, 0)


def running() -> set[psutil.Process]:
    """All that this process has started, and what that has started."""
    return set(psutil.Process().children(recursive=True))


def end_new(before: set[psutil.Process]) -> None:
    """End what `running` finds now and did not find before."""
    until = time.monotonic() + PATIENCE
    while (found := running() - before) and time.monotonic() < until:
        for step in (psutil.Process.suspend, psutil.Process.kill):  # first, so that none can start others
            for process in found:
                with suppress(psutil.Error):
                    step(process)
        psutil.wait_procs(found, timeout=1)


def end_with_parent() -> None:
    """Let the system end this process when the one that started it is gone. Only Linux does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGTERM, 0, 0, 0)
