"""Whose work an answer is: what the package, the notebook or another library does already is no answer."""

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
from vsecore import pooling
from vsecore.pooling import KMaxPool

POOL = encode = KMaxPool(2)  # the other is also a method's name
SMALLEST = functools.partial(torch.where, other=torch.tensor(-torch.inf))
TOLD = "from vsecore import it"
lesson = object.__new__(opened.Lesson)


def imported_inside(x: Any, mask: Any, k: int) -> Any:
    from vsecore.pooling import KMaxPool

    return KMaxPool(k)(x, mask)


class InAClass(nn.Module):
    def forward(self, x: Any, mask: Any, k: int) -> Any:
        return KMaxPool(k)(x, mask)


def attending(q: Any, k: Any, u: Any, mask: Any) -> Any:
    return nn.functional.scaled_dot_product_attention(q, k, u, attn_mask=mask[:, None, None])


def stepping(x: Any, h: Any, W: Any, U: Any, w: Any, u: Any) -> Any:
    return nn.GRUCell(4, 3)(x, h)


@pytest.mark.parametrize(
    ("answer", "exercise", "named"),
    [
        (lambda x, mask, k: KMaxPool(k)(x, mask), "10.kmax", "KMaxPool"),
        (lambda x, mask, k: pooling.KMaxPool(k)(x, mask), "10.kmax", "KMaxPool"),
        (lambda x, mask, k: torch.stack([KMaxPool(k)(x, mask) for _ in "1"])[0], "10.kmax", "KMaxPool"),
        (lambda x, mask, k: POOL(x, mask), "10.kmax", "POOL"),
        (imported_inside, "10.kmax", "KMaxPool"),
        (InAClass, "10.kmax", "KMaxPool"),
        (POOL, "10.kmax", "KMaxPool"),
        (KMaxPool, "10.kmax", "KMaxPool"),
        (attending, "05.attention", "scaled_dot_product_attention"),
        (stepping, "02.gru", "GRUCell"),
    ],
)
def test_what_is_done_already_is_refused(answer: Any, exercise: str, named: str) -> None:
    judgement = check(exercise, answer)
    assert judgement.points == 0 and f"uses {named}" in judgement.message


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
        print(x.shape, TOLD.encode())
    plots.show(x)
    assert mask.any(), "vsecore"
    return x


class Honest(nn.Module):
    """An answer with a state, on torch alone. Compare vsecore.pooling.KMaxPool."""

    def forward(self, x: Any, mask: Any, k: int) -> Any:
        return self.softmax(x).sum(1)


@pytest.mark.parametrize("answer", [on_torch, looked_at, Honest, functools.partial(on_torch), "vsecore", 3])
def test_libraries_helpers_and_lines_to_look_at_something_borrow_nothing(answer: Any) -> None:
    assert borrowed(answer) == ""


def test_what_the_notebook_defines_above_may_not_be_called_either() -> None:
    assert borrowed(on_torch, ["helper"]) == "helper"
    assert borrowed(EXERCISES["08.mine"].reference) == "", "what stands in for a failed exercise may be"


def gru_cell(x: Any, h: Any) -> Any:
    """A learner's own, under the name of torch's."""
    return torch.tanh(x + h)


def test_a_learners_own_function_may_have_a_librarys_name() -> None:
    for answer in (gru_cell, lambda x, h: gru_cell(x, h)):
        assert borrowed(answer, (), EXERCISES["02.gru"].instead) == ""
