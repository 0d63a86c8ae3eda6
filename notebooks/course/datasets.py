"""One way to open all data: the embedded world by its name, photographs by their folder."""

import hashlib
import os
from pathlib import Path
from typing import Literal

import numpy as np

from vsecore import scenes
from vsecore.arguments import Count, checked
from vsecore.data.backbones import MOBILENET, Backbone, load_backbone
from vsecore.data.extraction import extract
from vsecore.data.feature_folder import META
from vsecore.data.features import holds_features, open_precomp
from vsecore.data.files import cache_folder
from vsecore.data.karpathy import load_karpathy
from vsecore.data.picture_files import open_picture
from vsecore.data.splits import Dataset, FeatureKind, captions_sha256
from vsecore.scenes.backbones import find_backbone
from vsecore.scenes.build import NETWORK_OF

#: Every collection that the course knows by name.
DatasetName = Literal["scenes", "flickr8k", "flickr30k", "coco"]
Sizes = dict[Literal["train", "dev", "test"], Count]
# For photographs without extracted features: small enough for a laptop, by their names in timm.
REGIONS = "regions"
BACKBONES: dict[FeatureKind, str] = {"grid": "mobilenetv2_100", "patch": "vit_tiny_patch16_224"}


@checked
def open_dataset(
    name: DatasetName, root: Path | None = None, *, features: FeatureKind = "grid", sizes: Sizes | None = None
) -> Dataset:
    """Open a dataset with features of its pictures, "grid", "region" or "patch".

    The scenes are generated, once, and kept in the cache. Photographs are read from a folder of extracted
    features; for a folder of pictures and captions, features are extracted once and kept in the cache. If
    captions, weights or the size of a picture's file have changed, all are extracted again.

    Args:
        name: one of `DatasetName`.
        root: for photographs, the folder of features, or of pictures and captions. Beside these, a folder
            `regions` may hold features of a detector's regions for the same pictures.
        features: what an element is.
        sizes: pictures of "train", "dev" and "test"; a split that is not named keeps all of its
            pictures (scenes have 4000, 500 and 1000).

    Raises:
        ValueError: features that cannot be made from pictures here.
        FileNotFoundError: the folder, or something that must be in it, is missing.
    """
    sizes = sizes or {}
    if name == "scenes":
        return scenes.load(**sizes, features=features)
    if root is None:
        raise ValueError(f"root is missing: name the folder of {name}")
    if features == "region" and has_regions(root):
        root /= REGIONS
    made = (root / "train_ims.npy").exists()
    dataset = open_precomp(root) if made else _extracted(name, root, features, sizes)
    if dataset.feature_kind != features:
        raise ValueError(f"features is {features!r}, but {root} holds {dataset.feature_kind} features")
    asked = {name: getattr(dataset, name) for name in sizes}
    cut = {name: split.subset(min(sizes[name], len(split))) for name, split in asked.items()}
    return Dataset(**vars(dataset) | cut)


@checked
def open_backbone(name: DatasetName, root: Path | None = None, *, features: FeatureKind = "grid") -> Backbone:
    """Open the network that `open_dataset` extracts features with, to use it on other pictures.

    It makes "grid" or "patch" of pixels. Regions need boxes beside the pixels: see `SceneCNN.regions`.
    """
    if features not in BACKBONES:
        raise ValueError(f"features is {features!r}: from pixels alone come {', '.join(BACKBONES)}")
    if name == "scenes":
        return find_backbone(NETWORK_OF[features])
    if root is None:
        raise ValueError(f"root is missing: name the folder of {name}")
    weights = _local_weights(root) if features == "grid" else None  # they are a MobileNet's
    return load_backbone(BACKBONES[features] if weights is None else MOBILENET, weights)


def has_regions(root: Path | None) -> bool:
    """Whether there are regions: of the scenes (None) always, of photographs if their folder has them."""
    return root is None or holds_features(root / REGIONS)


def region_boxes(root: Path, split: str, row: int) -> np.ndarray:
    """The boxes of a photograph's regions, (N, 4) left, top, right, bottom, as shares of its sides."""
    file = root / REGIONS / f"{split}_boxes.npy"
    if not file.is_file():
        raise ValueError(f"{file} is missing: without boxes, regions cannot be shown")
    width, height = open_picture(picture_files(root, split)[row]).size
    return np.load(file, mmap_mode="r")[row] / (width, height, width, height)


def picture_files(root: Path, split: str) -> list[Path]:
    """List the picture files of a split of photographs, in the order of its rows."""
    return load_karpathy(root)[split].files


def _extracted(name: DatasetName, root: Path, features: FeatureKind, sizes: Sizes) -> Dataset:
    """Extract features of a folder of photographs, of no more than is asked for, once."""
    if features not in BACKBONES:
        raise ValueError(
            f"features is 'region' and {root} holds pictures: a detector's regions come as extracted "
            f"features, in a folder {REGIONS!r} beside them"
        )
    network = open_backbone(name, root, features=features)
    most = {str(part): size for part, size in sizes.items()}
    splits = {
        part: split.subset(min(most.get(part, len(split.files)), len(split.files)))
        for part, split in load_karpathy(root).items()
    }
    # Named by what they are made from: other pictures, captions or weights give other features.
    sources = [
        str(root.resolve()),
        network.fingerprint(),
        *map(captions_sha256, splits.values()),
        *(str(path.stat().st_size) for split in splits.values() for path in split.files),
    ]
    key = hashlib.sha256("\n".join(sources).encode()).hexdigest()[:12]
    folder = cache_folder("features", f"{name}-{features}-{key}")
    if not (folder / META).exists():
        extract(splits, network, folder)
    return open_precomp(folder)


def _local_weights(root: Path) -> Path | None:
    """Find MobileNetV2's weights: in VSECORE_WEIGHTS, or in a folder `weights` in or beside the pictures."""
    file, named = f"{MOBILENET}.safetensors", os.environ.get("VSECORE_WEIGHTS")
    beside = (root / "weights", root.resolve().parent / "weights")
    folders = (Path(named).expanduser(),) if named else beside
    found = next((folder / file for folder in folders if (folder / file).is_file()), None)
    if named and found is None:
        raise FileNotFoundError(f"VSECORE_WEIGHTS is {named}: it must be a folder that holds {file}")
    return found
