"""Losses with negatives from the whole training set: a pair must beat those too, not only its batch's.

Around one pair (I, T), seven similarities matter. S = s(I, T) is its own. T̂ and Î are the hardest caption and
picture of the batch, "online"; T_o and I_o are drawn from the hardest of the whole training set, "offline".
T_o has a picture of its own, I(T_o), and I_o a caption, T(I_o): they make two more pairs that do not belong
together, and that share nothing with (I, T). (Where short lists leave no choice they do belong together, and
count as none.) The functions take these similarities in the order of `Similarities`, (B,) each, and return
the sum over the batch, a scalar; a negative of -inf says that there is none, and adds 0. The classes find the
similarities in a step.

Source: Chen, Deng and Luo 2020 (AOQ), sections 3.2 and 3.3.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import torch
from torch import Tensor

from vsecore.arguments import NotNegative, Positive, Shape, Whole, checked
from vsecore.losses.hinge import triplet
from vsecore.losses.step import Loss, Step
from vsecore.masking import widened

Weights = Literal["gradient", "detached", "clamped"]
Against = Literal["offline", "positive"]
Row = Annotated[Tensor, Shape("B")]


@checked
def offline_triplet(
    positive: Row,
    online_text: Row,
    online_image: Row,
    offline_text: Row,
    offline_image: Row,
    margin: NotNegative = 0.2,
    offline_margin: NotNegative = 0.0,
) -> Tensor:
    """Four hinges for each pair: it must beat its hardest online negatives, and its offline ones.

    Offline negatives are so close that they get a smaller margin.

    Args:
        positive: S = s(I, T) of each pair, (B,).
        online_text: s(I, T̂), (B,).
        online_image: s(Î, T), (B,).
        offline_text: s(I, T_o), (B,).
        offline_image: s(I_o, T), (B,).
        margin: γ1, by how much a pair must beat its online negatives, >= 0.
        offline_margin: γ2, by how much its offline ones, >= 0.

    Source: Chen, Deng and Luo 2020 (AOQ), equation 3.
    """
    online = _hinges(positive, [online_text, online_image], margin)
    return (online + _hinges(positive, [offline_text, offline_image], offline_margin)).sum()


@checked
def offline_quintuplet(
    positive: Row,
    online_text: Row,
    online_image: Row,
    offline_text: Row,
    offline_image: Row,
    offline_pair: Row,
    swapped_pair: Row,
    margin: NotNegative = 0.2,
    offline_margin: NotNegative = 0.0,
) -> Tensor:
    """Six hinges for each pair: as `offline_triplet`, and it must beat two pairs that share nothing with it.

    Those are `offline_pair`, s(I_o, T_o), and `swapped_pair`, s(I(T_o), T(I_o)), (B,) each, by
    `offline_margin`.

    Source: Chen, Deng and Luo 2020 (AOQ), equation 4.
    """
    online = _hinges(positive, [online_text, online_image], margin)
    offline = [offline_text, offline_image, offline_pair, swapped_pair]
    return (online + _hinges(positive, offline, offline_margin)).sum()


@checked
def adaptive_offline_quintuplet(
    positive: Row,
    online_text: Row,
    online_image: Row,
    offline_text: Row,
    offline_image: Row,
    offline_pair: Row,
    swapped_pair: Row,
    margin: NotNegative = 0.2,
    offline_margin: NotNegative = 0.0,
    beta: NotNegative = 1.5,
    alpha: Positive = 0.3,
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

    `beta` is the weight where the online and the offline negative are equally hard, `alpha` the distance
    between them that changes the weight by one. With `weights` "gradient" the weights are learned through, as
    published; "detached" makes them constants, "clamped" keeps them from falling below 0. `against` says what
    the online negative is compared with: "offline", the negative, or "positive", the pair itself (the paper's
    ablation "w/o OfflineAdap"). The other arguments are those of `offline_quintuplet`.

    Source: Chen, Deng and Luo 2020 (AOQ), equations 5 and 6.
    """
    total = _hinges(positive, [offline_text, offline_image, offline_pair, swapped_pair], offline_margin)
    own = widened(positive)
    for online, offline in (
        (widened(online_text), widened(offline_text)),
        (widened(online_image), widened(offline_image)),
    ):
        there = ~torch.isneginf(online) & ~torch.isneginf(offline)  # else there is nothing to weigh
        weight = beta - ((offline if against == "offline" else own) - online) / alpha  # (B,)
        if weights == "detached":
            weight = weight.detach()
        elif weights == "clamped":
            weight = weight.clamp(min=0)
        weight = torch.where(there, weight, beta)
        total = total + weight * _hinges(own, [online], margin)
    return total.sum()


def _hinges(positive: Tensor, negatives: list[Tensor], margin: float) -> Tensor:
    """Add up, for each pair, by how much it misses its margin over each of its negatives: (B,)."""
    own = widened(positive)
    return torch.stack([(margin - own + widened(negative)).relu() for negative in negatives]).sum(0)


class Similarities(NamedTuple):
    """The seven similarities of each pair of a batch, (B,) each; -inf where there is no such negative."""

    positive: Tensor
    online_text: Tensor
    online_image: Tensor
    offline_text: Tensor
    offline_image: Tensor
    offline_pair: Tensor
    swapped_pair: Tensor

    @classmethod
    def of(cls, step: Step) -> Similarities:
        """Compute those of a step; captions of one picture are never its negatives."""
        if len(step.offline) != 2:
            raise ValueError(
                "the batch has no offline negatives: mine them with a trained model (vse mine RUN --out "
                "NEGATIVES) and give them to the training (vse train ... --negatives NEGATIVES; in Python, "
                "negatives=...)"
            )
        negatives = _negatives(step)  # (B, B)
        (pictures_of_texts, texts), (pictures, texts_of_pictures) = step.offline
        found = cls(
            positive=step.scores.diagonal(),
            online_text=negatives.amax(1),
            online_image=negatives.amax(0),
            offline_text=step.similarity.pairs(step.v, texts),
            offline_image=step.similarity.pairs(pictures, step.t),
            offline_pair=step.similarity.pairs(pictures, texts),
            swapped_pair=step.similarity.pairs(pictures_of_texts, texts_of_pictures),
        )
        if (apart := step.offline_apart) is None:
            return found
        pair, swapped = (torch.where(apart, scores, -torch.inf) for scores in found[5:])
        return found._replace(offline_pair=pair, swapped_pair=swapped)


def online_pairs(step: Step) -> tuple[Tensor, Tensor]:
    """Compute s(Î, T̂) and s(I(T̂), T(Î)) of each pair, (B,) each: pairs without common elements.

    Both are -inf where T̂ and Î belong together, or where there is no negative. Raises as `Similarities.of`.
    """
    negatives = _negatives(step)  # (B, B)
    text, picture = negatives.argmax(1), negatives.argmax(0)  # (B,)   whose caption T̂ is, whose picture Î is
    return negatives[picture, text], negatives[text, picture]


def _negatives(step: Step) -> Tensor:
    """The scores of a batch of pairs, with -inf where a picture and a caption belong together: (B, B)."""
    step.pairs("offline negatives belong to pairs")
    return torch.where(step.positives, -torch.inf, step.scores)


class OfflineTriplet(Loss):
    """`offline_triplet` of a step, with its two margins.

    Args:
        warmup_epochs: how many epochs learn by `triplet` from all negatives of the batch first, as in
            `Triplet`. The paper has none.
        online: False: only the offline terms (the paper's ablation "OnlyOffline").

    Source: Chen, Deng and Luo 2020 (AOQ), equation 3 and table 3.
    """

    reads_offline = True

    @checked
    def __init__(
        self,
        margin: NotNegative = 0.2,
        offline_margin: NotNegative = 0.0,
        warmup_epochs: Whole = 1,
        online: bool = True,
    ) -> None:
        super().__init__()
        self.options: dict[str, Any] = {"margin": margin, "offline_margin": offline_margin}
        self.warmup_epochs = warmup_epochs
        self.online = online

    def forward(self, step: Step) -> Tensor:
        """Return the loss, a scalar; raise a ValueError if the step has no offline negatives."""
        similarities = Similarities.of(step)
        if step.epoch < self.warmup_epochs:
            return triplet(step.scores, self.options["margin"], hardest=False, positives=step.positives)
        if not self.online:
            none = torch.full_like(similarities.positive, -torch.inf)
            similarities = similarities._replace(online_text=none, online_image=none)
        return self.loss_of(similarities, step)

    def loss_of(self, similarities: Similarities, step: Step) -> Tensor:
        """Return the loss of seven similarities after the warm-up, a scalar."""
        return offline_triplet(*similarities[:5], **self.options)


class OfflineQuintuplet(OfflineTriplet):
    """`offline_quintuplet` of a step, with the options of `OfflineTriplet` and one more.

    Args:
        online_quintuplet: make the two pairs without common elements of the batch's hardest negatives
            (the paper's ablation "OnlineQuin"). Where these belong together, there is no such pair.

    Source: Chen, Deng and Luo 2020 (AOQ), equation 4 and table 3.
    """

    Options = OfflineTriplet

    @checked
    def __init__(self, online_quintuplet: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.online_quintuplet = online_quintuplet

    def loss_of(self, similarities: Similarities, step: Step) -> Tensor:
        if self.online_quintuplet:
            pair, swapped = online_pairs(step)
            similarities = similarities._replace(offline_pair=pair, swapped_pair=swapped)
        return offline_quintuplet(*similarities, **self.options)


class AdaptiveOfflineQuintuplet(OfflineTriplet):
    """`adaptive_offline_quintuplet` of a step, with its options and those of `OfflineTriplet`.

    Source: Chen, Deng and Luo 2020 (AOQ), equation 5 and table 3.
    """

    Options = OfflineTriplet

    @checked
    def __init__(
        self,
        beta: NotNegative = 1.5,
        alpha: Positive = 0.3,
        weights: Weights = "gradient",
        against: Against = "offline",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.options |= {"beta": beta, "alpha": alpha, "weights": weights, "against": against}

    def loss_of(self, similarities: Similarities, step: Step) -> Tensor:
        return adaptive_offline_quintuplet(*similarities, **self.options)
