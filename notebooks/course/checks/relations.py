"""The exercises of notebook 05, *Relations*."""

import torch
from torch import Tensor, inf, nan
from torch.nn import functional as F

from course.checks.comparing import between, equals, gradient, like, passed, same, shape
from course.checks.kinds import ATTENTION, break_it, code, explore, no_gradient_at, predict
from course.checks.samples import normal, real


def norm(x):
    return F.layer_norm(x, x.shape[-1:])


def block(x, mask, ask, join, widen, narrow, heads):
    q, k, u = (norm(x) @ ask.T).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)  # (B, A, N, Dh) each
    answer = F.scaled_dot_product_attention(q, k, u, attn_mask=mask[:, None, None])
    z = x + answer.transpose(1, 2).flatten(2) @ join.T  # (B, N, D)
    return z + (norm(z) @ widen.T).relu() @ narrow.T


def weights(zero=(), counts=(5, 5), filler=0.0, heads=2):
    """What the exercise hands over, some of its matrices zero: sets (2, 5, 8) of so many elements."""
    sizes = {"ask": (24, 8), "join": (8, 8), "widen": (16, 8), "narrow": (8, 16)}
    x, *drawn = normal((len(counts), 5, 8), *sizes.values(), seed=5)
    mask = real(counts, 5)  # (B, N)
    given = (matrix / 3 * (name not in zero) for name, matrix in zip(sizes, drawn, strict=True))
    return x.masked_fill(~mask[..., None], filler), mask, *given, heads


def built(divisor=2, pre_norm=True):
    """Make a block without a mask, whose products q · k are divided by a number, perhaps normed elsewhere."""

    def made(x, mask, ask, *rest):
        join, widen, narrow, heads = rest
        first, last = (norm, Tensor.clone) if pre_norm else (Tensor.clone, norm)
        q, k, u = (first(x) @ ask.T).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        z = last(x + ((q @ k.mT / divisor).softmax(-1) @ u).transpose(1, 2).flatten(2) @ join.T)
        return last(z + (first(z) @ widen.T).relu() @ narrow.T)

    return made


def as_printed(*given):
    *rest, narrow, heads = given
    first_step = [*rest, 0 * narrow, heads]
    return given[0] + block(*given) - block(*first_step)


BLOCK = {
    "Return as many elements of the same width, (B, N, D).": shape(),
    "With `join` and `narrow` zero, both steps add nothing, so each element must come out as it went "
    "in.": same(zero=["join", "narrow"]),
    "With `join` zero there is no attention, and what is left is the second step: x + network(norm(x)), "
    "where the network widens, cuts at zero (ReLU) and narrows.": same(zero=["join"]),
    "With `narrow` zero there is only the first step: normalise, cut the three parts into heads, attend, put "
    "the heads side by side, apply `join`, and add x.": same({}, {"heads": 4}, zero=["narrow"]),
    "Each step is right alone, but not one after the other: the second must read and add to z, the result of "
    "the first.": same(),
    "With padding: give a padded element no share, before the softmax. The mask belongs to the elements that "
    "are asked, the last dimension of (B, A, N, N).": same(
        counts=[5, 2], filler=30.0, by=lambda made: made[real([5, 2], 5)] + 0 * made.sum()
    ),
    no_gradient_at("the elements or at `ask`"): gradient(0, 2, by=torch.square),
    "That is what the thesis prints: the second step adds to x. Here it adds to z.": as_printed,
    "You normalise after each sum. In this block norm comes first, before each step.": built(pre_norm=False),
    "You did not divide the products q · k by the root of a head's width.": built(1),
    "You divide by the root of the whole width. Each head has its own width, D_h = D / heads.": built(8**0.5),
    "Your result has NaN: a softmax over nothing but -inf. Is the mask the right way round? It is True where "
    "an element is real, and it hides keys, not queries.": like(
        lambda *given: inf * built()(*given) - inf,
        when=lambda answer: answer(*weights(counts=[5, 2])).isnan().any(),
    ),
    "Right. It gives what torch.nn.TransformerEncoderLayer gives.": passed,
}


def attention(q, k, u, mask):
    return F.scaled_dot_product_attention(q, k, u, attn_mask=mask[:, None, None])


def asked(counts=(5, 5), filler=0.0, alike=False):
    """Queries, keys and values (C, 2, 5, 4) of captions of so many words, and the mask; all keys alike."""
    q, k, u = normal((3, len(counts), 2, 5, 4), seed=3)[0]
    mask = real(counts, 5)
    padding = ~mask[:, None, :, None]
    return q, k.masked_fill(padding | alike, filler), u.masked_fill(padding, filler), mask


def of_words(made):
    """What is compared of captions of 5, 3 and 1 words: nobody reads what a query of the padding gets.

    But it must be a number: NaN would get into the gradients of a training.
    """
    return made.transpose(1, 2)[real([5, 3, 1], 5)] + 0 * made.sum()


ATTEND = {
    "Return one vector for each query, (C, A, L, Dh).": shape(),
    "If all keys are equal, each word's answer is the mean of the values: a word's shares, a row of (C, A, "
    "L, L), add up to one.": same(alike=True),
    "Without padding: the fit is the product of query and key, divided by the root of Dh.": same(),
    "With padding: the fit of a padded key must be so low that the softmax gives it nothing, and the real "
    "words' shares must still add up to one.": same(counts=[5, 3, 1], by=of_words),
    "The values in the padding get into the answer: hide its fits before the softmax.": same(
        counts=[5, 3, 1], filler=50.0, by=of_words
    ),
    no_gradient_at("the queries, the keys or the values"): gradient(
        0, 1, 2, counts=[5, 3, 1], by=lambda made: of_words(made).square()
    ),
    "The mask is the wrong way round: it is True where a word is real, and the others must be hidden.": like(
        lambda q, k, u, mask: attention(q, k, u, ~mask), by=1, counts=[5, 3]
    ),
    "You divided by Dh; equation (1) divides by its root.": lambda q, *rest: attention(q / 2, *rest),
    "Your shares add up to one over the queries. They must add up to one over the keys, the last "
    "dimension.": lambda q, k, u, mask: (q @ k.mT / 2).softmax(-2) @ u,
    "Your result has NaN: some softmax has no key left. Hide keys only, and take it over them, both along "
    "the last dimension of the fits.": like(
        lambda q, k, u, mask: attention(q, k, u, mask).masked_fill(~mask[:, None, :, None], nan),
        when=lambda answer: answer(*asked([5, 3, 1])).isnan().any(),
    ),
    "Right. It gives what torch's scaled_dot_product_attention gives.": passed,
}


def pair_loss(S, margin):
    own, foreign = S.diagonal(dim1=1, dim2=2), S.flip(2).diagonal(dim1=1, dim2=2)  # (B, 2): by pictures
    hinges = torch.stack([margin + other - own for other in (foreign, foreign.flip(1))]).clamp(min=0)
    return hinges.sum((0, 2)).mean()


def twins(own=0.0, spread=1.0, margin=0.2):
    """Scores (3, 2, 2) of a picture and its twin with a sentence and its twin, and a margin."""
    return own * torch.eye(2) + spread * normal((3, 2, 2), seed=7)[0], margin


def gaps(S, margin):
    """What the four hinges of each pair clamp, (B, 4): both pictures, then both sentences."""
    a, b, c, d = S.flatten(1).unbind(1)
    return margin + torch.stack([b - a, c - d, c - a, b - d], 1)


def hinges(S, margin):
    return gaps(S, margin).clamp(min=0)


PAIR = {
    "Return one number, the mean over the batch.": shape(),
    "Where own scores beat foreign ones by more than the margin, the loss is 0.": same(own=1.0, spread=0.0),
    "Where all four scores are equal, each of the four hinges is the margin.": same(
        {"margin": 0.2}, {"margin": 0.5}, spread=0.0
    ),
    "For one pair, write down all four hinges by hand: which wrong score stands in each, and which right "
    "one?": same(spread=0.3),
    no_gradient_at("the scores"): gradient(spread=0.3),
    "Clamp each hinge at zero before you add them up.": like(
        lambda S, margin: gaps(S, margin).sum(1).clamp(min=0).mean(),
        lambda S, margin: gaps(S, margin).unflatten(1, (2, 2)).sum(2).clamp(min=0).sum(1).mean(),
        lambda S, margin: gaps(S, margin).sum(1).mean(),
    ),
    "You compare only along the rows: each picture must be nearer to its own sentence, and each sentence "
    "nearer to its own picture as well.": like(
        lambda S, margin: hinges(S, margin)[:, :2].sum(1).mean(),
        lambda S, margin: 2 * hinges(S, margin)[:, :2].sum(1).mean(),
    ),
    "You compare only along the columns: the sentences choose a picture, but the pictures must choose a "
    "sentence as well.": like(
        lambda S, margin: hinges(S, margin)[:, 2:].sum(1).mean(),
        lambda S, margin: 2 * hinges(S, margin)[:, 2:].sum(1).mean(),
    ),
    "Add up the four hinges of a pair, and take the mean over the batch.": like(
        lambda S, margin: hinges(S, margin).mean(),
        lambda S, margin: hinges(S, margin).sum(),
        lambda S, margin: hinges(S, margin).sum(0).mean(),
    ),
}

BREAK = {
    "A standard deviation is a number above zero.": between(0, inf),
    "The product of two independent entries has standard deviation one, and variances add up "
    "over the entries. The standard deviation is the root of the variance.": equals(8.0),
    "That is the variance.": 64.0,
    "That is the standard deviation after the division.": 1.0,
    "Right. Dividing by the root of the width brings it back to one.": passed,
}

EXERCISES = {
    "05.predict": predict("Which of them knows the order?", 4, "none", "one", "two", "three", "all"),
    "05.attention": code("Attention", 12, ATTEND, attention, asked, instead=ATTENTION),
    "05.block": code(
        "The Transformer block",
        25,
        BLOCK,
        block,
        weights,
        difficulty="hard",
        instead=(*ATTENTION, "TransformerEncoderLayer", "TransformerEncoder", "Transformer"),
    ),
    "05.pair": code("The loss of a pair and its twins", 12, PAIR, pair_loss, twins),
    "05.break": break_it("Break it", 5, BREAK, difficulty="easy", tolerance=0.01),
    "05.ablation": explore("Change one thing", 15, difficulty="hard"),
}
