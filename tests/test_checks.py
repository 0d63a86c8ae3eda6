"""Exercise checks: right answers pass, each typical mistake gets a message of its own."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from answers import (
    all_together,
    cross_attention,
    encoders,
    ensembles_and_speed,
    feature_suppression,
    full_scale,
    how_many_negatives,
    joint_space,
    latent_targets,
    learning_to_rank,
    offline_negatives,
    pictures_and_captions,
    pooling,
    quintuplet,
    relations,
    search_engine,
    sets,
    slots,
    start_here,
    structural_alignment,
)
from course.checks import EXERCISES, check
from course.checks.exercise import NOT_ANSWERED
from test_exercises import CONVERTED, right_answers, wrong_answers

NOTEBOOKS = (
    start_here,
    pictures_and_captions,
    encoders,
    joint_space,
    learning_to_rank,
    relations,
    structural_alignment,
    cross_attention,
    offline_negatives,
    quintuplet,
    pooling,
    how_many_negatives,
    ensembles_and_speed,
    sets,
    slots,
    feature_suppression,
    latent_targets,
    all_together,
    full_scale,
    search_engine,
)
OTHERWISE = {key: answers for notebook in NOTEBOOKS for key, answers in notebook.RIGHT.items()}
RIGHT = {key: [*right_answers(task), *OTHERWISE.get(key, ())] for key, task in EXERCISES.items()}
WRONG = {key: wrong_answers(task) for key, task in CONVERTED.items()}
for notebook in NOTEBOOKS:
    WRONG |= getattr(notebook, "WRONG", {})


def test_every_exercise_is_tested_here() -> None:
    assert EXERCISES.keys() == RIGHT.keys() == WRONG.keys()
    assert all(OTHERWISE.get(key) for key, task in EXERCISES.items() if task.kind == "code")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_right_answers_pass_however_they_are_written(exercise: str) -> None:
    for answer in RIGHT[exercise]:
        judgement = check(exercise, answer)
        assert judgement.passed, judgement


@pytest.mark.parametrize("exercise", EXERCISES)
def test_wrong_answers_fail_with_at_least_three_different_hints(exercise: str) -> None:
    judgements = [check(exercise, answer) for answer in WRONG[exercise]]
    assert not any(judgement.passed for judgement in judgements)
    free = EXERCISES[exercise].kind in ("predict", "explore")  # any answer counts if it says something
    assert len({judgement.message for judgement in judgements}) >= (1 if free else 3)


FORMS = {
    "float32": lambda tensor: tensor.float() if tensor.is_floating_point() else tensor,
    "float64": lambda tensor: tensor.double() if tensor.is_floating_point() else tensor,
    "array": lambda tensor: tensor.detach().numpy(),
    "list": lambda tensor: tensor.tolist(),
}


def formed(value: Any, form: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(formed(part, form) for part in value)
    return form(value) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("exercise", [key for key, task in EXERCISES.items() if task.reference])
def test_a_right_result_passes_as_an_array_lists_or_in_another_dtype(exercise: str, form: str) -> None:
    task = EXERCISES[exercise]

    def answer(*arguments: Any) -> Any:
        return formed(task.reference(*arguments), FORMS[form])

    judgement = check(exercise, answer)
    wants_gradient = form in ("array", "list") and "gradient" in judgement.message
    assert judgement.passed or (wants_gradient and judgement.points == judgement.possible - 1), judgement


@pytest.mark.parametrize("exercise", ["02.mean", "10.kmax"])
def test_who_writes_into_the_argument_is_told_to_clone_it(exercise: str) -> None:
    def answer(x: torch.Tensor, mask: torch.Tensor, *rest: int) -> torch.Tensor:
        x[~mask] = 0
        return EXERCISES[exercise].reference(x, mask, *rest)

    judgement = check(exercise, answer)
    assert judgement.points == judgement.possible - 1 and "clone" in judgement.message


def test_a_plain_number_is_right_until_a_gradient_is_wanted() -> None:
    judgement = check("07.score", lambda *given: float(EXERCISES["07.score"].reference(*given)))
    assert judgement.points == judgement.possible - 1 and "gradient" in judgement.message


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_untouched_cell_is_not_answered_yet(exercise: str) -> None:
    for untouched in (..., None):
        judgement = check(exercise, untouched)
        assert judgement.points == 0 and "Not answered yet" in judgement.message


def named(*_: Any) -> Any:
    result = ...
    return result


def named_as_an_argument(S: Any, *_: Any) -> Any:
    S = ...
    return S


def named_none(*_: Any) -> Any:
    _first = second = None
    return second


def raised(*_: Any) -> Any:
    raise NotImplementedError("write me")


def not_implemented(*_: Any) -> Any:
    return NotImplemented


def half(*_: Any) -> Any:
    weights = torch.softmax(torch.ones(3), 0)
    return weights * ...


STUBS: list[Callable[..., Any]] = [
    named,
    named_as_an_argument,
    named_none,
    raised,
    not_implemented,
    half,
    lambda *_: (torch.ones(2), [...]),
    lambda *_: ... + 1,
    lambda *_: (...).sum(),
    lambda S, *_: torch.softmax(..., dim=0),
    lambda *_: torch.tensor(...),
    lambda *_: np.mean(...),
    lambda *_: math.sqrt(...),
]


@pytest.mark.parametrize("exercise", [key for key, task in EXERCISES.items() if task.reference])
def test_a_function_that_still_holds_dots_is_not_answered_yet(exercise: str) -> None:
    for number, stub in enumerate(STUBS):
        judgement = check(exercise, stub)
        assert (judgement.points, judgement.message) == (0, NOT_ANSWERED), f"{exercise}, stub {number}"


def uses_dots_as_an_index(S: Any, *_: Any) -> Any:
    ...  # what was handed out may stay above one's own lines
    index = (..., None)
    return S[index].sum() + S[...].sum() + torch.einsum("...i->...", S).sum()


def einsum_of_the_wrong_shape(S: Any, *_: Any) -> Any:
    return torch.einsum("abcd->a", S)  # its error speaks of an ellipsis that was not given


def forgets_to_return(S: Any, *_: Any) -> None:
    S.sum()


@pytest.mark.parametrize(
    "answer",
    [uses_dots_as_an_index, einsum_of_the_wrong_shape, forgets_to_return, lambda S, *_: S],
)
def test_an_attempt_is_wrong_rather_than_not_answered(answer: Callable[..., Any]) -> None:
    judgement = check("04.siblings", answer)
    assert not judgement.passed and judgement.message != NOT_ANSWERED


@pytest.mark.parametrize("notebook", sorted({key.split(".")[0] for key in EXERCISES}))
def test_every_notebook_has_something_to_code_and_to_break(notebook: str) -> None:
    kinds = {task.kind for key, task in EXERCISES.items() if key.startswith(notebook)}
    assert {"code", "break"} <= kinds


def test_a_function_left_empty_is_no_answer_and_no_crash() -> None:
    judgement = check("04.siblings", lambda *_: None)
    assert judgement.points == 0 and judgement.message


def test_code_that_stops_is_told_what_stopped_it() -> None:
    assert "ZeroDivisionError" in check("04.siblings", lambda *_: 1 / 0).message


def test_an_answer_that_cannot_be_read_is_no_code_that_stopped() -> None:
    message = check("00.break", "0.1 %").message
    assert "could not be read" in message and "code stopped" not in message


def test_a_number_may_stand_in_quotes_and_a_letter_in_brackets() -> None:
    assert check("00.rank", "3").passed and check("04.read", "0.4").passed
    assert check("03.folds", "d)").passed and check("04.predict", "(B)").passed


def test_a_number_out_of_the_air_gets_nothing() -> None:
    assert check("04.read", 7).points == 0 and check("04.break", 0.3).points == 0


def test_part_of_the_way_gets_part_of_the_points() -> None:
    judgement = check(
        "04.siblings", lambda S, positives, margin=0.2: learning_to_rank.right_siblings(S, positives)
    )
    assert 0 < judgement.points < judgement.possible


def test_an_unknown_exercise_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"04\.read"):
        check("99.nothing", 1)


def test_an_answer_may_call_the_solutions_that_stand_in_for_failed_ones_above_it():
    """Skipping one exercise must not make a right answer to the next one wrong."""

    def mine(images, captions, owner, texts=300, pictures=60, block=1024):
        rows_of_texts, width = [], min(pictures, len(images) - 1)
        best = torch.full((len(captions), width), -torch.inf, dtype=images.dtype)
        rows = torch.zeros(len(captions), width, dtype=torch.long)
        for first in range(0, len(images), block):
            scores = hide_own(images[first : first + block] @ captions.T, first, owner)
            rows_of_texts.append(scores.topk(texts).indices)
            best, rows = merge(best, rows, scores, first)
        return torch.cat(rows_of_texts), rows

    hide_own, merge = (EXERCISES[key].reference for key in ("08.own", "08.merge"))
    assert check("08.mine", mine).passed
