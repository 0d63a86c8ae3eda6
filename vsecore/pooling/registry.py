"""Poolers by their names, as recipes give them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from vsecore.pooling.adpool import AdPool
from vsecore.pooling.basic import KMaxPool, MaxPool, MeanPool
from vsecore.pooling.gpo import GPO
from vsecore.pooling.graph import GCNPool
from vsecore.pooling.masking import check_dim
from vsecore.pooling.recurrent import Seq2SeqPool
from vsecore.pooling.weighted import AdaPool, LIPPool, SelfAttentionPool, SoftPool

POOLS: dict[str, Callable[..., nn.Module]] = {
    "mean": MeanPool,
    "max": MaxPool,
    "kmax": KMaxPool,
    "soft": SoftPool,
    "ada": AdaPool,
    "lip": LIPPool,
    "seq2seq": Seq2SeqPool,
    "gcn": GCNPool,
    "self_attention": SelfAttentionPool,
    "gpo": GPO,
    "adpool": AdPool,
}
"""Every pooler by its name."""


def build_pool(name: str, dim: int, **options: Any) -> nn.Module:
    """Build a pooler by its name, as recipes do.

    Args:
        name: one of the keys of `POOLS`.
        dim: width D of the elements; poolers without weights have no use for it.
        options: what else the pooler takes, such as `k` for "kmax".

    Returns:
        The pooler, called as `pool(x, mask)`.

    Raises:
        ValueError: the name or an option is unknown, an option is missing, or dim < 1.

    Example:
        >>> build_pool("kmax", dim=1024, k=5)
        KMaxPool(k=5)
    """
    if name not in POOLS:
        raise ValueError(f"name must be one of {', '.join(sorted(POOLS))}, got {name!r}")
    check_dim(dim)
    wanted = {
        option: parameter
        for option, parameter in inspect.signature(POOLS[name]).parameters.items()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD  # nn.Module's own *args take nothing
    }
    known = [option for option in wanted if option != "dim"]
    unknown = sorted(set(options) - set(known))
    if unknown:
        takes = f"takes {', '.join(known)}" if known else "takes no options"
        raise ValueError(f"options of pool {name!r} include the unknown {', '.join(unknown)}; it {takes}")
    missing = [key for key in known if key not in options and wanted[key].default is inspect.Parameter.empty]
    if missing:
        raise ValueError(f"options of pool {name!r} must include {', '.join(missing)}")
    if "dim" in wanted:
        options = {"dim": dim, **options}
    return POOLS[name](**options)
