"""Poolers: N vectors become one, or a set of K.

Every pooler is called as `pool(x, mask)` with x (B, N, D) and a bool mask (B, N), True where an element is
real; no mask means that all are. Neither the values in the padding, be they NaN or infinity, nor the amount
of padding changes a result. A pooler returns vectors (B, D). Those of `set_pools` return sets (B, K, D), or a
Gaussian's means, and a dictionary of what losses read besides.
"""

from vsecore.masking import check_elements
from vsecore.pooling.adpool import AdPool
from vsecore.pooling.attention import AttentionPool
from vsecore.pooling.basic import FirstPool, GeneralizedMeanPool, KMaxPool, MaxPool, MeanPool
from vsecore.pooling.gpo import GPO
from vsecore.pooling.graph import GCNPool
from vsecore.pooling.projected import ProjectedPool
from vsecore.pooling.recurrent import GRUPool, LastPool, Seq2SeqPool
from vsecore.pooling.registry import POOLS, build_pool
from vsecore.pooling.set_pools import GaussianPool, PIENetPool, SlotPool, TransformerSetPool
from vsecore.pooling.sorting import sort_descending
from vsecore.pooling.weighted import AdaPool, LIPPool, SelfAttentionPool, SoftPool

__all__ = [
    "GPO",
    "POOLS",
    "AdPool",
    "AdaPool",
    "AttentionPool",
    "FirstPool",
    "GCNPool",
    "GRUPool",
    "GaussianPool",
    "GeneralizedMeanPool",
    "KMaxPool",
    "LIPPool",
    "LastPool",
    "MaxPool",
    "MeanPool",
    "PIENetPool",
    "ProjectedPool",
    "SelfAttentionPool",
    "Seq2SeqPool",
    "SlotPool",
    "SoftPool",
    "TransformerSetPool",
    "build_pool",
    "check_elements",
    "sort_descending",
]
