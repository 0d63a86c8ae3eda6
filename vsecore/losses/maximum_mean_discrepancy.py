"""Maximum mean discrepancy: pictures and captions should fill the same part of the space."""

from typing import Annotated

import torch
from torch import Tensor

from vsecore.arguments import Positive, Shape, checked
from vsecore.losses.distances import distances, squared_distances
from vsecore.losses.step import Loss, Step
from vsecore.masking import promoted


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
    distance = squared_distances if squared else distances

    def mean_kernel(x: Tensor, y: Tensor) -> Tensor:
        return distance(x, y).mul(-gamma).exp().sum() / (len(x) * len(y))

    with torch.autocast(x.device.type, enabled=False):
        return mean_kernel(x, x) + mean_kernel(y, y) - 2 * mean_kernel(x, y)


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
