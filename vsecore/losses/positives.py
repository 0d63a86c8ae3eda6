"""Which pairs of a score matrix belong together: the question every ranking loss begins with."""

from __future__ import annotations

import torch
from torch import Tensor

from vsecore.losses.step import Step


def check_pairs(scores: Tensor, positives: Tensor | None) -> tuple[Tensor, Tensor]:
    """Refuse a batch that cannot be learned from, and return its positive pairs.

    Whether each row and column has a positive is checked only on a CPU: on an accelerator, every step would
    wait for the answer. There, a row or column without one adds nothing to the loss.

    Args:
        scores: similarities, (B, C).
        positives: bool, (B, C), True where picture and caption belong together; None means the diagonal.

    Returns:
        The scores, in float32 at least (a bfloat16 sum over a batch keeps two digits), and the positives, (B,
        C).

    Raises:
        ValueError: the shapes or types are wrong, or a picture or a caption has no positive.
    """
    if scores.ndim != 2 or not scores.is_floating_point() or 0 in scores.shape:
        raise ValueError(
            f"scores must be floating point (B, C), not empty, got {scores.dtype} {tuple(scores.shape)}"
        )
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if positives is None:
        if scores.shape[0] != scores.shape[1]:
            raise ValueError(f"scores must be square if no positives are given, got {tuple(scores.shape)}")
        return scores, torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    if positives.dtype != torch.bool or positives.shape != scores.shape:
        raise ValueError(
            f"positives must be bool {tuple(scores.shape)} as scores are, "
            f"got {positives.dtype} {tuple(positives.shape)}"
        )
    if positives.device.type == "cpu":
        for axis, what in ((1, "picture (row)"), (0, "caption (column)")):
            alone = (~positives.any(axis)).nonzero().flatten()
            if len(alone):
                raise ValueError(
                    f"positives must give every {what} a partner, {what} {int(alone[0])} has none"
                )
    return scores, positives


def own_pairs(step: Step) -> Tensor:
    """The pairs that a batch was made of, bool (B, B): the diagonal.

    Raises:
        ValueError: the batch holds pictures with several captions each, so there is no diagonal.
    """
    pictures, captions = step.scores.shape
    if pictures != captions:
        raise ValueError(
            f"siblings_are_negatives is true, but a batch has {pictures} pictures with {captions} captions: "
            'wanted one caption for each picture; set training.batches to "pairs"'
        )
    return torch.eye(pictures, dtype=torch.bool, device=step.scores.device)
