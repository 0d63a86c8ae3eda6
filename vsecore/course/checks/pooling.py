"""The exercises of notebook 10, *Pooling: sort, weigh, sum*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vsecore.course.checks.exercise import Exercise, Trial, near
from vsecore.course.checks.samples import gradient_of
from vsecore.pooling import KMaxPool

_SORTED = torch.tensor([[3.0, 2.0], [1.0, 2.0], [0.0, 1.0]])  # (N, D)   the rows of 10.weights


def _theta(answer: Any) -> Tensor:
    """What the answer's two vectors make of the sorted rows, (2, 3)."""
    return (torch.as_tensor(answer, dtype=torch.float64) @ _SORTED.double().T).softmax(1)


def _two_vectors(answer: Any) -> bool:
    given = torch.as_tensor(answer, dtype=torch.float64)
    return given.shape == (2, 2) and bool(given.isfinite().all())


def _right_if_longer(answer: Any) -> bool:
    theta = _theta(100 * torch.as_tensor(answer, dtype=torch.float64))  # (2, 3)
    return torch.allclose(theta, torch.tensor([[1, 0, 0], [0.5, 0.5, 0]]).double(), atol=0.01)


def _sets(counts: list[int], elements: int, filler: float, seed: int) -> tuple[Tensor, Tensor]:
    """Negative values (B, N, D), among which a forgotten zero is the largest, and the mask (B, N)."""
    generator = torch.Generator().manual_seed(seed)
    x = -1 - torch.rand(len(counts), elements, 4, generator=generator)
    mask = torch.arange(elements) < torch.tensor(counts)[:, None]
    return x.masked_fill(~mask[..., None], filler), mask


def _same_as_kmax(
    pool: Callable[..., Any], counts: list[int], elements: int, k: int, filler: float = 0.0
) -> bool:
    x, mask = _sets(counts, elements, filler, seed=k)
    return torch.allclose(pool(x, mask, k), KMaxPool(k)(x, mask), atol=1e-5)


def _right_in_any_place(pool: Callable[..., Any]) -> bool:
    x, mask = _sets([4, 2, 6], 6, 0.0, seed=3)
    return torch.allclose(pool(x.flip(1), mask.flip(1), 3), KMaxPool(3)(x, mask), atol=1e-5)


def _has_gradient(pool: Callable[..., Any]) -> bool:
    x, mask = _sets([5, 3], 5, 0.0, seed=4)
    gradient = gradient_of(lambda elements: pool(elements, mask, 2), x)
    return near(gradient.sum(), 2 * 4)  # each pooled value passes on 1


EXERCISES: dict[str, Exercise] = {
    "10.weights": Exercise(
        "Be the maximum, be 2-max",
        "compute",
        8,
        (
            Trial(_two_vectors, "Two vectors of two numbers each: W for the maximum, then W for 2-max."),
            Trial(
                lambda answer: float(_theta(answer)[0, 0]) > 0.99,
                "The maximum: the first row's logit must be far above the others'. By which number do "
                "the first two rows differ?",
            ),
            Trial(
                lambda answer: near(_theta(answer)[1, 0] - _theta(answer)[1, 1], 0, 0.01),
                "2-max: the first two rows must have one logit. They differ in the first dimension alone.",
            ),
            Trial(
                lambda answer: float(_theta(answer)[1, 2]) < 0.01,
                "2-max: the first two rows have one logit; the third must be far below it.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: torch.as_tensor(answer).shape == (2, 3),
                "These look like the weights θ of three rows; wanted is W, of which the softmax makes θ.",
            ),
            Trial(
                lambda answer: bool((torch.as_tensor(answer) == 0).all()),
                "W = 0 gives all rows the same: that is the mean.",
            ),
            Trial(
                _right_if_longer,
                "The direction is right, but a softmax still gives something to all: make W longer.",
            ),
        ),
    ),
    "10.kmax": Exercise(
        "k-max for small sets",
        "code",
        15,
        (
            Trial(
                lambda answer: (
                    isinstance(made := answer(*_sets([5, 5, 5], 5, 0.0, seed=0), 2), Tensor)
                    and made.shape == (3, 4)
                ),
                "Return one vector for each row of the batch, (B, D).",
            ),
            Trial(
                lambda answer: _same_as_kmax(answer, [5, 5], 5, 1) and _same_as_kmax(answer, [5, 5], 5, 3),
                "Without padding and with enough elements: the mean of each dimension's k largest values.",
            ),
            Trial(
                lambda answer: _same_as_kmax(answer, [5, 4], 5, 2),
                "A zero from the padding came out on top: all the real values here are below zero.",
            ),
            Trial(
                lambda answer: _same_as_kmax(answer, [5, 5], 5, 7),
                "No set of five has seven largest values: take the mean of the five.",
            ),
            Trial(
                lambda answer: _same_as_kmax(answer, [6, 1, 2], 6, 4),
                "A row with one real element and k = 4: only real values count, in the sum and in the number "
                "that divides it.",
            ),
            Trial(
                _right_in_any_place, "Padding may stand anywhere: ask the mask, do not count from the left."
            ),
            Trial(
                lambda answer: (
                    _same_as_kmax(answer, [6, 1, 3], 6, 4, float("nan"))
                    and _same_as_kmax(answer, [6, 1, 3], 6, 4, float("inf"))
                ),
                "What stands in the padding got into the result: zero times NaN is NaN; try torch.where or "
                "masked_fill.",
            ),
            Trial(
                _has_gradient,
                "No gradient arrives: stay with torch's operations, without .item(), detach or numpy.",
            ),
        ),
    ),
    "10.break": Exercise(
        "Break it",
        "break",
        8,
        (
            Trial(
                lambda answer: 0 < float(answer) < 2, "It lies between the padding's 0 and the largest value."
            ),
            Trial(
                lambda answer: near(answer, 10 / 12, 1e-3),
                "Each row's share is proportional to 2 to the power of its value. How many rows are padding, "
                "and what is the share of a zero?",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 10 / 6, 1e-3),
                "That is the caption by itself: now six rows of padding get shares too.",
            ),
            Trial(
                lambda answer: near(answer, 10 / 14, 1e-3),
                "Eight rows in all: two are real, so how many are padding?",
            ),
            Trial(
                lambda answer: near(answer, 3 / 8, 1e-3),
                "That is the mean over all eight rows; W is not zero, so the rows have different shares.",
            ),
            Trial(
                lambda answer: near(answer, 1.5, 1e-3),
                "That is the mean of the two words: it leaves out both W and the padding.",
            ),
        ),
    ),
}
