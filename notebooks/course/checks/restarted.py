"""What a learner is told when a cell asks for a name that is not there: run the cells above first."""

from __future__ import annotations

from typing import Any

from IPython.core.getipython import get_ipython

from course.checks.exercise import RUN_ABOVE


def explain_missing_names() -> None:
    """From now on say `RUN_ABOVE` below the traceback of a missing name, where IPython runs the cells.

    The error stays an error, so papermill, nbval and *Run All* still stop at it.
    """
    shell = get_ipython()
    if shell is not None:
        shell.set_custom_exc((NameError,), _show)


def _show(shell: Any, kind: Any, error: Any, trace: Any, tb_offset: int | None = None) -> None:
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset, running_compiled_code=True)
    if not isinstance(error, UnboundLocalError):  # of a function's own variable: no other cell can help
        print(RUN_ABOVE)
