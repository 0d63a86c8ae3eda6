"""A pool with a projection head: what is pooled passes through a small network before it is compared."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from vsecore.normalisation import ElementNorm
from vsecore.pooling.set_pools import Global, make_pool
from vsecore.sets import xavier


class ProjectedPool(nn.Module):
    """Pool the elements, then project the vector with two linear layers and a ReLU between them.

    Args:
        dim: width D of the elements and of the result.
        pool: what pools the elements, as the global features of sets are pooled.
        batch_norm: normalise each dimension of the result over the batch. With this, a triplet loss cannot
            make all vectors alike.

    Raises:
        ValueError: pool is unknown.

    Source: Bleeker, Yates and de Rijke 2023 (LTD), section 4.2 and its released code, where the layers have
    no biases; the batch normalisation in section 5.4.
    """

    def __init__(self, dim: int, pool: Global = "mean", batch_norm: bool = False) -> None:
        super().__init__()
        self.pool = make_pool(pool, dim)
        self.hidden = xavier(nn.Linear(dim, dim, bias=False))
        self.out = xavier(nn.Linear(dim, dim, bias=False))
        self.normalise = ElementNorm(dim) if batch_norm else None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D).

        Raises:
            ValueError: as `check_elements`.
        """
        pooled = self.pool(x, mask)  # (B, D)
        projected: Tensor = self.out(relu(self.hidden(pooled)))  # (B, D)
        if self.normalise is not None:
            projected = self.normalise(projected[:, None])[:, 0]
        return projected
