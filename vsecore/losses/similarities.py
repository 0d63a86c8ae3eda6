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
    """Compute the seven similarities of each pair of a step.

    A pair is a caption with its own picture, so in a batch of pictures with all their captions each picture
    is in several. Captions of one picture are never its negatives.

    Raises:
        ValueError: the step has no offline negatives.
    """
    if len(step.offline) != 2:
        raise ValueError(
            "the batch has no offline negatives: mine them with a trained model (vse mine RUN --out "
            "NEGATIVES) and give them to the training (vse train ... --negatives NEGATIVES; in Python, "
            "negatives=...)"
        )
    rows, scores = _rows(step), floating(step.scores)
    (pictures_of_texts, texts), (pictures, texts_of_pictures) = step.offline
    # In a batch of pairs, row and caption are the same already.
    v = step.v if len(step.scores) == len(rows) else step.v[rows]
    negatives = torch.where(step.positives, -torch.inf, scores)  # (B, C)
    compare = cast(Callable[[Embedding, Embedding], Tensor], step.similarity.pairs)
    return Similarities(
        positive=scores.gather(0, rows[None])[0],
        online_text=negatives.amax(1)[rows],
        online_image=negatives.amax(0),
        offline_text=compare(v, texts),
        offline_image=compare(pictures, step.t),
        offline_pair=compare(pictures, texts),
        swapped_pair=compare(pictures_of_texts, texts_of_pictures),
    )


def online_pairs(step: Step) -> tuple[Tensor, Tensor]:
    """Compute s(Î, T̂) and s(I(T̂), T(Î)) of each pair: those without common elements, made of the batch.

    T(Î) is the first caption of Î in the batch.

    Returns:
        Both, (C,) each; -inf where T̂ and Î belong together, or where there is no negative.
    """
    rows, scores = _rows(step), floating(step.scores)
    own_caption = step.positives.to(torch.uint8).argmax(1)  # (B,)   the first caption of each picture
    negatives = torch.where(step.positives, -torch.inf, scores)  # (B, C)
    alone = torch.isneginf(negatives.amax(1)[rows]) | torch.isneginf(negatives.amax(0))  # (C,)
    text, picture = negatives.argmax(1)[rows], negatives.argmax(0)  # (C,)   T̂ and Î

    def at(row: Tensor, column: Tensor) -> Tensor:
        place = row * scores.shape[1] + column
        return torch.where(alone, -torch.inf, negatives.flatten().gather(0, place))

    return at(picture, text), at(rows[text], own_caption[picture])


def _rows(step: Step) -> Tensor:
    """Return the row of each caption's own picture, (C,)."""
    pictures, captions = step.scores.shape
    if pictures == captions:  # pairs, or pictures with one caption each
        return torch.arange(captions, device=step.scores.device)
    return step.positives.to(torch.uint8).argmax(0)


def floating(scores: Tensor) -> Tensor:
    """Return scores in float32 at least: a bfloat16 sum over a batch keeps two digits."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
