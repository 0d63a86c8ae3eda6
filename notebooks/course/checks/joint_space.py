"""The exercises of notebook 03, *The joint space*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, one_of
from vsecore.evaluation import evaluate, map_at_r, ranks


def _scores(captions_each: int, seed: int, ties: bool = False) -> tuple[Tensor, Tensor]:
    """Random similarities (6, C) and the owners (C,) of captions in random order."""
    generator = torch.Generator().manual_seed(seed)
    owner = torch.arange(6).repeat_interleave(captions_each)
    if captions_each > 1:
        owner = owner[torch.randperm(len(owner), generator=generator)]
    scores = torch.randn(6, len(owner), generator=generator)
    return (scores.round() if ties else scores), owner


def _shape(made: Any) -> tuple[int, ...] | None:
    return None if made is None else tuple(torch.as_tensor(made).shape)


def caption_ranks(S: Tensor, owner: Tensor) -> Tensor:
    """The rank of each caption, (Nc,), as the notebook's exercise asks for it."""
    return ranks(S, owner)[1]


def picture_ranks(S: Tensor, owner: Tensor) -> Tensor:
    """The rank of each picture, (Ni,), as the notebook's exercise asks for it."""
    return ranks(S, owner)[0]


def _same_ranks(
    answer: Callable[..., Any],
    expected: Callable[[Tensor, Tensor], Tensor],
    captions_each: int,
    ties: bool = False,
    shift: float = 0.0,
) -> bool:
    """Whether an answer's ranks are right on random similarities with a number added to all of them."""
    batches = [_scores(captions_each, seed, ties) for seed in range(5)]
    return all(
        torch.as_tensor(answer(S + shift, owner)).tolist() == expected(S, owner).tolist()
        for S, owner in batches
    )


def _hides_too_high(answer: Callable[..., Any], expected: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Whether it is right only if similarities are high: it hides others by a number such as 0 or -1."""
    high, low = (_same_ranks(answer, expected, 1, shift=shift) for shift in (10.0, -10.0))
    return high and not low


HIDES_TOO_HIGH = (
    "You hid some similarities by a number, and then took it for the largest: similarities may be below "
    "zero, and here also below -1. What is lower than all of them?"
)


def average_precision_at_r(shown: Tensor) -> float:
    """The average precision at R of one query, whose items are shown in this order, (n,) bool."""
    places = torch.arange(len(shown), 0, -1, dtype=torch.float32)  # scores in the order shown
    return map_at_r(places[None], shown[None])


def _same_precision(answer: Callable[..., Any], shown: list[bool]) -> bool:
    return near(answer(torch.tensor(shown)), average_precision_at_r(torch.tensor(shown)))


def _strictly(scores: Tensor) -> float:
    """R@1 from text to picture by an evaluation that counts only what is strictly higher."""
    own = scores[torch.arange(100) // 5, torch.arange(100)]  # (100,)
    return float(((scores > own).sum(0) == 0).double().mean())


def _found(scores: Any) -> float:
    return evaluate(torch.as_tensor(scores), torch.arange(100) // 5)["t2i_r1"]


EXERCISES: dict[str, Exercise] = {
    "03.captions": Exercise(
        "The rank of a caption",
        "code",
        8,
        (
            Trial(
                lambda answer: _shape(answer(*_scores(5, 0))) == (30,),
                "Return one rank for each caption, (Nc,).",
            ),
            Trial(
                lambda answer: torch.as_tensor(answer(torch.eye(6), torch.arange(6))).tolist() == [0] * 6,
                "A perfect system has rank 0 everywhere: do not count a caption's own picture.",
            ),
            Trial(
                lambda answer: _same_ranks(answer, caption_ranks, 1),
                "With one caption a picture, count how many pictures in the column score higher.",
            ),
            Trial(
                lambda answer: _same_ranks(answer, caption_ranks, 5),
                "Captions come in any order: `owner` says which row has the own picture of a column.",
            ),
            Trial(
                lambda answer: _same_ranks(answer, caption_ranks, 5, ties=True),
                "Ties count against the system: another picture with the same score comes first.",
            ),
        ),
        mistakes=(Trial(lambda answer: _hides_too_high(answer, caption_ranks), HIDES_TOO_HIGH),),
        difficulty="easy",
        reference=caption_ranks,
    ),
    "03.median": Exercise(
        "A median rank",
        "compute",
        4,
        (
            Trial(
                lambda answer: int(answer) == answer >= 1 or float(answer) in (1.5, 2.5),
                "A median rank is a whole number and counts from 1: round down, then add one.",
            ),
            Trial(
                lambda answer: answer == 2,
                "Sort the six ranks and look at the two in the middle.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 1.5), "That is the middle; tables round it down and count from 1."
            ),
            Trial(lambda answer: near(answer, 2.5), "You counted from 1; tables also round down."),
            Trial(lambda answer: near(answer, 1), "You rounded down; but the best rank in a table is 1."),
            Trial(
                lambda answer: near(answer, 40 / 6, 0.05) or near(answer, 46 / 6, 0.05),
                "That is the mean: one bad rank pulls it far. The median takes the middle.",
            ),
            Trial(lambda answer: answer == 8, "Sort the ranks before you look for their middle."),
        ),
        difficulty="easy",
    ),
    "03.ranks": Exercise(
        "The rank of a picture",
        "code",
        10,
        (
            Trial(
                lambda answer: _shape(answer(*_scores(1, 0))) == (6,),
                "Return one rank for each picture, (Ni,).",
            ),
            Trial(
                lambda answer: torch.as_tensor(answer(torch.eye(6), torch.arange(6))).tolist() == [0] * 6,
                "A perfect system has rank 0 everywhere: do not count a picture's own caption.",
            ),
            Trial(
                lambda answer: _same_ranks(answer, picture_ranks, 1),
                "With one caption a picture, count how many other captions in the row score higher.",
            ),
            Trial(
                lambda answer: _same_ranks(answer, picture_ranks, 5),
                "With five captions a picture, find its own by `owner`, take the best, count none of them.",
            ),
            Trial(
                lambda answer: _same_ranks(answer, picture_ranks, 5, ties=True),
                "Ties count against the system: another caption with the same score comes first.",
            ),
        ),
        mistakes=(Trial(lambda answer: _hides_too_high(answer, picture_ranks), HIDES_TOO_HIGH),),
        reference=picture_ranks,
        defined_above=("caption_ranks",),
    ),
    "03.folds": Exercise(
        "Ten times as many pictures",
        "predict",
        2,
        one_of("a", "b", "c", "d"),
        difficulty="easy",
        message=NOTED,
    ),
    "03.precision": Exercise(
        "Average precision at R",
        "code",
        10,
        (
            Trial(
                lambda answer: near(answer(torch.tensor([True, True, False])), 1),
                "Return a number; the best order has all relevant items first, and gives 1.",
            ),
            Trial(
                lambda answer: near(answer(torch.tensor([False, False, True, True])), 0),
                "Nothing relevant among the first R gives 0: what comes later does not count.",
            ),
            Trial(
                lambda answer: _same_precision(answer, [False, True, True, True, False]),
                "Only places with a relevant item add their precision, and the sum is divided by R.",
            ),
            Trial(
                lambda answer: all(
                    _same_precision(answer, shown)
                    for shown in (
                        [True, False, True, True, False, True],
                        [True, False, False, True],
                        [False, True, False, True, True],
                    )
                ),
                "Divide by R, the number of all relevant items, also when some come after place R.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer(torch.tensor([False, True, True, True, False])), 2 / 3),
                "That is R-precision: it forgets the order within the first R.",
            ),
        ),
        reference=average_precision_at_r,
    ),
    "03.limit": Exercise(
        "The limit of R@1",
        "compute",
        5,
        (
            Trial(
                lambda answer: 25 <= float(answer) <= 100 or near(answer, 11 / 16, 0.01),
                "Give a percentage: the worst of the four captions alone would give 25, the best 100.",
            ),
            Trial(
                lambda answer: near(answer, 68.75, 0.1),
                "For each caption, what is the chance that its own picture comes first? Then take the mean.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 11 / 16, 0.01),
                "That is right as a fraction; R@1 is a percentage.",
            ),
            Trial(
                lambda answer: near(answer, 50, 0.1),
                "That is four own pictures out of eight true ones. Recall is a mean over captions.",
            ),
            Trial(
                lambda answer: near(answer, 100, 0.1),
                "A true picture is always first. R@1 asks for the own one.",
            ),
        ),
    ),
    "03.explore": Exercise("Change one thing", "explore", 15, EXPLORED, message="Noted."),
    "03.break": Exercise(
        "Break it",
        "break",
        6,
        (
            Trial(
                lambda answer: torch.as_tensor(answer).shape == (20, 100),
                "Scores have one row for each picture and one column for each caption: (20, 100).",
            ),
            Trial(
                lambda answer: not torch.as_tensor(answer).isnan().any(),
                "vsecore refuses a score that is not a number. Ordinary numbers can do it.",
            ),
            Trial(
                lambda answer: _strictly(torch.as_tensor(answer)) == 1,
                "For some caption another picture still scores higher. When is no score higher than another?",
            ),
            Trial(
                lambda answer: _found(answer) == 0,
                "vsecore finds some own pictures: for some captions your scores put the own picture first.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _found(answer) == 100,
                "That is a perfect system: it knows which pairs belong together. Yours should know nothing.",
            ),
            Trial(
                lambda answer: torch.as_tensor(answer).shape == (100, 20),
                "Transpose it: one row for each picture, one column for each caption.",
            ),
        ),
    ),
}
