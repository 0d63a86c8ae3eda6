"""The mean, the maximum and what lies between (by counts of values, or by powers); the first and the last."""

import math

import torch
from torch import Tensor, nn

from vsecore.arguments import Count, Positive, checked
from vsecore.masking import check_elements, count_real, widened, without_padding
from vsecore.pooling.sorting import sort_descending


class MeanPool(nn.Module):
    """The mean of the real elements.

    Every element counts the same and gets the same gradient; in `MaxPool` only the largest value counts.

    Source: one of the simple poolers compared by Chen et al. 2021 (VSE-infinity).
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        check_elements(x, mask)
        if mask is None:
            return x.mean(1)  # (B, D)
        return without_padding(x, mask).sum(1) / mask.sum(1, keepdim=True)  # (B, D)


class MaxPool(nn.Module):
    """The largest value of each dimension over the real elements.

    Each dimension picks its own element, and only that one gets a gradient.

    Source: one of the simple poolers compared by Chen et al. 2021 (VSE-infinity).
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        check_elements(x, mask)
        if mask is None:
            return x.amax(1)  # (B, D)
        return torch.where(mask.unsqueeze(-1), x, -torch.inf).amax(1)  # (B, D)


class KMaxPool(nn.Module):
    """The mean of the k largest values of each dimension.

    Between `MaxPool` (k = 1) and `MeanPool` (k = the number of elements). A row with fewer than k real
    elements averages those it has.

    Args:
        k: how many values to average.

    Source: one of the simple poolers compared by Chen et al. 2021 (VSE-infinity).
    """

    @checked
    def __init__(self, k: Count) -> None:
        super().__init__()
        self.k = k

    def extra_repr(self) -> str:
        return f"k={self.k}"

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        largest = sort_descending(x, mask)[:, : self.k]  # (B, k, D)   0 where a short row ran out
        return largest.sum(1) / count_real(x, mask).clamp(max=self.k).unsqueeze(-1)  # (B, D)


class FirstPool(nn.Module):
    """The first real element, alone.

    For encoders whose first element gathers what the others say: BERT's [CLS], or the learned element that
    `encoders.reasoning.TransformerReasoner` puts in front. Of other elements it forgets all but one.

    Source: Devlin et al. 2019 (BERT); in both towers, Messina et al. 2020 (TERN).
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        check_elements(x, mask)
        if mask is None:
            return x[:, 0]  # (B, D)
        first = mask.to(torch.uint8).argmax(1)  # (B,)   the first of the largest
        return x[torch.arange(len(x), device=x.device), first]  # (B, D)


class LastPool(nn.Module):
    """The last real element stands for all: the end of a sentence that a recurrent network has read.

    Source: Faghri et al. 2018 (VSE++), section 3.1; so do Li et al. 2019 (VSRN).
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        check_elements(x, mask)
        if mask is None:
            return x[:, -1]
        places = torch.arange(x.shape[1], device=x.device)
        last = torch.where(mask, places, 0).amax(1)  # (B,)
        return x.gather(1, last.view(-1, 1, 1).expand(-1, 1, x.shape[2])).squeeze(1)  # (B, D)


class GeneralizedMeanPool(nn.Module):
    """The generalised mean of each dimension, (mean of x^p)^(1/p), with a learned p.

    Between `MeanPool` (p = 1) and `MaxPool` (p without end), if no value is negative. What is below 1e-6
    counts as 1e-6, since a negative number has no such root: a dimension can say how much of something is
    there, not how much of its opposite. What is learned is the logarithm of p, so that p stays above 0.

    Args:
        power: p at the start.

    Source: Radenović et al. 2019 (GeM), eq. 3, with one p for all dimensions, as in their best networks.
    """

    SMALLEST = 1e-6

    @checked
    def __init__(self, power: Positive = 3.0) -> None:
        super().__init__()
        self.log_power = nn.Parameter(torch.tensor(math.log(power)))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        check_elements(x, mask)
        # By logarithms: x^p itself leaves the range of its type even for moderate values.
        power, wide = self.log_power.exp(), widened(x)
        logs = without_padding(wide, mask).clamp(min=self.SMALLEST).log() * power  # (B, N, D)
        if mask is not None:
            logs = torch.where(mask.unsqueeze(-1), logs, -torch.inf)
        count = count_real(x, mask).to(logs.dtype).unsqueeze(-1).log()  # (B, 1)
        return ((logs.logsumexp(1) - count) / power).exp().to(x.dtype)  # (B, D)
