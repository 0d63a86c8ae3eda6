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
    squares = squared_distances(x, y)
    apart = squares > 0
    return torch.where(apart, torch.where(apart, squares, 1).sqrt(), 0)


def check_vectors(name: str, x: Tensor, shape: str) -> Tensor:
    """Refuse what is empty or no floating-point tensor of so many dimensions; return it in float32 at least.

    Args:
        name: the argument, for the message.
        x: what came.
        shape: what it must be, such as "(B, K, D)".

    Raises:
        ValueError: naming the argument, what came, and what it must be.
    """
    if x.ndim != shape.count(",") + 1 or not x.is_floating_point() or x.numel() == 0:
        raise ValueError(
            f"{name} is {x.dtype} {tuple(x.shape)}: it must be floating point {shape}, and not empty"
        )
    return x.to(torch.promote_types(x.dtype, torch.float32))


def check_widths(x_name: str, x: Tensor, y_name: str, y: Tensor) -> None:
    """Refuse tensors whose vectors, along the last dimension, are not equally wide.

    Raises:
        ValueError: naming both.
    """
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(
            f"{x_name} is {tuple(x.shape)} and {y_name} is {tuple(y.shape)}: they must have the same width"
        )
