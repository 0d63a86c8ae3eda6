"""Which pairs of a score matrix belong together: the question every ranking loss begins with."""

from typing import Annotated

import torch
from torch import Tensor

from vsecore.arguments import Shape
from vsecore.masking import widened

Scores = Annotated[Tensor, Shape("B C")]
"""Similarities of B pictures and C captions."""
Positives = Annotated[Tensor, Shape("B C", "bool")] | None
"""True where picture and caption belong together: in each row and column, or the diagonal if None."""


def check_pairs(scores: Scores, positives: Positives) -> tuple[Tensor, Tensor]:
    """Refuse a batch that cannot be learned from; return its scores in float32 at least, and its positives.

    Whether each row and column has a positive is checked only on a CPU: on an accelerator, every step would
    wait for the answer. There, a row or column without one adds nothing to the loss.
    """
    scores = widened(scores)
    if positives is None:
        return scores, diagonal(len(scores), scores.shape[1], scores.device)
    if positives.device.type == "cpu":
        for axis, what in ((1, "picture (row)"), (0, "caption (column)")):
            alone = (~positives.any(axis)).nonzero().flatten()
            if len(alone):
                raise ValueError(f"positives has no True in {what} {int(alone[0])}: each must have a partner")
    return scores, positives


def diagonal(pictures: int, captions: int, device: torch.device) -> Tensor:
    """Return what belongs together where nothing else is said: row by row, bool (B, B)."""
    if pictures != captions:
        raise ValueError(
            f"positives is None: it must be bool {(pictures, captions)}, as there is no diagonal of pairs"
        )
    return torch.eye(pictures, dtype=torch.bool, device=device)
