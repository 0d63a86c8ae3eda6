"""Contrastive losses: tell a pair from its negatives by a softmax over the batch, or each pair by itself."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from vsecore.arguments import Finite, Positive, checked
from vsecore.losses.pairs import Positives, Scores, check_pairs
from vsecore.losses.step import Loss, Step


@checked
def info_nce(scores: Scores, temperature: Positive = 0.05, positives: Positives = None) -> Tensor:
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

    Source: van den Oord et al. 2018; both directions as in Radford et al. 2021 (CLIP) and Bleeker et al.
    2023.
    """
    scores, positives = check_pairs(scores, positives)
    logits = scores / temperature  # (B, C)
    # -log(e^s / (e^s + sum over negatives)) = -logsigmoid(s - log-sum-exp over negatives)
    negatives = torch.where(positives, -torch.inf, logits)  # (B, C)
    to_captions = -logsigmoid(logits - negatives.logsumexp(1, keepdim=True))  # (B, C)
    to_pictures = -logsigmoid(logits - negatives.logsumexp(0, keepdim=True))  # (B, C)
    return torch.where(positives, to_captions + to_pictures, 0).sum() / (2 * positives.sum())


class InfoNCE(Loss):
    """`info_nce` of a step; for `siblings_are_negatives` see `Step.partners`."""

    @checked
    def __init__(self, temperature: Positive = 0.05, siblings_are_negatives: bool = False) -> None:
        super().__init__()
        self.temperature = temperature
        self.siblings_are_negatives = siblings_are_negatives

    def forward(self, step: Step) -> Tensor:
        return info_nce(step.scores, self.temperature, step.partners(self.siblings_are_negatives))


class ScaledInfoNCE(Loss):
    """`info_nce` of a step with a learned temperature: scores are multiplied by a scale that is trained.

    The scale is kept as its logarithm, so that it stays positive, and is brought back to `most` where it has
    passed it.

    Args:
        scale: the inverse of the temperature at the start; None: that of the pretrained towers, or 1 / 0.07.
        most: the largest scale.
        siblings_are_negatives: see `Step.partners`.
        pretrained_scale: the scale that pretrained towers were trained with, if they have one.

    Source: Radford et al. 2021 (CLIP), section 2.3 and 2.5: 0.07 at the start, and at most 100.
    """

    @checked
    def __init__(
        self,
        scale: Positive | None = None,
        most: Positive = 100.0,
        siblings_are_negatives: bool = False,
        pretrained_scale: Positive | None = None,
    ) -> None:
        super().__init__()
        first = scale or pretrained_scale or 1 / 0.07
        if first > 1.001 * most:  # published weights are rounded, so theirs may be a little above their limit
            raise ValueError(f"scale is {first}: it must be at most {most} (most)")
        self.log_scale = nn.Parameter(torch.tensor(math.log(first)))
        self.most = most
        self.siblings_are_negatives = siblings_are_negatives

    def forward(self, step: Step) -> Tensor:
        with torch.no_grad():  # the weight itself: clamped in the graph, it would get no gradient, and stay
            self.log_scale.clamp_(max=math.log(self.most))
        scores = self.log_scale.exp() * step.scores
        return info_nce(scores, 1.0, step.partners(self.siblings_are_negatives))


class SigmoidLoss(Loss):
    """Binary cross-entropy of telling for each pair, by itself, whether picture and caption belong together.

    Unlike `info_nce` it needs no softmax over the batch, so a pair's term does not depend on the other pairs.
    The loss is the sum over all pairs, divided by the number of captions. Almost all pairs are negatives; the
    bias starts low so that they do not decide the first steps. Scale and bias are trained.

    Args:
        scale: t, what scores are multiplied by, at the start; None: that of the pretrained towers, or 10.
        bias: b, what is added then, at the start; None: that of the pretrained towers, or -10.
        siblings_are_negatives, pretrained_scale: as for `ScaledInfoNCE`.
        pretrained_bias: the pretrained towers' bias, if they have one.

    Source: Zhai et al. 2023 (SigLIP), section 3.2, the equation of the sigmoid loss, and algorithm 1; there a
    batch has one caption of each picture.
    """

    @checked
    def __init__(
        self,
        scale: Positive | None = None,
        bias: Finite | None = None,
        siblings_are_negatives: bool = False,
        pretrained_scale: Positive | None = None,
        pretrained_bias: Finite | None = None,
    ) -> None:
        super().__init__()
        first = next(b for b in (bias, pretrained_bias, -10.0) if b is not None)  # 0 is a bias too
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale or pretrained_scale or 10.0)))  # t'
        self.bias = nn.Parameter(torch.tensor(float(first)))
        self.siblings_are_negatives = siblings_are_negatives

    def forward(self, step: Step) -> Tensor:
        scores, positives = check_pairs(step.scores, step.partners(self.siblings_are_negatives))
        signs = torch.where(positives, 1.0, -1.0).to(scores.dtype)  # (B, C)   z_ij
        logits = self.log_scale.exp() * scores + self.bias
        return -logsigmoid(signs * logits).sum() / scores.shape[1]  # eq., over i and j
