"""The exercises of notebook 11, *How many negatives?*."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, gradient_of, one_of, random_batch
from vsecore.losses import adopt, adopt_k

_K = 24  # of a batch of 128 with alignment 0.3 and all other pairs at 0
_HALF = math.log(2)  # what a query pays when its pair is its own negative


def _k_hardest(S: Tensor, K: int, temperature: float = 0.05) -> Tensor:
    """The notebook's loss, by the package."""
    return adopt(S, temperature, negatives=K)


def _batch(size: int, seed: int) -> Tensor:
    scores, _ = random_batch(size, 1, seed)
    return scores


def _same_loss(loss: Callable[..., Any], size: int, k: int, temperature: float = 0.05) -> bool:
    scores = _batch(size, seed=size)
    return near(loss(scores, k, temperature), float(_k_hardest(scores, k, temperature)))


def _good_batch() -> Tensor:
    """Pairs far ahead of all negatives, so that a pair that is let in is the hardest of them."""
    return _batch(6, seed=2).mul(0.1).fill_diagonal_(0.3)


def _has_gradient(loss: Callable[..., Any]) -> bool:
    return bool(gradient_of(lambda S: loss(S, 2), _batch(4, seed=1)).abs().sum() > 0)


def _one_direction(loss: Callable[..., Any]) -> bool:
    """Whether it is the loss of the pictures alone, or of the captions alone."""
    scores = _batch(6, seed=6)
    both = float(loss(scores, 5)) + float(loss(scores.T, 5))
    return near(both, float(_k_hardest(scores, 5)))


def _hides_too_high(loss: Callable[..., Any]) -> bool:
    """Whether it is right only if similarities are above zero: it hides the pairs by a number such as 0."""
    high, low = (_batch(6, seed=6).mul(0.4) + shift for shift in (0.5, -0.5))
    right_if_high, right_if_low = (near(loss(S, 5), float(_k_hardest(S, 5))) for S in (high, low))
    return right_if_high and not right_if_low


def _made(own: float, others: float, size: int = 128) -> Tensor:
    return torch.full((size, size), float(others)).fill_diagonal_(own)


def _k_of(rule: Callable[..., Any], scores: Tensor) -> int:
    return operator.index(rule(scores))


def _same_k(rule: Callable[..., Any], *batches: Tensor) -> bool:
    return all(_k_of(rule, scores) == adopt_k(scores) for scores in batches)


def _between(trained: float, seed: int) -> Tensor:
    """A random batch that has learned a share of what there is to learn."""
    return (1 - trained) * _batch(64, seed) + trained * torch.eye(64)


EXERCISES: dict[str, Exercise] = {
    "11.loss": Exercise(
        "The K hardest",
        "code",
        15,
        (
            Trial(
                lambda answer: isinstance(made := answer(_batch(4, 0), 2), Tensor) and made.ndim == 0,
                "Return one number for the batch, as a tensor: each direction is a mean over the pairs.",
            ),
            Trial(
                lambda answer: _same_loss(answer, 5, 4),
                "With all negatives it must be InfoNCE in both directions: check the pair in the sum, the "
                "temperature, the mean over the pairs, and that the two directions are added.",
            ),
            Trial(
                lambda answer: near(answer(_good_batch(), 1), float(_k_hardest(_good_batch(), 1))),
                "A pair may not be its own negative, not even if it has the highest similarity: hide the "
                "diagonal with minus infinity before you look for the largest.",
            ),
            Trial(
                lambda answer: _same_loss(answer, 7, 2),
                "Only the K hardest negatives are in the sum: those with the largest similarities, found "
                "row by row for pictures and column by column for captions.",
            ),
            Trial(
                lambda answer: _same_loss(answer, 6, 3, temperature=0.5),
                "The temperature is an argument: use it.",
            ),
            Trial(
                _has_gradient,
                "No gradient arrives: stay with torch's operations, without .item() or float().",
            ),
        ),
        mistakes=(
            Trial(
                _one_direction,
                "That is only one direction: pictures choose among captions, and captions among pictures.",
            ),
            Trial(
                _hides_too_high,
                "Your loss is wrong where negatives are below zero: what hides a pair must be smaller than "
                "any similarity.",
            ),
        ),
        reference=_k_hardest,
        message="Right. With K = B − 1 it is InfoNCE, with K = 1 nearly the hardest triplet.",
    ),
    "11.k": Exercise(
        "K by hand",
        "compute",
        6,
        (
            Trial(
                lambda answer: 1 <= float(answer) <= 127,
                "K is a number of negatives: at least 1, and at most one fewer than the batch has pairs.",
            ),
            Trial(
                lambda answer: float(answer) == _K,
                "The uniformity is a mean over equal numbers. Add the alignment, take the power 1.25, the "
                "cosine (in radians), times 128; round down, and add one.",
            ),
        ),
        mistakes=(
            Trial(lambda answer: float(answer) == _K - 1, "Nearly: the rule adds one after rounding down."),
            Trial(
                lambda answer: not float(answer).is_integer(),
                "K counts negatives: round down to a whole number.",
            ),
            Trial(
                lambda answer: float(answer) == 35,
                "You took the cosine of the sum itself: raise the sum to the power 1.25 first.",
            ),
            Trial(
                lambda answer: float(answer) in (124, 125, 126, 127),
                "The uniformity is not 0: it is the mean of exp(−s), and exp(0) is 1.",
            ),
        ),
        difficulty="easy",
    ),
    "11.rule": Exercise(
        "The K rule",
        "code",
        10,
        (
            Trial(
                lambda answer: isinstance(_k_of(answer, _made(0, 0)), int),
                "Return one whole number. `math.floor` of a float gives one.",
            ),
            Trial(
                lambda answer: _same_k(answer, _made(0, 0)),
                "Try a batch of 128 zeros: alignment 0, uniformity 1. What is 128 times the cosine of 1, "
                "rounded down, plus one?",
            ),
            Trial(
                lambda answer: _same_k(answer, _made(0.3, 0), _made(0.1, 0.5)),
                "Check the power 1.25, and the sign in exp(−s).",
            ),
            Trial(
                lambda answer: _same_k(answer, *(_between(0.3, seed) for seed in range(8))),
                "In the uniformity the similarity of a pair itself counts as 0, and so it adds exp(0) = 1 to "
                "the sum. The mean is over all B × B places.",
            ),
            Trial(
                lambda answer: _same_k(answer, _made(0.94, 0.02), _made(1, -1, 5), _made(0, 0, 2)),
                "Keep K between 1 and B − 1: the cosine can be negative, and one is added at the end.",
            ),
            Trial(
                lambda answer: _same_k(answer, _made(-1, 0.9, 9)),
                "A sum γ below 0 counts as 0. Then all negatives are kept.",
            ),
        ),
        reference=adopt_k,
        message="Right. From a batch of similarities to a number of negatives.",
    ),
    "11.fall": Exercise(
        "The schedule",
        "predict",
        2,
        one_of("at once", "evenly", "later", "hardly"),
        difficulty="easy",
        message=NOTED,
    ),
    "11.break": Exercise(
        "The pair as its own negative",
        "break",
        5,
        (
            Trial(
                lambda answer: any(near(answer, times * _HALF, 1e-3) for times in (1, 2)),
                "The softmax of each query is over two numbers: its pair, and once more its pair. What is "
                "minus the logarithm of the first one's share?",
            ),
            Trial(
                lambda answer: near(answer, 2 * _HALF, 1e-3),
                "You counted one direction: add the pictures' and the captions'.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 0, 1e-3),
                "Not 0: the pair would have to beat itself, and it cannot.",
            ),
            Trial(
                lambda answer: near(answer, 40, 1e-3) or near(answer, 80, 1e-3),
                "That is the pair against a negative at −1. Without the mask the hardest one is at 1.",
            ),
            Trial(
                lambda answer: near(answer, 128 * _HALF, 1e-2) or near(answer, 256 * _HALF, 1e-2),
                "The loss is a mean over the pairs, not their sum.",
            ),
        ),
        difficulty="easy",
    ),
    "11.explore": Exercise("Your own ablation", "explore", 20, EXPLORED, message="Noted."),
}
