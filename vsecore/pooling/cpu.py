"""Faster ways for a CPU. You can understand every pooler without them; results agree up to rounding.

Two things decide how long a CPU takes. Memory is slow, so large batches are worked through a few sets at a
time, and what is made on the way from input to result stays in the cache. And numpy sorts short runs of
numbers with vector instructions (small sorting networks inside the registers), several times faster than
torch's own sort or a network made of torch's operations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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

    One sort of plain numbers finds both. A float64 has 29 more bits than a float32 for a number's digits. The
    lowest 16 of them hold the element's number, written such that of equal values the earlier element comes
    first.
    """
    values = torch.empty_like(x, memory_format=torch.contiguous_format)
    origin = torch.empty_like(values, dtype=torch.int16)
    numbers = torch.arange(x.shape[1])  # (N,)
    for part in cache_sized_parts(x):
        # An infinity with digits would be a NaN: a power of two beyond every float32 takes its place.
        keys = _negative_runs(x[part], torch.float64).clamp_(-(2.0**1000), 2.0**1000)  # (b, D, N)
        if real is not None:
            keys.masked_fill_(~real[part].transpose(1, 2), 2.0**1001)  # behind all, whatever stood there
        bits = keys.view(torch.int64)
        # In a negative number larger digits make a smaller number: there they hold the complement.
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
