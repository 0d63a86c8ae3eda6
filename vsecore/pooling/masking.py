"""Which elements are real, and how poolers leave out the others."""

from __future__ import annotations

import torch
from torch import Tensor


def softmax_over_real(logits: Tensor, mask: Tensor | None) -> Tensor:
    """A softmax over the elements that gives padding a weight of exactly 0.

    Args:
        logits: one for each element, (B, N, 1), or for each of its dimensions, (B, N, D).
        mask: bool, (B, N), or None.

    Returns:
        Weights of the same shape that add up to 1 over the real elements.
    """
    if mask is not None:
        logits = torch.where(mask.unsqueeze(-1), logits, -torch.inf)
    return logits.softmax(1)


def count_real(x: Tensor, mask: Tensor | None) -> Tensor:
    """How many real elements each row has, (B,), as whole numbers."""
    if mask is None:
        return torch.full((x.shape[0],), x.shape[1], device=x.device)
    return mask.sum(1)


def sorted_mask(x: Tensor, mask: Tensor | None) -> Tensor | None:
    """Which rows are real once each set is sorted with its padding last, (B, N); None: all are."""
    if mask is None:
        return None
    return torch.arange(x.shape[1], device=x.device) < mask.sum(1, keepdim=True)
