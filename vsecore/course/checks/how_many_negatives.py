"""The exercises of notebook 11, *How many negatives?*."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from vsecore.course.checks.exercise import Exercise, Trial, near
from vsecore.course.checks.samples import gradient_of, random_batch
from vsecore.losses import adopt

_PRINTED, _RELEASED = 124, 24  # K of a batch of 128 with alignment 0.3 and all other pairs at 0


def _same_as_adopt(
    loss: Callable[..., Any], pictures: int, captions_each: int, k: int, temperature: float = 0.05
) -> bool:
    scores, positives = random_batch(pictures, captions_each, seed=pictures)
    expected = float(adopt(scores, temperature, positives=positives, negatives=k))
    return near(loss(scores, positives, k, temperature), expected)


def _has_gradient(loss: Callable[..., Any]) -> bool:
    scores, positives = random_batch(4, 2, seed=1)
    return bool(gradient_of(lambda S: loss(S, positives, 2), scores).abs().sum() > 0)


def _two_numbers(answer: Any) -> tuple[float, float]:
    printed, released = (float(number) for number in answer)
    return printed, released


def _softplus(x: float) -> float:
    return math.log1p(math.exp(x))


EXERCISES: dict[str, Exercise] = {
    "11.k": Exercise(
        "K by hand",
        "compute",
        10,
        (
            Trial(
                lambda answer: len(_two_numbers(answer)) == 2,
                "Two numbers are wanted, in round brackets: the printed rule's K, then the released one's.",
            ),
            Trial(
                lambda answer: _two_numbers(answer)[0] == _PRINTED,
                "Printed: the logarithm of the mean exponential over all pairs, those on the diagonal too; "
                "then the cosine of the sum times π/4, times 128, rounded down.",
            ),
            Trial(
                lambda answer: _two_numbers(answer)[1] == _RELEASED,
                "Released: the diagonal counts as 0 in the uniformity; then the cosine of the sum to the "
                "power 1.25, times 128, rounded down, plus one.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _two_numbers(answer) == (_RELEASED, _PRINTED),
                "The right two numbers, the wrong way round: printed first.",
            ),
            Trial(
                lambda answer: _two_numbers(answer)[1] == _RELEASED - 1,
                "The released rule adds one after rounding down.",
            ),
            Trial(
                lambda answer: not all(number.is_integer() for number in _two_numbers(answer)),
                "K counts negatives: round down to a whole number.",
            ),
        ),
    ),
    "11.bottom": Exercise(
        "The bottom of the printed loss",
        "compute",
        5,
        (
            Trial(
                lambda answer: near(answer, -200) or near(answer, -400),
                "With one negative the logarithm undoes the exponentials: what is left is a difference of "
                "two similarities over the temperature. How large can it be?",
            ),
            Trial(
                lambda answer: near(answer, -400),
                "You counted one direction: pictures ask for captions, and captions for pictures.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 0),
                "Not nothing: as printed the pair is not in the sum, so the loss can fall below zero.",
            ),
            Trial(
                lambda answer: near(answer, 200) or near(answer, 400),
                "Mind the sign: a pair that is far ahead of its negative is what the loss rewards.",
            ),
            Trial(
                lambda answer: near(answer, -100),
                "A negative can do better than a right angle: the cosine goes down to minus one.",
            ),
        ),
    ),
    "11.siblings": Exercise(
        "Several captions a picture",
        "code",
        15,
        (
            Trial(
                lambda answer: (
                    isinstance(made := answer(*random_batch(4, 1, 0), 2), Tensor) and made.ndim == 0
                ),
                "Return one number for the batch, as a tensor: the mean over the positive pairs.",
            ),
            Trial(
                lambda answer: _same_as_adopt(answer, 5, 1, 4),
                "With one caption a picture and all negatives it must be this notebook's loss: check the "
                "pair in the sum, both directions added, and the mean.",
            ),
            Trial(
                lambda answer: _same_as_adopt(answer, 6, 1, 2),
                "Only the K hardest negatives are in the sum.",
            ),
            Trial(
                lambda answer: _same_as_adopt(answer, 6, 3, 2),
                "With several captions a picture it differs: siblings are neither negatives nor in the sum, "
                "and every positive pair has a term.",
            ),
            Trial(
                lambda answer: _same_as_adopt(answer, 6, 2, 3, temperature=0.5),
                "The temperature is an argument: use it.",
            ),
            Trial(
                _has_gradient,
                "No gradient arrives: stay with torch's operations, without .item() or float().",
            ),
        ),
    ),
    "11.break": Exercise(
        "Break it",
        "break",
        8,
        (
            Trial(
                lambda answer: any(near(answer, times * _softplus(4.0), 1e-3) for times in (1, 2)),
                "A softmax of two: the pair at 1, and the same pair again at 1 plus the margin, both over "
                "the temperature. What is minus the logarithm of the first one's share?",
            ),
            Trial(
                lambda answer: near(answer, 2 * _softplus(4.0), 1e-3),
                "You counted one direction: add the pictures' and the captions'.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 0, 1e-3),
                "Not nothing: the pair is asked to beat itself, and by a margin. Nothing can.",
            ),
            Trial(
                lambda answer: near(answer, 2 * math.log(2), 1e-3) or near(answer, math.log(2), 1e-3),
                "That is the loss of a tie: the margin makes the false negative better than the pair.",
            ),
            Trial(
                lambda answer: near(answer, 128 * 2 * _softplus(4.0), 1e-2),
                "The loss is a mean over the pairs, not their sum.",
            ),
        ),
    ),
}
