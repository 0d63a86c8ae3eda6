"""The sigmoid loss: each picture with each caption is a question of its own, answered yes or no."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from vsecore.losses.positives import check_pairs, own_pairs
from vsecore.losses.step import Step


def sigmoid_loss(
    scores: Tensor,
    scale: Tensor | float = 10.0,
    bias: Tensor | float = -10.0,
    positives: Tensor | None = None,
) -> Tensor:
    """Binary cross-entropy of telling for each pair, by itself, whether picture and caption belong together.

    Unlike `info_nce` it needs no softmax over the batch, so a pair's term does not depend on the other pairs.
    Almost all pairs are negatives; the bias starts low so that they do not decide the first steps.

    Args:
        scores: similarities, (B, C).
        scale: t in the equation, > 0: what scores are multiplied by.
        bias: b in the equation: what is added then.
        positives: bool, (B, C), True where picture and caption belong together; the diagonal if None.

    Returns:
        The loss, a scalar: the sum over all pairs, divided by the number of captions.

    Raises:
        ValueError: scores or positives have a wrong shape or type, or a picture or caption has no positive.

    Source: Zhai et al. 2023 (SigLIP), section 3.2, the equation of the sigmoid loss; there a batch has one
    caption of each picture.
    """
    scores, positives = check_pairs(scores, positives)
    signs = torch.where(positives, 1.0, -1.0).to(scores.dtype)  # (B, C)   z_ij
    return -logsigmoid(signs * (scale * scores + bias)).sum() / scores.shape[1]  # eq., over i and j


class SigmoidLoss(nn.Module):
    """`sigmoid_loss` of a step, with a scale and a bias that are trained.

    Args:
        scale: the scale at the start; None: that of the pretrained towers, or 10.
        bias: the bias at the start; None: that of the pretrained towers, or -10.
        siblings_are_negatives: treat other captions of the same picture as negatives.
        pretrained_scale: the scale that pretrained towers were trained with, if they have one.
        pretrained_bias: their bias, if they have one.

    Raises:
        ValueError: the scale is not a number above 0, or the bias not a number.

    Source: Zhai et al. 2023 (SigLIP), section 3.2 and algorithm 1.
    """

    def __init__(
        self,
        scale: float | None = None,
        bias: float | None = None,
        siblings_are_negatives: bool = False,
        pretrained_scale: float | None = None,
        pretrained_bias: float | None = None,
    ) -> None:
        super().__init__()
        first = next(one for one in (scale, pretrained_scale, 10.0) if one is not None)
        added = next(one for one in (bias, pretrained_bias, -10.0) if one is not None)
        if not 0 < first < math.inf:
            raise ValueError(f"scale must be a number > 0, got {first}")
        if not math.isfinite(added):
            raise ValueError(f"bias must be a number, got {added}")
        self.log_scale = nn.Parameter(torch.tensor(math.log(first)))  # t' in algorithm 1
        self.bias = nn.Parameter(torch.tensor(added))
        self.siblings_are_negatives = siblings_are_negatives

    def forward(self, step: Step) -> Tensor:
        """The loss of a step, a scalar."""
        positives = own_pairs(step) if self.siblings_are_negatives else step.positives
        return sigmoid_loss(step.scores, self.log_scale.exp(), self.bias, positives)
