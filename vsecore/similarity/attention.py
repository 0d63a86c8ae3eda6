"""Attention of one side's elements to the other's, without ever computing an attended vector.

A query element q attends to the elements c_s of a context: a = Σ_s w_s c_s, and what is wanted is cos(q, a).
With the affinities A_s = q·c_s and the context's own cosines G_st = c_s·c_t, q·a = Σ_s w_s A_s and
‖a‖² = Σ_st w_s G_st w_t. The cosine does not change when all weights are multiplied by the same number, so
they need not add up to one.

Everywhere: K contexts of S elements, Q queries of L elements, in tensors (K, S, L, Q).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

SAFE = 30.0
"""The largest `smooth` for which exp(smooth) and its square fit into float32."""

Aggregate = Literal["lse", "mean"]


def raw_weights(
    affinities: Tensor, smooth: float, negative_slope: float, context_mask: Tensor | None = None
) -> Tensor:
    """Compute exp(smooth · s), where s are the clipped affinities over their norm along the query's elements.

    Args:
        affinities: cosines, (K, S, L, Q); 0 wherever one of the two elements is padding.
        smooth: how sharp the attention is.
        negative_slope: what remains of a negative affinity; 0 clips it.
        context_mask: bool, (K, S), or None.

    Returns:
        (K, S, L, Q): the weights, but for a factor of each query element; 0 in the context's padding.
    """
    clipped = leaky_relu(affinities, negative_slope)
    squares = clipped.square().sum(2, keepdim=True)  # (K, S, 1, Q)
    scale = smooth / torch.where(squares > 0, squares, 1).sqrt()  # where all are clipped, 0 stays 0
    logits = clipped * scale  # (K, S, L, Q)
    if context_mask is not None:
        logits = torch.where(context_mask[:, :, None, None], logits, -torch.inf)
    if smooth > SAFE:
        logits = logits - logits.detach().amax(1, keepdim=True)
    return logits.exp()


def attended_cosines(affinities: Tensor, weights: Tensor, gram: Tensor) -> Tensor:
    """Compute the cosine of each query element with its attended vector.

    Args:
        affinities: (K, S, L, Q).
        weights: (K, S, L, Q), in any scale.
        gram: cosines of each context's elements with each other, (K, S, S).

    Returns:
        (K, L, Q); 0 where the attended vector is 0.
    """
    dot = (weights * affinities).sum(1)  # (K, L, Q)
    spread = (gram @ weights.flatten(2)).view_as(weights)  # (K, S, L, Q)
    square = (weights * spread).sum(1)  # (K, L, Q)   the attended vector's length, squared
    found = square > 0
    return torch.where(found, dot / torch.where(found, square, 1).sqrt(), 0)


def aggregate_cosines(cosines: Tensor, mask: Tensor | None, aggregate: Aggregate, lse: float) -> Tensor:
    """Combine the cosines of a query's real elements to one score.

    Args:
        cosines: (K, L, Q).
        mask: bool, (1 or K, L, Q), or None.
        aggregate: "lse", a smooth maximum, log Σ exp(lse · cosine) / lse; or "mean".
        lse: how sharp the smooth maximum is.

    Returns:
        (K, Q).
    """
    if aggregate == "lse":
        raised = lse * cosines
        if mask is not None:
            raised = torch.where(mask, raised, -torch.inf)
        return raised.logsumexp(1) / lse
    if mask is None:
        return cosines.mean(1)
    return torch.where(mask, cosines, 0).sum(1) / mask.sum(1)


def check_positive(name: str, value: float) -> None:
    """Refuse what is not a finite number above 0.

    Raises:
        ValueError: naming the argument.
    """
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} is {value}: it must be a number > 0")


def check_one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse a word that is not among the known ones.

    Raises:
        ValueError: naming the argument and the known words.
    """
    if value not in known:
        raise ValueError(f"{name} is {value!r}: it must be {' or '.join(map(repr, known))}")
