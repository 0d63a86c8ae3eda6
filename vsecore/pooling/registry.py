"""Poolers by name, as recipes ask for them."""

from __future__ import annotations

from typing import Any

from torch import nn

from vsecore.masking import check_dim
from vsecore.pooling.adpool import AdPool
from vsecore.pooling.attention import AttentionPool
from vsecore.pooling.basic import FirstPool, GeneralizedMeanPool, KMaxPool, MaxPool, MeanPool
from vsecore.pooling.gpo import GPO
from vsecore.pooling.graph import GCNPool
from vsecore.pooling.projected import ProjectedPool
from vsecore.pooling.recurrent import GRUPool, LastPool, Seq2SeqPool
from vsecore.pooling.set_pools import GaussianPool, PIENetPool, SlotPool, TransformerSetPool
from vsecore.pooling.weighted import AdaPool, LIPPool, SelfAttentionPool, SoftPool
from vsecore.registry import Registry

POOLS = Registry(
    "pool",
    {
        "mean": MeanPool,
        "max": MaxPool,
        "kmax": KMaxPool,
        "first": FirstPool,
        "generalized_mean": GeneralizedMeanPool,
        "soft": SoftPool,
        "ada": AdaPool,
        "lip": LIPPool,
        "seq2seq": Seq2SeqPool,
        "gru_last": GRUPool,
        "last": LastPool,
        "gcn": GCNPool,
        "self_attention": SelfAttentionPool,
        "attention": AttentionPool,
        "gpo": GPO,
        "adpool": AdPool,
        "slots": SlotPool,
        "pie_net": PIENetPool,
        "transformer_set": TransformerSetPool,
        "gaussian": GaussianPool,
        "projected": ProjectedPool,
    },
    context=("dim",),
)
"""Every pooler by name."""


def build_pool(name: str, dim: int, **options: Any) -> nn.Module:
    """Build a pooler by its name.

    Args:
        name: one of the names in `POOLS`.
        dim: width D of the elements; poolers without weights ignore it.
        options: what else the pooler takes, such as `k` for "kmax".

    Returns:
        The pooler, called as `pool(x, mask)`.

    Raises:
        ValueError: the name or an option is unknown, an option is missing or out of its range, or dim < 1.

    Example:
        >>> build_pool("kmax", dim=1024, k=5)
        KMaxPool(k=5)
    """
    check_dim(dim)
    return POOLS.build(name, options, dim=dim)
