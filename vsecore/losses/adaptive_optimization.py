"""AdOpt: the number of negatives adapts to the state of training."""

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from vsecore.arguments import Count, NotNegative, Positive, checked
from vsecore.losses.pairs import Positives, Scores, check_pairs
from vsecore.losses.step import Loss, Step

Rule = Literal["released", "printed"]


@checked
def alignment(scores: Scores, positives: Positives = None) -> Tensor:
    """How close matching pairs are: their mean similarity.

    About 0 in a random space, near 1 in a trained one.

    Source: Zhang et al. 2022 (2AD), section 3.3, after Wang and Isola 2020.
    """
    scores, positives = check_pairs(scores, positives)
    return torch.where(positives, scores, 0).sum() / positives.sum()


@checked
def uniformity(scores: Scores, rule: Rule = "released", positives: Positives = None) -> Tensor:
    """How evenly the vectors fill the sphere, by one of two formulas that disagree.

    "printed": log of the mean of e^s over all pairs. 0 if all similarities are 0, and higher when the vectors
    are *closer* together. "released": the mean of e^-s over all pairs, with s = 0 for positive pairs. 1 if
    all similarities are 0, and higher when the negatives are further apart.

    Args:
        scores: cosine similarities, (B, C).
        rule: the paper's "printed" formula or that of its "released" code.
        positives: bool, (B, C), True where picture and caption belong together; the diagonal if None.

    Returns:
        γ_uniform, a scalar.

    Source: Zhang et al. 2022 (2AD), section 3.3, after Wang and Isola 2020; and the released code.
    """
    scores, positives = check_pairs(scores, positives)
    if rule == "printed":
        return scores.exp().mean().log()
    return torch.where(positives, 0, scores).neg().exp().mean()


def adopt_k(scores: Tensor, rule: Rule = "released", positives: Tensor | None = None) -> int:
    """How many negatives each query of this batch should learn from: many at first, few in the end.

    With B the batch size and γ the alignment plus the uniformity of the rule:

    - "printed": B·cos(γ·π/4), rounded down;
    - "released": B·cos(γ^1.25), rounded down, plus 1;

    and both at least 1 and at most B - 1. They differ. In a batch of 128 that is well trained and well spread
    (alignment 0.94, printed uniformity 0.03) the printed rule keeps 92 negatives, the released rule 1. Only
    the released rule fits the fall to 4 or 5 negatives that the paper plots.

    Args:
        scores: cosine similarities, (B, C). If pictures have several captions each, B is the smaller side.
        rule: "released" or "printed".
        positives: bool, (B, C), True where picture and caption belong together; the diagonal if None.

    Returns:
        K, from 1 to B - 1 (1 if B is 1). No gradient flows through it. Scores that are not finite give 1: the
        loss will show them.

    Example:
        >>> adopt_k(torch.zeros(128, 128)), adopt_k(torch.zeros(128, 128), rule="printed")
        (70, 127)

    Source: Zhang et al. 2022 (2AD), eq. 6, and the released code.
    """
    return int(negatives_kept(scores, rule, positives))


def negatives_kept(scores: Scores, rule: Rule = "released", positives: Positives = None) -> Tensor:
    """`adopt_k` as a tensor on the scores' device, so that nothing waits for a GPU.

    Returns:
        K, int64, a scalar.
    """
    with torch.no_grad():
        wide = torch.float32 if scores.device.type == "mps" else torch.float64  # which a Mac's GPU lacks
        gamma = (alignment(scores, positives) + uniformity(scores, rule, positives)).to(wide)
        batch = min(scores.shape)
        if rule == "printed":
            wanted = (batch * (gamma * math.pi / 4).cos()).floor()
        else:
            # A number below 0 has no such power; it means that nothing has been learned yet.
            wanted = (batch * (gamma.clamp(min=0) ** 1.25).cos()).floor() + 1
        return wanted.nan_to_num(nan=1).clamp(max=batch - 1).clamp(min=1).long()


@checked
def adopt(
    scores: Scores,
    temperature: Positive = 0.05,
    rule: Rule = "released",
    positive_in_denominator: bool = True,
    margin: NotNegative = 0.0,
    positives: Positives = None,
    negatives: Count | None = None,
) -> Tensor:
    """Contrast each pair with its K hardest negatives, where the batch itself sets K.

    Between `triplet` on the hardest negative (K = 1) and `info_nce` (all of them): early in training a model
    learns from most of its batch, later from what it still confuses. See `adopt_k`.

    Pairs that belong together are never each other's negatives. The released code hides the positive by
    setting its score to 0 and then sorts: if fewer than K negatives score above 0, the positive is counted
    among them.

    Args:
        scores: cosine similarities, (B, C).
        temperature: > 0. The lower, the more the hardest negatives decide.
        rule: how K is found, "released" or "printed".
        positive_in_denominator: add the positive to the denominator, as the released code does. The printed
            formula leaves it out, and then the loss does not stop at 0: it falls as long as positives and
            negatives can be pushed apart.
        margin: added to the negatives' scores, >= 0; `AdOpt` adds 0.2, as the released code does.
        positives: bool, (B, C), True where picture and caption belong together; the diagonal if None.
        negatives: a fixed K, at least 1, instead of the rule; the released code has such a constant too. If
            more are asked for than exist, all are used.

    Returns:
        The loss, a scalar: both directions added, averaged over the positive pairs. A pair without any
        negative adds 0. The released code takes half of the sum.

    Source: Zhang et al. 2022 (2AD), section 3.3, and the released code.
    """
    kept = negatives_kept(scores, rule, positives) if negatives is None else negatives
    scores, positives = check_pairs(scores, positives)
    others = torch.where(positives, -torch.inf, scores)  # (B, C)
    cost = torch.zeros_like(scores)
    for dim in (1, 0):  # the captions of each picture, then the pictures of each caption
        place = torch.arange(others.shape[dim], device=others.device).unsqueeze(1 - dim)  # (1, C) or (B, 1)
        hardest = torch.where(place < kept, others.sort(dim, descending=True).values, -torch.inf)  # (B, C)
        wrong = ((hardest + margin) / temperature).logsumexp(dim, keepdim=True)  # (B, 1) or (1, C)
        gap = scores / temperature - wrong  # (B, C)   log of e^s⁺ over the sum of the negatives
        if positive_in_denominator:
            gap = logsigmoid(gap)
        cost = cost - torch.where(wrong == -torch.inf, 0, gap)
    return torch.where(positives, cost, 0).sum() / positives.sum()


class AdOpt(Loss):
    """`adopt` of a step, with its options and `siblings_are_negatives`, for which see `Step.partners`."""

    @checked
    def __init__(
        self,
        temperature: Positive = 0.05,
        rule: Rule = "released",
        margin: NotNegative = 0.2,
        negatives: Count | None = None,
        positive_in_denominator: bool = True,
        siblings_are_negatives: bool = False,
    ) -> None:
        super().__init__()
        self.options: dict[str, Any] = {"temperature": temperature, "rule": rule, "margin": margin}
        self.options |= {"negatives": negatives, "positive_in_denominator": positive_in_denominator}
        self.siblings_are_negatives = siblings_are_negatives

    def forward(self, step: Step) -> Tensor:
        return adopt(step.scores, positives=step.partners(self.siblings_are_negatives), **self.options)
