"""Poolers: N vectors become one, or a set of K.

Every pooler is called as `pool(x, mask)` with x (B, N, D) and a bool mask (B, N), True where an element is
real; no mask means that all are. Neither the values in the padding, be they NaN or infinity, nor the amount
of padding changes a result. Anything else is refused by a ValueError, see `vsecore.masking.check_elements`.
A pooler returns vectors (B, D). Those of `set_pools` return sets (B, K, D), or a Gaussian's means, and a
dictionary of what losses read besides. An option out of its range is refused by a ValueError that names it.
"""

from typing import Any

from torch import nn

from vsecore.arguments import Count, checked
from vsecore.masking import check_elements
from vsecore.pooling.adpool import AdPool
from vsecore.pooling.basic import FirstPool, GeneralizedMeanPool, KMaxPool, LastPool, MaxPool, MeanPool
from vsecore.pooling.gpo import GPO
from vsecore.pooling.graph import GCNPool
from vsecore.pooling.recurrent import GRUPool, Seq2SeqPool
from vsecore.pooling.set_pools import GaussianPool, PIENetPool, ProjectedPool, SlotPool, TransformerSetPool
from vsecore.pooling.sorting import sort_descending
from vsecore.pooling.weighted import AdaPool, AttentionPool, LIPPool, SelfAttentionPool, SoftPool
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

__all__ = ["POOLS", *POOLS.class_names(), "build_pool", "check_elements", "sort_descending"]


@checked
def build_pool(name: str, dim: Count, **options: Any) -> nn.Module:
    """Build a pooler by its name.

    Args:
        name: one of the names in `POOLS`.
        dim: width D of the elements; poolers without weights ignore it.
        options: what else the pooler takes, such as `k` for "kmax".

    Raises:
        ValueError: the name or an option is unknown, an option is missing or out of its range, or dim < 1.

    Example:
        >>> build_pool("kmax", dim=1024, k=5)
        KMaxPool(k=5)
    """
    return POOLS.build(name, options, dim=dim)
