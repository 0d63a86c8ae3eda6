"""The two small networks that look at the embedded world, so that its features need no download.

`SceneCNN` gives a grid of cells and the features of boxes, `SceneViT` gives patches. Both are trained by
`pretraining` on the world's own facts and ship in `assets/`.
"""

from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from vsecore.paths import assets
from vsecore.scenes.facts import SIDE

ASSETS = assets()


class Residual(nn.Module):
    """Two 3 × 3 convolutions and a way around them, from maps of some channels to `out`.

    Source: He et al. 2016, fig. 2; the way around pools before it projects (He et al. 2019, fig. 2c), so that
    no cell of the input is passed over.
    """

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.around: nn.Module = nn.Identity()
        if stride > 1 or channels != out:
            self.around = nn.Sequential(
                nn.AvgPool2d(stride) if stride > 1 else nn.Identity(),
                nn.Conv2d(channels, out, 1, bias=False),
                nn.BatchNorm2d(out),
            )

    def forward(self, maps: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, out, H / stride, W / stride)."""
        return torch.relu(self.around(maps) + self.body(maps))


class SceneCNN(nn.Module):
    """A small residual network: a picture becomes 7 × 7 cells, or the features of boxes.

    0.86 million parameters, 3.5 MB as float32. `forward` has the interface of every backbone
    (`vsecore.data.backbones`); `regions` adds what detectors give the field: one vector for each box.
    """

    kind: Literal["grid"] = "grid"
    feature_dim = 144
    region_dim = 96 + 144 + 6  #: The fine map, the coarse map and the box's own numbers

    def __init__(self) -> None:
        """Make the layers, untrained."""
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 24, 5, 2, 2, bias=False), nn.BatchNorm2d(24), nn.ReLU())
        self.fine = nn.Sequential(Residual(24, 48, stride=2), Residual(48, 96, stride=2))
        self.coarse = nn.Sequential(Residual(96, 144, stride=2), Residual(144, 144))

    def maps(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """The fine map (B, 96, 14, 14) and the coarse map (B, 144, 7, 7) of pictures (B, 3, 112, 112)."""
        fine = self.fine(self.stem(normalise(pictures)))  # (B, 96, 14, 14)
        return fine, self.coarse(fine)

    def forward(self, pictures: Tensor) -> Tensor:
        """(B, 3, 112, 112) uint8 -> (B, 49, 144), cells row by row from the top left."""
        coarse: Tensor = self.maps(pictures)[1]
        return coarse.flatten(2).mT  # (B, 49, 144)

    def regions(self, pictures: Tensor, boxes: list[Tensor]) -> list[Tensor]:
        """One vector for each box: the mean of both maps inside it, and where it is.

        The fine map tells neighbours apart, the coarse one knows what they are. A 1 × 1 RoI-align samples
        between cells, so a box need not fit the grid (He et al. 2017, section 3).

        Args:
            pictures: (B, 3, 112, 112) uint8.
            boxes: for each picture its boxes, (n, 4): left, top, right, bottom in pixels.

        Returns:
            For each picture (n, 246): fine, coarse, then left, top, right, bottom, width and height as
            shares of the picture's side.
        """
        from torchvision.ops import roi_align  # here: it takes seconds to import, and only regions need it

        boxes = [box.to(pictures.device, torch.float32) for box in boxes]
        parts = [
            roi_align(layer, boxes, 1, spatial_scale=layer.shape[-1] / SIDE, aligned=True).flatten(1)
            for layer in self.maps(pictures)
        ]  # (sum of n, 96) and (sum of n, 144)
        edges = torch.cat(boxes) / SIDE  # (sum of n, 4)
        sides = edges[:, 2:] - edges[:, :2]  # (sum of n, 2)
        return list(torch.cat([*parts, edges, sides], 1).split([len(box) for box in boxes]))


class SceneViT(nn.Module):
    """A small vision transformer: a picture becomes 7 × 7 patches of 16 pixels that have seen each other.

    0.91 million parameters, 3.6 MB as float32. Pre-norm, four layers, four heads, learned positions, no class
    token: every patch is an element. Two convolutions look at the pixels before they are cut into patches;
    with so few pictures a transformer learns little without them.

    Source: Dosovitskiy et al. 2021, eqs. 1 to 4; the convolutions are of Xiao et al. 2021, section 3.
    """

    kind: Literal["patch"] = "patch"
    feature_dim = 128
    patch = 16

    def __init__(self) -> None:
        """Make the layers, untrained."""
        super().__init__()
        width, patches = self.feature_dim, (SIDE // self.patch) ** 2
        self.stem = nn.Sequential(
            nn.Conv2d(3, 24, 5, 2, 2, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Conv2d(24, 48, 3, 2, 1, bias=False),
            nn.BatchNorm2d(48),
            nn.ReLU(),
        )
        self.embed = nn.Conv2d(48, width, self.patch // 4, self.patch // 4)
        self.positions = nn.Parameter(0.02 * torch.randn(patches, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 4, norm=nn.LayerNorm(width), enable_nested_tensor=False)

    def forward(self, pictures: Tensor) -> Tensor:
        """(B, 3, 112, 112) uint8 -> (B, 49, 128), patches row by row from the top left."""
        patches = self.embed(self.stem(normalise(pictures))).flatten(2).mT  # (B, 49, 128)
        seen: Tensor = self.layers(patches + self.positions)  # (B, 49, 128)
        return seen


SceneNetwork = SceneCNN | SceneViT
NETWORKS: dict[str, type[SceneCNN] | type[SceneViT]] = {"scenes-cnn": SceneCNN, "scenes-vit": SceneViT}


def normalise(pictures: Tensor) -> Tensor:
    """Bytes 0 to 255 to numbers -1 to 1, (B, 3, 112, 112) uint8 to float32; others are refused."""
    if pictures.dtype != torch.uint8 or pictures.dim() != 4 or pictures.shape[1:] != (3, SIDE, SIDE):
        raise ValueError(
            f"pictures are {pictures.dtype} {tuple(pictures.shape)}: "
            f"the networks of the scenes want uint8 (B, 3, {SIDE}, {SIDE})"
        )
    return pictures.float() / 127.5 - 1


def weights_file(name: str) -> Path:
    """Where a network's weights lie, such as `assets/scenes_cnn.safetensors`; an unknown name is refused."""
    if name not in NETWORKS:
        raise ValueError(f"network is {name!r}: wanted one of {', '.join(NETWORKS)}")
    return ASSETS / f"{name.replace('-', '_')}.safetensors"


def load_network(name: str) -> SceneNetwork:
    """The trained network of the embedded world, "scenes-cnn" or "scenes-vit", on the CPU.

    Raises:
        ValueError: an unknown name, or a file that is damaged or holds another network.
        FileNotFoundError: the weights are missing.
    """
    path = weights_file(name)
    if not path.is_file():
        raise FileNotFoundError(
            f"no weights of {name!r} at {path}: make them with `vse scenes pretrain {name}`"
        )
    network = NETWORKS[name]()
    try:
        network.load_state_dict(load_file(path))
    except (SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise ValueError(
            f"{path} does not hold the weights of {name!r} ({reason}): "
            f"make them anew with `vse scenes pretrain {name}`"
        ) from error
    return network.eval()
