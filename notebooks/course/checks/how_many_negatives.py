"""The exercises of notebook 11, *How many negatives?*."""

import math
import operator

import torch
from torch import inf

from course.checks.comparing import between, equals, gradient, holds, like, passed, same, shape
from course.checks.kinds import NO_GRADIENT, break_it, code, compute, explore, predict
from course.checks.samples import random_batch
from vsecore.losses import adopt, adopt_k


def k_hardest(S, K, temperature=0.05):
    return adopt(S, temperature, negatives=K)


def scores(size=6, K=5, temperature=0.05, shift=0.0, good=False):
    """A batch, K and a temperature. In a good batch, pairs are far ahead of all negatives."""
    S, _ = random_batch(size, 1, seed=size)
    return (S.mul(0.1).fill_diagonal_(0.3) if good else 0.4 * S + shift if shift else S), K, temperature


def one_way(S, K, temperature, hidden_by=-inf):
    """The loss of the pictures, whose own captions are hidden by a number."""
    hardest = S.clone().fill_diagonal_(hidden_by).topk(K, dim=1).indices
    logits = torch.cat([S.diag()[:, None], S.gather(1, hardest)], dim=1) / temperature
    return -logits.log_softmax(1)[:, 0].mean()


LOSS = {
    "Return one number for the batch, as a tensor: each direction is a mean over the pairs.": shape(),
    "With all negatives it must be InfoNCE in both directions: check the pair in the sum, the temperature, "
    "the mean over the pairs, and that the two directions are added.": same(size=5, K=4),
    "Only the K hardest negatives are in the sum: those with the largest similarities, found row by row for "
    "pictures and column by column for captions.": same(size=7, K=2),
    "A pair may not be its own negative, not even if it has the highest similarity: hide the diagonal with "
    "minus infinity before you look for the largest.": same(K=1, good=True),
    "The temperature is an argument: use it.": same(K=3, temperature=0.5),
    NO_GRADIENT: gradient(size=4, K=2, exact=False),
    "You let each pair be its own negative: hide the diagonal with minus infinity before you look for the "
    "largest.": like(lambda S, K, t: one_way(S, K, t, inf) + one_way(S.T, K, t, inf), K=1, good=True),
    "That is only one direction: pictures choose among captions, and captions among pictures.": like(
        one_way,
        lambda S, *rest: one_way(S.T, *rest),
        lambda *given: 2 * one_way(*given),
        lambda S, *rest: 2 * one_way(S.T, *rest),
    ),
    "Your loss is wrong where negatives are below zero: what hides a pair must be smaller than any "
    "similarity.": like(
        lambda S, K, t: one_way(S, K, t, 0) + one_way(S.T, K, t, 0),
        right_on={"shift": 0.5},
        wrong_on={"shift": -0.5},
    ),
    "Right. With K = B − 1 it is InfoNCE, with K = 1 nearly the hardest triplet.": passed,
}

K_BY_HAND = {
    "K counts negatives: at least 1, and at most one fewer than the batch has pairs.": between(0.99, 127.01),
    "The uniformity is a mean over equal numbers. Add the alignment, take the power 1.25, the cosine (in "
    "radians), times 128; round down, and add one.": equals(24),
    "Nearly: the rule adds one after rounding down.": 23,
    "K counts negatives: round down to a whole number.": like(23.3, when=lambda K: not float(K).is_integer()),
    "You took the cosine of the sum itself: raise the sum to the power 1.25 first.": 35,
    "The uniformity is not 0: it is the mean of exp(−s), and exp(0) is 1.": like(124, 125, 126),
}


def alike(own=0.0, others=0.0, size=128, seed=None):
    """A batch with these similarities of the pairs and of all others, or a random one that has learned."""
    if seed is not None:
        return (0.7 * random_batch(64, 1, seed)[0] + 0.3 * torch.eye(64),)
    return (torch.full((size, size), others).fill_diagonal_(own),)


RULE = {
    "Return one whole number. `math.floor` of a float gives one.": holds(
        lambda answer: isinstance(operator.index(answer(*alike())), int), wrong=[lambda S: float(adopt_k(S))]
    ),
    "Try a batch of 128 zeros: alignment 0, uniformity 1. What is 128 cos(1), rounded down, plus 1?": same(),
    "Check the power 1.25, the sign in exp(−s), and the floor.": same(
        {"own": 0.3}, {"own": 0.2, "others": 0.3}
    ),
    "In the uniformity the similarity of a pair itself counts as 0, and so it adds exp(0) = 1 to the sum. "
    "The mean is over all B × B places.": same(*({"seed": seed} for seed in range(8))),
    "Keep K between 1 and B − 1: the cosine can be negative, and one is added at the end.": same(
        {"own": 0.94, "others": 0.02}, {"own": 1.0, "others": -1.0, "size": 5}, {"size": 2}
    ),
    "A sum γ below 0 counts as 0. Then all negatives are kept.": same(own=-1.0, others=0.9),
    "Right. From a batch of similarities to a number of negatives.": passed,
}

HALF = math.log(2)  # what a query pays when its pair is its own negative

BREAK = {
    "The softmax of each query is over two numbers: its pair, and once more its pair. What is minus the "
    "logarithm of the first one's share?": holds(
        lambda answer: any(abs(float(answer) - times * HALF) < 2e-2 for times in (1, 2))
    ),
    "You counted one direction: add the pictures' and the captions'.": equals(2 * HALF, wrong=[HALF]),
    "Not 0: the pair would have to beat itself, and it cannot.": 0,
    "That is the gap to a negative at −1. Without the mask the hardest one is the pair itself.": like(40, 80),
    "The loss is a mean over the pairs, not their sum.": like(128 * HALF, 256 * HALF),
}

EXERCISES = {
    "11.loss": code("The K hardest", 15, LOSS, k_hardest, scores, tolerance=1e-4),
    "11.k": compute("K by hand", 6, K_BY_HAND, difficulty="easy"),
    "11.rule": code("The K rule", 10, RULE, adopt_k, alike),
    "11.fall": predict("The schedule", 2, "at once", "evenly", "later", "hardly"),
    "11.break": break_it("The pair as its own negative", 5, BREAK, difficulty="easy", tolerance=2e-2),
    "11.explore": explore("How many from the start?", 20),
}
