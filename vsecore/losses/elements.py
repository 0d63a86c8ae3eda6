"""What losses on elements share: cells, regions or words (B, N, D), and which of them are real (B, N)."""

from __future__ import annotations

import torch
from torch import Tensor

from vsecore.embedding import Embedding


def elements_of(embedding: Embedding) -> Tensor:
    """Return the elements of an embedding, (B, N, D).

    Raises:
        ValueError: it holds none.
    """
    if embedding.elements is None:
        raise ValueError("the embedding has no elements: the loss must name them in its attribute `reads`")
    return embedding.elements


def check_elements(name: str, x: Tensor, mask: Tensor | None, dim: int | None = None) -> Tensor:
    """Refuse what is not a batch of elements, and return them in float32 at least, with 0 in the padding.

    Whether every row has a real element is only checked on a CPU: on a GPU every step would have to wait for
    the answer.

    Args:
        name: what the error messages call the elements.
        x: elements, (B, N, D).
        mask: bool, (B, N), True where an element is real; None: all are.
        dim: the width that is wanted; None means any.

    Raises:
        ValueError: the shapes or the mask's type are wrong, or a row has no real element.
    """
    width = "D" if dim is None else str(dim)
    if x.ndim != 3 or not x.is_floating_point() or x.shape[1] == 0 or (dim and x.shape[2] != dim):
        raise ValueError(
            f"{name} is {x.dtype} {tuple(x.shape)}: it must be floating point (B, N, {width}) with N > 0"
        )
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    if mask is None:
        return x
    if mask.dtype != torch.bool or mask.shape != x.shape[:2]:
        raise ValueError(
            f"the mask of {name} is {mask.dtype} {tuple(mask.shape)}: it must be bool {tuple(x.shape[:2])}"
        )
    if mask.device.type == "cpu" and not bool(mask.any(1).all()):
        row = int((~mask.any(1)).nonzero()[0])
        raise ValueError(f"row {row} of {name} has no real element: it must have at least one")
    return torch.where(mask.unsqueeze(-1), x, 0)


def real_first(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Move the padding of elements (B, N, D) behind the real ones, which keep their order; the mask too."""
    if mask is None:
        return x, None
    order = (~mask).to(torch.uint8).argsort(dim=1, stable=True)  # (B, N)
    return x.gather(1, order.unsqueeze(-1).expand_as(x)), mask.gather(1, order)


def unit(x: Tensor) -> Tensor:
    """Scale vectors (..., D) to length one; a zero vector stays zero, with a finite gradient."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # (..., 1)
    return x / torch.where(length > 0, length, 1)  # (..., D)
