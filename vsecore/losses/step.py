"""What a loss can read in one step of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from vsecore.embedding import Embedding

if TYPE_CHECKING:
    from vsecore.data.batches import Batch


@dataclass
class Step:
    """One step of training: the joint batch of all processes, embedded and compared.

    A loss module is called as `loss(step)` and returns a scalar. It may hold parameters, which are trained
    with the model, and state in buffers, which is saved and resumed with it. The embeddings hold what the
    similarity reads, and what any loss names in its attribute `reads`: "vectors", "elements", or a name in
    `Embedding.extra`; a loss that reads the words themselves names "tokens". Only that has to travel where
    several processes share a batch.

    Attributes:
        scores: similarities of every picture with every caption, (B, C), float32.
        positives: bool (B, C), True where picture and caption belong together.
        v: the B pictures.
        t: the C captions.
        offline: pictures and captions of each small batch in `Batch.offline`; row by row they belong to the
            pairs of this one. Empty if the batch has none.
        targets: what to predict for each caption, (C, T); None if the data has no targets.
        batch: this process's share of the batch, before the encoders.
        similarity: the module that made the scores.
        epoch: counted from 0.
        tokens: the words of the C captions as numbers, (C, L); None if no loss reads them.
        token_mask: bool (C, L), True where a word is real; None likewise.
    """

    scores: Tensor
    positives: Tensor
    v: Embedding
    t: Embedding
    offline: tuple[tuple[Embedding, Embedding], ...]
    targets: Tensor | None
    batch: Batch
    similarity: nn.Module
    epoch: int
    tokens: Tensor | None = None
    token_mask: Tensor | None = None
