"""The cosine of two vectors: one for a picture, one for a caption."""

from typing import Annotated

import torch
from torch import Tensor

from vsecore.arguments import Shape, checked
from vsecore.embedding import Embedding, unit
from vsecore.masking import promoted
from vsecore.similarity.base import Similarity

Vectors = Annotated[Tensor, Shape("B* D")]


@checked
def cosine(v: Vectors, t: Annotated[Tensor, Shape("C* D")]) -> Tensor:
    """Compute the cosine of the angle between every picture and every caption.

    Computed in float32 at least, under autocast too: bfloat16 has only 128 values between 0.5 and 1, and
    small differences decide a ranking.

    Args:
        v: pictures, (B, D). Need not be unit vectors.
        t: captions, (C, D). Need not be unit vectors.

    Returns:
        (B, C) similarities in [-1, 1]; 0 wherever one of the two is the zero vector.
    """
    with torch.autocast(v.device.type, enabled=False):
        v, t = map(unit, promoted(v, t))
        return v @ t.T  # (B, C)


class Cosine(Similarity):
    """`cosine` of the two sides' vectors."""

    reads = "vectors"
    block = (4096, 32768)

    def forward(self, v: Embedding, t: Embedding) -> Tensor:
        return cosine(v.needed("vectors"), t.needed("vectors"))

    @checked
    def _pairs(self, v: Vectors, t: Vectors) -> Tensor:
        v, t = map(unit, promoted(v, t))
        return (v * t).sum(-1)  # (B,)

    def pairs(self, v: Embedding, t: Embedding) -> Tensor:
        return self._pairs(v.needed("vectors"), t.needed("vectors"))
