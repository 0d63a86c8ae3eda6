"""The exercises of notebook 18, *Full scale*."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, one_of

_PICTURES, _ALL = 113_287, 123_287  # COCO's, of the training split and of all three
_GIGABYTES = _ALL * 36 * 2048 * 2 / 1e9
_STEPS = 5 * _PICTURES // 128


def _gigabytes(answer: Any, value: float, within: float = 0.02) -> bool:
    return near(answer, value, within * value)


def _epoch_order(seed: int, epoch: int, count: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(count)


def _rows(order: Callable[..., Any], seed: int, epoch: int, count: int = 40) -> list[int]:
    return [int(row) for row in order(seed, epoch, count)]


def _is_each_once(order: Callable[..., Any], count: int) -> bool:
    return sorted(_rows(order, 0, 0, count)) == list(range(count))


def _cached_step(
    towers: Sequence[Callable[[Tensor], Tensor]],
    inputs: Sequence[Tensor],
    loss: Callable[[Tensor, Tensor], Tensor],
    size: int,
) -> float:
    with torch.no_grad():
        embedded = [
            torch.cat([tower(part) for part in x.split(size)])
            for tower, x in zip(towers, inputs, strict=True)
        ]
    for vectors in embedded:
        vectors.requires_grad_()
    value = loss(*embedded)
    value.backward()
    for tower, x, vectors in zip(towers, inputs, embedded, strict=True):
        assert vectors.grad is not None
        for part, pull in zip(x.split(size), vectors.grad.split(size), strict=True):
            tower(part).backward(pull)
    return value.item()


def _whole_step(
    towers: Sequence[Callable[[Tensor], Tensor]],
    inputs: Sequence[Tensor],
    loss: Callable[[Tensor, Tensor], Tensor],
    size: int,
) -> float:
    value = loss(towers[0](inputs[0]), towers[1](inputs[1]))
    value.backward()
    return value.item()


def _small_batches(
    towers: Sequence[Callable[[Tensor], Tensor]],
    inputs: Sequence[Tensor],
    loss: Callable[[Tensor, Tensor], Tensor],
    size: int,
) -> float:
    parts = list(zip(inputs[0].split(size), inputs[1].split(size), strict=True))
    return sum(_whole_step(towers, part, loss, size) for part in parts) / len(parts)


def _learned(step: Callable[..., Any], size: int) -> tuple[Any, list[list[float]], int, int]:
    """A step's loss on six pairs, the weights' gradients, the most rows with a graph at once, and without."""

    class Tower(nn.Module):
        """A tower of one layer, which remembers how many rows its graphs held at once."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.layer = nn.Linear(width, 3).double()
            self.alive, self.with_graph, self.without = 0, 0, 0

        def forward(self, x: Tensor) -> Tensor:
            vectors = nn.functional.normalize(torch.tanh(self.layer(x)), dim=-1)
            if vectors.requires_grad:
                self.alive += len(x)
                vectors.register_hook(lambda _: self.freed(len(x)))  # its graph is used, and gone
                self.with_graph = max(self.with_graph, self.alive)
            else:
                self.without = max(self.without, len(x))
            return vectors

        def freed(self, rows: int) -> None:
            self.alive -= rows

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        towers = Tower(5), Tower(4)
        inputs = torch.randn(6, 5).double(), torch.randn(6, 4).double()

    def loss(v: Tensor, t: Tensor) -> Tensor:
        """Each picture chooses its caption among all of the batch."""
        return -(4 * v @ t.T).log_softmax(1).diag().mean()

    value = step(towers, inputs, loss, size)
    gradients = [
        [] if weight.grad is None else weight.grad.flatten().tolist()
        for tower in towers
        for weight in tower.parameters()
    ]
    return (
        value,
        gradients,
        max(tower.with_graph for tower in towers),
        max(tower.without for tower in towers),
    )


def _same_gradients(learned: Callable[..., Any], size: int, step: Callable[..., Any]) -> bool:
    mine, theirs = learned(size)[1], _learned(step, size)[1]
    return all(
        len(one) == len(other) and np.allclose(one, other, atol=1e-9)
        for one, other in zip(mine, theirs, strict=True)
    )


def _some_missing(learned: Callable[..., Any], sides: tuple[bool, bool]) -> bool:
    """Whether only the weights of these towers have a gradient."""
    first, _, second, _ = learned(2)[1]
    return (bool(first), bool(second)) == sides


def _returned(gradients: Tensor, rank: int) -> Tensor:
    """What flows back to a process's own rows: (W, W · n, D) -> (n, D)."""
    own = gradients.shape[1] // len(gradients)
    return gradients.sum(0)[rank * own : (rank + 1) * own]


def _arrived(processes: int, own: int, width: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(10 * processes + own)
    return torch.randn(processes, processes * own, width, generator=generator, dtype=torch.float64)


def _returns(answer: Callable[..., Any], expected: Callable[[Tensor, int], Tensor], *sizes: int) -> bool:
    gradients = _arrived(*sizes)
    return all(
        torch.allclose(answer(gradients.clone(), rank).double(), expected(gradients, rank))
        for rank in range(len(gradients))
    )


def _shape_returned(answer: Callable[..., Any]) -> bool:
    return tuple(answer(_arrived(3, 4), 1).shape) == (4, 2)


def _only_own(gradients: Tensor, rank: int) -> Tensor:
    own = gradients.shape[1] // len(gradients)
    return gradients[rank, rank * own : (rank + 1) * own]


EXERCISES: dict[str, Exercise] = {
    "18.bytes": Exercise(
        "What the features take",
        "compute",
        5,
        (
            Trial(
                lambda answer: 1 < float(answer) < 1000,
                "Answer in GB, billions of bytes: it is more than one and less than a thousand.",
            ),
            Trial(
                lambda answer: _gigabytes(answer, _GIGABYTES),
                "Multiply: pictures of all three splits, regions of each, numbers of each, bytes of each.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, _GIGABYTES * 1e9, 1e8),
                "Those are bytes. A GB is a billion of them.",
            ),
            Trial(
                lambda answer: _gigabytes(answer, 2 * _GIGABYTES),
                "That is single precision: a number in half precision takes two bytes.",
            ),
            Trial(
                lambda answer: _gigabytes(answer, _GIGABYTES / 2),
                "You counted one byte for each number. Half precision takes 16 bits.",
            ),
            Trial(
                lambda answer: _gigabytes(answer, 8 * _GIGABYTES),
                "Those are gigabits: a byte has eight bits.",
            ),
            Trial(
                lambda answer: _gigabytes(answer, _GIGABYTES * _PICTURES / _ALL, 5e-3),
                "That is the training split alone. The development and test pictures have features too.",
            ),
            Trial(
                lambda answer: _gigabytes(answer, _GIGABYTES * 1e9 / 2**30, 5e-3),
                "Those are GiB, of 2 to the 30 bytes. A GB has a billion.",
            ),
            Trial(
                lambda answer: _gigabytes(answer, 5 * _GIGABYTES),
                "A picture's features are stored once, not once for each of its five captions.",
            ),
        ),
        difficulty="easy",
        message="Right. The ten thousand pictures that only measure are a small part of it.",
    ),
    "18.steps": Exercise(
        "How many steps",
        "compute",
        5,
        (
            Trial(
                lambda answer: float(answer) == int(answer) and int(answer) > 0,
                "Steps are counted: the answer is a whole number.",
            ),
            Trial(
                lambda answer: int(answer) == 25 * _STEPS,
                "How many captions are trained on, how many full batches do they make, and how many epochs "
                "are there?",
            ),
        ),
        mistakes=(
            Trial(lambda answer: int(answer) == _STEPS, "That is one epoch. The recipe has 25."),
            Trial(
                lambda answer: int(answer) == 25 * (_PICTURES // 128),
                "You counted pictures. A batch is made of captions, each with its picture.",
            ),
            Trial(
                lambda answer: int(answer) == 25 * (_STEPS + 1),
                "The last batch of each epoch is not full, and it is left out.",
            ),
            Trial(
                lambda answer: int(answer) in (25 * 5 * _PICTURES // 128, round(25 * 5 * _PICTURES / 128)),
                "What is left over at the end of an epoch is dropped, not carried on to the next. Round "
                "down before you multiply by the epochs.",
            ),
            Trial(
                lambda answer: int(answer) in (25 * (5 * _ALL // 128), 25 * (_ALL // 128)),
                "Only the training split is learned from.",
            ),
        ),
        difficulty="easy",
    ),
    "18.plan": Exercise(
        "How good is a plan?",
        "predict",
        2,
        one_of("within 10 %", "within a factor of two", "further off"),
        difficulty="easy",
        message=NOTED,
    ),
    "18.order": Exercise(
        "An order that can be entered anywhere",
        "code",
        10,
        (
            Trial(
                lambda answer: len(_rows(answer, 0, 0)) == 40,
                "Return `count` row numbers.",
            ),
            Trial(
                lambda answer: _is_each_once(answer, 40) and _is_each_once(answer, 7),
                "Each row from 0 to count - 1 must come exactly once.",
            ),
            Trial(
                lambda answer: _rows(answer, 0, 3) == _rows(answer, 0, 3),
                "The second call with the same arguments gave another order. Something remembers the first: "
                "make a new generator in each call, from the arguments alone.",
            ),
            Trial(
                lambda answer: (
                    _rows(answer, 0, 0) != _rows(answer, 0, 1)
                    and _rows(answer, 0, 0) != sorted(_rows(answer, 0, 0))
                ),
                "Each epoch needs a shuffled order of its own.",
            ),
            Trial(
                lambda answer: _rows(answer, 0, 0) != _rows(answer, 1, 0),
                "The order must depend on the seed too.",
            ),
            Trial(
                lambda answer: len({tuple(_rows(answer, s, e)) for s in range(4) for e in range(4)}) == 16,
                "Two pairs of seed and epoch have the same order, such as (0, 1) and (1, 0). Put both "
                "numbers into the generator, not their sum or product.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _rows(answer, 0, 0) == list(range(40)),
                "The rows are not shuffled.",
            ),
        ),
        reference=_epoch_order,
        message="Right. It remembers nothing, so it can be entered anywhere.",
    ),
    "18.break": Exercise(
        "Never seen",
        "break",
        8,
        (
            Trial(
                lambda answer: 0 <= float(answer) <= 0.25,
                "A share of the captions, as a number between 0 and 1. After the kill only a quarter "
                "of the epoch is "
                "left.",
            ),
            Trial(
                lambda answer: near(answer, 3 / 16, 2e-3),
                "A caption is never seen if it is in the last quarter of the first order and not in "
                "the last quarter of "
                "the second. The two orders know nothing of each other.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 0.25, 2e-3),
                "That many were not seen before the kill. Some of them come after it.",
            ),
            Trial(
                lambda answer: near(answer, 1 / 16, 2e-3),
                "That is the share in the last quarter of both orders. Those are seen, once.",
            ),
            Trial(
                lambda answer: near(answer, 9 / 16, 2e-3),
                "That is the share in the first three quarters of both orders. Those were seen "
                "before the kill.",
            ),
            Trial(
                lambda answer: near(answer, 0.0, 1e-9),
                "That would be so if the second order went on where the first stopped. It begins anew.",
            ),
            Trial(
                lambda answer: near(answer, 18.75, 0.2),
                "That is in percent: answer with a number between 0 and 1.",
            ),
        ),
        message="Right. As many are seen twice, and no message tells you.",
    ),
    "18.share": Exercise(
        "What small batches never compare",
        "compute",
        5,
        (
            Trial(
                lambda answer: 0 < float(answer) < 1,
                "A share is a number between 0 and 1.",
            ),
            Trial(
                lambda answer: near(answer, 1 - 63 / 1023, 6e-4),
                "Count the wrong captions that a picture meets in a batch of 1,024, and in a part of 64.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 63 / 1023, 2e-3) or near(answer, 1 / 16, 1e-3),
                "That is the share which they do compare.",
            ),
            Trial(
                lambda answer: near(answer, 1 - 1 / 16, 4e-4),
                "Nearly: leave out the picture's own caption, which is no negative, in both counts.",
            ),
            Trial(
                lambda answer: near(answer, 93.8, 0.2),
                "That is in percent: answer with a number between 0 and 1.",
            ),
        ),
        difficulty="easy",
    ),
    "18.cache": Exercise(
        "A large batch, part by part",
        "code",
        20,
        (
            Trial(
                lambda answer: near(answer(6)[0], _learned(_whole_step, 6)[0]),
                "With one part that holds everything, the loss must be that of the whole batch, as a "
                "plain number.",
            ),
            Trial(
                lambda answer: near(answer(2)[0], _learned(_whole_step, 2)[0]),
                "In several parts, the loss must still be that of the whole batch: embed all parts "
                "first, join them, "
                "and then compute one loss.",
            ),
            Trial(
                lambda answer: all(answer(2)[1]),
                "Some weights have no gradient. Embed each part once more, with a graph, and go "
                "backward from it.",
            ),
            Trial(
                lambda answer: _same_gradients(answer, 3, _whole_step),
                "The gradient is not that of the whole batch. Give each part its own rows of the "
                "gradient at the "
                "embeddings: `vectors.backward(rows)`.",
            ),
            Trial(
                lambda answer: _same_gradients(answer, 4, _whole_step),
                "It is right where all parts are equal, and wrong where the last one is smaller: "
                "`split` both, the inputs "
                "and the gradients.",
            ),
            Trial(
                lambda answer: answer(2)[2] <= 2 and answer(2)[3] <= 2,
                "The gradient is right, but a tower was given more rows at once than `size`. That is the "
                "memory that we want to save.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _same_gradients(answer, 2, _small_batches),
                "Those are small batches, each with its own negatives. One loss must see all embeddings.",
            ),
            Trial(
                lambda answer: answer(2)[2] == 6,
                "The first pass keeps a graph of the whole batch: put it under `torch.no_grad()`.",
            ),
            Trial(
                lambda answer: _some_missing(answer, (True, False)),
                "Only the picture tower learns. The captions' embeddings have a gradient too.",
            ),
            Trial(
                lambda answer: _some_missing(answer, (False, True)),
                "Only the caption tower learns. The pictures' embeddings have a gradient too.",
            ),
        ),
        difficulty="hard",
        reference=_cached_step,
        caller=_learned,
        message="Right. The same gradient, with a graph of one part at a time.",
    ),
    "18.gather": Exercise(
        "The way back of a gather",
        "code",
        8,
        (
            Trial(
                _shape_returned,
                "Return a gradient for this process's own rows, (n, D).",
            ),
            Trial(
                lambda answer: _returns(answer, _returned, 1, 3),
                "With one process, its gradient must come back as it is.",
            ),
            Trial(
                lambda answer: _returns(answer, _returned, 2, 3),
                "All processes have used these rows, and each has a gradient for them. What does the "
                "chain rule do with "
                "several uses?",
            ),
            Trial(
                lambda answer: _returns(answer, _returned, 4, 2),
                "It is right for two processes. Work out n from the shape: rows over processes.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _returns(answer, _only_own, 2, 3),
                "That is only what this process found for its own rows. The other processes compared "
                "theirs with them.",
            ),
            Trial(
                lambda answer: _returns(answer, lambda g, rank: _returned(g, rank) / len(g), 2, 3),
                "That is the mean. The chain rule adds; the mean over processes is taken later, of "
                "the weights' gradients.",
            ),
            Trial(
                lambda answer: (
                    torch.allclose(answer(_arrived(2, 3), 0), _returned(_arrived(2, 3), 1))
                    and torch.allclose(answer(_arrived(2, 3), 1), _returned(_arrived(2, 3), 0))
                ),
                "Those are the other process's rows.",
            ),
            Trial(
                lambda answer: tuple(answer(_arrived(3, 4), 1).shape) == (12, 2),
                "Those are the rows of all processes. Return this process's own.",
            ),
        ),
        reference=_returned,
        message="Right. This is the backward pass of the package's `gather`.",
    ),
    "18.explore": Exercise("Change one thing", "explore", 15, EXPLORED, message="Noted."),
}
