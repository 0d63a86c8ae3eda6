"""How an answer is judged: trials, easiest first, each with a hint for those who fail it.

Any right answer passes, however it is written: trials look at what an answer does, never at how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

ExerciseKind = Literal["compute", "code", "break"]
"""What an exercise asks for: a number worked out, code written, or something broken on purpose."""

NOT_ANSWERED = "Not answered yet: put your answer in place of the dots."


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
    """An exercise's trials, easiest first. Each is worth a point, and the first that fails ends the count.

    Attributes:
        title: what the learner sees it called.
        kind: "compute", "code" or "break".
        minutes: about how long a learner takes.
        trials: each builds on the ones before it.
        mistakes: wrong answers that many people give, each with its own hint.
    """

    title: str
    kind: ExerciseKind
    minutes: int
    trials: tuple[Trial, ...]
    mistakes: tuple[Trial, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an unknown kind."""
        if self.kind not in get_args(ExerciseKind):
            raise ValueError(f"kind is {self.kind!r}; it must be one of {', '.join(get_args(ExerciseKind))}")


@dataclass(frozen=True)
class Judgement:
    """How good an answer is. As the last line of a cell it prints as a reply to the learner.

    Attributes:
        title: the exercise's.
        points: trials passed before the first that failed.
        possible: trials there are.
        message: "Right.", or the hint of the first failure or of a known mistake.
    """

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


def judge_answer(task: Exercise, answer: Any) -> Judgement:
    """Run an exercise's trials in their order and say how far the answer gets."""
    if answer is ... or answer is None:
        return Judgement(task.title, 0, len(task.trials), NOT_ANSWERED)
    for points, trial in enumerate(task.trials):
        passed, trouble = _tried(trial, answer)
        if not passed:
            known = [mistake.hint for mistake in task.mistakes if _tried(mistake, answer)[0]]
            return Judgement(task.title, points, len(task.trials), [*known, trial.hint][0] + trouble)
    return Judgement(task.title, len(task.trials), len(task.trials), "Right.")


def near(answer: Any, value: float, tolerance: float = 1e-4) -> bool:
    """Whether a number, or a tensor of one number, is this value up to rounding."""
    return abs(float(answer) - value) < tolerance


def _tried(trial: Trial, answer: Any) -> tuple[bool, str]:
    """Whether an answer passes a trial, and what stopped the learner's code, if anything did."""
    try:
        return bool(trial.passes(answer)), ""
    except Exception as error:  # whatever a learner's code raises is an answer, not the end of the lesson
        what = "Your code stopped with" if callable(answer) else "Your answer could not be read:"
        return False, f" ({what} {type(error).__name__}: {error})"
