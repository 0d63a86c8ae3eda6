"""From the pixels of a picture to elements: a pretrained network that is trained with the rest."""

from pathlib import Path

import torch

from vsecore.data.backbones import Backbone, load_backbone
from vsecore.data.photographs import View
from vsecore.encoders.pictures import CellEncoder

MARGIN = 256 / 224
"""The shorter side of a picture before its middle is cut out, in sides of the cut."""


class PixelEncoder(CellEncoder):
    """Pixels read by a network of timm or torchvision, each of its cells or patches then projected.

    The network's weights are trained too, at a learning rate of their own (`Training.picture_factor`), and if
    you like only after some epochs (`Training.frozen_epochs`). Its batch normalisation stays as it was,
    statistics and weights, since the batches of retrieval are small and the pictures few.

    Args:
        dim: width D of the joint space.
        network: a name that `data.backbones.load_backbone` knows, such as "resnet152.tv_in1k"; without what
            follows the dot, timm chooses among published weights.
        weights: a file of its weights; "": those that the library publishes, downloaded once.
        picture_size: the side of the square that it sees, in pixels.
        smallest_crop: in training, the smallest share of a picture that a random cut keeps; see `View`.
        flip: whether half of the pictures are mirrored in training.
        drop: as for `CellEncoder`.
        architecture: not None: the weights come from a run's checkpoint, so none are read here.

    Source: Faghri et al. 2018 (VSE++), section 4.1, for the cuts and for training the network last; Kim, Kim
    and Kwak 2023 (DivE), appendix, for its own learning rate, the fixed batch normalisation and an epoch
    without training the network, as in the code of Chen et al. 2021 (VSE-infinity).
    """

    reads = "pixels"

    def __init__(
        self,
        dim: int,
        network: str = "resnet50",
        weights: str = "",
        picture_size: int = 224,
        smallest_crop: float = 0.08,
        flip: bool = True,
        drop: float = 0.0,
        architecture: Path | None = None,
    ) -> None:
        from timm.layers import freeze_batch_norm_2d  # takes seconds to import, and only pixels need it

        trained = architecture is None
        if network.startswith("torchvision/fasterrcnn_"):
            raise ValueError(
                f"network is {network}: no detector is trained here; extract its regions instead"
            )
        built = load_backbone(network, (weights or None) if trained else None, picture_size, not trained)
        built.network = freeze_batch_norm_2d(built.network)
        if trained:  # else it is loaded, and nothing of it trains
            _freeze_unused(built)
        super().__init__(built.feature_dim, dim, built, drop)
        self.view = self.sees(picture_size, smallest_crop, flip)

    @classmethod
    def sees(cls, picture_size: int = 224, smallest_crop: float = 0.08, flip: bool = True) -> View:
        """Return how photographs must be cut for an encoder with these options, before it is built."""
        resize = round(picture_size * MARGIN)
        return View(picture_size, resize, "bicubic", smallest_crop, flip)


def _freeze_unused(backbone: Backbone) -> None:
    """Freeze the weights that no element depends on, such as a classifier's: nothing would train them."""
    side = backbone.picture_size
    with torch.enable_grad():
        backbone(torch.zeros(1, 3, side, side, dtype=torch.uint8)).sum().backward()
    for weight in backbone.parameters():
        weight.requires_grad_(weight.grad is not None)
        weight.grad = None
