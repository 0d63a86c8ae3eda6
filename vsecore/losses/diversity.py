"""Diversity: the elements of one set should not all say the same."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vsecore.losses.distances import check_vectors, squared_distances
from vsecore.losses.elements import unit
from vsecore.losses.step import Step

SHARPNESS = 2.0


def set_diversity(slots: Tensor) -> Tensor:
    """Compute how near the elements of each set are to one another: 1 where they all point the same way.

    The mean of exp(−2 ‖x − y‖²) over the pairs of elements of a set and over the batch, with x and y of
    length one. It reads the slots before the global feature is added, which all elements share on purpose.

    Args:
        slots: (B, K, D). Need not be unit vectors.

    Returns:
        The loss, a scalar in (0, 1], in float32 at least; 0 where sets have one element, which has no other.

    Raises:
        ValueError: slots has a wrong shape or type, or is empty.

    Source: Kim et al. 2023, section 3.4, which prints the sum over all pairs. The released code scales to
    length one and takes the mean over different elements, as we do.
    """
    x = unit(check_vectors("slots", slots, "(B, K, D)"))
    with torch.autocast(x.device.type, enabled=False):
        near = (-SHARPNESS * squared_distances(x, x)).exp()  # (B, K, K)
    count = x.shape[1]
    if count == 1:
        return 0 * near.sum()  # still a part of the graph
    return near.triu(1).sum((1, 2)).mean() / (count * (count - 1) / 2)


def gram_diversity(slots: Tensor) -> Tensor:
    """Compute how far the elements of each set are from being orthogonal.

    ‖G − I‖ / K² with G the cosines of a set's K elements and ‖·‖ the Frobenius norm, averaged over the batch.
    It is least where the elements are at right angles; `set_diversity` is less still where they point away
    from each other.

    Args:
        slots: (B, K, D). Need not be unit vectors.

    Returns:
        The loss, a scalar >= 0, in float32 at least; 0 where sets have one element.

    Raises:
        ValueError: slots has a wrong shape or type, or is empty.

    Source: Song and Soleymani 2019 (PVSE), the diversity loss of its released code, on the residuals.
    """
    x = unit(check_vectors("slots", slots, "(B, K, D)"))
    count = x.shape[1]
    with torch.autocast(x.device.type, enabled=False):
        own = torch.eye(count, dtype=torch.bool, device=x.device)
        squares = torch.where(own, 0, x @ x.mT).square().sum((1, 2))  # (B,)
    apart = squares > 0  # the gradient of a root is infinite at 0
    return torch.where(apart, torch.where(apart, squares, 1).sqrt(), 0).mean() / count**2


class SetDiversity(nn.Module):
    """`set_diversity` of the pictures' slots plus that of the captions'.

    Attributes:
        reads: what it reads of an `Embedding`.
    """

    reads = ("slots",)

    def forward(self, step: Step) -> Tensor:
        """The loss of a step, a scalar."""
        return set_diversity(step.v.extra["slots"]) + set_diversity(step.t.extra["slots"])


class GramDiversity(nn.Module):
    """`gram_diversity` of the pictures' slots plus that of the captions'.

    Attributes:
        reads: what it reads of an `Embedding`.
    """

    reads = ("slots",)

    def forward(self, step: Step) -> Tensor:
        """The loss of a step, a scalar."""
        return gram_diversity(step.v.extra["slots"]) + gram_diversity(step.t.extra["slots"])
