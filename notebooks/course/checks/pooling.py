"""The exercises of notebook 10, *Pooling: sort, weigh, sum*."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, gradient_of, one_of
from vsecore.pooling import GPO, AdPool, KMaxPool, SoftPool

# ---------------------------------------------------------------- 10.weights

_SORTED = torch.tensor([[3.0, 2.0], [1.0, 2.0], [0.0, 1.0]])  # (N, D)   the rows of 10.weights


def _theta(answer: Any) -> Tensor:
    """What the answer's two vectors make of the sorted rows, (2, 3)."""
    return (torch.as_tensor(answer, dtype=torch.float64) @ _SORTED.double().T).softmax(1)


def _two_vectors(answer: Any) -> bool:
    given = torch.as_tensor(answer, dtype=torch.float64)
    return given.shape == (2, 2) and bool(given.isfinite().all())


def _right_if_longer(answer: Any) -> bool:
    theta = _theta(100 * torch.as_tensor(answer, dtype=torch.float64))  # (2, 3)
    return torch.allclose(theta, torch.tensor([[1, 0, 0], [0.5, 0.5, 0]]).double(), atol=0.01)


# ---------------------------------------------------------------- 10.kmax


def _k_max(x: Tensor, mask: Tensor, k: int) -> Tensor:
    return KMaxPool(k)(x, mask)


def _sets(counts: list[int], elements: int, filler: float, seed: int) -> tuple[Tensor, Tensor]:
    """Negative values (B, N, D), among which a forgotten zero is the largest, and the mask (B, N)."""
    generator = torch.Generator().manual_seed(seed)
    x = -1 - torch.rand(len(counts), elements, 4, generator=generator)
    mask = torch.arange(elements) < torch.tensor(counts)[:, None]
    return x.masked_fill(~mask[..., None], filler), mask


def _same_as_kmax(
    pool: Callable[..., Any], counts: list[int], elements: int, k: int, filler: float = 0.0, scale: float = 1
) -> bool:
    x, mask = _sets(counts, elements, filler, seed=k)
    x = scale * x
    return torch.allclose(pool(x, mask, k), KMaxPool(k)(x, mask), atol=1e-5)


def _hides_too_high(pool: Callable[..., Any]) -> bool:
    """Whether it is right only if values are near zero: it hides the padding by a number such as -5."""
    small, large = (_same_as_kmax(pool, [6, 1, 2], 6, 4, scale=scale) for scale in (1, 1000))
    return small and not large


def _right_in_any_place(pool: Callable[..., Any]) -> bool:
    x, mask = _sets([4, 2, 6], 6, 0.0, seed=3)
    return torch.allclose(pool(x.flip(1), mask.flip(1), 3), KMaxPool(3)(x, mask), atol=1e-5)


def _has_gradient(pool: Callable[..., Any]) -> bool:
    x, mask = _sets([5, 3], 5, 0.0, seed=4)
    gradient = gradient_of(lambda elements: pool(elements, mask, 2), x)
    return near(gradient.sum(), 2 * 4)  # each pooled value passes on 1


# ---------------------------------------------------------------- 10.gpo


def _gpo_weights(places: Tensor, gru: nn.GRU, linear: nn.Linear) -> Tensor:
    pool = GPO(gru.input_size, gru.hidden_size)
    pool.gru, pool.linear = gru, linear
    return pool.weights(torch.tensor([len(places)]))[0]


def _weights_of_places(weights: Callable[..., Any], count: int) -> tuple[Any, Tensor | None]:
    """What is made of the code of some places, of GPO's network and of its linear layer.

    Returns:
        The weights, and the gradient that the linear layer gets from their squares; None if it gets none.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(count)
        pool = GPO()
    with torch.no_grad():
        pool.linear.weight.copy_(torch.linspace(-1, 1.5, pool.linear.in_features))
    theta = weights(pool._places(count), pool.gru, pool.linear)
    gradient = None
    if isinstance(theta, Tensor) and theta.requires_grad:
        (gradient,) = torch.autograd.grad(theta.square().sum(), pool.linear.weight, allow_unused=True)
    return theta, gradient


def _same_as_gpo(called: Callable[..., Any], count: int, sharper: float = 1.0) -> bool:
    """Whether it weighs as GPO does, with its logits multiplied by a number."""
    expected = _weights_of_places(_gpo_weights, count)[0]
    if sharper != 1:
        expected = (expected.log() * sharper).softmax(0)
    return torch.allclose(called(count)[0], expected, atol=1e-5)


def _adds_up(called: Callable[..., Any]) -> bool:
    theta = called(6)[0].detach()
    return bool((theta >= 0).all()) and near(theta.sum(), 1.0)


def _of_one_direction(called: Callable[..., Any]) -> bool:
    """Whether the network's forward or backward half alone was used."""

    def of_half(places: Tensor, gru: nn.GRU, linear: nn.Linear, half: int) -> Tensor:
        return (linear(gru(places)[0].chunk(2, -1)[half]).squeeze(-1) / 0.1).softmax(0)

    theta = called(6)[0]
    halves = [_weights_of_places(partial(of_half, half=half), 6)[0] for half in (0, 1)]
    return any(torch.allclose(theta, wrong, atol=1e-5) for wrong in halves)


def _layer_learns(called: Callable[..., Any]) -> bool:
    gradient = called(5)[1]
    return gradient is not None and bool(gradient.abs().sum() > 0)


# ---------------------------------------------------------------- 10.token


def _token_level(u: Tensor, mask: Tensor, W_tok: Tensor) -> Tensor:
    pool = AdPool(u.shape[2], token_share=1.0).to(u)
    pooled: Tensor = torch.func.functional_call(pool, {"token.weight": W_tok.T}, (u, mask))
    return pooled


def _rows(counts: list[int], elements: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sorted rows (B, N, 4) below zero, then padding of zeros; which rows are real; a vector W (4, 1)."""
    x, mask = _sets(counts, elements, -torch.inf, seed=elements)
    u = x.sort(1, descending=True).values
    generator = torch.Generator().manual_seed(elements)
    return u.masked_fill(~mask[..., None], 0.0), mask, torch.randn(4, 1, generator=generator)


def _same_as_token_level(level: Callable[..., Any], counts: list[int], elements: int, scale: float) -> bool:
    u, mask, W_tok = _rows(counts, elements)
    return torch.allclose(level(u, mask, scale * W_tok), _token_level(u, mask, scale * W_tok), atol=1e-5)


def _token_level_learns(level: Callable[..., Any]) -> bool:
    u, mask, W_tok = _rows([5, 3], 5)
    expected = gradient_of(lambda weight: _token_level(u, mask, weight), W_tok.clone())
    return torch.allclose(gradient_of(lambda weight: level(u, mask, weight), W_tok), expected, atol=1e-5)


# ---------------------------------------------------------------- 10.balance


def _adpool(token: Tensor, x: Tensor, mask: Tensor, W_bal: Tensor) -> Tensor:
    both = torch.stack([token, SoftPool()(x, mask)], 1)  # (B, 2, D)
    return ((both @ W_bal).softmax(1) * both).sum(1)  # (B, D)


def _levels(counts: list[int], filler: float = 0.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A result of the token level (B, 4), elements (B, N, 4), their mask and a vector W (4, 1)."""
    x, mask = _sets(counts, 6, filler, seed=6)
    generator = torch.Generator().manual_seed(6)
    return torch.randn(len(counts), 4, generator=generator), x, mask, torch.randn(4, 1, generator=generator)


def _same_as_adpool(
    pool: Callable[..., Any], counts: list[int], scale: float = 1.0, filler: float = 0.0
) -> bool:
    token, x, mask, W_bal = _levels(counts, filler)
    answer = pool(token, x, mask, scale * W_bal)
    return torch.allclose(answer, _adpool(token, x, mask, scale * W_bal), atol=1e-5)


def _swapped(pool: Callable[..., Any]) -> bool:
    """Whether each level has the part of the other."""
    token, x, mask, W_bal = _levels([6, 4])
    return torch.allclose(pool(token, x, mask, W_bal), _adpool(token, x, mask, -W_bal), atol=1e-5)


def _balance_learns(pool: Callable[..., Any]) -> bool:
    token, x, mask, W_bal = _levels([6, 2])
    return bool(gradient_of(lambda weight: pool(token, x, mask, weight), W_bal).abs().sum() > 0)


# ---------------------------------------------------------------- 10.double and 10.explore


EXERCISES: dict[str, Exercise] = {
    "10.weights": Exercise(
        "Be the maximum, be 2-max",
        "compute",
        8,
        (
            Trial(_two_vectors, "Two vectors of two numbers each: W for the maximum, then W for 2-max."),
            Trial(
                lambda answer: float(_theta(answer)[0, 0]) > 0.99,
                "The maximum: the first row's logit must be far above the others'. By which number do "
                "the first two rows differ?",
            ),
            Trial(
                lambda answer: near(_theta(answer)[1, 0] - _theta(answer)[1, 1], 0, 0.01),
                "2-max: the first two rows must have the same logit. They differ only in the first "
                "dimension.",
            ),
            Trial(
                lambda answer: float(_theta(answer)[1, 2]) < 0.01,
                "2-max: the first two rows have the same logit; the third row's must be far below it.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: torch.as_tensor(answer).shape == (2, 3),
                "These look like the weights θ of three rows. Give W: the softmax turns its products into θ.",
            ),
            Trial(
                lambda answer: bool((torch.as_tensor(answer) == 0).all()),
                "W = 0 gives all rows the same weight: that is the mean.",
            ),
            Trial(
                _right_if_longer,
                "The direction is right, but the softmax still gives weight to every row: make W longer.",
            ),
        ),
    ),
    "10.kmax": Exercise(
        "k-max under a mask",
        "code",
        12,
        (
            Trial(
                lambda answer: (
                    isinstance(made := answer(*_sets([5, 5, 5], 5, 0.0, seed=0), 2), Tensor)
                    and made.shape == (3, 4)
                ),
                "Return one vector for each row of the batch, (B, D).",
            ),
            Trial(
                lambda answer: _same_as_kmax(answer, [5, 5], 5, 1) and _same_as_kmax(answer, [5, 5], 5, 3),
                "Without padding and with enough elements: the mean of each dimension's k largest values.",
            ),
            Trial(
                lambda answer: _same_as_kmax(answer, [5, 4], 5, 2),
                "A zero from the padding came out on top: all the real values here are below zero.",
            ),
            Trial(
                lambda answer: _same_as_kmax(answer, [5, 5], 5, 7),
                "No set of five has seven largest values: take the mean of the five.",
            ),
            Trial(
                lambda answer: all(
                    _same_as_kmax(answer, [6, 1, 2], 6, 4, scale=scale) for scale in (1, 1000)
                ),
                "A row with one real element and k = 4: only real values count, in the sum and in the number "
                "that divides it.",
            ),
            Trial(_right_in_any_place, "Padding may be anywhere: use the mask, do not count from the left."),
            Trial(
                lambda answer: (
                    _same_as_kmax(answer, [6, 1, 3], 6, 4, float("nan"))
                    and _same_as_kmax(answer, [6, 1, 3], 6, 4, float("inf"))
                ),
                "A value of the padding got into the result: zero times NaN is NaN. Try torch.where or "
                "masked_fill.",
            ),
            Trial(
                _has_gradient,
                "No gradient arrives: stay with torch's operations, without .item(), detach or numpy.",
            ),
        ),
        mistakes=(
            Trial(
                _hides_too_high,
                "Values between -2 and -1 come out right, values between -2000 and -1000 do not: what hides "
                "the padding must be lower than any value.",
            ),
        ),
        reference=_k_max,
        message="Right. It gives what vsecore.pooling.KMaxPool gives.",
    ),
    "10.gpo": Exercise(
        "GPO's weights",
        "code",
        10,
        (
            Trial(
                lambda answer: isinstance(made := answer(6)[0], Tensor) and made.shape == (6,),
                "Return one weight for each place, (N,). The linear layer leaves a last dimension of size "
                "one.",
            ),
            Trial(
                _adds_up,
                "Weights are not negative and add up to 1 over the places: which function makes them so?",
            ),
            Trial(
                lambda answer: _same_as_gpo(answer, 6) or _same_as_gpo(answer, 6, 0.1),
                "The network returns both directions side by side, (N, 64). The linear layer takes 32 "
                "numbers: the mean of the two directions.",
            ),
            Trial(
                lambda answer: (
                    _same_as_gpo(answer, 1) and _same_as_gpo(answer, 6) and _same_as_gpo(answer, 9)
                ),
                "The weights are too even: divide the numbers by 0.1 before the softmax.",
            ),
            Trial(
                _layer_learns,
                "No gradient arrives at the linear layer: stay with torch's operations, without .item(), "
                "detach or numpy.",
            ),
        ),
        mistakes=(
            Trial(_of_one_direction, "That is only one of the two directions. Both of them count."),
            Trial(
                lambda answer: _same_as_gpo(answer, 6, 2.0),
                "These weights are too sharp: you added the directions; take their mean.",
            ),
            Trial(
                lambda answer: _same_as_gpo(answer, 6, 0.01),
                "These weights are much too even: you multiplied by 0.1; divide by it.",
            ),
        ),
        reference=_gpo_weights,
        caller=_weights_of_places,
        message="Right. It gives what vsecore.pooling.GPO gives.",
    ),
    "10.double": Exercise(
        "Every cell twice",
        "predict",
        3,
        one_of("mean", "5-max", "AdPool", "GPO"),
        difficulty="easy",
        message=NOTED,
    ),
    "10.token": Exercise(
        "The token level",
        "code",
        10,
        (
            Trial(
                lambda answer: (
                    isinstance(made := answer(*_rows([5, 5, 5], 5)), Tensor) and made.shape == (3, 4)
                ),
                "Return one vector for each set, (B, D): the rows are summed away.",
            ),
            Trial(
                lambda answer: _same_as_token_level(answer, [5, 5], 5, 0.0),
                "With W = 0 all rows have the same weight, and the result is their mean. Over which "
                "dimension does the softmax go?",
            ),
            Trial(
                lambda answer: _same_as_token_level(answer, [5, 5], 5, 1.0),
                "Each row has one logit: its product with W. The softmax of the logits weighs the rows.",
            ),
            Trial(
                lambda answer: _same_as_token_level(answer, [5, 2, 1], 5, 1.0),
                "A set with padding: a padded row must have the weight 0, and the real ones must add up to "
                "1. Which logit gives that?",
            ),
            Trial(
                _token_level_learns,
                "No gradient, or a wrong one, arrives at W: stay with torch's operations, without .item(), "
                "detach or numpy.",
            ),
        ),
        reference=_token_level,
        message="Right. It gives what AdPool(token_share=1.0) of vsecore.pooling gives.",
    ),
    "10.balance": Exercise(
        "The embedding level and the balance",
        "code",
        12,
        (
            Trial(
                lambda answer: (
                    isinstance(made := answer(*_levels([6, 6, 6])), Tensor) and made.shape == (3, 4)
                ),
                "Return one vector for each set, (B, D).",
            ),
            Trial(
                lambda answer: _same_as_adpool(answer, [6, 6], scale=0.0),
                "With W = 0 each level has half. The embedding level takes a softmax over the elements, in "
                "each dimension by itself.",
            ),
            Trial(
                lambda answer: _same_as_adpool(answer, [6, 6]),
                "Each level has one logit: its product with W. A softmax over the two logits gives their "
                "parts.",
            ),
            Trial(
                lambda answer: _same_as_adpool(answer, [6, 3, 1]),
                "A set with padding: it has a share in the embedding level's softmax. Hide it first.",
            ),
            Trial(
                lambda answer: all(
                    _same_as_adpool(answer, [6, 3, 1], filler=filler)
                    for filler in (7.0, float("nan"), float("inf"))
                ),
                "Padding may hold anything, also large values, infinity and NaN: it must have no share and "
                "add nothing. Zero times NaN is NaN.",
            ),
            Trial(
                _balance_learns,
                "No gradient arrives at W: stay with torch's operations, without .item(), detach or numpy.",
            ),
        ),
        mistakes=(
            Trial(_swapped, "Each level has the part of the other: in which order did you stack them?"),
        ),
        reference=_adpool,
        message="Right. With your token level, this is vsecore.pooling.AdPool.",
    ),
    "10.break": Exercise(
        "Break it",
        "break",
        8,
        (
            Trial(
                lambda answer: 0 < float(answer) < 2, "It lies between the padding's 0 and the largest value."
            ),
            Trial(
                lambda answer: near(answer, 10 / 12, 1e-3),
                "Each row's share is proportional to 2 to the power of its value. How many rows are padding, "
                "and what is the share of a zero?",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 10 / 6, 1e-3),
                "That is the caption by itself: now six rows of padding get shares too.",
            ),
            Trial(
                lambda answer: near(answer, 10 / 14, 1e-3),
                "Eight rows in all: two are real, so how many are padding?",
            ),
            Trial(
                lambda answer: near(answer, 3 / 8, 1e-3),
                "That is the mean over all eight rows; W is not zero, so the rows have different shares.",
            ),
            Trial(
                lambda answer: near(answer, 1.5, 1e-3),
                "That is the mean of the two words: it leaves out both W and the padding.",
            ),
        ),
    ),
    "10.explore": Exercise(
        "What moves the balance", "explore", 20, EXPLORED, difficulty="hard", message="Noted."
    ),
}
