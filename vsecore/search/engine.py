"""What turns pictures and sentences into vectors for an index: a model with all that must stand before it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from vsecore.data.backbones import Backbone, MirroredBackbone
from vsecore.data.boxes import NUMBERS, places_of, with_boxes
from vsecore.data.feature_folder import META, Settings
from vsecore.data.features import open_precomp
from vsecore.data.files import digest_of, read_json, write_atomically
from vsecore.data.picture_files import decode_in_proportion, decode_picture, open_picture
from vsecore.data.words import Tokenizer
from vsecore.embedding import Embedding
from vsecore.model import VSE
from vsecore.recipes import get
from vsecore.recipes.pretrained import is_folder
from vsecore.scenes.backbones import find_backbone
from vsecore.scenes.build import NETWORK_OF
from vsecore.training import Run, load_run
from vsecore.training.distributed import best_device
from vsecore.training.identity import tokenizer_digest

MIRRORED = ", mirrored"
SOURCE_FILE = "engine.json"
"""Says beside a run that was tuned with which network it sees pictures."""


@dataclass(frozen=True)
class Source:
    """Where an engine comes from: what an index keeps, so that the same engine can be loaded again."""

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


@dataclass(frozen=True)
class Seen:
    """What became of one picture file."""

    path: Path
    size: int = 0
    """Its length in bytes."""
    changed: int = 0
    """When it was last written, in nanoseconds."""
    digest: str = ""
    """Sha256 of its bytes."""
    vectors: np.ndarray | None = None
    """One unit vector (D,) or a set of them (K, D), float32; None: the file could not be read."""
    problem: str = ""
    """Why it could not."""


class Engine:
    """A model that embeds picture files and sentences. Safe to use from several threads.

    Args:
        model: compares vectors, or sets of vectors.
        tokenizer: the one that it was trained with.
        name: what people call it, for messages.
        backbone: the network whose features the model reads; None: it reads pixels.
        source: where it comes from; None: an index built with it must be given it again.
        dtype: the type of the features on which it was trained, "float16" or "float32".

    Raises:
        ValueError: the model compares elements, or reads features and no backbone makes them.
    """

    def __init__(
        self,
        model: VSE,
        tokenizer: Tokenizer,
        name: str,
        *,
        backbone: Backbone | None = None,
        source: Source | None = None,
        dtype: str = "float16",
    ) -> None:
        if model.compares != ("vectors",):
            raise ValueError(
                f"{name} compares {' and '.join(model.compares)}: every picture must be compared with every "
                "sentence in full, which no index can save; choose a model that compares vectors"
            )
        if backbone is None and model.view is None:
            raise ValueError(
                f"{name} reads features of pictures: name the network that makes them (--features, "
                "--backbone)"
            )
        self.model, self.tokenizer, self.name = model.eval(), tokenizer, name
        self.source, self.dtype = source, dtype
        self.backbone = None if backbone is None else backbone.eval()
        self._lock = threading.Lock()

    @classmethod
    def of_run(
        cls,
        folder: str | Path,
        *,
        features: str | Path | None = None,
        backbone: str = "",
        weights: str | Path | None = None,
    ) -> Engine:
        """Load a trained run.

        Args:
            folder: the run's.
            features: for a run that reads features, the folder on which it was trained: its `meta.json` says
                which network made them. A run that `tune` made does not need it.
            backbone: or that network's name. A run that was trained on scenes needs neither.
            weights: a file of the network's weights; None: its published ones.

        Raises:
            FileNotFoundError: the run, the features or the weights are missing.
            ValueError: a file is damaged; the run was trained on other features, or with other weights; or it
                cannot be indexed.
        """
        run = load_run(folder)
        source = Source(
            run=str(Path(folder).expanduser().resolve()),
            weights="" if weights is None else str(Path(weights).expanduser().resolve()),
        )
        kept = Path(source.run) / SOURCE_FILE
        if run.recipe.features == "pixels":
            return cls._of_run(run, replace(source, weights=""))
        if features is not None:
            settings = _settings_of(Path(features), run)
            name = settings.backbone.removesuffix(MIRRORED)
            mirrored = settings.backbone != name
            size, dtype = settings.picture_size, settings.dtype
            source = replace(source, backbone=name, picture_size=size, mirrored=mirrored, dtype=dtype)
            return cls._of_run(run, source, settings.backbone_sha256)
        if not backbone and kept.is_file():
            stored: Source = read_json(kept, Source)
            source = replace(stored, run=source.run, recipe="", weights=source.weights or stored.weights)
            return cls._of_run(run, source)
        # The boxes of scenes are known from how they were made; your own pictures have none.
        if not backbone and run.data["name"].startswith("scenes") and run.recipe.features != "region":
            backbone = NETWORK_OF[run.recipe.features]
        if not backbone:
            raise ValueError(
                f"{folder} reads features of {run.data['name']}: name their folder (--features), or the "
                "network that made them (--backbone)"
            )
        return cls._of_run(run, replace(source, backbone=backbone))

    @classmethod
    def of_recipe(cls, name: str) -> Engine:
        """Load towers that were trained already (CLIP, SigLIP), to be used as they are.

        Args:
            name: a recipe's name, or the folder of a model.

        Raises:
            FileNotFoundError: the model cannot be found.
            ValueError: the recipe must be trained first.
        """
        recipe = get(name)
        if not recipe.is_trained:
            raise ValueError(f"recipe {name} must be trained first (vse train {name}): then name its run")
        kept = str(Path(name).expanduser().resolve()) if is_folder(name) else name
        tokenizer = recipe.tokenizer(["-"])
        model = recipe.build(3, tokenizer).to(best_device())
        return cls(model, tokenizer, recipe.name, source=Source(recipe=kept))

    @classmethod
    def of(cls, source: Source) -> Engine:
        """Load the engine that an index was built with.

        Raises:
            FileNotFoundError: a file of it is not where it was.
            ValueError: a file of it is damaged, or another one.
        """
        return cls.of_recipe(source.recipe) if source.recipe else cls._of_run(load_run(source.run), source)

    @classmethod
    def _of_run(cls, run: Run, source: Source, backbone_sha256: str = "") -> Engine:
        """Build the engine of a run, whose features a network of this fingerprint made ("": unknown)."""
        model = run.model.to(best_device())
        if not source.backbone:
            return cls(model, run.tokenizer, source.run, source=source)
        weights = Path(source.weights) if source.weights else None
        network = find_backbone(source.backbone, weights, source.picture_size)
        network = MirroredBackbone(network) if source.mirrored else network
        if backbone_sha256 and network.fingerprint() != backbone_sha256:
            raise ValueError(
                f"the weights of {source.backbone} are not those that made the features of {source.run}: "
                "name their file (--weights)"
            )
        width = network.feature_dim + (NUMBERS if run.recipe.image.boxes else 0)
        if width != run.data["feature_dim"]:
            raise ValueError(
                f"{source.run} reads features of width {run.data['feature_dim']}, and {source.backbone} "
                f"makes {width}: name the network that it was trained with"
            )
        network = network.to(best_device())
        return cls(model, run.tokenizer, source.run, backbone=network, source=source, dtype=source.dtype)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @functools.cached_property
    def fingerprint(self) -> str:
        """A sha256 over all that decides the vectors: weights, words, the network before, the cut."""
        digest = hashlib.sha256(tokenizer_digest(self.tokenizer).encode())
        digest.update(repr(self.model.view).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        if self.backbone is not None:
            before = f"{self.backbone.fingerprint()} {self.backbone.picture_size} {self.dtype}"
            digest.update(before.encode())
        return digest.hexdigest()

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        """What a sentence becomes: (D,), or (K, D) for a set."""
        return tuple(self.sentence("a picture").shape)

    @property
    def has_sets(self) -> bool:
        """Whether pictures and sentences become sets of vectors."""
        return len(self.shape) == 2

    def sentence(self, text: str) -> np.ndarray:
        """Embed a sentence: a unit vector (D,) or a set of them (K, D), float32.

        Raises:
            ValueError: it is empty.
        """
        if not text.strip():
            raise ValueError("the sentence is empty: write what the picture should show")
        tokens, mask = self.tokenizer.encode([text])
        with self._lock, torch.inference_mode():
            return _vectors(self.model.encode_captions(tokens.to(self.device), mask.to(self.device)))[0]

    def unknown_words(self, text: str) -> list[str]:
        """Return the words of a sentence that the model never learned."""
        numbers = self.tokenizer.encode([text])[0][0].tolist()
        return [
            word
            for word, places in self.tokenizer.words_of(text)
            if all(place < len(numbers) and numbers[place] == self.tokenizer.unknown for place in places)
        ]

    def picture(self, path: str | Path) -> np.ndarray:
        """Embed one picture file.

        Raises:
            ValueError: it cannot be read as a picture.
        """
        seen = next(self.pictures([Path(path)]))[0]
        if seen.vectors is None:
            raise ValueError(seen.problem)
        return seen.vectors

    def pictures(self, files: Sequence[Path], batch_size: int = 32) -> Iterator[list[Seen]]:
        """Embed picture files, batch by batch, in their order. A broken one has a `problem` instead.

        Threads decode the next two batches while the network works on one.
        """
        if self.backbone is not None and self.backbone.longest is not None:
            batch_size = 1  # pictures that keep their proportions do not fit into one tensor
        batches = [files[start : start + batch_size] for start in range(0, len(files), batch_size)]
        waiting: deque[list[Future[tuple[Seen, np.ndarray | None]]]] = deque()
        with ThreadPoolExecutor(min(os.cpu_count() or 1, 16)) as pool:
            for batch in [*batches, [], []]:
                waiting.append([pool.submit(self._read, path) for path in batch])
                if len(waiting) > 2 and (ready := waiting.popleft()):
                    yield self._embed([future.result() for future in ready])

    def features(self, files: Sequence[Path]) -> np.ndarray:
        """Return what the model reads of picture files, (n, N, F), rounded as in training.

        Raises:
            ValueError: a picture cannot be read; or the model reads pixels.
        """
        if self.backbone is None:
            raise ValueError(f"{self.name} reads pixels: there are no features")
        pixels = (torch.from_numpy(np.stack([self._decode(path)])) for path in files)
        with self._lock, torch.inference_mode():
            return np.concatenate([self._features(one).cpu().numpy().astype(self.dtype) for one in pixels])

    def compare(self, vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
        """Compare n pictures, (n, D) or (n, K, D), with one query by the model's own similarity: (n,)."""
        pictures, wanted = (torch.from_numpy(x).to(self.device) for x in (vectors, query[None]))
        with self._lock, torch.inference_mode():
            return self.model.scores(Embedding(pictures), Embedding(wanted))[:, 0].float().cpu().numpy()

    def _read(self, path: Path) -> tuple[Seen, np.ndarray | None]:
        """Decode a picture, (H, W, 3) or (3, H, W) uint8, and note which version of the file it is.

        The version is noted first, so that the next `Index.add` sees a change that comes in between.
        """
        seen = Seen(path)
        try:
            status = path.stat()
            seen = Seen(path, status.st_size, status.st_mtime_ns)
            return replace(seen, digest=digest_of(path).hex()), self._decode(path)
        except (ValueError, OSError) as error:
            return replace(seen, problem=str(error)), None

    def _decode(self, path: Path) -> np.ndarray:
        if self.backbone is None:
            assert self.model.view is not None  # refused by the constructor
            return self.model.view.plain(open_picture(path))
        if self.backbone.longest is not None:
            return decode_in_proportion(path, self.backbone.picture_size, self.backbone.longest)[0]
        return decode_picture(path, self.backbone.picture_size)

    def _embed(self, read: list[tuple[Seen, np.ndarray | None]]) -> list[Seen]:
        whole = [pixels for _, pixels in read if pixels is not None]
        if not whole:
            return [seen for seen, _ in read]
        pixels = torch.from_numpy(np.stack(whole))
        with self._lock, torch.inference_mode():
            inputs = pixels.to(self.device) if self.backbone is None else self._features(pixels)
            vectors = iter(_vectors(self.model.encode_pictures(inputs)))
        return [seen if pixels is None else replace(seen, vectors=next(vectors)) for seen, pixels in read]

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


def keep_source(source: Source, folder: str | Path) -> None:
    """Note in a run's folder with which network it sees pictures."""
    with write_atomically(Path(folder) / SOURCE_FILE, "w") as file:
        json.dump(asdict(source), file, indent=1)


def _vectors(embedding: Embedding) -> np.ndarray:
    """Return the vectors of an embedding, (B, D) or (B, K, D), float32.

    Raises:
        FloatingPointError: they are not finite.
    """
    assert embedding.vectors is not None  # the engine refuses models without
    vectors = embedding.vectors.float().cpu().numpy()
    if not np.isfinite(vectors).all():
        raise FloatingPointError("the model's vectors are not finite: train the model again")
    return np.ascontiguousarray(vectors)


def _settings_of(features: Path, run: Run) -> Settings:
    """Read how a folder of features was made, after checking that the run was trained on them."""
    dataset = open_precomp(features)
    if run.recipe.image.boxes:
        dataset = with_boxes(dataset)
    if dataset.fingerprint() != run.data["fingerprint"]:
        raise ValueError(f"the run was trained on other features than {features}: name those (--features)")
    meta = features.expanduser() / META
    if not meta.is_file():
        raise FileNotFoundError(f"{features} has no {META}, which would name its network: use --backbone")
    settings: Settings = read_json(meta, Settings)
    if settings.picture_size is None:
        raise ValueError(
            f"{features} were made elsewhere, by {settings.backbone}, which cannot look at your own pictures "
            "here: extract features with vse data extract, and train on them"
        )
    return settings
