"""From a picture's features, or its pixels, to elements of the joint width."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from vsecore.arguments import Count, Share, checked
from vsecore.encoders.base import ImageEncoder
from vsecore.masking import without_padding
from vsecore.normalisation import ElementNorm


class CellEncoder(ImageEncoder):
    """Cells of a picture, each projected on its own: the grid of a CNN or the patches of a transformer.

    Args:
        feature_dim: width F of a cell.
        dim: width D of the joint space.
        backbone: turns pixels (B, 3, H, W) into a map (B, F, h, w), or into tokens (B, P + N, F) as timm's
            ``create_model(..., global_pool="", num_classes=0)`` does. With a backbone the encoder reads
            pixels and the backbone is trained too; without one it reads features extracted beforehand.
            Class and register tokens describe the whole picture, so the first P tokens are left out, where P
            is the backbone's `num_prefix_tokens` (none if it has no such attribute).
        drop: the share of each cell's features left out in training, so that a model trained on few pictures
            does not rely on single features.

    Source: Faghri et al. 2018 (VSE++), section 3.1: a linear projection of the image features; cell by cell
    as in Chen et al. 2021 (VSE-infinity); patches as in Zhang et al. 2022 (2AD).
    """

    @checked
    def __init__(
        self, feature_dim: Count, dim: Count, backbone: nn.Module | None = None, drop: Share = 0.0
    ) -> None:
        super().__init__()
        self.backbone, self.drop = backbone, drop
        self.feature_dim = feature_dim
        self.project = projection(feature_dim, dim)

    def forward(self, pictures: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode features (B, N, F), or pixels (B, 3, H, W) if there is a backbone."""
        if self.backbone is not None:
            if pictures.ndim != 4:
                shape = tuple(pictures.shape)
                raise ValueError(f"pictures must be pixels (B, 3, H, W) for the backbone, got {shape}")
            features = self.backbone(pictures)
            if features.ndim == 4:
                pictures = features.flatten(2).transpose(1, 2)  # (B, F, h, w) -> (B, N, F)
            else:
                pictures = features[:, getattr(self.backbone, "num_prefix_tokens", 0) :]  # (B, N, F)
        check_features(pictures, mask, self.feature_dim)
        cells = dropout(without_padding(pictures, mask), self.drop, self.training)  # (B, N, F)
        return self.project(cells), mask  # (B, N, D)


class RegionEncoder(ImageEncoder):
    """Regions that a detector found: a projection plus a small network of two layers.

    The network's batch normalisation learns only from real regions, so that padding never changes a result.
    Processes that train together normalise by their joint batch.

    Args:
        feature_dim: width F of a region.
        dim: width D of the joint space.

    Source: Chen et al. 2021 (VSE-infinity); the released code normalises over the padding too.
    """

    @checked
    def __init__(self, feature_dim: Count, dim: Count) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.project = projection(feature_dim, dim)
        self.hidden = nn.Linear(feature_dim, dim // 2)
        self.normalise = ElementNorm(dim // 2)
        self.out = nn.Linear(dim // 2, dim)

    def forward(self, pictures: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode features (B, N, F)."""
        check_features(pictures, mask, self.feature_dim)
        regions = without_padding(pictures, mask)  # (B, N, F)
        hidden = relu(self.normalise(self.hidden(regions), mask))  # (B, N, D/2)
        return self.project(regions) + self.out(hidden), mask  # (B, N, D)


def projection(width: int, dim: int) -> nn.Linear:
    """Make a linear layer initialised as in VSE++: Xavier-uniform weights, zero bias.

    Source: Faghri et al. 2018, released code.
    """
    linear = nn.Linear(width, dim)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def check_features(pictures: Tensor, mask: Tensor | None, width: int) -> None:
    """Refuse pictures that are not (B, N, width), and a mask that is not bool (B, N).

    Raises:
        ValueError: something else came; the message says what, and what is wanted.
    """
    shape = tuple(pictures.shape)
    if pictures.ndim == 4:
        raise ValueError(
            f"pictures are pixels {shape}, and this encoder has no backbone: give it one, or features"
        )
    if pictures.ndim != 3 or pictures.shape[2] != width or not pictures.is_floating_point():
        raise ValueError(f"pictures must be floating point (B, N, {width}), got {pictures.dtype} {shape}")
    if mask is not None and (mask.dtype != torch.bool or mask.shape != shape[:2]):
        raise ValueError(f"mask must be bool {shape[:2]}, got {mask.dtype} {tuple(mask.shape)}")
