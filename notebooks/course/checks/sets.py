"""The exercises of notebook 13, *Sets: more than one vector*."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, inf, nan
from torch.nn.functional import normalize

from course.checks.comparing import equals, gradient, holds, like, passed, same, shape
from course.checks.kinds import NO_GRADIENT, break_it, code, compute, explore, no_gradient_at, predict
from course.checks.samples import normal, real
from vsecore.sets import circular_variance, weighted_means
from vsecore.similarity import unit
from vsecore.similarity.sets import match_probability, mil

COMPROMISE = {
    "A cosine is wanted: a number from -1 to 1.": holds(lambda answer: -1 <= float(answer) <= 1),
    "The bisector lies less than a right angle from each of them.": holds(lambda answer: float(answer) > 0),
    "The best vector halves the angle of 120 degrees. What is the cosine of half of it?": equals(0.5),
    "That is the cosine between the two pictures. The vector between them halves the angle.": like(-0.5),
    "That is the cosine of 60 radians: the angle is in degrees.": like(-0.952413),
    "That is the cosine of 30 degrees: you halved the angle twice. The pictures lie 120 degrees apart.": like(
        0.866
    ),
    "That is a right angle. Where would the vector have to lie?": like(0),
    "Right. The caption is no nearer to either of its pictures than one half.": passed,
}


def heads(x: Tensor, mask: Tensor, W1: Tensor, W2: Tensor) -> Tensor:
    def logits(rows: Tensor) -> Tensor:
        return (rows @ W1).tanh() @ W2  # (B, N, K)

    return weighted_means(logits, x, mask)[1]  # type: ignore[arg-type]


def attended(
    counts: Sequence[int] = (5, 3), filler: float = 0.0, sharpness: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Elements (B, 5, 6) whose padding holds `filler`, their mask, and weights (6, 7) and (7, 3)."""
    x, W1, W2 = normal((len(counts), 5, 6), (6, 7), (7, 3), seed=13)
    mask = real(counts, 5)
    return x.masked_fill(~mask[..., None], filler), mask, 2 * W1, 2 * sharpness * W2


def uncleared(x: Tensor, mask: Tensor, W1: Tensor, W2: Tensor) -> Tensor:
    return ((x @ W1).tanh() @ W2).masked_fill(~mask[..., None], -inf).softmax(1).mT @ x


HEADS = {
    "Return one vector for each head, (B, K, D).": shape(counts=[5, 5]),
    "With W2 = 0 every head is the mean of the elements. Over which dimension does the softmax go?": same(
        counts=[5, 5], sharpness=0.0
    ),
    "A head's logits are tanh(x W1) W2. Their softmax over the elements weighs the elements "
    "themselves.": same(counts=[5, 5]),
    "A set with padding: padding must have no weight, and the real elements must add up to 1.": same(
        counts=[5, 3, 1], wrong=[lambda x, mask, W1, W2: heads(x, mask | True, W1, W2)]
    ),
    "Padding may hold anything, also infinity and NaN. Zero times NaN is NaN: clear the padding first.": same(
        *({"filler": filler} for filler in (7.0, nan, inf)), counts=[5, 3, 1], wrong=[uncleared]
    ),
    no_gradient_at("W2"): gradient(of=3),
    "You cleared or hid the real elements: mask is True where an element is real, so ~mask is what must "
    "go.": like(
        lambda x, mask, W1, W2: heads(x, ~mask, W1, W2),
        lambda x, mask, W1, W2: heads(x.masked_fill(mask[..., None], 0), mask, W1, W2),
        lambda *given: nan * heads(*given),
        by=1,  # the row with padding
        filler=2.0,
    ),
    "The tanh between the two layers is missing.": like(
        lambda x, mask, W1, W2: (x @ W1 @ W2).softmax(1).mT @ x, counts=[5, 5]
    ),
    "Your softmax goes over the heads, so that they share out each element. In PIE-Net each head has a "
    "softmax of its own over the elements. (The next notebook lets them share.)": like(
        lambda x, mask, W1, W2: ((x @ W1).tanh() @ W2).softmax(2).mT @ x, counts=[5, 5]
    ),
    "Right. This is the attention of vsecore.sets.PIENet.": passed,
}


def sets(length: float = 1.0) -> tuple[Tensor, Tensor]:
    """Sets of three pictures, (3, 2, 5), and of four captions, (4, 3, 5), whose vectors have this length."""
    v, t = normal((3, 2, 5), (4, 3, 5), seed=3)
    return length * unit(v), length * unit(t)


def largest_cosine(v: Tensor, t: Tensor) -> Tensor:
    return mil(v, t)


def products(v: Tensor, t: Tensor) -> Tensor:
    """The products of all vectors with all others, (B, C, K, L); of unit vectors, their cosines."""
    return torch.einsum("bkd,cld->bckl", v, t)


def best_partners(v: Tensor, t: Tensor, dim: int, of: float) -> Tensor:
    """The sum over one set's vectors of their best partners' cosines, divided by a number."""
    return products(v, t).amax(dim).sum(2) / of


def chamfer(v: Tensor, t: Tensor) -> Tensor:
    return (best_partners(v, t, 3, v.shape[1]) + best_partners(v, t, 2, t.shape[1])) / 2


def scaled_over(dim: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Make a MIL that divides by the length over this dimension."""
    return lambda v, t: products(normalize(v, dim=dim), normalize(t, dim=dim)).amax((2, 3))


MIL = {
    "Return one number for each picture with each caption, (B, C).": shape(),
    "Of all K·L cosines of a picture and a caption, the largest is wanted.": same(
        wrong=[lambda v, t: products(v, t).amin((2, 3))]
    ),
    "Vectors need not have length one: c(x, y) is a cosine.": same(
        {"length": 3.0}, {"length": 0.2}, wrong=[lambda v, t: products(v, t).amax((2, 3))]
    ),
    no_gradient_at("the vectors"): gradient(),
    "That is Chamfer: each vector finds its best partner, both ways. MIL takes one maximum over all "
    "pairs.": like(chamfer, lambda v, t: 2 * chamfer(v, t)),
    "You divided along the wrong dimension: each vector has its length over the last one, D.": like(
        scaled_over(0), scaled_over(1)
    ),
    "You took the mean of each set first. MIL compares every vector with every other.": like(
        lambda v, t: unit(v.mean(1)) @ unit(t.mean(1)).T
    ),
    "That is the mean of the K·L cosines. MIL takes the largest.": like(
        lambda v, t: products(v, t).mean((2, 3))
    ),
    "You gave each vector its best partner and took the mean or the sum over vectors: that is MaxSim, or "
    "half of Chamfer. MIL takes one maximum over all pairs.": like(
        *(partial(best_partners, dim=dim, of=of) for dim, of in ((2, 1), (2, 3), (3, 1), (3, 2)))
    ),
}

SPARSE = {
    "Two whole numbers: of the 16 cosines, then of the 8 vectors.": holds(
        lambda answer: len(answer) == 2 and all(float(one) == int(one) for one in answer), wrong=[(1, 2, 3)]
    ),
    "The gradient of a maximum goes to what is largest. How many of the cosines are that?": holds(
        lambda answer: int(answer[0]) == 1, wrong=[(3, 2)]
    ),
    "A cosine is made of two vectors: one of the picture and one of the caption.": equals(
        (1, 2), wrong=[(1, 1), (1, 8)]
    ),
    "All of them would learn from a mean. This is a maximum.": like((16, 8)),
    "Each vector looking for a partner would give that. MIL takes one maximum over all 16 cosines.": like(
        (4, 4), (8, 8)
    ),
    "Both vectors are right. But how many cosines do they make with each other?": like((2, 2)),
    "That holds where each vector of one side looks for its best partner, as in MaxSim. MIL takes one "
    "maximum over all pairs.": like((4, 8)),
    "Right: one in sixteen cosines, and a quarter of the vectors.": passed,
}


def matched(v: Tensor, t: Tensor, scale: float, shift: float) -> Tensor:
    return match_probability(v, t, scale, shift)


def compared(
    scale: float = 3.0, shift: float = -1.0, length: float = 1.0
) -> tuple[Tensor, Tensor, float, float]:
    return *sets(length), scale, shift


MATCH = {
    "Return one number for each picture with each caption, (B, C).": shape(),
    "With scale 0 every pair matches with probability σ(shift), and so does their mean.": same(
        scale=0.0,
        shift=1.0,
        wrong=[lambda v, t, scale, shift: (scale * products(v, t) + shift).mean((2, 3))],
    ),
    "Each cosine becomes a probability, σ(scale · c + shift). Then the mean of the K·L probabilities is "
    "taken.": same(
        wrong=[lambda v, t, scale, shift: (scale * products(v, t) + shift).sigmoid().amax((2, 3))]
    ),
    "Vectors need not have length one: c(x, y) is a cosine.": same(
        length=4.0,
        wrong=[lambda v, t, scale, shift: (scale * products(v, t) + shift).sigmoid().mean((2, 3))],
    ),
    no_gradient_at("the vectors"): gradient(),
    "That is the sum, as the paper prints it: with 2 and 3 vectors six times the mean. Take the mean, as its "
    "text says.": like(lambda *given: 6 * match_probability(*given), tolerance=1e-4),
    "You added the shift before you multiplied: the logit is scale · c + shift.": like(
        lambda v, t, scale, shift: match_probability(v, t, scale, scale * shift)
    ),
    "You subtracted the shift: the logit is scale · c + shift.": like(
        lambda v, t, scale, shift: match_probability(v, t, scale, -shift)
    ),
    "You took the mean of the cosines before the sigmoid. Each pair has its own probability.": like(
        lambda v, t, scale, shift: (scale * products(v, t).mean((2, 3)) + shift).sigmoid()
    ),
}


def spread(vectors: list[list[list[float]]] | None = None, length: float = 1.0) -> tuple[Tensor]:
    """These sets, or four random ones of three vectors each, (4, 3, 5)."""
    return (length * (normal((4, 3, 5), seed=6)[0] if vectors is None else torch.tensor(vectors)),)


def mean_cosine(x: Tensor) -> Tensor:
    """Of the pairs of different vectors of each set, (B,)."""
    k = x.shape[1]
    return ((unit(x) @ unit(x).mT).sum((1, 2)) - k) / (k * (k - 1))


EQUAL, OPPOSITE = [[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [-1.0, 0.0]]

VARIANCE = {
    "Return one number for each set, (B,).": shape(),
    "Two equal unit vectors: nothing is spread, so the result is 0.": same(vectors=[EQUAL]),
    "Two opposite unit vectors cancel out: the result is 1.": same(vectors=[OPPOSITE]),
    "Only directions count: divide each vector by its length, take the mean over the set, and subtract the "
    "mean's length from one.": same({"length": 1.0}, {"length": 5.0}, wrong=[lambda x: x.var(1).mean(-1)]),
    NO_GRADIENT: gradient(exact=False),
    "Nearly: you subtracted the squared length of the mean. Take the length, not its square.": like(
        lambda x: 1 - unit(x).mean(1).square().sum(-1)
    ),
    "That is 1 minus the mean cosine of the pairs. The circular variance takes the mean of the directions "
    "first, then its length.": like(lambda x: 1 - mean_cosine(x)),
    "That is the ordinary variance of each dimension. Here the length of the mean direction counts.": like(
        lambda x: unit(x).var(1).mean(-1), lambda x: unit(x).var(1, correction=0).mean(-1)
    ),
    "Vectors of length 3 gave -2: divide each by its length first.": like(
        lambda x: 1 - x.mean(1).norm(dim=-1), vectors=[EQUAL], length=3.0
    ),
    "That is the length of the mean, large where nothing is spread. Subtract it from one.": like(
        lambda x: unit(x).mean(1).norm(dim=-1), vectors=[EQUAL, OPPOSITE]
    ),
}

BREAK = {
    "A set of four vectors holds one, two, three or four different ones.": holds(
        lambda answer: 1 <= int(answer) <= 4 and float(answer) == int(answer)
    ),
    "What could make two heads differ? They begin alike, see the same elements, and each counts the same in "
    "the loss. Compare their gradients.": equals(1),
    "Training can only pull apart what gets different gradients. Which head would get another gradient than "
    "its neighbour?": like(4),
    "Which two, and why these? Nothing tells any head from another.": like(2),
    "Right: what begins alike and gets the same gradient stays alike.": passed,
}

EXERCISES = {
    "13.fits": predict("How many pictures fit", 3, "1", "10", "50"),
    "13.compromise": compute("A vector between two", 6, COMPROMISE, difficulty="easy"),
    "13.heads": code("Heads of attention", 12, HEADS, heads, attended),
    "13.mil": code("MIL", 8, MIL, largest_cosine, sets, gives="vsecore.similarity.sets.mil"),
    "13.sparse": compute("Who learns?", 6, SPARSE, difficulty="easy"),
    "13.match": code(
        "Match probability", 8, MATCH, matched, compared, gives="vsecore.similarity.sets.match_probability"
    ),
    "13.variance": code(
        "Circular variance",
        8,
        VARIANCE,
        circular_variance,
        spread,
        gives="vsecore.sets.circular_variance",
        tolerance=1e-4,
    ),
    "13.break": break_it("Break it", 6, BREAK, difficulty="easy"),
    "13.explore": explore("What keeps a set open", 20, difficulty="hard"),
}
