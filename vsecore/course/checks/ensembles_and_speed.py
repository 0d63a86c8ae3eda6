"""The exercises of notebook 12, *Ensembles and speed*."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from vsecore.course.checks.exercise import Exercise, Trial, near
from vsecore.similarity import cosine

CROSSED, CACHED = 2 * 10 * 36, 3  # multiply-adds of a pair, in widths
SAVING = 10_000 * CROSSED / (10_000 * CACHED + 50 * CROSSED)
LEAD = 3 / 2**0.5


def _systems(widths: Sequence[int]) -> tuple[list[Tensor], list[Tensor]]:
    """Vectors of 3 pictures and 4 captions by systems of these widths; no vector has length one."""
    generator = torch.Generator().manual_seed(sum(widths))
    sides = [
        [torch.randn(rows, width, generator=generator, dtype=torch.float64) for width in widths]
        for rows in (3, 4)
    ]
    lengths = [4.0**place for place in range(len(widths))]  # the last would outvote all others
    pictures, captions = (
        [length * matrix for length, matrix in zip(lengths, side, strict=True)] for side in sides
    )
    return pictures, captions


def _shapes_fit(embed: Callable[..., Any]) -> bool:
    made = embed(*_systems([5, 2]), [1.0, 1.0])
    return made is not None and [tuple(side.shape) for side in made] == [(3, 7), (4, 7)]


def _averages(embed: Callable[..., Any], widths: Sequence[int], weights: Sequence[float]) -> bool:
    pictures, captions = _systems(widths)
    v, t = embed([part.clone() for part in pictures], [part.clone() for part in captions], list(weights))
    expected = sum(
        weight / sum(weights) * cosine(one, other)
        for weight, one, other in zip(weights, pictures, captions, strict=True)
    )
    return torch.allclose(cosine(v, t), torch.as_tensor(expected).to(v.dtype), atol=1e-5)


def _of_length_one(embed: Callable[..., Any], weights: Sequence[float]) -> bool:
    sides = embed(*_systems([4, 3]), list(weights))
    return all(bool(((rows.norm(dim=-1) - 1).abs() < 1e-5).all()) for rows in sides)


EXERCISES: dict[str, Exercise] = {
    "12.lead": Exercise(
        "The lead of three",
        "compute",
        5,
        (
            Trial(
                lambda answer: 1 <= float(answer) < 3**0.5 + 1e-6,
                "Between 1, for systems that always agree, and the root of 3, for those without correlation.",
            ),
            Trial(
                lambda answer: near(answer, 1.5**0.5, 5e-3),
                "Put M = 3 and ρ = 0.5 into the formula for the spread of a mean.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 3**0.5, 5e-3),
                "That is for systems without any correlation: these have 0.5.",
            ),
            Trial(lambda answer: near(answer, 1.5, 5e-3), "That is of the variance: a spread is its root."),
            Trial(
                lambda answer: near(answer, 1.5**-0.5, 5e-3),
                "That is the spread of the mean: the lead is divided by it.",
            ),
        ),
    ),
    "12.count": Exercise(
        "Find fast, then look closely",
        "compute",
        8,
        (
            Trial(
                lambda answer: 1 < float(answer) < 240,
                "More than 1, and less than cached vectors alone would save: how many times cheaper is it?",
            ),
            Trial(
                lambda answer: near(answer, SAVING, 0.2),
                "Cross-attention for all, divided by the cached products and the crossed pairs together.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 200, 0.2),
                "That leaves out the cached product: it goes through all the pictures.",
            ),
            Trial(
                lambda answer: near(answer, 10_000 * CROSSED / (10_000 + 50 * CROSSED), 0.2),
                "The ensemble is three systems wide, also in the cache.",
            ),
            Trial(
                lambda answer: near(answer, 5_000 * CROSSED / (10_000 * CACHED + 25 * CROSSED), 0.2),
                "A crossed pair costs twice: once for the cosines, once for the attended vectors.",
            ),
            Trial(
                lambda answer: near(answer, CROSSED / CACHED, 0.2),
                "That is what cached vectors alone would save: the best 50 are crossed as well.",
            ),
        ),
    ),
    "12.one": Exercise(
        "A weighted ensemble as one embedding",
        "code",
        12,
        (
            Trial(
                _shapes_fit,
                "Return two matrices, of pictures and of captions, each as wide as all the systems together.",
            ),
            Trial(
                lambda answer: _averages(answer, [6], [1.0]),
                "With a single system it must be that system's cosine.",
            ),
            Trial(
                lambda answer: _averages(answer, [5, 5], [1.0, 1.0]),
                "With equal weights it must be the mean of the cosines: no system may count more because its "
                "vectors are longer.",
            ),
            Trial(
                lambda answer: _averages(answer, [5, 2, 4], [1.0, 4.0, 2.0]),
                "With other weights it is not yet the weighted mean: how often does a weight stand in the "
                "product of the two sides?",
            ),
            Trial(
                lambda answer: _of_length_one(answer, [1.0, 3.0]),
                "The cosine is right, the rows are not of length one: divide the weights by their sum.",
            ),
        ),
    ),
    "12.break": Exercise(
        "Break it",
        "break",
        10,
        (
            Trial(
                lambda answer: 0 < float(answer) < 3,
                "Half of the mean is noise without a lead: it must lead by less than the good member, and by "
                "more than nothing.",
            ),
            Trial(
                lambda answer: near(answer, LEAD, 5e-3),
                "The lead of the mean is the mean of the leads; its spread is that of a mean of two without "
                "correlation.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 1.5, 5e-3),
                "That is its lead in spreads of one member: the mean has a smaller spread of its own.",
            ),
            Trial(
                lambda answer: near(answer, 3, 5e-3),
                "So it is with cosines. Here the collapsed member's noise has been given a spread of one.",
            ),
            Trial(
                lambda answer: near(answer, 3 * 2**0.5, 5e-3),
                "That is for two members that both lead by 3: the collapsed one has no lead.",
            ),
        ),
    ),
}
