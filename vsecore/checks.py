"""Exercise checks: they answer the learner in the same cell, at once, with partial credit and a hint.

An `Exercise` is a short list of trials, each a truth about a right answer with the hint that its failure
deserves. `check` runs them in order of difficulty and says how far the answer got. Any right answer passes,
however it is written: trials look at what an answer does, never at how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Trial:
    """One truth about a right answer.

    Attributes:
        passes: given the answer, whether this truth holds. An exception counts as "no".
        hint: what to tell a learner whose answer fails here: where to look, not what to write.
    """

    passes: Callable[[Any], bool]
    hint: str


@dataclass(frozen=True)
class Exercise:
    """An exercise's trials, easiest first. Each is worth a point."""

    title: str
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class Verdict:
    """What `check` found. Printed as the last line of a cell it reads as an answer to the learner."""

    title: str
    points: int
    possible: int
    message: str

    @property
    def passed(self) -> bool:
        """Whether every trial passed."""
        return self.points == self.possible

    def __repr__(self) -> str:
        """Say the points, then the message."""
        return f"{'✓' if self.passed else '…'} {self.title}: {self.points} of {self.possible}. {self.message}"


def check(exercise: str, answer: Any) -> Verdict:
    """Judge an answer to an exercise.

    Args:
        exercise: the exercise's key, such as "04.hinge".
        answer: what the exercise asks for: a number, a tensor or a function. An `...` left in place counts
            as not yet answered.

    Returns:
        The verdict; its points are the trials that pass, its message is the hint of the first that does not.

    Raises:
        ValueError: there is no such exercise.
    """
    if exercise not in EXERCISES:
        raise ValueError(f"there is no exercise {exercise!r}; there are {', '.join(sorted(EXERCISES))}")
    task = EXERCISES[exercise]
    if answer is ... or answer is None:
        return Verdict(
            task.title, 0, len(task.trials), "Not answered yet: put your answer in place of the dots."
        )
    points, message = 0, ""
    for trial in task.trials:
        try:
            passed, trouble = bool(trial.passes(answer)), ""
        except Exception as error:  # whatever a learner's code raises is an answer, not the end of the lesson
            passed, trouble = False, f" (Your code stopped with {type(error).__name__}: {error})"
        points += passed
        if not passed and not message:
            message = trial.hint + trouble
    return Verdict(task.title, points, len(task.trials), message or "Right.")


EXERCISES: dict[str, Exercise] = {}
