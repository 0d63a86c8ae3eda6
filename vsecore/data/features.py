"""Features of pictures as files: the folders that papers share, mapped from disk.

A folder holds, for each split, `{split}_ims.npy` (n, N, F), `{split}_caps.txt` (one caption per line) and
`{split}_ids.txt`. Files of 33 GB are mapped, never read whole. `extract` (from `vsecore.data.extraction`)
writes such a folder from photographs, with a network of `load_backbone` (from `vsecore.data.backbones`).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from vsecore.data import files
from vsecore.data.annotations import DatasetName, expanded, read_lines
from vsecore.data.backbones import Backbone, load_backbone
from vsecore.data.extraction import extract
from vsecore.data.feature_folder import (
    CAPTION_COUNTS,
    CAPTION_IDS,
    CHECKSUMS,
    COUNTS,
    META,
    UNFINISHED,
    find_damage,
    texts_of,
)
from vsecore.data.feature_rows import first_not_finite
from vsecore.data.karpathy import DataReport, captions_sha256, lines_sha256
from vsecore.data.known_words import look_at_words
from vsecore.data.memory_map import MappedPictures
from vsecore.data.splits import CAPTIONS_A_PICTURE, Dataset, FeatureKind, Split
from vsecore.typed import counted, short

__all__ = ["Backbone", "MappedPictures", "check_precomp", "extract", "load_backbone", "open_precomp"]

REPEATS = 5
"""How often such folders repeat each evaluation picture: once for each of its captions."""
BLOCK = 256
"""Pictures written at a time."""


@dataclass(frozen=True)
class _Meta:
    """What `meta.json` says about the features; folders that papers share have none."""

    dataset: DatasetName | None = None
    kind: FeatureKind = "region"
    backbone: str | None = None
    backbone_sha256: str = ""
    captions_a_picture: Annotated[int, Field(ge=1)] = CAPTIONS_A_PICTURE
    """Where a split has no file of counts."""
    dtype: str | None = None
    elements: int | None = None
    feature_dim: int | None = None
    pictures: dict[str, int] = field(default_factory=dict)
    captions_sha256: dict[str, str] = field(default_factory=dict)
    counts_sha256: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, list[str]] = field(default_factory=dict)

    @property
    def network(self) -> str:
        """The network that made the features, with a digest of its weights; "": nobody knows."""
        return " ".join(filter(None, [self.backbone, self.backbone_sha256[:12]]))


@dataclass(frozen=True)
class _Opened:
    """One split of a folder."""

    split: Split
    whole: MappedPictures
    """All rows of the file."""
    repeats: int
    """How many consecutive rows are the same picture."""
    names: Literal["given", "numbers", "none"]
    """Whether its file of ids gives names, or only numbers of its lines; "none": there is no file."""


def open_precomp(folder: str | Path, kind: FeatureKind | None = None, test: str = "test") -> Dataset:
    """Open a folder of features as a dataset; the features stay on disk.

    A split may hold one row per picture, or repeat each picture once for each of its five captions; the rows
    show which. A few of them are checked for NaN (`check_precomp` checks all). A single wrong bit goes
    unnoticed here, since checksums are not compared: after copying a folder to another machine, run
    `vse data check` on it once.

    The file of ids has a line for each picture, or a line for each caption, which names its picture or
    numbers the caption. No picture may be in two splits. Ids that are only numbers of the file's lines name
    no pictures, so two splits may both have them.

    Args:
        folder: has `{split}_ims.npy`, `{split}_caps.txt` and, if there are any, `{split}_ids.txt`.
        kind: what the elements are; None: as `meta.json` says, else "region", as in the folders that papers
            share.
        test: the split to test on: "testall" is the 5,000 pictures of COCO where "test" is 1,000 of them.

    Raises:
        FileNotFoundError: the folder or one of its files is missing.
        ValueError: a file is cut off, holds NaN, or does not fit the others; a picture is listed twice; the
            extraction is unfinished.
    """
    folder, meta, names = _begin(folder, test)
    opened = {ours: _open_split(folder, theirs, ours, meta) for ours, theirs in names.items()}
    for part in opened.values():
        _refuse_nan(part, np.unique(np.linspace(0, len(part.whole) - 1, 32).astype(np.int64)))
    _refuse_shared_pictures(folder, opened)
    return _dataset(folder, meta, opened, kind)


def write_split(folder: Path, split: Split) -> None:
    """Write a split into a folder of features, in half precision; its captions come last."""
    header = {"descr": "<f2", "fortran_order": False, "shape": tuple(split.pictures.shape)}
    with files.write_atomically(folder / f"{split.name}_ims.npy") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in files.progress(range(0, len(split), BLOCK), desc=f"write {split.name}", unit="block"):
            file.write(np.asarray(split.pictures[start : start + BLOCK], "<f2").tobytes())
    for path, text in texts_of(folder, split.name, split).items():
        with files.write_atomically(path, "w") as file:
            file.write(text)


def check_precomp(folder: str | Path, test: str = "test") -> DataReport:
    """Check a folder of features, reading every number, and list every problem.

    A folder that `extract` has written has checksums, so that a single wrong bit is found. If rows of a split
    are damaged, nothing else of it is checked: extracting again repairs its text files too.

    Args:
        folder: as for `open_precomp`.
        test: as for `open_precomp`.

    Returns:
        What is there, and every problem. With no problems, the folder is ready.
    """
    report = DataReport()
    with report.noting():
        folder, meta, names = _begin(folder, test)
        if (folder / META).exists():
            report.facts.append(f"{meta.dataset}: {meta.kind} features of {meta.backbone}")
            report.facts += (
                f"left out of {name}, because they cannot be read: {counted(ids, 'picture')}"
                for name, ids in meta.unreadable.items()
            )
        damage: dict[str, str] = {}
        if (folder / CHECKSUMS).exists():
            with report.noting():
                damage = find_damage(folder)
        else:
            report.facts.append("no checksums: numbers that are wrong, but finite, go unnoticed")
        report.problems += damage.values()
        opened: dict[str, _Opened] = {}
        for ours, theirs in names.items():
            if theirs in damage:
                continue
            with report.noting():
                opened[ours] = _open_split(folder, theirs, ours, meta)
                report.facts.append(repr(opened[ours].split))
                _check_rows(opened[ours])
        with report.noting():
            _refuse_shared_pictures(folder, opened)
        if opened.keys() == names.keys():
            _dataset(folder, meta, opened, None)
            facts, warnings = look_at_words({name: part.split for name, part in opened.items()})
            report.facts += facts
            report.warnings += warnings
    return report


def _check_rows(part: _Opened) -> None:
    """Read every number: all must be finite, and repeated rows equal."""
    block = 64 * part.repeats
    blocks = range(0, len(part.whole), block)
    for start in files.progress(blocks, desc=f"read {part.split.name}", unit="block"):
        rows = _refuse_nan(part, np.arange(start, min(start + block, len(part.whole))))
        fives = rows.reshape(-1, part.repeats, *rows.shape[1:])
        differ = (fives != fives[:, :1]).any(tuple(range(1, fives.ndim)))
        if differ.any():
            row = start + part.repeats * int(differ.argmax())
            raise ValueError(
                f"{part.whole.path}, rows {row} to {row + part.repeats - 1} differ, though elsewhere in it "
                f"each picture has {part.repeats} equal rows: get the file again"
            )


def _refuse_nan(part: _Opened, rows: np.ndarray) -> np.ndarray:
    """Read some rows of a file, which must be finite numbers."""
    read: np.ndarray = part.whole[rows]
    bad = first_not_finite(read)
    if bad is not None:
        raise ValueError(
            f"{part.whole.path}, row {rows[bad]} holds NaN or infinity: get the file again, or delete it and "
            "extract again"
        )
    return read


def _dataset(folder: Path, meta: _Meta, opened: dict[str, _Opened], kind: FeatureKind | None) -> Dataset:
    splits = {name: part.split for name, part in opened.items()}
    name = meta.dataset or folder.resolve().name
    return Dataset(name, **splits, feature_kind=kind or meta.kind, network=meta.network)


def _refuse_shared_pictures(folder: Path, opened: dict[str, _Opened]) -> None:
    """Refuse a picture in two splits: testing on a picture that was trained on is no test."""
    places: dict[str, _Opened] = {}
    for part in opened.values():
        for identity in part.split.picture_ids if part.names != "none" else ():
            before = places.setdefault(identity, part)
            if before is not part and "given" in (before.names, part.names):
                raise ValueError(
                    f"{folder}: the picture {identity!r} is in split {before.split.name!r} and in split "
                    f"{part.split.name!r}, according to their files of ids: keep it in one of them"
                )


def holds_features(folder: str | Path) -> bool:
    """Whether a folder holds features, finished or not; otherwise it may hold photographs."""
    folder = expanded(folder)
    return any(folder.glob("*_ims.npy")) or any((folder / name).exists() for name in (META, UNFINISHED))


def _begin(folder: str | Path, test: str) -> tuple[Path, _Meta, dict[str, str]]:
    """Return the folder, what `meta.json` says, and by what names the folder calls our splits."""
    folder = expanded(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}: name a folder that holds train_ims.npy and the rest")
    meta: _Meta = files.read_json(folder / META, _Meta) if (folder / META).exists() else _Meta()
    if (folder / UNFINISHED).exists() and not (folder / META).exists():
        raise ValueError(
            f"{folder} holds an unfinished extraction: run the same extraction again to finish it"
        )
    if test in ("train", "dev"):
        raise ValueError(f"test is {test!r}: wanted a split of its own, to test on")
    return folder, meta, {"train": "train", "dev": "dev", "test": test}


def _full_lines(path: Path) -> list[str]:
    lines = read_lines(path)
    if "" in lines:
        raise ValueError(f"{path}, line {lines.index('') + 1} is empty: wanted something on each line")
    return lines


def _open_split(folder: Path, theirs: str, ours: str, meta: _Meta) -> _Opened:
    whole = MappedPictures(folder / f"{theirs}_ims.npy")
    caption_file, id_file = folder / f"{theirs}_caps.txt", folder / f"{theirs}_ids.txt"
    captions = _full_lines(caption_file)
    pictures, rows, each, repeats = whole, len(whole), meta.captions_a_picture, 1
    numbers_of = _numbers(folder / f"{theirs}_{CAPTION_COUNTS}.txt", rows)
    if numbers_of is not None:
        if len(captions) != numbers_of.sum():
            raise ValueError(
                f"{caption_file} has {len(captions)} captions, and {theirs}_{CAPTION_COUNTS}.txt counts "
                f"{numbers_of.sum()}: get the folder again, or extract it again"
            )
    elif len(captions) == rows and rows % REPEATS == 0 and _repeats_pictures(whole):
        pictures, each, repeats = whole[::REPEATS], REPEATS, REPEATS
    elif len(captions) == CAPTIONS_A_PICTURE * rows and each > CAPTIONS_A_PICTURE:
        each = CAPTIONS_A_PICTURE  # only another split has pictures with more: see `caption_numbers`
    elif len(captions) != each * rows:
        raise ValueError(
            f"{caption_file} has {len(captions)} captions for the {rows} rows of {whole.path.name}: "
            f"wanted {each * rows}, {each} for each (or {rows}, if each picture is repeated {REPEATS} "
            "times); one of the two files may be cut off"
        )
    has_ids, identities = id_file.exists(), [str(row) for row in range(len(pictures))]
    if has_ids:
        identities = _picture_ids(id_file, len(pictures), {rows, len(captions)})
    split = Split(
        name=ours,
        pictures=pictures,
        captions=captions,
        owner=np.repeat(np.arange(len(pictures)), each if numbers_of is None else numbers_of),
        picture_ids=identities,
        picture_counts=_numbers(folder / f"{theirs}_{COUNTS}.txt", len(pictures)),
        caption_ids=_lines_for(folder / f"{theirs}_{CAPTION_IDS}.txt", len(captions), "captions"),
    )
    _compare_with_meta(whole, split, theirs, meta)
    most = max(rows, len(captions))
    numbers = all(identity.isdecimal() and int(identity) <= most for identity in identities)
    names: Literal["given", "numbers"] = "numbers" if numbers else "given"
    return _Opened(split, whole, repeats, names if has_ids else "none")


def _numbers(path: Path, pictures: int) -> np.ndarray | None:
    """Return a whole number for each picture, (n,); None: there is no such file."""
    lines = _lines_for(path, pictures, "pictures")
    if lines and not all(line.isdecimal() and len(line) < 10 for line in lines):
        raise ValueError(f"{path} holds more than whole numbers: get it again")
    return None if lines is None else np.array(list(map(int, lines)))


def _lines_for(path: Path, count: int, things: str) -> list[str] | None:
    """Return a line for each thing; None: there is no such file, and many folders have none."""
    if not path.exists():
        return None
    lines = _full_lines(path)
    if len(lines) != count:
        raise ValueError(f"{path} has {len(lines)} lines for {count} {things}: get it again")
    return lines


def _picture_ids(path: Path, pictures: int, lengths: set[int]) -> list[str]:
    """Return one id for each picture, from a file with one line or several consecutive lines for each.

    Consecutive lines must be equal, unless all lines of the file are different: then they number captions.
    """
    lines = _full_lines(path)
    if len(lines) != pictures and (len(lines) not in lengths or len(lines) % pictures):
        raise ValueError(f"{path} has {len(lines)} lines for {pictures} pictures: get it again")
    each = len(lines) // pictures
    identities = lines[::each]
    by_caption = len(set(lines)) == len(lines)
    for row in range(0 if by_caption else pictures):
        own = lines[each * row : each * (row + 1)]
        if own != [identities[row]] * each:
            raise ValueError(
                f"{path}, lines {each * row + 1} to {each * (row + 1)} name different pictures for one row "
                "of features: get it again"
            )
    first: dict[str, int] = {}
    for row, identity in enumerate(identities):
        if first.setdefault(identity, row) != row:
            raise ValueError(
                f"{path}, line {each * row + 1} names the picture {identity!r} of line "
                f"{each * first[identity] + 1} again: keep one of the two"
            )
    return identities


def _compare_with_meta(whole: MappedPictures, split: Split, theirs: str, meta: _Meta) -> None:
    shape = zip(("pictures", "elements", "feature_dim"), whole.shape, strict=False)
    for name, held in {**dict(shape), "dtype": str(whole.dtype)}.items():
        said = meta.pictures.get(theirs) if name == "pictures" else getattr(meta, name)
        if said not in (None, held):
            raise ValueError(
                f"{whole.path} has {name} {held}, but {META} says {short(said)}: get the folder again, or "
                "extract it again"
            )
    counts = [] if split.picture_counts is None else split.picture_counts.tolist()
    for field_name, names, digest in (
        ("captions_sha256", f"{theirs}_caps.txt or {theirs}_ids.txt", captions_sha256(split)),
        ("counts_sha256", f"{theirs}_{COUNTS}.txt", lines_sha256(map(str, counts))),
    ):
        if getattr(meta, field_name).get(theirs) not in (None, digest):
            raise ValueError(
                f"{whole.path.with_name(names)} does not match {META}: extract again, or get the folder "
                f'again; if you changed it on purpose, delete "{field_name}" in {META}'
            )


def _repeats_pictures(pictures: MappedPictures) -> bool:
    """Whether rows come in fives of the same picture, judged by the first, a middle and the last five."""
    groups = len(pictures) // REPEATS
    fives = (pictures[REPEATS * group + np.arange(REPEATS)] for group in {0, groups // 2, groups - 1})
    return all(np.array_equal(five, five[:1].repeat(REPEATS, 0), equal_nan=True) for five in fives)
