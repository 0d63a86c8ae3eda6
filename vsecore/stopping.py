"""A tidy end when someone stops a program: by Ctrl-C, or the system by its request to end.

This module imports only the standard library, so that it can be in force before anything else is imported.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

PATIENCE = 5
"""Seconds that a program has for a tidy end. Whatever it has written is whole at any moment."""

advice: Callable[[], str] = str
"""What a program says of going on, such as "; continue with --resume"; by default nothing."""


class Stopped(SystemExit):
    """Raised wherever a program is when it is stopped. Its code is the one that shells expect, such as 130.

    Not a KeyboardInterrupt, which libraries and worker processes answer with words of their own.
    """


def stop_tidily() -> None:
    """From now on Ctrl-C and the system's request to end raise `Stopped`.

    Processes that are forked later, as those that prepare batches, hear neither, though a terminal and many
    a system tell all of them: this one ends them.
    """
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=leave_to_parent)


def end(code: int) -> NoReturn:
    """Say that the program was stopped, and end it now, whatever its threads and workers still do."""
    for worker in multiprocessing.active_children():
        worker.kill()
    if os.environ.get("RANK", "0") == "0":  # of several processes one speaks
        print(f"vse: stopped{advice()}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.unraisablehook = _ignore
    if hasattr(signal, "SIGCHLD"):  # the end of a worker is no news any more
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # An exception within a callback, or while an object is removed, is dropped. The program ends anyway.
    last = threading.Timer(PATIENCE, end, (128 + number,))
    last.daemon = True
    last.start()
    raise Stopped(128 + number)


def leave_to_parent() -> None:
    """From now on this process hears neither: the one that started it ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _ignore(unraisable: object) -> None:
    """Say nothing of objects that were only half made when the program was stopped."""
