"""VSE: two towers and one joint space."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vsecore.embedding import Embedding, joined, unit
from vsecore.masking import check_elements
from vsecore.pooling.basic import MeanPool
from vsecore.pooling.set_pools import ProjectedPool, SetPool
from vsecore.registry import names_read
from vsecore.similarity import Similarity

if TYPE_CHECKING:
    from vsecore.data.batches import Batch
    from vsecore.data.photographs import View
    from vsecore.encoders import ImageEncoder, TextEncoder


class VSE(nn.Module):
    """Visual-semantic embedding: a picture and a caption that belong together end up close together.

    Each tower encodes its elements, may let them look at each other (a reasoner), pools them and scales the
    result to length one.

    A pool is called as `pool(elements, mask)` and gives vectors (B, D) or sets (B, K, D). A pool with
    more to return gives a pair: the vectors, and a dictionary that becomes `Embedding.extra`.

    Args:
        image_encoder: (pictures, mask) -> (elements (B, N, D), mask).
        image_pool: (elements, mask) -> vectors; None: only elements are compared.
        text_encoder: (tokens, mask) -> (elements (C, L, D), mask).
        text_pool: (elements, mask) -> vectors; None: only elements are compared.
        similarity: compares two `Embedding`s, as `vsecore.similarity.Cosine` does.
        image_reasoner: (elements, mask) -> (elements, mask), before the pool; None: elements stay as they
            are.
        text_reasoner: the same for captions.
        shared: a reasoner that both towers use, after their own: one module, with one set of weights.

    Source: Faghri et al. 2018 (VSE++), section 3.1.
    """

    def __init__(
        self,
        image_encoder: ImageEncoder,
        image_pool: nn.Module | None,
        text_encoder: TextEncoder,
        text_pool: nn.Module | None,
        similarity: Similarity,
        image_reasoner: nn.Module | None = None,
        text_reasoner: nn.Module | None = None,
        shared: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.image_encoder = image_encoder
        self.image_reasoner = image_reasoner
        self.image_pool = image_pool
        self.text_encoder = text_encoder
        self.text_reasoner = text_reasoner
        self.text_pool = text_pool
        self.shared = shared
        self.similarity = similarity

    def encode_pictures(
        self, pictures: Tensor, mask: Tensor | None = None, read: Collection[str] | None = None
    ) -> Embedding:
        """Embed pictures: features (B, N, F) with their mask (B, N), or pixels (B, 3, H, W).

        `read` is what will be read of the result, as in `forward`. The mean of projected cells is the
        projection of their mean, an N-th of the work: so it is computed where no element is read, and
        `elements` is then that mean, (B, 1, D).
        """
        if read is not None and "elements" not in read and self._averages_projections():
            check_elements(pictures, mask, cast(int, self.image_encoder.feature_dim), "pictures")
            pictures, mask = MeanPool()(pictures, mask)[:, None], None  # (B, 1, F)
        return self._embedded(self.image_reasoner, self.image_pool, *self.image_encoder(pictures, mask))

    def encode_captions(self, tokens: Tensor, mask: Tensor | None = None) -> Embedding:
        """Embed captions, given as numbers of words (C, L) with their mask (C, L)."""
        return self._embedded(self.text_reasoner, self.text_pool, *self.text_encoder(tokens, mask))

    def _averages_projections(self) -> bool:
        pool = self.image_pool.pool if type(self.image_pool) is ProjectedPool else self.image_pool
        averages = type(pool) is MeanPool  # a subclass may read its elements in another way
        return averages and self.image_encoder.is_linear and self.image_reasoner is None is self.shared

    def _embedded(
        self, reasoner: nn.Module | None, pool: nn.Module | None, elements: Tensor, mask: Tensor | None
    ) -> Embedding:
        """Let encoded elements (B, N, D) look at each other, and pool them."""
        for module in (reasoner, self.shared):
            if module is not None:
                elements, mask = module(elements, mask)  # (B, N, D), (B, N)
        if pool is None:
            return Embedding(None, elements, mask)
        pooled = pool(elements, mask)  # (B, D) or (B, K, D)
        vectors, extra = pooled if isinstance(pooled, tuple) else (pooled, {})
        return Embedding(unit(vectors), elements, mask, extra)

    def forward(
        self, batch: Batch, at_a_time: int | None = None, read: Collection[str] | None = None
    ) -> tuple[Embedding, Embedding]:
        """Embed a batch: its B pictures and its C captions.

        Args:
            batch: what to embed.
            at_a_time: chunk size of the encoders (gradient caching), in pictures and in captions; None: the
                whole batch. Each part is embedded, everything in between is forgotten, and the backward pass
                embeds the part once more: the gradient is that of the whole batch, in little memory. Dropout
                is drawn part by part, and the same in both passes.
            read: what is kept of an `Embedding`, see `Embedding.only`; None: everything.

        Source: Gao et al. 2021 (gradient caching); here by PyTorch's activation checkpointing, a part at a
        time.
        """
        encode_pictures = partial(self.encode_pictures, read=read)
        v = _in_parts(encode_pictures, batch.pictures, batch.picture_mask, at_a_time, read)
        t = _in_parts(self.encode_captions, batch.tokens, batch.token_mask, at_a_time, read)
        return v, t

    def scores(self, v: Embedding, t: Embedding) -> Tensor:
        """Compare every picture with every caption: (B, C)."""
        return self.similarity(v, t)

    @property
    def compares(self) -> tuple[str, ...]:
        """What the similarity reads of an `Embedding`: "vectors", "elements", or names in its `extra`."""
        return names_read(self.similarity)

    @property
    def view(self) -> View | None:
        """How photographs must be cut for the picture encoder; None: it reads features."""
        return self.image_encoder.view

    def pretrained_parameters(self, side: Literal["both", "picture"] = "both") -> Iterator[nn.Parameter]:
        """Yield the pretrained weights (BERT, a CNN), of the picture encoder alone for "picture"."""
        encoders = (self.image_encoder, self.text_encoder)
        for encoder in encoders[: 1 if side == "picture" else 2]:
            if encoder.backbone is not None:
                yield from encoder.backbone.parameters()

    def parameters_of_sets(self) -> Iterator[nn.Parameter]:
        """Yield the weights that predict sets, which may need other steps than the rest."""
        for pool in (self.image_pool, self.text_pool):
            if isinstance(pool, SetPool):
                yield from pool.predict.parameters()


def _in_parts(
    encode: Callable[[Tensor, Tensor | None], Embedding],
    items: Tensor,
    mask: Tensor | None,
    size: int | None,
    read: Collection[str] | None,
) -> Embedding:
    """Embed items (B, ...) with their mask (B, N), keeping the layers of `size` of them at once at most."""

    def kept(items: Tensor, mask: Tensor | None) -> Embedding:
        embedding = encode(items, mask)
        return embedding if read is None else embedding.only(read)

    if size is None or len(items) <= size or not torch.is_grad_enabled():
        return kept(items, mask)
    parts = []
    for start in range(0, len(items), size):
        rows = slice(start, start + size)
        own = None if mask is None else mask[rows]
        parts.append(checkpoint(kept, items[rows], own, use_reentrant=False))
    return joined(parts)
