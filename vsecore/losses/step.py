"""What a loss is, and what it can read in one step of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from vsecore.embedding import Embedding

if TYPE_CHECKING:
    from vsecore.data.batches import Batch
    from vsecore.losses.lagrange import Constraint
    from vsecore.similarity import Similarity


@dataclass
class Step:
    """One step of training: the joint batch of all processes, embedded and compared.

    Attributes:
        scores: similarities of every picture with every caption, (B, C), float32.
        positives: bool (B, C), True where picture and caption belong together.
        v: the B pictures.
        t: the C captions.
        offline: pictures and captions of each small batch in `Batch.offline`; row by row they belong to the
            pairs of this one. Empty if the batch has none.
        targets: what to predict for each caption, (C, T); None if the data has no targets.
        batch: this process's share of the batch, before the encoders.
        similarity: the `Similarity` that made the scores.
        epoch: counted from 0.
        tokens: the words of the C captions as numbers, (C, L); None if no loss reads them.
        token_mask: bool (C, L), True where a word is real; None likewise.
        offline_apart: bool (B,), False where caption and picture of the two small batches belong together
            after all, which short lists cannot avoid; None: nowhere do they.
    """

    scores: Tensor
    positives: Tensor
    v: Embedding
    t: Embedding
    offline: tuple[tuple[Embedding, Embedding], ...]
    targets: Tensor | None
    batch: Batch
    similarity: Similarity
    epoch: int
    tokens: Tensor | None = None
    token_mask: Tensor | None = None
    offline_apart: Tensor | None = None

    def partners(self, siblings_are_negatives: bool) -> Tensor:
        """Return which pairs are positive, bool (B, C), for a loss with this option.

        Args:
            siblings_are_negatives: only the pairs that the batch was made of are positive, the diagonal, as
                in VSE++'s released code; other captions of the same picture count as negatives.
        """
        if not siblings_are_negatives:
            return self.positives
        pairs = self.pairs("siblings_are_negatives is true")
        return torch.eye(pairs, dtype=torch.bool, device=self.scores.device)

    def pairs(self, why: str) -> int:
        """Return how many pairs a batch of pairs has."""
        pictures, captions = self.scores.shape
        if pictures != captions:
            raise ValueError(
                f"{why}, but the batch has {pictures} pictures with {captions} captions: wanted one caption "
                'for each picture; set training.batches to "pairs"'
            )
        return pictures

    def words(self) -> tuple[Tensor, Tensor]:
        """Return the tokens (C, L) and their mask; raise a ValueError if no loss asks for them."""
        if self.tokens is None or self.token_mask is None:
            raise ValueError('the step has no tokens: the loss must name "tokens" in its attribute `reads`')
        return self.tokens, self.token_mask


class Loss(nn.Module):
    """Base class of losses, which are called as `loss(step)` and return a scalar.

    A loss owns the defaults of its options. It may hold parameters, which are trained with the model, and
    state in buffers, which is saved and resumed with it.

    Attributes:
        reads: what it reads of the embeddings besides what the similarity reads: "vectors", "elements", a
            name in `Embedding.extra`; or "tokens", the words themselves. Nothing else has to travel where
            several processes share a batch.
        reads_offline: whether it learns from `Step.offline`.
        constraint: what turns it into a constraint, so that its multiplier can be followed; None: it is added
            like any other term.
    """

    reads: tuple[str, ...] = ()
    reads_offline: bool = False

    def __init__(self) -> None:
        super().__init__()
        self.constraint: Constraint | None = None

    def forward(self, step: Step) -> Tensor:
        """Return the loss of a step, a scalar."""
        raise NotImplementedError
