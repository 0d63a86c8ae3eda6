"""What the trials of several notebooks try an answer on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def random_batch(pictures: int, captions_each: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random similarities (B, C), of pictures with several captions each, and which pairs are positive."""
    generator = torch.Generator().manual_seed(seed)
    owner = torch.arange(pictures).repeat_interleave(captions_each)  # (C,)
    scores = torch.rand(pictures, len(owner), generator=generator) * 2 - 1  # (B, C)
    return scores, torch.arange(pictures)[:, None] == owner  # (B, C)


def gradient_of(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient of a function's sum at `x`, of its shape; zeros if none arrives there."""
    x.requires_grad_()
    function(x).sum().backward()
    return torch.zeros_like(x) if x.grad is None else x.grad
