"""What a loss may look at in one step of training."""

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
    `Embedding.extra`. Only that has to travel where several processes share a batch.

    Attributes:
        scores: similarities of every picture with every caption, (B, C), float32.
        positives: bool (B, C), True where picture and caption belong together.
        v: the B pictures.
        t: the C captions.
        offline: pictures and captions of each small batch in `Batch.offline`, which belong row by row to the
            pairs of this one; empty where the batch brings none.
        targets: what is to be predicted of each caption, (C, T); None where the data has nothing.
        batch: this process's share of the batch, as it was read.
        similarity: what made the scores.
        epoch: counted from 0.
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
