"""Contrastive losses: tell a pair from its negatives by a softmax."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from vsecore.losses.positives import check_pairs, own_pairs
from vsecore.losses.step import Step


def info_nce(scores: Tensor, temperature: float = 0.05, positives: Tensor | None = None) -> Tensor:
    """Cross-entropy of finding each caption from its picture and each picture from its caption.

    Every negative counts, and harder ones count more; unlike `triplet` it is never satisfied. If a picture
    has several captions, it looks for one of them at a time, and its other captions are left out of that
    softmax.

    Args:
        scores: similarities, (B, C).
        temperature: > 0. The lower, the more the hardest negatives decide.
        positives: bool, (B, C), True where picture and caption belong together; the diagonal if None.

    Returns:
        The loss, a scalar: the mean over the positive pairs and over both directions. A pair without any
        negative adds 0.

    Raises:
        ValueError: scores or positives have a wrong shape or type, a picture or caption has no positive, or
            temperature <= 0.

    Source: van den Oord et al. 2018; both directions as in Radford et al. 2021 (CLIP) and Bleeker et al.
    2023.
    """
    if not (temperature > 0 and math.isfinite(temperature)):
        raise ValueError(f"temperature must be a number > 0, got {temperature}")
    scores, positives = check_pairs(scores, positives)
    logits = scores / temperature  # (B, C)
    # -log(e^s / (e^s + sum over negatives)) = -logsigmoid(s - log-sum-exp over negatives)
    negatives = torch.where(positives, -torch.inf, logits)  # (B, C)
    to_captions = -logsigmoid(logits - negatives.logsumexp(1, keepdim=True))  # (B, C)
    to_pictures = -logsigmoid(logits - negatives.logsumexp(0, keepdim=True))  # (B, C)
    return torch.where(positives, to_captions + to_pictures, 0).sum() / (2 * positives.sum())


class InfoNCE(nn.Module):
    """`info_nce` of a step.

    Args:
        temperature: > 0. The lower, the more the hardest negatives decide.
        siblings_are_negatives: treat other captions of the same picture as negatives.

    Raises:
        ValueError: temperature <= 0.
    """

    def __init__(self, temperature: float = 0.05, siblings_are_negatives: bool = False) -> None:
        super().__init__()
        if not (temperature > 0 and math.isfinite(temperature)):
            raise ValueError(f"temperature must be a number > 0, got {temperature}")
        self.temperature = temperature
        self.siblings_are_negatives = siblings_are_negatives

    def forward(self, step: Step) -> Tensor:
        """The loss of a step, a scalar."""
        positives = own_pairs(step) if self.siblings_are_negatives else step.positives
        return info_nce(step.scores, self.temperature, positives)


class ScaledInfoNCE(nn.Module):
    """`info_nce` of a step with a learned temperature: scores are multiplied by a scale that is trained.

    The scale is kept as its logarithm, so that it stays positive, and is used up to `most` only.

    Args:
        scale: the inverse of the temperature at the start; None: that of the pretrained towers, or 1 / 0.07.
        most: the largest scale that is used.
        siblings_are_negatives: treat other captions of the same picture as negatives.
        pretrained_scale: the scale that pretrained towers were trained with, if they have one.

    Raises:
        ValueError: a scale is not above 0, or the first one is larger than `most`.

    Source: Radford et al. 2021 (CLIP), section 2.3 and 2.5: 0.07 at the start, and at most 100.
    """

    def __init__(
        self,
        scale: float | None = None,
        most: float = 100.0,
        siblings_are_negatives: bool = False,
        pretrained_scale: float | None = None,
    ) -> None:
        super().__init__()
        first = next(one for one in (scale, pretrained_scale, 1 / 0.07) if one is not None)
        # Published weights are rounded, so theirs may be a little above what they were kept below.
        if not 0 < first <= 1.001 * most < math.inf:
            raise ValueError(f"scale must be a number above 0 and at most {most} (most), got {first}")
        self.log_scale = nn.Parameter(torch.tensor(math.log(first)))
        self.most = most
        self.siblings_are_negatives = siblings_are_negatives

    def forward(self, step: Step) -> Tensor:
        """The loss of a step, a scalar."""
        positives = own_pairs(step) if self.siblings_are_negatives else step.positives
        scale = self.log_scale.clamp(max=math.log(self.most)).exp()
        return info_nce(scale * step.scores, 1.0, positives)
