"""The cosine of two vectors: one for a picture, one for a caption."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vsecore.embedding import Embedding


def unit(x: Tensor) -> Tensor:
    """Scale vectors (..., D) to length one; a zero vector stays zero and its gradient stays finite.

    Dividing by max(length, tiny), as is usual, would multiply the gradient of a zero vector by 1/tiny.
    """
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # (..., 1)
    return x / torch.where(length > 0, length, 1)  # (..., D)


def cosine(v: Tensor, t: Tensor) -> Tensor:
    """Compute the cosine of the angle between every picture and every caption.

    Computed in float32 at least, under autocast too: bfloat16 has only 128 values between 0.5 and 1, and
    small differences decide a ranking.

    Args:
        v: pictures, (B, D). Need not be unit vectors.
        t: captions, (C, D). Need not be unit vectors.

    Returns:
        (B, C) similarities in [-1, 1]; 0 wherever one of the two is the zero vector.

    Raises:
        ValueError: v or t is not a matrix, or their widths differ.
    """
    _check_widths(v, t)
    dtype = torch.promote_types(torch.promote_types(v.dtype, t.dtype), torch.float32)
    with torch.autocast(v.device.type, enabled=False):
        return unit(v.to(dtype)) @ unit(t.to(dtype)).T  # (B, C)


class Cosine(nn.Module):
    """`cosine` of the two sides' vectors.

    Attributes:
        reads: what it reads of an `Embedding`: "vectors", "elements", a name in `extra`, or a tuple of them.
            Evaluation keeps only this of an encoded split, and processes gather it.
        block: how many pictures and captions evaluation compares at a time.
    """

    reads = "vectors"
    block = (4096, 32768)

    def forward(self, v: Embedding, t: Embedding) -> Tensor:
        """Compare every picture with every caption: (B, C)."""
        return cosine(_vectors(v), _vectors(t))

    def pairs(self, v: Embedding, t: Embedding) -> Tensor:
        """Compare each picture with the caption of its row: (B,).

        Raises:
            ValueError: the numbers of rows differ, or as `cosine`.
        """
        pictures, captions = _vectors(v), _vectors(t)
        _check_widths(pictures, captions)
        if len(pictures) != len(captions):
            raise ValueError(
                f"v and t must have the same number of rows, got {len(pictures)} and {len(captions)}"
            )
        dtype = torch.promote_types(torch.promote_types(pictures.dtype, captions.dtype), torch.float32)
        return (unit(pictures.to(dtype)) * unit(captions.to(dtype))).sum(-1)  # (B,)


def _vectors(embedding: Embedding) -> Tensor:
    if embedding.vectors is None:
        raise ValueError("the embedding has no vectors to compare: give its tower a pool")
    return embedding.vectors


def _check_widths(v: Tensor, t: Tensor) -> None:
    for name, x in (("v", v), ("t", t)):
        if x.ndim != 2 or x.is_complex():
            raise ValueError(f"{name} must be real (vectors, D), got {x.dtype} {tuple(x.shape)}")
    if v.shape[1] != t.shape[1]:
        raise ValueError(f"v and t must have the same width, got v {tuple(v.shape)} and t {tuple(t.shape)}")
