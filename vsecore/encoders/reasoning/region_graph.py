"""The region graph of VSRN: elements exchange messages, weighed by how much two of them are related."""

from typing import cast

import torch
from torch import Tensor, nn

from vsecore.arguments import Count, checked
from vsecore.embedding import unit
from vsecore.masking import checked_elements, count_real, without_padding
from vsecore.normalisation import ElementNorm


class RegionGraph(nn.Module):
    """Graph convolutions over all pairs of elements, each added to what was there.

    Each layer computes x + W(R g(x)), where R = θ(x)·φ(x)ᵀ divided by the number of real elements. There is
    no softmax, so that a message may also be ignored or subtracted. W ends in a batch normalisation whose
    weight and bias start at 0, so that every layer starts as the identity.

    Before the layers and after them, each element is scaled to length one. The released code scales over the
    wrong axis: the N values that one feature has in a picture get length one, not the features of one
    element. On Flickr30K it leaves out the first of the two.

    Args:
        dim: width D of the elements.
        layers: how many graph convolutions; four in the source.
        released_normalisation: scale over the elements of a picture, as the released code does.

    Source: Li et al. 2019 (VSRN), section 3.2, and the released code.
    """

    @checked
    def __init__(self, dim: Count, layers: Count = 4, released_normalisation: bool = False) -> None:
        super().__init__()
        self.dim = dim
        self.released_normalisation = released_normalisation
        self.layers = nn.ModuleList(GraphLayer(dim) for _ in range(layers))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Reason over (B, N, D); return as many elements, 0 in the padding, and the same mask."""
        x = self._scaled(checked_elements(x, mask, self.dim))  # (B, N, D)
        for layer in self.layers:
            x = layer(x, mask)  # (B, N, D)
        return self._scaled(x), mask

    def _scaled(self, x: Tensor) -> Tensor:
        return unit(x.mT).mT if self.released_normalisation else unit(x)


class GraphLayer(nn.Module):
    """One graph convolution: x + W(R g(x)) with R = θ(x)·φ(x)ᵀ / N. At the start it returns x.

    Args:
        dim: width D of the elements, and of θ, φ and g.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.theta, self.phi, self.message, self.out = (nn.Linear(dim, dim) for _ in range(4))  # θ, φ, g, W
        self.normalise = ElementNorm(dim)
        nn.init.zeros_(self.normalise.weight)

    def relations(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return R, (B, N, N): how much each element takes from each other one, 0 from padding."""
        relations = self.theta(x) @ self.phi(x).mT / count_real(x, mask).view(-1, 1, 1)  # (B, N, N)
        return relations if mask is None else torch.where(mask.unsqueeze(1), relations, 0)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return (B, N, D), with 0 in the padding; x must be finite everywhere."""
        received = self.relations(x, mask) @ self.message(x)  # (B, N, D)
        # Batch normalisation over the real elements only, so that padding never changes a result.
        change = cast(Tensor, self.normalise(self.out(received), mask))  # (B, N, D)
        return x + without_padding(change, mask)
