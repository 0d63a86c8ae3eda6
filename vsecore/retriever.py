"""A trained model with all that must stand before it, for pictures and sentences of one's own."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vsecore.data.backbones import Backbone, MirroredBackbone
from vsecore.data.boxes import NUMBERS, places_of, with_boxes
from vsecore.data.feature_folder import META, read_meta
from vsecore.data.features import open_precomp
from vsecore.data.files import expanded, read_json
from vsecore.data.picture_files import Picture, open_picture
from vsecore.data.words import Tokenizer, checked_sentences
from vsecore.embedding import Embedding, joined
from vsecore.model import VSE
from vsecore.recipes import get, is_towers, parted, placed
from vsecore.scenes.backbones import find_backbone
from vsecore.scenes.build import NETWORK_OF
from vsecore.scoring import read_by_similarity, score_embedded
from vsecore.training import Run, load_run
from vsecore.training.command import remembered
from vsecore.training.distributed import best_device

MIRRORED = ", mirrored"
READS_FEATURES = (
    "reads features of pictures: name their folder, or the network that makes them (features=, backbone=; of "
    "a command --features, --backbone)"
)
SOURCE_FILE = "engine.json"
"""Says beside a run that was tuned with which network it sees pictures."""


@dataclass(frozen=True)
class Source:
    """Where a retriever comes from: what an index keeps, so that the same one can be loaded again."""

    run: str = ""
    """The folder of a run; "": there is none."""
    recipe: str = ""
    """Without a run: the recipe, or the folder, of towers that are used as they are."""
    backbone: str = ""
    """The network whose features the run reads; "": it reads pixels."""
    weights: str = ""
    """A file of the backbone's weights; "": its published ones."""
    picture_size: int | None = None
    """The side of the pictures that the backbone sees; None: the one that it was trained on."""
    mirrored: bool = False
    """Whether the backbone sees each picture's mirror image too."""
    dtype: str = "float16"
    """The type of the features on which the run was trained."""
    fingerprint: str = ""
    """Of the backbone with the weights that made those features; "": it is not known."""


class Retriever:
    """A model that embeds pictures and sentences, and compares them. Safe to use from several threads.

    Messages call it by its name. The backbone, or what loads it for the first picture, is the network whose
    features the model reads, of the type `dtype`; without one it reads pixels. Without a `source`, an index
    built with it must be given it again.

    Example:
        >>> model = vsecore.load("runs/first")
        >>> pictures, texts = model.encode_images(["pool.jpg"]), model.encode_texts(["a dog", "a swimmer"])
        >>> model.similarity(pictures, texts)  # (1, 2)
    """

    def __init__(
        self,
        model: VSE,
        tokenizer: Tokenizer,
        name: str,
        *,
        backbone: Backbone | Callable[[], Backbone] | None = None,
        source: Source | None = None,
        dtype: str = "float16",
    ) -> None:
        self.model, self.tokenizer, self.name = model.eval(), tokenizer, name
        self.source, self.dtype = source, dtype
        self._backbone = backbone
        self._lock = threading.Lock()

    @classmethod
    def of_run(
        cls,
        folder: str | Path,
        *,
        features: str | Path | None = None,
        backbone: str = "",
        weights: str | Path | None = None,
    ) -> Self:
        """Load a trained run; the arguments are those of `vsecore.load`."""
        place = expanded(folder).resolve()
        run = load_run(place)
        source = replace(_source_of(run, place, features, backbone), run=str(place), recipe="")
        if weights is not None and run.recipe.features != "pixels":
            source = replace(source, weights=str(expanded(weights).resolve()))
        return cls.of(source, run)

    @classmethod
    def of_recipe(cls, name: str) -> Self:
        """Load towers that were trained already (CLIP, SigLIP) by a recipe's name or their folder."""
        recipe = get(name)
        if not recipe.is_trained:
            raise ValueError(f"recipe {name} must be trained first (vse train {name}): then name its run")
        tokenizer = recipe.tokenizer(["-"])
        model = recipe.build(3, tokenizer).to(best_device())
        return cls(model, tokenizer, recipe.name, source=Source(recipe=placed(name)))

    @classmethod
    def of(cls, source: Source, run: Run | None = None) -> Self:
        """Load the retriever that an index was built with; its run need not be read twice."""
        if source.recipe:
            there = is_towers(source.recipe) or Path(parted(source.recipe)[0]).is_file()  # of YAML
            if Path(source.recipe).is_absolute() and not there:
                raise FileNotFoundError(f"{source.recipe} holds no model any more")
            return cls.of_recipe(source.recipe)
        run = run or load_run(source.run)
        model = run.model.to(best_device())
        if not source.backbone:
            return cls(model, run.tokenizer, source.run, source=source)
        network = functools.partial(_network_of, run, source)
        return cls(model, run.tokenizer, source.run, backbone=network, source=source, dtype=source.dtype)

    @functools.cached_property
    def backbone(self) -> Backbone | None:
        """The network whose features the model reads; None: there is none. Sentences do not need it."""
        given = self._backbone
        if given is None:
            return None
        return (given if isinstance(given, Backbone) else given()).eval()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def notes(self, text: str) -> list[str]:
        """Say what of a sentence the model cannot read, a sentence each."""
        words, numbers = self.tokenizer.words_of(text), self.tokenizer.encode([text])[0][0].tolist()
        unknown = [
            word
            for word, places in words
            if all(place < len(numbers) and numbers[place] == self.tokenizer.unknown for place in places)
        ]
        said = []
        if not words or len(unknown) == len(words):
            said.append("the model knows no word of it, so the order of the pictures means nothing")
        elif unknown:
            said.append(f"the model never learned {', '.join(unknown)}, and searches without")
        spelled = [word for word, places in words if len(places) > len(word) and not word.isascii()]
        if spelled and not unknown:
            said.append(f"the model spells {', '.join(spelled)} out: it hardly learned this language")
        if self.tokenizer.is_cut(text):
            said.append(f"the model reads only the first {len(words)} words")
        return said

    def encode_texts(self, texts: Sequence[str], batch_size: int = 256) -> Embedding:
        """Embed C sentences as what the model compares, float32 on the CPU.

        That is unit `vectors` (C, D), sets of them (C, K, D), or `elements` (C, L, D) with their `mask`.
        """
        sentences, parts = checked_sentences(texts), []
        for start in range(0, len(sentences), batch_size):
            tokens, mask = self.tokenizer.encode(sentences[start : start + batch_size])
            with self._lock, torch.no_grad():
                embedded = self.model.encode_captions(tokens.to(self.device), mask.to(self.device))
                parts.append(read_by_similarity(self.model, embedded))
        return joined(parts)

    def encode_images(self, images: Iterable[Picture], batch_size: int = 32) -> Embedding:
        """Embed pictures.

        They are paths, pictures of Pillow, or arrays (H, W, 3) uint8. The result is that of `encode_texts`,
        and does not depend on the batch size.
        """
        if isinstance(images, str | Path | Image.Image):
            raise ValueError(f"images is one picture ({images!r}): wanted a list of them")
        given, parts = list(images), []
        if not given:
            raise ValueError("images is empty: wanted at least one picture")
        with self._lock:  # or each of several threads would load the network
            if self.backbone is not None and self.backbone.longest is not None:
                batch_size = 1  # pictures that keep their proportions do not fit into one tensor
        for start in range(0, len(given), batch_size):
            with self._lock, torch.no_grad():
                embedded = self._embedded([self._decode(one) for one in given[start : start + batch_size]])
                parts.append(read_by_similarity(self.model, embedded))
        return joined(parts)

    def similarity(self, images: Embedding, texts: Embedding) -> Tensor:
        """Compare every picture with every text by the model's own similarity: (B, C), float32."""
        with self._lock:
            return score_embedded(self.model, images, texts)

    def _decode(self, picture: Picture) -> np.ndarray:
        """Return a picture as what stands first sees it: (H, W, 3) for a backbone, (3, H, W) for a model."""
        if self.backbone is not None:
            return self.backbone.decode(picture)[0]
        if self.model.view is None:
            raise ValueError(f"{self.name} {READS_FEATURES}")
        return self.model.view.plain(open_picture(picture))

    def _embedded(self, pictures: list[np.ndarray]) -> Embedding:
        pixels = torch.from_numpy(np.stack(pictures))
        inputs = pixels.to(self.device) if self.backbone is None else self._features(pixels)
        return self.model.encode_pictures(inputs)

    def _features(self, pixels: Tensor) -> Tensor:
        """Return the features (B, N, F) of decoded pictures (B, H, W, 3)."""
        assert self.backbone is not None
        pictures = pixels.permute(0, 3, 1, 2).contiguous()  # (B, 3, H, W)
        height, width = pictures.shape[-2:]
        sizes = torch.tensor([[height, width, height, width]] * len(pictures))
        features, boxes = self.backbone.features_and_boxes(pictures.to(self.device), sizes)
        read = cast(int, self.model.image_encoder.feature_dim)
        if boxes is not None and read > self.backbone.feature_dim:
            places = torch.from_numpy(places_of(boxes.cpu().numpy()))  # (B, N, 6)
            features = torch.cat([features, places.to(features)], -1)
        return features.to(getattr(torch, self.dtype)).float()  # rounded as in training


def _network_of(run: Run, source: Source) -> Backbone:
    weights = Path(source.weights) if source.weights else None
    network = find_backbone(source.backbone, weights, source.picture_size)
    network = MirroredBackbone(network) if source.mirrored else network
    width = network.feature_dim + (NUMBERS if run.recipe.image.boxes else 0)
    if width != run.data["feature_dim"]:
        raise ValueError(
            f"{source.run} reads features of width {run.data['feature_dim']}, and {source.backbone} "
            f"makes {width}: name the network that it was trained with"
        )
    digest = network.fingerprint()
    made, read = f"{network.name} {digest[:12]}", run.data.get("network", "")  # older runs do not say it
    if source.fingerprint not in ("", digest) or not made.startswith(read):
        raise ValueError(
            f"{source.run} reads features by {read or 'other weights'}, and this is {made}: name their "
            "folder (--features), or the network's weights (--weights)"
        )
    return network.to(best_device())


def _source_of(run: Run, folder: Path, features: str | Path | None, backbone: str) -> Source:
    """Say with which network a run sees pictures, from what was named, or from what lies in its folder."""
    if run.recipe.features == "pixels":
        return Source()
    if features is not None:
        return _source_of_features(Path(features), run)
    if backbone:
        return Source(backbone=backbone)
    if (folder / SOURCE_FILE).is_file():
        return read_json(folder / SOURCE_FILE, Source)
    command = remembered(folder)
    if command is not None and (Path(command.data) / META).is_file():
        with contextlib.suppress(ValueError, OSError):  # what was noted is no longer that
            return _source_of_features(Path(command.data), run)
    # The boxes of scenes are known from how they were made; your own pictures have none.
    drawn = run.data["name"].startswith("scenes") and run.recipe.features != "region"
    return Source(backbone=NETWORK_OF[run.recipe.features] if drawn else "")


def _source_of_features(features: Path, run: Run) -> Source:
    """Read how a folder of features was made, after checking that the run was trained on them."""
    dataset = open_precomp(features)
    if run.recipe.image.boxes:
        dataset = with_boxes(dataset)
    if dataset.fingerprint() != run.data["fingerprint"]:
        raise ValueError(f"the run was trained on other features than {features}: name those (--features)")
    made = read_meta(expanded(features))
    if made is None:
        raise FileNotFoundError(f"{features} has no {META}, which would name its network: use --backbone")
    if made.picture_size is None:
        raise ValueError(
            f"{features} were joined or imported ({made.backbone}), so no one network can read your own "
            "pictures for this run: train on features that vse data extract made with one network"
        )
    return Source(
        backbone=made.backbone.removesuffix(MIRRORED),
        picture_size=made.picture_size,
        mirrored=made.backbone.endswith(MIRRORED),
        dtype=str(made.dtype),
        fingerprint=made.backbone_sha256,
    )
