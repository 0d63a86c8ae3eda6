"""Poolers with a pool inside: sets, or Gaussians, in place of one vector; and vectors with a projection head.

Those that predict a set or a Gaussian read the elements twice: a pool inside makes the global feature, and a
module of `vsecore.sets` predicts the set from the elements and that feature. Besides the vectors they return
a dictionary, which becomes `Embedding.extra`: "slots", the set before the global feature is added, or
"log_variance".
"""

import math
from collections.abc import Callable
from typing import Any, Literal, cast

from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from vsecore.arguments import Count, Share, checked
from vsecore.masking import check_elements
from vsecore.normalisation import ElementNorm, projection
from vsecore.pooling.basic import FirstPool, LastPool, MaxPool, MeanPool
from vsecore.pooling.gpo import GPO
from vsecore.pooling.recurrent import Seq2SeqPool
from vsecore.sets import (
    PIENet,
    SetPrediction,
    SlotSetPrediction,
    TransformerSet,
    attention_heads,
    weighted_means,
)

Inner = Literal["mean", "max", "first", "last", "gpo", "seq2seq"]
"""The name of a pool inside."""
INNER_POOLS: dict[Inner, Callable[[int], nn.Module]] = {
    "mean": lambda dim: MeanPool(),
    "max": lambda dim: MaxPool(),
    "first": lambda dim: FirstPool(),
    "last": lambda dim: LastPool(),
    "gpo": lambda dim: GPO(),
    "seq2seq": Seq2SeqPool,
}


class SetPool(nn.Module):
    """A set predicted from elements and their global feature.

    Args:
        predict: a module of `vsecore.sets`, which may learn at a rate of its own (`Training.set_factor`).
        global_pool: (elements, mask) -> the global feature (B, D); None if `predict` does not read it.
        global_drop: the share of the global feature that is left out in training.
    """

    def __init__(
        self, predict: SetPrediction, global_pool: nn.Module | None, global_drop: float = 0.0
    ) -> None:
        super().__init__()
        self.predict = predict
        self.global_pool = global_pool
        self.global_drop = global_drop

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """Pool (B, N, D) to sets (B, K, D); "slots", (B, K, D), are the sets without the global feature."""
        slots = self.predict.slots_of(x, mask)  # (B, K, D)
        whole = None
        if self.global_pool is not None:
            whole = dropout(self.global_pool(x, mask), self.global_drop, self.training)  # (B, D)
        return self.predict.with_global(slots, whole), {"slots": slots}


class SlotPool(SetPool):
    """`SlotSetPrediction`, with its options, on the elements and their global feature.

    Args:
        global_pool: the pool that makes the global feature. The paper takes the mean of cells, the maximum of
            regions or of BERT's states, and the last states of a BiGRU over word vectors ("seq2seq").
        global_drop: the share of it that is left out in training, as in the released code for a BiGRU's.

    Source: Kim, Kim and Kwak 2023 (DivE), sections 3.1 and 3.2.
    """

    Options = SlotSetPrediction

    @checked
    def __init__(
        self, dim: Count, global_pool: Inner = "mean", global_drop: Share = 0.0, **options: Any
    ) -> None:
        predict = SlotSetPrediction(dim, **options)
        pool = INNER_POOLS[global_pool](dim)
        # Weights that no loss reaches would make several processes wait for their gradients.
        super().__init__(predict, None if predict.norm_global is None else pool, global_drop)


class PIENetPool(SetPool):
    """`PIENet`, with its options, on the elements and their global feature.

    Args:
        global_pool: the pool that makes the global feature. The paper takes the mean of cells and the last
            states of a BiGRU over word vectors ("seq2seq").

    Source: Song and Soleymani 2019 (PVSE), section 3.
    """

    Options = PIENet

    @checked
    def __init__(self, dim: Count, global_pool: Inner = "mean", **options: Any) -> None:
        super().__init__(PIENet(dim, **options), INNER_POOLS[global_pool](dim))


class TransformerSetPool(SetPool):
    """`TransformerSet`, with its options, on the elements and their global feature, as in `SlotPool`.

    Source: Kim, Kim and Kwak 2023 (DivE), table 3.
    """

    Options = TransformerSet

    @checked
    def __init__(self, dim: Count, global_pool: Inner = "mean", **options: Any) -> None:
        super().__init__(TransformerSet(dim, **options), INNER_POOLS[global_pool](dim))


class GaussianPool(SetPool):
    """A Gaussian in place of a vector: a mean, and how uncertain each of its dimensions is.

    The mean is that of a `PIENet` with one head. The logarithm of the variance has an attention of its own;
    it is neither normalised nor bounded, so that it can say "very uncertain".

    The bias starts at −log D, where a sample lies about as far from the mean as the unit vector of the mean
    from zero. That is our choice: from a variance of 1 on, almost all of a sample would be noise at first.

    Args:
        dim: width D of the elements, the mean and the variance.
        hidden: width of both attentions' hidden layers; None: half of D.
        global_pool: the pool that makes the global feature, as in `PIENetPool`.

    Source: Chun et al. 2021 (PCME), section 3.2. In the released code, the head of a caption's variance has a
    BiGRU of its own; here it projects the global feature, as the picture's head does there.
    """

    @checked
    def __init__(self, dim: Count, hidden: Count | None = None, global_pool: Inner = "mean") -> None:
        super().__init__(PIENet(dim, 1, hidden), INNER_POOLS[global_pool](dim))
        self.attend = attention_heads(dim, hidden, 1)
        self.project = projection(dim, dim)
        self.project_global = nn.Linear(dim, dim)
        nn.init.constant_(self.project_global.bias, -math.log(dim))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """Pool (B, N, D) to means (B, D) and "log_variance", (B, D)."""
        whole = cast(nn.Module, self.global_pool)(x, mask)  # (B, D)
        means = self.predict(x, whole, mask).squeeze(1)  # (B, D)
        _, spread = weighted_means(self.attend, x, mask)  # (B, 1, D)
        return means, {"log_variance": self.project(spread.squeeze(1)) + self.project_global(whole)}


class ProjectedPool(nn.Module):
    """Pool the elements, then project the vector with two linear layers and a ReLU between them.

    Args:
        dim: width D of the elements and of the result.
        pool: what pools the elements, as the global features of sets are pooled.
        batch_norm: normalise each dimension of the result over the batch. With this, a triplet loss cannot
            make all vectors alike.

    Source: Bleeker, Yates and de Rijke 2023 (LTD), section 4.2 and its released code, where the layers have
    no biases; the batch normalisation in section 5.4.
    """

    @checked
    def __init__(self, dim: Count, pool: Inner = "mean", batch_norm: bool = False) -> None:
        super().__init__()
        self.pool = INNER_POOLS[pool](dim)
        self.hidden = projection(dim, dim, bias=False)
        self.out = projection(dim, dim, bias=False)
        self.normalise = ElementNorm(dim) if batch_norm else None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        check_elements(x, mask, self.hidden.in_features)
        pooled = self.pool(x, mask)  # (B, D)
        projected: Tensor = self.out(relu(self.hidden(pooled)))  # (B, D)
        if self.normalise is not None:
            projected = self.normalise(projected[:, None])[:, 0]
        return projected
