"""Every network that turns pictures into features, by its name: the world's own, and the published ones."""

from pathlib import Path

from torch import nn

from vsecore.data.backbones import Backbone, load_backbone
from vsecore.scenes.facts import SIDE
from vsecore.scenes.networks import NETWORKS, load_network


def find_backbone(name: str, weights: Path | None = None, picture_size: int | None = None) -> Backbone:
    """A network by name: one of the embedded world's ("scenes-cnn", "scenes-vit"), or `load_backbone`'s.

    Raises:
        ValueError: an unknown name, or weights or a size of pictures that do not fit.
        FileNotFoundError: the weights are missing.
    """
    if name not in NETWORKS:
        return load_backbone(name, weights, picture_size)
    if picture_size not in (None, SIDE):
        raise ValueError(f"picture_size is {picture_size}: {name} takes pictures of {SIDE} and no others")
    if weights is not None:
        raise ValueError(f"{name} has its own weights: leave --weights out")
    network = load_network(name)
    return Backbone(name, network, nn.Identity(), SIDE, network.kind)
