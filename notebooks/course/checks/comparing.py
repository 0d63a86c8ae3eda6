"""Checks of an answer: that it does what the reference does, is a number, or makes a known mistake.

`kinds` explains how exercises are built from them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.checks.exercise import Check, Exercise
from course.checks.samples import gradient_of

Given = Mapping[str, Any]
"""Keywords for an exercise's maker of inputs."""

By = Callable[[Any], Any] | int | None
"""What of a result is compared: a function of it, the number of a part, or all of it."""


def agrees(made: Any, expected: Any, tolerance: float = 1e-5) -> bool:
    """Whether two results are the same up to rounding: numbers, tensors, arrays, texts, or several of these.

    NaN agrees with NaN; tensors must have the same shape, but not the same dtype.
    """
    if made is None:
        return expected is None
    if isinstance(expected, Tensor | np.ndarray):
        made, expected = (torch.as_tensor(one).double() for one in (made, expected))
        return made.shape == expected.shape and torch.allclose(made, expected, 1e-5, tolerance, True)
    if isinstance(expected, tuple | list):
        return len(made) == len(expected) and all(
            agrees(*parts, tolerance) for parts in zip(made, expected, strict=True)
        )
    if expected is None or isinstance(expected, str | bool):
        return bool(made == expected)
    return bool(np.isclose(float(made), expected, 0, tolerance, equal_nan=True))


@dataclass(eq=False)
class Compared(Check):
    """Whether what `see` finds in the answer agrees with what it finds in the reference, on all cases."""

    see: Callable[[Callable[..., Any], Sequence[Any]], Any]
    cases: Sequence[Given]
    tolerance: float | None = None
    wrong = ()

    def holds(self, task: Exercise, answer: Any) -> bool:
        make, right = task.inputs or tuple, task.called(task.reference)
        tolerance = (task.tolerance or 1e-5) if self.tolerance is None else self.tolerance
        return all(
            agrees(self.see(answer, make(**given)), self.see(right, make(**given)), tolerance)
            for given in self.cases
        )


class Gradient(Compared):
    """What `gradient` makes."""


def same(*cases: Given, by: By = None, tolerance: float | None = None, **given: Any) -> Check:
    """The answer returns what the reference returns, on an input for each case; on one if there are none.

    What is `given` holds in all of them. Of a result, `by` is compared: a function of it, or the number of a
    part. Numbers may be apart by the tolerance, or else what the exercise says, or 1e-5.
    """
    return Compared(partial(_result, by=by), _joined(cases, given), tolerance)


def shape(*cases: Given, by: int | None = None, **given: Any) -> Check:
    """The answer returns tensors of the reference's shapes."""
    return Compared(lambda answer, inputs: _form(_result(answer, inputs, by)), _joined(cases, given), 0.0)


def gradient(*of: int, exact: bool = True, by: By = None, **given: Any) -> Check:
    """The sum of the result, or of `by(result)`, has the right gradient by the arguments in the places `of`.

    That is the first argument if none is named. If a gradient need not be `exact`, any that is finite and not
    zero will do.
    """

    def at(place: int, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        fresh = [one.clone() if isinstance(one, Tensor) else one for one in arguments]
        before, after = fresh[:place], fresh[place + 1 :]
        found = gradient_of(lambda x: _result(function, (*before, x, *after), by), arguments[place])
        return found if exact else bool(found.isfinite().all() and found.any())

    def see(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        return [at(place, function, arguments) for place in of or (0,)]

    return Gradient(see, [given], 1e-4)


def _joined(cases: Sequence[Given], given: Given) -> list[dict[str, Any]]:
    return [{**given, **case} for case in cases or [{}]]


def _result(function: Callable[..., Any], arguments: Sequence[Any], by: By) -> Any:
    result = function(*arguments)
    return result if by is None else (itemgetter(by) if isinstance(by, int) else by)(result)


def _form(result: Any) -> Any:
    """What `shape` compares: the shape of a tensor or a number, or the forms of several parts."""
    if isinstance(result, tuple | list):
        return [_form(part) for part in result]
    if isinstance(result, Tensor | np.ndarray | np.number | int | float):
        return str(tuple(np.shape(result)))
    return type(result).__name__


passed = Check(lambda answer: True)
"""Stands in a table beside the message for an answer that passes all trials."""


holds = Check
"""Anything else that is true of a right answer."""


def between(low: float, high: float) -> Check:
    """The answer is a number between two others, and none of them."""
    return Check(lambda answer: low < float(answer) < high)


class equals(Check):
    """The answer is this number, or these numbers, or this text."""

    def __init__(self, value: Any, tolerance: float | None = None, wrong: Sequence[Any] = ()) -> None:
        self.value, self.tolerance, self.wrong = value, tolerance, wrong

    def holds(self, task: Exercise, answer: Any) -> bool:
        return agrees(answer, self.value, self.tolerance or task.tolerance or 1e-3)


class like(Check):
    """A known mistake: the answer is, or returns on an input, the same as one of some wrong answers.

    Args:
        when: knows the mistake by something broader than the comparison.
        right_on: what the maker of inputs is given where who makes the mistake is right, although wrong on
            `wrong_on`.
        by: what of the result is compared, as in `same`.
        tolerance: as in `same`; values may also be apart by half of a percent.
        given: what the maker of inputs is given for the comparison; nothing by default, for a typical input.
    """

    def __init__(
        self,
        *wrong: Any,
        when: Callable[[Any], Any] | None = None,
        right_on: Given | None = None,
        wrong_on: Given | None = None,
        by: By = None,
        tolerance: float | None = None,
        **given: Any,
    ) -> None:
        self.wrong, self.when, self.tolerance, self.given = wrong, when, tolerance, given
        self.right_on, self.wrong_on, self.by = right_on, wrong_on, by

    def holds(self, task: Exercise, answer: Any) -> bool:
        if self.when:
            return bool(self.when(answer))
        if self.right_on is not None and self.wrong_on is not None:
            right, wrong = (same(given, by=self.by) for given in (self.right_on, self.wrong_on))
            return right.holds(task, answer) and not wrong.holds(task, answer)
        if not callable(answer):
            return any(agrees(answer, value, self._near(task, value)) for value in self.wrong)
        make = partial(task.inputs or tuple, **self.given)
        made, tolerance = _result(answer, make(), self.by), self.tolerance or task.tolerance or 1e-5
        seen = (_result(task.called(wrong), make(), self.by) for wrong in self.wrong)
        return any(agrees(made, one, tolerance) for one in seen)

    def _near(self, task: Exercise, value: Any) -> float:
        share = 5e-3 * abs(value) if isinstance(value, int | float) else 0.0
        return self.tolerance or max(task.tolerance or 1e-3, share)


def divided(right: Callable[..., Any], *counts: float) -> like:
    """A known mistake: the right result divided by a constant, as by a mean in place of a sum."""
    return like(*(lambda *given, count=count: right(*given) / count for count in counts))
