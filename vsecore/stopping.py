"""A tidy end when someone stops a program: by Ctrl-C, or the system by its request to end.

This module imports only the standard library, so that it can be in force before anything else is imported.
"""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


class Stopped(SystemExit):
    """Raised wherever a program is when it is stopped. Its code is the one that shells expect, such as 130.

    Not a KeyboardInterrupt, which libraries and worker processes answer with words of their own.
    """

    advice = ""
    """What to do to go on, such as "; continue with --resume"."""


def stop_tidily() -> None:
    """From now on Ctrl-C and the system's request to end raise `Stopped`.

    Processes that are forked later, as those that prepare batches, do not hear Ctrl-C: this one ends them.
    """
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_leave_to_parent)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    sys.unraisablehook = _ignore
    if hasattr(signal, "SIGCHLD"):  # the end of a worker is no news any more
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    raise Stopped(128 + number)


def _hold() -> None:
    """Let signals wait while a process is forked: the new one must not take them for its own."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})


def _leave_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _release()


def _ignore(unraisable: object) -> None:
    """Say nothing of objects that were only half made when the program was stopped."""
