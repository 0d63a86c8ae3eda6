"""The exercises of notebook 06, *Structural alignment*."""

import math

import torch
from torch import inf
from torch.nn.functional import normalize

from course.checks.comparing import between, divided, equals, gradient, holds, like, passed, same, shape
from course.checks.kinds import ATTENTION, break_it, code, compute, explore, no_gradient_at, predict
from course.checks.samples import normal, real


def node_pooling(x, mask, W):
    logits = torch.where(mask[:, None], W @ x.mT, -torch.inf)  # (B, P, N)
    weights = logits.softmax(-1)  # (B, P, N)
    return weights @ x, weights  # (B, P, D), (B, P, N)


def elements(counts=(5, 5), filler=0.0, scale=1):
    """Elements (B, 5, 4) with something in the padding, their mask, and the vectors of three pools (3, 4)."""
    x, W = normal((len(counts), 5, 4), (3, 4), seed=len(counts))
    mask = real(counts, 5)
    return x.masked_fill(~mask[..., None], filler), mask, scale * W


POOL = {
    "Return two tensors: the pools, (B, P, D), and their weights, (B, P, N).": shape(),
    "With W = 0 all elements have the same weight, and every pool is their mean. Over which dimension does "
    "the softmax go, and is the mask the right way round?": same(scale=0.0),
    "Without padding: pool k weights element j by the softmax over j of the product of w_k and x_j, and sums "
    "the elements themselves.": same(),
    "Padding got weight. A zero before the softmax does not hide it: exp(0) is 1.": same(counts=[5, 2, 1]),
    "The padding may hold anything, also large numbers, and must still have no weight.": same(
        {"filler": 1e3}, {"filler": -1e3}, counts=[4, 2, 1]
    ),
    no_gradient_at("the elements or at W"): gradient(0, 2, counts=[5, 3], by=lambda made: made[0].square()),
    "At each element, the weights of the pools add up to 1. They should add up to 1 over the elements, for "
    "each pool.": like(lambda x, mask, W: (x, (W @ x.mT).softmax(1)), by=lambda made: made[1].sum(1)),
    "Right. It gives what vsecore.losses.NodePooling gives.": passed,
}


def unscaled(p, q, caption, picture, margin=0.2):
    own, *others = ((a * b).sum(-1) for a, b in ((p, q), (p, q[caption]), (p[picture], q)))  # (B, P) each
    return torch.stack([margin + other - own for other in others]).relu().sum()


def pool_loss(p, q, caption, picture, margin=0.2):
    return unscaled(normalize(p, dim=-1), normalize(q, dim=-1), caption, picture, margin)


def pools(pairs=5, each=3, margin=0.2, perfect=False):
    """Pools of pictures and captions (B, P, D), the hardest caption and picture of each pair, and a margin.

    If perfect, pools point as their partners do, and are at right angles to those of other pairs.
    """
    p, q = normal((pairs, each, 6), (pairs, each, 6), seed=10 * pairs + each)
    if perfect:
        p = torch.eye(pairs)[:, None].expand(-1, each, -1)
        q = 5 * p
    return 2 * p, 3 * q, torch.arange(pairs).roll(-1), torch.arange(pairs).roll(-2), margin


def joined_before(p, q, caption, picture, margin):
    p, q = (normalize(one, dim=-1).flatten(1) for one in (p, q))  # (B, P D)
    return unscaled(p / (p**2).sum(1, keepdim=True), q, caption, picture, margin)  # the mean of P cosines


def own_hardest(p, q, caption, picture, margin):
    scores = torch.einsum("bpd,cpd->pbc", normalize(p, dim=-1), normalize(q, dim=-1))  # (P, B, C)
    own = scores.diagonal(dim1=1, dim2=2)  # (P, B)
    negatives = scores.masked_fill(torch.eye(len(p)) > 0, -inf)
    return torch.stack([margin + negatives.amax(side) - own for side in (1, 2)]).relu().sum()


HINGE = {
    "Return one number for the batch, as a tensor.": shape(),
    "Here each pool points as its partner does, at right angles to the negatives: the loss should be "
    "zero.": same(perfect=True),
    "With one pool it is the hinge of two vectors, twice: against the hardest caption and against the "
    "hardest picture.": same(pairs=4, each=1),
    "With several pools, each has hinges of its own. The loss is their sum.": same(),
    "The margin is an argument: use it.": same(margin=0.5),
    no_gradient_at("the pools"): gradient(exact=False),
    "Each pool looked for a hardest negative of its own. Here the negatives are given: those of the global "
    "similarity, the same for all pools.": own_hardest,
    "The similarity is the cosine: scale all pools to length one first.": unscaled,
    "You averaged over the pools before the hinge: a good pool then makes up for a bad one.": joined_before,
    "Your loss is off by a constant factor: it is a sum, not a mean.": divided(pool_loss, 3, 5, 15, 30),
    "Right. It gives what vsecore.losses.node_pooling_loss gives.": passed,
}


def node_hinges(x, y, mask, negative, margin=0.2):
    found = [
        (x * (torch.where(real[:, None], x @ side.mT, -torch.inf).softmax(-1) @ side)).sum(-1)  # (B, N)
        for side, real in ((y[negative], mask[negative]), (y, mask))
    ]
    return (margin + found[0] - found[1]).relu()


def two_sides(counts=(5, 5, 5), filler=0.0, margin=0.5, shift=1):
    """Unit vectors (B, 3, 4), others (B, 5, 4) with something in the padding, their mask, the rows of the
    negatives, which come so many rows later, and the margin.
    """
    x, y = (normalize(side, dim=-1) for side in normal((len(counts), 3, 4), (len(counts), 5, 4)))
    mask, rows = real(counts, 5), torch.arange(len(counts))
    return x, y.masked_fill(~mask[..., None], filler), mask, rows.roll(shift), margin


def scaled_mixture(x, y, mask, negative, margin):
    wrong, found = (normalize((x @ side.mT).softmax(-1) @ side, dim=-1) for side in (y[negative], y))
    return (margin + (x * (wrong - found)).sum(-1)).relu()


HINGES = {
    "Return one hinge for each x, (B, N).": shape(),
    "Here the negative is the partner itself: each hinge is the margin.": same(shift=0),
    "Without padding: margin, plus the product of x and its mixture in the negative, minus that in its "
    "partner; never below zero.": same(),
    "The margin is an argument: use it.": same(margin=0.1),
    "Padding got weight. The negative has its own row of `mask`.": same(counts=[5, 3, 1], filler=9.0),
    no_gradient_at("x"): gradient(counts=[5, 3, 4], exact=False),
    "The mixture keeps its own length: do not scale it.": scaled_mixture,
    "Right. The next cell makes the thesis's second loss of it.": passed,
}

LARGEST = math.e / (math.e + 9 / math.e)
"""The share of one word among ten if its cosine is 1 and that of all others is -1."""

EVEN = {
    "A share is a number between 0 and 1: exp of one cosine, divided by the sum over all ten.": between(0, 1),
    "Divide exp(1) by the sum over all ten words.": equals(LARGEST),
    "Give the share, not the percentage.": 100 * LARGEST,
    "The other nine have a cosine of -1, not of 0: each adds exp(-1).": math.e / (math.e + 9),
    "There are ten words in all: nine others.": math.e / (math.e + 10 / math.e),
}


def padded(answer):
    """The share of a row of padding in the pool of 06.break, and the pool's cosine with the right one."""
    rows = torch.stack([torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]), answer])  # (3, 2)
    weights = rows[:, 0].softmax(0)  # (3,)
    return weights[2], normalize(weights @ rows, dim=0)[1]


BREAK = {
    "Give one row of padding: two numbers.": holds(lambda answer: answer.shape == (2,), wrong=[[1, -1, -1]]),
    "Both numbers must lie between -3 and 3.": holds(lambda a: a.abs().max() <= 3, wrong=[[9.0, -9.0]]),
    "The pool does not point downwards yet. What the padding adds is its share times its vector.": holds(
        lambda answer: padded(answer)[1] < 0, wrong=[[1, -0.5]]
    ),
    "A row of zeros takes a third of the weight and adds nothing: the pool becomes shorter, but keeps its "
    "direction, and the cosine sees only that.": like(torch.zeros(2), when=lambda answer: not answer.any()),
    "Your row points the right way, but it has a small share: w must like it.": like(
        [-2.0, -3.0], when=lambda answer: answer[1] < 0 and padded(answer)[0] < 0.3
    ),
    "Your row cannot turn the pool around: its second number must pull downwards.": like(
        [2.0, 3.0], when=lambda answer: answer[1] >= 0
    ),
}

EXERCISES = {
    "06.pool": code("Node pooling", 12, POOL, node_pooling, elements),
    "06.hinge": code("A hinge for each pool", 15, HINGE, pool_loss, pools, defined_above=("triplet",)),
    "06.equal": predict("Equal pools", 3, "a", "b", "c"),
    "06.attend": code("Node cross-attention", 10, HINGES, node_hinges, two_sides, instead=ATTENTION),
    "06.even": compute("The largest share", 5, EVEN, difficulty="easy", tolerance=2e-3),
    "06.break": break_it("Let the padding in", 8, BREAK, solution=torch.tensor([2.0, -3.0])),
    "06.explore": explore("How the pools begin", 15),
}
