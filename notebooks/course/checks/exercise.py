"""How an answer is judged: trials, easiest first, each with a hint for those who fail it.

How to write an exercise is explained in `kinds`.

Any right answer passes, however it is written: trials look at what an answer does, never at how. So what it
returns may be an array, or lists, or of another dtype: it is first brought into the form of the right answer.
Only an answer that leaves the work to the package, or to a function of the notebook or of another library
that already does it, is refused (see `borrowed`).

An answer that still holds the dots of the handed-out cell counts as not answered, not as wrong: it is dots,
or a function that does nothing, gives dots back, or stops because it tried to work with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from textwrap import fill
from traceback import walk_tb
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from course.checks.borrowed import borrowed, holds_dots, is_stub

ExerciseKind = Literal["predict", "compute", "code", "break", "explore"]
"""What an exercise asks for: a prediction before a cell runs, a number worked out, code written, something
broken on purpose, or one thing changed and its effect described."""

Difficulty = Literal["easy", "medium", "hard"]

NOT_ANSWERED = "Not answered yet: put your answer in place of the dots."


class Check:
    """Something that may be true of an answer. The tests need answers that are `wrong` (see `kinds`)."""

    def __init__(self, predicate: Callable[[Any], Any], wrong: Sequence[Any] = ()) -> None:
        self.predicate, self.wrong = predicate, wrong

    def holds(self, task: Exercise, answer: Any) -> bool:
        """Whether it is true of this answer to this exercise."""
        return bool(self.predicate(answer))


@dataclass(frozen=True)
class Trial:
    """One truth about a right answer, or about one with a known mistake; an exception counts as "no".

    The hint is for a learner whose answer fails here, or makes this mistake: where to look, not what to
    write.
    """

    check: Check
    hint: str


@dataclass(frozen=True)
class Exercise:
    """An exercise's trials, easiest first. Each is worth a point, and the first that fails ends the count.

    Attributes:
        minutes: about how long a learner takes.
        mistakes: wrong answers that many people give, each with its own hint.
        reference: a right answer, which the cells below use until the learner's is right.
        defined_above: what the notebook defines before the exercise and an answer may not call, since it
            already does the work.
        instead: functions and classes of other libraries that an answer may not use, since they already do
            the work; by their names, such as "GRUCell".
        message: what is said of a right answer.
        caller: for an answer that takes networks or an optimizer: given the answer and plain values it builds
            them, calls the answer and returns plain values. The trials get this call in place of the answer.
        inputs: makes the arguments that trials hand to an answer, anew for each call. Called with nothing it
            makes a typical input, on which known mistakes show.
        solution: a right answer that is no function.
        tolerance: how far numbers may be apart, where a check says nothing else.
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
    message: str = "Right."
    caller: Callable[..., Any] | None = None
    inputs: Callable[..., tuple[Any, ...]] | None = None
    solution: Any = None
    tolerance: float | None = None

    def called(self, function: Any) -> Any:
        """What trials call in place of a function: the function itself, or the caller with it."""
        return partial(self.caller, function) if self.caller else function


@dataclass(frozen=True)
class Judgement:
    """How good an answer is (see `check`). As the last line of a cell it prints as a reply to the learner."""

    title: str
    points: int
    possible: int
    message: str

    @property
    def passed(self) -> bool:
        """Whether every trial passed."""
        return self.points == self.possible

    def __repr__(self) -> str:
        """Say the points, then the message; a long hint in lines: JupyterLab breaks words."""
        if self.passed:
            return f"✓ {self.title}: {self.points} of {self.possible}. {self.message}"
        lines = f"… {self.title}: {self.points} of {self.possible}. {self.message}".split("\n")
        return "\n".join(fill(line, 104, break_long_words=False, break_on_hyphens=False) for line in lines)


def judge_answer(task: Exercise, answer: Any) -> Judgement:
    """Judge an answer that lies here: is there one, is it the learner's own, how far does it get?"""
    if is_stub(answer):
        return not_answered(task, answer)
    if helper := borrowed(answer, task.defined_above, task.instead):
        message = f"Your answer uses {helper}, which does the work already. Write it out."
        return Judgement(task.title, 0, len(task.trials), message)
    return judge_by_trials(task, task.called(answer))


def not_answered(task: Exercise, answer: Any = ...) -> Judgement:
    """The judgement of an answer that was left as handed out; of several parts it names the missing one."""
    message = NOT_ANSWERED
    if isinstance(answer, tuple | list):
        missing = [number for number, part in enumerate(answer, start=1) if is_stub(part)]
        if len(missing) < len(answer):
            message += f" Part {missing[0]} of {len(answer)} is still missing."
    return Judgement(task.title, 0, len(task.trials), message)


def judge_by_trials(task: Exercise, answer: Any) -> Judgement:
    """Run an exercise's trials in their order and say how far the answer gets."""
    possible = len(task.trials)
    if isinstance(answer, str) and task.kind != "predict":  # a number may stand in quotes
        with suppress(ValueError):
            answer = float(answer)
    if callable(answer):
        form = _in_the_right_form(answer, task.called(task.reference)) if task.reference else answer
        answer = _stopped_by_dots(form)
    else:
        answer = _formed(answer, task.solution)
    for points, trial in enumerate(task.trials):
        passed, trouble = _tried(task, trial, answer)
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


def _in_the_right_form(answer: Callable[..., Any], right: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose results have the form of the right one's, so that trials compare numbers alone."""

    def formed(*arguments: Any) -> Any:
        result = answer(*arguments)
        given = {part.dtype for part in arguments if isinstance(part, Tensor)}
        parts = result if isinstance(result, tuple) else (result,)
        usual = all(isinstance(part, Tensor) and part.dtype in given for part in parts)
        if usual or holds_dots(result):
            return result
        return _formed(result, right(*arguments))

    return formed


def _formed(result: Any, expected: Any) -> Any:
    """A result in the form of the expected one, if it can be read so."""
    if isinstance(expected, tuple | list) and isinstance(result, tuple | list):
        if len(result) == len(expected):
            return type(result)(_formed(*parts) for parts in zip(result, expected, strict=True))
    elif isinstance(expected, Tensor):
        with suppress(TypeError, ValueError, RuntimeError):
            made = _tensor(result)
            if made.dtype != torch.bool and made.is_floating_point() <= expected.is_floating_point():
                return made.to(expected.dtype)
            return made
    return result


def _tensor(value: Any) -> Tensor:
    """A tensor of numbers, an array, or lists of such; a list of tensors keeps their gradients."""
    if isinstance(value, tuple | list) and any(isinstance(part, tuple | list | Tensor) for part in value):
        return torch.stack([_tensor(part) for part in value])
    return value if isinstance(value, Tensor) else torch.as_tensor(np.array(value))


class _DotsLeftError(Exception):
    """A function met the dots that stand for a part not written yet."""


def _stopped_by_dots(answer: Callable[..., Any]) -> Callable[..., Any]:
    """A function that stops where this one gives dots back, or cannot go on because of them."""

    def watched(*arguments: Any) -> Any:
        try:
            result = answer(*arguments)
        except Exception as error:
            said = str(error)
            # A bare `raise NotImplementedError`: PyTorch's own say more, as for a mean of bools.
            not_written = isinstance(error, NotImplementedError) and not said
            # Errors of other types may speak of an ellipsis too: in an index, or in the equation of `einsum`.
            dots = "ellipsis" in said and isinstance(error, TypeError | AttributeError)
            if not_written or dots or said.endswith("dtype of ellipsis"):
                raise _DotsLeftError from error
            raise
        if holds_dots(result):
            raise _DotsLeftError
        return result

    return watched


def _tried(task: Exercise, trial: Trial, answer: Any) -> tuple[bool, Exception | None]:
    """Whether an answer passes a trial, and what stopped the learner's code, if anything did."""
    try:
        return trial.check.holds(task, partial(_call, answer) if callable(answer) else answer), None
    except Exception as error:  # whatever a learner's code raises is an answer, not the end of the lesson
        return False, error


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a learner's function. That an error passed through here says that it arose in there."""
    return function(*arguments)


_GRADIENT_LOST = {
    "place operation": "Your code writes into a tensor that a gradient has to pass. Write into a copy "
    "instead: `x = x.clone()`.",
    "Can't call numpy()": "A gradient has to reach the arguments, and NumPy arrays, lists and plain numbers "
    "carry none: stay with torch's operations.",
    "does not require grad and": "What your code returned carries no gradient at all.",
}
"""What torch says where a gradient is lost, and what to tell the learner."""


def _advice(task: Exercise, trial: Trial, answer: Any, trouble: Exception | None) -> str:
    """What to tell a learner whose answer fails a trial: what stopped it, if anything did; where to look."""
    known = [mistake.hint for mistake in task.mistakes if _tried(task, mistake, answer)[0]]
    hint = known[0] if known else trial.hint
    if trouble is None:
        return hint
    meant = next((meant for said, meant in _GRADIENT_LOST.items() if said in str(trouble)), "")
    what = ": ".join(filter(None, (type(trouble).__name__, str(trouble).rstrip(".?"))))
    if not callable(answer) and isinstance(trouble, AttributeError):
        return hint  # it is not even an array
    if not callable(answer):
        return f"Your answer could not be read: {what}. {hint}"
    if all(frame.f_code is not _call.__code__ for frame, _ in walk_tb(trouble.__traceback__)):
        return f"{hint} ({meant or f'What your code returned could not be used: {what}.'})"
    if meant and not known and "require grad and" not in str(trouble):
        return meant
    if known:
        return f"Your code stopped with {what}. {hint}"
    return f"Your code stopped with {what}. (The hint of this trial, which may not be the reason: {hint})"
