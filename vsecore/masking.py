"""What every part takes that reads elements: (B, N, D), which of them are real, and a type to add them in."""

import torch
from torch import Tensor

from vsecore.arguments import Shape


def check_elements(x: Tensor, mask: Tensor | None, dim: int | None = None, name: str = "x") -> None:
    """Refuse elements (B, N, D) that cannot be pooled or attended to, of another width than `dim` too.

    A row without a real element is only refused on a CPU (see `Shape`). On a GPU it gives NaN, infinity, an
    error of the device or a meaningless vector; no batch of `data.batches` has one.
    """
    sizes = {} if dim is None else {"D": dim}
    Shape("B* N D").check(name, x, sizes)
    if mask is not None:
        Shape("B* N", "mask").check("mask", mask, sizes)


def without_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """The elements, (B, N, D), with 0 in place of whatever is in the padding, even NaN."""
    return x if mask is None else torch.where(mask.unsqueeze(-1), x, 0)


def checked_elements(x: Tensor, mask: Tensor | None, dim: int | None = None, name: str = "x") -> Tensor:
    """Return the elements `without_padding`, after `check_elements`."""
    check_elements(x, mask, dim, name)
    return without_padding(x, mask)


def softmax_over_real(logits: Tensor, mask: Tensor | None) -> Tensor:
    """A softmax of (B, N, 1) or (B, N, D) over the elements that gives padding a weight of exactly 0."""
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


def real_first(x: Tensor, mask: Tensor | None) -> Tensor:
    """The real elements of each row in their order, then zeros, (B, N, D)."""
    if mask is None:
        return x
    order = (~mask).to(torch.uint8).argsort(dim=1, stable=True).unsqueeze(-1)  # (B, N, 1)
    return without_padding(x, mask).gather(1, order.expand_as(x))  # (B, N, D)


def widened(x: Tensor) -> Tensor:
    """Return x in float32 at least: a bfloat16 sum over a batch keeps two digits."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def promoted(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in the type that holds the numbers of either, float32 at least."""
    dtype = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)
    return x.to(dtype), y.to(dtype)
