"""The exercises of notebook 09, *The quintuplet loss*."""

from operator import itemgetter

import torch
from torch.nn.functional import normalize

from course.checks.comparing import (
    Gradient,
    between,
    divided,
    equals,
    gradient,
    holds,
    like,
    passed,
    same,
    shape,
)
from course.checks.kinds import AUTOGRAD, break_it, code, compute, explore, no_gradient_at, predict
from course.checks.samples import gradient_of, normal
from vsecore.losses import offline_triplet


def off_tri(positive, online, offline, margin=0.2, offline_margin=0.0):
    return offline_triplet(positive, *online, *offline, margin, offline_margin)  # type: ignore[call-arg]


def similarities(count, kinds):
    """Random similarities of some kinds, (B,) each: open hinges and closed ones."""
    generator = torch.Generator().manual_seed(100 * count + 10 * kinds)
    return [torch.rand(count, generator=generator) * 2 - 1 for _ in range(kinds)]


def five(values=(), margins=()):
    """Similarities of six pairs, two online and two offline negatives, (B,) each; or of one pair."""
    positive, *negatives = torch.tensor(values)[:, None] if values else similarities(6, 5)
    return positive, negatives[:2], negatives[2:], *margins


TRIPLET = {
    "Return one number for the batch, as a tensor.": shape(),
    "Here the pair wins by far: the loss should be zero.": same(values=[0.9, 0.0, 0.0, 0.5, 0.5]),
    "One pair at 0.5, online negatives at 0.4 and 0.2, offline ones at 0.4 and 0.7: the hinges are 0.1, 0, 0 "
    "and 0.2.": same(values=[0.5, 0.4, 0.2, 0.4, 0.7]),
    "Four hinges for each pair, summed over the batch.": same(),
    "Both margins are arguments: use them.": same(margins=[0.5, 0.1]),
    no_gradient_at("the pairs"): gradient(),
    "The offline negatives have a margin of their own, `offline_margin`.": (
        lambda positive, online, offline: off_tri(positive, online, offline, 0.2, 0.2)
    ),
    "Your loss is off by a constant factor: it is a sum, not a mean.": divided(off_tri, 4, 6, 24),
    "Right. It gives what vsecore.losses.offline_triplet gives.": passed,
}


def new_pairs(positive, of_text, of_picture, offline_margin=0.0):
    (own_picture, text), (picture, own_text) = of_text, of_picture  # (B, D) each
    pair, swapped = (picture * text).sum(-1), (own_picture * own_text).sum(-1)  # (B,) each
    return ((offline_margin - positive + pair).relu() + (offline_margin - positive + swapped).relu()).sum()


def two_sides(count=7, best=False, margins=()):
    """The similarities of some pairs (B,), or ones, and unit vectors of two more pairs each, (B, D)."""
    first, second, third, fourth = (normalize(one, dim=-1) for one in normal(*[(count, 5)] * 4, seed=count))
    own = torch.rand(count, generator=torch.Generator().manual_seed(count)) - 0.5
    return torch.ones(count) if best else own, (first, second), (third, fourth), *margins


def gradient_at_pictures(loss, given):
    positive, of_text, (picture, own_text) = given
    return bool(gradient_of(lambda v: loss(positive, of_text, (v, own_text)), picture).any())


def by_matrices(positive, of_text, of_picture):
    products = torch.stack([of_picture[0] @ of_text[1].T, of_text[0] @ of_picture[1].T])  # (2, B, B)
    return (products - positive).relu().sum()


PAIRS = {
    "Return one number for the batch, as a tensor.": shape(),
    "Here every pair has similarity 1, and no pair can be more similar: the loss is zero.": same(best=True),
    "With one pair: each of the two new pairs takes a picture and a caption that do not belong together. "
    "Which are they?": same(count=1),
    "Two hinges for each pair, summed over the batch.": same(),
    "The margin is an argument: use it.": same(margins=[0.3]),
    no_gradient_at("the pictures"): Gradient(gradient_at_pictures, [{}]),
    "You push apart what belongs together: a caption and its own picture. Take one side of each.": (
        lambda positive, a, b: new_pairs(positive, (b[0], a[1]), (a[0], b[1]))
    ),
    "That is one of the two new pairs. The other is made of the two that are left.": like(
        lambda positive, a, b: new_pairs(positive, a, (b[0], -9 * a[0])),
        lambda positive, a, b: new_pairs(positive, (a[0], -9 * b[0]), b),
    ),
    "You compare every row with every other. Row by row, each pair has one partner: multiply element by "
    "element, and sum over the last dimension.": like(
        by_matrices, lambda positive, *sides: by_matrices(positive[:, None], *sides)
    ),
    "Right. With off_tri it gives what vsecore.losses.offline_quintuplet gives.": passed,
}


def weighted_online(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    weight = beta - (offline - online) / alpha  # (B,)
    return (weight * (margin - positive + online).relu()).sum()


def three(easy=False, alike=False, options=()):
    """Similarities of pairs, and of an online and an offline negative each, (40,).

    If it is easy the pairs win by far; or else the two negatives may be alike.
    """
    positive, online, offline = similarities(40, 3)
    return positive + 9 * easy, online, online.clone() if alike else offline, *options


WEIGHTS = {
    "Return one number for the batch, as a tensor.": shape(),
    "Where both negatives are equally hard, each term is beta times its hinge.": same(alike=True),
    "The weight is beta, minus how much harder the offline negative is, divided by alpha.": same(),
    "Margin, beta and alpha are arguments: use them.": same(options=[0.4, 2.0, 0.7]),
    "The gradient should flow through the weight too: no detach, no .item().": gradient(2),
    "The sign is wrong: the harder the offline negative, the smaller the weight.": (
        lambda positive, online, offline: weighted_online(positive, online, 2 * online - offline)
    ),
    "The weight compares the offline negative with the online one, not with the pair.": (
        lambda positive, online, offline: weighted_online(positive, online, offline + online - positive)
    ),
    "Your loss is off by a constant factor: it is a sum, not a mean.": divided(weighted_online, 40),
    "You keep the weight from falling below zero. The equation does not; we come to that.": (
        lambda positive, online, offline: weighted_online(positive, online, offline.clamp(max=online + 0.45))
    ),
}


def by_hand(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    gap = margin - positive + online  # (B,)
    near_by, far = (gap > 0).to(gap.dtype), (offline - positive > 0).to(gap.dtype)  # (B,) each
    weight = beta - (offline - online) / alpha
    return -near_by * weight - far, near_by * (weight + gap / alpha), far - near_by * gap / alpha


GRADIENT = {
    "Return three tensors, (B,) each: by the pair, by the online and by the offline negative.": same(
        by=lambda made: [tuple(part.shape) for part in made]
    ),
    "Here the pair wins by far, so no hinge is open, and every derivative should be zero.": same(easy=True),
    "By the pair: each open hinge gives -1 times its weight. The offline hinge has the weight 1.": same(by=0),
    "By the online negative: it stands in the hinge and in the weight. Use the product rule.": same(by=1),
    "By the offline negative: it stands in its own hinge, and in the weight of the other.": same(by=2),
    "Margin, beta and alpha are arguments: use them.": same(options=[0.5, 1.0, 0.6]),
    "All signs are reversed: we want the derivative, not the direction of descent.": lambda *given: [
        -part for part in by_hand(*given)
    ],
    "The last two are in the wrong order: first by the online negative, then by the offline one.": like(
        lambda *given: itemgetter(0, 2, 1)(by_hand(*given)), by=itemgetter(1, 2)
    ),
    "Right. That is equation 6, but for the pair without common elements.": passed,
}

NEGATIVE = {
    "Give one number between -1 and 1.": between(-1.001, 1.001),
    "Set the weight to zero and solve for the offline negative's similarity.": equals(0.55),
    "That is the gap between the two. Where is the offline one?": 0.45,
    "The offline negative is the harder of the two: it lies above the online one.": -0.35,
}


def parts(answer):
    """The pair's similarity, the two with online negatives, and the other four."""
    pair, *others = (float(one) for one in answer)
    return pair, others[:2], others[2:]


BREAK = {
    "Give seven numbers between -1 and 1.": holds(
        lambda answer: len(answer) == 7 and all(-1 <= float(one) <= 1 for one in answer),
        wrong=[[0.5] * 6, [5] * 7],
    ),
    "Here the pair still wins against both online negatives, so it would be found.": holds(
        lambda answer: max(parts(answer)[1]) >= parts(answer)[0], wrong=[[0.9, 0.1, 0.2, 0, 0, 0, 0]]
    ),
    "One direction still finds the pair: let both online negatives be as similar as it is.": holds(
        lambda answer: min(parts(answer)[1]) >= parts(answer)[0], wrong=[[0.5, 0.6, 0.1, 0, 0, 0, 0]]
    ),
    "An offline hinge is open. With a margin of 0, it closes unless its negative wins.": holds(
        lambda answer: max(parts(answer)[2]) < parts(answer)[0] + 1e-6, wrong=[[0.1, 0.2, 0.3, 0.9, 0, 0, 0]]
    ),
    "Right, and no offline hinge notices.": passed,
}

EXERCISES = {
    "09.triplet": code("Offline negatives besides online ones", 8, TRIPLET, off_tri, five, difficulty="easy"),
    "09.shared": predict("What both captions share", 4, "a", "b", "c", "d"),
    "09.pairs": code("Pairs without common elements", 10, PAIRS, new_pairs, two_sides),
    "09.weights": code(
        "A weight for each online negative", 8, WEIGHTS, weighted_online, three, difficulty="easy"
    ),
    "09.gradient": code(
        "Equation 6 by hand",
        15,
        GRADIENT,
        by_hand,
        three,
        difficulty="hard",
        defined_above=("weighted_online", "off_tri"),
        instead=AUTOGRAD,
    ),
    "09.negative": compute("When the weight is negative", 4, NEGATIVE, difficulty="easy"),
    "09.break": break_it("A loss of zero without retrieval", 5, BREAK, solution=[0.5] * 7),
    "09.explore": explore("Change one thing", 15),
}
