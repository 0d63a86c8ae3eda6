"""The exercises of notebook 10, *Pooling: sort, weigh, sum*."""

import torch
from torch import Tensor, inf, nan

from course.checks.comparing import (
    agrees,
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
from course.checks.kinds import NO_GRADIENT, break_it, code, compute, explore, no_gradient_at, predict
from course.checks.samples import normal, padded
from vsecore.pooling import GPO, AdPool, KMaxPool, SoftPool


def theta(answer, longer=1):
    """What the answer's two vectors make of the sorted rows of 10.weights, (2, 3)."""
    rows = torch.tensor([[3.0, 2], [1, 2], [0, 1]])  # (N, D)
    return (longer * answer @ rows.T).softmax(1)


WEIGHTS = {
    "Two vectors of two numbers each: W for the maximum, then W for 2-max.": holds(
        lambda answer: answer.shape == (2, 2) and bool(theta(answer).isfinite().all()),
        wrong=[[10.0, 0.0]],
    ),
    "The maximum: the first row's logit must be far above the others'. By which number do the first two rows "
    "differ?": holds(lambda answer: bool((theta(answer)[0, 1:] <= 0.01).all()), wrong=[[[0, 10], [0, 20]]]),
    "2-max: the first two rows must have the same logit. They differ only in the first dimension.": holds(
        lambda answer: abs(theta(answer)[1, 0] - theta(answer)[1, 1]) < 0.01, wrong=[[[10, 0], [20, 0]]]
    ),
    "2-max: the first two rows have the same logit; the third row's must be far below it.": holds(
        lambda answer: theta(answer)[1, 2] <= 0.01, wrong=[[[10, 0], [0, -20]]]
    ),
    "These look like the weights θ of three rows. Give W: the softmax turns its products into θ.": like(
        [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], when=lambda answer: answer.shape == (2, 3)
    ),
    "W = 0 gives all rows the same weight: that is the mean.": torch.zeros(2, 2),
    "The direction is right, but the softmax still gives weight to every row: make W longer.": like(
        [[1, 0], [0, 1]],
        when=lambda answer: agrees(theta(answer, 100), torch.tensor([[1, 0, 0], [0.5, 0.5, 0]]), 0.01),
    ),
}


def k_max(x, mask, k):
    return KMaxPool(k)(x, mask)


def elements(counts=(5, 4), k=2, filler=0.0, scale=1, flipped=False):
    x, mask = padded(counts, max(counts), 4, filler, seed=k)
    return (scale * x.flip(1), mask.flip(1), k) if flipped else (scale * x, mask, k)


def hidden_by_five(x, mask, k):
    top = torch.where(mask[..., None], x, -5.0).topk(min(k, x.shape[1]), dim=1).values
    return top.where(top > -5, 0).sum(1) / (top > -5).sum(1)


KMAX = {
    "Return one vector for each row of the batch, (B, D).": shape(counts=[5, 5, 5]),
    "Without padding and with enough elements: the mean of each dimension's k largest values.": same(
        {"k": 1}, {"k": 3}, counts=[5, 5]
    ),
    "A zero from the padding came out on top: all the real values here are below zero.": same(),
    "No set of five has seven largest values: take the mean of the five.": same(counts=[5, 5], k=7),
    "A row with one real element and k = 4: only real values count, in the sum and in the number that "
    "divides it.": same(*({"scale": scale} for scale in (1, 1000)), counts=[6, 1, 2], k=4),
    "Padding may be anywhere: use the mask, not a count.": same(counts=[6, 4, 2], k=3, flipped=True),
    "A value of the padding got into the result: zero times NaN is NaN. Try torch.where or "
    "masked_fill.": same({"filler": nan}, {"filler": inf}, counts=[6, 1, 3], k=4),
    NO_GRADIENT: gradient(counts=[5, 3]),
    "Values between -2 and -1 come out right, values between -2000 and -1000 do not: what hides the padding "
    "must be lower than any value.": like(
        hidden_by_five,
        right_on={"counts": [6, 1, 2], "k": 4},
        wrong_on={"counts": [6, 1, 2], "k": 4, "scale": 1000},
    ),
    "Right. It gives what vsecore.pooling.KMaxPool gives.": passed,
}


def gpo_weights(places, gru, linear):
    pool = GPO(gru.input_size, gru.hidden_size)
    pool.gru, pool.linear = gru, linear
    return pool.weights(torch.tensor([len(places)]))[0]


def weights_of_places(weights, count):
    """The weights made for so many places, and the gradient of the linear layer from their squares."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(count)
        pool = GPO()
    with torch.no_grad():
        pool.linear.weight.copy_(torch.linspace(-1, 1.5, pool.linear.in_features))
    theta = weights(pool._places(count), pool.gru, pool.linear)
    if isinstance(theta, Tensor) and theta.requires_grad:
        theta.square().sum().backward()
    return theta, pool.linear.weight.grad


def sharpened(factor, parts=slice(2)):
    """Make weights whose logits are multiplied by a number, of one or both directions."""
    return lambda places, gru, linear: (
        factor * linear(gru(places)[0].unflatten(-1, (2, -1))[:, parts].mean(1))[:, 0]
    ).softmax(0)


GPO_TABLE = {
    "Return one weight for each place, (N,), even if N is 1: `squeeze(-1)` takes away the last dimension "
    "alone.": shape({}, {"count": 1}, by=0),
    "Weights are not negative and add up to 1 over the places: which function makes them so?": same(
        by=lambda made: made[0].sum()
    ),
    "The network returns both directions side by side, (N, 64). The linear layer takes 32 numbers: the mean "
    "of the two directions.": holds(
        lambda answer: any(
            agrees(answer(6)[0], weights_of_places(sharpened(factor), 6)[0]) for factor in (0.1, 1, 10)
        ),
        wrong=[sharpened(5)],
    ),
    "The weights are too even: divide the numbers by 0.1 before the softmax.": same(
        *({"count": count} for count in (1, 6, 9)), by=0
    ),
    no_gradient_at("the linear layer"): same(count=5, by=1),
    "That is only one of the two directions. Both of them count.": like(
        sharpened(10, slice(1)), sharpened(10, slice(1, 2)), by=0
    ),
    "Right. It gives what vsecore.pooling.GPO gives.": passed,
}


def token_level(u, mask, W_tok):
    pool = AdPool(u.shape[2], token_share=1.0).to(u)
    return torch.func.functional_call(pool, {"token.weight": W_tok.T}, (u, mask))


def rows(counts=(5, 2, 1), scale=1.0):
    """Sorted rows (B, 5, 4) below zero, then padding of zeros; which rows are real; a vector W (4, 1)."""
    x, mask = padded(counts, 5, 4, -inf)
    u = x.sort(1, descending=True).values.masked_fill(~mask[..., None], 0.0)
    return u, mask, scale * normal((4, 1))[0]


TOKEN = {
    "Return one vector for each set, (B, D): the rows are summed away.": shape(counts=[5, 5, 5]),
    "With W = 0 all rows have the same weight, and the result is their mean. Over which dimension does the "
    "softmax go?": same(counts=[5, 5], scale=0.0),
    "Each row has one logit: its product with W. Their softmax weighs the rows.": same(counts=[5, 5]),
    "A set with padding: a padded row must have the weight 0, and the real ones must add up to 1. Which "
    "logit gives that?": same(),
    no_gradient_at("the rows or at W"): gradient(0, 2, counts=[5, 3]),
    "The weights already add up to one: sum the rows, do not take their mean.": divided(token_level, 5),
    "Right. It gives what AdPool(token_share=1.0) of vsecore.pooling gives.": passed,
}


def adpool(token, x, mask, W_bal):
    both = torch.stack([token, SoftPool()(x, mask)], 1)  # (B, 2, D)
    return ((both @ W_bal).softmax(1) * both).sum(1)  # (B, D)


def levels(counts=(6, 4), scale=1.0, filler=0.0):
    """A result of the token level (B, 4), elements (B, 6, 4), their mask and a vector W (4, 1)."""
    token, W_bal = normal((len(counts), 4), (4, 1), seed=6)
    return token, *padded(counts, 6, 4, filler), scale * W_bal


BALANCE = {
    "Return one vector for each set, (B, D).": shape(counts=[6, 6, 6]),
    "With W = 0 each level has half. The embedding level takes a softmax over the elements, in each "
    "dimension by itself.": same(counts=[6, 6], scale=0.0),
    "Each level has one logit: its product with W. Their softmax gives the parts.": same(counts=[6, 6]),
    "Padding gets a share in the embedding level's softmax: hide it first.": same(counts=[6, 3, 1]),
    "Padding may hold anything, also large values, infinity and NaN: it must have no share and add nothing. "
    "Zero times NaN is NaN.": same(*({"filler": filler} for filler in (7.0, nan, inf)), counts=[6, 3, 1]),
    no_gradient_at("the elements or at W"): gradient(1, 3, counts=[6, 2]),
    "Each level has the part of the other: in which order did you stack them?": lambda token, x, mask, W: (
        adpool(token, x, mask, -W)
    ),
    "Right. With your token level, this is vsecore.pooling.AdPool.": passed,
}

BREAK = {
    "It lies between the padding's 0 and the largest value.": between(0, 2),
    "Each row's share is proportional to 2 to the power of its value. How many rows are padding, and what is "
    "the share of a zero?": equals(10 / 12),
    "That is the caption by itself: now six rows of padding get shares too.": 10 / 6,
    "Eight rows in all: two are real, so how many are padding?": 10 / 14,
    "That is the mean over all eight rows; W is not zero, so the rows have different shares.": 3 / 8,
    "That is the mean of the two words: it leaves out both W and the padding.": 1.5,
}

EXERCISES = {
    "10.weights": compute("Be the maximum, be 2-max", 8, WEIGHTS, solution=torch.tensor([[9.0, 0], [0, 9]])),
    "10.kmax": code("k-max under a mask", 12, KMAX, k_max, elements),
    "10.gpo": code(
        "GPO's weights", 10, GPO_TABLE, gpo_weights, lambda count=6: (count,), caller=weights_of_places
    ),
    "10.double": predict("Every cell twice", 3, "mean", "5-max", "AdPool", "GPO"),
    "10.token": code("The token level", 10, TOKEN, token_level, rows),
    "10.balance": code("The embedding level and the balance", 12, BALANCE, adpool, levels),
    "10.break": break_it("Break it", 8, BREAK, tolerance=5e-3),
    "10.explore": explore("A balance by hand", 20),
}
