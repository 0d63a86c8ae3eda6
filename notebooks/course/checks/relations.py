"""The exercises of notebook 05, *Relations*."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, inf
from torch.nn import functional as F

from course.checks.comparing import between, equals, gradient, like, passed, same, shape
from course.checks.kinds import break_it, code, explore, no_gradient_at, predict
from course.checks.samples import normal, real


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def block(
    x: Tensor, mask: Tensor, ask: Tensor, join: Tensor, widen: Tensor, narrow: Tensor, heads: int
) -> Tensor:
    q, k, u = (norm(x) @ ask.T).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)  # (B, A, N, Dh) each
    answer = F.scaled_dot_product_attention(q, k, u, attn_mask=mask[:, None, None])
    z = x + answer.transpose(1, 2).flatten(2) @ join.T  # (B, N, D)
    return z + (norm(z) @ widen.T).relu() @ narrow.T


def weights(zero: Sequence[str] = (), counts: Sequence[int] = (5, 5), filler: float = 0.0) -> tuple[Any, ...]:
    """What the exercise hands over, some of its matrices zero: sets (2, 5, 8) of so many elements."""
    sizes = {"ask": (24, 8), "join": (8, 8), "widen": (16, 8), "narrow": (8, 16)}
    x, *drawn = normal((len(counts), 5, 8), *sizes.values(), seed=5)
    mask = real(counts, 5)  # (B, N)
    given = (matrix / 3 * (name not in zero) for name, matrix in zip(sizes, drawn, strict=True))
    return x.masked_fill(~mask[..., None], filler), mask, *given, 2


def same_as_is(x: Tensor) -> Tensor:
    return x


def built(
    share: Callable[[Tensor], Tensor] = lambda products: (products / 2).softmax(-1),
    first: Callable[[Tensor], Tensor] = norm,
    second: Callable[[Tensor], Tensor] = norm,
    last: Callable[[Tensor], Tensor] = same_as_is,
) -> Callable[..., Tensor]:
    """Make a block without a mask: how it shares by q · k (B, A, N, N), and what comes before and after."""

    def made(
        x: Tensor, mask: Tensor, ask: Tensor, join: Tensor, widen: Tensor, narrow: Tensor, heads: int
    ) -> Tensor:
        q, k, u = (first(x) @ ask.T).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        z = last(x + (share(q @ k.mT) @ u).transpose(1, 2).flatten(2) @ join.T)
        return last(z + (second(z) @ widen.T).relu() @ narrow.T)

    return made


def as_printed(
    x: Tensor, mask: Tensor, ask: Tensor, join: Tensor, widen: Tensor, narrow: Tensor, heads: int
) -> Tensor:
    z = block(x, mask, ask, join, widen, 0 * narrow, heads)
    return x + block(x, mask, ask, join, widen, narrow, heads) - z


def side_by_side(
    x: Tensor, mask: Tensor, ask: Tensor, join: Tensor, widen: Tensor, narrow: Tensor, heads: int
) -> Tensor:
    z = block(x, mask, ask, join, widen, 0 * narrow, heads)
    return z + block(x, mask, ask, 0 * join, widen, narrow, heads) - x


BLOCK = {
    "Return as many elements of the same width, (B, N, D).": shape(),
    "With `join` and `narrow` zero, both steps add nothing, so each element must come out as it went "
    "in.": same(zero=["join", "narrow"]),
    "With `join` zero there is no attention, and what is left is the second step: x + network(norm(x)), "
    "where the network widens, cuts at zero (ReLU) and narrows.": same(zero=["join"]),
    "With `narrow` zero there is only the first step: normalise, cut the three parts into heads, attend, put "
    "the heads side by side, apply `join`, and add x.": same(zero=["narrow"]),
    "Each step is right alone, but not one after the other: the second must read and add to z, the result of "
    "the first.": same(wrong=[side_by_side]),
    "With padding: give a padded element no share, before the softmax. The mask belongs to the elements that "
    "are asked, the last dimension of (B, A, N, N).": same(
        counts=[5, 2], filler=30.0, by=lambda made: made[real([5, 2], 5)], wrong=[built()]
    ),
    no_gradient_at("`ask`"): gradient(of=2, by=torch.square),
    "That is what the thesis prints: the second step adds to x. Here it adds to z.": like(as_printed),
    "You normalise after each sum. In this block norm comes first, before each step.": like(
        built(first=same_as_is, second=same_as_is, last=norm)
    ),
    "Neither step normalises what it reads.": like(built(first=same_as_is, second=same_as_is)),
    "You did not divide the products q · k by the root of a head's width.": like(
        built(lambda products: products.softmax(-1))
    ),
    "Your result has NaN: a softmax over nothing but -inf. Is the mask the right way round? It is True where "
    "an element is real.": like(
        built(lambda products: (products - inf).softmax(-1)),
        when=lambda answer: answer(*weights(counts=[5, 2])).isnan().any(),
    ),
    "You divide by the root of the whole width. Each head has a width of its own, D_h = D / heads.": like(
        built(lambda products: (products / 8**0.5).softmax(-1))
    ),
    "You divide by a head's width. Divide by its root.": like(
        built(lambda products: (products / 4).softmax(-1))
    ),
    "The softmax goes over the elements that are asked, the last dimension: each element shares out a weight "
    "of one.": like(built(lambda products: (products / 2).softmax(-2))),
    "The first step reads norm(x), not x.": like(built(first=same_as_is)),
    "`join` is not used: it goes over the heads' answers before x is added.": like(
        lambda x, mask, ask, join, *rest: block(x, mask, ask, torch.eye(8), *rest)
    ),
    "There is one head of the whole width: cut q, k and u into `heads` slices.": like(
        lambda x, mask, ask, join, widen, narrow, heads: block(x, mask, ask, join, widen, narrow, 1)
    ),
}


def pushed(tokens: Tensor, mask: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    source = torch.arange(tokens.shape[1]) - shift[:, None]  # (C, L)   where each place takes its word from
    inside = source >= 0
    source = source.clamp(min=0)
    return tokens.gather(1, source), mask.gather(1, source) & inside


def captions(shift: Sequence[int] = (2, 0, 3)) -> tuple[Tensor, Tensor, Tensor]:
    """Captions of 3, 6 and 2 words in 6 places, and how far each is to be pushed."""
    mask = real([3, 6, 2], 6)
    return (torch.arange(18).view(3, 6) + 4).masked_fill(~mask, 0), mask, torch.tensor(shift)


def forms(made: Any) -> list[Any]:
    return [(part.shape, part.dtype == torch.bool) for part in made]


def words(made: Any) -> tuple[Tensor, Tensor]:
    """The mask, and the tokens under it."""
    return made[1], made[0] * made[1]


PADDING = {
    "Return two tensors of the shape (C, L): the tokens, and the mask as bool.": same(
        shift=[0, 0, 0], by=forms, wrong=[lambda *given: pushed(*given)[0]]
    ),
    "With a shift of zero nothing moves.": same(shift=[0, 0, 0], by=words),
    "The mask must move with the words: place i takes what stood at place i − shift, and the places in front "
    "are padding.": same(by=1, wrong=[lambda tokens, mask, shift: (pushed(tokens, mask, shift)[0], mask)]),
    "The mask is right, but the words under it are not those of the caption, in their order.": same(
        shift=[3, 0, 4],
        by=words,
        wrong=[lambda tokens, mask, shift: (tokens, pushed(tokens, mask, shift)[1])],
    ),
    "You pushed the captions to the left.": like(
        lambda tokens, mask, shift: (tokens, mask.gather(1, (torch.arange(6) + shift[:, None]) % 6)), by=1
    ),
    "You pushed all captions equally far: `shift` has a number for each.": like(
        lambda tokens, mask, shift: pushed(tokens, mask, shift[:1].expand(3)),
        lambda tokens, mask, shift: (tokens, mask.roll(2, 1)),
        by=1,
    ),
}

BREAK = {
    "A spread is a number above zero.": between(0, inf),
    "The product of two independent entries has spread one, and variances add up over the entries. Spread is "
    "the root of the variance.": equals(8.0),
    "That is the variance.": like(64.0),
    "That is the spread with the division.": like(1.0),
    "Right. Dividing by the root of the width brings it back to one.": passed,
}

EXERCISES = {
    "05.predict": predict("Which of them knows the order?", 4, "none", "one", "two", "three", "all"),
    "05.block": code(
        "The Transformer block",
        25,
        BLOCK,
        block,
        weights,
        gives="torch.nn.TransformerEncoderLayer",
        difficulty="hard",
        instead=(
            "TransformerEncoderLayer",
            "TransformerEncoder",
            "Transformer",
            "MultiheadAttention",
            "multi_head_attention_forward",
            "scaled_dot_product_attention",
            "_scaled_dot_product_attention_math",
            "_transformer_encoder_layer_fwd",
        ),
    ),
    "05.padding": code("Start anywhere", 12, PADDING, pushed, captions),
    "05.break": break_it("Break it", 5, BREAK, difficulty="easy", tolerance=0.01),
    "05.ablation": explore("Change one thing", 15, difficulty="hard"),
}
