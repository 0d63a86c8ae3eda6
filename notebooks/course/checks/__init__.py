"""Exercise checks: they answer the learner in the same cell, at once, with partial credit and a hint.

Each notebook has a module with its exercises; `exercise` says how an answer is judged.
"""

import json
import os
import pkgutil
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from IPython.core.getipython import get_ipython

from course.checks.exercise import RUN_ABOVE, Exercise, Judgement, Trial, judge_answer

__all__ = ["EXERCISES", "JUDGEMENTS", "Exercise", "Judgement", "Trial", "check", "exercise"]

_modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
_tables = [module.EXERCISES for module in _modules if hasattr(module, "EXERCISES")]
EXERCISES: dict[str, Exercise] = {key: one for each in sorted(_tables, key=min) for key, one in each.items()}
"""All exercises by their keys, in the order of the notebooks."""

JUDGEMENTS = "COURSE_JUDGEMENTS"
"""The environment variable that names a file to which `check` adds its judgements, a JSON object a line."""


def _show(shell: Any, kind: Any, error: Any, trace: Any, tb_offset: int | None = None) -> None:
    """Show a missing name's traceback, then say `RUN_ABOVE`; nbval and *Run All* still stop at the error."""
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset, running_compiled_code=True)
    if not isinstance(error, UnboundLocalError):  # of a function's own variable: no other cell can help
        print(RUN_ABOVE)


if shell := get_ipython():  # where IPython runs the cells
    shell.set_custom_exc((NameError,), _show)

Answer = TypeVar("Answer", bound=Callable[..., Any])


def exercise(key: str) -> Callable[[Answer], Answer]:
    """Judge the function or class below, at once, and say how far it gets: `@exercise("04.siblings")`.

    Until it is right, a right one takes its place for the cells below, so that the notebook goes on.
    """

    def judged(answer: Answer) -> Answer:
        judgement = check(key, answer)
        print(judgement)
        reference: Any = EXERCISES[key].reference
        if judgement.passed or reference is None:
            return answer
        print(f"Until then, the cells below use the solution's `{answer.__name__}`.")
        return reference

    return judged


def check(exercise: str, answer: Any) -> Judgement:
    """Judge an answer, such as a number, a tensor or a function, to an exercise, such as "04.read".

    The points count the trials passed before the first that fails; the message is the hint for that one, or
    for a known mistake; if the answer's code stopped, it says so first. An `...` left in place counts as not
    yet answered.
    """
    if exercise not in EXERCISES:
        raise ValueError(f"exercise is {exercise!r}: it must be one of {', '.join(sorted(EXERCISES))}")
    judgement = judge_answer(EXERCISES[exercise], answer)
    if path := os.environ.get(JUDGEMENTS):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"exercise": exercise, **asdict(judgement)}) + "\n")
    return judgement
