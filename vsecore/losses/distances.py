"""Euclidean distances of all vectors with all vectors, by one matrix product."""

import torch
from torch import Tensor

ROUNDING = 16
"""A square is 0 below so many times the machine's precision, relative to the lengths: twice what we saw."""


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Compute ‖x − y‖² = ‖x‖² + ‖y‖² − 2 x·y for vectors (..., n, D) and (..., m, D): (..., n, m)."""
    return (_lengths(x, y) - 2 * (x @ y.mT)).relu()  # rounding can bring it below 0


def distances(x: Tensor, y: Tensor) -> Tensor:
    """Compute ‖x − y‖ for vectors (..., n, D) and (..., m, D): (..., n, m).

    The gradient of a root is infinite at 0; here equal vectors have the gradient 0. The squares of these are
    not quite 0 but what rounding leaves, which depends on the processor, and the root would make it large. So
    whatever is within rounding is 0.
    """
    lengths = _lengths(x, y)
    squares = lengths - 2 * (x @ y.mT)
    return root(squares.where(squares > ROUNDING * torch.finfo(squares.dtype).eps * lengths, 0))


def _lengths(x: Tensor, y: Tensor) -> Tensor:
    return x.square().sum(-1).unsqueeze(-1) + y.square().sum(-1).unsqueeze(-2)  # (..., n, m)


def root(squares: Tensor) -> Tensor:
    """Take the square root; its gradient, infinite at 0, is 0 there."""
    above = squares > 0
    return torch.where(above, torch.where(above, squares, 1).sqrt(), 0)
