"""Poolers: N vectors become one.

Every pooler is called as `pool(x, mask)` with x (B, N, D) and a bool mask (B, N), True where an element is
real; no mask means that all are. What stands in the padded cells, be it NaN or infinity, never reaches the
result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def check_elements(x: Tensor, mask: Tensor | None) -> None:
    """Refuse what no pooler can pool.

    Whether every row has a real element is only looked up on a CPU: on an accelerator the answer would have
    to be waited for in every step. There a row without one becomes NaN or infinite, which no loss survives
    unseen.

    Args:
        x: elements, (B, N, D).
        mask: bool, (B, N), or None.

    Raises:
        ValueError: the shapes or the mask's type are wrong, or a row has no real element.
    """
    if x.ndim != 3 or not x.is_floating_point():
        raise ValueError(f"x must be floating point (B, N, D), got {x.dtype} {tuple(x.shape)}")
    if x.shape[1] == 0:
        raise ValueError(f"x must have at least one element a row, got {tuple(x.shape)}")
    if mask is None:
        return
    if mask.dtype != torch.bool or mask.shape != x.shape[:2]:
        raise ValueError(
            f"mask must be bool {tuple(x.shape[:2])} to go with x {tuple(x.shape)}, "
            f"got {mask.dtype} {tuple(mask.shape)}"
        )
    if mask.device.type == "cpu":
        empty = (~mask.any(1)).nonzero().flatten()
        if len(empty):
            raise ValueError(f"mask must leave every row a real element, row {int(empty[0])} has none")


class MeanPool(nn.Module):
    """The mean of the real elements.

    Every element has the same say, and the same gradient. `MaxPool` lets the strongest speak alone.

    Source: one of the simple poolers compared by Chen et al. 2021 (VSE-infinity).
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D); raises ValueError as `check_elements` does."""
        check_elements(x, mask)
        if mask is None:
            return x.mean(1)  # (B, D)
        total = torch.where(mask.unsqueeze(-1), x, 0).sum(1)  # (B, D)
        return total / mask.sum(1, keepdim=True)  # (B, D)


class MaxPool(nn.Module):
    """The largest value of each dimension over the real elements.

    Each dimension picks its own element, and only the picked one learns.

    Source: one of the simple poolers compared by Chen et al. 2021 (VSE-infinity).
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D); raises ValueError as `check_elements` does."""
        check_elements(x, mask)
        if mask is None:
            return x.amax(1)  # (B, D)
        return torch.where(mask.unsqueeze(-1), x, -torch.inf).amax(1)  # (B, D)


class KMaxPool(nn.Module):
    """The mean of the k largest values of each dimension.

    Between `MaxPool` (k = 1) and `MeanPool` (k = the number of elements). A row with fewer than k real
    elements averages those it has.

    Args:
        k: how many values to average, at least 1.

    Raises:
        ValueError: k is not a whole number of at least 1.

    Source: one of the simple poolers compared by Chen et al. 2021 (VSE-infinity).
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise ValueError(f"k must be a whole number of at least 1, got {k!r}")
        self.k = k

    def extra_repr(self) -> str:
        """What stands between the brackets when the module is printed."""
        return f"k={self.k}"

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D); raises ValueError as `check_elements` does."""
        check_elements(x, mask)
        k = min(self.k, x.shape[1])
        if mask is None:
            return x.topk(k, dim=1).values.mean(1)  # (B, D)
        largest = torch.where(mask.unsqueeze(-1), x, -torch.inf).topk(k, dim=1).values  # (B, k, D)
        count = mask.sum(1, keepdim=True).clamp(max=k)  # (B, 1)
        taken = torch.arange(k, device=x.device) < count  # (B, k)     False where a short row ran out
        return torch.where(taken.unsqueeze(-1), largest, 0).sum(1) / count  # (B, D)


POOLS: dict[str, Callable[..., nn.Module]] = {"mean": MeanPool, "max": MaxPool, "kmax": KMaxPool}


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
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < 1:
        raise ValueError(f"dim must be a whole number of at least 1, got {dim!r}")
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
