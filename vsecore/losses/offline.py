"""Losses with negatives from the whole training set: a pair must beat those too, not only its batch's.

Around one pair (I, T), seven similarities matter. S = s(I, T) is its own. T̂ and Î are the hardest caption and
picture of the batch, "online"; T_o and I_o are drawn from the hardest of the whole training set, "offline".
T_o has a picture of its own, I(T_o), and I_o a caption, T(I_o): they make two more pairs that do not belong
together, and that share nothing with (I, T).

Source: Chen, Deng and Luo 2020 (AOQ), sections 3.2 and 3.3.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from vsecore.losses.similarities import Similarities, floating, online_pairs, similarities
from vsecore.losses.step import Step
from vsecore.losses.triplet import triplet

Weights = Literal["gradient", "detached", "clamped"]
Against = Literal["offline", "positive"]


def offline_triplet(
    positive: Tensor,
    online_text: Tensor,
    online_image: Tensor,
    offline_text: Tensor,
    offline_image: Tensor,
    margin: float = 0.2,
    offline_margin: float = 0.0,
) -> Tensor:
    """Four hinges for each pair: it must beat its hardest online negatives, and its offline ones.

    Offline negatives are so close that they get a smaller margin. A negative of -inf says that there is none;
    it adds 0.

    Args:
        positive: S = s(I, T) of each pair, (B,).
        online_text: s(I, T̂), (B,).
        online_image: s(Î, T), (B,).
        offline_text: s(I, T_o), (B,).
        offline_image: s(I_o, T), (B,).
        margin: γ1, by how much a pair must beat its online negatives, >= 0.
        offline_margin: γ2, by how much its offline negatives, >= 0.

    Returns:
        The loss, a scalar: the sum over the batch.

    Raises:
        ValueError: shapes or types do not fit, or a margin is out of its range.

    Source: Chen, Deng and Luo 2020 (AOQ), equation 3.
    """
    _check_margins(margin, offline_margin)
    own, *negatives = _checked(
        positive=positive,
        online_text=online_text,
        online_image=online_image,
        offline_text=offline_text,
        offline_image=offline_image,
    )
    online, offline = negatives[:2], negatives[2:]
    return (_hinges(own, online, margin) + _hinges(own, offline, offline_margin)).sum()


def offline_quintuplet(
    positive: Tensor,
    online_text: Tensor,
    online_image: Tensor,
    offline_text: Tensor,
    offline_image: Tensor,
    offline_pair: Tensor,
    swapped_pair: Tensor,
    margin: float = 0.2,
    offline_margin: float = 0.0,
) -> Tensor:
    """Six hinges for each pair: as `offline_triplet`, and it must beat two pairs that share nothing with it.

    Args:
        positive: S = s(I, T) of each pair, (B,).
        online_text: s(I, T̂), (B,).
        online_image: s(Î, T), (B,).
        offline_text: s(I, T_o), (B,).
        offline_image: s(I_o, T), (B,).
        offline_pair: s(I_o, T_o), (B,).
        swapped_pair: s(I(T_o), T(I_o)), (B,).
        margin: γ1, by how much a pair must beat its online negatives, >= 0.
        offline_margin: γ2, by how much the offline ones, >= 0.

    Returns:
        The loss, a scalar: the sum over the batch.

    Raises:
        ValueError: shapes or types do not fit, or a margin is out of its range.

    Source: Chen, Deng and Luo 2020 (AOQ), equation 4.
    """
    _check_margins(margin, offline_margin)
    own, *negatives = _checked(
        positive=positive,
        online_text=online_text,
        online_image=online_image,
        offline_text=offline_text,
        offline_image=offline_image,
        offline_pair=offline_pair,
        swapped_pair=swapped_pair,
    )
    online, offline = negatives[:2], negatives[2:]
    return (_hinges(own, online, margin) + _hinges(own, offline, offline_margin)).sum()


def adaptive_offline_quintuplet(
    positive: Tensor,
    online_text: Tensor,
    online_image: Tensor,
    offline_text: Tensor,
    offline_image: Tensor,
    offline_pair: Tensor,
    swapped_pair: Tensor,
    margin: float = 0.2,
    offline_margin: float = 0.0,
    beta: float = 1.5,
    alpha: float = 0.3,
    weights: Weights = "gradient",
    against: Against = "offline",
) -> Tensor:
    """Weigh the two online hinges of `offline_quintuplet` by how far the online negative is from the offline.

    Its first line, with â = s(I, T̂) and a = s(I, T_o), is

        w [γ1 - S + â]₊ + [γ2 - S + a]₊ + [γ2 - S + s(I_o, T_o)]₊,    w = β - (a - â)/α

    and where 1(.) is 1 if the hinge is above 0, its derivatives are

        d/dâ = 1(γ1 - S + â) · (β + (γ1 - S - a + 2â)/α)
        d/dS = -1(γ1 - S + â) · (β - (a - â)/α) - 1(γ2 - S + a) - 1(γ2 - S + s(I_o, T_o))
        d/da = -[γ1 - S + â]₊/α + 1(γ2 - S + a)

    So the further an online negative is above the mean of S and a, the harder it is pushed down. An offline
    one is pushed down less where S and â are close, or is even pulled up: it should stay between the two. The
    weight is negative where an offline negative scores more than αβ above the online one; nothing in the
    published loss prevents that.

    Args:
        positive: S = s(I, T) of each pair, (B,).
        online_text: s(I, T̂), (B,).
        online_image: s(Î, T), (B,).
        offline_text: s(I, T_o), (B,).
        offline_image: s(I_o, T), (B,).
        offline_pair: s(I_o, T_o), (B,).
        swapped_pair: s(I(T_o), T(I_o)), (B,).
        margin: γ1, by how much a pair must beat its online negatives, >= 0.
        offline_margin: γ2, by how much the offline ones, >= 0.
        beta: the weight where the online and the offline negative are equally hard, >= 0.
        alpha: the distance between them that changes the weight by one, > 0.
        weights: "gradient": the weights are learned through, as published; "detached": they are constants;
            "clamped": they never fall below 0.
        against: what the online negative is compared with: "offline", the negative, or "positive", the pair
            itself (the paper's ablation "w/o OfflineAdap").

    Returns:
        The loss, a scalar: the sum over the batch.

    Raises:
        ValueError: shapes or types do not fit, or an option is out of its range.

    Source: Chen, Deng and Luo 2020 (AOQ), equations 5 and 6.
    """
    _check_margins(margin, offline_margin)
    _check_weights(beta, alpha, weights, against)
    own, *negatives = _checked(
        positive=positive,
        online_text=online_text,
        online_image=online_image,
        offline_text=offline_text,
        offline_image=offline_image,
        offline_pair=offline_pair,
        swapped_pair=swapped_pair,
    )
    total = _hinges(own, negatives[2:], offline_margin)  # (B,)
    for online, offline in zip(negatives[:2], negatives[2:4], strict=True):
        there = ~torch.isneginf(online) & ~torch.isneginf(offline)  # else there is nothing to weigh
        weight = beta - ((offline if against == "offline" else own) - online) / alpha  # (B,)
        if weights == "detached":
            weight = weight.detach()
        elif weights == "clamped":
            weight = weight.clamp(min=0)
        weight = torch.where(there, weight, beta)
        total = total + weight * _hinges(own, [online], margin)
    return total.sum()


class OfflineTriplet(nn.Module):
    """`offline_triplet` of a step.

    Args:
        margin: by how much a pair must beat its online negatives, >= 0.
        offline_margin: by how much its offline negatives, >= 0.
        warmup_epochs: how many epochs learn by `triplet` from all negatives of the batch first, as in
            `Triplet`, >= 0. The paper has none.
        online: False: only the offline terms.

    Raises:
        ValueError: an option is out of its range.

    Source: Chen, Deng and Luo 2020 (AOQ), equation 3; the first epoch as in the code of Chen et al. 2021.
    """

    reads_offline = True

    def __init__(
        self, margin: float = 0.2, offline_margin: float = 0.0, warmup_epochs: int = 1, online: bool = True
    ) -> None:
        super().__init__()
        _check_margins(margin, offline_margin)
        if warmup_epochs < 0:
            raise ValueError(f"warmup_epochs is {warmup_epochs}: it must be at least 0")
        self.margin = margin
        self.offline_margin = offline_margin
        self.warmup_epochs = warmup_epochs
        self.online = online

    def forward(self, step: Step) -> Tensor:
        """The loss of a step, a scalar.

        Raises:
            ValueError: the step has no offline negatives.
        """
        found = similarities(step)
        if step.epoch < self.warmup_epochs:
            return triplet(step.scores, self.margin, hardest=False, positives=step.positives)
        if not self.online:
            none = torch.full_like(found.positive, -torch.inf)
            found = replace(found, online_text=none, online_image=none)
        return self.of(found, step)

    def of(self, found: Similarities, step: Step) -> Tensor:
        """The loss of seven similarities, a scalar."""
        return offline_triplet(
            found.positive,
            found.online_text,
            found.online_image,
            found.offline_text,
            found.offline_image,
            self.margin,
            self.offline_margin,
        )


class OfflineQuintuplet(OfflineTriplet):
    """`offline_quintuplet` of a step.

    Args:
        margin: by how much a pair must beat its online negatives, >= 0.
        offline_margin: by how much the offline ones, >= 0.
        warmup_epochs: how many epochs learn by `triplet` from all negatives of the batch first, >= 0.
        online: False: only the offline terms (the paper's ablation "OnlyOffline").
        online_quintuplet: make the two pairs without common elements of the batch's hardest negatives
            (the paper's ablation "OnlineQuin"). Where these belong together, there is no such pair.

    Raises:
        ValueError: an option is out of its range.

    Source: Chen, Deng and Luo 2020 (AOQ), equation 4 and table 3.
    """

    def __init__(
        self,
        margin: float = 0.2,
        offline_margin: float = 0.0,
        warmup_epochs: int = 1,
        online: bool = True,
        online_quintuplet: bool = False,
    ) -> None:
        super().__init__(margin, offline_margin, warmup_epochs, online)
        self.online_quintuplet = online_quintuplet

    def of(self, found: Similarities, step: Step) -> Tensor:
        """The loss of seven similarities, a scalar."""
        if self.online_quintuplet:
            pair, swapped = online_pairs(step)
            found = replace(found, offline_pair=pair, swapped_pair=swapped)
        return offline_quintuplet(
            **vars(found),
            margin=self.margin,
            offline_margin=self.offline_margin,
        )


class AdaptiveOfflineQuintuplet(OfflineTriplet):
    """`adaptive_offline_quintuplet` of a step.

    Args:
        margin: by how much a pair must beat its online negatives, >= 0.
        offline_margin: by how much the offline ones, >= 0.
        beta: the weight where the online and the offline negative are equally hard, >= 0.
        alpha: the distance between them that changes the weight by one, > 0.
        weights: "gradient", "detached" or "clamped", see the function.
        against: "offline", or "positive" (the paper's ablation "w/o OfflineAdap").
        warmup_epochs: how many epochs learn by `triplet` from all negatives of the batch first, >= 0.
        online: False: only the offline terms.

    Raises:
        ValueError: an option is out of its range.

    Source: Chen, Deng and Luo 2020 (AOQ), equation 5 and table 3.
    """

    def __init__(
        self,
        margin: float = 0.2,
        offline_margin: float = 0.0,
        beta: float = 1.5,
        alpha: float = 0.3,
        weights: Weights = "gradient",
        against: Against = "offline",
        warmup_epochs: int = 1,
        online: bool = True,
    ) -> None:
        super().__init__(margin, offline_margin, warmup_epochs, online)
        _check_weights(beta, alpha, weights, against)
        self.beta = beta
        self.alpha = alpha
        self.weights: Weights = weights
        self.against: Against = against

    def of(self, found: Similarities, step: Step) -> Tensor:
        """The loss of seven similarities, a scalar."""
        return adaptive_offline_quintuplet(
            **vars(found),
            margin=self.margin,
            offline_margin=self.offline_margin,
            beta=self.beta,
            alpha=self.alpha,
            weights=self.weights,
            against=self.against,
        )


def _hinges(positive: Tensor, negatives: list[Tensor], margin: float) -> Tensor:
    """Add up, for each pair, by how much it misses its margin over each of its negatives: (B,)."""
    return torch.stack([(margin - positive + negative).relu() for negative in negatives]).sum(0)


def _checked(**scores: Tensor) -> list[Tensor]:
    """Refuse what is not a vector of similarities for each pair, and return all in float32 at least."""
    size = tuple(scores["positive"].shape)
    for name, score in scores.items():
        if score.ndim != 1 or not score.is_floating_point() or tuple(score.shape) != size or size == (0,):
            wanted = "(B,), B at least 1" if name == "positive" else f"{size} as positive is"
            raise ValueError(
                f"{name} is {score.dtype} {tuple(score.shape)}: it must be floating point {wanted}"
            )
    return [floating(score) for score in scores.values()]


def _check_margins(margin: float, offline_margin: float) -> None:
    for name, value in (("margin", margin), ("offline_margin", offline_margin)):
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name} is {value}: it must be a number >= 0")


def _check_weights(beta: float, alpha: float, weights: str, against: str) -> None:
    if not (beta >= 0 and math.isfinite(beta)):
        raise ValueError(f"beta is {beta}: it must be a number >= 0")
    if not (alpha > 0 and math.isfinite(alpha)):
        raise ValueError(f"alpha is {alpha}: it must be a number > 0")
    if weights not in ("gradient", "detached", "clamped"):
        raise ValueError(f'weights is {weights!r}: it must be "gradient", "detached" or "clamped"')
    if against not in ("offline", "positive"):
        raise ValueError(f'against is {against!r}: it must be "offline" or "positive"')
