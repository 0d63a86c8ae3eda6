"""Features of several networks side by side: what one of them misses, another may have seen."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from vsecore.data import files
from vsecore.data.feature_folder import META
from vsecore.data.features import BLOCK, open_precomp, write_split
from vsecore.data.karpathy import captions_sha256
from vsecore.data.splits import Split


def join(folders: Sequence[str | Path], out: str | Path, cells: bool = False) -> Path:
    """Write a folder of features in which networks stand side by side.

    Each picture becomes one vector, the mean element of every network, whose grids may therefore have
    different sizes. Or each cell of equal grids becomes one: what all networks see at the same place.

    Args:
        folders: at least two folders of features, of the same pictures and captions.
        out: the folder to write, new or empty.
        cells: whether to join cell by cell.

    Returns:
        `out`.

    Raises:
        ValueError: fewer than two folders, or their pictures, captions or, cell by cell, grids differ.
        FileExistsError: `out` holds something already.
        FileNotFoundError: a folder or one of its files is missing.
    """
    if len(folders) < 2:
        raise ValueError(f"folders has {len(folders)}: wanted at least two to join")
    datasets = [open_precomp(folder) for folder in folders]
    out = Path(out).expanduser()
    if out.is_dir() and any(out.iterdir()):
        raise FileExistsError(f"{out} holds something already: name a new folder for the joined features")
    names = ("train", "dev", "test")
    for folder, dataset in zip(folders[1:], datasets[1:], strict=True):
        for name in names:
            first, other = getattr(datasets[0], name), getattr(dataset, name)
            if first.picture_ids != other.picture_ids or first.captions != other.captions:
                raise ValueError(
                    f"{folder}: its {name} split has other pictures or captions than that of {folders[0]}: "
                    "extract both from the same collection"
                )
    grids = [(data.feature_kind, data.train.pictures.shape[1]) for data in datasets]
    if cells and {*grids} != {("grid", grids[0][1])}:
        found = ", ".join(f"{kind} of {elements}" for kind, elements in grids)
        raise ValueError(f"the folders hold {found}: wanted grids of one size to join cell by cell")
    splits: dict[str, Split] = {name: getattr(datasets[0], name) for name in names}
    for name, split in splits.items():
        several = [getattr(dataset, name) for dataset in datasets]
        parts = [_cells(part) if cells else mean_elements(part)[:, None] for part in several]
        write_split(out, replace(split, pictures=np.concatenate(parts, axis=2), picture_counts=None))
    networks = (
        data.network or Path(folder).resolve().name for folder, data in zip(folders, datasets, strict=True)
    )
    meta = {
        "dataset": datasets[0].name,
        "backbone": " + ".join(networks),
        "kind": "grid",
        "dtype": "float16",
        "elements": grids[0][1] if cells else 1,
        "feature_dim": sum(dataset.feature_dim for dataset in datasets),
        "captions_a_picture": int(max(split.caption_counts.max() for split in splits.values())),
        "pictures": {name: len(split) for name, split in splits.items()},
        "captions_sha256": {n: captions_sha256(s) for n, s in splits.items()},
    }
    with files.write_atomically(out / META, "w") as file:  # last: it marks the folder as whole
        json.dump(meta, file, indent=2)
    return out


def _cells(split: Split) -> np.ndarray:
    """Return the elements of all pictures in half precision, as they will be on disk, (n, N, F)."""
    return np.asarray(split.pictures[np.arange(len(split))], np.float16)


def mean_elements(split: Split) -> np.ndarray:
    """Return the mean of each picture's real elements, (n, F) float32; pixels are refused."""
    if split.has_pixels:
        raise ValueError(f"split {split.name!r} holds pixels: wanted features (pictures, elements, width)")
    means = np.empty((len(split), split.pictures.shape[2]), np.float32)
    for start in range(0, len(split), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(split)))
        block = np.asarray(split.pictures[rows], np.float32)  # (b, N, F)
        counts = (
            np.full(len(rows), block.shape[1]) if split.picture_counts is None else split.picture_counts[rows]
        )
        real = np.arange(block.shape[1]) < counts[:, None]  # (b, N)
        means[rows] = (block * real[..., None]).sum(1) / counts[:, None]
    return means
