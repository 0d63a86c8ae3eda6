"""Two towers that were trained together on pairs from the web: CLIP and SigLIP, by name or from a folder.

Their vectors are in one space already, so they can be compared without any training (zero-shot) or trained
further. transformers has the networks; here they become encoders like the others. Each gives one element a
picture or caption, the tower's own vector, so that the mean is the pool that leaves it as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

import torch
from pydantic import Field
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.functional import pad

from vsecore.data.files import in_batch, read_json, write_atomically
from vsecore.data.language_models import model_folder
from vsecore.data.photographs import View
from vsecore.data.tower_tokens import TowerTokenizer
from vsecore.encoders.words import check_tokens
from vsecore.memory import check_room
from vsecore.typed import from_json, short

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

FILES = "config.json, model.safetensors, tokenizer.json, tokenizer_config.json and preprocessor_config.json"
"""What a folder must hold."""

CLIP_SIZE = 224
Colour = tuple[float, float, float]
Spread = Annotated[float, Field(gt=0)]


@dataclass(frozen=True)
class Sight:
    """How a picture tower sees a photograph: how it is cut, and the colours' mean and spread, from 0 to 1."""

    view: View
    mean: Colour
    std: tuple[Spread, Spread, Spread]


class _PictureTower(nn.Module):
    """What the picture towers share: pixels in, one vector a picture out."""

    reads = "pixels"
    aligned = True  # with the captions of the same model, before any training
    kind: ClassVar[str]
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
        if architecture is None:
            folder = tower_folder(weights)
            model = load_towers(folder, self.kind)
            sight = read_sight(folder, self.kind, smallest_crop, flip)
        else:
            model = _towers(read_config(architecture / "config.json", self.kind))
            sight = read_json(architecture / "sight.json", Sight)
        self.sight, self.view, self.config = sight, sight.view, model.config
        _check_side(sight.view.side, model.config)
        self.backbone = self._part(model)
        check_dim(dim, width_of(model.config))
        self.register_buffer("mean", torch.tensor(sight.mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(sight.std)[:, None, None], persistent=False)

    def _part(self, model: PreTrainedModel) -> nn.Module:
        """Return the half of the model that reads pictures."""
        raise NotImplementedError

    @classmethod
    def sees(cls, weights: str, smallest_crop: float = 0.9, flip: bool = False) -> View:
        """Return how photographs must be cut for this tower, before it is built."""
        return read_sight(tower_folder(weights), cls.kind, smallest_crop, flip).view

    def save_architecture(self, folder: str | Path) -> None:
        """Write `config.json` and `sight.json`: with them the tower is built without its first weights."""
        _write_config(self.config, folder)
        with write_atomically(Path(folder) / "sight.json", "w") as file:
            json.dump(asdict(self.sight), file)

    def forward(self, pictures: Tensor, mask: Tensor | None = None) -> tuple[Tensor, None]:
        """Encode pixels (B, 3, side, side) uint8 as one element each, (B, 1, D).

        Raises:
            ValueError: another shape or type.
        """
        wanted = (3, self.view.side, self.view.side)
        if pictures.dtype != torch.uint8 or pictures.ndim != 4 or tuple(pictures.shape[1:]) != wanted:
            raise ValueError(
                f"pictures are {pictures.dtype} {tuple(pictures.shape)}: this tower wants "
                f"uint8 (B, {', '.join(map(str, wanted))})"
            )
        normal = (pictures.to(self.mean.dtype) / 255 - self.mean) / self.std  # (B, 3, side, side)
        return self.backbone(normal).unsqueeze(1), None  # (B, 1, D)


class CLIPPictures(_PictureTower):
    """CLIP's vision transformer, its class token projected to the joint space.

    Args:
        weights: a model's name on the hub, such as "openai/clip-vit-base-patch32", or its folder.
        dim: width D of the joint space, which must be the model's own.
        smallest_crop: in training, the smallest share of a picture that a random cut keeps; see `View`.
        flip: whether half of the pictures are mirrored in training.
        architecture: a run's folder, from which the tower is built without its first weights.

    Attributes:
        view: how a photograph is cut to what the tower sees.

    Raises:
        FileNotFoundError: the model, or a file of it, cannot be found.
        ValueError: it is another model, is damaged, or its width is not `dim`.

    Source: Radford et al. 2021 (CLIP), section 2.4.
    """

    kind = "clip"

    def _part(self, model: Any) -> nn.Module:
        return _Projected(model.vision_model, model.visual_projection)


class SigLIPPictures(_PictureTower):
    """SigLIP's vision transformer, its patches pooled by attention.

    Args:
        weights: a model's name on the hub, such as "google/siglip-base-patch16-224", or its folder.
        dim: width D of the joint space, which must be the model's own.
        smallest_crop: in training, the smallest share of a picture that a random cut keeps; see `View`.
        flip: whether half of the pictures are mirrored in training.
        architecture: a run's folder, from which the tower is built without its first weights.

    Attributes:
        view: how a photograph is cut to what the tower sees.

    Raises:
        FileNotFoundError: the model, or a file of it, cannot be found.
        ValueError: it is another model, is damaged, or its width is not `dim`.

    Source: Zhai et al. 2023 (SigLIP), section 4.
    """

    kind = "siglip"

    def _part(self, model: Any) -> nn.Module:
        return _Projected(model.vision_model, nn.Identity())


class _CaptionTower(nn.Module):
    """What the caption towers share: word pieces in, one vector a caption out."""

    aligned = True
    kind: ClassVar[str]

    def __init__(
        self, weights: str, dim: int, vocabulary_size: int, architecture: Path | None = None
    ) -> None:
        super().__init__()
        self.pretrained_scale: float | None = None
        """What the towers multiplied their similarities by, for losses that go on from there."""
        self.pretrained_bias: float | None = None
        """And what they added to them, if anything."""
        if architecture is None:
            folder = tower_folder(weights)
            model: Any = load_towers(folder, self.kind)
            longest = model.config.text_config.max_position_embeddings
            model.config.text_config.pad_token_id = TowerTokenizer(folder, longest).pad
            self.pretrained_scale = float(model.logit_scale.detach().exp())
            if hasattr(model, "logit_bias"):
                self.pretrained_bias = float(model.logit_bias.detach())
        else:
            model = _towers(read_config(architecture / "config.json", self.kind))
        text = model.config.text_config
        if vocabulary_size > text.vocab_size:
            raise ValueError(
                f"the tokenizer has {vocabulary_size} pieces, and the model knows {text.vocab_size}: they "
                "belong to different models; get both again"
            )
        self.config, self.longest, self.pad = model.config, text.max_position_embeddings, text.pad_token_id
        self.backbone = self._part(model)
        check_dim(dim, width_of(model.config))

    def _part(self, model: Any) -> nn.Module:
        """Return the half of the model that reads captions."""
        raise NotImplementedError

    @classmethod
    def tokenizer(cls, captions: Sequence[str], weights: str) -> TowerTokenizer:
        """Load the tokenizer that the towers were trained with.

        Args:
            captions: not used, since the word pieces are the model's own.
            weights: as for the encoder.

        Raises:
            FileNotFoundError: the model, or its `tokenizer.json`, cannot be found.
            ValueError: a file is damaged, or the model is another one.
        """
        folder = tower_folder(weights)
        config: Any = read_config(folder / "config.json", cls.kind)
        return TowerTokenizer(folder, config.text_config.max_position_embeddings)

    @classmethod
    def load_tokenizer(cls, folder: Path) -> TowerTokenizer:
        """Load the tokenizer that a run's folder keeps; raises as `TowerTokenizer.load`."""
        return TowerTokenizer.load(folder)

    def save_architecture(self, folder: str | Path) -> None:
        """Write `config.json`, from which the tower can be built again without its first weights."""
        _write_config(self.config, folder)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> tuple[Tensor, None]:
        """Encode captions (C, L) as one element each, (C, 1, D).

        Raises:
            ValueError: another shape, or more pieces than the tower has positions for.
        """
        check_tokens(tokens, mask)
        if tokens.shape[1] > self.longest:
            raise ValueError(
                f"tokens are {tokens.shape[1]} long: this model reads at most {self.longest} pieces"
            )
        if mask is not None:
            tokens = torch.where(mask, tokens, self.pad)
        return self.backbone(self._padded(tokens)).unsqueeze(1), None  # (C, 1, D)

    def _padded(self, tokens: Tensor) -> Tensor:
        """Return tokens as long as the tower wants them."""
        return tokens


class CLIPCaptions(_CaptionTower):
    """CLIP's caption transformer, which reads from left to right; the mark of the end is projected.

    No piece sees a later one, so padding changes nothing.

    Args:
        weights: a model's name on the hub, such as "openai/clip-vit-base-patch32", or its folder.
        dim: width D of the joint space, which must be the model's own.
        vocabulary_size: number of word pieces of the tokenizer.
        architecture: a run's folder, from which the tower is built without its first weights.

    Raises:
        FileNotFoundError: the model, or a file of it, cannot be found.
        ValueError: it is another model, is damaged, or its width is not `dim`.

    Source: Radford et al. 2021 (CLIP), section 2.4.
    """

    kind = "clip"

    def _part(self, model: Any) -> nn.Module:
        return _Projected(model.text_model, model.text_projection)


class SigLIPCaptions(_CaptionTower):
    """SigLIP's caption transformer; its last position, mostly padding, is the caption's vector.

    It was trained on captions padded to one length, and attends to the padding: so captions are padded to
    that length here too, whatever the batch.

    Args:
        weights: a model's name on the hub, such as "google/siglip-base-patch16-224", or its folder.
        dim: width D of the joint space, which must be the model's own.
        vocabulary_size: number of word pieces of the tokenizer.
        architecture: a run's folder, from which the tower is built without its first weights.

    Raises:
        FileNotFoundError: the model, or a file of it, cannot be found.
        ValueError: it is another model, is damaged, or its width is not `dim`.

    Source: Zhai et al. 2023 (SigLIP), section 4.
    """

    kind = "siglip"

    def _part(self, model: Any) -> nn.Module:
        return _Projected(model.text_model, nn.Identity())

    def _padded(self, tokens: Tensor) -> Tensor:
        return pad(tokens, (0, self.longest - tokens.shape[1]), value=self.pad)


class _Projected(nn.Module):
    """A transformer's pooled output, projected."""

    def __init__(self, model: nn.Module, projection: nn.Module) -> None:
        super().__init__()
        self.model, self.projection = model, projection

    def forward(self, given: Tensor) -> Tensor:
        projected: Tensor = self.projection(self.model(given).pooler_output)  # (B, D)
        return projected


def tower_folder(weights: str) -> Path:
    """Return the folder of a pretrained pair of towers.

    Args:
        weights: a folder, or a model's name on the hub, which is downloaded once.

    Raises:
        FileNotFoundError: no such folder, and the hub cannot be reached or has no such model.
        ValueError: weights is empty.
    """
    if not weights:
        raise ValueError(
            'weights is empty: name a model, such as "openai/clip-vit-base-patch32", or its folder'
        )
    try:
        return model_folder(weights)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{weights} is not a folder here, and cannot be downloaded: get https://huggingface.co/{weights} "
            f"where there is a network ({FILES}), and name its folder in place of {weights}"
        ) from error


def read_config(path: Path, kind: str | None = None) -> PretrainedConfig:
    """Read the configuration of a pair of towers. What it may say of code to load is left out.

    Args:
        path: a `config.json`.
        kind: "clip" or "siglip"; None: either.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is damaged, or that of another kind of model.
    """
    from transformers import CLIPConfig, SiglipConfig  # takes seconds, and only these towers need it

    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} has no config.json: name a folder that holds {FILES}")
    content = read_json(path)
    kinds: dict[str, Any] = {"clip": CLIPConfig, "siglip": SiglipConfig}
    found = content.get("model_type")
    if found not in kinds or kind not in (None, found):
        wanted = " or ".join(kinds) if kind is None else kind
        raise ValueError(f"{path} describes a model of type {short(found)}: wanted {wanted}")
    try:
        return cast("PretrainedConfig", kinds[found].from_dict(_plain(content)))
    except Exception as error:  # of any kind: transformers trusts whatever the file says
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{path} is damaged ({reason}): get the file again") from error


def load_towers(folder: Path, kind: str) -> PreTrainedModel:
    """Load both towers from a folder, in float32; only safetensors, since a pickle can run code.

    Raises:
        FileNotFoundError: the folder has no configuration or no weights.
        ValueError: a file is damaged, or belongs to another model.
    """
    from transformers.utils import logging

    config = read_config(folder / "config.json", kind)
    if not any(folder.glob("*.safetensors")):
        raise FileNotFoundError(f"{folder} has no model.safetensors: get the model's weights in that format")
    with torch.device("meta"):
        wanted = _towers(config)
    check_room(f"{folder}: the model", sum(weight.numel() for weight in wanted.parameters()))
    if in_batch():
        logging.disable_progress_bar()  # the bar would end up in a stored notebook
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        loaded: Any = type(wanted).from_pretrained(
            folder, config=config, dtype=torch.float32, use_safetensors=True, output_loading_info=True
        )
    except (SafetensorError, RuntimeError, OSError) as error:
        raise ValueError(
            f"the weights in {folder} are damaged, or belong to another model: get them again"
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    model, found = loaded
    if lacking := sorted(found["missing_keys"]):
        raise ValueError(f"the weights in {folder} lack {lacking[0]}: get them again")
    return cast("PreTrainedModel", model)


def read_sight(folder: Path, kind: str, smallest_crop: float, flip: bool) -> Sight:
    """Read how a picture tower sees, from its `preprocessor_config.json` (or `processor_config.json`).

    Raises:
        FileNotFoundError: the folder has neither.
        ValueError: the file names something that this package does not do.
    """
    path = folder / "preprocessor_config.json"
    if path.is_file():
        content = read_json(path)
    elif (folder / "processor_config.json").is_file():
        path = folder / "processor_config.json"
        content = read_json(path).get("image_processor", {})
    else:
        raise FileNotFoundError(
            f"{folder} has no preprocessor_config.json: get that file of the model too, and put it there"
        )
    default = {"shortest_edge": CLIP_SIZE} if kind == "clip" else {"height": CLIP_SIZE, "width": CLIP_SIZE}
    size, crop = content.get("size", default), content.get("crop_size", CLIP_SIZE)
    size = {"shortest_edge": size} if isinstance(size, int) else size
    resize = size.get("shortest_edge")
    side = size.get("height") if resize is None else crop if isinstance(crop, int) else crop.get("height")
    resampling = {2: "bilinear", 3: "bicubic"}.get(content.get("resample", 3))
    square = size.get("height") == size.get("width")
    if resampling is None or not square or not isinstance(side, int):
        raise ValueError(
            f"{path}: wanted pictures cut to a square, by bilinear (2) or bicubic (3) resampling, and it "
            f"says size {short(size)}, resample {short(content.get('resample'))}"
        )
    told = {
        "view": {
            "side": side,
            "resize": resize,
            "resampling": resampling,
            "smallest_crop": smallest_crop,
            "flip": flip,
        },
        "mean": content.get("image_mean"),
        "std": content.get("image_std"),
    }
    sight: Sight = from_json(str(path), json.dumps(told), Sight)
    return sight


def width_of(config: Any) -> int:
    """Return the width of the space in which the two towers meet."""
    if config.model_type == "clip":
        return int(config.projection_dim)
    return int(config.vision_config.hidden_size)


def check_dim(dim: int, width: int) -> None:
    """Refuse a joint space of another width than the towers'.

    Raises:
        ValueError: they differ.
    """
    if dim != width:
        raise ValueError(
            f"dim is {dim}, and the vectors of these towers have {width} numbers: set dim to {width}"
        )


def _check_side(side: int, config: Any) -> None:
    if side != config.vision_config.image_size:
        raise ValueError(
            f"pictures are cut to {side} pixels, and the model wants {config.vision_config.image_size}: "
            "its preprocessor_config.json and config.json belong to different models; get both again"
        )


def _towers(config: PretrainedConfig) -> PreTrainedModel:
    from transformers import CLIPModel, SiglipModel

    return {"clip": CLIPModel, "siglip": SiglipModel}[config.model_type](config)


def _plain(content: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of a configuration what chooses code: kernels, quantisers, modules of its own."""
    chosen = ("attn_implementation", "experts_implementation", "auto_map", "quantization_config")
    return {
        key: _plain(value) if isinstance(value, Mapping) else value
        for key, value in content.items()
        if key not in chosen and not key.startswith("_")
    }


def _write_config(config: PretrainedConfig, folder: str | Path) -> None:
    with write_atomically(Path(folder) / "config.json", "w") as file:
        file.write(config.to_json_string())
