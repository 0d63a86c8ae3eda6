"""The exercises of notebook 05, *Relations*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, gradient_of, one_of

# ---------------------------------------------------------------- 05.block

_WIDTH, _HEADS = 8, 2


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _attended(x: Tensor, mask: Tensor, ask: Tensor, heads: int, root: bool = True) -> Tensor:
    """The heads' answers side by side, (B, N, D)."""
    q, k, u = (x @ ask.T).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)  # (B, A, N, Dh) each
    scale = None if root else 1.0  # None: torch divides by the root
    answer = F.scaled_dot_product_attention(q, k, u, attn_mask=mask[:, None, None], scale=scale)
    return answer.transpose(1, 2).flatten(2)


def _block(
    x: Tensor, mask: Tensor, ask: Tensor, join: Tensor, widen: Tensor, narrow: Tensor, heads: int
) -> Tensor:
    z = x + _attended(_norm(x), mask, ask, heads) @ join.T  # (B, N, D)
    return z + (_norm(z) @ widen.T).relu() @ narrow.T


def _as_printed(
    x: Tensor, mask: Tensor, ask: Tensor, join: Tensor, widen: Tensor, narrow: Tensor, heads: int
) -> Tensor:
    z = x + _attended(_norm(x), mask, ask, heads) @ join.T
    return x + (_norm(z) @ widen.T).relu() @ narrow.T


def _norm_last(
    x: Tensor, mask: Tensor, ask: Tensor, join: Tensor, widen: Tensor, narrow: Tensor, heads: int
) -> Tensor:
    z = _norm(x + _attended(x, mask, ask, heads) @ join.T)
    return _norm(z + (z @ widen.T).relu() @ narrow.T)


def _without_norm(
    x: Tensor, mask: Tensor, ask: Tensor, join: Tensor, widen: Tensor, narrow: Tensor, heads: int
) -> Tensor:
    z = x + _attended(x, mask, ask, heads) @ join.T
    return z + (z @ widen.T).relu() @ narrow.T


def _without_root(
    x: Tensor, mask: Tensor, ask: Tensor, join: Tensor, widen: Tensor, narrow: Tensor, heads: int
) -> Tensor:
    z = x + _attended(_norm(x), mask, ask, heads, root=False) @ join.T
    return z + (_norm(z) @ widen.T).relu() @ narrow.T


def _sharing(share: Callable[[Tensor, int], Tensor], normal: bool = True) -> Callable[..., Tensor]:
    """Make a block that computes its shares by a wrong rule from the products (B, A, N, N) and D_h."""

    def block(
        x: Tensor, mask: Tensor, ask: Tensor, join: Tensor, widen: Tensor, narrow: Tensor, heads: int
    ) -> Tensor:
        read = _norm(x) if normal else x
        q, k, u = (read @ ask.T).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        answer = (share(q @ k.mT, q.shape[-1]) @ u).transpose(1, 2).flatten(2)
        z = x + answer @ join.T
        return z + (_norm(z) @ widen.T).relu() @ narrow.T

    return block


def _not_joined(
    x: Tensor, mask: Tensor, ask: Tensor, join: Tensor, widen: Tensor, narrow: Tensor, heads: int
) -> Tensor:
    return _block(x, mask, ask, torch.eye(_WIDTH), widen, narrow, heads)


def _one_head(
    x: Tensor, mask: Tensor, ask: Tensor, join: Tensor, widen: Tensor, narrow: Tensor, heads: int
) -> Tensor:
    return _block(x, mask, ask, join, widen, narrow, 1)


def _given(
    *zeros: str, lengths: tuple[int, ...] = (5, 5), filler: float = 0.0
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int]:
    """What the exercise hands over, some of its matrices zero: elements (2, 5, 8) of these numbers."""
    generator = torch.Generator().manual_seed(5)
    shapes = {"ask": (24, 8), "join": (8, 8), "widen": (16, 8), "narrow": (8, 16)}
    x = torch.randn(len(lengths), 5, _WIDTH, generator=generator)
    drawn = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    ask, join, widen, narrow = (
        torch.zeros_like(weight) if name in zeros else weight for name, weight in drawn.items()
    )
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]  # (B, N)
    return x.masked_fill(~mask[..., None], filler), mask, ask, join, widen, narrow, _HEADS


def _same(block: Callable[..., Any], *arguments: Any, other: Callable[..., Tensor] = _block) -> bool:
    """Whether a block gives what another gives, where the elements are real."""
    mask = arguments[1]
    return torch.allclose(block(*arguments)[mask], other(*arguments)[mask], atol=1e-4)


def _does(other: Callable[..., Tensor]) -> Callable[[Any], bool]:
    """Whether an answer is a block of another kind."""
    return lambda block: _same(block, *_given(), other=other)


def _block_learns(block: Callable[..., Any]) -> bool:
    x, mask, ask, *rest = _given()

    def gradient(of: Callable[..., Any]) -> Tensor:
        def squares(weight: Tensor) -> Tensor:
            answer: Tensor = of(x, mask, weight, *rest)
            return answer.square()

        return gradient_of(squares, ask.clone())

    mine, right = gradient(block), gradient(_block)
    return torch.allclose(mine, right, rtol=1e-3, atol=1e-3)


# ---------------------------------------------------------------- 05.padding


def _pushed(tokens: Tensor, mask: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    source = torch.arange(tokens.shape[1]) - shift[:, None]  # (C, L)   where each place takes its word from
    inside = source >= 0
    source = source.clamp(min=0)
    return tokens.gather(1, source), mask.gather(1, source) & inside


def _captions(shift: tuple[int, int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Captions of 3, 6 and 2 words in 6 places, and how far each is to be pushed."""
    mask = torch.arange(6) < torch.tensor([3, 6, 2])[:, None]
    return (torch.arange(18).view(3, 6) + 4).masked_fill(~mask, 0), mask, torch.tensor(shift)


def _pair_of_shapes(answer: Any) -> bool:
    return (
        isinstance(answer, tuple | list)
        and len(answer) == 2
        and all(isinstance(part, Tensor) and part.shape == (3, 6) for part in answer)
        and answer[1].dtype == torch.bool
    )


def _mask_is_right(push: Callable[..., Any], shift: tuple[int, int, int]) -> bool:
    return torch.equal(push(*_captions(shift))[1], _pushed(*_captions(shift))[1])


def _words_are_right(push: Callable[..., Any], shift: tuple[int, int, int]) -> bool:
    (tokens, mask), (expected, real) = push(*_captions(shift)), _pushed(*_captions(shift))
    return torch.equal(mask, real) and torch.equal(tokens[real], expected[real])


def _pushed_left(push: Callable[..., Any]) -> bool:
    tokens, mask, shift = _captions((2, 0, 3))
    rolled = torch.stack([row.roll(-int(s)) for row, s in zip(mask, shift, strict=True)])
    return torch.equal(push(tokens, mask, shift)[1], rolled)


def _pushed_alike(push: Callable[..., Any]) -> bool:
    tokens, mask, shift = _captions((2, 0, 3))
    return torch.equal(push(tokens, mask, shift)[1], mask.roll(2, 1))


EXERCISES: dict[str, Exercise] = {
    "05.predict": Exercise(
        "Which of them knows the order?",
        "predict",
        4,
        one_of("none", "one", "two", "three", "all"),
        difficulty="easy",
        message=NOTED,
    ),
    "05.block": Exercise(
        "The Transformer block",
        "code",
        25,
        (
            Trial(
                lambda answer: isinstance(made := answer(*_given()), Tensor) and made.shape == (2, 5, _WIDTH),
                "Return as many elements of the same width, (B, N, D).",
            ),
            Trial(
                lambda answer: _same(answer, *_given("join", "narrow")),
                "With `join` and `narrow` zero, both steps add nothing, so each element must come out as it "
                "went in.",
            ),
            Trial(
                lambda answer: _same(answer, *_given("join")),
                "With `join` zero there is no attention, and what is left is the second step: "
                "x + network(norm(x)), where the network widens, cuts at zero (ReLU) and narrows.",
            ),
            Trial(
                lambda answer: _same(answer, *_given("narrow")),
                "With `narrow` zero there is only the first step: normalise, cut the three parts into heads, "
                "attend, put the heads side by side, apply `join`, and add x.",
            ),
            Trial(
                lambda answer: _same(answer, *_given()),
                "Each step is right alone, but not one after the other: the second must read and add to z, "
                "the result of the first.",
            ),
            Trial(
                lambda answer: _same(answer, *_given(lengths=(5, 2), filler=30.0)),
                "With padding: give a padded element no share, before the softmax. The mask belongs to the "
                "elements that are asked, the last dimension of (B, A, N, N).",
            ),
            Trial(
                _block_learns,
                "No gradient, or a wrong one, arrives at `ask`: stay with torch's operations, without "
                ".item(), detach or numpy.",
            ),
        ),
        mistakes=(
            Trial(
                _does(_as_printed),
                "That is what the thesis prints: the second step adds to x. Here it adds to z.",
            ),
            Trial(
                _does(_norm_last),
                "You normalise after each sum. In this block norm comes first, before each step.",
            ),
            Trial(_does(_without_norm), "Neither step normalises what it reads."),
            Trial(
                _does(_without_root), "You did not divide the products q · k by the root of a head's width."
            ),
            Trial(
                lambda block: bool(block(*_given(lengths=(5, 2))).isnan().any()),
                "Your result has NaN: a softmax over nothing but -inf. Is the mask the right way round? It "
                "is True where an element is real.",
            ),
            Trial(
                _does(_sharing(lambda products, width: (products / (_HEADS * width) ** 0.5).softmax(-1))),
                "You divide by the root of the whole width. Each head has a width of its own, "
                "D_h = D / heads.",
            ),
            Trial(
                _does(_sharing(lambda products, width: (products / width).softmax(-1))),
                "You divide by a head's width. Divide by its root.",
            ),
            Trial(
                _does(_sharing(lambda products, width: (products / width**0.5).softmax(-2))),
                "The softmax goes over the elements that are asked, the last dimension: each element shares "
                "out a weight of one.",
            ),
            Trial(
                _does(_sharing(lambda products, width: (products / width**0.5).softmax(-1), normal=False)),
                "The first step reads norm(x), not x.",
            ),
            Trial(
                _does(_not_joined),
                "`join` is not used: it goes over the heads' answers before x is added.",
            ),
            Trial(
                _does(_one_head), "There is one head of the whole width: cut q, k and u into `heads` slices."
            ),
        ),
        difficulty="hard",
        reference=_block,
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
        message="Right. It gives what torch.nn.TransformerEncoderLayer gives.",
    ),
    "05.padding": Exercise(
        "Start anywhere",
        "code",
        12,
        (
            Trial(
                lambda answer: _pair_of_shapes(answer(*_captions((0, 0, 0)))),
                "Return two tensors of the shape (C, L): the tokens, and the mask as bool.",
            ),
            Trial(
                lambda answer: _words_are_right(answer, (0, 0, 0)),
                "With a shift of zero nothing moves.",
            ),
            Trial(
                lambda answer: _mask_is_right(answer, (2, 0, 3)),
                "The mask must move with the words: place i takes what stood at place i − shift, and the "
                "places in front are padding.",
            ),
            Trial(
                lambda answer: _words_are_right(answer, (3, 0, 4)),
                "The mask is right, but the words under it are not those of the caption, in their order.",
            ),
        ),
        mistakes=(
            Trial(_pushed_left, "You pushed the captions to the left."),
            Trial(_pushed_alike, "You pushed all captions equally far: `shift` has a number for each."),
        ),
        reference=_pushed,
    ),
    "05.break": Exercise(
        "Break it",
        "break",
        5,
        (
            Trial(lambda answer: float(answer) > 0, "A spread is a number above zero."),
            Trial(
                lambda answer: near(answer, 8.0, 0.01),
                "The product of two independent entries has spread one, and variances add up over the "
                "entries. Spread is the root of the variance.",
            ),
        ),
        mistakes=(
            Trial(lambda answer: near(answer, 64.0, 0.01), "That is the variance."),
            Trial(lambda answer: near(answer, 1.0, 0.01), "That is the spread with the division."),
        ),
        difficulty="easy",
        message="Right. Dividing by the root of the width brings it back to one.",
    ),
    "05.ablation": Exercise("Change one thing", "explore", 15, EXPLORED, difficulty="hard", message="Noted."),
}
