"""A tidy end when someone stops a program: by Ctrl-C, or the system by its request to end.

This module imports only the standard library, so that it can be in force before anything else is imported.
"""

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
    """From now on Ctrl-C and the system's request to end raise `Stopped`; worker processes inherit this."""
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    sys.unraisablehook = _ignore
    raise Stopped(128 + number)


def _ignore(unraisable: object) -> None:
    """Say nothing of objects that were only half made when the program was stopped."""
