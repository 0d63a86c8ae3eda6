"""Inputs on which the exercises of several notebooks try answers."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


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
    leaf = x.detach().clone().requires_grad_()
    function(leaf).sum().backward()
    return torch.zeros_like(x) if leaf.grad is None else leaf.grad
