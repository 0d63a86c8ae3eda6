"""A model and its losses as one module: prepared, optimised, saved and resumed together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vsecore.data.batches import Batch
from vsecore.data.splits import Dataset
from vsecore.data.words import Tokenizer
from vsecore.embedding import Embedding
from vsecore.losses import LOSSES, Step
from vsecore.normalisation import BATCH_NORMS
from vsecore.processes import gather
from vsecore.recipes import Recipe
from vsecore.registry import names_read


class System(nn.Module):
    """Everything that has weights or state: two towers, their similarity, and the losses.

    It is built from a recipe, with new weights from torch's global generator, for what some data have:
    features of one width, and targets if a loss predicts them.
    """

    def __init__(
        self, recipe: Recipe, data: Dataset, tokenizer: Tokenizer, vectors: Tensor | None = None
    ) -> None:
        super().__init__()
        model, settings = recipe.build(data.feature_dim, tokenizer, vectors), recipe.training
        self.embed_at_a_time, self.frozen_epochs = settings.embed_at_a_time, settings.frozen_epochs
        for name, module in model.named_modules() if self.embed_at_a_time is not None else ():
            if isinstance(module, BATCH_NORMS) and not name.startswith("similarity."):  # joint
                raise ValueError(
                    f"training.embed_at_a_time is {self.embed_at_a_time}, and {name} normalises over the "
                    "batch, which must be there at once: set it to none, or choose a recipe without batch "
                    "normalisation"
                )
        context: dict[str, Any] = {"dim": recipe.dim, "vocabulary_size": len(tokenizer)}
        if data.train.targets is not None:
            context["target_dim"] = data.train.targets.shape[1]
        elif recipe.predicts_targets:
            raise ValueError(f"recipe {recipe.name!r} predicts targets, and data {data.name!r} has none")
        context["pretrained_scale"] = model.text_encoder.pretrained_scale
        context["pretrained_bias"] = model.text_encoder.pretrained_bias
        losses = {part.name: LOSSES.build(part.name, part.options, **context) for part in recipe.losses}
        self.weights = {part.name: part.weight for part in recipe.losses}
        # Without those that an encoder never trains.
        self._pretrained = [weight for weight in model.pretrained_parameters() if weight.requires_grad]
        self.model = model
        self.losses = nn.ModuleDict(losses)

    def forward(self, batch: Batch, epoch: int) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor]]:
        """Embed a batch, compare it, and compute every loss.

        Returns:
            The terms of the loss by name, each a scalar times its weight, so that they add up to what is
            minimised; and the scores of the joint batch (B, C), without gradient, and which pairs belong
            together (bool).
        """
        if self.frozen_epochs:  # a weight without a gradient is not moved, not even by weight decay
            for weight in self._pretrained:
                weight.requires_grad_(epoch >= self.frozen_epochs)
        read = set(self.model.compares).union(*(names_read(loss) for loss in self.losses.values()))
        parts = (batch, *(batch.offline or ()))
        pairs = [self.model(part, self.embed_at_a_time, read) for part in parts]
        with torch.autocast(batch.tokens.device.type, enabled=False):
            step = self._step(batch, pairs, epoch, "tokens" in read)
            terms = {name: self.weights[name] * _term(name, loss, step) for name, loss in self.losses.items()}
        return terms, (step.scores.detach(), step.positives)

    def _step(
        self, batch: Batch, pairs: list[tuple[Embedding, Embedding]], epoch: int, with_tokens: bool
    ) -> Step:
        """Join the embedded shares of all processes to one batch, with gradient."""
        shares = batch.shares or None  # captions in each process; pictures are shared evenly
        (v, t), *offline = [
            (_joint(v, None), _joint(t, shares if place == 0 else None)) for place, (v, t) in enumerate(pairs)
        ]
        rows, owners = gather(batch.picture_rows), gather(batch.owner_rows, shares)
        apart = None
        if batch.offline is not None:
            of_texts, pictures = (gather(part.picture_rows) for part in batch.offline)
            apart = of_texts != pictures
        return Step(
            scores=self.model.scores(v, t),
            positives=rows[:, None] == owners[None, :],
            v=v,
            t=t,
            offline=tuple(offline),
            targets=None if batch.targets is None else gather(batch.targets, shares),
            batch=batch,
            similarity=self.model.similarity,
            epoch=epoch,
            tokens=gather(batch.tokens, shares) if with_tokens else None,
            token_mask=gather(batch.token_mask, shares) if with_tokens else None,
            offline_apart=apart,
        )


def _term(name: str, loss: nn.Module, step: Step) -> Tensor:
    """Return the value of a loss after checking that it can be minimised."""
    try:
        term = loss(step)
    except Exception as error:
        error.add_note(
            f"in loss {name!r}, whose `reads` is {names_read(loss)}: what neither a loss nor the similarity "
            'names there, such as reads = ("elements",), is not kept of an Embedding'
        )
        raise
    if not isinstance(term, Tensor) or term.ndim:
        found = f"a tensor {tuple(term.shape)}" if isinstance(term, Tensor) else repr(term)
        raise ValueError(f"loss {name!r} returned {found}: wanted a scalar tensor")
    return term


def _joint(embedding: Embedding, shares: tuple[int, ...] | None) -> Embedding:
    """Gather the rows of all processes, in float32."""
    return embedding.float().map(lambda tensor: gather(tensor, shares))
