"""Whose work an answer is: what the package, the notebook or another library does already is no answer."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from course import lesson as opened
from course import plots
from course.checks import EXERCISES, check
from course.checks.borrowed import borrowed
from course.grading.judging import judge_filed
from test_grading_trust import filed
from vsecore import pooling
from vsecore.pooling import KMaxPool

POOL = KMaxPool(2)
SMALLEST = functools.partial(torch.where, other=torch.tensor(-torch.inf))
lesson = object.__new__(opened.Lesson)


def by_name(x: Any, mask: Any, k: int) -> Any:
    return KMaxPool(k)(x, mask)


def by_module(x: Any, mask: Any, k: int) -> Any:
    return pooling.KMaxPool(k)(x, mask)


def imported_inside(x: Any, mask: Any, k: int) -> Any:
    from vsecore.pooling import KMaxPool

    return KMaxPool(k)(x, mask)


def in_a_comprehension(x: Any, mask: Any, k: int) -> Any:
    return torch.stack([KMaxPool(k)(x, mask) for _ in range(1)])[0]


def made_before(x: Any, mask: Any, k: int) -> Any:
    return POOL(x, mask)


class InAClass(nn.Module):
    def forward(self, x: Any, mask: Any, k: int) -> Any:
        return KMaxPool(k)(x, mask)


@pytest.mark.parametrize(
    "answer", [by_name, by_module, imported_inside, in_a_comprehension, made_before, InAClass, POOL, KMaxPool]
)
def test_what_the_package_does_is_refused_here_and_by_the_grader(answer: Any) -> None:
    here, there = check("10.kmax", answer), judge_filed(EXERCISES["10.kmax"], filed(answer))
    assert here.points == 0 and "does the work already" in here.message
    assert here.message == there.message


def helper(values: torch.Tensor, k: int) -> torch.Tensor:
    return values.topk(k, dim=1).values


def on_torch(x: Any, mask: Any, k: int) -> Any:
    """What vsecore.pooling does, by import of torch alone."""
    import torch.nn.functional as F

    found = helper(SMALLEST(mask[..., None], x), min(k, x.shape[1]))
    kept = found.isfinite()
    return F.relu(torch.where(kept, found, 0.0).sum(1) / kept.sum(1) * math.sqrt(1.0)) + np.mean([0.0])


def looked_at(x: Any, mask: Any, k: int) -> Any:
    if lesson.tier == "lesson":
        print(x.shape, TOLD)
    plots.show(x)
    assert mask.any(), "vsecore"
    return x


TOLD = "from vsecore import it"


class Honest(nn.Module):
    """An answer with a state, on torch alone. Compare vsecore.pooling.KMaxPool."""

    def forward(self, x: Any, mask: Any, k: int) -> Any:
        return self.softmax(x).sum(1)


@pytest.mark.parametrize("answer", [on_torch, looked_at, Honest, functools.partial(on_torch), "vsecore", 3])
def test_libraries_helpers_and_lines_to_look_at_something_borrow_nothing(answer: Any) -> None:
    assert borrowed(answer) == ""


def caption_ranks(S: Any) -> Any:
    return S


def ranks_by_name(S: Any) -> Any:
    return caption_ranks(S)


def test_what_the_notebook_defines_above_may_not_be_called_either() -> None:
    assert borrowed(ranks_by_name, ["caption_ranks"]) == "caption_ranks" and borrowed(ranks_by_name) == ""


def gru_cell(x: Any, h: Any) -> Any:
    """A learner's own, under the name of torch's."""
    return torch.tanh(x + h)


def step_of_ones_own(x: Any, h: Any) -> Any:
    return gru_cell(x, h)


def attending(q: Any, k: Any, u: Any, mask: Any) -> Any:
    return nn.functional.scaled_dot_product_attention(q, k, u, attn_mask=mask[:, None, None])


def stepping(x: Any, h: Any, W: Any, U: Any, w: Any, u: Any) -> Any:
    return nn.GRUCell(4, 3)(x, h)


@pytest.mark.parametrize(("answer", "exercise"), [(attending, "02.attention"), (stepping, "02.gru")])
def test_what_another_library_does_already_is_refused_here_and_by_the_grader(
    answer: Any, exercise: str
) -> None:
    here, there = check(exercise, answer), judge_filed(EXERCISES[exercise], filed(answer))
    assert here.points == 0 and here.message == there.message
    assert borrowed(answer, (), EXERCISES[exercise].instead) in EXERCISES[exercise].instead


def test_a_learners_own_function_may_have_a_librarys_name() -> None:
    assert borrowed(step_of_ones_own, (), EXERCISES["02.gru"].instead) == ""
    assert borrowed(gru_cell, (), EXERCISES["02.gru"].instead) == ""


def test_an_answer_may_call_what_stands_in_for_a_failed_one_above_it() -> None:
    assert borrowed(EXERCISES["08.mine"].reference) == ""
