"""Euclidean distances of all vectors with all vectors, by one matrix product."""

from __future__ import annotations

import torch
from torch import Tensor


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Compute ‖x − y‖² = ‖x‖² + ‖y‖² − 2 x·y for vectors (..., n, D) and (..., m, D): (..., n, m)."""
    lengths = x.square().sum(-1).unsqueeze(-1) + y.square().sum(-1).unsqueeze(-2)  # (..., n, m)
    return (lengths - 2 * (x @ y.mT)).relu()  # rounding can bring it below 0


def distances(x: Tensor, y: Tensor) -> Tensor:
    """Compute ‖x − y‖ for vectors (..., n, D) and (..., m, D): (..., n, m).

    The gradient of a root is infinite at 0; here equal vectors have the gradient 0.
    """
    return root(squared_distances(x, y))


def root(squares: Tensor) -> Tensor:
    """Take the square root; its gradient, infinite at 0, is 0 there."""
    above = squares > 0
    return torch.where(above, torch.where(above, squares, 1).sqrt(), 0)
