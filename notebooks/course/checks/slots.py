"""Exercises of notebook 14: slots that share out the elements, and sets compared by smooth-Chamfer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, gradient_of, one_of
from vsecore.similarity import unit

# ---------------------------------------------------------------- 14.shares


def _shares(keys: Tensor, queries: Tensor, mask: Tensor) -> Tensor:
    M = queries @ keys.mT / math.sqrt(keys.shape[-1])  # (B, K, N)
    return torch.where(mask.unsqueeze(1), M.softmax(1), 0)


def _elements(counts: list[int], filler: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Keys (B, 6, 9), the padding's filled with a number; three queries each, (B, 3, 9); a mask (B, 6)."""
    generator = torch.Generator().manual_seed(14)
    keys, queries = (torch.randn(len(counts), n, 9, generator=generator) for n in (6, 3))
    mask = torch.arange(6) < torch.tensor(counts)[:, None]
    return keys.masked_fill(~mask[..., None], filler), queries, mask


def _like(reference: Callable[..., Tensor], answer: Callable[..., Any], *given: Any) -> bool:
    """Whether an answer gives the same numbers, in the same shape, as something else."""
    made, expected = answer(*given), reference(*given)
    return made.shape == expected.shape and torch.allclose(made, expected, atol=1e-5)


def _over_elements(keys: Tensor, queries: Tensor, mask: Tensor) -> Tensor:
    M = queries @ keys.mT / math.sqrt(keys.shape[-1])
    return M.masked_fill(~mask.unsqueeze(1), -torch.inf).softmax(2)


def _not_divided(keys: Tensor, queries: Tensor, mask: Tensor) -> Tensor:
    return _shares(3 * keys, queries, mask)


def _real_cleared(answer: Callable[..., Any]) -> bool:
    made = answer(*_elements([6, 4]))
    return bool((made[0] == 0).all() and (made[1, :, :4] == 0).all())


# ---------------------------------------------------------------- 14.receive


def _receive(slots: Tensor, values: Tensor, A: Tensor, W_o: Tensor) -> Tensor:
    weights = A / A.sum(2, keepdim=True)  # (B, K, N)
    return slots + weights @ values @ W_o


def _shared() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Slots (2, 3, 4), values (2, 6, 5), shares (2, 3, 6) with padding in the second row, W_o (5, 4)."""
    generator = torch.Generator().manual_seed(3)
    slots, values, logits = (
        torch.randn(2, *shape, generator=generator) for shape in ((3, 4), (6, 5), (3, 6))
    )
    A = logits.softmax(1)
    A[1, :, 4:] = 0
    return slots, values, A, torch.randn(5, 4, generator=generator)


def _not_normalised(slots: Tensor, values: Tensor, A: Tensor, W_o: Tensor) -> Tensor:
    return slots + A @ values @ W_o


def _no_residual(slots: Tensor, values: Tensor, A: Tensor, W_o: Tensor) -> Tensor:
    return _receive(torch.zeros_like(slots), values, A, W_o)


def _divided_over_slots(answer: Callable[..., Any]) -> bool:
    slots, values, A, W_o = _shared()
    slots, values, A = slots[:1], values[:1], A[:1]  # no padding here, where it would be 0 / 0
    return torch.allclose(answer(slots, values, 2 * A, W_o), slots + A @ values @ W_o, atol=1e-5)


def _softmax_again(slots: Tensor, values: Tensor, A: Tensor, W_o: Tensor) -> Tensor:
    return slots + A.softmax(2) @ values @ W_o


def _receive_learns(answer: Callable[..., Any]) -> bool:
    slots, values, A, W_o = _shared()
    expected = gradient_of(lambda x: _receive(slots, values, x, W_o).square(), A.clone())
    return torch.allclose(
        gradient_of(lambda x: answer(slots, values, x, W_o).square(), A), expected, atol=1e-4
    )


# ---------------------------------------------------------------- 14.overlap


def _overlap(weights: Tensor) -> Tensor:
    first, second = torch.triu_indices(weights.shape[1], weights.shape[1], 1)
    return torch.minimum(weights[:, first], weights[:, second]).sum(2).mean(1)


def _maps() -> Tensor:
    """Weights (3, 4, 7), each row adding up to one."""
    return (2 * torch.randn(3, 4, 7, generator=torch.Generator().manual_seed(5))).softmax(2)


def _with_itself(weights: Tensor) -> Tensor:
    return torch.minimum(weights.unsqueeze(1), weights.unsqueeze(2)).sum(3).mean((1, 2))


def _apart() -> Tensor:
    return torch.eye(4)[None]


# ---------------------------------------------------------------- 14.smooth


def _smooth(v: Tensor, t: Tensor, alpha: float) -> Tensor:
    c = torch.einsum("bkd,cld->bckl", unit(v), unit(t))  # (B, C, K, L)
    return ((alpha * c).logsumexp(3).mean(2) + (alpha * c).logsumexp(2).mean(2)) / (2 * alpha)


def _sets(k: int = 4, n: int = 3, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Two pictures' sets (2, k, 6) and three captions' (3, n, 6), of unit length if scale is 1."""
    generator = torch.Generator().manual_seed(10 * k + n)
    v, t = (torch.randn(*shape, 6, generator=generator) for shape in ((2, k), (3, n)))
    return scale * unit(v), scale * unit(t)


def _one_sided(v: Tensor, t: Tensor, alpha: float) -> Tensor:
    c = alpha * torch.einsum("bkd,cld->bckl", v, t)
    return c.logsumexp(3).mean(2) / alpha


def _other_sided(v: Tensor, t: Tensor, alpha: float) -> Tensor:
    c = alpha * torch.einsum("bkd,cld->bckl", v, t)
    return c.logsumexp(2).mean(2) / alpha


def _twice(v: Tensor, t: Tensor, alpha: float) -> Tensor:
    return 2 * _smooth(v, t, alpha)


def _summed(v: Tensor, t: Tensor, alpha: float) -> Tensor:
    c = alpha * torch.einsum("bkd,cld->bckl", v, t)
    return (c.logsumexp(3).sum(2) + c.logsumexp(2).sum(2)) / (2 * alpha)


def _not_divided_by_alpha(v: Tensor, t: Tensor, alpha: float) -> Tensor:
    return alpha * _smooth(v, t, alpha)


def _hard(v: Tensor, t: Tensor, alpha: float) -> Tensor:
    c = torch.einsum("bkd,cld->bckl", v, t)
    return (c.amax(3).mean(2) + c.amax(2).mean(2)) / 2


def _mean_inside(v: Tensor, t: Tensor, alpha: float) -> Tensor:
    k, n = v.shape[1], t.shape[1]
    return _smooth(v, t, alpha) - (math.log(n) + math.log(k)) / (2 * alpha)


def _one_log(v: Tensor, t: Tensor, alpha: float) -> Tensor:
    return (alpha * torch.einsum("bkd,cld->bckl", v, t)).logsumexp((2, 3)) / alpha


def _no_alpha_inside(v: Tensor, t: Tensor, alpha: float) -> Tensor:
    return _smooth(v, t, 1.0) / alpha


def _smooth_learns(answer: Callable[..., Any]) -> bool:
    v, t = _sets()
    gradient = gradient_of(lambda x: answer(x, t, 16.0), v)
    return bool(gradient.isfinite().all()) and bool(gradient.abs().sum() > 0)


# ---------------------------------------------------------------- 14.gradient


def _gradient(c: Tensor, alpha: float) -> Tensor:
    rows, columns = (alpha * c).softmax(1), (alpha * c).softmax(0)  # (K, L) each
    return rows / (2 * c.shape[0]) + columns / (2 * c.shape[1])


def _cosines(k: int = 4, n: int = 3) -> Tensor:
    return 2 * torch.rand(k, n, generator=torch.Generator().manual_seed(k)) - 1


def _only_rows(c: Tensor, alpha: float) -> Tensor:
    return (alpha * c).softmax(1) / c.shape[0]


def _only_columns(c: Tensor, alpha: float) -> Tensor:
    return (alpha * c).softmax(0) / c.shape[1]


def _sizes_swapped(c: Tensor, alpha: float) -> Tensor:
    return (alpha * c).softmax(1) / (2 * c.shape[1]) + (alpha * c).softmax(0) / (2 * c.shape[0])


def _with_alpha(c: Tensor, alpha: float) -> Tensor:
    return alpha * _gradient(c, alpha)


def _not_halved(c: Tensor, alpha: float) -> Tensor:
    return 2 * _gradient(c, alpha)


def _over_all_pairs(c: Tensor, alpha: float) -> Tensor:
    return (alpha * c).flatten().softmax(0).view_as(c)


def _no_alpha(c: Tensor, alpha: float) -> Tensor:
    return _gradient(c, 1.0)


def _without_sizes(c: Tensor, alpha: float) -> Tensor:
    return ((alpha * c).softmax(1) + (alpha * c).softmax(0)) / 2


def _alpha_left(c: Tensor, alpha: float) -> Tensor:
    return _gradient(c, alpha) / alpha


def _one_term_halved(c: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    rows, columns = (alpha * c).softmax(1) / c.shape[0], (alpha * c).softmax(0) / c.shape[1]
    return rows + columns / 2, rows / 2 + columns


EXERCISES: dict[str, Exercise] = {
    "14.shares": Exercise(
        "Share out the elements",
        "code",
        10,
        (
            Trial(
                lambda answer: (
                    isinstance(made := answer(*_elements([6, 6])), Tensor) and made.shape == (2, 3, 6)
                ),
                "Return a share for each slot and each element, (B, K, N).",
            ),
            Trial(
                lambda answer: torch.allclose(answer(*_elements([6, 6])).sum(1), torch.ones(2, 6), atol=1e-5),
                "Each element is shared out whole: over the slots, its shares add up to 1. Which dimension "
                "are the slots?",
            ),
            Trial(
                lambda answer: _like(_shares, answer, *_elements([6, 6])),
                "The softmax takes the products of queries and keys, divided by the square root of their "
                "width.",
            ),
            Trial(
                lambda answer: _like(_shares, answer, *_elements([6, 4, 1])),
                "Padding gives nothing to any slot: its shares must be 0, and the others stay as they are.",
            ),
            Trial(
                lambda answer: _like(_shares, answer, *_elements([6, 4, 1], float("nan"))),
                "Padding may hold anything, NaN too, and zero times NaN is NaN: try torch.where or "
                "masked_fill "
                "after the softmax.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _like(_over_elements, answer, *_elements([6, 4])),
                "That is the softmax of a Transformer, over the elements. Here each element is shared out "
                "among the slots.",
            ),
            Trial(
                lambda answer: _like(_not_divided, answer, *_elements([6, 6])),
                "These shares are too sharp: divide the products by the square root of the keys' width.",
            ),
            Trial(
                lambda answer: bool(answer(*_elements([6, 4])).isnan().any()),
                "Where all slots have minus infinity, the softmax over slots is NaN: set the padding to 0 "
                "after the softmax, not before it.",
            ),
            Trial(
                _real_cleared,
                "You cleared the real elements: mask is True where an element is real, so ~mask is what must "
                "go.",
            ),
            Trial(
                lambda answer: torch.allclose(
                    answer(*_elements([6, 4]))[1, :, 4:], torch.full((3, 2), 1 / 3), atol=1e-4
                ),
                "The padding is shared out in equal parts: set its shares to 0 after the softmax.",
            ),
        ),
        reference=_shares,
        instead=("scaled_dot_product_attention", "MultiheadAttention"),
        message="Right. This is A of equation 2.",
    ),
    "14.receive": Exercise(
        "What a slot receives",
        "code",
        10,
        (
            Trial(
                lambda answer: isinstance(made := answer(*_shared()), Tensor) and made.shape == (2, 3, 4),
                "Return the slots after the sum, (B, K, D).",
            ),
            Trial(
                lambda answer: torch.allclose(
                    answer(0 * (shared := _shared())[0], torch.ones(2, 6, 5), *shared[2:]),
                    shared[3].sum(0).expand(2, 3, 4),
                    atol=1e-5,
                ),
                "A slot takes a mean: if all values are alike, it must receive that value. Divide its "
                "shares by "
                "their sum over the elements.",
            ),
            Trial(
                lambda answer: _like(_receive, answer, *_shared()),
                "What is received goes through W_o, and is added to the slots as they were.",
            ),
            Trial(
                _receive_learns,
                "No gradient, or a wrong one, arrives at A: stay with torch's operations, without .item(), "
                "detach or numpy.",
            ),
        ),
        mistakes=(
            Trial(
                _divided_over_slots,
                "You divided by the sum over the slots, which is already 1 for each element. Divide "
                "by the sum "
                "over the elements.",
            ),
            Trial(
                lambda answer: _like(_not_normalised, answer, *_shared()),
                "You added sums, not means: a slot that takes many elements would grow. First divide "
                "A by its "
                "sum over the elements.",
            ),
            Trial(
                lambda answer: _like(_no_residual, answer, *_shared()),
                "The slots as they were are missing: equation 3 adds to them.",
            ),
            Trial(
                lambda answer: _like(_softmax_again, answer, *_shared()),
                "A second softmax makes the shares nearly equal. Divide them by their sum.",
            ),
        ),
        reference=_receive,
        message="Right. This is equation 3.",
    ),
    "14.break": Exercise(
        "Break it",
        "break",
        8,
        (
            Trial(lambda answer: 0 < float(answer) < 1, "It is a share: between 0 and 1."),
            Trial(
                lambda answer: near(answer, 3 / 8, 1e-3),
                "All shares are equal, for words and for padding. How many of the positions are padding?",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 0.0, 1e-6),
                "That would hold with minus infinity in a softmax over the elements. Here the "
                "softmax is over "
                "the slots.",
            ),
            Trial(
                lambda answer: near(answer, 3 / 32, 1e-3),
                "That is the padding's part, times a slot's share of it. Equation 3 divides by what "
                "the slot has "
                "in all, so the share cancels.",
            ),
            Trial(
                lambda answer: near(answer, 3 / 4, 1e-3),
                "That is what a slot has of the padding, three quarters of a position. Divide by "
                "what it has in "
                "all.",
            ),
            Trial(
                lambda answer: near(answer, 1 / 4, 1e-3),
                "That is a slot's share of one position. Which part of all that the slot receives is "
                "padding?",
            ),
            Trial(
                lambda answer: near(answer, 3 / 5, 1e-3), "Divide by all positions, not by the words alone."
            ),
            Trial(
                lambda answer: near(answer, 5 / 8, 1e-3), "That is the words' part. The padding has the rest."
            ),
        ),
    ),
    "14.overlap": Exercise(
        "How far two slots overlap",
        "code",
        8,
        (
            Trial(
                lambda answer: isinstance(made := answer(_maps()), Tensor) and made.shape == (3,),
                "Return one number for each picture, (B,).",
            ),
            Trial(
                lambda answer: torch.allclose(
                    answer(_maps()[:, :1].expand(-1, 4, -1)), torch.ones(3), atol=1e-5
                ),
                "Slots with the same weights overlap by 1: for two slots, add up the smaller of their two "
                "weights over the elements; then take the mean over the pairs.",
            ),
            Trial(
                lambda answer: torch.allclose(answer(_apart()), torch.zeros(1), atol=1e-5),
                "Slots that share no element overlap by 0: a slot and itself are no pair.",
            ),
            Trial(
                lambda answer: _like(_overlap, answer, _maps()),
                "Each pair of different slots counts once: the mean over the K (K - 1) / 2 pairs of the "
                "sum of "
                "the smaller weights.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _like(_with_itself, answer, _maps()),
                "You also compared each slot with itself, where the overlap is always 1.",
            ),
        ),
        reference=_overlap,
    ),
    "14.smooth": Exercise(
        "Smooth-Chamfer",
        "code",
        12,
        (
            Trial(
                lambda answer: isinstance(made := answer(*_sets(), 16.0), Tensor) and made.shape == (2, 3),
                "Return a number for each picture with each caption, (B, C).",
            ),
            Trial(
                lambda answer: _like(_smooth, answer, *_sets(1, 1), 16.0),
                "With one vector in each set the result is their cosine. What remains of log-sum-exp for a "
                "single number, and what must it be divided by?",
            ),
            Trial(
                lambda answer: _like(_smooth, answer, *_sets(4, 4), 16.0),
                "Each vector of one set has a log-sum-exp over the other set; take the mean of these, both "
                "ways, and half of each.",
            ),
            Trial(
                lambda answer: all(_like(_smooth, answer, *_sets(), alpha) for alpha in (1.0, 16.0)),
                "Two sets of different sizes, or another alpha: each side is divided by its own number of "
                "elements.",
            ),
            Trial(
                lambda answer: _like(_smooth, answer, *_sets(), 200.0),
                "A large alpha gives infinity: exp(200) is too large for float32. torch.logsumexp never "
                "forms "
                "it.",
            ),
            Trial(
                _smooth_learns,
                "No gradient arrives at the sets: stay with torch's operations, without .item(), detach or "
                "numpy.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: any(
                    _like(wrong, answer, *_sets(), 16.0) for wrong in (_one_sided, _other_sided)
                ),
                "That is one direction. The other set's vectors look for their partners too.",
            ),
            Trial(
                lambda answer: _like(_hard, answer, *_sets(), 16.0),
                "That is Chamfer, with maxima: the limit of what is wanted as alpha grows. Put "
                "log-sum-exp in "
                "their place.",
            ),
            Trial(
                lambda answer: _like(_mean_inside, answer, *_sets(), 16.0),
                "You took the log of a mean: it lacks log K. Equation 6 has the log of the sum.",
            ),
            Trial(
                lambda answer: _like(_one_log, answer, *_sets(), 16.0),
                "That is one log-sum-exp over all pairs. Each vector has one of its own, over the other set.",
            ),
            Trial(
                lambda answer: any(
                    _like(wrong, answer, *_sets(), 16.0)
                    for wrong in (_no_alpha_inside, lambda v, t, alpha: _smooth(v, t, 1.0))
                ),
                "The alpha inside the exponentials is missing: multiply the cosines by it first.",
            ),
            Trial(lambda answer: _like(_twice, answer, *_sets(), 16.0), "Each direction counts half."),
            Trial(
                lambda answer: _like(_summed, answer, *_sets(), 16.0),
                "You summed over the vectors: divide each side by its number of vectors.",
            ),
            Trial(
                lambda answer: _like(_not_divided_by_alpha, answer, *_sets(), 16.0),
                "Divide by alpha at the end, so that the result is on the scale of the cosine.",
            ),
        ),
        reference=_smooth,
        message="Right. It gives what vsecore.similarity.smooth_chamfer gives.",
    ),
    "14.gradient": Exercise(
        "The gradient by hand",
        "code",
        12,
        (
            Trial(
                lambda answer: isinstance(made := answer(_cosines(), 16.0), Tensor) and made.shape == (4, 3),
                "Return a number for each pair of vectors, (K, L).",
            ),
            Trial(
                lambda answer: near(answer(_cosines(), 16.0).sum(), 1.0, 1e-4),
                "All pairs together get 1: each of the two softmaxes adds up to 1 in each row, or in each "
                "column.",
            ),
            Trial(
                lambda answer: _like(_gradient, answer, _cosines(4, 4), 16.0),
                "The first term compares a pair with those of the same x, the second with those of the "
                "same y.",
            ),
            Trial(
                lambda answer: all(_like(_gradient, answer, _cosines(), alpha) for alpha in (1.0, 16.0)),
                "Sets of different sizes: the sum over y belongs to 1 / (2 K), the sum over x to 1 / (2 L).",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: any(
                    _like(wrong, answer, _cosines(), 16.0) for wrong in (_only_rows, _only_columns)
                ),
                "That is one of the two terms of equation 8.",
            ),
            Trial(
                lambda answer: _like(_sizes_swapped, answer, _cosines(), 16.0),
                "The two sizes are swapped: a softmax in each row, over y, goes with the number of rows.",
            ),
            Trial(
                lambda answer: _like(_with_alpha, answer, _cosines(), 16.0),
                "The derivative of the exponent brings an alpha, and the 1 / (2 alpha) in front removes it.",
            ),
            Trial(
                lambda answer: _like(_alpha_left, answer, _cosines(), 16.0),
                "The 1 / alpha is gone: the derivative of the exponent brings an alpha, which cancels it.",
            ),
            Trial(
                lambda answer: _like(_no_alpha, answer, _cosines(), 16.0),
                "The alpha in the exponents is missing: multiply the cosines by it before each softmax.",
            ),
            Trial(
                lambda answer: any(
                    _like(wrong, answer, _cosines(), 16.0)
                    for wrong in (_without_sizes, lambda c, alpha: 2 * _without_sizes(c, alpha))
                ),
                "The sizes are missing: the rows' softmax has 1 / (2 K), the columns' 1 / (2 L).",
            ),
            Trial(
                lambda answer: any(
                    torch.allclose(answer(_cosines(), 16.0), wrong, atol=1e-5)
                    for wrong in _one_term_halved(_cosines(), 16.0)
                ),
                "Both terms have the one half, not only one of them.",
            ),
            Trial(lambda answer: _like(_not_halved, answer, _cosines(), 16.0), "Each direction counts half."),
            Trial(
                lambda answer: _like(_over_all_pairs, answer, _cosines(), 16.0),
                "That is one softmax over all pairs. Equation 8 has two, each over one set.",
            ),
        ),
        reference=_gradient,
        instead=("grad", "backward"),
        message="Right. This is equation 8.",
    ),
    "14.collapse": Exercise(
        "Which sets collapse?",
        "predict",
        3,
        one_of("MIL", "match probability", "smooth-Chamfer"),
        difficulty="easy",
        message=NOTED,
    ),
    "14.cost": Exercise(
        "What a pair costs",
        "compute",
        5,
        (
            Trial(lambda answer: float(answer) > 1000, "Each cosine alone takes D multiply-adds."),
            Trial(
                lambda answer: near(answer, 16_384, 164),  # within 1 %: "16.4K" is right
                "Every vector of one set meets every vector of the other: how many cosines are these?",
            ),
        ),
        mistakes=(
            Trial(lambda answer: near(answer, 1024, 0.5), "That is one vector against one."),
            Trial(lambda answer: near(answer, 4096, 0.5), "That is one vector against a set of four."),
            Trial(lambda answer: near(answer, 8192, 0.5), "Four vectors meet four: they are not added."),
            Trial(
                lambda answer: near(answer, 32_768, 0.5), "A multiplication with its addition counts once."
            ),
        ),
        difficulty="easy",
        message="Right. The paper says 16.4K.",
    ),
    "14.explore": Exercise("Change one thing", "explore", 20, EXPLORED, difficulty="hard", message="Noted."),
}
