"""Exercises of notebook 14: slots that share out the elements, and sets compared by smooth-Chamfer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, inf, nan

from course.checks.comparing import between, equals, gradient, like, passed, same, shape
from course.checks.kinds import NO_GRADIENT, break_it, code, explore, predict
from course.checks.samples import normal, real
from vsecore.sets import SlotSetPrediction
from vsecore.similarity import unit


def shares(keys: Tensor, queries: Tensor, mask: Tensor) -> Tensor:
    M = queries @ keys.mT / math.sqrt(keys.shape[-1])  # (B, K, N)
    return torch.where(mask.unsqueeze(1), M.softmax(1), 0)


def elements(counts: Sequence[int] = (6, 4), filler: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Keys (B, 6, 9), the padding's filled with a number; three queries each, (B, 3, 9); a mask (B, 6)."""
    keys, queries = normal((len(counts), 6, 9), (len(counts), 3, 9), seed=14)
    mask = real(counts, 6)
    return keys.masked_fill(~mask[..., None], filler), queries, mask


def shares_over(
    keys: Tensor, queries: Tensor, mask: Tensor, dim: int = 1, hidden: float | None = None
) -> Tensor:
    """The softmax over slots or elements, in which the padding's logits are hidden by a number, if at all."""
    M = queries @ keys.mT / math.sqrt(keys.shape[-1])
    return (M if hidden is None else torch.where(mask.unsqueeze(1), M, hidden)).softmax(dim)


SHARES = {
    "Return a share for each slot and each element, (B, K, N).": shape(counts=[6, 6]),
    "Each element is shared out whole: over the slots, its shares add up to 1. Which dimension are the "
    "slots?": same(counts=[6, 6], by=lambda A: A.sum(1)),
    "The softmax takes the products of queries and keys, divided by the square root of their width.": same(
        counts=[6, 6]
    ),
    "Padding gives nothing to any slot: its shares must be 0, and the others stay as they are.": same(
        counts=[6, 4, 1]
    ),
    "Padding may hold anything, NaN too, and zero times NaN is NaN: try torch.where or masked_fill after the "
    "softmax.": same(
        counts=[6, 4, 1],
        filler=nan,
        wrong=[lambda keys, queries, mask: shares_over(keys, queries, mask) * mask.unsqueeze(1)],
    ),
    "That is the softmax of a Transformer, over the elements. Here each element is shared out among the "
    "slots.": like(partial(shares_over, dim=2, hidden=-inf)),
    "These shares are too sharp: divide the products by the square root of the keys' width.": like(
        lambda keys, queries, mask: shares(3 * keys, queries, mask)
    ),
    "Where all slots have minus infinity, the softmax over slots is NaN: set the padding to 0 after the "
    "softmax, not before it.": like(
        partial(shares_over, hidden=-inf), when=lambda answer: answer(*elements()).isnan().any()
    ),
    "You cleared the real elements: mask is True where an element is real, so ~mask is what must go.": like(
        lambda keys, queries, mask: shares(keys, queries, ~mask), by=lambda A: A[..., :4]
    ),
    "The padding is shared out in equal parts: set its shares to 0 after the softmax.": like(
        partial(shares_over, hidden=-1e9), by=lambda A: A[1, :, 4:], tolerance=1e-4
    ),
    "Right. This is A of equation 2.": passed,
}


def loop(
    module: Any,
    local: Tensor,
    whole: Tensor,
    mask: Tensor,
    again: bool = True,
    mean: bool = True,
    kept: bool = True,
    normed: bool = True,
) -> Tensor:
    x = module.norm_local(local)
    keys, values = module.key(x), module.value(x)
    slots = module.start.expand(len(x), -1, -1)
    query = module.query(module.norm_slots(slots) if normed else slots)
    for _ in range(module.iterations):
        if again:
            query = module.query(module.norm_slots(slots) if normed else slots)
        A = (query @ keys.mT / math.sqrt(keys.shape[-1])).softmax(1) * mask[:, None]
        A = A / A.sum(2, keepdim=True) if mean else A
        slots = slots + A @ values @ module.out.weight.T
        change = module.mlp(module.norm_update(slots))
        slots = slots + change if kept else change
    return module.norm_last(slots) + module.norm_global(whole)[:, None]


def predicted(
    answer: Callable[..., Tensor], rounds: int, local: Tensor, whole: Tensor, mask: Tensor
) -> Tensor:
    """The set that an answer predicts with the layers of a module of three slots, in so many rounds."""
    torch.manual_seed(14)
    module = SlotSetPrediction(6, slots=3, iterations=4, hidden=10).eval()
    layers = SimpleNamespace(**dict(module.named_children()), start=module.start, iterations=rounds)
    with torch.no_grad():
        return answer(layers, local, whole, mask)


def scene(
    rounds: int = 3, counts: Sequence[int] = (5, 5), filler: float = 0.0
) -> tuple[int, Tensor, Tensor, Tensor]:
    """How many rounds; elements (B, 5, 6), whose padding holds a number; global features; a mask."""
    local, whole = normal((len(counts), 5, 6), (len(counts), 6), seed=8)
    mask = real(counts, 5)
    return rounds, local.masked_fill(~mask[..., None], filler), whole, mask


LOOP = {
    "Return the set, (B, K, D).": shape(),
    "Without a single round, the set is the normalised start plus the normalised global feature, as in "
    "equation 5.": same(rounds=0),
    "One round: shares by equation 2, a sum by equation 3, then the MLP by equation 4.": same(rounds=1),
    "Each round begins with the slots that the round before left.": same({"rounds": 2}, {"rounds": 4}),
    "Padding must change nothing: hand the mask to the shares.": same(
        counts=[5, 3, 1],
        filler=7.0,
        wrong=[lambda module, local, whole, mask: loop(module, local, whole, mask | True)],
    ),
    "Your slots ask the same in every round: their queries must be computed anew from the slots inside the "
    "loop.": like(partial(loop, again=False)),
    "A slot that takes much receives much in yours. Divide its shares by their sum, as equation 3 "
    "does.": like(partial(loop, mean=False)),
    "Equation 4 adds the MLP's result to the slots, it does not replace them.": like(
        partial(loop, kept=False)
    ),
    "The slots are normalised (norm_slots) before they become queries.": like(partial(loop, normed=False)),
    "The global feature is missing: equation 5 adds it, normalised, to every slot.": like(
        lambda module, local, whole, mask: (
            loop(module, local, whole, mask) - module.norm_global(whole)[:, None]
        )
    ),
    "Right. It gives what vsecore.sets.SlotSetPrediction gives.": passed,
}

BREAK = {
    "It is a share: between 0 and 1.": between(0, 1),
    "All shares are equal, for words and for padding. How many of the positions are padding?": equals(3 / 8),
    "That would hold with minus infinity in a softmax over the elements. Here the softmax is over the "
    "slots.": like(0, tolerance=1e-6),
    "That is the padding's part, times a slot's share of it. Equation 3 divides by what the slot has in all, "
    "so the share cancels.": like(3 / 32),
    "That is what a slot has of the padding, three quarters of a position. Divide by what it has in "
    "all.": like(3 / 4),
    "That is a slot's share of one position. Which part of all that the slot receives is padding?": like(
        1 / 4
    ),
    "Divide by all positions, not by the words alone.": like(3 / 5),
    "That is the words' part. The padding has the rest.": like(5 / 8),
}


def smooth(v: Tensor, t: Tensor, alpha: float) -> Tensor:
    c = torch.einsum("bkd,cld->bckl", unit(v), unit(t))  # (B, C, K, L)
    return ((alpha * c).logsumexp(3).mean(2) + (alpha * c).logsumexp(2).mean(2)) / (2 * alpha)


def sets(k: int = 4, n: int = 3, alpha: float = 16.0) -> tuple[Tensor, Tensor, float]:
    """Two pictures' sets (2, k, 6) and three captions' (3, n, 6), of unit length, and alpha."""
    v, t = normal((2, k, 6), (3, n, 6), seed=10 * k + n)
    return unit(v), unit(t), alpha


def cosines(v: Tensor, t: Tensor) -> Tensor:
    return torch.einsum("bkd,cld->bckl", v, t)


def overflows(v: Tensor, t: Tensor, alpha: float) -> Tensor:
    e = (alpha * cosines(v, t)).exp()
    return (e.sum(3).log().mean(2) + e.sum(2).log().mean(2)) / (2 * alpha)


def hard(v: Tensor, t: Tensor, alpha: float) -> Tensor:
    c = cosines(v, t)
    return (c.amax(3).mean(2) + c.amax(2).mean(2)) / 2


def summed(v: Tensor, t: Tensor, alpha: float) -> Tensor:
    c = alpha * cosines(v, t)
    return (c.logsumexp(3).sum(2) + c.logsumexp(2).sum(2)) / (2 * alpha)


SMOOTH = {
    "Return a number for each picture with each caption, (B, C).": shape(),
    "With one vector in each set the result is their cosine. What remains of log-sum-exp for a single "
    "number, and what must it be divided by?": same(k=1, n=1),
    "Each vector of one set has a log-sum-exp over the other set; take the mean of these, both ways, and "
    "half of each.": same(k=4, n=4, wrong=[lambda v, t, alpha: cosines(v, t).mean((2, 3))]),
    "Two sets of different sizes, or another alpha: each side is divided by its own number of "
    "elements.": same(
        {"alpha": 1.0}, {"alpha": 16.0}, wrong=[lambda *given: summed(*given) / given[0].shape[1]]
    ),
    "A large alpha gives infinity: exp(200) is too large for float32. torch.logsumexp never forms it.": same(
        alpha=200.0, wrong=[overflows]
    ),
    NO_GRADIENT.replace("arrives", "arrives at the sets"): gradient(exact=False),
    "That is one direction. The other set's vectors look for their partners too.": like(
        lambda v, t, alpha: (alpha * cosines(v, t)).logsumexp(3).mean(2) / alpha,
        lambda v, t, alpha: (alpha * cosines(v, t)).logsumexp(2).mean(2) / alpha,
    ),
    "That is Chamfer, with maxima: the limit of what is wanted as alpha grows. Put log-sum-exp in their "
    "place.": like(hard),
    "You took the log of a mean: it lacks log K. Equation 6 has the log of the sum.": like(
        lambda v, t, alpha: smooth(v, t, alpha) - math.log(v.shape[1] * t.shape[1]) / (2 * alpha)
    ),
    "That is one log-sum-exp over all pairs. Each vector has one of its own, over the other set.": like(
        lambda v, t, alpha: (alpha * cosines(v, t)).logsumexp((2, 3)) / alpha
    ),
    "The alpha inside the exponentials is missing: multiply the cosines by it first.": like(
        lambda v, t, alpha: smooth(v, t, 1.0) / alpha, lambda v, t, alpha: smooth(v, t, 1.0)
    ),
    "Each direction counts half.": like(lambda *given: 2 * smooth(*given)),
    "You summed over the vectors: divide each side by its number of vectors.": like(summed),
    "Divide by alpha at the end, so that the result is on the scale of the cosine.": like(
        lambda v, t, alpha: alpha * smooth(v, t, alpha)
    ),
}


def gradient_by_hand(c: Tensor, alpha: float) -> Tensor:
    rows, columns = (alpha * c).softmax(1), (alpha * c).softmax(0)  # (K, L) each
    return rows / (2 * c.shape[0]) + columns / (2 * c.shape[1])


def of_pairs(k: int = 4, n: int = 3, alpha: float = 16.0) -> tuple[Tensor, float]:
    return 2 * torch.rand(k, n, generator=torch.Generator().manual_seed(k)) - 1, alpha


def two_terms(rows: float, columns: float) -> Callable[[Tensor, float], Tensor]:
    """Make a gradient whose terms are weighed by two numbers, which are divided by the sizes."""
    return lambda c, alpha: (
        rows * (alpha * c).softmax(1) / c.shape[0] + columns * (alpha * c).softmax(0) / c.shape[1]
    )


def without_sizes(c: Tensor, alpha: float) -> Tensor:
    return ((alpha * c).softmax(1) + (alpha * c).softmax(0)) / 2


GRADIENT = {
    "Return a number for each pair of vectors, (K, L).": shape(),
    "All pairs together get 1: each of the two softmaxes adds up to 1 in each row, or in each column.": same(
        by=torch.sum, tolerance=1e-4
    ),
    "The first term compares a pair with those of the same x, the second with those of the same y.": same(
        k=4, n=4, wrong=[lambda c, alpha: c.softmax(1) / len(c)]
    ),
    "Sets of different sizes: the sum over y belongs to 1 / (2 K), the sum over x to 1 / (2 L).": same(
        {"alpha": 1.0}, {"alpha": 16.0}, wrong=[lambda c, alpha: without_sizes(c, alpha) * 2 / sum(c.shape)]
    ),
    "That is one of the two terms of equation 8.": like(two_terms(1, 0), two_terms(0, 1)),
    "The two sizes are swapped: a softmax in each row, over y, goes with the number of rows.": like(
        lambda c, alpha: two_terms(c.shape[0] / c.shape[1] / 2, c.shape[1] / c.shape[0] / 2)(c, alpha)
    ),
    "The derivative of the exponent brings an alpha, and the 1 / (2 alpha) in front removes it.": like(
        lambda c, alpha: alpha * gradient_by_hand(c, alpha)
    ),
    "The 1 / alpha is gone: the derivative of the exponent brings an alpha, which cancels it.": like(
        lambda c, alpha: gradient_by_hand(c, alpha) / alpha
    ),
    "The alpha in the exponents is missing: multiply the cosines by it before each softmax.": like(
        lambda c, alpha: gradient_by_hand(c, 1.0)
    ),
    "The sizes are missing: the rows' softmax has 1 / (2 K), the columns' 1 / (2 L).": like(
        without_sizes, lambda c, alpha: 2 * without_sizes(c, alpha)
    ),
    "Both terms have the one half, not only one of them.": like(two_terms(1, 1 / 2), two_terms(1 / 2, 1)),
    "Each direction counts half.": like(two_terms(1, 1)),
    "That is one softmax over all pairs. Equation 8 has two, each over one set.": like(
        lambda c, alpha: (alpha * c).flatten().softmax(0).view_as(c)
    ),
    "Right. This is equation 8.": passed,
}

EXERCISES = {
    "14.shares": code(
        "Share out the elements",
        10,
        SHARES,
        shares,
        elements,
        instead=("scaled_dot_product_attention", "MultiheadAttention"),
    ),
    "14.loop": code("The slot loop", 20, LOOP, loop, scene, caller=predicted, difficulty="hard"),
    "14.break": break_it("Break it", 8, BREAK),
    "14.rivals": predict("Do competing slots overlap less?", 3, "slots", "elements", "no difference"),
    "14.smooth": code("Smooth-Chamfer", 12, SMOOTH, smooth, sets, gives="vsecore.similarity.smooth_chamfer"),
    "14.gradient": code(
        "The gradient by hand", 12, GRADIENT, gradient_by_hand, of_pairs, instead=("grad", "backward")
    ),
    "14.explore": explore("Change one thing", 20, difficulty="hard"),
}
