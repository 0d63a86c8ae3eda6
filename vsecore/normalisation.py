"""What layers start as, and the batch normalisation of sets: without padding, over all processes."""

import torch
from torch import Tensor, nn

from vsecore.processes import gather

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
"""The layers that normalise over a batch, and average what they find."""


def projection(width: int, dim: int, bias: bool = True) -> nn.Linear:
    """Make a linear layer that starts as in the released codes of VSE++, PVSE and SGRAF.

    Its weights are Xavier-uniform, and its bias is zero.
    """
    linear = nn.Linear(width, dim, bias)
    nn.init.xavier_uniform_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


class ElementNorm(nn.BatchNorm1d):
    """`nn.BatchNorm1d` over the real elements of a batch of sets.

    In training each channel is normalised by its mean and variance over all real elements of the batch; in
    evaluation by the running averages of both. With several processes the batch is the joint one, on a CPU
    too.

    Source: Ioffe and Szegedy 2015, algorithm 1.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalise (B, N, C). At the padding, x must be finite, and the output is meaningless."""
        with torch.autocast(x.device.type, enabled=False):  # sums in half precision drift
            wide = x.to(torch.promote_types(x.dtype, torch.float32))  # (B, N, C)
            if self.training:
                mean, variance = self._statistics(wide, mask)  # (C,) each
            else:
                mean, variance = self.running_mean, self.running_var
            scale = self.weight * (variance + self.eps).rsqrt()  # (C,)
            return ((wide - mean) * scale + self.bias).to(x.dtype)  # (B, N, C)

    def _statistics(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        real = x.new_ones(x.shape[:2]) if mask is None else mask.to(x.dtype)  # (B, N)
        weights = real.flatten()  # (B N,)
        rows = x.flatten(0, 1)  # (B N, C)
        # Each process sums over its own share, and each gets the sum of all.
        total = gather(torch.cat([weights @ rows, weights.sum().view(1)]).unsqueeze(0)).sum(0)  # (C + 1,)
        count = total[-1]
        mean = total[:-1] / count  # (C,)
        variance = gather((weights @ (rows - mean).square()).unsqueeze(0)).sum(0) / count  # (C,)
        self.track(mean, variance * count / (count - 1).clamp(min=1))
        return mean, variance

    @torch.no_grad()
    def track(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running averages by a batch's mean and unbiased variance, (C,) each, as nn.BatchNorm1d."""
        self.num_batches_tracked += 1
        share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)
