"""What several notebooks' exercises share: trials of words, and what other trials try an answer on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from course.checks.exercise import Trial

NOTED = "Noted. Now run the next cell and compare."
"""What is said of a prediction; whether it was right, the cell below it tells."""

EXPLORED = (
    Trial(
        lambda answer: (
            isinstance(answer, tuple | list)
            and len(answer) == 2
            and all(isinstance(text, str) for text in answer)
        ),
        "Two texts are wanted: what you expect, and what you found.",
    ),
    Trial(
        lambda answer: _says(answer[0]),
        "Say what you expect, before you run it, and why. Use at least three words.",
    ),
    Trial(
        lambda answer: _says(answer[1]) and answer[0] != answer[1],
        "Say what came out of it. Use at least three words, and not those of your expectation.",
    ),
)
"""The trials of an ablation of the learner's own, told as an expectation and a finding. A person reads it."""


def one_of(*options: str) -> tuple[Trial]:
    """The trial of a prediction: any of these counts, in whatever case."""
    quoted = " or ".join(f'"{option}"' for option in options)
    known = {option.lower() for option in options}
    return (
        Trial(
            lambda answer: isinstance(answer, str) and answer.strip(" ().").lower() in known,
            f"Answer {quoted}.",
        ),
    )


def _says(text: str) -> bool:
    return len(text.split()) >= 3


def random_batch(pictures: int, captions_each: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random similarities (B, C), of pictures with several captions each, and which pairs are positive."""
    generator = torch.Generator().manual_seed(seed)
    owner = torch.arange(pictures).repeat_interleave(captions_each)  # (C,)
    scores = torch.rand(pictures, len(owner), generator=generator) * 2 - 1  # (B, C)
    return scores, torch.arange(pictures)[:, None] == owner  # (B, C)


def normal(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    """Random tensors of these shapes, from a normal distribution."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def real(counts: Sequence[int], elements: int) -> Tensor:
    """The mask (B, N) of sets of so many elements each."""
    return torch.arange(elements) < torch.tensor(counts)[:, None]


def padded(
    counts: Sequence[int], elements: int, width: int, filler: float = 0.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Sets of so many elements each, (B, N, D), whose padding holds `filler`, and their mask (B, N).

    All values lie between -2 and -1, so that a forgotten zero is the largest.
    """
    generator = torch.Generator().manual_seed(seed)
    x = -1 - torch.rand(len(counts), elements, width, generator=generator)
    mask = real(counts, elements)
    return x.masked_fill(~mask[..., None], filler), mask


def gradient_of(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient of a function's sum at `x`, of its shape; zeros if none arrives there."""
    x.requires_grad_()
    function(x).sum().backward()
    return torch.zeros_like(x) if x.grad is None else x.grad
