"""Similarities: how near a picture is to a caption."""

from __future__ import annotations

import torch
from torch import Tensor


def unit(x: Tensor) -> Tensor:
    """Scale vectors (..., D) to length one; a zero vector stays zero and its gradient stays finite.

    Dividing by max(length, tiny), as is usual, would multiply the gradient of a zero vector by 1/tiny.
    """
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # (..., 1)
    return x / torch.where(length > 0, length, 1)  # (..., D)


def cosine(v: Tensor, t: Tensor) -> Tensor:
    """Cosine of the angle between every picture and every caption.

    Computed in float32 at least, under autocast too: bfloat16 tells only some hundred cosines between 0 and 1
    apart, and scores exist to be compared.

    Args:
        v: pictures, (B, D). Need not be unit vectors.
        t: captions, (C, D). Need not be unit vectors.

    Returns:
        (B, C) similarities in [-1, 1]; 0 wherever one of the two is the zero vector.

    Raises:
        ValueError: v or t is not a matrix, or their widths differ.
    """
    for name, x in (("v", v), ("t", t)):
        if x.ndim != 2 or x.is_complex():
            raise ValueError(f"{name} must be real (vectors, D), got {x.dtype} {tuple(x.shape)}")
    if v.shape[1] != t.shape[1]:
        raise ValueError(f"v and t must have the same width, got v {tuple(v.shape)} and t {tuple(t.shape)}")
    dtype = torch.promote_types(torch.promote_types(v.dtype, t.dtype), torch.float32)
    with torch.autocast(v.device.type, enabled=False):
        return unit(v.to(dtype)) @ unit(t.to(dtype)).T  # (B, C)
