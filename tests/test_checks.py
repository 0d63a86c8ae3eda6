"""Exercise checks: what an exercise's data say of it is true, and every answer gets a hint that helps."""

import math
from contextlib import suppress
from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch

from answers import RIGHT as OTHERWISE
from course.checks import EXERCISES, check
from course.checks.comparing import Compared, agrees
from course.checks.exercise import _GRADIENT_LOST, NOT_ANSWERED, judge_by_trials
from taught import solved, taught


def not_borrowed(answer):
    """The same behind a partial: a reference may use the package, and an answer that does is refused."""
    return partial(answer) if callable(answer) else answer


def right_answers(key):
    """The reference, the notebook's solution, and others that are written differently."""
    task, found = EXERCISES[key], []
    if key in solved():
        notebook, name = solved()[key]
        found = [taught(notebook)[name]]
    known = [not_borrowed(answer) for answer in (task.reference, task.solution) if answer is not None]
    return [*known, *found, *OTHERWISE.get(key, ())]


RIGHT = {key: right_answers(key) for key in EXERCISES}


def wrong_answers(task):
    """All wrong answers that are known, each with the trial or the mistake whose hint it must get."""
    for trial in (*task.trials, *task.mistakes):
        yield from ((answer, trial) for answer in trial.check.wrong)


WRONG = {key: [not_borrowed(answer) for answer, _ in wrong_answers(task)] for key, task in EXERCISES.items()}
FUNCTIONS = [key for key, task in EXERCISES.items() if task.reference]
NUMBERS = [key for key, task in EXERCISES.items() if isinstance(task.solution, float | int)]


@pytest.mark.parametrize("key", EXERCISES)
def test_right_answers_pass_however_they_are_written(key):
    for answer in RIGHT[key]:
        judgement = check(key, answer)
        assert judgement.passed, judgement


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("form", [torch.tensor, np.float64, str, lambda value: torch.tensor([value])])
def test_a_number_is_right_in_any_form(key, form):
    assert check(key, form(EXERCISES[key].solution)).passed


def test_a_tensor_may_be_handed_in_as_an_array_or_as_lists():
    right = EXERCISES["04.break"].solution
    assert all(check("04.break", form).passed for form in (right, right.numpy(), right.tolist()))


FORMS = {
    "float32": lambda tensor: tensor.float() if tensor.is_floating_point() else tensor,
    "float64": lambda tensor: tensor.double() if tensor.is_floating_point() else tensor,
    "array": lambda tensor: tensor.detach().numpy(),
    "list": lambda tensor: tensor.tolist(),
}


def formed(value, form):
    if isinstance(value, tuple | list):
        return type(value)(formed(part, form) for part in value)
    return form(value) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("key", FUNCTIONS)
def test_a_right_result_passes_as_an_array_lists_or_in_another_dtype(key, form):
    judgement = check(key, lambda *arguments: formed(EXERCISES[key].reference(*arguments), FORMS[form]))
    wants_gradient = form in ("array", "list") and "gradient" in judgement.message
    assert judgement.passed or (wants_gradient and judgement.points == judgement.possible - 1), judgement


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


def bent(result):
    if isinstance(result, tuple | list):
        return type(result)(map(bent, result))
    if isinstance(result, bool | np.bool_) or getattr(result, "dtype", None) in (torch.bool, np.bool_):
        return np.logical_not(result)
    return result + 1 if hasattr(result, "__add__") and not isinstance(result, str) else None


def damaged(result):
    """Wrong results made of a right one: bent, shortened, turned, of another shape, without a gradient."""
    yield bent(result)
    if isinstance(result, tuple | list):
        yield result[:-1]
        yield [part[:-1] if isinstance(part, list) else part for part in result]
        for place in range(len(result)):
            yield type(result)([*result[:place], bent(result[place]), *result[place + 1 :]])
            yield type(result)([*result[:place], None, *result[place + 1 :]])
    elif isinstance(result, torch.Tensor):
        yield result.detach()
        for slope in (0, 2):
            yield result.detach() + slope * (result - result.detach())
        yield result.sum() if result.ndim else torch.zeros(2, 3, 4, 5)
        yield 2 * result
    if getattr(result, "ndim", 0):
        yield result[:-1]
        yield torch.as_tensor(result).flip(-1)


def off_here(task, check):
    """Answers that are right, but on the inputs of one trial, or on the last of them."""
    right = task.called(task.reference)
    inputs = [(task.inputs or tuple)(**given) for given in check.cases]

    def answer(places, which, *given):
        result = right(*given)
        here = any(map(partial(is_same, given), places))
        return next(islice(damaged(result), which, None), result) if here else result

    return (partial(answer, places, which) for places in (inputs, inputs[-1:]) for which in range(10))


def is_same(given, other):
    with suppress(TypeError, ValueError, RuntimeError):
        return agrees(given, other, 0)
    return False


GRID = [-1000, -5, -0.4, 0, 1e-5, 0.02, 0.1, 0.3, 0.45, 0.6, 0.7, 0.95, 1.1, 1.3, 1.7, 2.4, 3, 3.7, 5, 7, 9]
GRID += [12, 17, 22, 40, 70, 99, 150, 222, 500, 998, 1003, 3e3, 2e4, 1e5, 1e6, 3e7, 1e12]


@pytest.mark.parametrize("key", EXERCISES)
def test_each_wrong_answer_gets_its_own_hint_and_each_trial_is_the_first_to_fail_one(key):
    task, failed = EXERCISES[key], set()
    lost = tuple(_GRADIENT_LOST.values())  # hints that take the place of a trial's
    for answer, source in wrong_answers(task):
        judgement = check(key, not_borrowed(answer))
        said = f"{getattr(answer, '__name__', answer)} of {source.hint!r}: {judgement}"
        assert not judgement.passed, said
        assert source.hint in judgement.message or judgement.message in lost, said
        assert source in (task.trials[judgement.points], *task.mistakes), said
        failed.add(judgement.points)
    for place, trial in enumerate(task.trials):
        if place not in failed:  # then a simple wrong answer must show what the trial is for
            if task.reference and isinstance(trial.check, Compared):
                found = (judge_by_trials(task, answer) for answer in off_here(task, trial.check))
            else:
                found = (check(key, answer) for answer in GRID)
            assert any(
                one.points == place and (trial.hint in one.message or one.message in lost) for one in found
            ), trial.hint
    if task.kind not in ("predict", "explore"):
        assert len(task.trials) + len(task.mistakes) >= 3, "a hint must fit the answer that gets it"


@pytest.mark.parametrize("key", FUNCTIONS)
def test_inputs_are_made_anew_so_that_an_answer_may_write_into_them(key):
    make = EXERCISES[key].inputs or tuple
    for one, other in zip(make(), make(), strict=True):
        assert not isinstance(one, torch.Tensor) or one.data_ptr() != other.data_ptr()


@pytest.mark.parametrize("key", ["02.mean", "10.kmax"])
def test_who_writes_into_the_argument_is_told_to_clone_it(key):
    def answer(x, mask, *rest):
        x[~mask] = 0
        return EXERCISES[key].reference(x, mask, *rest)

    judgement = check(key, answer)
    assert judgement.points == judgement.possible - 1 and "clone" in judgement.message


def test_a_plain_number_is_right_until_a_gradient_is_wanted():
    judgement = check("07.score", lambda *given: float(EXERCISES["07.score"].reference(*given)))
    assert judgement.points == judgement.possible - 1 and "gradient" in judgement.message


def test_a_number_may_stand_in_quotes_and_a_letter_in_brackets():
    assert check("00.rank", "3").passed and check("04.read", "0.4").passed
    assert check("03.folds", "d)").passed and check("04.predict", "(B)").passed


@pytest.mark.parametrize("number", [-1.0, -0.2, 0.0, 0.3, 1.0])
def test_a_batch_of_equal_similarities_never_fools_the_loss(number):
    assert not check("04.break", torch.full((4, 4), number)).passed


def test_a_batch_that_fools_the_loss_has_each_pair_ahead_of_its_average_negative():
    block = torch.zeros(4, 4)
    block[:3, :3] = 0.1  # three pairs tie with each other, and the fourth has a negative as near
    block[3] = block[:, 3] = -0.05
    block[3, 3], block[3, 0], block[0, 3] = -0.05, -0.05, -0.05
    judgement = check("04.break", block)
    assert judgement.points == 2 and "on average" in judgement.message


def named(*_):
    result = ...
    return result


def named_as_an_argument(S, *_):
    S = ...
    return S


def raised(*_):
    raise NotImplementedError


def half(*_):
    weights = torch.softmax(torch.ones(3), 0)
    return weights * ...


STUBS = [
    named,
    named_as_an_argument,
    raised,
    half,
    lambda *_: (torch.ones(2), [...]),
    lambda *_: ... + 1,
    lambda *_: (...).sum(),
    lambda S, *_: torch.softmax(..., dim=0),
    lambda *_: torch.tensor(...),
    lambda *_: np.mean(...),
    lambda *_: math.sqrt(...),
]


@pytest.mark.parametrize("key", EXERCISES)
def test_what_still_holds_dots_is_not_answered_yet(key):
    for stub in (..., None, *(STUBS if EXERCISES[key].reference else ())):
        judgement = check(key, stub)
        assert (judgement.points, judgement.message) == (0, NOT_ANSWERED), stub


def uses_dots_as_an_index(S, *_):
    ...  # what was handed out may stay above one's own lines
    index = (..., None)
    return S[index].sum() + S[...].sum() + torch.einsum("...i->...", S).sum()


@pytest.mark.parametrize(
    "answer",
    [
        uses_dots_as_an_index,
        lambda S, *_: torch.einsum("abcd->a", S),  # its error speaks of an ellipsis that was not given
        lambda S, *_: (S > 0).mean(),  # a NotImplementedError of torch's
        lambda S, *_: (S.sum(), None)[1],
        lambda S, *_: S,
    ],
)
def test_an_attempt_is_wrong_rather_than_not_answered(answer):
    judgement = check("04.siblings", answer)
    assert not judgement.passed and judgement.message != NOT_ANSWERED


def test_code_that_returns_something_useless_did_not_stop():
    for key, answer in (
        ("04.siblings", lambda S, positives, margin=0.2: S[0, 0].expand(0).sum()),
        ("10.gpo", lambda places, gru, linear: "weights"),
    ):
        assert "stopped" not in check(key, answer).message
