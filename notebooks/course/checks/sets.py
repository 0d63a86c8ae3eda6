"""The exercises of notebook 13, *Sets: more than one vector*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, gradient_of
from vsecore.sets import circular_variance, look
from vsecore.similarity.sets import match_probability, mil

Function = Callable[..., Any]

# ---------------------------------------------------------------- 13.heads


def _heads(x: Tensor, mask: Tensor, W1: Tensor, W2: Tensor) -> Tensor:
    return look(_Logits(W1, W2), x, mask)[1]


class _Logits(torch.nn.Module):
    """The logits of heads of attention with given weights."""

    def __init__(self, W1: Tensor, W2: Tensor) -> None:
        super().__init__()
        self.W1, self.W2 = W1, W2

    def forward(self, x: Tensor) -> Tensor:
        """Give each element a logit from each head, (B, N, D) to (B, N, K)."""
        return (x @ self.W1).tanh() @ self.W2


def _attended(counts: list[int], filler: float = 0.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Elements (B, 5, 6) whose padding holds `filler`, their mask, and weights (6, 7) and (7, 3)."""
    generator = torch.Generator().manual_seed(13)
    x = torch.randn(len(counts), 5, 6, generator=generator)
    mask = torch.arange(5) < torch.tensor(counts)[:, None]
    W1, W2 = (2 * torch.randn(*shape, generator=generator) for shape in ((6, 7), (7, 3)))
    return x.masked_fill(~mask[..., None], filler), mask, W1, W2


def _same_as_heads(heads: Function, counts: list[int], filler: float = 0.0, sharpness: float = 1.0) -> bool:
    x, mask, W1, W2 = _attended(counts, filler)
    return torch.allclose(heads(x, mask, W1, sharpness * W2), _heads(x, mask, W1, sharpness * W2), atol=1e-5)


def _without_tanh(heads: Function) -> bool:
    x, mask, W1, W2 = _attended([5, 5])
    return torch.allclose(heads(x, mask, W1, W2), (x @ W1 @ W2).softmax(1).mT @ x, atol=1e-5)


def _over_heads(heads: Function) -> bool:
    x, mask, W1, W2 = _attended([5, 5])
    weights = _Logits(W1, W2)(x).softmax(2)  # (B, N, K)
    return torch.allclose(heads(x, mask, W1, W2), weights.mT @ x, atol=1e-5)


def _mask_inverted(heads: Function) -> bool:
    x, mask, W1, W2 = _attended([5, 3])
    x = x.masked_fill(~mask[..., None], 2.0)
    made = heads(x, mask, W1, W2)[1]  # (K, D), of the row with padding
    only_padding = torch.allclose(made, torch.full_like(made, 2.0), atol=1e-4)
    return only_padding or bool((made.isnan() | (made == 0)).all())


def _heads_learn(heads: Function) -> bool:
    x, mask, W1, W2 = _attended([5, 3])
    expected = gradient_of(lambda weight: _heads(x, mask, W1, weight), W2.clone())
    return torch.allclose(gradient_of(lambda weight: heads(x, mask, W1, weight), W2), expected, atol=1e-5)


# ---------------------------------------------------------------- 13.mil and 13.match


def _sets(seed: int, length: float = 1.0) -> tuple[Tensor, Tensor]:
    """Sets of three pictures, (3, 2, 5), and of four captions, (4, 3, 5), of a mean length."""
    generator = torch.Generator().manual_seed(seed)
    v, t = (torch.randn(*shape, generator=generator) for shape in ((3, 2, 5), (4, 3, 5)))
    unit = (one / one.norm(dim=-1, keepdim=True) for one in (v, t))
    first, second = (length * one for one in unit)
    return first, second


def _like_mil(similarity: Function, length: float = 1.0) -> bool:
    v, t = _sets(3, length)
    return torch.allclose(similarity(v, t), mil(v, t), atol=1e-5)


def _mean_not_maximum(similarity: Function) -> bool:
    v, t = _sets(3)
    return torch.allclose(similarity(v, t), _cosines(v, t).mean((2, 3)), atol=1e-5)


def _best_partners(similarity: Function) -> bool:
    v, t = _sets(3)
    best = _cosines(v, t)
    return any(
        torch.allclose(similarity(v, t), found, atol=1e-5)
        for found in (best.amax(3).mean(2), best.amax(2).mean(2), best.amax(3).sum(2), best.amax(2).sum(2))
    )


def _chamfer(similarity: Function) -> bool:
    v, t = _sets(3)
    best = _cosines(v, t)
    wanted = (best.amax(3).mean(2) + best.amax(2).mean(2)) / 2
    return any(torch.allclose(similarity(v, t), n * wanted, atol=1e-5) for n in (1, 2))


def _wrong_lengths(similarity: Function) -> bool:
    """Whether the vectors were divided by a length that belongs to another dimension."""
    v, t = _sets(3)
    return any(
        torch.allclose(
            similarity(v, t), _cosines(normalize(v, dim=n), normalize(t, dim=n)).amax((2, 3)), atol=1e-5
        )
        for n in (0, 1)
    )


def _mean_vectors(similarity: Function) -> bool:
    v, t = _sets(3)
    first, second = (normalize(one.mean(1), dim=-1) for one in (v, t))
    return torch.allclose(similarity(v, t), first @ second.T, atol=1e-5)


def _cosines(v: Tensor, t: Tensor) -> Tensor:
    return torch.einsum("bkd,cld->bckl", v, t)  # of unit vectors


def _like_match(similarity: Function, scale: float, shift: float, length: float = 1.0) -> bool:
    v, t = _sets(4, length)
    return torch.allclose(similarity(v, t, scale, shift), match_probability(v, t, scale, shift), atol=1e-5)


def _sum_of_pairs(similarity: Function) -> bool:
    v, t = _sets(4)
    return torch.allclose(similarity(v, t, 3.0, -1.0), 6 * match_probability(v, t, 3.0, -1.0), atol=1e-4)


def _mean_first(similarity: Function) -> bool:
    v, t = _sets(4)
    made = (3.0 * _cosines(v, t).mean((2, 3)) - 1.0).sigmoid()
    return torch.allclose(similarity(v, t, 3.0, -1.0), made, atol=1e-5)


def _other_logit(similarity: Function, logit: Function) -> bool:
    v, t = _sets(4)
    made = logit(_cosines(v, t)).sigmoid().mean((2, 3))
    return torch.allclose(similarity(v, t, 3.0, -1.0), made, atol=1e-5)


def _sets_learn(similarity: Function, wanted: Function) -> bool:
    v, t = _sets(5)
    expected = gradient_of(lambda vectors: wanted(vectors, t), v.clone())
    return torch.allclose(gradient_of(lambda vectors: similarity(vectors, t), v), expected, atol=1e-5)


# ---------------------------------------------------------------- 13.variance


def _spread(variance: Function, length: float = 1.0) -> bool:
    sets = length * torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(6))
    return torch.allclose(variance(sets), circular_variance(sets), atol=1e-5)


def _is_like(variance: Function, other: Function) -> bool:
    sets = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(6))
    return torch.allclose(variance(sets), other(sets), atol=1e-5)


def _directions(sets: Tensor) -> Tensor:
    return normalize(sets, dim=-1)


def _mean_cosine(sets: Tensor) -> Tensor:
    """Of the pairs of different vectors of each set, (B,)."""
    x = _directions(sets)
    k = sets.shape[1]
    return ((x @ x.mT).sum((1, 2)) - k) / (k * (k - 1))


def _of_set(variance: Function, *vectors: tuple[float, float]) -> float:
    return float(variance(torch.tensor([vectors]))[0])


EXERCISES: dict[str, Exercise] = {
    "13.fits": Exercise(
        "How many pictures fit",
        "predict",
        3,
        (
            Trial(
                lambda answer: str(answer).strip() in {"1", "10", "50"},
                'Answer "1" or "10" or "50".',
            ),
        ),
        difficulty="easy",
        message=NOTED,
    ),
    "13.compromise": Exercise(
        "A vector between two",
        "compute",
        6,
        (
            Trial(
                lambda answer: -1 <= float(answer) <= 1,
                "A cosine is wanted: a number from -1 to 1.",
            ),
            Trial(
                lambda answer: float(answer) > 0,
                "The bisector lies less than a right angle from each of them.",
            ),
            Trial(
                lambda answer: near(answer, 0.5, 1e-3),
                "The best vector halves the angle of 120 degrees. What is the cosine of half of it?",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, -0.5, 1e-3),
                "That is the cosine between the two pictures. The vector between them halves the angle.",
            ),
            Trial(
                lambda answer: near(answer, -0.952413, 1e-3),
                "That is the cosine of 60 radians: the angle is in degrees.",
            ),
            Trial(
                lambda answer: near(answer, 0.866, 1e-3),
                "That is the cosine of 30 degrees: you halved the angle twice. The pictures lie 120 degrees "
                "apart.",
            ),
            Trial(
                lambda answer: near(answer, 0.0, 1e-3),
                "That is a right angle. Where would the vector have to lie?",
            ),
        ),
        difficulty="easy",
        message="Right. The caption is no nearer to either of its pictures than one half.",
    ),
    "13.heads": Exercise(
        "Heads of attention",
        "code",
        12,
        (
            Trial(
                lambda answer: (
                    isinstance(made := answer(*_attended([5, 5])), Tensor) and made.shape == (2, 3, 6)
                ),
                "Return one vector for each head, (B, K, D).",
            ),
            Trial(
                lambda answer: _same_as_heads(answer, [5, 5], sharpness=0.0),
                "With W2 = 0 every head is the mean of the elements. Over which dimension does the softmax "
                "go?",
            ),
            Trial(
                lambda answer: _same_as_heads(answer, [5, 5]),
                "A head's logits are tanh(x W1) W2. Their softmax over the elements weighs the elements "
                "themselves.",
            ),
            Trial(
                lambda answer: _same_as_heads(answer, [5, 3, 1]),
                "A set with padding: padding must have no weight, and the real elements must add up to 1.",
            ),
            Trial(
                lambda answer: all(
                    _same_as_heads(answer, [5, 3, 1], filler) for filler in (7.0, float("nan"), float("inf"))
                ),
                "Padding may hold anything, also infinity and NaN. Zero times NaN is NaN: clear the padding "
                "first.",
            ),
            Trial(
                _heads_learn,
                "No gradient, or a wrong one, arrives at W2: stay with torch's operations, without .item(), "
                "detach or numpy.",
            ),
        ),
        mistakes=(
            Trial(
                _mask_inverted,
                "You cleared or hid the real elements: mask is True where an element is real, so ~mask is "
                "what must go.",
            ),
            Trial(_without_tanh, "The tanh between the two layers is missing."),
            Trial(
                _over_heads,
                "Your softmax goes over the heads, so that they share out each element. In PIE-Net each head "
                "has a softmax of its own over the elements. (The next notebook lets them share.)",
            ),
        ),
        reference=_heads,
        message="Right. This is the attention of vsecore.sets.PIENet.",
    ),
    "13.mil": Exercise(
        "MIL",
        "code",
        8,
        (
            Trial(
                lambda answer: isinstance(made := answer(*_sets(3)), Tensor) and made.shape == (3, 4),
                "Return one number for each picture with each caption, (B, C).",
            ),
            Trial(_like_mil, "Of all K·L cosines of a picture and a caption, the largest is wanted."),
            Trial(
                lambda answer: _like_mil(answer, 3.0) and _like_mil(answer, 0.2),
                "Vectors need not have length one: c(x, y) is a cosine.",
            ),
            Trial(
                lambda answer: _sets_learn(answer, mil),
                "No gradient, or a wrong one, arrives at the vectors: stay with torch's operations, without "
                ".item(), detach or numpy.",
            ),
        ),
        mistakes=(
            Trial(
                _chamfer,
                "That is Chamfer: each vector finds its best partner, both ways. MIL takes one "
                "maximum over all "
                "pairs.",
            ),
            Trial(
                _wrong_lengths,
                "You divided along the wrong dimension: each vector has its length over the last one, D.",
            ),
            Trial(
                _mean_vectors,
                "You took the mean of each set first. MIL compares every vector with every other.",
            ),
            Trial(_mean_not_maximum, "That is the mean of the K·L cosines. MIL takes the largest."),
            Trial(
                _best_partners,
                "You gave each vector its best partner and took the mean or the sum over vectors: that is "
                "MaxSim, or half of Chamfer. MIL takes one maximum over all pairs.",
            ),
        ),
        reference=mil,
        message="Right. It gives what vsecore.similarity.sets.mil gives.",
    ),
    "13.sparse": Exercise(
        "Who learns?",
        "compute",
        6,
        (
            Trial(
                lambda answer: len(answer) == 2 and all(float(one) == int(one) for one in answer),
                "Two whole numbers: of the 16 cosines, then of the 8 vectors.",
            ),
            Trial(
                lambda answer: int(answer[0]) == 1,
                "The gradient of a maximum goes to what is largest. How many of the cosines are that?",
            ),
            Trial(
                lambda answer: int(answer[1]) == 2,
                "A cosine is made of two vectors: one of the picture and one of the caption.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: tuple(map(int, answer)) == (16, 8),
                "All of them would learn from a mean. This is a maximum.",
            ),
            Trial(
                lambda answer: tuple(map(int, answer)) in ((4, 4), (8, 8)),
                "Each vector looking for a partner would give that. MIL takes one maximum over all "
                "16 cosines.",
            ),
            Trial(
                lambda answer: tuple(map(int, answer)) == (2, 2),
                "Both vectors are right. But how many cosines do they make with each other?",
            ),
            Trial(
                lambda answer: tuple(map(int, answer)) == (4, 8),
                "That holds where each vector of one side looks for its best partner, as in MaxSim. MIL "
                "takes one maximum over all pairs.",
            ),
        ),
        difficulty="easy",
        message="Right: one in sixteen cosines, and a quarter of the vectors.",
    ),
    "13.match": Exercise(
        "Match probability",
        "code",
        8,
        (
            Trial(
                lambda answer: (
                    isinstance(made := answer(*_sets(4), 3.0, -1.0), Tensor) and made.shape == (3, 4)
                ),
                "Return one number for each picture with each caption, (B, C).",
            ),
            Trial(
                lambda answer: _like_match(answer, 0.0, 1.0),
                "With scale 0 every pair matches with probability σ(shift), and so does their mean.",
            ),
            Trial(
                lambda answer: _like_match(answer, 3.0, -1.0),
                "Each cosine becomes a probability, σ(scale · c + shift). Then the mean of the K·L "
                "probabilities is taken.",
            ),
            Trial(
                lambda answer: _like_match(answer, 3.0, -1.0, 4.0),
                "Vectors need not have length one: c(x, y) is a cosine.",
            ),
            Trial(
                lambda answer: _sets_learn(
                    lambda v, t: answer(v, t, 3.0, -1.0), lambda v, t: match_probability(v, t, 3.0, -1.0)
                ),
                "No gradient, or a wrong one, arrives at the vectors: stay with torch's operations, without "
                ".item(), detach or numpy.",
            ),
        ),
        mistakes=(
            Trial(
                _sum_of_pairs,
                "That is the sum, as the paper prints it: with 2 and 3 vectors six times the mean. Take the "
                "mean, as its text says.",
            ),
            Trial(
                lambda answer: _other_logit(answer, lambda c: 3.0 * (c - 1.0)),
                "You added the shift before you multiplied: the logit is scale · c + shift.",
            ),
            Trial(
                lambda answer: _other_logit(answer, lambda c: 3.0 * c + 1.0),
                "You subtracted the shift: the logit is scale · c + shift.",
            ),
            Trial(
                _mean_first,
                "You took the mean of the cosines before the sigmoid. Each pair has its own probability.",
            ),
        ),
        reference=match_probability,
        message="Right. It gives what vsecore.similarity.sets.match_probability gives.",
    ),
    "13.variance": Exercise(
        "Circular variance",
        "code",
        8,
        (
            Trial(
                lambda answer: (
                    isinstance(made := answer(torch.randn(4, 3, 5)), Tensor) and made.shape == (4,)
                ),
                "Return one number for each set, (B,).",
            ),
            Trial(
                lambda answer: near(_of_set(answer, (1.0, 0.0), (1.0, 0.0)), 0.0),
                "Two equal unit vectors: nothing is spread, so the result is 0.",
            ),
            Trial(
                lambda answer: near(_of_set(answer, (1.0, 0.0), (-1.0, 0.0)), 1.0),
                "Two opposite unit vectors cancel out: the result is 1.",
            ),
            Trial(
                lambda answer: _spread(answer) and _spread(answer, 5.0),
                "Only directions count: divide each vector by its length, take the mean over the set, and "
                "subtract the mean's length from one.",
            ),
            Trial(
                lambda answer: bool(
                    gradient_of(answer, torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(7)))
                    .abs()
                    .sum()
                    > 0
                ),
                "No gradient arrives: stay with torch's operations, without .item(), detach or numpy.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _is_like(answer, lambda x: 1 - _directions(x).mean(1).square().sum(-1)),
                "Nearly: you subtracted the squared length of the mean. Take the length, not its square.",
            ),
            Trial(
                lambda answer: _is_like(answer, lambda x: 1 - _mean_cosine(x)),
                "That is 1 minus the mean cosine of the pairs. The circular variance takes the mean of the "
                "directions first, then its length.",
            ),
            Trial(
                lambda answer: any(
                    _is_like(answer, lambda x, n=n: _directions(x).var(1, correction=n).mean(-1))
                    or _is_like(answer, lambda x, n=n: _directions(x).var(1, correction=n).sum(-1))
                    for n in (0, 1)
                ),
                "That is the ordinary variance of each dimension. Here the length of the mean "
                "direction counts.",
            ),
            Trial(
                lambda answer: near(_of_set(answer, (3.0, 0.0), (3.0, 0.0)), -2.0),
                "Vectors of length 3 gave -2: divide each by its length first.",
            ),
            Trial(
                lambda answer: (
                    near(_of_set(answer, (1.0, 0.0), (1.0, 0.0)), 1.0)
                    and near(_of_set(answer, (1.0, 0.0), (-1.0, 0.0)), 0.0)
                ),
                "That is the length of the mean, large where nothing is spread. Subtract it from one.",
            ),
        ),
        reference=circular_variance,
        message="Right. It gives what vsecore.sets.circular_variance gives.",
    ),
    "13.break": Exercise(
        "Break it",
        "break",
        6,
        (
            Trial(
                lambda answer: 1 <= int(answer) <= 4 and float(answer) == int(answer),
                "A set of four vectors holds one, two, three or four different ones.",
            ),
            Trial(
                lambda answer: int(answer) == 1,
                "What could make two heads differ? They begin alike, see the same elements, and each counts "
                "the same in the loss. Compare their gradients.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: int(answer) == 4,
                "Training can only pull apart what gets different gradients. Which head would get another "
                "gradient than its neighbour?",
            ),
            Trial(
                lambda answer: int(answer) == 2,
                "Which two, and why these? Nothing tells any head from another.",
            ),
        ),
        difficulty="easy",
        message="Right: what begins alike and gets the same gradient stays alike.",
    ),
    "13.explore": Exercise(
        "What keeps a set open", "explore", 20, EXPLORED, difficulty="hard", message="Noted."
    ),
}
