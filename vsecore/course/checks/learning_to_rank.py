"""The exercises of notebook 04, *Learning to rank*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vsecore.course.checks.exercise import Exercise, Trial, near
from vsecore.course.checks.samples import gradient_of, random_batch
from vsecore.losses import triplet


def _same_as_triplet(
    loss: Callable[..., Any], pictures: int, captions_each: int, margin: float = 0.2
) -> bool:
    scores, positives = random_batch(pictures, captions_each, seed=pictures)
    expected = float(triplet(scores, margin, positives=positives))
    return near(loss(scores, positives, margin), expected)


def _ignores_siblings(loss: Callable[..., Any]) -> bool:
    """Whether a strong other caption of the same picture costs nothing."""
    scores, positives = torch.tensor([[0.9, 0.8, -1.0, -1.0], [-1.0, -1.0, 0.9, 0.8]]), torch.zeros(2, 4) > 0
    positives[0, :2] = positives[1, 2:] = True
    return near(loss(scores, positives), 0.0)


def _has_gradient(loss: Callable[..., Any]) -> bool:
    scores, positives = random_batch(4, 2, seed=1)
    return bool(gradient_of(lambda S: loss(S, positives), scores).abs().sum() > 0)


EXERCISES: dict[str, Exercise] = {
    "04.read": Exercise(
        "Read a batch",
        "compute",
        5,
        (
            Trial(
                lambda answer: any(near(answer, part) for part in (0.1, 0.3, 0.4)),
                "Each row: margin plus the negative minus the pair's own, and nothing if that is below zero.",
            ),
            Trial(
                lambda answer: near(answer, 0.4),
                "You counted one direction: rows are pictures' hinges, columns are captions'; add both.",
            ),
        ),
        mistakes=(
            Trial(lambda answer: float(answer) < 0, "A sum of hinges is never below zero."),
            Trial(
                lambda answer: near(answer, 0.2),
                "Two of the four are below zero: they cost nothing, not less.",
            ),
        ),
    ),
    "04.siblings": Exercise(
        "Five captions a picture",
        "code",
        15,
        (
            Trial(
                lambda answer: isinstance(made := answer(*random_batch(3, 1, 0)), Tensor) and made.ndim == 0,
                "Return one number for the batch, as a tensor: the sum over the positive pairs.",
            ),
            Trial(
                lambda answer: _same_as_triplet(answer, 5, 1),
                "With one caption a picture it must be this notebook's loss: check rows and columns.",
            ),
            Trial(
                _ignores_siblings,
                "Another caption of the same picture costs something: mask every positive.",
            ),
            Trial(
                lambda answer: _same_as_triplet(answer, 4, 5),
                "Every positive pair has its hinges, not one pair a picture.",
            ),
            Trial(
                lambda answer: _same_as_triplet(answer, 4, 2, margin=0.5),
                "The margin is an argument: use it.",
            ),
            Trial(
                _has_gradient,
                "No gradient arrives: stay with torch's operations, without .item() or float().",
            ),
        ),
    ),
    "04.break": Exercise(
        "Break it",
        "break",
        8,
        (
            Trial(
                lambda answer: near(answer, 128 * 0.2) or near(answer, 2 * 128 * 0.2),
                "Every hinge is m + s − s with the pair as its own negative; how many hinges has the batch?",
            ),
            Trial(
                lambda answer: near(answer, 2 * 128 * 0.2),
                "You counted one direction: pictures have hinges along rows, captions along columns.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 0),
                "Not nothing: what is the hardest negative of a row if the pair itself counts as one?",
            ),
        ),
    ),
}
