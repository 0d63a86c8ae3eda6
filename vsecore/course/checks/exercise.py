"""How an answer is judged: trials, easiest first, each with a hint for those who fail it.

Any right answer passes, however it is written: trials look at what an answer does, never at how. Only an
answer that leaves the work to the package, or to a function of the notebook or of another library that
already does it, is refused (see `borrowed`).

An answer that still holds the dots of the handed-out cell is not answered rather than wrong: it is dots, or a
function that does nothing, gives dots back, or stops because it tried to work with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from traceback import walk_tb
from typing import Any, Literal, get_args

from vsecore.course.checks.borrowed import borrowed, holds_dots, is_stub

ExerciseKind = Literal["predict", "compute", "code", "break", "explore"]
"""What an exercise asks for: a prediction before a cell runs, a number worked out, code written, something
broken on purpose, or one thing changed and its effect told."""

Difficulty = Literal["easy", "medium", "hard"]

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
        kind: what it asks for.
        minutes: about how long a learner takes.
        trials: each builds on the ones before it.
        mistakes: wrong answers that many people give, each with its own hint.
        difficulty: "easy", "medium" or "hard".
        reference: a right answer, which the cells below use until the learner's is right.
        defined_above: what the notebook defines before the exercise and an answer may not call, since it
            already does the work.
        instead: functions and classes of other libraries that an answer may not use, since they already do
            the work; by their names, such as "GRUCell".
        may_call: references of earlier exercises that the answer builds on: they stand in where the learner's
            own answers failed.
        message: what is said of a right answer.
        caller: for an answer that takes networks or an optimizer, which cannot pass between processes. Given
            the answer and plain values it builds them, calls the answer and returns plain values. The trials
            get this call in place of the answer, and the grader has it made where the answer lies. It holds
            no right answer, and uses nothing of its own module.
    """

    title: str
    kind: ExerciseKind
    minutes: int
    trials: tuple[Trial, ...]
    mistakes: tuple[Trial, ...] = ()
    difficulty: Difficulty = "medium"
    reference: Callable[..., Any] | None = None
    defined_above: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    may_call: tuple[Callable[..., Any], ...] = ()
    message: str = "Right."
    caller: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown kind or difficulty."""
        for field, kinds in (("kind", ExerciseKind), ("difficulty", Difficulty)):
            if (value := getattr(self, field)) not in get_args(kinds):
                raise ValueError(f"{field} is {value!r}: it must be one of {', '.join(get_args(kinds))}")


@dataclass(frozen=True)
class Judgement:
    """How good an answer is. As the last line of a cell it prints as a reply to the learner.

    Attributes:
        title: the exercise's.
        points: trials passed before the first that failed.
        possible: trials there are.
        message: "Right.", or the hint of the first failure or of a known mistake. If the learner's
            code stopped, it says so first.
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
    """Judge an answer that lies here: is there one, is it the learner's own, how far does it get?"""
    if is_stub(answer):
        return not_answered(task, answer)
    if helper := borrowed(answer, task.defined_above, task.instead, task.may_call):
        return refused(task, helper)
    return judge_by_trials(task, partial(task.caller, answer) if task.caller else answer)


def not_answered(task: Exercise, answer: Any = ...) -> Judgement:
    """The judgement of an answer that was left as handed out; of several parts it names the missing one."""
    message = NOT_ANSWERED
    if isinstance(answer, tuple | list):
        missing = [number for number, part in enumerate(answer, start=1) if is_stub(part)]
        if len(missing) < len(answer):
            message += f" Part {missing[0]} of {len(answer)} is still missing."
    return Judgement(task.title, 0, len(task.trials), message)


def refused(task: Exercise, helper: str) -> Judgement:
    """The judgement of an answer that leaves the work to something else."""
    message = f"Your answer uses {helper}, which does the work already. Write it out."
    return Judgement(task.title, 0, len(task.trials), message)


def judge_by_trials(task: Exercise, answer: Any) -> Judgement:
    """Run an exercise's trials in their order and say how far the answer gets."""
    possible = len(task.trials)
    if callable(answer):
        answer = _stopped_by_dots(answer)
    for points, trial in enumerate(task.trials):
        passed, trouble = _tried(trial, answer)
        if isinstance(trouble, _DotsLeftError):
            return Judgement(task.title, points, possible, NOT_ANSWERED)
        if isinstance(trouble, NameError):
            return Judgement(task.title, points, possible, f"{trouble}. {RUN_ABOVE}")
        if not passed:
            return Judgement(task.title, points, possible, _advice(task, trial, answer, trouble))
    return Judgement(task.title, possible, possible, task.message)


RUN_ABOVE = (
    "If you have just restarted the kernel, first run the cells above this one: choose Run, then Run All "
    "Above Selected Cell."
)


def near(answer: Any, value: float, tolerance: float = 1e-4) -> bool:
    """Whether a number, or a tensor of one number, is this value up to rounding."""
    return abs(float(answer) - value) < tolerance


class _DotsLeftError(Exception):
    """A function met the dots that stand for a part not written yet."""


def _stopped_by_dots(answer: Callable[..., Any]) -> Callable[..., Any]:
    """A function that stops where this one gives dots back, or cannot go on because of them."""

    def watched(*arguments: Any) -> Any:
        try:
            result = answer(*arguments)
        except Exception as error:
            if isinstance(error, NotImplementedError) or _speaks_of_dots(error):
                raise _DotsLeftError from error
            raise
        if holds_dots(result):
            raise _DotsLeftError
        return result

    return watched


def _speaks_of_dots(error: Exception) -> bool:
    """Whether Python, NumPy or PyTorch got dots where they wanted a value.

    Errors of other types may speak of an ellipsis too: one in an index or in the equation of an `einsum`.
    """
    said = str(error)
    return ("ellipsis" in said and isinstance(error, TypeError | AttributeError)) or said.endswith(
        "dtype of ellipsis"
    )


def _tried(trial: Trial, answer: Any) -> tuple[bool, Exception | None]:
    """Whether an answer passes a trial, and what stopped the learner's code, if anything did."""
    try:
        return bool(trial.passes(partial(_call, answer) if callable(answer) else answer)), None
    except Exception as error:  # whatever a learner's code raises is an answer, not the end of the lesson
        return False, error


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a learner's function. That an error passed through here says that it arose in there."""
    return function(*arguments)


def _advice(task: Exercise, trial: Trial, answer: Any, trouble: Exception | None) -> str:
    """What to tell a learner whose answer fails a trial: what stopped it, if anything did; where to look."""
    known = [mistake.hint for mistake in task.mistakes if _tried(mistake, answer)[0]]
    hint = known[0] if known else trial.hint
    if trouble is None:
        return hint
    what = ": ".join(filter(None, (type(trouble).__name__, str(trouble).rstrip("."))))
    if not callable(answer):
        return f"Your answer could not be read: {what}. {hint}"
    if all(frame.f_code is not _call.__code__ for frame, _ in walk_tb(trouble.__traceback__)):
        return f"{hint} (What your code returned could not be used: {what}.)"
    if known:
        return f"Your code stopped with {what}. {hint}"
    return f"Your code stopped with {what}. (The hint of this trial, which may not be the reason: {hint})"
