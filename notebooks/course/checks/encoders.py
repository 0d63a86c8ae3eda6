"""The exercises of notebook 02, *Encoders*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, gradient_of, one_of
from vsecore.pooling import MeanPool

# ---------------------------------------------------------------- 02.mean


def _mean_of_real(x: Tensor, mask: Tensor) -> Tensor:
    mean: Tensor = MeanPool()(x, mask)
    return mean


def _padded(filler: float) -> tuple[Tensor, Tensor, Tensor]:
    """Elements (B, N, D) of unequal number, what fills the rest, their mask (B, N) and their means (B, D)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 4, generator=generator)
    mask = torch.arange(5) < torch.tensor([5, 1, 3])[:, None]
    means = torch.stack([x[row, : mask[row].sum()].mean(0) for row in range(3)])
    return x.masked_fill(~mask[..., None], filler), mask, means


def _right_under(pool: Callable[..., Any], filler: float) -> bool:
    x, mask, means = _padded(filler)
    return torch.allclose(torch.as_tensor(pool(x, mask)), means, atol=1e-5)


def _right_without_padding(pool: Callable[..., Any]) -> bool:
    x, _, _ = _padded(0.0)
    return torch.allclose(pool(x, torch.ones(3, 5, dtype=torch.bool)), x.mean(1), atol=1e-5)


def _right_in_any_place(pool: Callable[..., Any]) -> bool:
    """Whether it holds to the mask where padding comes first, not last."""
    x, mask, means = _padded(7.0)
    return torch.allclose(pool(x.flip(1), mask.flip(1)), means, atol=1e-5)


def _has_gradient(pool: Callable[..., Any]) -> bool:
    x, mask, _ = _padded(0.0)
    return bool((gradient_of(lambda elements: pool(elements, mask), x)[mask] != 0).all())


# ---------------------------------------------------------------- 02.gru

_WORD, _STATE = 4, 3  # widths of the word vectors and states that the trials hand over


def _gru_step(x: Tensor, h: Tensor, W: Tensor, U: Tensor, w: Tensor, u: Tensor) -> Tensor:
    return torch.gru_cell(x, h, W, U, w, u)


def _gru_inputs(reset: float = 0.0, update: float = 0.0) -> list[Tensor]:
    """Words (5, 4), states (5, 3) and weights in the exercise's order; two numbers move the gates."""
    generator = torch.Generator().manual_seed(2)
    shapes = (
        (5, _WORD),
        (5, _STATE),
        (3 * _STATE, _WORD),
        (3 * _STATE, _STATE),
        (3 * _STATE,),
        (3 * _STATE,),
    )
    x, h, W, U, w, u = (torch.randn(shape, generator=generator) for shape in shapes)
    w[:_STATE] += reset
    w[_STATE : 2 * _STATE] += update
    return [x, h, W, U, w, u]


def _same_as_gru(step: Callable[..., Any], *inputs: Tensor) -> bool:
    return torch.allclose(step(*inputs), _gru_step(*inputs), atol=1e-5)


def _gates_of(x: Tensor, h: Tensor, W: Tensor, U: Tensor, w: Tensor, u: Tensor) -> tuple[Tensor, ...]:
    """The two gates, and what the word and the past bring to the proposal, (C, D) each."""
    of_word, of_past = (x @ W.T + w).chunk(3, -1), (h @ U.T + u).chunk(3, -1)
    r, z = (torch.sigmoid(of_word[part] + of_past[part]) for part in (0, 1))
    return r, z, of_word[2], of_past[2]


def _mixed_the_other_way(step: Callable[..., Any]) -> bool:
    x, h, *weights = _gru_inputs()
    r, z, of_word, of_past = _gates_of(x, h, *weights)
    return torch.allclose(
        step(x, h, *weights), (1 - z) * h + z * torch.tanh(of_word + r * of_past), atol=1e-5
    )


def _gates_in_the_other_order(step: Callable[..., Any]) -> bool:
    x, h, *weights = _gru_inputs()
    z, r, of_word, of_past = _gates_of(x, h, *weights)
    return torch.allclose(
        step(x, h, *weights), z * h + (1 - z) * torch.tanh(of_word + r * of_past), atol=1e-5
    )


def _reset_before_the_matrix(step: Callable[..., Any]) -> bool:
    x, h, W, U, w, u = _gru_inputs()
    r, z, of_word, _ = _gates_of(x, h, W, U, w, u)
    past = (r * h) @ U.chunk(3)[2].T + u.chunk(3)[2]
    return torch.allclose(step(x, h, W, U, w, u), z * h + (1 - z) * torch.tanh(of_word + past), atol=1e-5)


def _gru_learns(step: Callable[..., Any]) -> bool:
    x, h, W, U, w, u = _gru_inputs()
    mine = gradient_of(lambda weight: step(x, h, W, weight, w, u), U.clone())
    right = gradient_of(lambda weight: _gru_step(x, h, W, weight, w, u), U.clone())
    return torch.allclose(mine, right, atol=1e-4)


# ---------------------------------------------------------------- 02.attention


def _attention(q: Tensor, k: Tensor, u: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, u, attn_mask=mask[:, None, None])


def _asked(lengths: tuple[int, ...], filler: float = 0.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys and values (C, 2, 5, 4) of captions of these lengths, and the mask (C, 5)."""
    generator = torch.Generator().manual_seed(3)
    q, k, u = torch.randn(3, len(lengths), 2, 5, 4, generator=generator)
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    padding = ~mask[:, None, :, None]
    return q, k.masked_fill(padding, filler), u.masked_fill(padding, filler), mask


def _same_where_real(answer: Tensor, expected: Tensor, mask: Tensor) -> bool:
    """Nobody reads what a query of the padding gets."""
    return torch.allclose(answer.transpose(1, 2)[mask], expected.transpose(1, 2)[mask], atol=1e-5)


def _same_as_attention(attention: Callable[..., Any], lengths: tuple[int, ...], filler: float = 0.0) -> bool:
    q, k, u, mask = _asked(lengths, filler)
    return _same_where_real(attention(q, k, u, mask), _attention(q, k, u, mask), mask)


def _mean_if_all_keys_are_equal(attention: Callable[..., Any]) -> bool:
    q, k, u, mask = _asked((5, 5))
    return torch.allclose(
        attention(q, torch.zeros_like(k), u, mask), u.mean(2, keepdim=True).expand_as(u), atol=1e-5
    )


def _without_the_root(attention: Callable[..., Any]) -> bool:
    q, k, u, mask = _asked((5, 5))
    return torch.allclose(attention(q, k, u, mask), _attention(2 * q, k, u, mask), atol=1e-5)


def _divided_by_the_width(attention: Callable[..., Any]) -> bool:
    q, k, u, mask = _asked((5, 5))
    return torch.allclose(attention(q, k, u, mask), _attention(q / 2, k, u, mask), atol=1e-5)


def _softmax_over_the_queries(attention: Callable[..., Any]) -> bool:
    q, k, u, mask = _asked((5, 5))
    return torch.allclose(attention(q, k, u, mask), (q @ k.mT / 2).softmax(-2) @ u, atol=1e-5)


def _attention_learns(attention: Callable[..., Any]) -> bool:
    q, k, u, mask = _asked((5, 3))

    def squares(of: Callable[..., Any], keys: Tensor) -> Tensor:
        answer: Tensor = of(q, keys, u, mask)
        return answer.transpose(1, 2)[mask].square()

    mine = gradient_of(lambda keys: squares(attention, keys), k.clone())
    right = gradient_of(lambda keys: squares(_attention, keys), k.clone())
    return torch.allclose(mine, right, atol=1e-4)


EXERCISES: dict[str, Exercise] = {
    "02.mean": Exercise(
        "A mean that padding cannot touch",
        "code",
        10,
        (
            Trial(
                lambda answer: isinstance(made := answer(*_padded(0.0)[:2]), Tensor) and made.shape == (3, 4),
                "Return one vector for each row of the batch, (B, D): the mean of its elements.",
            ),
            Trial(_right_without_padding, "Without padding it must be the plain mean over dimension 1."),
            Trial(
                lambda answer: _right_under(answer, 0.0),
                "Zeros in the padding change your mean: divide by the number of real elements, not by N.",
            ),
            Trial(
                lambda answer: _right_under(answer, 1e4),
                "The values in the padding get into your sum: use the mask to leave them out.",
            ),
            Trial(
                _right_in_any_place,
                "Padding may come anywhere, not only last: use the mask, not the number of elements.",
            ),
            Trial(
                lambda answer: _right_under(answer, float("nan")) and _right_under(answer, float("inf")),
                "Zero times NaN is NaN: choose with torch.where or masked_fill instead of multiplying.",
            ),
            Trial(
                _has_gradient,
                "No gradient arrives: stay with torch's operations, without .item(), detach or numpy.",
            ),
        ),
        reference=_mean_of_real,
        message="Right. It gives what vsecore.pooling.MeanPool gives.",
    ),
    "02.far": Exercise(
        "The farthest thing",
        "predict",
        3,
        one_of("rarely", "half the time", "mostly"),
        difficulty="easy",
        message=NOTED,
    ),
    "02.explore": Exercise(
        "Ask another question", "explore", 15, EXPLORED, difficulty="hard", message="Noted."
    ),
    "02.gru": Exercise(
        "One step of a GRU",
        "code",
        15,
        (
            Trial(
                lambda answer: (
                    isinstance(made := answer(*_gru_inputs()), Tensor) and made.shape == (5, _STATE)
                ),
                "Return one new state for each caption, (C, D).",
            ),
            Trial(
                lambda answer: _same_as_gru(answer, *_gru_inputs(reset=50, update=50)),
                "Where z is one, all of the past stays: the new state must equal the old one, equation (7).",
            ),
            Trial(
                lambda answer: _same_as_gru(answer, *_gru_inputs(reset=50, update=-50)),
                "Where z is zero and r is one, the new state is tanh(W x + U h), with both biases: "
                "equation (8).",
            ),
            Trial(
                lambda answer: _same_as_gru(answer, *_gru_inputs(reset=-50, update=-50)),
                "Where z and r are zero, the new state is tanh(W x + w): the gate r multiplies U h with its "
                "bias.",
            ),
            Trial(
                lambda answer: _same_as_gru(answer, *_gru_inputs()),
                "With gates between zero and one the states still differ: look at r, equation (5).",
            ),
            Trial(
                _gru_learns,
                "No gradient, or a wrong one, arrives at U: stay with torch's operations, without .item(), "
                "detach or numpy.",
            ),
        ),
        mistakes=(
            Trial(_mixed_the_other_way, "z says how much of the past stays: you gave it to the proposal."),
            Trial(_gates_in_the_other_order, "The first third of W and U makes r, the second makes z."),
            Trial(
                _reset_before_the_matrix,
                "That is what the paper prints, U times (r ⊙ h). Here r multiplies U h with its bias.",
            ),
        ),
        reference=_gru_step,
        instead=("GRU", "GRUCell", "gru", "gru_cell"),
        message="Right. It gives what torch.nn.GRUCell gives.",
    ),
    "02.attention": Exercise(
        "Attention",
        "code",
        12,
        (
            Trial(
                lambda answer: (
                    isinstance(made := answer(*_asked((5, 5))), Tensor) and made.shape == (2, 2, 5, 4)
                ),
                "Return one vector for each query, (C, A, L, Dh).",
            ),
            Trial(
                _mean_if_all_keys_are_equal,
                "If all keys are equal, each word's answer is the mean of the values: a word's shares, a row "
                "of (C, A, L, L), add up to one.",
            ),
            Trial(
                lambda answer: _same_as_attention(answer, (5, 5)),
                "Without padding: the fit is the product of query and key, divided by the root of Dh.",
            ),
            Trial(
                lambda answer: _same_as_attention(answer, (5, 3, 1)),
                "With padding: the fit of a padded key must be so low that the softmax gives it nothing, "
                "and the real words' shares must still add up to one.",
            ),
            Trial(
                lambda answer: _same_as_attention(answer, (5, 3, 1), filler=50.0),
                "The values in the padding get into the answer: hide its fits before the softmax.",
            ),
            Trial(
                _attention_learns,
                "No gradient, or a wrong one, arrives at the keys: stay with torch's operations, without "
                ".item(), detach or numpy.",
            ),
        ),
        mistakes=(
            Trial(_without_the_root, "You did not divide by the root of Dh."),
            Trial(_divided_by_the_width, "You divided by Dh; equation (1) divides by its root."),
            Trial(
                _softmax_over_the_queries,
                "Your shares add up to one over the queries. They must add up to one over the keys, the last "
                "dimension.",
            ),
        ),
        reference=_attention,
        instead=(
            "MultiheadAttention",
            "multi_head_attention_forward",
            "scaled_dot_product_attention",
            "_scaled_dot_product_attention_math",
        ),
        message="Right. It gives what torch's scaled_dot_product_attention gives.",
    ),
    "02.break": Exercise(
        "Break it",
        "break",
        8,
        (
            Trial(lambda answer: -1.001 <= float(answer) <= 1.001, "A cosine lies between −1 and 1."),
            Trial(
                lambda answer: near(answer, 1.0, 1e-3),
                "What could still tell the two sentences apart, once nothing says where a word stands?",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 0.0, 1e-3),
                "Zero would mean that they have nothing in common, but they have all their words in common.",
            ),
            Trial(
                lambda answer: near(answer, -1.0, 1e-3),
                "They mean the opposite, but does this reader know? It sees the same words.",
            ),
            Trial(
                lambda answer: 0.9 <= float(answer) < 0.999,
                "That is the cosine with the positions still in place: what if they are all zero?",
            ),
        ),
    ),
}
