"""Faster ways for a CPU. You can understand every pooler without them; results agree up to rounding.

Two things decide how long a CPU takes. Memory is slow, so large batches are worked through a few sets at a
time, and what is made on the way from input to result stays in the cache. And numpy sorts short runs of
numbers with vector instructions (small sorting networks inside the registers), several times faster than
torch's own sort or a network made of torch's operations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# Values worked on at a time: enough to make up for the calls, few enough for a processor's cache.
VALUES_AT_A_TIME = 2**17
# From this many values on (32 MB of float32) each new tensor gets its memory from the system, which takes
# longer than most work on it.
VALUES_TOO_MANY_TO_KEEP = 2**23
# The number of an element is written into 16 bits, one of them for the sign.
MOST_ELEMENTS = 2**15


def is_plain(x: Tensor) -> bool:
    """Whether x is on a CPU, and no compiler is at work (a compiler does better)."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def can_sort(x: Tensor) -> bool:
    """Whether `sort_values` and `sort_with_origin` can sort (B, N, D)."""
    return is_plain(x) and x.dtype != torch.float64 and x.shape[1] <= MOST_ELEMENTS


def sort_values(x: Tensor, real: Tensor | None) -> Tensor:
    """Sort each dimension of (B, N, D), largest first, padding last: `real` is (B, N, 1) or None."""
    values = torch.empty_like(x, memory_format=torch.contiguous_format)
    for part in cache_sized_parts(x):
        elements = x[part] if real is None else torch.where(real[part], x[part], -torch.inf)
        values[part] = _spoil(_sort_runs(_negative_runs(elements, torch.float32)).neg_()).transpose(1, 2)
    return values


def sort_with_origin(x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """The sorted values, (B, N, D), and the number of the element that each came from, (B, N, D) int16.

    One sort of plain numbers finds both. A float64 has 29 more bits than a float32 for a number's digits. The
    lowest 16 of them hold the element's number, written such that of equal values the earlier element comes
    first.
    """
    values = torch.empty_like(x, memory_format=torch.contiguous_format)
    origin = torch.empty_like(values, dtype=torch.int16)
    for part in cache_sized_parts(x):
        runs, places = _sort_runs_with_origin(x[part], None if real is None else real[part])
        values[part], origin[part] = runs.transpose(1, 2), places.transpose(1, 2)
    return values, origin


def unsort(gradient: Tensor, origin: Tensor) -> Tensor:
    """Send each value of the gradient, (B, N, D), to the element that `origin` names."""
    result = torch.empty_like(gradient, memory_format=torch.contiguous_format)
    for part in cache_sized_parts(gradient):
        result[part].scatter_(1, origin[part].long(), gradient[part])
    return result


def can_pool_levels(x: Tensor, weight: Tensor) -> bool:
    """Whether `two_levels` can pool (B, N, D), and is faster: not where no gradient is wanted."""
    single = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return single and torch.is_grad_enabled() and can_sort(x)


def two_levels(x: Tensor, mask: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Both levels of `AdPool`, in one pass over the elements, and one for the gradient.

    Args:
        x: elements, (B, N, D).
        mask: bool, (B, N), or None.
        weight: W_tok, (1, D).

    Returns:
        The token level, (B, D); the embedding level, (B, D); and θ, (B, N, 1). A second derivative is refused
        by a RuntimeError.
    """
    token, embedding, theta = _TwoLevels.apply(x, mask, weight)
    return token, embedding, theta.transpose(1, 2)


class _TwoLevels(torch.autograd.Function):
    """Sorted values are kept as runs, (B, D, N), as they come out of the sort."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sets, count, dim = x.shape
        real = None if mask is None else mask.unsqueeze(-1)  # (B, N, 1)
        counts = torch.full((sets, 1, 1), count) if mask is None else mask.sum(1).view(-1, 1, 1)
        is_real = torch.arange(count) < counts  # (B, 1, N)   in the order of the sorted rows
        # A product and a maximum take far less time than a choice by a mask, or than powers of -inf.
        kept = is_real.float()  # (B, 1, N)   0 for the padding
        floor = torch.where(is_real, -torch.inf, 0.0)  # (B, 1, N)   0 in place of the padding's -inf
        u, origin = x.new_empty(sets, dim, count), torch.empty(sets, dim, count, dtype=torch.int16)
        token, embedding, log_total = x.new_empty(3, sets, dim).unbind()  # (B, D) each
        theta = x.new_empty(sets, 1, count)
        for part in cache_sized_parts(x):
            runs, origin[part] = _sort_runs_with_origin(x[part], None if real is None else real[part])
            values = runs.float()  # (b, D, N)   rounded to a float32 it is the value again
            largest = values[..., :1]
            values = torch.maximum(values, floor[part], out=u[part])
            powers = (values - largest).clamp_(max=0).exp_().mul_(kept[part])  # (b, D, N)
            total = powers.sum(-1)  # (b, D)
            embedding[part] = powers.mul_(values).sum(-1).div_(total)
            log_total[part] = largest.squeeze(-1) + total.log_()
            theta[part] = (weight @ values).masked_fill_(~is_real[part], -torch.inf).softmax(-1)
            token[part] = (values @ theta[part].transpose(1, 2)).squeeze(-1)
        ctx.save_for_backward(u, origin, kept, theta, embedding, log_total, weight)
        return token, embedding, theta

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, Tensor]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "AdPool has no second derivatives of float32 on a CPU: use float64, or create_graph=False"
            )
        saved, weight = ctx.saved_tensors[:-1], ctx.saved_tensors[-1]
        u = saved[0]
        of_x, of_weight = u.new_empty(u.shape[0], u.shape[2], u.shape[1]), torch.zeros_like(weight)
        for part in cache_sized_parts(of_x):
            values, origin, kept, theta, embedding, log_total = (each[part] for each in saved)
            of_token, of_embedding, of_theta = (each[part].contiguous() for each in gradients)
            of_theta = of_theta + of_token.unsqueeze(1) @ values  # (b, 1, N)
            of_logits = theta * (of_theta - (theta * of_theta).sum(-1, keepdim=True))  # (b, 1, N)
            of_weight += (values @ of_logits.transpose(1, 2)).sum(0).t()
            # A value moves its softmax mean e by its own weight times (1 + value - e).
            of_values = (
                (values - log_total.unsqueeze(-1)).clamp_(max=0).exp_().mul_(kept)
            )  # (b, D, N)   weights
            of_values *= (values - (embedding - 1).unsqueeze(-1)).mul_(of_embedding.unsqueeze(-1))
            # It is weighed by θ on the token level, and adds to its row's logit.
            columns = torch.stack([of_token, weight.expand_as(of_token)], -1)  # (b, D, 2)
            of_values.baddbmm_(columns, torch.cat([theta, of_logits], 1))
            elements = torch.empty_like(of_values).scatter_(2, origin.long(), of_values)
            of_x[part] = elements.transpose(1, 2)
        return of_x, None, of_weight


def _negative_runs(x: Tensor, dtype: torch.dtype) -> Tensor:
    """-x of (B, N, D) as (B, D, N): each dimension of a set is a run of numbers that lie together."""
    return x.transpose(1, 2).to(dtype, memory_format=torch.contiguous_format, copy=True).neg_()


def _sort_runs_with_origin(x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """`sort_with_origin` of one part as runs, (B, D, N): the values as float64, and their origin."""
    # An infinity with digits would be a NaN: a power of two beyond every float32 takes its place.
    keys = _negative_runs(x, torch.float64).clamp_(-(2.0**1000), 2.0**1000)  # (B, D, N)
    if real is not None:
        keys.masked_fill_(~real.transpose(1, 2), 2.0**1001)  # behind all, whatever stood there
    bits, numbers = keys.view(torch.int64), torch.arange(x.shape[1])
    # In a negative number larger digits make a smaller number: there they hold the complement.
    bits |= (bits >> 63).bitwise_xor_(numbers).bitwise_and_(0xFFFF)
    digits = _sort_runs(keys).view(torch.int64).short()  # the number, or its complement, which is below 0
    origin = (digits >> 15).bitwise_xor_(digits)
    # In a dimension with a NaN the digits mean nothing: they must still name an element.
    return _spoil(keys.neg_()), origin.clamp_(max=x.shape[1] - 1)


def _sort_runs(x: Tensor) -> Tensor:
    x.numpy().sort(axis=-1)  # in place, the least first, a NaN last
    return x


def _spoil(runs: Tensor) -> Tensor:
    """Where a NaN was sorted last, the whole dimension becomes NaN: runs are (B, D, N)."""
    spoilt = runs[..., -1:].isnan()  # (B, D, 1)
    return runs.masked_fill_(spoilt, torch.nan) if spoilt.any() else runs


def cache_sized_parts(x: Tensor) -> list[slice]:
    """Cut a batch (B, N, D) into parts of as many sets as fit into a processor's cache.

    What is made on the way from one part's input to its result then stays in the cache, and the next part
    uses the same memory again. A GPU does not need this, and a compiler does it on its own: for them the
    whole batch is one part.
    """
    if not is_plain(x):
        return [slice(None)]
    size = max(1, VALUES_AT_A_TIME // max(1, x.shape[1] * x.shape[2]))
    return [slice(start, start + size) for start in range(0, len(x), size)]


def pool_by_parts(pool: Callable[[Tensor, Tensor | None], Tensor], x: Tensor, mask: Tensor | None) -> Tensor:
    """Pool a few sets at a time, for formulas that make many tensors of the input's size on their way.

    The backward pass needs those tensors again. For a small batch torch keeps them as always, and parts would
    gain nothing. For a large batch they are computed a second time, part by part, which takes less time than
    fetching so much memory.

    Args:
        pool: turns elements (B, N, D) and a mask into (B, D), each set on its own.
        x: elements, (B, N, D).
        mask: bool, (B, N), or None.

    Returns:
        The pooled sets, (B, D).
    """
    parts, learning = cache_sized_parts(x), torch.is_grad_enabled()
    if len(parts) <= 1 or (learning and x.numel() < VALUES_TOO_MANY_TO_KEEP):
        return pool(x, mask)
    size = parts[0].stop
    masks = [None] * len(parts) if mask is None else mask.split(size)
    each = zip(x.split(size), masks, strict=True)
    if not learning:
        return torch.cat([pool(sets, real) for sets, real in each])
    again = partial(checkpoint, pool, use_reentrant=False, preserve_rng_state=False)  # no dropout
    return torch.cat([again(sets, real) for sets, real in each])
