"""The exercises of notebook 12, *Ensembles and speed*."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, one_of
from vsecore.similarity import cosine, unit

_LEAD = 3 / 2**0.5  # of a mean of a member that leads by 3 spreads and of one that is noise


def _as_one(several: Sequence[Tensor], weights: Sequence[float] | None = None) -> Tensor:
    """Several systems' vectors of one side as one matrix (n, all widths together)."""
    each = weights or [1.0] * len(several)
    scales = [(weight / sum(each)) ** 0.5 for weight in each]
    return torch.cat([scale * unit(rows) for scale, rows in zip(scales, several, strict=True)], -1)


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


def _shape_fits(embed: Callable[..., Any]) -> bool:
    pictures, _ = _systems([5, 2])
    return tuple(embed(pictures).shape) == (3, 7)


def _averages(
    embed: Callable[..., Any], widths: Sequence[int], weights: Sequence[float] | None = None
) -> bool:
    pictures, captions = _systems(widths)
    given = () if weights is None else (list(weights),)
    v, t = (embed([part.clone() for part in side], *given) for side in (pictures, captions))
    expected = cosine(_as_one(pictures, weights), _as_one(captions, weights))
    return torch.allclose(cosine(v, t), expected.to(v.dtype), atol=1e-5)


def _of_length_one(embed: Callable[..., Any], weights: Sequence[float]) -> bool:
    return all(
        bool(((embed(side, list(weights)).norm(dim=-1) - 1).abs() < 1e-5).all()) for side in _systems([4, 3])
    )


def _query(seed: int, pictures: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    """A query's quick similarities (n,), the pictures' elements (n, 4, 6) and the query's words (3, 6)."""
    generator = torch.Generator().manual_seed(seed)
    quick = torch.randn(pictures, generator=generator)
    elements = torch.randn(pictures, 4, 6, generator=generator)
    return quick, elements, torch.randn(3, 6, generator=generator)


def _closely(elements: Tensor, words: Tensor) -> Tensor:
    """The notebook's cross-attention: (n, N, D) and (L, D) make (n,)."""
    v, t = unit(elements), unit(words)
    affinity = (t @ v.mT).clamp(min=0)  # (n, L, N)
    share = (9.0 * normalize(affinity, dim=1)).softmax(-1)  # (n, L, N)
    return cosine_similarity(share @ v, t, dim=-1).mean(-1)


def _rerank(quick: Tensor, elements: Tensor, words: Tensor, k: int) -> Tensor:
    candidates = quick.topk(k).indices  # (k,)
    return candidates[_closely(elements[candidates], words).argsort(descending=True)]


def _found(search: Callable[..., Any], seed: int, k: int) -> list[int]:
    return [int(row) for row in search(*_query(seed), k)]


def _same_rows(search: Callable[..., Any], seed: int, k: int) -> bool:
    return sorted(_found(search, seed, k)) == sorted(_found(_rerank, seed, k))


def _places_among_candidates(search: Callable[..., Any]) -> bool:
    """Whether it returns places among the candidates in place of rows among all pictures."""
    quick, elements, words = _query(1)
    candidates = quick.topk(4).indices
    places = _closely(elements[candidates], words).argsort(descending=True)
    return _found(search, 1, 4) == places.tolist()


def _all_crossed(search: Callable[..., Any]) -> bool:
    """Whether it takes the best of all pictures by cross-attention."""
    _, elements, words = _query(1)
    return _found(search, 1, 4) == _closely(elements, words).topk(4).indices.tolist()


EXERCISES: dict[str, Exercise] = {
    "12.gain": Exercise(
        "The larger gain", "predict", 2, one_of("RGP", "PPP", "the same"), difficulty="easy", message=NOTED
    ),
    "12.lead": Exercise(
        "The lead of three",
        "compute",
        5,
        (
            Trial(
                lambda answer: 1 <= float(answer) < 3**0.5 + 1e-6,
                "It is between 1, for systems that always agree, and the root of 3, for systems without "
                "correlation.",
            ),
            Trial(
                lambda answer: near(answer, 1.5**0.5, 5e-3),
                "Put M = 3 and ρ = 0.5 into the formula for the spread of a mean.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 3**0.5, 5e-3),
                "That is for systems without any correlation: these have a correlation of 0.5.",
            ),
            Trial(
                lambda answer: near(answer, 1.5, 5e-3),
                "That is for the variance: the spread is its root.",
            ),
            Trial(
                lambda answer: near(answer, 1.5**-0.5, 5e-3),
                "That is the spread of the mean: the lead is divided by it.",
            ),
        ),
        difficulty="easy",
    ),
    "12.one": Exercise(
        "An ensemble as one embedding",
        "code",
        12,
        (
            Trial(
                _shape_fits,
                "Return one matrix for the side that you are given, as wide as all its systems together.",
            ),
            Trial(
                lambda answer: _averages(answer, [6]),
                "With a single system it must be that system's cosine.",
            ),
            Trial(
                lambda answer: _averages(answer, [5, 5]),
                "Without weights it must be the mean of the cosines: no system may count more because its "
                "vectors are longer.",
            ),
            Trial(
                lambda answer: _averages(answer, [5, 2, 4], [1.0, 4.0, 2.0]),
                "With other weights the result is not yet the weighted mean: how often is a weight in the "
                "product of the two sides?",
            ),
            Trial(
                lambda answer: _of_length_one(answer, [1.0, 3.0]),
                "The cosine is right, but the rows are not of length one: divide the weights by their sum.",
            ),
        ),
        reference=_as_one,
        message="Right. An ensemble of cosines is itself a cosine.",
    ),
    "12.break": Exercise(
        "A vote for noise",
        "break",
        8,
        (
            Trial(
                lambda answer: 0 < float(answer) < 3,
                "Half of the mean is noise without a lead. So the mean leads by less than the good member, "
                "but by more than nothing.",
            ),
            Trial(
                lambda answer: near(answer, _LEAD, 5e-3),
                "The lead of the mean is the mean of the leads. Its spread is that of a mean of two without "
                "correlation.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 1.5, 5e-3),
                "That is the lead in spreads of one member: the mean has a smaller spread of its own.",
            ),
            Trial(
                lambda answer: near(answer, 3, 5e-3),
                "That is right for the cosines. Here the collapsed member's noise has a spread of one.",
            ),
            Trial(
                lambda answer: near(answer, 3 * 2**0.5, 5e-3),
                "That is for two members that both lead by 3: the collapsed one has no lead.",
            ),
        ),
    ),
    "12.rerank": Exercise(
        "Find fast, then look closely",
        "code",
        12,
        (
            Trial(
                lambda answer: len(_found(answer, 1, 4)) == 4,
                "Return k row numbers.",
            ),
            Trial(
                lambda answer: _same_rows(answer, 1, 4),
                "The candidates are the pictures with the highest `quick`, as row numbers of all pictures.",
            ),
            Trial(
                lambda answer: _found(answer, 1, 4) == _found(_rerank, 1, 4),
                "The candidates are right. Now order them by cross-attention, the highest score first.",
            ),
            Trial(
                lambda answer: all(
                    _found(answer, seed, k) == _found(_rerank, seed, k)
                    for seed, k in ((2, 1), (3, 9), (4, 5))
                ),
                "It must be right for every k, from 1 to as many as there are pictures.",
            ),
        ),
        mistakes=(
            Trial(
                _places_among_candidates,
                "Those are places among the candidates: use them to look up the candidates' row numbers.",
            ),
            Trial(
                _all_crossed,
                "Those are the best of all pictures by cross-attention. Choose the candidates by `quick`.",
            ),
        ),
        reference=_rerank,
        message="Right. Cross-attention looks at k pictures only, however many there are.",
    ),
    "12.explore": Exercise("Your own ensemble", "explore", 15, EXPLORED, message="Noted."),
}
