"""The exercises of notebook 07, *Cross-attention, and what it costs*."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, leaky_relu, normalize

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, gradient_of, one_of


def _elements(seed: int, queries: int = 4, context: int = 5) -> tuple[Tensor, Tensor]:
    """Queries (n, 6) and context (m, 6), float64, of very different lengths; cosines have either sign."""
    generator = torch.Generator().manual_seed(seed)
    sides = [
        torch.randn(rows, 6, generator=generator, dtype=torch.float64)
        * (1 + 4 * torch.rand(rows, 1, generator=generator, dtype=torch.float64))
        for rows in (queries, context)
    ]
    return sides[0], sides[1]


# ---------------------------------------------------------------- 07.weights


def _affinity(queries: Tensor, context: Tensor) -> Tensor:
    return normalize(queries, dim=1) @ normalize(context, dim=1).T  # (n, m)


def _attention_weights(queries: Tensor, context: Tensor, smooth: float = 9.0) -> Tensor:
    clipped = leaky_relu(_affinity(queries, context), 0.1)  # (n, m)
    return (smooth * normalize(clipped, dim=0)).softmax(1)  # (n, m)


def _weighs_like(
    weigh: Callable[..., Any], other: Callable[..., Tensor], smooth: float = 9.0, seed: int = 1
) -> bool:
    queries, context = _elements(seed)
    return torch.allclose(weigh(queries, context, smooth), other(queries, context, smooth), atol=1e-6)


def _adds_up(weigh: Callable[..., Any]) -> bool:
    weights = weigh(*_elements(2))
    return bool((weights >= 0).all()) and torch.allclose(weights.sum(1), torch.ones(4).to(weights))


def _blind_to_length(weigh: Callable[..., Any]) -> bool:
    queries, context = _elements(3)
    longer = [torch.arange(1, len(x) + 1).to(x)[:, None] * x for x in (queries, context)]
    return torch.allclose(weigh(queries, context), weigh(*longer), atol=1e-6)


def _over_the_context(queries: Tensor, context: Tensor, smooth: float) -> Tensor:
    clipped = leaky_relu(_affinity(queries, context), 0.1)
    return (smooth * normalize(clipped, dim=1)).softmax(1)


def _clipped_to_zero(queries: Tensor, context: Tensor, smooth: float) -> Tensor:
    return (smooth * normalize(_affinity(queries, context).relu(), dim=0)).softmax(1)


def _not_clipped(queries: Tensor, context: Tensor, smooth: float) -> Tensor:
    return (smooth * normalize(_affinity(queries, context), dim=0)).softmax(1)


def _not_divided(queries: Tensor, context: Tensor, smooth: float) -> Tensor:
    return (smooth * leaky_relu(_affinity(queries, context), 0.1)).softmax(1)


def _divided_by_the_sum(queries: Tensor, context: Tensor, smooth: float) -> Tensor:
    clipped = leaky_relu(_affinity(queries, context), 0.1)
    return (smooth * clipped / clipped.sum(0)).softmax(1)


def _softmax_over_queries(queries: Tensor, context: Tensor, smooth: float) -> Tensor:
    clipped = leaky_relu(_affinity(queries, context), 0.1)
    return (smooth * normalize(clipped, dim=0)).softmax(0)


# ---------------------------------------------------------------- 07.score


def _score(weights: Tensor, queries: Tensor, context: Tensor, lse: float = 6.0) -> Tensor:
    relevance = _relevance(weights, queries, context)  # (n,)
    return (lse * relevance).logsumexp(0) / lse


def _relevance(weights: Tensor, queries: Tensor, context: Tensor) -> Tensor:
    return cosine_similarity(weights @ normalize(context, dim=1), queries, dim=1)  # (n,)


def _weighted(seed: int, queries: int = 4, context: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Weights (n, m), which add up to one in each row, with their queries and context."""
    sides = _elements(seed, queries, context)
    return _attention_weights(*sides, 3.0), *sides


def _scores_like(
    score: Callable[..., Any], other: Callable[..., Tensor], lse: float = 6.0, queries: int = 4
) -> bool:
    given = _weighted(4, queries)
    return near(score(*given, lse), other(*given, lse).item(), 1e-6)


def _score_has_gradient(score: Callable[..., Any]) -> bool:
    weights, queries, context = _weighted(5)
    expected = gradient_of(lambda x: _score(weights, queries, x), context.clone())
    return torch.allclose(gradient_of(lambda x: score(weights, queries, x), context), expected, atol=1e-6)


def _mean_of_relevance(weights: Tensor, queries: Tensor, context: Tensor, lse: float) -> Tensor:
    return _relevance(weights, queries, context).mean()


def _not_divided_by_lse(weights: Tensor, queries: Tensor, context: Tensor, lse: float) -> Tensor:
    return (lse * _relevance(weights, queries, context)).logsumexp(0)


def _of_raw_context(weights: Tensor, queries: Tensor, context: Tensor, lse: float) -> Tensor:
    return (lse * cosine_similarity(weights @ context, queries, dim=1)).logsumexp(0) / lse


def _of_products(weights: Tensor, queries: Tensor, context: Tensor, lse: float) -> Tensor:
    read = weights @ normalize(context, dim=1)
    return (lse * (read * normalize(queries, dim=1)).sum(1)).logsumexp(0) / lse


# ---------------------------------------------------------------- 07.focus


def _refocus(weights: Tensor, focus: str = "prob") -> Tensor:
    trust = weights.sqrt() if focus == "prob" else torch.ones_like(weights)  # (n, m)
    lead = weights * trust.sum(1, keepdim=True) - (weights * trust).sum(1, keepdim=True)  # (n, m)
    kept = weights * ((lead > 0) | (weights == weights.amax(1, keepdim=True)))  # (n, m)
    return kept / kept.sum(1, keepdim=True)


_SPREAD = torch.tensor([[0.5, 0.27, 0.13, 0.1], [0.65, 0.3, 0.04, 0.01], [0.1, 0.2, 0.3, 0.4]])


def _refocuses_like(
    refocus: Callable[..., Any],
    other: Callable[..., Tensor],
    focus: str,
    weights: Tensor = _SPREAD,
) -> bool:
    return torch.allclose(refocus(weights.clone(), focus), other(weights, focus), atol=1e-5)


def _keeps_the_same(refocus: Callable[..., Any], focus: str) -> bool:
    return torch.equal(refocus(_SPREAD.clone(), focus) > 0, _refocus(_SPREAD, focus) > 0)


def _not_renormalised(weights: Tensor, focus: str) -> Tensor:
    return weights * (_refocus(weights, focus) > 0)


def _focuses_swapped(weights: Tensor, focus: str) -> Tensor:
    return _refocus(weights, "equal" if focus == "prob" else "prob")


_EVEN = torch.full((2, 4), 0.25)
_ALONE = torch.ones(3, 1)


# ---------------------------------------------------------------- 07.fast


def _relevance_from_products(weights: Tensor, affinity: Tensor, gram: Tensor) -> Tensor:
    along = (weights * affinity).sum(1)  # (n,)
    length = ((weights @ gram) * weights).sum(1).sqrt()  # (n,)
    return along / length


def _products(seed: int, queries: int = 4, context: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Weights (n, m), affinities (n, m) and Gram matrix (m, m)."""
    weights, words, boxes = _weighted(seed, queries, context)
    return weights, _affinity(words, boxes), _affinity(boxes, boxes)


def _reads_one_box(relevance: Callable[..., Any]) -> bool:
    """Whether a word with all its weight on one box has that box's affinity."""
    _, affinity, gram = _products(6)
    alone = torch.eye(5, dtype=torch.float64)[:4]
    return torch.allclose(relevance(alone, affinity, gram), affinity.diagonal(), atol=1e-6)


def _answers_like(relevance: Callable[..., Any], other: Callable[..., Tensor]) -> bool:
    given = _products(7)
    return torch.allclose(relevance(*given), other(*given), atol=1e-6)


def _without_length(weights: Tensor, affinity: Tensor, gram: Tensor) -> Tensor:
    return (weights * affinity).sum(1)


def _square_of_length(weights: Tensor, affinity: Tensor, gram: Tensor) -> Tensor:
    return (weights * affinity).sum(1) / ((weights @ gram) * weights).sum(1)


def _as_at_right_angles(weights: Tensor, affinity: Tensor, gram: Tensor) -> Tensor:
    return (weights * affinity).sum(1) / weights.square().sum(1).sqrt()


# ---------------------------------------------------------------- numbers

_WORDS = 1.24e6 / (2 * 36 * 1024)  # of DivE's count, by 2 L N D
_LARGEST = math.e / (math.e + 35)  # of 36 weights at a temperature of one


EXERCISES: dict[str, Exercise] = {
    "07.weights": Exercise(
        "Where each word looks",
        "code",
        12,
        (
            Trial(
                lambda answer: tuple(answer(*_elements(1)).shape) == (4, 5),
                "Return one weight for each query and each element of the context, (n, m).",
            ),
            Trial(
                _adds_up,
                "Each query shares out a weight of one over the context: which dimension has the softmax?",
            ),
            Trial(
                _blind_to_length,
                "Vectors that are twice as long must change nothing: scale both sides to length one first.",
            ),
            Trial(
                lambda answer: _weighs_like(answer, _attention_weights),
                "Follow the three steps in their order: clip, divide each column by its length, multiply by "
                "`smooth` and take the softmax.",
            ),
            Trial(
                lambda answer: all(
                    _weighs_like(answer, _attention_weights, smooth, seed)
                    for smooth, seed in ((1.0, 8), (20.0, 9))
                ),
                "It is right for smooth = 9: let `smooth` decide.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _weighs_like(answer, _over_the_context, 9.0),
                "You divided each row by its length. Divide each column: an element's affinities with all "
                "queries.",
            ),
            Trial(
                lambda answer: _weighs_like(answer, _clipped_to_zero, 9.0),
                "Below zero a tenth must remain. You clip to zero, as the paper prints it.",
            ),
            Trial(
                lambda answer: _weighs_like(answer, _not_clipped, 9.0),
                "The clip is missing: of affinities below zero only a tenth remains.",
            ),
            Trial(
                lambda answer: _weighs_like(answer, _not_divided, 9.0),
                "The division is missing: divide each column by its length before the softmax.",
            ),
            Trial(
                lambda answer: _weighs_like(answer, lambda q, c, _: _attention_weights(q, c, 1.0)),
                "`smooth` is missing: multiply by it before the softmax.",
            ),
            Trial(
                lambda answer: _weighs_like(answer, _divided_by_the_sum),
                "You divided each column by its sum. Its length is the root of the sum of its squares.",
            ),
            Trial(
                lambda answer: _weighs_like(answer, _softmax_over_queries, 9.0),
                "The softmax goes over the queries. Each query shares out a weight of one over the context.",
            ),
        ),
        reference=_attention_weights,
        message="Right. These are SCAN's weights.",
    ),
    "07.divide": Exercise(
        "Which points better?",
        "predict",
        3,
        one_of("affinity", "weight", "the same"),
        difficulty="easy",
        message=NOTED,
    ),
    "07.score": Exercise(
        "What the words have found",
        "code",
        10,
        (
            Trial(
                lambda answer: torch.as_tensor(answer(*_weighted(4), 6.0)).numel() == 1,
                "Return one number: how well the caption fits the picture.",
            ),
            Trial(
                lambda answer: _scores_like(answer, _score, queries=1),
                "With one query the score is its relevance: the cosine of the query and the weighted sum of "
                "the context's vectors, each of length one.",
            ),
            Trial(
                lambda answer: _scores_like(answer, _score),
                "One query is right. Of several, take the logarithm of the sum of exp(lse · relevance), "
                "divided by `lse`.",
            ),
            Trial(
                lambda answer: _scores_like(answer, _score, 1.5) and _scores_like(answer, _score, 50.0),
                "It is right for lse = 6: let `lse` decide.",
            ),
            Trial(
                _score_has_gradient,
                "No gradient, or a wrong one, arrives at the context: stay with torch's operations, without "
                ".item(), detach or numpy.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _scores_like(answer, _mean_of_relevance),
                "That is the mean of the relevances, the paper's other choice. Here we want the log-sum-exp.",
            ),
            Trial(
                lambda answer: _scores_like(answer, _not_divided_by_lse),
                "Divide the logarithm by `lse`.",
            ),
            Trial(
                lambda answer: _scores_like(answer, _of_raw_context),
                "Scale the context's vectors to length one before you add them up: a long vector would count "
                "more.",
            ),
            Trial(
                lambda answer: _scores_like(answer, _of_products),
                "Relevance is a cosine: divide by the length of the weighted sum too.",
            ),
        ),
        reference=_score,
        message="Right. With the weights above, this is SCAN.",
    ),
    "07.word": Exercise(
        "A query of one word",
        "compute",
        6,
        (
            Trial(
                lambda answer: 0 <= float(answer) <= 1,
                "A weight lies between 0 and 1.",
            ),
            Trial(
                lambda answer: near(answer, 0.5, 2e-3),
                "Each column has one entry. What does a positive number become when it is divided by its own "
                "length?",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 0.989, 2e-3),
                "That leaves out the division: each column is divided by its length, and a column has one "
                "entry.",
            ),
            Trial(
                lambda answer: near(answer, 1 / 3, 4e-3),
                "The third box is below zero, so it does not become 1.",
            ),
            Trial(
                lambda answer: near(answer, 1.0, 2e-3),
                "The first box fits best, but what is left of that after the division?",
            ),
        ),
        difficulty="easy",
    ),
    "07.break": Exercise(
        "The largest weight",
        "break",
        6,
        (
            Trial(
                lambda answer: 1 / 36 <= float(answer) <= 1,
                "It is at least that of 36 equal shares, and at most 1.",
            ),
            Trial(
                lambda answer: near(answer, _LARGEST, 1e-3),
                "The best case: one box has the normalised affinity 1, all others 0. What does the softmax "
                "make of these 36 numbers?",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 1 / 36, 1e-3),
                "That is the weight if all affinities are equal: here one box is as far ahead as it can be.",
            ),
            Trial(
                lambda answer: near(answer, math.e / (math.e + 35 / math.e), 2e-3),
                "Clipped affinities are never below 0: those of the others are 0, not -1.",
            ),
            Trial(
                lambda answer: near(answer, math.exp(9) / (math.exp(9) + 35), 2e-3),
                "That is for a factor of nine: here it is one.",
            ),
            Trial(
                lambda answer: near(answer, math.e / (math.e + 36), 2e-4),
                "There are 36 boxes in all, so 35 others.",
            ),
        ),
    ),
    "07.focus": Exercise(
        "Leave out what matters less",
        "code",
        14,
        (
            Trial(
                lambda answer: tuple(answer(_SPREAD.clone(), "equal").shape) == (3, 4),
                "Return weights of the same shape, (n, m).",
            ),
            Trial(
                lambda answer: _keeps_the_same(answer, "equal"),
                'With "equal", `trust` is 1: a weight stays if its leads add up to more than 0.',
            ),
            Trial(
                lambda answer: _refocuses_like(answer, _refocus, "equal"),
                "The right ones stay. Now divide each row by its sum, so that the weights add up to one.",
            ),
            Trial(
                lambda answer: _refocuses_like(answer, _refocus, "prob"),
                'With "prob", the lead over a_k counts √a_k times.',
            ),
            Trial(
                lambda answer: all(
                    _refocuses_like(answer, _refocus, focus, weights)
                    for focus in ("equal", "prob")
                    for weights in (_EVEN, _ALONE)
                ),
                "All weights equal, or only one: nothing leads, and nothing would stay. The largest of a row "
                "always stays.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: (
                    _refocuses_like(answer, _not_renormalised, "equal")
                    and _refocuses_like(answer, _not_renormalised, "prob")
                ),
                "The right ones stay. Now divide each row by its sum, so that the weights add up to one.",
            ),
            Trial(
                lambda answer: _refocuses_like(answer, _focuses_swapped, "equal"),
                'You took √a for "equal" and 1 for "prob": it is the other way round.',
            ),
        ),
        reference=_refocus,
        message="Right. These are BFAN's weights.",
    ),
    "07.fast": Exercise(
        "Relevance without reading",
        "code",
        12,
        (
            Trial(
                lambda answer: tuple(answer(*_products(7)).shape) == (4,),
                "Return one relevance for each query, (n,).",
            ),
            Trial(
                _reads_one_box,
                "A word with all its weight on one box reads that box: its relevance is their affinity.",
            ),
            Trial(
                lambda answer: _answers_like(answer, _relevance_from_products),
                "Divide the sum of weights times affinities by the root of aᵀGa, for each query with its own "
                "weights a.",
            ),
            Trial(
                lambda answer: torch.allclose(
                    answer(*_products(11, 1, 1)), _relevance_from_products(*_products(11, 1, 1)), atol=1e-6
                ),
                "It must hold for one word and one box too.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _answers_like(answer, _without_length),
                "That is the product with the attended vector. For the cosine, divide by its length.",
            ),
            Trial(
                lambda answer: _answers_like(answer, _square_of_length),
                "aᵀGa is the square of the length: take its root.",
            ),
            Trial(
                lambda answer: _answers_like(answer, _as_at_right_angles),
                "That would be the length if the boxes' vectors were at right angles to each other. G knows "
                "their cosines.",
            ),
        ),
        reference=_relevance_from_products,
        message="Right. No attended vector, the same cosine.",
    ),
    "07.bill": Exercise(
        "How long was their caption?",
        "compute",
        5,
        (
            Trial(
                lambda answer: 1 < float(answer) < 100,
                "A caption has more than one word and fewer than a hundred.",
            ),
            Trial(
                lambda answer: near(answer, _WORDS, 0.4),
                "Solve 2 L N D = 1.24 million for L, with 36 regions and a width of 1,024.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 2 * _WORDS, 0.8),
                "Each word meets each region twice: once for the affinity, once when it reads.",
            ),
            Trial(
                lambda answer: near(answer, 1.24e6 / 16.4e3, 0.5),
                "That is how many times as much SCAN costs as sets of four.",
            ),
        ),
        difficulty="easy",
    ),
    "07.explore": Exercise("Change one thing", "explore", 15, EXPLORED, message="Noted."),
}
