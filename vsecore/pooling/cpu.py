"""Faster ways for a CPU. Nothing here is needed to understand a pooler, and results are the same to rounding.

Two facts rule a CPU's time. Memory is slow: what is made on the way from input to result should stay in the
cache, so large batches are worked through a few sets at a time. And numpy sorts short runs of numbers with
vector instructions (bitonic networks in the registers), which no sequence of torch's operations can match.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# Values worked on at a time: enough for the work to outweigh the calls, few enough for a processor's cache.
VALUES_AT_A_TIME = 2**17
# From here on (32 MB of float32) each tensor's memory is fetched anew from the system, which takes longer
# than most work on it.
VALUES_TOO_MANY_TO_KEEP = 2**23
# A number of an element is written into 16 bits, one of them for the sign.
MOST_ELEMENTS = 2**15


def is_plain(x: Tensor) -> bool:
    """Whether x lies on a CPU and no compiler is at work, which would do better."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def sorts(x: Tensor) -> bool:
    """Whether `sort_values` and `sort_with_origin` can sort (B, N, D)."""
    return is_plain(x) and x.dtype != torch.float64 and x.shape[1] <= MOST_ELEMENTS


def sort_values(x: Tensor, real: Tensor | None) -> Tensor:
    """Sort each dimension of (B, N, D), largest first, padding last: `real` is (B, N, 1) or None."""
    values = torch.empty_like(x, memory_format=torch.contiguous_format)
    for part in cache_sized_parts(x):
        elements = x[part] if real is None else torch.where(real[part], x[part], -torch.inf)
        values[part] = _sort_runs(_negative_runs(elements, torch.float32)).neg_().transpose(1, 2)
    return _spoil(values)


def sort_with_origin(x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """The sorted values, (B, N, D), and the number of the element that each came from, (B, N, D) int16.

    One sort of plain numbers finds both. A float64 has 29 bits more than a float32 for the digits of a
    number; the lowest 16 of them take the element's number, so written that of equal values the earlier
    element comes first.
    """
    values = torch.empty_like(x, memory_format=torch.contiguous_format)
    origin = torch.empty_like(values, dtype=torch.int16)
    numbers = torch.arange(x.shape[1])  # (N,)
    for part in cache_sized_parts(x):
        # An infinity with digits would be a NaN: a power of two beyond every float32 stands for it.
        keys = _negative_runs(x[part], torch.float64).clamp_(-(2.0**1000), 2.0**1000)  # (b, D, N)
        if real is not None:
            keys.masked_fill_(~real[part].transpose(1, 2), 2.0**1001)  # behind all, whatever stood there
        bits = keys.view(torch.int64)
        # The more digits a negative number has, the less it is: there they take the complement.
        bits |= (bits >> 63).bitwise_xor_(numbers).bitwise_and_(0xFFFF)
        digits = _sort_runs(keys).view(torch.int64).short()  # the number, or its complement, which is below 0
        origin[part] = (digits >> 15).bitwise_xor_(digits).transpose(1, 2)
        values[part] = keys.neg_().transpose(1, 2)  # rounded to a float32 it is the value again
    # In a dimension with a NaN the digits mean nothing: they must still name an element.
    return _spoil(values), origin.clamp_(max=x.shape[1] - 1)


def unsort(gradient: Tensor, origin: Tensor) -> Tensor:
    """Send each value of the gradient, (B, N, D), to the element that `origin` names."""
    result = torch.empty_like(gradient, memory_format=torch.contiguous_format)
    for part in cache_sized_parts(gradient):
        result[part].scatter_(1, origin[part].long(), gradient[part])
    return result


def _negative_runs(x: Tensor, dtype: torch.dtype) -> Tensor:
    """-x of (B, N, D) as (B, D, N): each dimension of a set is a run of numbers that lie together."""
    return x.transpose(1, 2).to(dtype, memory_format=torch.contiguous_format, copy=True).neg_()


def _sort_runs(x: Tensor) -> Tensor:
    x.numpy().sort(axis=-1)  # in place, the least first, a NaN last
    return x


def _spoil(values: Tensor) -> Tensor:
    """Where a NaN was sorted last, the whole dimension becomes NaN."""
    spoilt = values[:, -1:].isnan()  # (B, 1, D)
    return values.masked_fill_(spoilt, torch.nan) if spoilt.any() else values


def cache_sized_parts(x: Tensor) -> list[slice]:
    """Cut a batch (B, N, D) into parts of as many rows as a processor's cache holds.

    What is made on the way from one part's input to its result then never leaves the cache, and its memory
    serves the next part. A GPU has no use for that, and a compiler cuts by itself: there all is one part.
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return [slice(None)]
    size = max(1, VALUES_AT_A_TIME // max(1, x.shape[1] * x.shape[2]))
    return [slice(start, start + size) for start in range(0, len(x), size)]


def pool_by_parts(pool: Callable[[Tensor, Tensor | None], Tensor], x: Tensor, mask: Tensor | None) -> Tensor:
    """Pool a few sets at a time, for formulas that make many tensors of the input's size on their way.

    The way back needs those tensors again. Of a small batch torch keeps them, as always, and then there is
    nothing to gain from parts. Of a large one they are made a second time, part by part: that costs less than
    the memory would, and the memory need not be there.

    Args:
        pool: from elements (B, N, D) and mask to (B, D), each set by itself.
        x: elements, (B, N, D).
        mask: bool, (B, N), or None.

    Returns:
        What the pool makes of all, (B, D).
    """
    parts, learning = cache_sized_parts(x), torch.is_grad_enabled()
    if len(parts) <= 1 or (learning and x.numel() < VALUES_TOO_MANY_TO_KEEP):
        return pool(x, mask)
    size = parts[0].stop
    masks = [None] * len(parts) if mask is None else mask.split(size)
    each = zip(x.split(size), masks, strict=True)
    if not learning:
        return torch.cat([pool(sets, real) for sets, real in each])
    again = partial(checkpoint, pool, use_reentrant=False, preserve_rng_state=False)  # nothing is drawn
    return torch.cat([again(sets, real) for sets, real in each])
