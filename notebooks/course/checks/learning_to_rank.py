"""The exercises of notebook 04, *Learning to rank*."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, gradient_of, one_of, random_batch
from vsecore.losses import triplet

PERFECT = 2 * torch.eye(5) - 1
"""Similarities of a perfect batch: its loss is zero, unless a pair counts as its own negative."""


def sum_of_hinges(S: Tensor, margin: float = 0.2) -> Tensor:
    """The package's loss with all negatives, as exercise 04.all asks for it."""
    return triplet(S, margin, hardest=False)


def hardest_of_hinges(S: Tensor, positives: Tensor, margin: float = 0.2) -> Tensor:
    """The package's loss with the hardest negative, as exercise 04.siblings asks for it."""
    return triplet(S, margin, positives=positives)


def one_step(
    picture_tower: nn.Module,
    caption_tower: nn.Module,
    loss: Callable[[Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    batch: Any,
) -> float:
    """A training step, as exercise 04.step asks for it."""
    scores = picture_tower(batch.pictures) @ caption_tower(batch.tokens, batch.token_mask).T  # (B, B)
    cost = loss(scores)
    optimizer.zero_grad()
    cost.backward()
    optimizer.step()
    return cost.item()


def _is_a_number(loss: Tensor) -> bool:
    return isinstance(loss, Tensor) and loss.ndim == 0


def _same_as_sum(loss: Callable[..., Any], pictures: int, margin: float = 0.2) -> bool:
    scores, _ = random_batch(pictures, 1, seed=pictures)
    return near(loss(scores, margin), float(sum_of_hinges(scores, margin)), 1e-3)


def _sums_one_direction(loss: Callable[..., Any]) -> bool:
    """Whether only the rows, or only the columns, are compared."""
    scores, _ = random_batch(5, 1, seed=5)
    cost = (0.2 + scores - scores.diag()[:, None]).relu().fill_diagonal_(0)
    other = (0.2 + scores - scores.diag()[None, :]).relu().fill_diagonal_(0)
    return any(near(loss(scores), float(side.sum()), 1e-3) for side in (cost, other))


def _is_a_multiple(loss: Callable[[Tensor, Tensor], Any], right: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Whether it is wrong by the same factor on batches of one size, as a mean is in place of a sum."""
    first, second = (
        float(loss(*batch)) / float(right(*batch)) for batch in (random_batch(5, 1, seed) for seed in (1, 2))
    )
    return first > 0 and abs(first / second - 1) < 1e-4 and abs(first - 1) > 1e-4


def _same_as_triplet(
    loss: Callable[..., Any], pictures: int, captions_each: int, margin: float = 0.2
) -> bool:
    scores, positives = random_batch(pictures, captions_each, seed=pictures)
    expected = float(triplet(scores, margin, positives=positives))
    return near(loss(scores, positives, margin), expected)


def _ignores_siblings(loss: Callable[..., Any]) -> bool:
    """Whether a strong other caption of the same picture costs nothing."""
    scores, positives = torch.tensor([[0.9, 0.8, -1.0, -1.0], [-1.0, -1.0, 0.9, 0.8]]), torch.zeros(2, 4) > 0
    positives[0, :2] = positives[1, 2:] = True
    return near(loss(scores, positives), 0.0)


def _right_between(loss: Callable[..., Any], low: float, high: float) -> bool:
    """Whether it is right on a batch with all similarities between two numbers."""
    scores, positives = random_batch(4, 2, seed=3)
    scores = low + (high - low) * (scores + 1) / 2
    return near(loss(scores, positives), float(triplet(scores, positives=positives)))


def _has_gradient(loss: Callable[..., Any]) -> bool:
    scores, positives = random_batch(4, 2, seed=1)
    return bool(gradient_of(lambda S: loss(S, positives), scores).abs().sum() > 0)


def _trained(step: Callable[..., Any], steps: int) -> tuple[list[Any], list[Tensor]]:
    """What a step returns on a small batch, a few times in a row, and the weights afterwards."""

    class CaptionTower(nn.Module):
        """A caption tower of one table: small, but it needs the mask."""

        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(7, 4)

        def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
            return nn.functional.normalize((self.embed(tokens) * mask[..., None]).sum(1), dim=-1)

    class Descent:
        """Gradient descent. The first optimizer of torch's own imports its compiler, which takes seconds."""

        def __init__(self, weights: list[nn.Parameter], rate: float) -> None:
            self.weights, self.rate = weights, rate

        def zero_grad(self, set_to_none: bool = True) -> None:
            for weight in self.weights:
                weight.grad = None

        def step(self) -> None:
            with torch.no_grad():
                for weight in self.weights:
                    if weight.grad is not None:
                        weight.sub_(self.rate * weight.grad)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        towers = nn.Sequential(nn.Flatten(), nn.Linear(6, 4)), CaptionTower()
        mask = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
        batch = SimpleNamespace(
            pictures=torch.randn(3, 2, 3),
            tokens=torch.tensor([[1, 2, 3], [4, 5, 0], [6, 0, 0]]),
            token_mask=mask,
        )
    weights = [weight for tower in towers for weight in tower.parameters()]
    optimizer = Descent(weights, 0.1)

    def loss(S: Tensor) -> Tensor:
        """Each picture chooses its caption: unlike most losses it has another value if S is transposed."""
        return -S.log_softmax(1).diag().sum()

    given = [step(*towers, loss, optimizer, batch) for _ in range(steps)]
    return given, [weight.detach() for weight in weights]


def _same_weights(trained: Callable[..., Any], steps: int) -> bool:
    pairs = zip(trained(steps)[1], _trained(one_step, steps)[1], strict=True)
    return all(torch.allclose(mine, theirs, atol=1e-5) for mine, theirs in pairs)


def _same_losses(trained: Callable[..., Any]) -> bool:
    pairs = zip(trained(3)[0], _trained(one_step, 3)[0], strict=True)
    return all(near(mine, theirs) for mine, theirs in pairs)


def _transposed_step(
    picture_tower: nn.Module, caption_tower: nn.Module, loss: Callable[[Tensor], Tensor], *rest: Any
) -> float:
    return one_step(picture_tower, caption_tower, lambda S: loss(S.T), *rest)


def _learn(trained: Callable[..., Any]) -> tuple[bool, bool]:
    """Whether a step changes the picture tower, and whether it changes the caption tower."""
    before, after = trained(0)[1], trained(1)[1]
    *pictures, captions = (not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    return any(pictures), captions


def _cost_of(scores: Any) -> float:
    """The hardest-negative loss of a learner's batch of four."""
    return float(triplet(torch.as_tensor(scores, dtype=torch.float32)))


def _is_batch_of_four(answer: Any) -> bool:
    return tuple(answer.shape) == (4, 4) and bool((answer.abs() <= 1).all())


def _lead(scores: Tensor) -> float:
    """By how much a pair is more similar than its negatives are on average, where that is least."""
    own, size = scores.diag(), len(scores)
    return min(float((own - (scores.sum(side) - own) / (size - 1)).min()) for side in (0, 1))


EXERCISES: dict[str, Exercise] = {
    "04.all": Exercise(
        "The sum of hinges",
        "code",
        10,
        (
            Trial(
                lambda answer: _is_a_number(answer(random_batch(3, 1, 0)[0])),
                "Return one number for the batch, as a tensor.",
            ),
            Trial(
                lambda answer: near(answer(PERFECT), 0.0),
                "A perfect batch costs something: a pair is not its own negative, and a hinge never falls "
                "below zero.",
            ),
            Trial(
                lambda answer: _same_as_sum(answer, 5),
                "On a random batch your loss is wrong: compare each row, and each column, with the "
                "pair on the diagonal.",
            ),
            Trial(lambda answer: _same_as_sum(answer, 4, margin=0.5), "The margin is an argument: use it."),
            Trial(
                lambda answer: bool(gradient_of(answer, random_batch(4, 1, seed=1)[0]).abs().sum() > 0),
                "No gradient arrives: stay with torch's operations, without .item() or float().",
            ),
        ),
        mistakes=(
            Trial(
                _sums_one_direction,
                "You counted one direction: pictures have hinges along rows, captions along columns.",
            ),
            Trial(
                lambda answer: any(
                    near(answer(PERFECT), cost / count) for cost in (1.0, 2.0) for count in (1, 5, 25)
                ),
                "The diagonal counts too: there each hinge is m + s - s, the margin. Leave it out.",
            ),
            Trial(
                lambda answer: _is_a_multiple(lambda S, _: answer(S), lambda S, _: sum_of_hinges(S)),
                "Your loss is a constant factor away from the right one: equation (5), summed over the "
                "batch, is a sum, not a mean.",
            ),
        ),
        reference=sum_of_hinges,
    ),
    "04.read": Exercise(
        "Read a batch",
        "compute",
        5,
        (
            Trial(
                lambda answer: any(near(answer, part) for part in (0.1, 0.3, 0.4)),
                "Each hinge: the margin, plus the negative's similarity, minus the pair's, and zero if that "
                "is below zero.",
            ),
            Trial(
                lambda answer: near(answer, 0.4),
                "You counted one direction: pictures have hinges in rows, captions in columns; add both.",
            ),
        ),
        difficulty="easy",
        mistakes=(
            Trial(lambda answer: float(answer) < 0, "A sum of hinges is never below zero."),
            Trial(
                lambda answer: near(answer, 0.2),
                "Two of the four sums are below zero: these hinges cost zero, not less.",
            ),
        ),
    ),
    "04.siblings": Exercise(
        "The hardest negative",
        "code",
        15,
        (
            Trial(
                lambda answer: isinstance(made := answer(*random_batch(3, 1, 0)), Tensor) and made.ndim == 0,
                "Return one number for the batch, as a tensor: the sum over the positive pairs.",
            ),
            Trial(
                lambda answer: _same_as_triplet(answer, 5, 1),
                "With one caption a picture it must be equation (6): check rows and columns.",
            ),
            Trial(
                _ignores_siblings,
                "Another caption of the same picture costs something: mask every positive.",
            ),
            Trial(
                lambda answer: _same_as_triplet(answer, 4, 5) and _right_between(answer, -0.9, -0.1),
                "Every positive pair has its two hinges, not only one pair for each picture.",
            ),
            Trial(
                lambda answer: _same_as_triplet(answer, 4, 5, margin=0.5),
                "The margin is an argument: use it.",
            ),
            Trial(
                _has_gradient,
                "No gradient arrives: stay with torch's operations, without .item() or float().",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer(PERFECT, PERFECT > 0), 2 * 5 * 0.2),
                "A pair counts as its own hardest negative: then even a perfect model costs 2·B·margin. Hide "
                "the positives.",
            ),
            Trial(
                lambda answer: _right_between(answer, 0.1, 0.9) and not _right_between(answer, -0.9, -0.1),
                "Your loss is wrong where all negatives are below zero: there it finds a larger one. What "
                "hides a positive must be smaller than any similarity.",
            ),
            Trial(
                lambda answer: _is_a_multiple(
                    answer, lambda S, positives: hardest_of_hinges(S, positives=positives)
                ),
                "Your loss is a constant factor away from the right one: take the sum over the positive "
                "pairs, not a mean.",
            ),
        ),
        reference=hardest_of_hinges,
    ),
    "04.step": Exercise(
        "One training step",
        "code",
        10,
        (
            Trial(
                lambda answer: isinstance(answer(1)[0][0], float),
                "Return the loss as a plain number: .item() makes one of a tensor.",
            ),
            Trial(
                lambda answer: near(answer(1)[0][0], _trained(one_step, 1)[0][0]),
                "That is not the loss of this batch: compare every picture with every caption, and give the "
                "matrix to the loss.",
            ),
            Trial(
                lambda answer: not torch.equal(answer(1)[1][0], answer(0)[1][0]),
                "The weights did not change: after `backward`, the optimizer must take its step.",
            ),
            Trial(
                lambda answer: _same_weights(answer, 1),
                "The weights changed, but not as one step would change them.",
            ),
            Trial(
                lambda answer: _same_weights(answer, 3) and _same_losses(answer),
                "The first step is right and later ones are wrong: old gradients are still there.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer(1)[0][0], _trained(_transposed_step, 1)[0][0]),
                "You gave the loss the matrix with captions in rows: pictures belong in rows, captions in "
                "columns.",
            ),
            Trial(
                lambda answer: _learn(answer) == (True, False),
                "Only the picture tower changed: a gradient must reach both towers.",
            ),
            Trial(
                lambda answer: _learn(answer) == (False, True),
                "Only the caption tower changed: a gradient must reach both towers.",
            ),
        ),
        reference=one_step,
        caller=_trained,
    ),
    "04.predict": Exercise(
        "What will happen?", "predict", 2, one_of("a", "b", "c", "d"), difficulty="easy", message=NOTED
    ),
    "04.break": Exercise(
        "Fool the loss",
        "break",
        8,
        (
            Trial(
                _is_batch_of_four,
                "Give a tensor of shape (4, 4), with similarities from -1 to 1.",
            ),
            Trial(
                lambda answer: near(_cost_of(answer), 2 * 4 * 0.2),
                "That is not the loss of a collapsed batch: each of the eight hinges must equal the "
                "margin, so each pair must tie with its hardest negative.",
            ),
            Trial(
                lambda answer: float(answer.mean()) < 0.5 and _lead(answer) >= 0.2,
                "The loss is right, but some pair is not clearly more similar than its negatives are on "
                "average. Only the hardest negative of each row and column has to tie.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _is_batch_of_four(answer) and float(answer.max() - answer.min()) < 0.1,
                "All similarities are equal, or nearly: that is a collapsed batch. Both towers may have "
                "collapsed, each to its own point. Push most negatives away.",
            ),
            Trial(
                lambda answer: near(_cost_of(answer), 0),
                "That batch is perfect: its loss is zero. Let a negative come as near as the pair.",
            ),
            Trial(
                lambda answer: (
                    _is_batch_of_four(answer)
                    and near(_cost_of(answer), 2 * 4 * 0.2)
                    and float(answer.mean()) >= 0.5
                ),
                "The loss is right, but the mean similarity is not below 0.5. Only the hardest negative of "
                "each row and column has to tie.",
            ),
        ),
    ),
    "04.ablation": Exercise("Change one thing", "explore", 15, EXPLORED, message="Noted."),
}
