"""From a picture's features, or its pixels, to elements of the joint width."""

from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from vsecore.arguments import Count, Share, checked
from vsecore.encoders.base import ImageEncoder
from vsecore.masking import checked_elements
from vsecore.normalisation import ElementNorm, projection


class CellEncoder(ImageEncoder):
    """Cells of a picture, each projected on its own: the grid of a CNN or the patches of a transformer.

    Args:
        feature_dim: width F of a cell.
        dim: width D of the joint space.
        backbone: turns pixels (B, 3, H, W) into features (B, N, F), as a `data.backbones.Backbone` does. With
            one the encoder reads pixels, and the backbone is trained too; without one it reads features that
            were extracted beforehand.
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

    @property
    def is_linear(self) -> bool:
        """Whether it only projects: it has no backbone, and leaves nothing out."""
        return type(self) is CellEncoder and self.backbone is None and not (self.drop and self.training)

    def forward(self, pictures: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode features (B, N, F), or pixels (B, 3, H, W) if there is a backbone."""
        if self.backbone is not None:
            pictures = self.backbone(pictures)  # (B, N, F)
        cells = checked_elements(pictures, mask, self.feature_dim, "pictures")  # (B, N, F)
        return self.project(dropout(cells, self.drop, self.training)), mask  # (B, N, D)


class RegionEncoder(ImageEncoder):
    """Regions that a detector found: a projection plus a small network of two layers.

    The network's batch normalisation learns only from real regions, so that padding never changes a result.
    Processes that train together normalise by their joint batch.

    Args:
        feature_dim: width F of a region.
        dim: width D of the joint space.
        drop: the share of the encoded regions' dimensions that is left out in training.

    Source: Chen et al. 2021 (VSE-infinity); the released code normalises over the padding too.
    """

    @checked
    def __init__(self, feature_dim: Count, dim: Count, drop: Share = 0.0) -> None:
        super().__init__()
        self.feature_dim, self.drop = feature_dim, drop
        self.project = projection(feature_dim, dim)
        self.hidden = nn.Linear(feature_dim, dim // 2)
        self.normalise = ElementNorm(dim // 2)
        self.out = nn.Linear(dim // 2, dim)

    def forward(self, pictures: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode features (B, N, F)."""
        regions = checked_elements(pictures, mask, self.feature_dim, "pictures")  # (B, N, F)
        hidden = relu(self.normalise(self.hidden(regions), mask))  # (B, N, D/2)
        encoded = self.project(regions) + self.out(hidden)  # (B, N, D)
        return dropout(encoded, self.drop, self.training), mask
