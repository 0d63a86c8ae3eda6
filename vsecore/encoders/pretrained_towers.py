"""Two towers that were trained together on pairs from the web: CLIP, MetaCLIP 2, SigLIP and SigLIP 2.

Their vectors are in one space already, so they can be compared without any training (zero-shot) or trained
further. transformers has the networks; here they become encoders like the others. Each gives one element a
picture or caption, the tower's own vector, so that the mean is the pool that leaves it as it is.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from vsecore.arguments import Positive, checked
from vsecore.data.files import read_json, write_json, write_whole
from vsecore.data.language_models import FILES, model_folder
from vsecore.data.photographs import View
from vsecore.data.word_pieces import TowerTokenizer
from vsecore.encoders.base import ImageEncoder, TextEncoder, Tokens, WordMask
from vsecore.encoders.hub import CONFIG, build_model
from vsecore.typed import from_json, short

VISION_CONFIG = "sight.json"
"""Where a run's folder keeps a `VisionConfig`."""

Kind = Literal["clip", "siglip"]
MODELS = {"clip": "CLIP", "metaclip_2": "MetaClip2", "siglip": "Siglip"}
"""How transformers' classes for each `model_type` begin. A SigLIP 2 of one resolution has SigLIP's."""
Colour = tuple[float, float, float]


@dataclass(frozen=True)
class VisionConfig:
    """How a picture tower sees a photograph: how it is cut, and the colours' mean and spread, from 0 to 1."""

    view: View
    mean: Colour
    std: tuple[Positive, Positive, Positive]


class PictureTower(ImageEncoder):
    """The half of a pretrained pair that reads pictures: pixels in, one vector a picture out.

    Args:
        weights: a model's name on the hub, such as "openai/clip-vit-base-patch32", or its folder.
        dim: width D of the joint space, which must be the model's own.
        smallest_crop: in training, the smallest share of a picture that a random cut keeps; see `View`.
        flip: whether half of the pictures are mirrored in training.
        architecture: a run's folder, from which the tower is built without its first weights.
    """

    reads = "pixels"
    aligned = True
    kind: ClassVar[Kind]
    backbone: nn.Module
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        weights: str,
        dim: int,
        smallest_crop: float = 0.9,
        flip: bool = False,
        architecture: Path | None = None,
    ) -> None:
        super().__init__()
        folder = architecture or model_folder(weights)
        if architecture is None:
            self.vision = read_vision_config(folder, self.kind, smallest_crop, flip)
        else:
            self.vision = read_json(folder / VISION_CONFIG, VisionConfig)
        model = _load(self.kind, dim, folder, architecture is None)
        self.config, self.view = model.config, self.vision.view
        if self.view.side != model.config.vision_config.image_size:
            raise ValueError(
                f"pictures are cut to {self.view.side} pixels, and the model wants "
                f"{model.config.vision_config.image_size}: its preprocessor_config.json and config.json "
                "belong to different models; get both again"
            )
        projection = model.visual_projection if self.kind == "clip" else nn.Identity()
        self.backbone = _Projected(model.vision_model, projection)
        self.register_buffer("mean", torch.tensor(self.vision.mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(self.vision.std)[:, None, None], persistent=False)

    @classmethod
    def sees(cls, weights: str, smallest_crop: float = 0.9, flip: bool = False) -> View:
        """Return how photographs must be cut for this tower, before it is built."""
        return read_vision_config(model_folder(weights), cls.kind, smallest_crop, flip).view

    def save_architecture(self, folder: Path) -> None:
        write_whole(folder / CONFIG, self.config.to_json_string())
        write_json(folder / VISION_CONFIG, asdict(self.vision))

    def forward(self, pictures: Tensor, mask: Tensor | None = None) -> tuple[Tensor, None]:
        """Encode pixels (B, 3, side, side) uint8 as one element each, (B, 1, D)."""
        side = self.vision.view.side
        if pictures.dtype != torch.uint8 or pictures.ndim != 4 or pictures.shape[1:] != (3, side, side):
            raise ValueError(
                f"pictures are {pictures.dtype} {tuple(pictures.shape)}: this tower wants uint8 "
                f"(B, 3, {side}, {side})"
            )
        normal = (pictures.to(self.mean.dtype) / 255 - self.mean) / self.std  # (B, 3, side, side)
        return self.backbone(normal).unsqueeze(1), None  # (B, 1, D)


class CLIPPictures(PictureTower):
    """CLIP's vision transformer, its class token projected to the joint space; options of `PictureTower`.

    Source: Radford et al. 2021 (CLIP), section 2.4.
    """

    kind = "clip"


class SigLIPPictures(PictureTower):
    """SigLIP's vision transformer, its patches pooled by attention; options of `PictureTower`.

    Source: Zhai et al. 2023 (SigLIP), section 4.
    """

    kind = "siglip"


class CaptionTower(TextEncoder):
    """The half of a pretrained pair that reads captions: word pieces in, one vector a caption out.

    Args:
        weights: as for `PictureTower`.
        dim: width D of the joint space.
        vocabulary_size: number of word pieces of the tokenizer.
        architecture: as for `PictureTower`.
    """

    aligned = True
    kind: ClassVar[Kind]
    backbone: nn.Module

    def __init__(
        self, weights: str, dim: int, vocabulary_size: int, architecture: Path | None = None
    ) -> None:
        super().__init__()
        folder = architecture or model_folder(weights)
        model = _load(self.kind, dim, folder, architecture is None)
        text = model.config.text_config
        if architecture is None:
            text.pad_token_id = TowerTokenizer(folder, text.max_position_embeddings).pad
            self.pretrained_scale = float(model.logit_scale.detach().exp())
            if self.kind == "siglip":
                self.pretrained_bias = float(model.logit_bias.detach())
        if vocabulary_size > text.vocab_size:
            raise ValueError(
                f"the tokenizer has {vocabulary_size} pieces, and the model knows {text.vocab_size}: they "
                "belong to different models; get both again"
            )
        self.config, self.longest, self.pad = model.config, text.max_position_embeddings, text.pad_token_id
        projection = model.text_projection if self.kind == "clip" else nn.Identity()
        self.backbone = _Projected(model.text_model, projection)

    @classmethod
    def tokenizer(cls, captions: Sequence[str], weights: str) -> TowerTokenizer:
        """Load the towers' own tokenizer, whatever the captions; raises as the encoder does."""
        folder = model_folder(weights)
        config = read_config(folder / CONFIG, cls.kind)
        return TowerTokenizer(folder, config.text_config.max_position_embeddings)

    @classmethod
    def load_tokenizer(cls, folder: Path) -> TowerTokenizer:
        return TowerTokenizer.load(folder)

    def save_architecture(self, folder: Path) -> None:
        write_whole(folder / CONFIG, self.config.to_json_string())

    @checked
    def forward(self, tokens: Tokens, mask: WordMask = None) -> tuple[Tensor, None]:
        """Encode captions (C, L) as one element each, (C, 1, D)."""
        if tokens.shape[1] > self.longest:
            raise ValueError(
                f"tokens are {tokens.shape[1]} long: this model reads at most {self.longest} pieces"
            )
        if mask is not None:
            tokens = torch.where(mask, tokens, self.pad)
        if self.kind == "siglip":
            tokens = pad(tokens, (0, self.longest - tokens.shape[1]), value=self.pad)
        return self.backbone(tokens).unsqueeze(1), None  # (C, 1, D)


class CLIPCaptions(CaptionTower):
    """CLIP's caption transformer, which reads from left to right; the mark of the end is projected.

    No piece sees a later one, so padding changes nothing. Options of `CaptionTower`.

    Source: Radford et al. 2021 (CLIP), section 2.4.
    """

    kind = "clip"


class SigLIPCaptions(CaptionTower):
    """SigLIP's caption transformer; its last position, mostly padding, is the caption's vector.

    It was trained on captions padded to one length, and attends to the padding: so captions are padded to
    that length here too, whatever the batch. Options of `CaptionTower`.

    Source: Zhai et al. 2023 (SigLIP), section 4.
    """

    kind = "siglip"


class _Projected(nn.Module):
    """A transformer's pooled output, projected."""

    def __init__(self, model: nn.Module, projection: nn.Module) -> None:
        super().__init__()
        self.model, self.projection = model, projection

    def forward(self, inputs: Tensor) -> Tensor:
        return self.projection(self.model(inputs).pooler_output)  # (B, D)


def read_config(path: Path, kind: Kind | None = None) -> Any:
    """Read the `config.json` of a pair of towers, of a kind or of either.

    What it may say of code to load is left out.
    """
    import transformers  # takes seconds, and only these towers need it

    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} has no config.json: name a folder that holds {FILES}")
    content = read_json(path)
    found = content.get("model_type")
    wanted = [name for name in MODELS if kind in (None, kind_of(name))]
    if found not in wanted:
        raise ValueError(f"{path} describes a model of type {short(found)}: wanted {' or '.join(wanted)}")
    try:
        return getattr(transformers, f"{MODELS[found]}Config").from_dict(_plain(content))
    except Exception as error:  # of any kind: transformers trusts whatever the file says
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{path} is damaged ({reason}): get the file again") from error


def kind_of(model_type: str) -> Kind:
    """Return the kind of towers that a `model_type` of `MODELS` is."""
    return "siglip" if model_type == "siglip" else "clip"


def _load(kind: Kind, dim: int, folder: Path, pretrained: bool) -> Any:
    """Build both towers, from a model's folder, or from the architecture that a run's folder keeps."""
    import transformers

    config = read_config(folder / CONFIG, kind)
    if dim != (width := width_of(config)):
        raise ValueError(
            f"dim is {dim}, and the vectors of these towers have {width} numbers: set dim to {width}"
        )
    model = getattr(transformers, f"{MODELS[config.model_type]}Model")
    return build_model(model, config, folder, pretrained)


def read_vision_config(folder: Path, kind: Kind, smallest_crop: float, flip: bool) -> VisionConfig:
    """Read how a picture tower sees, from its `preprocessor_config.json` (or `processor_config.json`)."""
    names = ("preprocessor_config.json", "processor_config.json")
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f"{folder} has no {names[0]}: get that file of the model too, and put it there"
        )
    content = read_json(path)
    if isinstance(inner := content.get("image_processor"), dict):  # beside the tokenizer's settings
        content = inner
    default = {"shortest_edge": 224} if kind == "clip" else {"height": 224, "width": 224}
    told = content.get("size", default), content.get("crop_size", 224), content.get("resample", 3)
    size, crop = (
        one if isinstance(one, dict) else dict.fromkeys(("shortest_edge", "height", "width"), one)
        for one in told[:2]
    )
    resize = size.get("shortest_edge")
    seen = size if resize is None else crop
    side, square = seen.get("height"), seen.get("height") == seen.get("width")
    resampling = {"2": "bilinear", "3": "bicubic"}.get(str(told[2]))
    if resampling is None or not square or not isinstance(side, int):
        raise ValueError(
            f"{path}: wanted pictures cut to a square, by bilinear (2) or bicubic (3) resampling, and it "
            f"says size {short(told[0])}, crop_size {short(told[1])}, resample {short(told[2])}"
        )
    view = {"side": side, "resize": resize, "resampling": resampling}
    view |= {"smallest_crop": smallest_crop, "flip": flip}
    config = {"view": view, "mean": content.get("image_mean"), "std": content.get("image_std")}
    return from_json(str(path), json.dumps(config), VisionConfig)


def width_of(config: Any) -> int:
    """Return the width of the space in which the two towers meet."""
    if kind_of(config.model_type) == "clip":
        return int(config.projection_dim)
    return int(config.vision_config.hidden_size)


def _plain(content: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of a configuration what chooses code: kernels, quantisers, modules of its own."""
    chosen = ("attn_implementation", "experts_implementation", "auto_map", "quantization_config")
    return {
        key: _plain(value) if isinstance(value, Mapping) else value
        for key, value in content.items()
        if key not in chosen and not key.startswith("_")
    }
