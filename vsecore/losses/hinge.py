"""The triplet loss of VSE++: a pair must beat its negatives by a margin."""

from typing import Literal

import torch
from torch import Tensor

from vsecore.arguments import NotNegative, Whole, checked
from vsecore.losses.pairs import Positives, Scores, check_pairs
from vsecore.losses.step import Loss, Step

Reduction = Literal["sum", "mean"]


@checked
def triplet(
    scores: Scores,
    margin: NotNegative = 0.2,
    hardest: bool = True,
    positives: Positives = None,
    reduction: Reduction = "sum",
) -> Tensor:
    """Hinge loss: each positive pair must score higher than its negatives, by a margin.

    A pair (picture, caption) is compared with the negatives in its picture's row and in its caption's column.
    Pairs that belong together are never each other's negatives. VSE++'s released code does count a picture's
    other captions as negatives: leave out `positives`, and everything off the diagonal is a negative.

    With `hardest` only the hardest negative of each row and column counts: better in the end, but a model
    that starts poorly may collapse to one point, where the loss of B pairs stays at 2·B·margin. For a softer
    choice among negatives, see `info_nce`.

    Args:
        scores: similarities, (B, C).
        margin: by how much a positive must win, >= 0.
        hardest: use only the hardest negative; False: sum over all.
        positives: bool, (B, C), True where picture and caption belong together; the diagonal if None.
        reduction: "sum" over the positive pairs, or their "mean".

    Returns:
        The loss, a scalar. A pair without any negative adds 0.

    Source: Faghri et al. 2018 (VSE++): the sum of hinges (all negatives) and the max of hinges (the hardest).
    """
    scores, positives = check_pairs(scores, positives)
    if hardest:
        negatives = torch.where(positives, -torch.inf, scores)  # (B, C)
        caption = negatives.amax(1, keepdim=True)  # (B, 1)   the hardest caption of each picture
        picture = negatives.amax(0, keepdim=True)  # (1, C)   the hardest picture of each caption
        cost = (margin - scores + caption).relu() + (margin - scores + picture).relu()  # (B, C)
        total = torch.where(positives, cost, 0).sum()
    else:
        total = _all(scores, margin, positives)
    return total if reduction == "sum" else total / positives.sum()


def _all(scores: Tensor, margin: float, positives: Tensor) -> Tensor:
    """Sum the hinges of all triples without holding any of the B·C² at once.

    The sum is linear in the scores until a hinge opens or closes: it is the margin of each open hinge, plus
    each score times the number of open hinges in which it stands as a negative, minus that in which it stands
    as a positive. Those numbers are the gradient too, and sorting counts them.
    """
    with torch.no_grad():
        slope = _open_hinges(scores, margin, positives) + _open_hinges(scores.T, margin, positives.T).T
        slope = slope.to(scores.dtype)  # (B, C)
        count = -torch.where(positives, slope, 0).sum()
    return margin * count + (slope * scores).sum()


def _open_hinges(scores: Tensor, margin: float, positives: Tensor) -> Tensor:
    """Count, (B, C), in how many open hinges of its row each score stands; below 0 for positives."""
    scores, positives = scores.contiguous(), positives.contiguous()
    bar = scores - margin  # (B, C)   a negative above a positive's bar costs something
    negatives = torch.where(positives, -torch.inf, scores).sort(1).values
    bars = torch.where(positives, bar, torch.inf).sort(1).values
    above = scores.shape[1] - torch.searchsorted(negatives, bar, right=True)  # negatives above each bar
    below = torch.searchsorted(bars, scores)  # bars below each score
    return torch.where(positives, -above, below)


class Triplet(Loss):
    """`triplet` on all negatives at first, and then on the hardest.

    Early in training the embeddings are close to random, so the hardest negative is hard only by accident,
    and learning from it alone can pull everything to one point. VSE++ uses the hardest from the start.

    Args:
        margin: by how much a positive must win.
        warmup_epochs: how many epochs learn from all negatives before the hardest take over.
        siblings_are_negatives: see `Step.partners`.
        reduction: "mean" as in the released codes of PVSE and of Kim et al. 2023. It matters beside other
            losses, since their weights are relative to it.

    Source: Faghri et al. 2018 (VSE++); the first epoch as in the code of Chen et al. 2021 (VSE-infinity).
    With batches of pictures and all their captions this is the loss of Kim et al. 2023, eq. 9: each pair
    against the hardest caption of another picture, and against the hardest other picture.
    """

    @checked
    def __init__(
        self,
        margin: NotNegative = 0.2,
        warmup_epochs: Whole = 1,
        siblings_are_negatives: bool = False,
        reduction: Reduction = "sum",
    ) -> None:
        super().__init__()
        self.margin = margin
        self.warmup_epochs = warmup_epochs
        self.siblings_are_negatives = siblings_are_negatives
        self.reduction: Reduction = reduction

    def forward(self, step: Step) -> Tensor:
        hardest = step.epoch >= self.warmup_epochs
        return triplet(
            step.scores, self.margin, hardest, step.partners(self.siblings_are_negatives), self.reduction
        )
