"""Exercises of notebook 14: slots that share out the elements, and sets compared by smooth-Chamfer."""

import math
from functools import partial
from types import SimpleNamespace

import torch
from torch import inf, nan

from course.checks.comparing import between, equals, gradient, like, passed, same, shape
from course.checks.kinds import ATTENTION, AUTOGRAD, break_it, code, explore, no_gradient_at, predict
from course.checks.samples import normal, real
from vsecore.sets import SlotSetPrediction
from vsecore.similarity import smooth_chamfer, unit


def shares(keys, queries, mask):
    M = queries @ keys.mT / math.sqrt(keys.shape[-1])  # (B, K, N)
    return torch.where(mask.unsqueeze(1), M.softmax(1), 0)


def elements(counts=(6, 4), filler=0.0):
    """Keys (B, 6, 9), the padding's filled with a number; three queries each, (B, 3, 9); a mask (B, 6)."""
    keys, queries = normal((len(counts), 6, 9), (len(counts), 3, 9), seed=14)
    mask = real(counts, 6)
    return keys.masked_fill(~mask[..., None], filler), queries, mask


def shares_over(dim):
    """Make a softmax over the slots or the elements, in which the padding has minus infinity."""
    return lambda keys, queries, mask: (
        (queries @ keys.mT / math.sqrt(keys.shape[-1])).masked_fill(~mask[:, None], -inf).softmax(dim)
    )


SHARES = {
    "Return a share for each slot and each element, (B, K, N).": shape(counts=[6, 6]),
    "Each element is shared out whole: over the slots, its shares add up to 1. Which dimension are the "
    "slots?": same(counts=[6, 6], by=lambda A: A.sum(1)),
    "The softmax takes queries times keys, divided by the square root of their width.": same(counts=[6, 6]),
    "Padding gives nothing to any slot: its shares must be 0, and the others stay.": same(counts=[6, 4, 1]),
    "Padding may hold anything, NaN too, and zero times NaN is NaN: try torch.where or masked_fill after the "
    "softmax.": same(counts=[6, 4, 1], filler=nan),
    "That is the softmax of a Transformer, over the elements. Here each element is shared out among the "
    "slots.": shares_over(2),
    "Where all slots have minus infinity, the softmax over slots is NaN: set the padding to 0 after the "
    "softmax, not before it.": like(shares_over(1), when=lambda answer: answer(*elements()).isnan().any()),
    "You cleared the real elements: mask is True where an element is real, so ~mask is what must go.": like(
        lambda keys, queries, mask: shares(keys, queries, ~mask), by=lambda A: A[..., :4]
    ),
    "Right. This is A of equation 2.": passed,
}


def loop(module, local, whole, mask, again=True, mean=True, kept=True):
    x = module.norm_local(local)
    keys, values = module.key(x), module.value(x)
    slots = module.start.expand(len(x), -1, -1)
    query = module.query(module.norm_slots(slots))
    for _ in range(module.iterations):
        if again:
            query = module.query(module.norm_slots(slots))
        A = (query @ keys.mT / math.sqrt(keys.shape[-1])).softmax(1) * mask[:, None]
        A = A / A.sum(2, keepdim=True) if mean else A
        slots = slots + A @ values @ module.out.weight.T
        change = module.mlp(module.norm_update(slots))
        slots = slots + change if kept else change
    return module.norm_last(slots) + module.norm_global(whole)[:, None]


def predicted(answer, rounds, *given):
    """The set that an answer predicts with the layers of a module of three slots, in so many rounds."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(14)
        module = SlotSetPrediction(6, slots=3, iterations=4, hidden=10).eval()
    layers = SimpleNamespace(**dict(module.named_children()), start=module.start, iterations=rounds)
    with torch.no_grad():
        return answer(layers, *given)


def scene(rounds=3, counts=(5, 5), filler=0.0):
    """How many rounds; elements (B, 5, 6), whose padding holds a number; global features; a mask."""
    local, whole = normal((len(counts), 5, 6), (len(counts), 6), seed=8)
    mask = real(counts, 5)
    return rounds, local.masked_fill(~mask[..., None], filler), whole, mask


LOOP = {
    "Return the set, (B, K, D).": shape(),
    "Without a single round, the set is the normalised start plus the normalised global feature, as in "
    "equation 5.": same(rounds=0),
    "One round: normalise, shares by equation 2, a sum by equation 3, an MLP by equation 4.": same(rounds=1),
    "Each round begins with the slots that the round before left.": same({"rounds": 2}, {"rounds": 4}),
    "Padding must change nothing: hand the mask to the shares.": same(counts=[5, 3, 1], filler=7.0),
    "Your slots ask the same in every round: their queries must be computed anew from the slots inside the "
    "loop.": partial(loop, again=False),
    "A slot that takes much receives much in yours. Divide its shares by their sum, as equation 3 "
    "does.": partial(loop, mean=False),
    "Equation 4 adds the MLP's result to the slots, it does not replace them.": partial(loop, kept=False),
    "Right. It gives what vsecore.sets.SlotSetPrediction gives.": passed,
}

BREAK = {
    "It is a share: between 0 and 1.": between(0, 1),
    "All shares are equal, for words and for padding. How many of the positions are padding?": equals(3 / 8),
    "That would hold with minus infinity in a softmax over the elements. Here it is over the slots.": 0,
    "That is the padding's part, times a slot's share of it. Equation 3 divides by what the slot has in all, "
    "so the share cancels.": 3 / 32,
    "That is what a slot has of the padding, 3/4 of a position. Divide by what it has in all.": 0.75,
    "That is a slot's share of one position. Which part of all that the slot receives is padding?": 1 / 4,
    "Divide by all positions, not by the words alone.": 3 / 5,
    "That is the words' part. The padding has the rest.": 5 / 8,
}


def sets(k=4, n=3, alpha=16.0):
    """Two pictures' sets (2, k, 6) and three captions' (3, n, 6), of unit length, and alpha."""
    v, t = normal((2, k, 6), (3, n, 6), seed=10 * k + n)
    return unit(v), unit(t), alpha


def one_way(v, t, alpha, dim=3):
    return (alpha * torch.einsum("bkd,cld->bckl", v, t)).logsumexp(dim).mean(2) / alpha


SMOOTH = {
    "Return a number for each picture with each caption, (B, C).": shape(),
    "With one vector in each set the result is their cosine. What remains of log-sum-exp for a single "
    "number, and what must it be divided by?": same(k=1, n=1),
    "Each vector of one set has a log-sum-exp over the other set; take the mean of these, both ways, and "
    "half of each.": same(k=4, n=4),
    "Two sets of different sizes, or another alpha: each side is divided by its own number of "
    "elements.": same({"alpha": 1.0}, {"alpha": 16.0}),
    "A large alpha gives infinity: exp(200) overflows. torch.logsumexp never forms it.": same(alpha=200.0),
    no_gradient_at("the sets"): gradient(exact=False),
    "That is one direction. The other set looks for partners too.": like(one_way, partial(one_way, dim=2)),
    "That is Chamfer, with maxima: the limit of what is wanted as alpha grows. Put log-sum-exp in their "
    "place.": lambda v, t, alpha: smooth_chamfer(v.double(), t.double(), 1e9).float(),
    "You took the log of a mean: it lacks log K. Equation 6 has the log of the sum.": lambda v, t, alpha: (
        smooth_chamfer(v, t, alpha) - math.log(v.shape[1] * t.shape[1]) / (2 * alpha)
    ),
    "You summed over the vectors: divide each side by its number of vectors.": lambda v, t, alpha: (
        (one_way(v, t, alpha) * v.shape[1] + one_way(v, t, alpha, 2) * t.shape[1]) / 2
    ),
    "Right. It gives what vsecore.similarity.smooth_chamfer gives.": passed,
}


def gradient_by_hand(c, alpha):
    rows, columns = (alpha * c).softmax(1), (alpha * c).softmax(0)  # (K, L) each
    return rows / (2 * c.shape[0]) + columns / (2 * c.shape[1])


def of_pairs(k=4, n=3, alpha=16.0):
    return 2 * torch.rand(k, n, generator=torch.Generator().manual_seed(k)) - 1, alpha


GRADIENT = {
    "Return a number for each pair of vectors, (K, L).": shape(),
    "All pairs together get 1: each of the two softmaxes adds up to 1 in each row, or in each column.": same(
        k=4, n=4, by=torch.sum, tolerance=1e-4
    ),
    "The first term compares pairs of the same x, the second those of the same y.": same(k=4, n=4),
    "Sets of different sizes: the sum over y belongs to 1 / (2 K), the sum over x to 1 / (2 L).": same(
        {"alpha": 1.0}, {"alpha": 16.0}
    ),
    "That is one of the two terms of equation 8.": like(
        lambda c, alpha: (alpha * c).softmax(1) / len(c), lambda c, alpha: (alpha * c).softmax(0) / len(c.T)
    ),
    "The derivative of the exponent brings an alpha, and the 1 / (2 alpha) in front removes it.": (
        lambda c, alpha: alpha * gradient_by_hand(c, alpha)
    ),
    "The alpha in the exponents is missing: multiply the cosines by it before each softmax.": (
        lambda c, alpha: gradient_by_hand(c, 1.0)
    ),
    "Right. This is equation 8.": passed,
}

EXERCISES = {
    "14.shares": code("Share out the elements", 10, SHARES, shares, elements, instead=ATTENTION),
    "14.loop": code("The slot loop", 20, LOOP, loop, scene, caller=predicted, difficulty="hard"),
    "14.break": break_it("Break it", 8, BREAK, tolerance=6e-3),
    "14.rivals": predict("Do competing slots overlap less?", 3, "slots", "elements", "no difference"),
    "14.smooth": code("Smooth-Chamfer", 12, SMOOTH, smooth_chamfer, sets),
    "14.gradient": code("The gradient by hand", 12, GRADIENT, gradient_by_hand, of_pairs, instead=AUTOGRAD),
    "14.explore": explore("Change one thing", 20, difficulty="hard"),
}
