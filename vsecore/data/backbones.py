"""Pretrained networks that turn a photograph into the features of its cells, patches or regions.

The networks come from timm and torchvision. This module adds one interface (`Backbone`), and loads weights
from a local file with errors that say what is wrong.
"""

import contextlib
import difflib
import hashlib
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from vsecore.data.regions import Detector
from vsecore.data.splits import FeatureKind
from vsecore.typed import short

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
"""Types that hold weights on their own: smaller ones need scales beside them."""
MOBILENET = "mobilenetv2_100_same"
"""timm's MobileNetV2 as TensorFlow runs it, with TensorFlow's padding and input from -1 to 1."""


class Backbone(nn.Module):
    """A network from pictures to elements: the cells of a grid, or patches.

    Args:
        name: what `load_backbone` was asked for.
        network: from normalised pictures to a map (B, F, h, w) or to elements (B, N, F).
        normalise: from uint8 to what the network was trained on.
        picture_size: the side of a picture, in pixels.
        kind: "grid" if the network makes a map, "patch" if it makes tokens; None: by the shape of what it
            makes.

    Attributes:
        kind: "grid", "patch", or "region" if it finds boxes.
        elements: N, how many a picture has.
        feature_dim: F, the width of one.
        longest: None: a picture is squashed to a square. Else it keeps its proportions: its shorter side
            becomes `picture_size`, or its longer one `longest`, whichever makes it smaller.
        batch_size: how many pictures at a time are a good choice.
    """

    kind: FeatureKind
    longest: int | None = None
    batch_size = 32

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
            seen = network(normalise(blank))
        self.kind = kind or ("grid" if seen.dim() == 4 else "patch")
        self.elements, self.feature_dim = _as_elements(seen).shape[1:]

    def forward(self, pictures: Tensor) -> Tensor:
        """Compute the features of pictures.

        Args:
            pictures: (B, 3, picture_size, picture_size) uint8, RGB.

        Returns:
            (B, N, F), row by row from the top left.

        Raises:
            ValueError: another shape or type.
        """
        wanted = (3, self.picture_size, self.picture_size)
        if pictures.dtype != torch.uint8 or pictures.dim() != 4 or pictures.shape[1:] != wanted:
            raise ValueError(
                f"pictures are {pictures.dtype} {tuple(pictures.shape)}: {self.name} wants "
                f"uint8 (B, {', '.join(map(str, wanted))})"
            )
        return _as_elements(self.network(self.normalise(pictures)))

    def look(self, pictures: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute the features of pictures, and the boxes of their elements if they have any.

        Args:
            pictures: (B, 3, H, W) uint8, RGB, from `decoding.look_ahead`.
            sizes: (B, 4) height and width of each in there, and of its file.

        Returns:
            Features (B, N, F), and boxes (B, N, 4) in pixels of the file, or None.
        """
        return self(pictures), None

    def fingerprint(self) -> str:
        """Return a sha256 over the weights: two backbones with the same one give the same features."""
        digest = hashlib.sha256(self.name.encode())
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()


class MirroredBackbone(Backbone):
    """A network that sees each picture twice, as it is and in a mirror: twice the elements.

    A dog that runs to the left is the same dog, but the network's features of it differ a little. A pool
    over all elements sees both.

    Args:
        backbone: the network, of a grid or of patches.

    Raises:
        ValueError: it finds regions.
    """

    def __init__(self, backbone: Backbone) -> None:
        if backbone.kind == "region":
            raise ValueError(
                f"{backbone.name} finds regions, of which a mirror image has others: leave it out"
            )
        name = f"{backbone.name}, mirrored"
        super().__init__(name, backbone.network, backbone.normalise, backbone.picture_size, backbone.kind)
        self.elements *= 2

    def forward(self, pictures: Tensor) -> Tensor:
        """Return the elements (B, N, F) of `Backbone.forward`, followed by those of the mirror images.

        Returns:
            (B, 2N, F).

        Raises:
            ValueError: another shape or type.
        """
        return torch.cat([super().forward(pictures), super().forward(pictures.flip(-1))], 1)


class RegionBackbone(Backbone):
    """A detector: the elements of a picture are its best boxes.

    Args:
        name: what `load_backbone` was asked for.
        detector: from normalised pictures to features and boxes.
        normalise: from uint8 to what the network was trained on.
        picture_size: the shorter side of a picture, in pixels.
        longest: what its longer side may have at most.
    """

    kind = "region"
    batch_size = 4  # the pictures are large, and a detector keeps four maps of each

    def __init__(
        self, name: str, detector: Detector, normalise: nn.Module, picture_size: int, longest: int
    ) -> None:
        nn.Module.__init__(self)
        self.name, self.picture_size, self.longest = name, picture_size, longest
        self.network, self.normalise = detector, normalise
        self.elements = detector.count
        self.feature_dim = detector.model.roi_heads.box_predictor.cls_score.in_features
        self.eval()

    def forward(self, pictures: Tensor) -> Tensor:
        """Compute the features of pictures that all have the same size.

        Args:
            pictures: (B, 3, H, W) uint8, RGB.

        Returns:
            (B, N, F), best box first.

        Raises:
            ValueError: another shape or type.
        """
        height, width = pictures.shape[-2:]
        return self.look(pictures, torch.tensor([[height, width, height, width]] * len(pictures)))[0]

    def look(self, pictures: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute the features of pictures, and their boxes in pixels of the files: see `Backbone.look`.

        Raises:
            ValueError: another shape or type.
        """
        if pictures.dtype != torch.uint8 or pictures.dim() != 4 or pictures.shape[1] != 3:
            raise ValueError(
                f"pictures are {pictures.dtype} {tuple(pictures.shape)}: {self.name} wants uint8 (B, 3, H, W)"
            )
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
        name: a network of timm with its weights ("resnet152.tv_in1k"; else timm chooses them), one of
            torchvision with its first weights ("torchvision/resnet152"), a detector of torchvision
            ("torchvision/fasterrcnn_resnet50_fpn"), or "mobilenetv2_100_same" (timm's with TensorFlow's
            padding and input).
        weights: a local file, safetensors or `.pth`; None: those that the library publishes, downloaded once.
        picture_size: the side of the pictures, for a detector the shorter one; None: what the network was
            trained on. A network that makes patches takes no other.
        untrained: leave the weights random, since they will come from a checkpoint.

    Raises:
        ValueError: an unknown name, or weights that do not fit.
        FileNotFoundError: no such weights file, or published weights cannot be downloaded.
    """
    if name.startswith("torchvision/fasterrcnn_"):
        return _torchvision_detector(name, weights, picture_size, untrained)
    if name.startswith("torchvision/"):
        return _torchvision_backbone(name, weights, picture_size, untrained)
    return _timm_backbone(name, weights, picture_size, untrained)


def _timm_backbone(
    name: str, weights: str | Path | None, picture_size: int | None, untrained: bool
) -> Backbone:
    import timm  # takes seconds to import, and only extraction needs it

    architecture = "mobilenetv2_100" if name == MOBILENET else name
    options: dict[str, Any] = {"pad_type": "same"} if name == MOBILENET else {}
    try:
        published = timm.get_pretrained_cfg(architecture)
    except RuntimeError:  # timm has published no weights of this name ("resnet50.NAME")
        published = None
    if not timm.is_model(architecture) or (published is None and "." in architecture):
        raise _unknown(name, [*timm.list_models(), MOBILENET])
    if not untrained and weights is None:
        if name == MOBILENET or published is None or not published.hf_hub_id:
            raise ValueError(f"nobody publishes weights for {name}: name a local file (--weights)")
        weights = _fetch_from_hub(name, published.hf_hub_id, published.hf_hub_filename or "model.safetensors")
        overlay = {"file": str(weights)}
        network = timm.create_model(architecture, pretrained=True, pretrained_cfg_overlay=overlay, **options)
    else:
        network = timm.create_model(architecture, pretrained=False, **options)
        if weights is not None:
            _load_weights(network, weights, name)
    config = timm.data.resolve_model_data_config(network)
    fixed = bool(config.get("fixed_input_size")) or hasattr(network, "patch_embed")  # as ViTs have it
    size = _checked_picture_size(name, config["input_size"][-1], picture_size, fixed)
    mean, std = (config["mean"], config["std"]) if name != MOBILENET else ((0.5,) * 3, (0.5,) * 3)
    return Backbone(name, _TimmFeatures(network), _Normalise(mean, std), size)


def _torchvision_backbone(
    name: str, weights: str | Path | None, picture_size: int | None, untrained: bool
) -> Backbone:
    import torchvision

    architecture = name.removeprefix("torchvision/")
    known = torchvision.models.list_models(module=torchvision.models)
    if architecture not in known:
        raise _unknown(name, [f"torchvision/{one}" for one in known])
    # The first ones, which papers had: later ones have the same architecture, but were trained otherwise.
    published = next(iter(torchvision.models.get_model_weights(architecture)))
    network = _torchvision_network(name, published, weights, untrained, {})
    is_vit = isinstance(network, torchvision.models.VisionTransformer)
    size = _checked_picture_size(name, published.transforms().crop_size[0], picture_size, is_vit)
    normalise = _Normalise(published.transforms().mean, published.transforms().std)
    if is_vit:
        return Backbone(name, _TorchvisionPatches(network), normalise, size)
    if hasattr(network, "layer4"):  # a ResNet: everything before the pooling
        layers = [layer for part, layer in network.named_children() if part not in ("avgpool", "fc")]
        return Backbone(name, nn.Sequential(*layers), normalise, size)
    if hasattr(network, "features"):
        return Backbone(name, _TorchvisionFeatures(network.get_submodule("features")), normalise, size)
    raise ValueError(
        f"{name} has neither layer4 nor features, where its map would be: choose a ResNet or timm's"
    )


def _torchvision_detector(
    name: str, weights: str | Path | None, picture_size: int | None, untrained: bool
) -> Backbone:
    import torchvision

    architecture = name.removeprefix("torchvision/")
    known = torchvision.models.list_models(module=torchvision.models.detection, include="fasterrcnn_*")
    if architecture not in known:
        raise _unknown(name, [f"torchvision/{one}" for one in known])
    published = torchvision.models.get_model_weights(architecture).DEFAULT
    network = _torchvision_network(name, published, weights, untrained, {"weights_backbone": None})
    if weights is not None:
        _use_published_epsilon(network, architecture, Path(weights).expanduser(), published.url)
    side, longest = network.transform.min_size[0], network.transform.max_size
    size = _checked_picture_size(name, side, picture_size, fixed=False)
    normalise = _Normalise(network.transform.image_mean, network.transform.image_std)
    return RegionBackbone(name, Detector(network), normalise, size, round(size * longest / side))


def _torchvision_network(
    name: str, published: Any, weights: str | Path | None, untrained: bool, options: dict[str, Any]
) -> Any:
    """Make one of torchvision's networks, with published weights, those of a local file, or random ones."""
    import torchvision

    architecture = name.removeprefix("torchvision/")
    if not untrained and weights is None:
        _fetch_published(name, published.url)
        return torchvision.models.get_model(architecture, weights=published)
    network = torchvision.models.get_model(architecture, weights=None, **options)
    if weights is not None and not untrained:
        _load_weights(network, weights, name)
    return network


def _unknown(name: str, known: Sequence[str]) -> ValueError:
    near = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {', '.join(near)}?" if near else 'write a name of timm, or "torchvision/resnet50"'
    return ValueError(f"unknown backbone {short(name)}: {hint}")


def _fetch_from_hub(name: str, hub: str, file_name: str) -> Path:
    """Download a network's safetensors, since a pickle can run code, and return the file.

    This comes before the network is made, so that an unreachable hub is noticed at once.
    """
    file_name = file_name.replace("pytorch_model.bin", "model.safetensors")
    with _named_if_it_fails(name, hub):
        folder = huggingface_hub.snapshot_download(hub, allow_patterns=[file_name])
    path = Path(folder) / file_name
    if not path.is_file():
        raise FileNotFoundError(
            f"{hub} has no {file_name} for {name}: get a file of its weights and name it (--weights)"
        )
    _read_weights(path)  # says so if it is damaged
    return path


def _use_published_epsilon(network: nn.Module, architecture: str, weights: Path, url: str) -> None:
    """Let the published weights of the first detector divide by plain variances, as torchvision does."""
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    begins = url.rpartition("-")[2].removesuffix(".pth")  # a published file has its digest in its name
    if architecture == "fasterrcnn_resnet50_fpn" and digest.startswith(begins):
        for layer in network.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eps = 0.0


def _fetch_published(name: str, url: str) -> None:
    """Download what torchvision publishes, unless it is here, and make sure that it holds no code.

    torchvision publishes pickles, and would unpickle them. So first they are read as tensors and nothing
    else, which refuses one that holds code. Then torchvision may load the local file.
    """
    downloaded = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
    if not downloaded.is_file():
        with _named_if_it_fails(name, url):
            torch.hub.load_state_dict_from_url(url, map_location="cpu", check_hash=True, weights_only=True)
    _read_weights(downloaded)


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
            raise ValueError(
                f"{type(self.model).__name__} gives several maps at once: choose a network that gives one"
            )
        if seen.dim() == 3:
            return seen[:, getattr(self.model, "num_prefix_tokens", 0) :]  # without class token and registers
        channels_last = seen.shape[1] != self.model.num_features  # as Swin has them
        return seen.permute(0, 3, 1, 2) if channels_last else seen


class _TorchvisionFeatures(nn.Module):
    def __init__(self, features: nn.Module) -> None:
        super().__init__()
        self.features = features

    def forward(self, pictures: Tensor) -> Tensor:
        seen: Tensor = self.features(pictures)
        # Swin has its channels last: the two sides of its map are the middle axes, and are equal.
        square_in_the_middle = seen.shape[1] == seen.shape[2] != seen.shape[3]
        return seen.permute(0, 3, 1, 2) if square_in_the_middle else seen


class _TorchvisionPatches(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pictures: Tensor) -> Tensor:
        patches = self.model._process_input(pictures)  # (B, N, F)
        token = self.model.class_token.expand(len(pictures), -1, -1)
        seen: Tensor = self.model.encoder(torch.cat([token, patches], 1))  # (B, 1 + N, F)
        return seen[:, 1:]


def _as_elements(seen: Tensor) -> Tensor:
    """Return a map (B, F, h, w) as its cells (B, h·w, F); leave elements as they are."""
    return seen.flatten(2).mT if seen.dim() == 4 else seen


def _checked_picture_size(name: str, trained: int, wanted: int | None, fixed: bool) -> int:
    if wanted is None or wanted == trained:
        return trained
    if fixed:
        raise ValueError(f"picture_size is {wanted}: {name} takes pictures of {trained} and no others")
    if wanted < 32:
        raise ValueError(f"picture_size is {wanted}: wanted at least 32")
    return wanted


@contextlib.contextmanager
def _named_if_it_fails(name: str, source: str) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, huggingface_hub.errors.HfHubHTTPError) as error:
        raise FileNotFoundError(
            f"the weights of {name} are not here and cannot be downloaded: get the safetensors (or .pth) "
            f"file of {source} where there is a network, and name it (--weights)"
        ) from error


def _load_weights(network: nn.Module, path: str | Path, name: str) -> None:
    """Fill a network from a local file, which must hold all of its tensors and no others.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is damaged, or holds other tensors; its code is never run.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no weights file {path}: name the safetensors (or .pth) file of {name}")
    given, wanted = _read_weights(path), network.state_dict()
    # The number of batches that a normalisation has seen no longer matters, and is often left out.
    needed = [tensor for tensor in wanted if not tensor.endswith("num_batches_tracked")]
    for tensor in [*given, *needed]:
        value, right = given.get(tensor), wanted.get(tensor)
        problem = ""
        if right is None:
            problem = "is not one of its tensors"
        elif value is None:
            problem = "is missing"
        elif not isinstance(value, Tensor) or value.layout != torch.strided or value.is_meta:
            problem = f"is {short(value)}: wanted plain numbers"
        elif value.shape != right.shape:
            problem = f"has shape {tuple(value.shape)}, wanted {tuple(right.shape)}"
        elif value.dtype not in (FLOATS if right.is_floating_point() else (right.dtype,)):
            problem = f"holds {value.dtype}, wanted {right.dtype}"
        elif not value.isfinite().all():
            problem = "holds NaN or infinity"
        if problem:
            raise ValueError(f"{path} does not hold the weights of {name}: tensor {short(tensor)} {problem}")
    network.load_state_dict(given, strict=False)


def _read_weights(path: Path) -> dict[str, Any]:
    """Read the tensors of a file by name. Its code is never run.

    Raises:
        ValueError: the file cannot be read, or does not hold things by name.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns about what is refused below
            if path.suffix == ".safetensors":
                loaded: Any = safetensors.torch.load_file(path)
            else:
                if zipfile.is_zipfile(path):
                    _refuse_damaged_archive(path)
                loaded = torch.load(path, map_location="cpu", weights_only=True)
        for wrapper in ("state_dict", "model"):  # under which training programs save them
            if isinstance(loaded.get(wrapper), dict):
                loaded = loaded[wrapper]
    except OSError:
        raise
    # The exception depends on the format and on the damage. PyTorch's own message about pickles is left out,
    # because it explains how to run the code in them.
    except Exception as error:
        reason = str(error).split(". ")[0]
        if "weights_only" in reason or not isinstance(
            error, RuntimeError | zipfile.BadZipFile | safetensors.SafetensorError
        ):
            reason = "it is damaged, or holds more than a network's weights by name"
        raise ValueError(f"{path} cannot be read as weights ({reason}): get the file again") from None
    several_gpus = all(str(tensor).startswith("module.") for tensor in loaded)
    return {str(t).removeprefix("module.") if several_gpus else str(t): v for t, v in loaded.items()}


def _refuse_damaged_archive(path: Path) -> None:
    """Refuse an archive that is compressed (it may fill the memory) or damaged: PyTorch checks neither."""
    with zipfile.ZipFile(path) as archive:
        if sum(part.file_size for part in archive.infolist()) > path.stat().st_size:
            raise zipfile.BadZipFile("it is compressed, which PyTorch's own files never are")
        damaged = archive.testzip()
    if damaged is not None:
        raise zipfile.BadZipFile(f"{damaged} in it does not match its checksum")
