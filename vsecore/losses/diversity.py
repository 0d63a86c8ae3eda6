"""Diversity: the elements of one set should not all say the same."""

from typing import Annotated

import torch
from torch import Tensor

from vsecore.arguments import Shape, checked
from vsecore.embedding import unit
from vsecore.losses.distances import root, squared_distances
from vsecore.losses.step import Loss, Step
from vsecore.masking import widened

SHARPNESS = 2.0

Sets = Annotated[Tensor, Shape("B K D")]


@checked
def set_diversity(slots: Sets) -> Tensor:
    """Compute how near the elements of each set are to one another: 1 where they all point the same way.

    The mean of exp(−2 ‖x − y‖²) over the pairs of elements of a set and over the batch, with x and y of
    length one. It reads the slots before the global feature is added, which all elements share on purpose.

    Args:
        slots: (B, K, D). Need not be unit vectors.

    Returns:
        The loss, a scalar in (0, 1], in float32 at least; 0 where sets have one element, which has no other.

    Source: Kim et al. 2023, section 3.4, which prints the sum over all pairs. The released code scales to
    length one and takes the mean over different elements, as we do.
    """
    x = unit(widened(slots))
    with torch.autocast(x.device.type, enabled=False):
        kernel = (-SHARPNESS * squared_distances(x, x)).exp()  # (B, K, K)
    count = x.shape[1]
    if count == 1:
        return 0 * kernel.sum()  # still a part of the graph
    return kernel.triu(1).sum((1, 2)).mean() / (count * (count - 1) / 2)


@checked
def gram_diversity(slots: Sets) -> Tensor:
    """Compute how far the elements of each set are from being orthogonal.

    ‖G − I‖ / K² with G the cosines of a set's K elements and ‖·‖ the Frobenius norm, averaged over the batch.
    It is least where the elements are at right angles; `set_diversity` is less still where they point away
    from each other. Arguments, result and errors as there, but that it can be larger than 1.

    Source: Song and Soleymani 2019 (PVSE), the diversity loss of its released code, on the residuals.
    """
    x = unit(widened(slots))
    count = x.shape[1]
    with torch.autocast(x.device.type, enabled=False):
        diagonal = torch.eye(count, dtype=torch.bool, device=x.device)
        squares = torch.where(diagonal, 0, x @ x.mT).square().sum((1, 2))  # (B,)
    return root(squares).mean() / count**2


class SetDiversity(Loss):
    """`set_diversity` of the pictures' slots plus that of the captions'."""

    reads = ("slots",)

    def forward(self, step: Step) -> Tensor:
        return set_diversity(step.v.needed("slots")) + set_diversity(step.t.needed("slots"))


class GramDiversity(Loss):
    """`gram_diversity` of the pictures' slots plus that of the captions'."""

    reads = ("slots",)

    def forward(self, step: Step) -> Tensor:
        return gram_diversity(step.v.needed("slots")) + gram_diversity(step.t.needed("slots"))
