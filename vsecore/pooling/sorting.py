"""Sort each dimension of a set of vectors on its own: the first step of "sort, weigh, sum"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

from vsecore.masking import check_elements, without_padding
from vsecore.pooling import cpu
from vsecore.pooling.masking import sorted_mask

# A compiler unrolls the network; with more elements than this it would work for minutes.
MOST_ELEMENTS_COMPILED = 64

Row = TypeVar("Row")


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

    Source: the sorting network is Batcher's odd-even merge sort (1968), as algorithm M of Knuth 1998, section
    5.2.2.
    """
    check_elements(x, mask)
    real = None if mask is None else mask.unsqueeze(-1)  # (B, N, 1)
    learns = torch.is_grad_enabled() and x.requires_grad
    values = _Sort.apply(x, real) if learns else _sort_values(x, real)  # (B, N, D)
    return without_padding(values, sorted_mask(x, mask))  # (B, N, D)


def sort_rows(rows: list[Row], compare: Callable[[Row, Row], tuple[Row, Row]]) -> list[Row]:
    """Batcher's network: sort rows in place by comparing two at a time, in an order that never changes.

    Because the order does not depend on the values, one comparison serves every column of the rows at once:
    with tensors it is a maximum and a minimum.

    Args:
        rows: what to sort, such as N tensors (B, D).
        compare: two rows -> the larger and the smaller, column by column.

    Returns:
        The same list, the largest first.

    Example:
        >>> sort_rows([2, 3, 1], lambda a, b: (max(a, b), min(a, b)))
        [3, 2, 1]
    """
    for i, j in comparisons(len(rows)):
        rows[i], rows[j] = compare(rows[i], rows[j])
    return rows


def comparisons(count: int) -> Iterator[tuple[int, int]]:
    """The pairs (i, j), i < j, that Batcher's network compares one after the other to sort `count` rows."""
    for step, offset, distance in _steps(count):
        for i in range(offset, count - distance):
            if i & step == offset:
                yield i, i + distance


def _steps(count: int) -> Iterator[tuple[int, int, int]]:
    """The network's steps for `count` rows: (step, offset, distance), 21 of them for 36 rows.

    In each, row i is compared with row i + distance for every i with i & step == offset. Within a step no row
    occurs twice.
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


def _sort_values(x: Tensor, real: Tensor | None) -> Tensor:
    if cpu.can_sort(x):
        return cpu.sort_values(x, real)
    if _network_compiles(x):
        padded = x if real is None else torch.where(real, x, -torch.inf)
        rows = sort_rows(
            list(padded.unbind(1)), lambda a, b: (torch.maximum(a, b), torch.minimum(a, b))
        )  # N times (B, D)
        return torch.stack(rows, 1)  # (B, N, D)
    return _sort_by_torch(x, real)[0]


class _Sort(torch.autograd.Function):
    """Sorting that remembers where each value came from, so that the way back is one scatter."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, real: Tensor | None) -> Tensor:
        if cpu.can_sort(x):
            values, origin = cpu.sort_with_origin(x, real)
        elif _network_compiles(x):
            values, origin = _sort_with_origin(x, real)
        else:
            values, origin = _sort_by_torch(x, real)
        ctx.save_for_backward(origin)
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (origin,) = ctx.saved_tensors
        if origin.dtype == torch.int16:
            return cpu.unsort(gradient, origin), None
        return torch.empty_like(gradient).scatter_(1, origin, gradient), None  # origin is a permutation


def _network_compiles(x: Tensor) -> bool:
    # Compiled, all comparisons become one kernel. Without a compiler each would be a pass over the memory.
    return torch.compiler.is_compiling() and x.shape[1] <= MOST_ELEMENTS_COMPILED


def _sort_with_origin(x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """The network on pairs of a value and its element's number."""
    count = x.shape[1]
    numbers = torch.arange(count, device=x.device).view(1, count, 1).expand_as(x)  # (B, N, D)
    if real is not None:
        # A real -inf and padding are the same value: the higher number puts padding last.
        x, numbers = torch.where(real, x, -torch.inf), torch.where(real, numbers, numbers + count)

    def compare(
        a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        swap = (a[0] < b[0]) | ((a[0] == b[0]) & (a[1] > b[1]))  # (B, D)
        larger = torch.where(swap, b[0], a[0]), torch.where(swap, b[1], a[1])
        smaller = torch.where(swap, a[0], b[0]), torch.where(swap, a[1], b[1])
        return larger, smaller

    pairs = sort_rows(list(zip(x.unbind(1), numbers.unbind(1), strict=True)), compare)
    values, origin = (torch.stack(rows, 1) for rows in zip(*pairs, strict=True))  # (B, N, D) each
    return torch.where(x.isnan().any(1, keepdim=True), torch.nan, values), origin % count


def _sort_by_torch(x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
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
