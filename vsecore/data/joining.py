"""Features of several networks side by side: what one of them misses, another may have seen."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vsecore.data.annotations import as_dataset_name
from vsecore.data.feature_folder import BLOCK, Meta
from vsecore.data.features import open_precomp
from vsecore.data.files import expanded
from vsecore.data.folder_writer import FolderWriter, as_stored
from vsecore.data.splits import Split


def join(folders: Sequence[str | Path], out: str | Path, cells: bool = False) -> Path:
    """Write a new folder in which features of the same pictures, from several folders, stand side by side.

    Each picture becomes one vector, the mean element of every network, whose grids may therefore have
    different sizes. With `cells`, each cell of equal grids becomes one: what all see at the same place. What
    is joined is kept in float16; features with numbers that it cannot hold, above 65,504, are refused.
    """
    if len(folders) < 2:
        raise ValueError(f"folders has {len(folders)}: wanted at least two to join")
    datasets, out = [open_precomp(folder) for folder in folders], expanded(out)
    splits = {name: [getattr(dataset, name) for dataset in datasets] for name in ("train", "dev", "test")}
    if all((expanded(folder) / "testall_ims.npy").exists() for folder in folders):
        splits["testall"] = [open_precomp(folder, test="testall").test for folder in folders]
    for name, (first, *others) in splits.items():
        for folder, other in zip(folders[1:], others, strict=True):
            if not first.shows_the_same(other):
                raise ValueError(
                    f"{folder}: its {name} split has other pictures or captions than {folders[0]}"
                )
    grids = [(data.feature_kind, data.train.pictures.shape[1]) for data in datasets]
    if cells and {*grids} != {("grid", grids[0][1])}:
        found = ", ".join(f"{kind} of {elements}" for kind, elements in grids)
        raise ValueError(f"the folders hold {found}: wanted grids of one size to join cell by cell")
    networks = (
        data.network or Path(folder).resolve().name for folder, data in zip(folders, datasets, strict=True)
    )
    firsts = {name: several[0] for name, several in splits.items()}
    meta = Meta.of(
        firsts,
        dataset=as_dataset_name(datasets[0].name),
        backbone=" + ".join(networks),
        kind="grid",
        dtype="float16",
        elements=grids[0][1] if cells else 1,
        feature_dim=sum(dataset.feature_dim for dataset in datasets),
    )

    def side_by_side(name: str, rows: np.ndarray) -> list[np.ndarray]:
        seen = []
        for folder, split in zip(folders, splits[name], strict=True):
            part = split.pictures[rows] if cells else _means(split, rows)[:, None]
            names = [f"{split.picture_ids[row]} in {folder}" for row in rows]
            seen.append(as_stored(part, "float16", names))
        return [np.concatenate(seen, axis=2)]

    return FolderWriter(out, meta, firsts).fill(lambda name, blocks: (side_by_side(name, x) for x in blocks))


def mean_elements(split: Split) -> np.ndarray:
    """Return the mean of each picture's real elements, (n, F) float32; pixels are refused."""
    if split.has_pixels:
        raise ValueError(f"split {split.name!r} holds pixels: wanted features (pictures, elements, width)")
    blocks = (np.arange(start, min(start + BLOCK, len(split))) for start in range(0, len(split), BLOCK))
    return np.concatenate([_means(split, rows) for rows in blocks])


def _means(split: Split, rows: np.ndarray) -> np.ndarray:
    """Return the mean of the real elements of some pictures, (B, F) float32."""
    seen = np.asarray(split.pictures[rows], np.float32)  # (B, N, F)
    real = split.real_elements(rows)[..., None]  # (B, N, 1)
    return np.asarray((seen * real).sum(1) / real.sum(1), np.float32)
