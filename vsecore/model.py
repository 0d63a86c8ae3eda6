"""VSE: two towers that meet in one space."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from torch import Tensor, nn

from vsecore.similarity import unit

if TYPE_CHECKING:
    from vsecore.data.batches import Batch


class VSE(nn.Module):
    """Visual-semantic embedding: pictures and captions as unit vectors, near where they belong together.

    Each tower encodes its elements, pools them to one vector and scales it to length one.

    Args:
        image_encoder: (pictures, mask) -> (elements (B, N, D), mask).
        image_pool: (elements, mask) -> (B, D).
        text_encoder: (tokens, mask) -> (elements (C, L, D), mask).
        text_pool: (elements, mask) -> (C, D).
        similarity: (v (B, D), t (C, D)) -> (B, C).

    Source: Faghri et al. 2018 (VSE++), section 3.1.
    """

    def __init__(
        self,
        image_encoder: nn.Module,
        image_pool: nn.Module,
        text_encoder: nn.Module,
        text_pool: nn.Module,
        similarity: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        super().__init__()
        self.image_encoder = image_encoder
        self.image_pool = image_pool
        self.text_encoder = text_encoder
        self.text_pool = text_pool
        self.similarity = similarity

    def encode_pictures(self, pictures: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pictures (B, N, F), or pixels where the encoder has a backbone, to unit vectors (B, D)."""
        elements, mask = self.image_encoder(pictures, mask)  # (B, N, D), (B, N)
        return unit(self.image_pool(elements, mask))  # (B, D)

    def encode_captions(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Captions (C, L) to unit vectors (C, D)."""
        elements, mask = self.text_encoder(tokens, mask)  # (C, L, D), (C, L)
        return unit(self.text_pool(elements, mask))  # (C, D)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Embed a batch: pictures v (B, D) and captions t (C, D)."""
        v = self.encode_pictures(batch.pictures, batch.picture_mask)  # (B, D)
        t = self.encode_captions(batch.tokens, batch.token_mask)  # (C, D)
        return v, t

    def scores(self, v: Tensor, t: Tensor) -> Tensor:
        """Compare every picture (B, D) with every caption (C, D): (B, C).

        Raises:
            ValueError: the widths differ.
        """
        return self.similarity(v, t)

    def pretrained_parameters(self) -> Iterator[nn.Parameter]:
        """What was trained before it came here (BERT, a CNN), and so wants smaller steps than the rest."""
        for encoder in (self.image_encoder, self.text_encoder):
            if isinstance(encoder.backbone, nn.Module):
                yield from encoder.backbone.parameters()
