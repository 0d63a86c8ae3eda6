"""From a picture's features, or its pixels, to elements of the joint width.

Every encoder is called as `encoder(pictures, mask)` with pictures (B, N, F) and a bool mask (B, N), True
where an element is real (None: all are), and returns the elements (B, N, D) with their mask.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import relu


class GridEncoder(nn.Module):
    """Cells of a convolutional network's last map, each projected alone.

    Args:
        feature_dim: width F of a cell.
        dim: width D of the joint space.
        backbone: pixels (B, 3, H, W) to cells, as a map (B, F, h, w) or as (B, N, F). With it the encoder
            reads pixels and is trained end to end; without it, features that were extracted before.

    Source: Faghri et al. 2018 (VSE++), section 3.1: a linear projection of what the network sees; cell by
    cell as in Chen et al. 2021 (VSE-infinity).
    """

    def __init__(self, feature_dim: int, dim: int, backbone: nn.Module | None = None) -> None:
        super().__init__()
        self.backbone = backbone
        self.feature_dim = feature_dim
        self.project = projection(feature_dim, dim)

    def forward(self, pictures: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode features (B, N, F), or pixels (B, 3, H, W) where there is a backbone.

        Raises:
            ValueError: another shape, or a mask that does not go with it.
        """
        if self.backbone is not None:
            pictures = _cells(self.backbone, pictures)  # (B, N, F)
        check_features(pictures, mask, self.feature_dim)
        return self.project(pictures), mask  # (B, N, D)


class RegionEncoder(nn.Module):
    """Regions that a detector cut out: a projection and, added to it, a small network of two layers.

    The network's batch normalisation learns from real regions alone: padding that took part in it would
    change what the others become.

    Args:
        feature_dim: width F of a region.
        dim: width D of the joint space.

    Source: Chen et al. 2021 (VSE-infinity), where the released code normalises over the padding too.
    """

    def __init__(self, feature_dim: int, dim: int) -> None:
        super().__init__()
        self.backbone: nn.Module | None = None  # detectors are not trained along
        self.feature_dim = feature_dim
        self.project = projection(feature_dim, dim)
        self.hidden = nn.Linear(feature_dim, dim // 2)
        self.normalise = nn.BatchNorm1d(dim // 2)
        self.out = nn.Linear(dim // 2, dim)

    def forward(self, pictures: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode features (B, N, F).

        Raises:
            ValueError: another shape, or a mask that does not go with it.
        """
        check_features(pictures, mask, self.feature_dim)
        regions = pictures.flatten(0, 1) if mask is None else pictures[mask]  # (R, F)     the real ones
        hidden = relu(self.normalise(self.hidden(regions)))  # (R, D/2)
        encoded = self.project(regions) + self.out(hidden)  # (R, D)
        if mask is None:
            return encoded.unflatten(0, pictures.shape[:2]), mask  # (B, N, D)
        elements = encoded.new_zeros(*mask.shape, encoded.shape[1])  # (B, N, D)
        return elements.masked_scatter(mask.unsqueeze(-1), encoded), mask


class PatchEncoder(nn.Module):
    """Patches of a vision transformer, each projected alone.

    The elements are patches only. Class and register tokens speak of the whole picture, as a pool does; those
    of a `backbone` that says how many it puts in front (timm's `num_prefix_tokens`) are left out.

    Args:
        feature_dim: width F of a patch.
        dim: width D of the joint space.
        backbone: pixels (B, 3, H, W) to tokens (B, P + N, F), as timm's ``create_model(..., global_pool="",
            num_classes=0)`` makes them. With it the encoder reads pixels and is trained end to end.

    Source: patches as elements, Zhang et al. 2022 (2AD).
    """

    def __init__(self, feature_dim: int, dim: int, backbone: nn.Module | None = None) -> None:
        super().__init__()
        self.backbone = backbone
        self.feature_dim = feature_dim
        self.project = projection(feature_dim, dim)

    def forward(self, pictures: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode features (B, N, F), or pixels (B, 3, H, W) where there is a backbone.

        Raises:
            ValueError: another shape, or a mask that does not go with it.
        """
        if self.backbone is not None:
            prefix = int(getattr(self.backbone, "num_prefix_tokens", 0))
            pictures = _cells(self.backbone, pictures)[:, prefix:]  # (B, N, F)
        check_features(pictures, mask, self.feature_dim)
        return self.project(pictures), mask  # (B, N, D)


def projection(width: int, dim: int) -> nn.Linear:
    """A linear layer that begins as VSE++ begins: Xavier's uniform weights, zero bias.

    Source: Faghri et al. 2018, released code.
    """
    linear = nn.Linear(width, dim)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def check_features(pictures: Tensor, mask: Tensor | None, width: int) -> None:
    """Refuse pictures that are not (B, N, width), and a mask that is not bool (B, N).

    Raises:
        ValueError: naming what came and what is wanted.
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


def _cells(backbone: nn.Module, pixels: Tensor) -> Tensor:
    if pixels.ndim != 4:
        raise ValueError(f"pictures must be pixels (B, 3, H, W) for the backbone, got {tuple(pixels.shape)}")
    features = backbone(pixels)
    if features.ndim == 4:
        features = features.flatten(2).transpose(1, 2)  # (B, F, h, w) -> (B, N, F)
    return features
