"""Poolers that give a set of vectors, or a Gaussian, in place of one vector.

Each reads the elements twice: a pool inside makes the global feature, and a module of `vsecore.sets` predicts
the set from the elements and that feature. Besides the vectors they return a dictionary, which becomes
`Embedding.extra`: "slots", the set before the global feature is added, or "log_variance".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from vsecore.masking import check_elements
from vsecore.pooling.basic import FirstPool, MaxPool, MeanPool
from vsecore.pooling.gpo import GPO
from vsecore.pooling.recurrent import LastPool, Seq2SeqPool
from vsecore.sets import (
    PIENet,
    Positions,
    SlotSetPrediction,
    TransformerSet,
    attention_heads,
    look,
    xavier,
)

Global = Literal["mean", "max", "first", "last", "gpo", "seq2seq"]

_GLOBAL_POOLS: dict[str, Callable[[int], nn.Module]] = {
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
        predict: a module of `vsecore.sets`.
        global_pool: (elements, mask) -> the global feature (B, D); None if `predict` does not read it.
    """

    def __init__(self, predict: SlotSetPrediction | PIENet | TransformerSet, global_pool: nn.Module | None):
        super().__init__()
        self.predict = predict
        self.global_pool = global_pool

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """Pool (B, N, D) to sets (B, K, D); "slots", (B, K, D), are the sets without the global feature.

        Raises:
            ValueError: as `check_elements`.
        """
        slots = self.predict.slots_of(x, mask)  # (B, K, D)
        whole = None if self.global_pool is None else self.global_pool(x, mask)  # (B, D)
        return self.predict.with_global(slots, whole), {"slots": slots}


class SlotPool(SetPool):
    """`SlotSetPrediction` on the elements and their global feature.

    Args:
        dim: width D of the elements.
        slots: of `SlotSetPrediction`, as all options but the last.
        iterations: of `SlotSetPrediction`.
        hidden: of `SlotSetPrediction`.
        heads: of `SlotSetPrediction`.
        positions: of `SlotSetPrediction`.
        softmax_over: of `SlotSetPrediction`.
        learned_slots: of `SlotSetPrediction`.
        residual: of `SlotSetPrediction`.
        add_global: of `SlotSetPrediction`.
        drop: of `SlotSetPrediction`.
        expansion: of `SlotSetPrediction`.
        global_pool: the pool that makes the global feature. The paper takes the mean of cells, the maximum of
            regions or of BERT's states, and the last states of a BiGRU over word vectors ("seq2seq").

    Raises:
        ValueError: as `SlotSetPrediction`, or global_pool is unknown.

    Source: Kim, Kim and Kwak 2023 (DivE), sections 3.1 and 3.2.
    """

    def __init__(
        self,
        dim: int,
        slots: int = 4,
        iterations: int = 4,
        hidden: int | None = 1024,
        heads: int = 1,
        positions: Positions = "none",
        softmax_over: Literal["slots", "elements"] = "slots",
        learned_slots: bool = True,
        residual: bool = True,
        add_global: bool = True,
        drop: float = 0.0,
        expansion: int = 4,
        global_pool: Global = "mean",
    ) -> None:
        predict = SlotSetPrediction(
            dim,
            slots,
            iterations,
            hidden,
            heads,
            positions,
            softmax_over,
            learned_slots,
            residual,
            add_global,
            drop,
            expansion,
        )
        pool = make_pool(global_pool, dim)
        # Weights that no loss reaches would make several processes wait for their gradients.
        super().__init__(predict, pool if add_global else None)


class PIENetPool(SetPool):
    """`PIENet` on the elements and their global feature.

    Args:
        dim: width D of the elements.
        slots: K, the number of vectors.
        hidden: of `PIENet`.
        global_pool: the pool that makes the global feature. The paper takes the mean of cells and the last
            states of a BiGRU over word vectors ("seq2seq").

    Raises:
        ValueError: as `PIENet`, or global_pool is unknown.

    Source: Song and Soleymani 2019 (PVSE), section 3.
    """

    def __init__(
        self, dim: int, slots: int = 4, hidden: int | None = None, global_pool: Global = "mean"
    ) -> None:
        super().__init__(PIENet(dim, slots, hidden), make_pool(global_pool, dim))


class TransformerSetPool(SetPool):
    """`TransformerSet` on the elements and their global feature.

    Args:
        dim: width D of the elements.
        slots: K, the number of vectors.
        layers: of `TransformerSet`.
        heads: of `TransformerSet`.
        hidden: of `TransformerSet`.
        global_pool: the pool that makes the global feature, as in `SlotPool`.

    Raises:
        ValueError: as `TransformerSet`, or global_pool is unknown.

    Source: Kim, Kim and Kwak 2023 (DivE), table 3.
    """

    def __init__(
        self,
        dim: int,
        slots: int = 4,
        layers: int = 4,
        heads: int = 8,
        hidden: int | None = None,
        global_pool: Global = "mean",
    ) -> None:
        super().__init__(TransformerSet(dim, slots, layers, heads, hidden), make_pool(global_pool, dim))


class GaussianPool(nn.Module):
    """A Gaussian in place of a vector: a mean, and how uncertain each of its dimensions is.

    The mean is that of a `PIENet` with one head. The logarithm of the variance has an attention of its own;
    it is neither normalised nor bounded, so that it can say "very uncertain".

    The bias starts at −log D, where a sample lies about as far from the mean as the unit vector of the mean
    from zero. That is our choice: from a variance of 1 on, almost all of a sample would be noise at first.

    Args:
        dim: width D of the elements, the mean and the variance.
        hidden: width of both attentions' hidden layers; None: half of D.
        global_pool: the pool that makes the global feature, as in `PIENetPool`.

    Raises:
        ValueError: a number is not a whole number of at least 1, or global_pool is unknown.

    Source: Chun et al. 2021 (PCME), section 3.2. In the released code, the head of a caption's variance has a
    BiGRU of its own; here it projects the global feature, as the picture's head does there.
    """

    def __init__(self, dim: int, hidden: int | None = None, global_pool: Global = "mean") -> None:
        super().__init__()
        self.predict = PIENet(dim, 1, hidden)
        self.global_pool = make_pool(global_pool, dim)
        self.attend = attention_heads(dim, max(1, dim // 2) if hidden is None else hidden, 1)
        self.project = xavier(nn.Linear(dim, dim))
        self.project_global = nn.Linear(dim, dim)
        nn.init.constant_(self.project_global.bias, -math.log(dim))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """Pool (B, N, D) to means (B, D) and "log_variance", (B, D).

        Raises:
            ValueError: as `check_elements`.
        """
        check_elements(x, mask, self.predict.dim)
        whole = self.global_pool(x, mask)  # (B, D)
        means = self.predict(x, whole, mask).squeeze(1)  # (B, D)
        _, found = look(self.attend, x, mask)  # (B, 1, D)
        return means, {"log_variance": self.project(found.squeeze(1)) + self.project_global(whole)}


def make_pool(name: str, dim: int) -> nn.Module:
    if name not in _GLOBAL_POOLS:
        known = ", ".join(map(repr, _GLOBAL_POOLS))
        raise ValueError(f"global_pool is {name!r}: it must be one of {known}")
    return _GLOBAL_POOLS[name](dim)
