"""Poolers that weigh each value by what it is: SoftPool, AdaPool, LIP and self-attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vsecore.pooling.basic import MeanPool
from vsecore.pooling.cpu import pool_by_parts
from vsecore.pooling.masking import (
    check_dim,
    check_elements,
    count_real,
    softmax_over_real,
    without_padding,
)


class SoftPool(nn.Module):
    """Each dimension's values weighed by their own softmax: a soft maximum that every element learns from.

    Nothing is learned. Large values count more, and the larger all values are, the closer it comes to
    `MaxPool`. AdPool's embedding level is the same formula (Zhang et al. 2022, eq. 4).

    Source: Stergiou et al. 2021 (SoftPool), over the whole set in place of a window of cells.
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D); raises ValueError as `check_elements` does."""
        check_elements(x, mask)
        return pool_by_parts(self._pool, x, mask)

    def _pool(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = without_padding(x, mask)
        return (softmax_over_real(x, mask) * x).sum(1)  # (B, D)


class AdaPool(nn.Module):
    """Between a soft mean and a soft maximum, by one learned share.

    The soft mean weighs each value by how near it is to the dimension's mean: by the softmax of the Dice
    coefficient 2·x·m / (x² + m²), which is 1 at the mean m and -1 opposite to it. The soft maximum is
    `SoftPool`. The share of the soft mean is the sigmoid of `beta`, at first a half.

    Source: Stergiou and Poppe 2021 (AdaPool), over the whole set in place of a window of cells, and so with
    one share. Their code clamps the share into [0, 1], where it stops to learn, and negative results to 0,
    as it is made to stand behind a ReLU; neither is done here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D); raises ValueError as `check_elements` does."""
        check_elements(x, mask)
        return pool_by_parts(self._pool, x, mask)

    def _pool(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = without_padding(x, mask)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # squares of half precision vanish
        mean = wide.sum(1, keepdim=True) / count_real(x, mask).view(-1, 1, 1)  # (B, 1, D)
        size = wide.square() + mean.square()  # (B, N, D)
        dice = 2 * wide * mean / torch.where(size == 0, 1, size)  # (B, N, D)   0 and 0: no likeness
        near = (softmax_over_real(dice, mask) * wide).sum(1)  # (B, D)
        high = (softmax_over_real(wide, mask) * wide).sum(1)  # (B, D)
        return torch.lerp(high, near, self.beta.to(wide.dtype).sigmoid()).to(x.dtype)  # (B, D)


class LIPPool(nn.Module):
    """Local importance: a small network says for each dimension of each element how much it counts.

    The weights are exp(G(x)) over their sum. G is a linear layer, normalised over the elements of each
    dimension, then squeezed between 0 and 12, so that no element counts more than e¹² times another. It
    begins as `MeanPool`.

    Args:
        dim: width D of the elements.

    Raises:
        ValueError: dim is no whole number of at least 1.

    Source: Gao et al. 2019 (LIP), in the released code's simplified form, over the whole set in place of a
    window. Its 3×3 convolution becomes a linear layer: the elements of a set have no neighbours.
    """

    STEEPNESS = 12.0

    def __init__(self, dim: int) -> None:
        super().__init__()
        check_dim(dim)
        self.dim = dim
        self.importance = nn.Linear(dim, dim, bias=False)
        self.scale = nn.Parameter(torch.ones(dim))
        self.shift = nn.Parameter(torch.zeros(dim))
        nn.init.zeros_(self.importance.weight)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D); raises ValueError as `check_elements` does."""
        check_elements(x, mask, self.dim)
        return pool_by_parts(self._pool, x, mask)

    def _pool(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = without_padding(x, mask)
        logits = self.importance(x)  # (B, N, D)    0 at the padding
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        count = count_real(x, mask).view(-1, 1, 1)
        centred = without_padding(logits - logits.sum(1, keepdim=True) / count, mask)
        variance = centred.square().sum(1, keepdim=True) / count  # (B, 1, D)
        normal = centred * (variance + 1e-5).rsqrt() * self.scale + self.shift  # (B, N, D)
        weights = softmax_over_real(self.STEEPNESS * normal.sigmoid(), mask)  # (B, N, D)
        return (weights.to(x.dtype) * x).sum(1)  # (B, D)


class SelfAttentionPool(nn.Module):
    """One weight for each element, by how it goes with the mean of all.

    Both are led through a layer of their own and multiplied; a last layer makes one number of the product,
    and a softmax makes weights of the numbers.

    Args:
        dim: width D of the elements.

    Raises:
        ValueError: dim is no whole number of at least 1.

    Source: Wang et al. 2020 (CVSE), the attention over one kind of input in the released code, without its
    dropout and its batch normalisation, by which rows of a batch would know of each other.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        check_dim(dim)
        self.dim = dim
        self.element = nn.Linear(dim, dim)
        self.memory = nn.Linear(dim, dim)
        self.score = nn.Linear(dim, 1)
        self.mean = MeanPool()

    def weights(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The weight of each element, (B, N): 0 at the padding, 1 in all."""
        check_elements(x, mask, self.dim)
        x = without_padding(x, mask)
        memory = self.memory(self.mean(x, mask)).tanh().unsqueeze(1)  # (B, 1, D)
        scores = self.score(self.element(x).tanh() * memory)  # (B, N, 1)
        return softmax_over_real(scores, mask).squeeze(-1)  # (B, N)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D); raises ValueError as `check_elements` does."""
        weights = self.weights(x, mask).to(x.dtype)  # (B, N)
        return (weights.unsqueeze(1) @ without_padding(x, mask)).squeeze(1)  # (B, D)
