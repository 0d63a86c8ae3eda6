"""The exercises of notebook 02, *Encoders*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vsecore.course.checks.exercise import Exercise, Trial, near
from vsecore.course.checks.samples import gradient_of

_WORD, _STATE = 300, 1024  # the widths that the exercise asks about
_PAIR = _STATE * _WORD + _STATE * _STATE  # the numbers of one pair of matrices


def _padded(filler: float) -> tuple[Tensor, Tensor, Tensor]:
    """Elements (B, N, D) of unequal number, what fills the rest, their mask (B, N) and their means (B, D)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 4, generator=generator)
    mask = torch.arange(5) < torch.tensor([5, 1, 3])[:, None]
    means = torch.stack([x[row, : mask[row].sum()].mean(0) for row in range(3)])
    return x.masked_fill(~mask[..., None], filler), mask, means


def _right_under(pool: Callable[..., Any], filler: float) -> bool:
    x, mask, means = _padded(filler)
    return torch.allclose(torch.as_tensor(pool(x, mask)), means, atol=1e-5)


def _right_without_padding(pool: Callable[..., Any]) -> bool:
    x, _, _ = _padded(0.0)
    return torch.allclose(pool(x, torch.ones(3, 5, dtype=torch.bool)), x.mean(1), atol=1e-5)


def _right_in_any_place(pool: Callable[..., Any]) -> bool:
    """Whether it holds to the mask where padding comes first, not last."""
    x, mask, means = _padded(7.0)
    return torch.allclose(pool(x.flip(1), mask.flip(1)), means, atol=1e-5)


def _has_gradient(pool: Callable[..., Any]) -> bool:
    x, mask, _ = _padded(0.0)
    return bool((gradient_of(lambda elements: pool(elements, mask), x)[mask] != 0).all())


EXERCISES: dict[str, Exercise] = {
    "02.count": Exercise(
        "Count a GRU",
        "compute",
        6,
        (
            Trial(
                lambda answer: int(answer) == answer > _PAIR,
                "A whole number, above a million: U alone has 1024 times 1024 numbers.",
            ),
            Trial(
                lambda answer: answer % (_PAIR + 2 * _STATE) == 0,
                "One pair has 1024 · 300 and 1024 · 1024 numbers, and each matrix a bias of 1024.",
            ),
            Trial(
                lambda answer: answer == 6 * (_PAIR + 2 * _STATE),
                "One pair is right; how many pairs are in equations 5 to 8, and how many directions?",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: answer == 6 * _PAIR,
                "The matrices are right; torch adds a bias to each.",
            ),
            Trial(
                lambda answer: answer == 6 * (_PAIR + _STATE),
                "One bias a pair: torch gives one to W and one to U.",
            ),
            Trial(
                lambda answer: answer == 3 * (_PAIR + 2 * _STATE),
                "That is one direction: a bidirectional GRU reads from both ends, with weights of their own.",
            ),
            Trial(
                lambda answer: answer == 8 * (_PAIR + 2 * _STATE),
                "Four pairs a direction are an LSTM's: a GRU has three.",
            ),
        ),
    ),
    "02.mean": Exercise(
        "A mean that padding cannot touch",
        "code",
        10,
        (
            Trial(
                lambda answer: isinstance(made := answer(*_padded(0.0)[:2]), Tensor) and made.shape == (3, 4),
                "Return one vector for each row of the batch, (B, D): the mean of its elements.",
            ),
            Trial(_right_without_padding, "Without padding it must be the plain mean over dimension 1."),
            Trial(
                lambda answer: _right_under(answer, 0.0),
                "Zeros in the padding change your mean: divide by the number of real elements, not by N.",
            ),
            Trial(
                lambda answer: _right_under(answer, 1e4),
                "What stands in the padding gets into your sum: leave it out by the mask.",
            ),
            Trial(_right_in_any_place, "Padding may stand anywhere: ask the mask, do not count."),
            Trial(
                lambda answer: _right_under(answer, float("nan")) and _right_under(answer, float("inf")),
                "Zero times NaN is NaN: choose with torch.where or masked_fill instead of multiplying.",
            ),
            Trial(
                _has_gradient,
                "No gradient arrives: stay with torch's operations, without .item(), detach or numpy.",
            ),
        ),
    ),
    "02.break": Exercise(
        "Break it",
        "break",
        8,
        (
            Trial(lambda answer: -1.001 <= float(answer) <= 1.001, "A cosine lies between −1 and 1."),
            Trial(
                lambda answer: near(answer, 1.0, 1e-3),
                "What could still tell the two sentences apart, once nothing says where a word stands?",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 0.0, 1e-3),
                "Zero would mean that they have nothing in common, but they have all their words in common.",
            ),
            Trial(
                lambda answer: near(answer, -1.0, 1e-3),
                "They mean the opposite, but does this reader know? It sees the same words.",
            ),
            Trial(
                lambda answer: 0.9 <= float(answer) < 0.999,
                "That is with the positions still in place: set their weights to zero, then read again.",
            ),
        ),
    ),
}
