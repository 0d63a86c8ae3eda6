"""Maximum mean discrepancy: pictures and captions should fill the same part of the space."""

from typing import Annotated

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vsecore.arguments import Positive, Shape, checked
from vsecore.losses.distances import distances, squared_distances
from vsecore.losses.step import Loss, Step
from vsecore.masking import promoted

KEPT = 2**22
"""Numbers of a kernel matrix that are taken together; if there are more, each part is computed twice."""


@checked
def mmd(
    x: Annotated[Tensor, Shape("n D")],
    y: Annotated[Tensor, Shape("m D")],
    gamma: Positive = 0.5,
    squared: bool = False,
) -> Tensor:
    """Compute how far apart two clouds of points are, whichever point belongs to which.

    The mean of the kernel k over all pairs within x, plus that within y, minus twice that between x and y. It
    is 0 for two equal clouds, whatever the order of their points, and never below 0. A triplet loss compares
    pairs; this one compares the two modalities as wholes, and keeps them together early in training.

    Args:
        x: points, (n, D).
        y: points, (m, D).
        gamma: how fast the kernel falls with the distance, > 0.
        squared: k(x, y) = exp(−gamma ‖x − y‖²), the usual Gaussian kernel; False: exp(−gamma ‖x − y‖), the
            kernel in the released codes.

    Returns:
        The discrepancy, a scalar, in float32 at least.

    Source: Gretton et al. 2007; Kim et al. 2023, section 3.4; the kernel and gamma from the released codes of
    Song and Soleymani 2019 (PVSE) and Kim et al. 2023.
    """
    x, y = promoted(x, y)
    with torch.autocast(x.device.type, enabled=False):
        within = _mean_kernel(x, x, gamma, squared) + _mean_kernel(y, y, gamma, squared)
        return within - 2 * _mean_kernel(x, y, gamma, squared)


def _mean_kernel(x: Tensor, y: Tensor, gamma: float, squared: bool) -> Tensor:
    """The mean of the kernel over all pairs, some rows at a time."""
    distance = squared_distances if squared else distances

    def total(part: Tensor, y: Tensor) -> Tensor:
        return distance(part, y).mul(-gamma).exp().sum()

    rows = max(1, KEPT // len(y))
    if len(x) <= rows:
        return total(x, y) / (len(x) * len(y))
    parts = [checkpoint(total, part, y, use_reentrant=False) for part in x.split(rows)]
    return torch.stack(parts).sum() / (len(x) * len(y))


class MMD(Loss):
    """`mmd` of a step's pictures and captions: of all elements of their sets, or of their vectors."""

    reads = ("vectors",)

    @checked
    def __init__(self, gamma: Positive = 0.5, squared: bool = False) -> None:
        super().__init__()
        self.gamma = gamma
        self.squared = squared

    def forward(self, step: Step) -> Tensor:
        v, t = (side.needed("vectors").flatten(0, -2) for side in (step.v, step.t))  # (rows·elements, D)
        return mmd(v, t, self.gamma, self.squared)
