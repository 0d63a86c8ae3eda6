"""The similarities around each pair of a batch that losses with offline negatives compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from vsecore.embedding import Embedding
from vsecore.losses.step import Step


@dataclass(frozen=True)
class Similarities:
    """The seven similarities of each pair of a batch, (B,) each; -inf where there is no such negative."""

    positive: Tensor
    online_text: Tensor
    online_image: Tensor
    offline_text: Tensor
    offline_image: Tensor
    offline_pair: Tensor
    swapped_pair: Tensor


def similarities(step: Step) -> Similarities:
    """Compute the seven similarities of each pair of a step, whose batch must be of pairs.

    Captions of one picture are never its negatives.

    Raises:
        ValueError: the step has no offline negatives, or its batch is not of pairs.
    """
    if len(step.offline) != 2:
        raise ValueError(
            "the batch has no offline negatives: mine them with a trained model (vse mine RUN --out "
            "NEGATIVES) and give them to the training (vse train ... --negatives NEGATIVES; in Python, "
            "negatives=...)"
        )
    scores = _of_pairs(step)
    (pictures_of_texts, texts), (pictures, texts_of_pictures) = step.offline
    negatives = torch.where(step.positives, -torch.inf, scores)  # (B, B)
    compare = cast(Callable[[Embedding, Embedding], Tensor], step.similarity.pairs)
    return Similarities(
        positive=scores.diagonal(),
        online_text=negatives.amax(1),
        online_image=negatives.amax(0),
        offline_text=compare(step.v, texts),
        offline_image=compare(pictures, step.t),
        offline_pair=compare(pictures, texts),
        swapped_pair=compare(pictures_of_texts, texts_of_pictures),
    )


def online_pairs(step: Step) -> tuple[Tensor, Tensor]:
    """Compute s(Î, T̂) and s(I(T̂), T(Î)) of each pair: those without common elements, made of the batch.

    Returns:
        Both, (B,) each; -inf where T̂ and Î belong together, or where there is no negative.

    Raises:
        ValueError: the batch is not of pairs.
    """
    negatives = torch.where(step.positives, -torch.inf, _of_pairs(step))  # (B, B)
    hardest_text, text = negatives.max(1)  # (B,) each   T̂ is the caption of pair `text`
    hardest_picture, picture = negatives.max(0)  # Î is the picture of pair `picture`
    alone = torch.isneginf(hardest_text) | torch.isneginf(hardest_picture)

    def at(row: Tensor, column: Tensor) -> Tensor:
        return torch.where(alone, -torch.inf, negatives.flatten().gather(0, row * len(negatives) + column))

    return at(picture, text), at(text, picture)


def floating(scores: Tensor) -> Tensor:
    """Return scores in float32 at least: a bfloat16 sum over a batch keeps two digits."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def _of_pairs(step: Step) -> Tensor:
    pictures, captions = step.scores.shape
    if pictures != captions:
        raise ValueError(
            f"the batch has {pictures} pictures with {captions} captions: it must have one caption for each "
            'picture; set training.batches to "pairs"'
        )
    return floating(step.scores)
