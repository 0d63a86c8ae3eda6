"""Exercises of notebook 15: reliance on a mark, a linear probe, InfoNCE's gradient."""

import math

import torch
from torch import inf

from course.checks.comparing import between, equals, holds, like, passed, same, shape
from course.checks.kinds import AUTOGRAD, break_it, code, compute, explore, predict
from course.checks.samples import normal


def found(S, owner, k):
    """Which captions have their own picture among the first k, (Nc,): ties count against it."""
    return (S.gather(0, owner[None]) <= S).sum(0) <= k


def reliance(right, swapped, owner, k=10):
    before = found(right, owner, k)
    return 1 - found(swapped, owner, k)[before].float().mean()


def similarities(k=5, unswapped=False, tied=False):
    """Similarities of 20 pictures with 60 captions, twice, whose captions they are, and k.

    If `tied`, two captions of four pictures: the second shares its first place with another picture.
    """
    if tied:
        right = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
        swapped = torch.tensor([[0.0, 0.0], [0.5, 1.0], [0.0, 0.5], [0.0, 0.0]])
        return right, swapped, torch.tensor([0, 1]), k
    owner = torch.arange(60) // 3
    own = torch.arange(20)[:, None] == owner
    first, second = normal((20, 60), (20, 60))
    right = first + 1.6 * own
    return right, right if unswapped else second + 0.8 * own, owner, k


def by_both(share):
    """Make a reliance of which captions are found with the right numbers, and with the swapped ones."""
    return lambda right, swapped, *rest: share(found(right, *rest).float(), found(swapped, *rest).float())


RELIANCE = {
    "A share is wanted: one number from 0 to 1.": holds(
        lambda answer: 0 <= float(answer(*similarities())) <= 1, wrong=[lambda *given: 100 * reliance(*given)]
    ),
    "If swapping the numbers changes no similarity, no caption loses its place.": same(unswapped=True),
    "Of the captions found with the right numbers, count those not found with the swapped ones.": same(),
    "Ties: a picture that scores exactly as high as the own one stands before it.": same(tied=True, k=1),
    "Use k, whatever it is.": same({"k": 1}, {"k": 3}, {"k": 10}),
    "Divide by the captions that were found with the right numbers, not by all captions: one that was never "
    "found has nothing to lose.": by_both(lambda before, after: (before * (1 - after)).mean()),
    "You compare two counts. A caption found only with swapped numbers does not make up for one that was "
    "lost.": by_both(lambda before, after: 1 - after.sum() / before.sum()),
    "The own picture is one of those that score at least as high as itself: it is among the first k if there "
    "are at most k of them.": like(
        lambda right, swapped, owner, k: reliance(right, swapped, owner, k - 1),
        lambda right, swapped, owner, k: reliance(right, swapped, owner, k + 1),
    ),
    "The argument k says how many places count, and you always take ten.": lambda right, swapped, owner, k: (
        reliance(right, swapped, owner)
    ),
    "That share keeps its place. We want the share that loses it.": lambda *given: 1 - reliance(*given),
    "Right. 0: the number is not used; 1: without it, nothing is found.": passed,
}


def probe(z, said, alpha=1.0):
    return solved(z - z.mean(0), said - said.mean(0), alpha * torch.eye(z.shape[1]))


def captions(rows=40, alpha=1.0):
    """Vectors (n, 5) whose mean is not zero, which of three words the captions have, (n, 3), and alpha."""
    z, noise = normal((40, 5), (40, 3), seed=5)
    z = z + 0.5
    return z[:rows], (z[:, :3] + 0.5 * noise > 0.8).float()[:rows], alpha


def solved(z, said, penalty):
    return torch.linalg.inv(z.T @ z + penalty) @ z.T @ said


PROBE = {
    "Return one column for each word, (D, V).": shape(),
    "Centre both, then solve (X'X + alpha I) W = X'Y.": same(),
    "Another alpha should give other weights.": same(alpha=30.0),
    "With fewer captions than dimensions, alpha alone makes the matrix invertible.": same(rows=4),
    "You added alpha to every entry. It belongs on the diagonal, alpha times the identity.": (
        lambda z, said, alpha: solved(z - z.mean(0), said - said.mean(0), torch.tensor(alpha))
    ),
    "Right. The score of a word is the vector times the word's column.": passed,
}


def pulls(q, v, own, tau=0.05):
    pull = torch.arange(len(v)).eq(own).float() - (v @ q / tau).softmax(0)  # (C,)
    return pull @ v, torch.outer(pull, q)


def query(own=2, tau=0.5):
    """A query (6,) and five candidates (5, 6), all of length one; which is its own; a temperature."""
    q, v = normal((6,), (5, 6), seed=51)
    return q / q.norm(), v / v.norm(dim=1, keepdim=True), own, tau


def weighed(weigh):
    """Make pulls whose weights come from the shares Z, from which candidate is the own, and from tau."""

    def made(q, v, own, tau):
        pull = weigh((v @ q / tau).softmax(0), torch.arange(len(v)) == own, tau)
        return pull @ v, torch.outer(pull, q)

    return made


GRADIENT = {
    "Return two: for the query (D,), and for all candidates (C, D), the positive among them.": shape(),
    "Over all candidates, the weights add up to zero: 1 - Z of the positive is the Z of all negatives.": same(
        by=lambda made: made[1].sum(0)
    ),
    "Equations 2c and 2d: each candidate gets the query, times 1 - Z for the positive and -Z for a "
    "negative, where Z (2a) has the tau that was given, and in the order of `v`.": same(own=3, by=1),
    "Equation 2b: the query gets the sum of all candidates, with the same weights.": same(
        {"own": 2}, {"own": 0}, {"own": 4, "tau": 0.2}
    ),
    "The signs are turned round: these push away from the positive. The left sides are minus the "
    "gradient.": weighed(lambda Z, own, tau: Z - own.float()),
    "The left sides are minus the gradient times tau: there is no 1 / tau left.": like(
        weighed(lambda Z, own, tau: (own.float() - Z) / tau),
        weighed(lambda Z, own, tau: (Z - own.float()) / tau),
    ),
    "The positive pulls with 1 - Z, which vanishes once the pair is told apart, not with 1.": weighed(
        lambda Z, own, tau: torch.where(own, 1.0, -Z)
    ),
    "Right. These are equations 2b to 2d.": passed,
}


def of_negatives(lead, count=63):
    """The weight of so many negatives, if the positive's logit leads by so much."""
    return count * math.exp(-lead) / (1 + count * math.exp(-lead))


VANISH = {
    "A weight of a softmax lies between 0 and 1.": between(0, 1),
    "Divide the lead by tau: a negative's exponential is tiny beside the positive's.": between(-inf, 0.5),
    "Let the positive's exponential be 1. Each of 63 negatives has exp(-0.5 / 0.05). Give five digits after "
    "the point.": equals(of_negatives(10), 6e-6),
    "That is Z of the positive. What is left for the negatives?": like(1 - of_negatives(10), tolerance=1e-3),
    "That is one negative. There are 63 of them.": like(math.exp(-10), tolerance=5e-6),
    "Divide the cosines by tau first: a lead of 0.5 becomes one of 10.": of_negatives(0.5),
    "In a batch of 64, one is the positive: 63 negatives.": like(of_negatives(10, 64), tolerance=2e-6),
    "Divide by the sum of all 64 exponentials: the positive's 1 belongs to it too.": like(
        63 * math.exp(-10), tolerance=1e-6
    ),
    "Right. Less than a third of a percent of the gradient is left, for all features together.": passed,
}

BREAK = {
    "A temperature is above zero.": between(0, inf),
    "The lower the temperature, the less is left for the negatives. Go up.": between(0.1, inf),
    "The lead is 2. The negatives have half of the weight when 63 exp(-2 / tau) is 1, the positive's "
    "share.": holds(lambda answer: 63 * math.exp(-2 / float(answer)) > 0.97),
    "Right. Even a perfect separation leaves the loss with a strong gradient.": passed,
}

SHARE = {
    "A caption has 255 others beside it, and 32 marks.": between(1, inf),
    "Only one in 32 of the others has the same mark.": between(-inf, 32),
    "Each of the 255 others has its mark by chance.": equals(255 / 32, 0.02),
    "You divided the marks by the pairs.": 0.125,
    "Take the caption itself away before you divide: 255 others, each with a chance of 1 / 32. Give two "
    "digits after the point.": like(7, 8),
    "Right. For these, the mark is of no use.": passed,
}

EXERCISES = {
    "15.guess": predict("What happens without the mark", 3, "right", "swapped", "gone"),
    "15.reliance": code("A measure of reliance", 12, RELIANCE, reliance, similarities),
    "15.probe": code(
        "A linear probe", 10, PROBE, probe, captions, instead=("Ridge", "RidgeCV", "ridge_regression")
    ),
    "15.gradient": code("InfoNCE's gradient by hand", 15, GRADIENT, pulls, query, instead=AUTOGRAD),
    "15.vanish": compute("What a shortcut leaves", 6, VANISH, difficulty="easy"),
    "15.break": break_it("A loss that cannot be satisfied", 8, BREAK, solution=0.5),
    "15.share": compute("Who shares my mark?", 5, SHARE, difficulty="easy"),
    "15.explore": explore("Change one thing", 20, difficulty="hard"),
}
