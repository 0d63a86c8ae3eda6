"""The exercises of notebook 00, *Start here*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, one_of
from vsecore.similarity import cosine


def _finds(search: Callable[..., Any], scale: float) -> bool:
    """Whether a search by cosine gives the k nearest in order, whatever the vectors' lengths."""
    generator = torch.Generator().manual_seed(0)
    v, query = torch.randn(20, 8, generator=generator), torch.randn(8, generator=generator)
    v = torch.nn.functional.normalize(v, dim=1)  # (20, 8)
    lengths = torch.rand(20, 1, generator=generator) * scale + 1
    expected = (v @ query).topk(3).indices.tolist()
    return [int(row) for row in search(v * lengths, query, 3)] == expected


def _nearest(v: Tensor, query: Tensor, k: int) -> list[int]:
    """The search by `vsecore`'s own cosine."""
    rows: list[int] = cosine(v, query[None])[:, 0].topk(k).indices.tolist()
    return rows


EXERCISES: dict[str, Exercise] = {
    "00.rank": Exercise(
        "Read a ranking",
        "compute",
        2,
        (
            Trial(
                lambda answer: int(answer) == answer >= 1,
                "A place is a whole number, and the best place is 1.",
            ),
            Trial(
                lambda answer: answer == 3, "Sort the similarities from high to low and find 0.4 among them."
            ),
        ),
        mistakes=(
            Trial(lambda answer: answer == 2, "You counted from 0, or missed one that scores higher."),
            Trial(lambda answer: answer == 4, "Did you sort from low to high? The most similar comes first."),
        ),
        difficulty="easy",
    ),
    "00.predict": Exercise(
        "A prediction",
        "predict",
        2,
        one_of("own", "true", "the same"),
        difficulty="easy",
        message=NOTED,
    ),
    "00.search": Exercise(
        "Write the search",
        "code",
        8,
        (
            Trial(
                lambda answer: (
                    (made := answer(torch.eye(5), torch.ones(5), 2)) is not None and len(made) == 2
                ),
                "Return the numbers of k rows.",
            ),
            Trial(
                lambda answer: _finds(answer, 0.0), "The k most similar come first: sort from high to low."
            ),
            Trial(
                lambda answer: _finds(answer, 9.0),
                "In your search long vectors win: compare by cosine, not by dot product. Divide each row by "
                "its own length; a norm without `dim` is one number for the whole matrix.",
            ),
        ),
        difficulty="easy",
        reference=_nearest,
        defined_above=("search",),
    ),
    "00.break": Exercise(
        "Forget the lengths",
        "break",
        5,
        (
            Trial(
                lambda answer: 0 < float(answer) <= 100,
                "Give a percentage above 0: the captions of one picture do find it.",
            ),
            Trial(
                lambda answer: near(answer, 0.1),
                "Of 5,000 captions, how many own the picture that always wins?",
            ),
        ),
        mistakes=(
            Trial(lambda answer: near(answer, 0.001), "That is right as a share; give it in percent."),
            Trial(
                lambda answer: near(answer, 0.02),
                "You counted one caption: the winning picture owns five of them.",
            ),
            Trial(
                lambda answer: near(answer, 100),
                "The winner comes first for every query, but is right only for its own captions.",
            ),
        ),
    ),
    "00.explore": Exercise("Change one thing", "explore", 15, EXPLORED, message="Noted."),
}
