"""Sort each dimension of a set of vectors on its own: the first step of "sort, weigh, sum"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from vsecore.pooling.masking import cache_sized_parts, check_elements, sorted_mask, without_padding

# Where the network wins, measured on a processor: from a few hundred columns (B·D) on, whatever the number of
# elements up to 1024. Below, calling its many small steps costs more than the sorting itself.
LEAST_COLUMNS = 512
MOST_ELEMENTS = 1024
# A compiler unrolls the network; above this many elements it would work for minutes.
MOST_ELEMENTS_COMPILED = 64


def sort_descending(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Sort each dimension by itself, the largest value first and padding last.

    Row m of the result holds the m-th largest value of every dimension, so that its D values may come from D
    different elements. Pooling is then a question of weights: all on the first row is `MaxPool`, the same on
    every row is `MeanPool`.

    In the backward pass each gradient goes to the element that its value came from. Of equal values the
    earlier element counts as the larger one; how 0 and -0 stand to each other is left open. Infinities sort
    as numbers do. A NaN among the real elements makes its dimension of its row NaN throughout: nothing hides
    it.

    Args:
        x: elements, (B, N, D).
        mask: bool, (B, N), True where an element is real; None means that all are.

    Returns:
        The sorted values, (B, N, D); 0 in the last rows, where a short row of the batch has no more elements.

    Raises:
        ValueError: as `check_elements`.

    Example:
        >>> sort_descending(torch.tensor([[[1.0, 5.0], [3.0, 4.0], [2.0, 6.0]]]))
        tensor([[[3., 6.],
                 [2., 5.],
                 [1., 4.]]])

    Source: the odd-even merge sort of Batcher 1968, as algorithm M of Knuth 1998, section 5.2.2. On the same
    task `torch.sort` gathers each column, sorts it and writes it back; the network compares whole rows.
    """
    check_elements(x, mask)
    real = None if mask is None else mask.unsqueeze(-1)  # (B, N, 1)
    if torch.is_grad_enabled() and x.requires_grad:
        values = _Sort.apply(x, real)  # (B, N, D)
    elif _network_wins(x):
        values = _sort_values(x, real)
    else:
        values, _ = _fallback(x, real)
    return without_padding(values, sorted_mask(x, mask))  # (B, N, D)


class _Sort(torch.autograd.Function):
    """Sorting that remembers where each value came from.

    To carry the numbers of the elements through the network beside the values, with a comparison and two
    choices for each, takes three times as long as the values alone; so does keeping what every comparison
    said, to undo the network with. Written into the bits that a value does not need (see `_sort_keys`), the
    numbers ride along for little more than the wider type costs, and the way back is one scatter.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, real: Tensor | None) -> Tensor:
        if _network_wins(x) and x.dtype != torch.float64:
            values, origin = _sort_keys(x, real)
        else:
            values, origin = _fallback(x, real)
        ctx.save_for_backward(origin)
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (origin,) = ctx.saved_tensors
        result = torch.zeros_like(gradient, memory_format=torch.contiguous_format)
        for part in cache_sized_parts(gradient):
            result[part].scatter_(1, origin[part].long(), gradient[part])
        return result, None


def _network_wins(x: Tensor) -> bool:
    if torch.compiler.is_compiling():
        return x.shape[1] <= MOST_ELEMENTS_COMPILED
    # On a GPU each step would be three kernels or six, each a pass over the memory, unless compiled to one.
    columns = x.shape[0] * x.shape[2]
    return x.device.type == "cpu" and x.shape[1] <= MOST_ELEMENTS and columns >= LEAST_COLUMNS


def _sort_values(x: Tensor, real: Tensor | None) -> Tensor:
    values = torch.empty_like(x, memory_format=torch.contiguous_format)
    for part in cache_sized_parts(x):
        elements = x[part].clone(memory_format=torch.contiguous_format)
        if real is not None:
            elements.masked_fill_(~real[part], -torch.inf)
        values[part] = _network(elements)
    return values


def _sort_keys(x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """Values and the numbers of the elements that they came from, by one network of plain numbers.

    A float64 has 29 bits more than a float32 for the digits of a number. The lowest 16 of them take the
    element's number, so written that of equal values the earlier element is the larger key.
    """
    values = torch.empty_like(x, memory_format=torch.contiguous_format)
    origin = torch.empty_like(values, dtype=torch.int16)
    numbers = torch.arange(x.shape[1], device=x.device).unsqueeze(-1)  # (N, 1)
    for part in cache_sized_parts(x):
        # An infinity with digits would be a NaN: a power of two beyond every float32 stands for it.
        keys = x[part].contiguous().double().clamp_(-(2.0**1000), 2.0**1000)  # (b, N, D)
        if real is not None:
            keys = torch.where(real[part], keys, -(2.0**1001))  # padding is below all
        bits = keys.view(torch.int64)
        # The more digits a number below 0 has, the less it is: there they take the element's number itself,
        # above 0 its complement.
        bits |= (bits >> 63).bitwise_xor_(~numbers).bitwise_and_(0xFFFF)
        keys = _network(keys)
        values[part] = keys  # rounded to a float32 it is the value again
        digits = keys.view(torch.int64).short()  # the element's number, or below 0 its complement
        origin[part] = (digits >> 15).bitwise_xor_(digits)
    # In a dimension with a NaN the digits mean nothing: they must still name an element.
    return values, origin.clamp_(max=x.shape[1] - 1)


def _fallback(x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """The same by `torch.sort`, which puts a NaN first."""
    if real is None:
        values, origin = x.sort(dim=1, descending=True, stable=True)
    else:
        # Real elements first, whatever they are: a real -inf must not be taken for padding.
        order = (~real).to(torch.uint8).argsort(dim=1, stable=True).expand_as(x)  # (B, N, D)
        packed = torch.where(real, x, -torch.inf).gather(1, order)
        values, origin = packed.sort(dim=1, descending=True, stable=True)
        origin = order.gather(1, origin)
    return torch.where(values[:, :1].isnan(), torch.nan, values), origin


def _network(x: Tensor) -> Tensor:
    """Sort each column of (B, N, D), where possible in place, by comparing whole rows with each other."""
    count = x.shape[1]
    if torch.compiler.is_compiling():  # single rows are what a compiler fuses best
        rows = list(x.unbind(1))  # (B, D) each
        for step, offset, distance in _steps(count):
            for i in range(offset, count - distance):
                if i & step == offset:
                    j = i + distance
                    rows[i], rows[j] = torch.maximum(rows[i], rows[j]), torch.minimum(rows[i], rows[j])
        return torch.stack(rows, 1)
    for step, offset, distance in _steps(count):
        # Of the rows from the offset on, `step` take part and `step` do not, and so on.
        highs, lows = x[:, offset : count - distance], x[:, offset + distance :]
        runs = (highs.shape[1] + step) // (2 * step)
        if runs:
            _compare(highs.unfold(1, step, 2 * step), lows.unfold(1, step, 2 * step))  # (B, runs, D, step)
        if highs.shape[1] > runs * 2 * step:
            _compare(highs[:, runs * 2 * step :], lows[:, runs * 2 * step :])
    return x


def _compare(highs: Tensor, lows: Tensor) -> None:
    larger = torch.maximum(highs, lows)
    torch.minimum(highs, lows, out=lows)
    highs.copy_(larger)


def _steps(count: int) -> Iterator[tuple[int, int, int]]:
    """What a network for `count` rows compares: (step, offset, distance), 21 of them for 36 rows.

    In each step, row i is compared with row i + distance for every i with i & step == offset.
    """
    step = longest = (1 << (count - 1).bit_length()) >> 1
    while step:
        span, offset, distance = longest, 0, step
        while True:
            yield step, offset, distance
            if span == step:
                break
            span, offset, distance = span >> 1, step, span - step
        step >>= 1
