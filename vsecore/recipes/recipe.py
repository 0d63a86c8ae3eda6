"""Recipes: every system of the course as plain data, and the model that each describes.

A recipe is frozen. `override` makes another one; `build` makes the model; `hash` tells one from another.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from vsecore import settings
from vsecore.data.words import BERTTokenizer, Tokenizer, Vocabulary
from vsecore.encoders import BERTEncoder, BiGRUEncoder, CellEncoder, RegionEncoder
from vsecore.losses import adopt, info_nce, triplet
from vsecore.model import VSE
from vsecore.pooling import build_pool
from vsecore.similarity import cosine

IMAGE_ENCODERS = {"grid": CellEncoder, "region": RegionEncoder, "patch": CellEncoder}
SIMILARITIES = {"cosine": cosine}


@dataclass(frozen=True)
class ImageSettings:
    """The picture tower."""

    encoder: Literal["grid", "region", "patch"] = "grid"
    pool: str = "mean"
    pool_options: dict[str, Any] = field(default_factory=dict)  # what the pool takes, such as {"k": 5}
    element_drop: float = 0.0  # the share of elements left out in training

    def __post_init__(self) -> None:
        """Refuse values of a wrong type or range."""
        settings.check(self, "image", element_drop=(0, 1))


@dataclass(frozen=True)
class TextSettings:
    """The caption tower."""

    encoder: Literal["gru", "bert"] = "gru"
    word_dim: int = 300  # width of a word vector (gru)
    minimum_count: int = 4  # rarer words of the training captions become the unknown word (gru)
    weights: str = ""  # a model of the hub, or a folder (bert)
    pool: str = "mean"
    pool_options: dict[str, Any] = field(default_factory=dict)
    word_drop: float = 0.0  # the share of words hidden or left out in training

    def __post_init__(self) -> None:
        """Refuse values of a wrong type or range."""
        settings.check(self, "text", word_dim=(1, math.inf), minimum_count=(1, math.inf), word_drop=(0, 1))
        if self.encoder == "bert" and not self.weights:
            raise ValueError('text.weights is empty: text.encoder "bert" needs a model\'s name or folder')


@dataclass(frozen=True)
class LossSettings:
    """What a score matrix is punished for."""

    name: Literal["triplet", "info_nce", "adopt"] = "triplet"
    margin: float = 0.2  # triplet, adopt
    warmup_epochs: int = 1  # triplet: first so many epochs from all negatives, then from the hardest
    temperature: float = 0.05  # info_nce, adopt
    rule: Literal["released", "printed"] = "released"  # adopt: how many negatives
    negatives: int = 0  # adopt: so many in every batch, in place of the rule; 0: as the rule says
    positive_in_denominator: bool = True  # adopt: as released; false: as printed
    siblings_are_negatives: bool = (
        False  # count other captions of the same picture as VSE++'s released code does
    )

    def __post_init__(self) -> None:
        """Refuse values of a wrong type or range."""
        settings.check(
            self,
            "loss",
            margin=(0, math.inf),
            warmup_epochs=(0, math.inf),
            temperature=(1e-6, math.inf),
            negatives=(0, math.inf),
        )

    def build(self, epoch: int) -> Callable[[Tensor, Tensor], Tensor]:
        """The loss of an epoch, counted from 0: (scores (B, C), positives (B, C)) -> scalar."""

        def loss(scores: Tensor, positives: Tensor) -> Tensor:
            pairs = None if self.siblings_are_negatives else positives
            if self.name == "info_nce":
                return info_nce(scores, self.temperature, pairs)
            if self.name == "adopt":
                in_sum = self.positive_in_denominator
                fixed = self.negatives or None
                return adopt(scores, self.temperature, self.rule, in_sum, self.margin, pairs, fixed)
            return triplet(scores, self.margin, hardest=epoch >= self.warmup_epochs, positives=pairs)

        return loss


@dataclass(frozen=True)
class TrainingSettings:
    """How the weights are found."""

    epochs: int = 30
    batch_size: int = 128  # of the joint batch, over all processes
    batches: Literal["pairs", "pictures"] = (
        "pairs"  # captions with their picture, or pictures with all captions
    )
    optimizer: Literal["Adam", "AdamW"] = "Adam"
    learning_rate: float = 2e-4
    pretrained_factor: float = 0.1  # the learning rate of weights that were trained before, as a share
    weight_decay: float = 0.0
    warmup_steps: int = 0  # the learning rate grows linearly over so many steps
    schedule: Literal["constant", "step", "cosine", "linear", "exponential"] = "step"
    decay_epochs: int = 15  # step: every so many epochs; exponential: after so many
    decay_factor: float = 0.1  # step, exponential: times this
    clip_norm: float = 2.0  # the longest a gradient may be

    def __post_init__(self) -> None:
        """Refuse values of a wrong type or range."""
        counts = dict.fromkeys(("epochs", "batch_size", "decay_epochs"), (1, math.inf))
        shares = dict.fromkeys(("pretrained_factor", "weight_decay", "warmup_steps"), (0, math.inf))
        rates = dict.fromkeys(("learning_rate", "decay_factor", "clip_norm"), (1e-12, math.inf))
        settings.check(self, "training", **counts, **shares, **rates)


@dataclass(frozen=True)
class Recipe:
    """A system: two towers, how they are compared, what they learn from, and how."""

    name: str
    source: str  # where the numbers come from
    dim: int = 1024  # width of the joint space
    image: ImageSettings = field(default_factory=ImageSettings)
    text: TextSettings = field(default_factory=TextSettings)
    similarity: Literal["cosine"] = "cosine"
    loss: LossSettings = field(default_factory=LossSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        """Refuse values of a wrong type or range."""
        settings.check(self, "", dim=(2, math.inf))
        _check_pool("image", self.image, self.dim)
        _check_pool("text", self.text, self.dim)
        if self.loss.siblings_are_negatives and self.training.batches != "pairs":
            raise ValueError(
                f"loss.siblings_are_negatives is true and training.batches is {self.training.batches!r}: "
                'a picture with all its captions has no single partner; set training.batches to "pairs"'
            )

    def override(self, changes: Mapping[str, Any]) -> Recipe:
        """The same recipe with other values.

        Args:
            changes: from a field's full name to its value, or to its value as text.

        Raises:
            ValueError: a field is unknown, or a value is of the wrong type or range.

        Example:
            >>> get("vsepp_grid_gru").override({"training.epochs": "3", "loss.margin": 0.1})
        """
        return settings.override(self, changes)

    def to_dict(self) -> dict[str, Any]:
        """The recipe as JSON knows it; `from_dict` is the way back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Recipe:
        """The recipe that `to_dict` wrote down.

        Raises:
            ValueError: a field is unknown, missing, or of the wrong type or range.
        """
        return settings.from_dict(cls, content)

    def portable(self) -> dict[str, Any]:
        """As `to_dict`, but a folder of weights goes by its name alone: its path differs between machines."""
        content = self.to_dict()
        folder = Path(self.text.weights).expanduser()
        if self.text.weights and (folder.is_absolute() or folder.is_dir()):
            content["text"]["weights"] = folder.resolve().name
        return content

    def hash(self) -> str:
        """Twelve digits that change with every field but the name and the source, and with nothing else.

        Only what differs from the defaults is read, so that a field that the house adds later leaves the
        digits of older records as they are.
        """
        plain = Recipe(name="", source="").to_dict()
        content = _changed(self.portable() | {"name": "", "source": ""}, plain)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    def tokenizer(self, captions: Sequence[str]) -> Tokenizer:
        """The tokenizer that the text encoder reads with, its words counted in the training captions."""
        if self.text.encoder == "bert":
            return BERTTokenizer(self.text.weights)
        return Vocabulary.build(captions, minimum_count=self.text.minimum_count)

    def build(
        self,
        feature_dim: int,
        tokenizer: Tokenizer,
        vectors: Tensor | None = None,
        architecture: Path | None = None,
    ) -> VSE:
        """The model, its new weights drawn from torch's global generator.

        Args:
            feature_dim: width of a picture's elements.
            tokenizer: whose words the text encoder reads.
            vectors: what the word vectors begin as, (len(tokenizer), text.word_dim); for the gru alone.
            architecture: a folder with the `config.json` of the pretrained text encoder: for weights that
                come from a checkpoint, in place of `text.weights`.

        Raises:
            ValueError: vectors that do not fit, or that no encoder reads.
            FileNotFoundError: the pretrained weights are nowhere to be found.
        """
        image_encoder = IMAGE_ENCODERS[self.image.encoder](feature_dim, self.dim)
        text_encoder: BiGRUEncoder | BERTEncoder
        if self.text.encoder == "bert":
            if vectors is not None:
                raise ValueError(
                    f"vectors are given, and recipe {self.name!r} reads with BERT: leave them out"
                )
            text_encoder = BERTEncoder(self.text.weights, self.dim, architecture)
        else:
            if vectors is not None and vectors.shape[-1] != self.text.word_dim:
                raise ValueError(
                    f"vectors are {vectors.shape[-1]} wide and text.word_dim is {self.text.word_dim}: "
                    f"set text.word_dim={vectors.shape[-1]}"
                )
            text_encoder = BiGRUEncoder(len(tokenizer), self.text.word_dim, self.dim, vectors)
        return VSE(
            image_encoder,
            build_pool(self.image.pool, self.dim, **self.image.pool_options),
            text_encoder,
            build_pool(self.text.pool, self.dim, **self.text.pool_options),
            SIMILARITIES[self.similarity],
        )


def _changed(content: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """The fields that are not as they are in `plain`, those of inner settings among them."""
    found = {}
    for key, value in content.items():
        if isinstance(value, dict) and isinstance(plain.get(key), dict):
            if inner := _changed(value, plain[key]):
                found[key] = inner
        elif key not in plain or value != plain[key]:
            found[key] = value
    return found


def _check_pool(place: str, tower: ImageSettings | TextSettings, dim: int) -> None:
    """Refuse a pool that cannot be built: now, not when hours of preparation are over."""
    try:
        with torch.device("meta"):  # neither takes memory nor draws from the global generator
            build_pool(tower.pool, dim, **tower.pool_options)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{place}.pool {tower.pool!r} with {place}.pool_options {tower.pool_options} is no pool: {error}"
        ) from error


def _vsepp(feature: Literal["grid", "region", "patch"], text: Literal["gru", "bert"]) -> Recipe:
    sources = {
        "grid": "a convolutional map's cells in place of its mean",
        "region": "regions and their encoder from Chen et al. 2021 (VSE-infinity)",
        "patch": "a vision transformer's patches as in Zhang et al. 2022 (2AD)",
        "gru": "BiGRU from Lee et al. 2018 (SCAN), words pooled by their mean",
        "bert": "BERT and its tenth of the learning rate from Chen et al. 2021",
    }
    return Recipe(
        name=f"vsepp_{feature}_{text}",
        source=(
            "Faghri et al. 2018 (VSE++): margin, Adam, learning rate and its fall after 15 of 30 "
            f"epochs, batch, widths; gradient clipping from its code; {sources[feature]}; {sources[text]}; "
            "an epoch of all negatives before the hardest from Chen et al. 2021's code"
        ),
        image=ImageSettings(encoder=feature),
        text=TextSettings(encoder=text, weights="bert-base-uncased" if text == "bert" else ""),
    )


def _two_ad(feature: Literal["grid", "region", "patch"], text: Literal["gru", "bert"]) -> Recipe:
    return Recipe(
        name=f"2ad_{feature}_{text}",
        source=(
            "Zhang et al. 2022 (2AD), section 4.2 and appendix B: width, batch, epochs, learning rate and "
            "its fall, temperature; its released code: AdamW, the decay that it sets (for regions and "
            "patches with BiGRU it sets none, and torch's is a hundred times as large), gradient clipping, a "
            "fifth of the elements and words left out in training, the margin on the negatives; features as "
            "they were extracted, where the paper trains the networks of grids and patches too"
        ),
        image=ImageSettings(encoder=feature, pool="adpool", element_drop=0.2),
        text=TextSettings(
            encoder=text,
            weights="bert-base-uncased" if text == "bert" else "",
            pool="adpool",
            word_drop=0.2,
        ),
        loss=LossSettings(name="adopt"),
        training=TrainingSettings(epochs=25, optimizer="AdamW", learning_rate=5e-4, weight_decay=1e-4),
    )


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for make in (_vsepp, _two_ad)
    for text in ("gru", "bert")
    for feature in ("grid", "region", "patch")
    for recipe in (make(feature, text),)
}
"""Every system by its name."""


def _pools(name: str, **options: Any) -> dict[str, Any]:
    """The same pool in both towers."""
    return {
        f"{tower}.{field}": value
        for tower in ("image", "text")
        for field, value in (("pool", name), ("pool_options", options))
    }


VARIANTS: dict[str, dict[str, Any]] = {
    # 2AD, table 3: what each part is worth.
    "without_token": _pools("adpool", token_share=0.0),
    "without_embedding": _pools("adpool", token_share=1.0),
    "without_adopt": {"loss.name": "triplet", "loss.warmup_epochs": 0},
    # 2AD, table 4: other poolers. Without AdPool, table 3 takes the mean.
    "mean": _pools("mean"),
    "max": _pools("max"),
    "kmax": _pools("kmax", k=5),
    "soft": _pools("soft"),
    "ada": _pools("ada"),
    "lip": _pools("lip"),
    "seq2seq": _pools("seq2seq"),
    "gcn": _pools("gcn"),
    "self_attention": _pools("self_attention"),
    "gpo": _pools("gpo"),
    "manual": _pools("mean") | {"image.pool": "kmax", "image.pool_options": {"k": 5}},
    # 2AD, table C-2: the balance is not learned.
    "share_25": _pools("adpool", token_share=0.25),
    "share_50": _pools("adpool", token_share=0.5),
    "share_75": _pools("adpool", token_share=0.75),
    "share_random": _pools("adpool", token_share="random"),
    # The released code of 2AD, where it departs from the print.
    "per_dimension": _pools("adpool", per_dimension=True),
    # 2AD, figures A.2-1 and C-2: other answers to how many negatives.
    "max_violation": {"loss.name": "triplet", "loss.warmup_epochs": 1},
    "info_nce": {"loss.name": "info_nce"},
    "printed_rule": {"loss.name": "adopt", "loss.rule": "printed"},
    "as_printed": {
        "loss.name": "adopt",
        "loss.rule": "printed",
        "loss.positive_in_denominator": False,
        "loss.margin": 0.0,
    },
    "without_margin": {"loss.margin": 0.0},
    **{f"negatives_{k}": {"loss.name": "adopt", "loss.negatives": k} for k in (1, 4, 16, 64, 127)},
}
"""Changes to a recipe by the name that `get` knows them by: what the papers took out, or put in its place."""


def get(name: str) -> Recipe:
    """The recipe of a name, changed by the variants that follow it.

    Args:
        name: a key of `RECIPES`, then keys of `VARIANTS`, each after a plus sign; later ones win.

    Raises:
        ValueError: there is no such recipe or variant; the message lists those there are.

    Example:
        >>> get("2ad_region_gru+gpo").image.pool
        'gpo'
    """
    base, *changes = name.split("+")
    if base not in RECIPES:
        raise ValueError(f"recipe {base!r} is unknown: there are {', '.join(sorted(RECIPES))}")
    recipe = RECIPES[base]
    for change in changes:
        if change not in VARIANTS:
            raise ValueError(f"variant {change!r} is unknown: there are {', '.join(sorted(VARIANTS))}")
        recipe = recipe.override(VARIANTS[change])
    return recipe.override({"name": name})
