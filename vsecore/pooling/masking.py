"""What every pooler takes: elements (B, N, D) and which of them are real."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# Values worked on at a time: enough for the work to outweigh the calls, few enough for a processor's cache.
VALUES_AT_A_TIME = 2**19
# From here on (32 MB of float32) each tensor's memory is fetched anew from the system, which takes longer
# than most work on it.
VALUES_TOO_MANY_TO_KEEP = 2**23


def check_elements(x: Tensor, mask: Tensor | None, dim: int | None = None) -> None:
    """Refuse what no pooler can pool.

    Whether every row has a real element is only looked up on a CPU: on an accelerator the answer would have
    to be waited for in every step. There a row without one becomes NaN or infinite, which no loss survives
    unseen.

    Args:
        x: elements, (B, N, D).
        mask: bool, (B, N), or None.
        dim: the width that a pooler with weights was built for; None: any.

    Raises:
        ValueError: the shapes or the mask's type are wrong, or a row has no real element.
    """
    width = "D" if dim is None else str(dim)
    if x.ndim != 3 or not x.is_floating_point() or (dim is not None and x.shape[2] != dim):
        raise ValueError(f"x must be floating point (B, N, {width}), got {x.dtype} {tuple(x.shape)}")
    if x.shape[1] == 0:
        raise ValueError(f"x must have at least one element a row, got {tuple(x.shape)}")
    if mask is None:
        return
    if mask.dtype != torch.bool or mask.shape != x.shape[:2]:
        raise ValueError(
            f"mask must be bool {tuple(x.shape[:2])} to go with x {tuple(x.shape)}, "
            f"got {mask.dtype} {tuple(mask.shape)}"
        )
    if mask.device.type == "cpu" and not torch.compiler.is_compiling():
        empty = (~mask.any(1)).nonzero().flatten()
        if len(empty):
            raise ValueError(f"mask must leave every row a real element, row {int(empty[0])} has none")


def check_dim(dim: int) -> None:
    """Refuse a width that is no whole number of at least 1.

    Raises:
        ValueError: naming what came.
    """
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < 1:
        raise ValueError(f"dim must be a whole number of at least 1, got {dim!r}")


def without_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """The elements, (B, N, D), with 0 in place of whatever stands in the padding, be it NaN."""
    return x if mask is None else torch.where(mask.unsqueeze(-1), x, 0)


def softmax_over_real(logits: Tensor, mask: Tensor | None) -> Tensor:
    """A softmax over the elements, in which padding weighs exactly nothing.

    Args:
        logits: one for each element, (B, N, 1), or for each of its dimensions, (B, N, D).
        mask: bool, (B, N), or None.

    Returns:
        Weights of the same shape that add up to 1 over the real elements.
    """
    if mask is not None:
        logits = torch.where(mask.unsqueeze(-1), logits, -torch.inf)
    return logits.softmax(1)


def count_real(x: Tensor, mask: Tensor | None) -> Tensor:
    """How many real elements each row has, (B,), as whole numbers."""
    if mask is None:
        return torch.full((x.shape[0],), x.shape[1], device=x.device)
    return mask.sum(1)


def sorted_mask(x: Tensor, mask: Tensor | None) -> Tensor | None:
    """Which rows are real once each set is sorted with its padding last, (B, N); None: all are."""
    if mask is None:
        return None
    return torch.arange(x.shape[1], device=x.device) < mask.sum(1, keepdim=True)


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
