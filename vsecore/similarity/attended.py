"""Attention of one side's elements to the other's, without ever computing an attended vector.

A query element q attends to the elements c_s of a context: a = Σ_s w_s c_s, and what is wanted is cos(q, a).
With the affinities A_s = q·c_s and the context's own cosines G_st = c_s·c_t, q·a = Σ_s w_s A_s and
‖a‖² = Σ_st w_s G_st w_t. The cosine does not change when all weights are multiplied by the same number, so
they need not add up to one.

Everywhere: K contexts of S elements, Q queries of L elements, in tensors (K, S, L, Q).
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import leaky_relu

leaky_relu_backward = torch.ops.aten.leaky_relu_backward

SAFE = 30.0
"""The largest `smooth` for which exp(smooth) and its square fit into float32."""

Aggregate = Literal["lse", "mean"]
Choice = Callable[[Tensor], Tensor]


@torch.no_grad()
def raw_weights(
    affinities: Tensor,
    smooth: float,
    negative_slope: float,
    context_mask: Tensor | None,
    choose: Choice | None,
) -> Tensor:
    """Compute exp(smooth · s), where s are the clipped affinities over their norm along the query's elements.

    What is left of a negative affinity is `negative_slope` of it; 0 clips it. Affinities are 0 wherever one
    of the two elements is padding. The weights lack a factor of each query element, and are 0 in the
    context's padding, which `context_mask` (K, S) tells, and where `choose` leaves them out.
    """
    clipped = leaky_relu(affinities, negative_slope)
    logits = clipped.mul_(smooth / _norm(clipped))
    if context_mask is not None:
        logits.masked_fill_(~context_mask[:, :, None, None], -torch.inf)
    if smooth > SAFE:
        logits -= logits.amax(1, keepdim=True)
    weights = logits.exp_()
    return weights if choose is None else weights.mul_(choose(weights))


def shares(
    affinities: Tensor,
    smooth: float,
    negative_slope: float,
    context_mask: Tensor | None,
    query_mask: Tensor | None,
    choose: Choice | None = None,
) -> Tensor:
    """Compute the weights of query elements in the same row as their context, (B, S, L), without gradient.

    They add up to one along S, and a query's padding, by its mask (B, L), has 0.
    """
    weights = raw_weights(affinities, smooth, negative_slope, context_mask, choose)
    weights = (weights / weights.sum(1, keepdim=True)).squeeze(-1)  # (B, S, L)
    return weights if query_mask is None else torch.where(query_mask.unsqueeze(1), weights, 0)


def attended_cosines(
    affinities: Tensor,
    gram: Tensor,
    smooth: float,
    negative_slope: float,
    context_mask: Tensor | None = None,
    choose: Choice | None = None,
) -> Tensor:
    """Compute the cosine of each query element with its attended vector, (K, L, Q); 0 where that vector is 0.

    Smooth, slope and mask are those of `raw_weights`. `choose` says which weights stay, as bool; None: all.
    It carries no gradient.
    """
    with torch.autocast(affinities.device.type, enabled=False):
        return _AttendedCosines.apply(affinities, gram, context_mask, smooth, negative_slope, choose)


class _AttendedCosines(Function):
    """`attended_cosines` with a backward pass by hand: it keeps three tensors (K, S, L, Q) instead of six."""

    @staticmethod
    def forward(
        ctx: Any,
        affinities: Tensor,
        gram: Tensor,
        context_mask: Tensor | None,
        smooth: float,
        negative_slope: float,
        choose: Choice | None,
    ) -> Tensor:
        weights = raw_weights(affinities, smooth, negative_slope, context_mask, choose)
        spread = (gram @ weights.flatten(2)).view_as(weights)  # (K, S, L, Q)
        square = (weights * spread).sum(1)  # (K, L, Q)   the attended vector's length, squared
        dot = (weights * affinities).sum(1)  # (K, L, Q)
        inverse = torch.where(square > 0, square.rsqrt(), 0)
        cosines = dot * inverse
        ctx.save_for_backward(affinities, weights, spread, inverse, cosines)
        ctx.options = smooth, negative_slope
        return cosines

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        affinities, weights, spread, inverse, cosines = ctx.saved_tensors
        smooth, negative_slope = ctx.options
        by_dot = (gradient * inverse).unsqueeze(1)  # (K, 1, L, Q)
        by_square = by_dot * (cosines * inverse).neg_().unsqueeze(1)  # twice the squared length's gradient

        # What the weights get, then what the logits get: their exponential is the weight itself.
        logits = (spread * by_square).addcmul_(affinities, by_dot).mul_(weights)  # (K, S, L, Q)
        by_gram = (weights * (by_square / 2)).flatten(2) @ weights.flatten(2).mT  # (K, S, S)

        # Back through the division by the norm, and through the clip.
        clipped = leaky_relu(affinities, negative_slope)
        norm = _norm(clipped)  # (K, S, 1, Q)
        shares = clipped.div_(norm)
        along = (logits * shares).sum(2, keepdim=True)
        logits.sub_(shares.mul_(along)).mul_(smooth / norm)
        logits = leaky_relu_backward(logits, affinities, negative_slope, False)
        by_affinities = logits.addcmul_(weights, by_dot)  # and their own part in q·a
        return by_affinities, by_gram, None, None, None, None


def _norm(clipped: Tensor) -> Tensor:
    """The norm along the query's elements, (K, S, 1, Q); 1 where all are 0, so that they stay 0."""
    squares = clipped.square().sum(2, keepdim=True)
    return torch.where(squares > 0, squares, 1).sqrt_()


def aggregate_cosines(cosines: Tensor, mask: Tensor | None, aggregate: Aggregate, lse: float) -> Tensor:
    """Combine the cosines (K, L, Q) of a query's real elements to one score, (K, Q).

    "lse" is a smooth maximum, log Σ exp(lse · cosine) / lse; "mean" their mean.
    """
    if aggregate == "lse":
        raised = lse * cosines
        if mask is not None:
            raised = torch.where(mask, raised, -torch.inf)
        return raised.logsumexp(1) / lse
    if mask is None:
        return cosines.mean(1)
    return torch.where(mask, cosines, 0).sum(1) / mask.sum(1)
