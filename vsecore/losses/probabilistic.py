"""PCME's soft contrastive loss: pictures and captions are Gaussians that match with some probability."""

import math
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from vsecore.arguments import Count, Finite, NotNegative, Shape, check_numbers, checked
from vsecore.losses.distances import distances
from vsecore.losses.pairs import Positives, diagonal
from vsecore.losses.step import Loss, Step
from vsecore.masking import promoted, widened

Vectors = Annotated[Tensor, Shape("B D")]


@checked
def sample_gaussians(mean: Vectors, log_variance: Vectors, samples: Count) -> Tensor:
    """Draw points from Gaussians, (B, J, D), so that the gradient reaches their means and variances, (B, D).

    A point is μ + σ·ε with ε from a standard normal distribution: only ε is random.

    Source: Chun et al. 2021 (PCME), section 3, after Kingma and Welling 2014.
    """
    mean, log_variance = widened(mean), widened(log_variance)
    rows, dim = mean.shape
    noise = torch.randn(rows, samples, dim, dtype=mean.dtype, device=mean.device)  # (B, J, D)
    return mean.unsqueeze(1) + (log_variance / 2).exp().unsqueeze(1) * noise


@checked
def soft_contrastive(
    v: Annotated[Tensor, Shape("B J D")],
    t: Annotated[Tensor, Shape("C L D")],
    scale: Tensor | float,
    shift: Tensor | float,
    positives: Positives = None,
) -> Tensor:
    """Minus the log-probability that what belongs together matches, and that all else does not.

    Two points at distance d match with probability σ(shift − scale · d), a picture and a caption with its
    mean over all pairs of their points. A pair that may or may not match costs little either way, so that an
    ambiguous picture can spread out.

    Args:
        v: points of each picture, (B, J, D).
        t: points of each caption, (C, L, D).
        scale: how fast the probability falls with the distance: a number, or a tensor that holds one.
        shift: its logit at distance 0, likewise.
        positives: bool, (B, C), True where picture and caption belong together; the diagonal if None.

    Returns:
        The loss, a scalar: the sum over all B·C pairs, in float32 at least.

    Source: Chun et al. 2021 (PCME), eq. 1 and its Monte-Carlo estimate.
    """
    (b, j, _), (c, n, _) = v.shape, t.shape
    check_numbers(scale=scale, shift=shift)
    if positives is None:
        positives = diagonal(b, c, v.device)
    v, t = promoted(v, t)
    with torch.autocast(v.device.type, enabled=False):
        distance = distances(v.flatten(0, 1), t.flatten(0, 1))  # (B·J, C·L)
        logits = (shift - scale * distance).view(b, j, c, n)
        # 1 − σ(x) is σ(−x), so that one formula serves what belongs together and what does not.
        signed = torch.where(positives[:, None, :, None], logits, -logits)
        log_probabilities = logsigmoid(signed).logsumexp((1, 3)) - math.log(j * n)  # (B, C)
        return -log_probabilities.sum()


class SoftContrastive(Loss):
    """`soft_contrastive` of points drawn from a step's Gaussians, in both directions, plus their divergence.

    The vectors of an embedding are the means, "log_variance" in its `extra` the logarithms of the variances.
    Both directions, picture to caption and back, are the same sum, so it counts twice, as in the released
    code. That code takes e^x / (e^x + e^−x) for the sigmoid and starts at 15 and 15; this is σ(2x), and so we
    start at 30 and 30. It also draws points with e^s as the standard deviation, but its divergence takes e^s
    as the variance; here it is the variance in both. Its divergence takes the mean of the drawn points for
    the Gaussian's own.

    Args:
        samples: points from each Gaussian.
        scale: where the learned scale begins.
        shift: where the learned shift begins.
        kl_weight: the factor of the Gaussians' Kullback-Leibler divergence from the standard normal, summed
            over all, which keeps their variances from vanishing.

    Source: Chun et al. 2021 (PCME); the numbers from its released settings for COCO.
    """

    reads = ("vectors", "log_variance")

    @checked
    def __init__(
        self, samples: Count = 7, scale: Finite = 30.0, shift: Finite = 30.0, kl_weight: NotNegative = 1e-5
    ) -> None:
        super().__init__()
        self.samples = samples
        self.scale = nn.Parameter(torch.tensor(float(scale)))
        self.shift = nn.Parameter(torch.tensor(float(shift)))
        self.kl_weight = kl_weight

    def forward(self, step: Step) -> Tensor:
        points, divergence = [], step.scores.new_zeros(())
        for side in (step.v, step.t):
            mean, log_variance = side.needed("vectors"), side.needed("log_variance")
            points.append(sample_gaussians(mean, log_variance, self.samples))  # (rows, J, D)
            divergence = divergence - 0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
        matching = soft_contrastive(points[0], points[1], self.scale, self.shift, step.positives)
        return 2 * matching + self.kl_weight * divergence
