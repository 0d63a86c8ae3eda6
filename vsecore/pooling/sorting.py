"""Sort each dimension of a set of vectors by itself: the first step of "sort, weigh, sum".

On a CPU numpy sorts: its sorting networks work in the processor's vector registers, and are several times as
fast as torch's own sort. All else is `torch.sort`, with the same results.
"""

from typing import Any

import torch
from torch import Tensor

from vsecore.masking import check_elements, sorted_mask, without_padding

VALUES_AT_A_TIME = 2**17
"""Values worked on at a time on a CPU: enough to make up for the calls, few enough for its cache."""
MOST_ELEMENTS = 2**15
"""The number of an element is written into 16 bits, one of them for the sign."""


def sort_descending(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Sort each dimension by itself, the largest value first and padding last.

    Row m of the result holds the m-th largest value of every dimension, so its D values may come from D
    different elements. Pooling is then a question of weights: all on the first row is `MaxPool`, the same on
    every row is `MeanPool`.

    In the backward pass each gradient goes to the element that its value came from. Of equal values the
    earlier element counts as the larger one; the order of 0 and -0 is left open. Infinities sort as numbers
    do. A NaN among the real elements of a set makes that whole dimension NaN, so that it cannot go unnoticed.

    Args:
        x: elements, (B, N, D).
        mask: bool, (B, N), True where an element is real; None means that all are.

    Returns:
        The sorted values, (B, N, D); 0 in the last rows of a set that has fewer than N elements.

    Raises:
        ValueError: as `check_elements`.

    Example:
        >>> sort_descending(torch.tensor([[[1.0, 5.0], [3.0, 4.0], [2.0, 6.0]]]))
        tensor([[[3., 6.],
                 [2., 5.],
                 [1., 4.]]])
    """
    check_elements(x, mask)
    values: Tensor = _Sort.apply(x, None if mask is None else mask.unsqueeze(-1))
    return without_padding(values, sorted_mask(x, mask))  # (B, N, D)


def numpy_sorts(x: Tensor) -> bool:
    """Whether numpy sorts (B, N, D): on a CPU, in at most single precision, and outside a compiler."""
    plain = x.device.type == "cpu" and not torch.compiler.is_compiling()
    return plain and x.dtype != torch.float64 and x.shape[1] <= MOST_ELEMENTS


def cache_sized_parts(x: Tensor) -> list[slice]:
    """Cut a batch (B, N, D) into parts of as many sets as fit into a processor's cache.

    What is made on the way from one part's input to its result then stays in the cache, and the next part
    uses the same memory again.
    """
    size = max(1, VALUES_AT_A_TIME // max(1, x.shape[1] * x.shape[2]))
    return [slice(start, start + size) for start in range(0, len(x), size)]


def sort_runs(x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """Sort each dimension of (B, N, D), not of float64, largest first and padding last, by `real` (B, N, 1).

    One sort of plain numbers finds the values and where they came from. A float64 has 29 more bits than a
    float32 for a number's digits. The lowest 16 of them hold the element's number, written such that of equal
    values the earlier element comes first.

    Returns:
        Float64 numbers that are the sorted values once they are rounded to the type of x, (B, D, N), each
        dimension a run of numbers that lie together; and the numbers of their elements, int16 (B, D, N).
    """
    keys = x.transpose(1, 2).to(torch.float64, memory_format=torch.contiguous_format, copy=True).neg_()
    # An infinity with digits would be a NaN: a power of two beyond every float32 takes its place.
    keys.clamp_(-(2.0**1000), 2.0**1000)  # (B, D, N)
    if real is not None:
        keys.masked_fill_(~real.transpose(1, 2), 2.0**1001)  # behind all, whatever stood there
    bits = keys.view(torch.int64)
    # In a negative number larger digits make a smaller number: there they hold the complement.
    bits |= (bits >> 63).bitwise_xor_(torch.arange(x.shape[1])).bitwise_and_(0xFFFF)
    keys.numpy().sort(axis=-1)  # in place, the least first, a NaN last
    digits = bits.short()  # the number, or its complement, which is below 0
    origin = (digits >> 15).bitwise_xor_(digits)
    keys.neg_()
    spoilt = keys[..., -1:].isnan()  # (B, D, 1)
    if spoilt.any():  # there the digits mean nothing: they must still name an element
        keys.masked_fill_(spoilt, torch.nan)
        origin.clamp_(max=x.shape[1] - 1)
    return keys, origin


class _Sort(torch.autograd.Function):
    """Sorting that remembers where each value came from, so that the way back is one scatter."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, real: Tensor | None) -> Tensor:
        if numpy_sorts(x):
            values = torch.empty_like(x, memory_format=torch.contiguous_format)
            origin = torch.empty_like(values, dtype=torch.int16)
            for part in cache_sized_parts(x):
                runs, places = sort_runs(x[part], None if real is None else real[part])
                values[part], origin[part] = runs.transpose(1, 2), places.transpose(1, 2)
        elif real is None:
            values, origin = x.sort(dim=1, descending=True, stable=True)  # a NaN comes first
            values = torch.where(values[:, :1].isnan(), torch.nan, values)
        else:
            # Real elements first, whatever they are: a real -inf must not be taken for padding.
            order = (~real).to(torch.uint8).argsort(dim=1, stable=True).expand_as(x)  # (B, N, D)
            packed = torch.where(real, x, -torch.inf).gather(1, order)
            values, origin = packed.sort(dim=1, descending=True, stable=True)
            values, origin = torch.where(values[:, :1].isnan(), torch.nan, values), order.gather(1, origin)
        ctx.save_for_backward(origin)
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (origin,) = ctx.saved_tensors
        result = torch.empty_like(gradient, memory_format=torch.contiguous_format)
        if origin.dtype != torch.int16:
            return result.scatter_(1, origin, gradient), None  # origin is a permutation
        for part in cache_sized_parts(gradient):
            result[part].scatter_(1, origin[part].long(), gradient[part])
        return result, None
