"""Features of pictures as files: the folders that papers share, mapped from disk.

A folder holds, for each split, `{split}_ims.npy` (n, N, F), `{split}_caps.txt` (one caption per line) and
`{split}_ids.txt`. Files of 33 GB are mapped, never read whole. `extract` (from `vsecore.data.extraction`)
writes such a folder from photographs, with a network of `load_backbone` (from `vsecore.data.backbones`).
"""

from pathlib import Path
from typing import Any

import numpy as np

from vsecore.data import files
from vsecore.data.backbones import Backbone, load_backbone
from vsecore.data.extraction import META, UNFINISHED, extract, find_damage, first_not_finite
from vsecore.data.karpathy import CAPTIONS_A_PICTURE, DataReport, check_dataset_name
from vsecore.data.memory_map import MappedPictures
from vsecore.data.splits import Dataset, FeatureKind, Split

__all__ = ["Backbone", "MappedPictures", "check_precomp", "extract", "load_backbone", "open_precomp"]

REPEATS = 5
"""How often such folders repeat each evaluation picture: once for each of its captions."""


def open_precomp(folder: str | Path, kind: FeatureKind | None = None, test: str = "test") -> Dataset:
    """A dataset from a folder of features, which stay on disk.

    A split may hold one row per picture, or repeat each picture once for each of its five captions; the rows
    show which. A few of them are checked for NaN (`check_precomp` checks all).

    Args:
        folder: has `{split}_ims.npy`, `{split}_caps.txt` and, if there are any, `{split}_ids.txt`.
        kind: what the elements are; None: as `meta.json` says, else "region", as in the folders that papers
            share.
        test: the split to test on: "testall" is the 5,000 pictures of COCO where "test" is 1,000 of them.

    Raises:
        FileNotFoundError: the folder or one of its files is missing.
        ValueError: a file is cut off, holds NaN, or does not fit the others; the extraction is unfinished.
    """
    folder = _precomp_folder(folder)
    meta = _read_meta(folder)
    splits = {}
    for ours, theirs in _split_names(test).items():
        splits[ours], pictures = _open_split(folder, theirs, ours, meta)
        rows = np.unique(np.linspace(0, len(pictures) - 1, 32).astype(np.int64))
        bad = first_not_finite(pictures[rows])
        if bad is not None:
            raise ValueError(_nan_message(pictures, int(rows[bad])))
    return Dataset(
        name=meta.get("dataset", folder.name),
        **splits,
        feature_kind=kind or meta.get("kind", "region"),
    )


def check_precomp(folder: str | Path, test: str = "test") -> DataReport:
    """Check a folder of features, reading every number, and list every problem.

    Args:
        folder: as for `open_precomp`.
        test: as for `open_precomp`.

    Returns:
        What is there, and every problem. With no problems, the folder is ready.
    """
    report = DataReport()
    try:
        folder = _precomp_folder(folder)
        meta = _read_meta(folder)
    except (ValueError, OSError) as error:
        report.problems.append(str(error))
        return report
    if meta:
        report.facts.append(f"{meta.get('dataset')}: {meta.get('kind')} features of {meta.get('backbone')}")
    for ours, theirs in _split_names(test).items():
        try:
            split, pictures = _open_split(folder, theirs, ours, meta)
        except (ValueError, OSError) as error:
            report.problems.append(str(error))
            continue
        report.facts.append(repr(split))
        block = 256
        blocks = range(0, len(split), block)
        for start in files.progress(blocks, desc=f"read {ours}", unit="block"):
            bad = first_not_finite(np.asarray(pictures[start : start + block]))
            if bad is not None:
                report.problems.append(_nan_message(pictures, start + bad))
                break
    report.problems += find_damage(folder)
    return report


def _precomp_folder(folder: str | Path) -> Path:
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}: name a folder that holds train_ims.npy and the rest")
    if (folder / UNFINISHED).exists() and not (folder / META).exists():
        raise ValueError(
            f"{folder} holds an unfinished extraction: run the same extraction again to finish it"
        )
    return folder


def _split_names(test: str) -> dict[str, str]:
    return {"train": "train", "dev": "dev", "test": test}


def _read_meta(folder: Path) -> dict[str, Any]:
    if not (folder / META).exists():
        return {}
    meta = files.read_json(folder / META)
    if "dataset" in meta:
        check_dataset_name(meta["dataset"], folder / META)
    return meta


def _read_lines(path: Path) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: it belongs beside the features")
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}): save it as UTF-8") from None
    # Only at "\n": splitlines would also cut at rarer characters, which some captions contain.
    lines = [line.strip() for line in text.removesuffix("\n").split("\n")]
    if "" in lines:
        raise ValueError(f"{path}, line {lines.index('') + 1} is empty: wanted something on each line")
    return lines


def _open_split(folder: Path, theirs: str, ours: str, meta: dict[str, Any]) -> tuple[Split, MappedPictures]:
    pictures = MappedPictures(folder / f"{theirs}_ims.npy")
    caption_file, id_file = folder / f"{theirs}_caps.txt", folder / f"{theirs}_ids.txt"
    captions = _read_lines(caption_file)
    rows, each = len(pictures), meta.get("captions_a_picture", CAPTIONS_A_PICTURE)
    if len(captions) == rows and rows % REPEATS == 0 and _repeats_pictures(pictures):
        pictures, each = pictures[::REPEATS], REPEATS
    elif len(captions) != each * rows:
        raise ValueError(
            f"{caption_file} has {len(captions)} captions for the {rows} rows of {pictures.path.name}: "
            f"wanted {each * rows}, {each} for each (or {rows}, where each picture is repeated {REPEATS} "
            "times); one of the two files is cut off"
        )
    identities = [str(row) for row in range(len(pictures))]
    if id_file.is_file():
        identities = _read_lines(id_file)
        if len(identities) in (rows, len(captions)) and len(identities) % len(pictures) == 0:
            identities = identities[:: len(identities) // len(pictures)]
        else:
            raise ValueError(
                f"{id_file} has {len(identities)} lines for {len(pictures)} pictures: get it again"
            )
    split = Split(
        name=ours,
        pictures=pictures,
        captions=captions,
        owner=np.repeat(np.arange(len(pictures)), each),
        picture_ids=identities,
    )
    return split, pictures


def _repeats_pictures(pictures: MappedPictures) -> bool:
    """Whether rows come in fives of the same picture, judged by the first, a middle and the last five."""
    groups = len(pictures) // REPEATS
    for group in {0, groups // 2, groups - 1}:
        five = pictures[np.arange(REPEATS * group, REPEATS * (group + 1))]
        if not np.array_equal(five, np.broadcast_to(five[:1], five.shape), equal_nan=True):
            return False
    return True


def _nan_message(pictures: MappedPictures, row: int) -> str:
    place = f"{pictures.path}, row {pictures.rows[row]}"
    return f"{place} holds NaN or infinity: get the file again, or delete it and extract again"
