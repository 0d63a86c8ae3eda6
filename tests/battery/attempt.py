"""One command of `vse`, run in this process, and what a user would see of it."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from vsecore import cli

SECONDS = 20
"""Whatever takes longer than this on these small files counts as hanging."""


class Defect(AssertionError):
    """Damage that was not reported in one sentence; the first word is traceback, silent or hang."""


class _Hang(BaseException):  # not an Exception, which a command might catch
    pass


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def works(self) -> bool:
        """Whether it did what it was asked for."""
        return self.status == 0


def vse(*arguments: Any) -> Said:
    """Run a command.

    Raises:
        Defect: it hangs, shows a traceback, or refuses without a plain sentence.
    """
    command = ["vse", *map(str, arguments)]
    with mock.patch.object(sys, "argv", command):
        return _watched(" ".join(command), cli.main)


def library(what: str, work: Callable[[], None]) -> Said:
    """Call the package where `vse` has no command for it; the errors of a user's mistake are its refusals.

    Raises:
        Defect: as `vse`.
    """

    def told() -> None:
        try:
            work()
        except (ValueError, OSError) as error:
            print(f"vse: {error}", file=sys.stderr)
            sys.exit(2)

    return _watched(what, told)


def _watched(what: str, work: Callable[[], None]) -> Said:
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
        _in_time(),
    ):
        warnings.simplefilter("error", RuntimeWarning)  # numbers that went wrong without a word
        try:
            work()
            status: Any = 0
        except SystemExit as stopped:
            status = stopped.code or 0
        except _Hang:
            raise Defect(f"hang: {what}") from None
        except BaseException:
            raise Defect(f"traceback: {what}\n{traceback.format_exc(limit=-6)}") from None
    said = Said(status, out.getvalue(), err.getvalue())
    if status != 0:
        lines = [line for line in said.err.splitlines() if line.strip()]
        told = [line for line in lines if line.startswith(("vse: ", "problem: ")) or "Usage" in line]
        if "Traceback" in said.err or not told or len(max(lines, key=len)) > 2_000:
            raise Defect(f"traceback: {what} ended with {status} and said {said.err[-2000:]!r}")
    return said


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise _Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    # A thread that hangs in the system cannot be interrupted: then the whole process ends, and says where.
    faulthandler.dump_traceback_later(3 * SECONDS, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
