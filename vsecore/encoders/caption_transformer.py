"""Captions read by a Transformer: every word looks at every other, and its place is learned."""

from typing import Any

import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import dropout, scaled_dot_product_attention

from vsecore.arguments import Count, Share, Whole, check_heads, checked
from vsecore.encoders.base import Tokens, WordMask
from vsecore.encoders.reasoning.transformer import Block, learned
from vsecore.encoders.words import WordEncoder
from vsecore.normalisation import projection


class WideningBlock(nn.Module):
    """The first block over words: attention takes them from the width of word vectors to the joint one.

    Since the widths differ, nothing is added to what the attention returns:
    Z = attention(norm(X)), then Z + network(norm(Z)).

    Args:
        word_dim: width W of a word vector.
        dim: width D of the joint space.
        heads: attentions side by side; they divide D.
        hidden: width of the network's hidden layer (ReLU).
        drop: the share left out in training.

    Source: Yan 2019 (thesis), section 2.3.
    """

    def __init__(self, word_dim: int, dim: int, heads: int, hidden: int, drop: float) -> None:
        super().__init__()
        self.heads, self.drop = heads, drop
        self.norm1, self.norm2 = nn.LayerNorm(word_dim), nn.LayerNorm(dim)
        self.query, self.key, self.value = (projection(word_dim, dim) for _ in range(3))
        self.out = projection(dim, dim)
        self.network = nn.Sequential(
            nn.Linear(dim, hidden), nn.ReLU(), nn.Dropout(drop), nn.Linear(hidden, dim)
        )
        self.dropout = nn.Dropout(drop)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Turn word vectors (C, L, W) into elements (C, L, D)."""
        normal = self.norm1(x)  # (C, L, W)
        query, key, value = (  # (C, heads, L, D / heads) each
            part(normal).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        real, drop = None if mask is None else mask[:, None, None], self.drop if self.training else 0.0
        attended = scaled_dot_product_attention(query, key, value, real, drop)  # (C, heads, L, D / heads)
        z = self.dropout(self.out(attended.transpose(1, 2).flatten(2)))  # (C, L, D)
        return z + self.dropout(self.network(self.norm2(z)))


@dataclass(frozen=True, config=ConfigDict(strict=True))
class CaptionOptions:
    """The options of a `CaptionTransformer`."""

    layers: Whole = 2
    """How many blocks follow each other. 0: each word is projected by itself."""
    heads: Count = 8
    """Attentions side by side in each block; they divide D."""
    hidden: Count | None = None
    """Width of each block's hidden layer; None: 2 D."""
    longest: Count = 48
    """How many words of a caption are read, the marks of its start and end among them, and how many positions
    there are."""
    positions: bool = True
    """Whether words carry their positions."""
    left_padding: bool = True
    """Whether a caption starts at a random position in training."""
    drop: Share = 0.1
    """The share that the blocks leave out in training."""
    word_drop: Share = 0.0
    """The share of the words' vectors that is left out in training."""
    printed_residual: bool = False
    """See `reasoning.transformer.Block`; for all blocks but the first, which adds nothing."""


class CaptionTransformer(WordEncoder):
    """Word vectors with learned positions, read by a Transformer.

    Positions tell "blue sky and green grass" from "green sky and blue grass"; without them a caption is a set
    of words. In training, each caption starts at a random position, as far as the longest of its batch leaves
    room: so every position is trained, and the end of a caption does not give its length away. This is
    the same as random padding in front, since attention sees a word's position and not its place in memory.
    Give captions with their words first: one that is padded in front begins at a later position.

    Args:
        vocabulary_size, word_dim, vectors: as for `WordEncoder`.
        dim: width D of the joint space.
        **options: as `CaptionOptions`.

    Source: Yan 2019 (thesis), sections 2.3 and 3.3: two layers, 300-dimensional fastText vectors, 48 words.
    """

    Options = CaptionOptions

    @checked
    def __init__(
        self,
        vocabulary_size: Count,
        word_dim: Count = 300,
        dim: Count = 1024,
        vectors: Tensor | None = None,
        **options: Any,
    ) -> None:
        super().__init__(vocabulary_size, word_dim, vectors)
        of = CaptionOptions(**options)
        check_heads(of.heads, dim)
        self.longest, self.left_padding, self.word_drop = of.longest, of.left_padding, of.word_drop
        self.positions = learned(of.longest, word_dim) if of.positions else None  # (48, W)
        self.project = None if of.layers else projection(word_dim, dim)
        sizes = dim, of.heads, of.hidden or 2 * dim, of.drop
        self.blocks = nn.ModuleList(
            Block(*sizes, printed_residual=of.printed_residual) if row else WideningBlock(word_dim, *sizes)
            for row in range(of.layers)
        )

    @checked
    def forward(self, tokens: Tokens, mask: WordMask = None) -> tuple[Tensor, Tensor | None]:
        """Encode captions (C, L), or the first `longest` words of each."""
        tokens = tokens[:, : self.longest]
        mask = None if mask is None else mask[:, : self.longest]
        words = dropout(self.embedding(tokens), self.word_drop, self.training)  # (C, L, W)
        if self.positions is not None:
            words = words + self.positions[self._places(tokens, mask)]
        if self.project is not None:
            return self.project(words), mask
        for block in self.blocks:
            words = block(words, mask)
        return words, mask  # (C, L, D)

    def _places(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """Number the positions of words, (C, L), each caption from a start of its own in training."""
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        if mask is None or not self.training or not self.left_padding:
            return places
        lengths = mask.sum(1, keepdim=True)  # (C, 1)
        room = lengths.amax() - lengths
        start = (torch.rand(room.shape, device=room.device) * (room + 1)).long().minimum(room)  # (C, 1)
        return (start + places).clamp(max=self.longest - 1)  # only padding can come to lie beyond the last
