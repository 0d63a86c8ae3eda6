"""Networks of timm and torchvision that turn a photograph into features of cells, patches or regions."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from vsecore.data import weights as weight_files
from vsecore.data.files import digest_of, expanded
from vsecore.data.picture_files import Picture, open_picture
from vsecore.data.splits import FeatureKind
from vsecore.data.weights import sha256_of
from vsecore.typed import unknown

if TYPE_CHECKING:
    from vsecore.data.regions import Detector  # brings torchvision, which takes seconds

MOBILENET = "mobilenetv2_100_same"
"""timm's MobileNetV2 as TensorFlow runs it, with TensorFlow's padding and input from -1 to 1."""


class Backbone(nn.Module):
    """A network from pictures to elements: the cells of a grid, or patches.

    Args:
        name: what `load_backbone` was asked for.
        network: from normalised pictures to a map (B, F, h, w) or to elements (B, N, F).
        normalise: from uint8 to what the network was trained on.
        picture_size: the side of a picture, in pixels.
        kind: "grid" if the network makes a map, "patch" if it makes tokens; None: decided by the
            shape of its output.
    """

    kind: FeatureKind  #: "grid", "patch", or "region" if it finds boxes
    elements: int  #: N, how many a picture has
    feature_dim: int  #: F, the width of one
    longest: int | None = None
    """None: a picture is squashed to a square. Else it keeps its proportions: its shorter side becomes
    `picture_size`, or its longer one `longest`, whichever makes it smaller."""
    batch_size = 32  #: how many pictures at a time are a good choice

    def __init__(
        self,
        name: str,
        network: nn.Module,
        normalise: nn.Module,
        picture_size: int,
        kind: FeatureKind | None = None,
    ) -> None:
        super().__init__()
        self.name, self.picture_size = name, picture_size
        self.network, self.normalise = network, normalise
        self.eval()
        with torch.no_grad():
            blank = torch.zeros(1, 3, picture_size, picture_size, dtype=torch.uint8)
            seen = network(normalise(blank.to(next(self.parameters(), blank).device)))
        self.kind = kind or ("grid" if seen.dim() == 4 else "patch")
        self.elements, self.feature_dim = _as_elements(seen).shape[1:]

    def forward(self, pictures: Tensor) -> Tensor:
        """Compute the features of pictures, (B, N, F), row by row from the top left.

        Pictures are (B, 3, picture_size, picture_size) uint8, RGB.
        """
        wanted = (3, self.picture_size, self.picture_size)
        if pictures.dtype != torch.uint8 or pictures.dim() != 4 or pictures.shape[1:] != wanted:
            raise ValueError(
                f"pictures are {pictures.dtype} {(*pictures.shape,)}: wanted uint8 (B, *{wanted})"
            )
        return _as_elements(self.network(self.normalise(pictures)))

    def features_and_boxes(self, pictures: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute the features of pictures, and the boxes of their elements if they have any.

        Args:
            pictures: (B, 3, H, W) uint8, RGB.
            sizes: (B, 4) height and width of each in there, and of its file.

        Returns:
            Features (B, N, F), and boxes (B, N, 4) in pixels of the file, or None.
        """
        return self(pictures), None

    def decode(self, picture: Picture) -> tuple[np.ndarray, tuple[int, int]]:
        """Return a picture as the network wants it, (h, w, 3) uint8, and the size its boxes refer to."""
        size = self.picture_size
        if self.longest is None:
            # At no less than twice the wanted size: faster than in full, and still twice as fine.
            seen = open_picture(picture, at_least=2 * size).resize((size, size), Image.Resampling.BICUBIC)
            return np.asarray(seen), (size, size)
        seen = open_picture(picture)
        scale = min(size / min(seen.size), self.longest / max(seen.size))
        width, height = (max(1, round(scale * side)) for side in seen.size)
        resized = seen.resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(resized), (seen.height, seen.width)

    def fingerprint(self) -> str:
        """Return a sha256 over the weights: two backbones with the same one give the same features."""
        return sha256_of(self.state_dict(), self.name)


class MirroredBackbone(Backbone):
    """A grid or patch network that sees each picture twice, as it is and mirrored.

    A dog that runs to the left is the same dog, but the network's features of it differ a little. A pool
    over all elements sees both.
    """

    def __init__(self, backbone: Backbone) -> None:
        if backbone.kind == "region":
            raise ValueError(f"{backbone.name} finds regions, of which a mirror image has others")
        name = f"{backbone.name}, mirrored"
        super().__init__(name, backbone.network, backbone.normalise, backbone.picture_size, backbone.kind)
        self.elements *= 2

    def forward(self, pictures: Tensor) -> Tensor:
        """Return the elements of `Backbone.forward`, followed by those of the mirror images, (B, 2N, F)."""
        return torch.cat([super().forward(pictures), super().forward(pictures.flip(-1))], 1)


class RegionBackbone(Backbone):
    """A detector: the elements of a picture are its best boxes."""

    kind = "region"
    batch_size = 4  # the pictures are large, and a detector keeps four maps of each

    def __init__(
        self, name: str, detector: "Detector", normalise: nn.Module, picture_size: int, longest: int
    ) -> None:
        nn.Module.__init__(self)
        self.name, self.picture_size, self.longest = name, picture_size, longest
        self.network, self.normalise = detector, normalise
        self.elements = detector.count
        self.feature_dim = detector.model.roi_heads.box_predictor.cls_score.in_features
        self.eval()

    def forward(self, pictures: Tensor) -> Tensor:
        """Compute the features of pictures (B, 3, H, W) of one size: (B, N, F), best box first."""
        sizes = torch.tensor([[*pictures.shape[-2:]] * 2] * len(pictures))
        return self.features_and_boxes(pictures, sizes)[0]

    def features_and_boxes(self, pictures: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor | None]:
        inside = [(int(height), int(width)) for height, width in sizes[:, :2]]
        seen = self.normalise(pictures)
        for picture, (height, width) in zip(seen, inside, strict=True):
            picture[:, height:] = 0
            picture[:, :, width:] = 0
        features, boxes = self.network(seen, inside)
        scale = (sizes[:, 2:] / sizes[:, :2]).flip(1).repeat(1, 2)  # (B, 4): across, down, across, down
        return features, boxes * scale.to(boxes)[:, None]


def load_backbone(
    name: str, weights: str | Path | None = None, picture_size: int | None = None, untrained: bool = False
) -> Backbone:
    """Load a trained network that turns pictures into features.

    Args:
        name: a network of timm with its weights ("resnet152.tv_in1k", torchvision's first ones, which papers
            had; else timm chooses them), `MOBILENET`, or a detector of torchvision
            ("torchvision/fasterrcnn_resnet50_fpn").
        weights: a local file, safetensors or `.pth`; None: those that the library publishes, downloaded once.
        picture_size: the side of the pictures, for a detector the shorter one; None: what the network was
            trained on. A network that makes patches takes no other.
        untrained: leave the weights random, since they will come from a checkpoint.

    Raises:
        ValueError: an unknown name, or weights that do not fit, or are known to be those of another network.
        FileNotFoundError: no such weights file, or published weights cannot be downloaded.
    """
    load = _load_detector if name.startswith("torchvision/") else _load_timm
    return load(name, None if weights is None else expanded(weights), picture_size, untrained)


def _load_timm(name: str, weights: Path | None, picture_size: int | None, untrained: bool) -> Backbone:
    import timm  # takes seconds to import, and only extraction needs it

    architecture = "mobilenetv2_100" if name == MOBILENET else name
    options: dict[str, Any] = {"pad_type": "same"} if name == MOBILENET else {}
    try:
        published = timm.get_pretrained_cfg(architecture)
    except RuntimeError:  # timm has published no weights of this name ("resnet50.NAME")
        published = None
    if not timm.is_model(architecture) or (published is None and "." in architecture):
        raise unknown("backbone", name, [*timm.list_models(), MOBILENET], "timm.list_models()")
    if untrained or weights is not None:
        network = timm.create_model(architecture, pretrained=False, **options)
        if weights is not None:
            weight_files.fill(network, weights, name)
    elif name == MOBILENET or published is None or not published.hf_hub_id:
        where = "--weights; in Python, weights="
        raise ValueError(f"nobody publishes weights for {name}: name a local file ({where})")
    else:
        with weight_files.named_if_it_fails(name, published.hf_hub_id):  # from safetensors, or tensors alone
            network = timm.create_model(architecture, pretrained=True)
    config = timm.data.resolve_model_data_config(network)
    fixed = bool(config.get("fixed_input_size")) or hasattr(network, "patch_embed")  # as ViTs have it
    size = _checked_picture_size(name, config["input_size"][-1], picture_size, fixed)
    mean, std = (config["mean"], config["std"]) if name != MOBILENET else ((0.5,) * 3, (0.5,) * 3)
    return Backbone(name, _TimmFeatures(network), _Normalise(mean, std), size)


def _load_detector(name: str, weights: Path | None, picture_size: int | None, untrained: bool) -> Backbone:
    from torchvision import models

    from vsecore.data.regions import Detector

    architecture = name.removeprefix("torchvision/")
    known = models.list_models(module=models.detection, include="fasterrcnn_*")
    if architecture not in known:
        raise unknown("backbone", name, [f"torchvision/{one}" for one in known])
    published = next(iter(models.get_model_weights(architecture)))
    if weights is None and not untrained:
        weight_files.fetch_published(name, published.url)
        network = models.get_model(architecture, weights=published)
    else:
        network = models.get_model(architecture, weights=None, weights_backbone=None)
        if weights is not None:
            weight_files.fill(network, weights, name)
            _use_published_epsilon(network, architecture, weights, published.url)
    side, longest = network.transform.min_size[0], network.transform.max_size
    size = _checked_picture_size(name, side, picture_size, fixed=False)
    normalise = _Normalise(network.transform.image_mean, network.transform.image_std)
    return RegionBackbone(name, Detector(network), normalise, size, round(size * longest / side))


def _checked_picture_size(name: str, trained: int, wanted: int | None, fixed: bool) -> int:
    if wanted in (None, trained):
        return trained
    if fixed or wanted < 32:
        limit = f"{trained} and no others" if fixed else "at least 32"
        raise ValueError(f"picture_size is {wanted}: {name} takes pictures of {limit}")
    return wanted


def _use_published_epsilon(network: nn.Module, architecture: str, weights: Path, url: str) -> None:
    """Let the published weights of the first detector divide by plain variances, as torchvision does."""
    begins = url.rpartition("-")[2].removesuffix(".pth")  # a published file has its digest in its name
    if architecture == "fasterrcnn_resnet50_fpn" and digest_of(weights).hex().startswith(begins):
        for layer in network.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eps = 0.0


class _Normalise(nn.Module):
    """Turn uint8 into floats with the mean and spread that a network was trained on."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        # In units of a byte, so that normalising is one subtraction and one division.
        self.register_buffer("mean", 255 * torch.tensor(mean)[:, None, None])
        self.register_buffer("std", 255 * torch.tensor(std)[:, None, None])

    def forward(self, pictures: Tensor) -> Tensor:
        return (pictures.to(self.mean.dtype) - self.mean) / self.std


class _TimmFeatures(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pictures: Tensor) -> Tensor:
        seen = self.model.forward_features(pictures)
        if not isinstance(seen, Tensor):
            raise ValueError(f"{type(self.model).__name__} gives several maps at once: choose another")
        if seen.dim() == 3:
            return seen[:, getattr(self.model, "num_prefix_tokens", 0) :]  # without class token and registers
        channels_last = seen.shape[1] != self.model.num_features  # as Swin has them
        return seen.permute(0, 3, 1, 2) if channels_last else seen


def _as_elements(seen: Tensor) -> Tensor:
    """Return a map (B, F, h, w) as its cells (B, h·w, F); leave elements as they are."""
    return seen.flatten(2).mT if seen.dim() == 4 else seen
