"""A tidy end for a program that is stopped, by Ctrl-C or by the system's request to end (SIGTERM).

This module imports only the standard library, so that it can take effect before anything else is imported.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

PATIENCE = 5
"""Seconds that a program has to end tidily. Ending it after that is safe: its files are always whole."""

_advice: Callable[[], str] = str
_program = "vse"


class Stopped(SystemExit):
    """Raised wherever a program is when it is stopped. Its code is the one that shells expect, such as 130.

    It is not a KeyboardInterrupt, since libraries and worker processes answer one with their own messages.
    """


def stop_tidily(program: str = "vse") -> None:
    """Make Ctrl-C and the system's request to end raise `Stopped` from now on; `end` names the program.

    Processes that are forked later, such as those that prepare batches, ignore both signals, although
    terminals and many systems send them to every process: this one ends them.
    """
    global _program
    _program = program
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=leave_to_parent)


def advise(say: Callable[[], str]) -> None:
    """Set what `end` says about how to go on, such as "continue with --resume"; by default nothing."""
    global _advice
    _advice = say


def is_main_process() -> bool:
    """Whether this process is the one that prints and writes, also before `fit` has brought them together."""
    return int(os.environ.get("RANK", "0")) == 0  # set by torchrun and accelerate launch


def end(code: int) -> NoReturn:
    """Say that the program was stopped, and end it now, whatever its threads and workers are still doing."""
    for worker in multiprocessing.active_children():
        worker.kill()
    with contextlib.suppress(OSError):  # whoever read the output may have gone
        if is_main_process():
            print("; ".join(filter(None, (f"{_program}: stopped", _advice()))), file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.unraisablehook = lambda unraisable: None  # objects that were only half made
    if hasattr(signal, "SIGCHLD"):  # the end of a worker no longer matters
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Python drops an exception that is raised in some callbacks, or while an object is deleted. This timer
    # ends the program anyway.
    last = threading.Timer(PATIENCE, end, (128 + number,))
    last.daemon = True
    last.start()
    raise Stopped(128 + number)


def leave_to_parent() -> None:
    """Ignore both signals from now on: the process that started this one ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
