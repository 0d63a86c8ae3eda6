"""A pooler that lets the elements exchange messages before it takes their mean."""

import torch
from torch import Tensor, nn

from vsecore.arguments import Count, checked
from vsecore.embedding import unit
from vsecore.masking import checked_elements, count_real, widened, without_padding
from vsecore.pooling.basic import MeanPool


class GCNPool(nn.Module):
    """Graph convolutions over all pairs of elements, then the mean.

    Each layer adds to every element the messages of all elements, weighed by how similar they are to it:
    V* = V + W_r (R V W_g), where R = θ(V)·φ(V)ᵀ divided by the number of elements. R is computed from
    directions only, because the source scales its regions to length one beforehand: on unscaled elements four
    layers would compute their 81st power, and large ones would overflow. At the start every layer adds
    nothing, so that the pool equals `MeanPool`.

    Args:
        dim: width D of the elements.
        layers: how many rounds of messages.

    Source: Li et al. 2019 (VSRN), section 3.2 and the released code, four layers, in its form without batch
    normalisation, which would mix the sets of a batch. Zhang et al. 2022 (2AD) call this pooler GCN.
    """

    @checked
    def __init__(self, dim: Count, layers: Count = 4) -> None:
        super().__init__()
        self.dim = dim
        self.layers = nn.ModuleList(_Reasoning(dim) for _ in range(layers))
        self.mean = MeanPool()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        x = checked_elements(x, mask, self.dim)
        for layer in self.layers:
            x = layer(x, mask)  # (B, N, D)
        return self.mean(x, mask)  # (B, D)


class _Reasoning(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.theta, self.phi, self.message, self.out = (nn.Linear(dim, dim) for _ in range(4))  # θ φ W_g W_r
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        directions = unit(widened(x)).to(x.dtype)  # (B, N, D)
        relation = self.theta(directions) @ self.phi(directions).transpose(1, 2)  # (B, N, N)
        messages = without_padding(self.message(x), mask)  # (B, N, D)   none from padding
        received = torch.bmm(relation, messages) / count_real(x, mask).view(-1, 1, 1)  # (B, N, D)
        return x + self.out(received)  # (B, N, D)
