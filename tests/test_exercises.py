"""Exercises as data (see `course.checks.engine`): what each says of itself is true."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from course.checks import EXERCISES, check
from course.checks.exercise import _GRADIENT_LOST, NOT_ANSWERED, Check, Exercise

CONVERTED = {
    key: task
    for key, task in EXERCISES.items()
    if all(isinstance(trial.passes, Check) for trial in task.trials)
}
"""The exercises that are written as data."""

NUMBERS = [key for key, task in CONVERTED.items() if isinstance(task.solution, float | int)]
FUNCTIONS = [key for key, task in CONVERTED.items() if task.reference]


def not_borrowed(answer: Any) -> Any:
    """The same behind a partial: a reference may use the package, and an answer that does is refused."""
    return partial(answer) if callable(answer) else answer


def right_answers(task: Exercise) -> list[Any]:
    """The answers that an exercise itself holds."""
    return [not_borrowed(answer) for answer in (task.reference, task.solution) if answer is not None]


def wrong_answers(task: Exercise) -> list[Any]:
    return [not_borrowed(answer) for answer, _ in task.wrong_answers()]


@pytest.mark.parametrize("key", CONVERTED)
def test_the_reference_gets_all_points_and_dots_none(key: str) -> None:
    (answer,) = right_answers(CONVERTED[key])
    assert check(key, answer).passed, check(key, answer)
    assert check(key, ...).message == check(key, None).message == NOT_ANSWERED


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("form", [torch.tensor, np.float64, str, lambda value: torch.tensor([value])])
def test_a_number_is_right_in_any_form(key: str, form: Callable[[float], Any]) -> None:
    assert check(key, form(CONVERTED[key].solution)).passed


@pytest.mark.parametrize("key", CONVERTED)
def test_each_wrong_answer_gets_its_own_hint_and_each_trial_is_the_first_to_fail_one(key: str) -> None:
    task, failed = CONVERTED[key], set()
    lost = tuple(_GRADIENT_LOST.values())  # hints that take the place of a trial's
    for answer, source in task.wrong_answers():
        judgement = check(key, not_borrowed(answer))
        said = f"{getattr(answer, '__name__', answer)} of {source.hint!r}: {judgement}"
        assert not judgement.passed, said
        assert source.hint in judgement.message or judgement.message in lost, said
        assert source in (task.trials[judgement.points], *task.mistakes), said
        failed.add(judgement.points)
    assert failed == set(range(len(task.trials))), "no wrong answer shows what the other trials are for"


@pytest.mark.parametrize("key", FUNCTIONS)
def test_inputs_are_made_anew_so_that_an_answer_may_write_into_them(key: str) -> None:
    make = CONVERTED[key].inputs or tuple
    for one, other in zip(make(), make(), strict=True):
        assert not isinstance(one, torch.Tensor) or one.data_ptr() != other.data_ptr()
