"""Exercises of notebook 16: a decoder of latent targets, and a multiplier that holds a loss at its bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, gradient_of, one_of

# ---------------------------------------------------------------- 16.decoder


def _decode(z: Tensor, W1: Tensor, W2: Tensor, W3: Tensor) -> Tensor:
    inner = torch.clamp(torch.clamp(z @ W1.T, min=0) @ W2.T, min=0)  # (C, H)
    return inner @ W3.T


def _layers(seed: int = 16) -> tuple[Tensor, ...]:
    """Vectors (5, 4), and the weights of three layers: (6, 4), (6, 6), (3, 6)."""
    generator = torch.Generator().manual_seed(seed)
    z, W1, W2, W3 = (torch.randn(*shape, generator=generator) for shape in ((5, 4), (6, 4), (6, 6), (3, 6)))
    return z, W1, W2, W3


def _relu_at_the_end(z: Tensor, W1: Tensor, W2: Tensor, W3: Tensor) -> Tensor:
    return torch.clamp(_decode(z, W1, W2, W3), min=0)


def _linear(z: Tensor, W1: Tensor, W2: Tensor, W3: Tensor) -> Tensor:
    return z @ W1.T @ W2.T @ W3.T


def _sigmoid(z: Tensor, W1: Tensor, W2: Tensor, W3: Tensor) -> Tensor:
    return (((z @ W1.T).sigmoid() @ W2.T).sigmoid()) @ W3.T


def _one_relu(z: Tensor, W1: Tensor, W2: Tensor, W3: Tensor) -> Tensor:
    return torch.clamp(z @ W1.T, min=0) @ W2.T @ W3.T


def _like(reference: Callable[..., Tensor], answer: Callable[..., Any], *given: Any) -> bool:
    """Whether an answer gives the same numbers, in the same shape, as something else."""
    made, expected = answer(*given), reference(*given)
    return made.shape == expected.shape and torch.allclose(made, expected, atol=1e-5)


# ---------------------------------------------------------------- 16.loss


def _loss(pred: Tensor, target: Tensor) -> Tensor:
    both = pred.norm(dim=1) * target.norm(dim=1)  # (C,)
    return (1 - (pred * target).sum(1) / both).mean()


def _vectors() -> tuple[Tensor, Tensor]:
    """Predictions and targets, (4, 6) each, of any length."""
    generator = torch.Generator().manual_seed(6)
    pred, target = (torch.randn(4, 6, generator=generator) for _ in range(2))
    return 3 * pred, target


def _cosine_itself(pred: Tensor, target: Tensor) -> Tensor:
    return 1 - _loss(pred, target)


def _summed(pred: Tensor, target: Tensor) -> Tensor:
    return len(pred) * _loss(pred, target)


def _not_scaled(pred: Tensor, target: Tensor) -> Tensor:
    return (1 - (pred * target).sum(1)).mean()


def _all_pairs(pred: Tensor, target: Tensor) -> Tensor:
    unit_p, unit_t = pred / pred.norm(dim=1, keepdim=True), target / target.norm(dim=1, keepdim=True)
    return (1 - unit_p @ unit_t.T).mean()


def _loss_learns(answer: Callable[..., Any]) -> bool:
    pred, target = _vectors()
    expected = gradient_of(lambda x: _loss(x, target), pred.clone())
    return torch.allclose(gradient_of(lambda x: answer(x, target), pred), expected, atol=1e-5)


# ---------------------------------------------------------------- 16.multiplier


def _path(
    rec: Sequence[float],
    bound: float,
    initial: float = 1.0,
    lr: float = 5e-3,
    momentum: float = 0.9,
    maximum: float = 100.0,
) -> list[float]:
    value, velocity, used = initial, 0.0, []
    for step, one in enumerate(rec):
        used.append(value)
        gradient = one / bound - 1
        velocity = gradient if step == 0 else momentum * velocity + (1 - momentum) * gradient
        value = min(max(value + lr * velocity, 0.0), maximum)
    return used


def _walk(
    rec: Sequence[float],
    bound: float,
    initial: float = 1.0,
    lr: float = 5e-3,
    momentum: float = 0.9,
    maximum: float = 100.0,
    *,
    stepped_first: bool = False,
    free: bool = False,
    sign: float = 1.0,
    dampened_first: bool = False,
    undampened: bool = False,
    no_momentum: bool = False,
    difference: bool = False,
) -> list[float]:
    """`_path` with one mistake."""
    value, velocity, used = initial, 0.0, []
    for step, one in enumerate(rec):
        if not stepped_first:
            used.append(min(max(value, 0.0), maximum))
        gradient = sign * (one - bound if difference else one / bound - 1)
        fresh = gradient if undampened else (1 - momentum) * gradient
        velocity = gradient if step == 0 and not dampened_first else momentum * velocity + fresh
        if no_momentum:
            velocity = gradient
        value += lr * velocity
        if not free:
            value = min(max(value, 0.0), maximum)
        if stepped_first:
            used.append(value)
    return used


RISES = [0.9, 0.7, 0.8, 0.6, 0.65, 0.7]
FALLS = [0.02] * 30 + [0.8] * 8
"""Losses: above a bound of 0.2 all the time; and far below it first, so that the multiplier ends at zero."""
FAST = (0.2, 1.0, 0.1)
"""A bound, an initial value and a learning rate that shows in a few steps."""
STEEP = (0.2, 1.0, 9.0, 0.9, 30.0)
"""The same, with a momentum and a maximum that the multiplier reaches."""


def _same(answer: Callable[..., Any], expected: Sequence[float], *given: Any) -> bool:
    """Whether an answer gives these values, as a list or a tensor."""
    made = [float(one) for one in answer(*given)]
    return len(made) == len(expected) and all(near(a, b, 1e-4) for a, b in zip(made, expected, strict=True))


def _walks(**mistake: Any) -> Callable[[Callable[..., Any]], bool]:
    """Whether an answer makes one mistake, and really differs by it from the right path."""

    def made(answer: Callable[..., Any]) -> bool:
        return any(
            _walk(rec, *FAST, **mistake) != _path(rec, *FAST)
            and _same(answer, _walk(rec, *FAST, **mistake), rec, *FAST)
            for rec in (RISES, FALLS)
        )

    return made


EXERCISES: dict[str, Exercise] = {
    "16.decoder": Exercise(
        "A decoder of three layers",
        "code",
        10,
        (
            Trial(
                lambda answer: isinstance(made := answer(*_layers()), Tensor) and made.shape == (5, 3),
                "Return a prediction for each caption, (C, T). A weight is (width out, width in), as in "
                "nn.Linear: multiply by its transpose.",
            ),
            Trial(
                lambda answer: _like(_decode, answer, *_layers()),
                "Three products, and a ReLU after the first and after the second.",
            ),
            Trial(
                lambda answer: torch.allclose(
                    gradient_of(lambda z: answer(z, *_layers()[1:]), _layers()[0]),
                    gradient_of(lambda z: _decode(z, *_layers()[1:]), _layers()[0]),
                    atol=1e-4,
                ),
                "No gradient arrives at the captions' vectors: stay with torch's operations, without "
                ".item(), "
                "detach or numpy. Without it, the caption tower would learn nothing from the targets.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _like(_relu_at_the_end, answer, *_layers()),
                "The last layer has no ReLU: a target has numbers below zero too.",
            ),
            Trial(
                lambda answer: _like(_linear, answer, *_layers()),
                "Without the ReLU between them, three layers are one matrix.",
            ),
            Trial(
                lambda answer: _like(_sigmoid, answer, *_layers()),
                "The sigma of equation 5 is the ReLU, not the sigmoid.",
            ),
            Trial(
                lambda answer: _like(_one_relu, answer, *_layers()), "The second layer has a ReLU as well."
            ),
        ),
        reference=_decode,
    ),
    "16.loss": Exercise(
        "The distance to the target",
        "code",
        8,
        (
            Trial(
                lambda answer: isinstance(made := answer(*_vectors()), Tensor) and made.ndim == 0,
                "Return one number for the batch, as a tensor.",
            ),
            Trial(
                lambda answer: near(answer(2 * (x := _vectors()[0]), x), 0.0, 1e-5),
                "A prediction that points the way of its target has no loss, whatever its length.",
            ),
            Trial(
                lambda answer: near(answer(-(x := _vectors()[0]), x), 2.0, 1e-5),
                "A prediction that points the opposite way has a loss of 2.",
            ),
            Trial(
                lambda answer: _like(_loss, answer, *_vectors()),
                "One minus the cosine of each prediction with its own target; then the mean.",
            ),
            Trial(
                _loss_learns,
                "The gradient at the predictions is not right: stay with torch's operations, without "
                ".item(), "
                "detach or numpy, also for the length of a prediction.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _like(_cosine_itself, answer, *_vectors()),
                "That is the cosine. The loss should be 0 where it is 1.",
            ),
            Trial(
                lambda answer: _like(_summed, answer, *_vectors()),
                "Take the mean over the captions, not the sum, so that a bound means the same for any batch.",
            ),
            Trial(
                lambda answer: _like(_not_scaled, answer, *_vectors()),
                "Divide the product of the two by their lengths: neither has length 1.",
            ),
            Trial(
                lambda answer: _like(_all_pairs, answer, *_vectors()),
                "Each prediction has one target, its own: no matrix of all pairs is needed.",
            ),
        ),
        difficulty="easy",
        reference=_loss,
        message="Right. It gives what vsecore.losses.reconstruction_loss gives.",
    ),
    "16.weight": Exercise(
        "The weight behind the multiplier",
        "compute",
        5,
        (
            Trial(lambda answer: float(answer) > 1, "Which factor stands before the loss in equation 9?"),
            Trial(
                lambda answer: near(answer, 5.0, 1e-6),
                "Differentiate equation 9 by the reconstruction loss.",
            ),
        ),
        mistakes=(
            Trial(lambda answer: near(answer, 0.2, 1e-6), "Divide by the bound, not by its inverse."),
            Trial(
                lambda answer: near(answer, 4.0, 1e-6),
                "The -1 in the bracket does not depend on the loss: it drops out of the derivative.",
            ),
        ),
        difficulty="easy",
        message="Right. A tight bound also makes the gradient of each unit of λ larger.",
    ),
    "16.multiplier": Exercise(
        "The multiplier's path",
        "code",
        15,
        (
            Trial(
                lambda answer: len(list(answer([0.3, 0.3, 0.3], 0.2))) == 3,
                "Return as many values as there are losses.",
            ),
            Trial(
                lambda answer: near(next(iter(answer([0.9, 0.9], 0.2, 0.7))), 0.7, 1e-6),
                "The first step uses the initial value: a multiplier is used first, then moved.",
            ),
            Trial(
                lambda answer: _same(answer, _path([0.3] * 5, 0.2), [0.3] * 5, 0.2),
                "If the loss stays at 0.3 and the bound is 0.2, every step adds lr (0.3 / 0.2 - 1), the "
                "first "
                "one too.",
            ),
            Trial(
                lambda answer: _same(answer, _path(RISES, *FAST), RISES, *FAST),
                "After the first step, the velocity is momentum times the old one plus (1 - momentum) times "
                "the new gradient.",
            ),
            Trial(
                lambda answer: (
                    _same(answer, _path(FALLS, *FAST), FALLS, *FAST)
                    and _same(answer, _path(RISES, *STEEP), RISES, *STEEP)
                ),
                "The multiplier stays between 0 and the maximum after each step.",
            ),
        ),
        mistakes=(
            Trial(
                _walks(stepped_first=True),
                "You moved the multiplier before it was used. The first value is the initial one.",
            ),
            Trial(
                _walks(sign=-1.0),
                "Yours falls while the loss is above its bound: ascend, add the gradient.",
            ),
            Trial(
                _walks(difference=True),
                "The gradient of equation 9 by the multiplier is rec / bound - 1, not rec - bound.",
            ),
            Trial(
                _walks(dampened_first=True),
                "The first gradient counts in full: there is no velocity yet that it could be mixed with.",
            ),
            Trial(
                _walks(undampened=True),
                "The new gradient counts by 1 - momentum, or the velocity adds up to ten times the gradient.",
            ),
            Trial(_walks(no_momentum=True), "The velocity keeps nothing of the earlier gradients."),
            Trial(
                _walks(free=True),
                "Yours moves freely and only the used value is kept between the limits. Then it winds "
                "up: keep "
                "the multiplier itself between them.",
            ),
        ),
        difficulty="hard",
        reference=_path,
        message="Right. It is the path of vsecore.losses.LagrangeMultiplier.",
    ),
    "16.windup": Exercise(
        "How long it takes to come back",
        "compute",
        8,
        (
            Trial(lambda answer: float(answer) > 0, "Give a number of steps."),
            Trial(
                lambda answer: float(answer) >= 100,
                "First work out where the multiplier stands after the thousand steps. It is below zero.",
            ),
            Trial(
                lambda answer: 299.5 <= float(answer) <= 301.5,
                "Each step adds lr (rec / bound - 1). At first that is negative, later positive.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 500.0, 1.0),
                "You forgot that the multiplier starts at 1: it falls by 2.5, to -1.5.",
            ),
            Trial(
                lambda answer: near(answer, 150.0, 1.0),
                "At twice the bound, rec / bound - 1 is 1, not 2.",
            ),
            Trial(lambda answer: near(answer, 0.0, 0.5), "That is what a projected one takes."),
        ),
        message="Right. A projected multiplier stands at zero and needs one step.",
    ),
    "16.bounds": Exercise(
        "Which bound serves retrieval best?",
        "predict",
        3,
        one_of("0.1", "0.2", "0.3", "0.4", "0.6"),
        difficulty="easy",
        message=NOTED,
    ),
    "16.break": Exercise(
        "A bound that cannot be met",
        "break",
        8,
        (
            Trial(lambda answer: float(answer) > 0, "A bound is above zero."),
            Trial(
                lambda answer: float(answer) < 0.3,
                "With this bound the loss of 0.3 meets it, and the multiplier falls.",
            ),
            Trial(
                lambda answer: _path([0.3] * 101, float(answer))[-1] >= 100.0,
                "Each of the 100 steps must add at least 0.99 to the multiplier: 0.005 (0.3 / bound - 1).",
            ),
        ),
        message="Right. The gradient of the reconstruction now has a weight of 100 divided by your bound.",
    ),
    "16.cost": Exercise(
        "What the decoder costs",
        "compute",
        5,
        (
            Trial(lambda answer: float(answer) > 10_000, "Each of the three matrices is multiplied once."),
            Trial(
                lambda answer: near(answer, 2_490_368, 0.5),
                "A matrix from width a to width b takes a times b multiply-adds for one vector. Add up "
                "three.",
            ),
        ),
        mistakes=(
            Trial(lambda answer: near(answer, 1_441_792, 0.5), "That is two layers. There are three."),
            Trial(
                lambda answer: near(answer, 4_980_736, 0.5), "A multiplication with its addition counts once."
            ),
        ),
        difficulty="easy",
        message="Right. A ResNet-50 takes about four thousand million for one picture.",
    ),
    "16.explore": Exercise("Change one thing", "explore", 20, EXPLORED, difficulty="hard", message="Noted."),
}
