"""Bottom-up attention's features as the field shares them, turned into a folder to train on.

Two formats are read. A TSV file has a line for each picture, with boxes and features as base64. A folder has
a file for each picture: `.npy` with the features (N, F), or `.npz` with features and boxes. Both are read one
picture at a time, so collections may be larger than memory, and an import that was stopped goes on where it
was.

Source: Anderson et al. 2018 (bottom-up attention) for the features and the TSV.
"""

import base64
import contextlib
import hashlib
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vsecore.data import files
from vsecore.data.annotations import CAPTIONS_A_PICTURE, Entry, expanded, read_annotations
from vsecore.data.extraction import (
    Extraction,
    Settings,
    first_not_finite,
    in_precision,
    refuse_uneven_captions,
)
from vsecore.data.feature_rows import FeatureRows, digest_of
from vsecore.data.karpathy import CaptionSplit, lines_sha256, numbers_of
from vsecore.typed import counted, short

NAME = "bottom-up attention"
"""What `meta.json` says about the network."""
FEATURES, BOXES = ("feat", "features", "x"), ("bbox", "boxes")
"""What arrays in a `.npz` are called, by whoever shares them."""
LARGEST = 1 << 26
"""How many bytes one picture may have: 36 regions of 2,048 numbers take 300,000."""

_COLUMNS = {6: (0, 3, 4, 5), 10: (0, 7, 8, 9)}
"""Where a TSV of so many columns has the picture, the number of boxes, the boxes and the features."""

_Place = tuple[str, int]
"""A split, and a row of it."""


@dataclass(frozen=True)
class _Picture:
    """What a source holds of one picture."""

    features: np.ndarray
    """(N, F) floats."""
    boxes: np.ndarray | None
    """(N, 4) float32: left, top, right, bottom in pixels; None: the source has none."""
    sha256: bytes
    """Of the file, or of the numbers."""
    where: str
    """Its file, and its line in it, for messages."""


def import_regions(
    sources: Sequence[str | Path],
    captions: str | Path,
    folder: str | Path,
    *,
    boxes: str | Path | None = None,
    dtype: Literal["float16", "float32"] = "float16",
) -> Path:
    """Write a folder of features from those that others share. If interrupted, the same call continues.

    A picture is known by COCO's number, or by the name of its file with or without ".jpg". Pictures that are
    in no split are left out, and stderr says how many. Pictures may be spread over several sources.

    Args:
        sources: TSV files, or folders with a `.npy` or `.npz` file for each picture.
        captions: Karpathy's `dataset_*.json`, which has the captions and splits. No photograph is needed.
        folder: where to write; made if it is missing.
        boxes: a folder with a `.npy` file of boxes (N, 4) for each picture; None: those in the sources, if
            there are any.
        dtype: "float16" or "float32", on disk.

    Returns:
        The folder.

    Raises:
        FileNotFoundError: a source or the captions are missing.
        ValueError: a file is damaged or cut off, a picture is missing or has another number of regions than
            the others, or the folder holds other features. What was done until then is kept.
        OSError: the folder cannot be written, or its disk lacks room.
    """
    if dtype not in ("float16", "float32"):
        raise ValueError(f'dtype is {dtype!r}: wanted "float16" or "float32"')
    folder, paths = Path(folder).expanduser(), [expanded(source) for source in sources]
    if not paths:
        raise ValueError("sources is empty: name TSV files, or folders of .npy files")
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"no file or folder {path}: name TSV files, or folders of .npy files")
        if not (path.is_dir() or path.is_file()):  # a pipe could be read only once
            raise ValueError(f"{path} is not a file: name TSV files, or folders of .npy files")
        if path.resolve() == folder.resolve():
            raise ValueError(f"{folder} is one of the sources: name another folder for the features")
    if len({path.is_dir() for path in paths}) > 1:
        raise ValueError("sources are both files and folders: import one kind, or name only one")
    splits, places = _read_splits(expanded(captions))
    source: _Folders | _Tables
    if paths[0].is_dir():
        source = _Folders(paths, None if boxes is None else expanded(boxes), splits, places)
    elif boxes is not None:
        raise ValueError(f"boxes is {boxes}, but a TSV file has its own: leave it out")
    else:
        source = _Tables(paths, splits, places)
    first = source.first()
    elements, feature_dim = first.features.shape
    settings = Settings(
        dataset=splits["train"].dataset,
        backbone=NAME,
        backbone_sha256="",
        kind="region",
        picture_size=None,
        dtype=dtype,
        elements=elements,
        feature_dim=feature_dim,
        captions_a_picture=CAPTIONS_A_PICTURE,
        pictures={name: len(split.files) for name, split in splits.items()},
        picture_ids_sha256={name: lines_sha256(split.picture_ids) for name, split in splits.items()},
        captions_sha256={name: split.fingerprint() for name, split in splits.items()},
        boxes=first.boxes is not None,
    )
    extraction = Extraction(folder, settings, source.splits, compares_files=isinstance(source, _Folders))
    with contextlib.ExitStack() as stack:
        missing = extraction.open(stack)
        if missing is not None:
            rows = {name: extraction.rows(name) for name in missing}
            for (name, row), picture in source.read(missing):
                _write(rows[name], row, picture, settings)
                missing[name][row] = False
            for name, still in missing.items():
                lacking = [splits[name].files[row].name for row in np.flatnonzero(still)]
                if lacking:
                    raise ValueError(
                        f"{counted(lacking, 'picture')} of split {name!r} not found in "
                        f"{', '.join(map(str, paths))}: name the other files or folders too"
                    )
            for name in missing:
                rows[name].finish()
            extraction.close()
    return folder


def _write(rows: FeatureRows, row: int, picture: _Picture, settings: Settings) -> None:
    """Write one row if it is like the others.

    Raises:
        ValueError: it is not, or it is not finite.
    """
    wanted = (settings.elements, settings.feature_dim)
    if picture.features.shape != wanted:
        raise ValueError(
            f"{picture.where} has features {picture.features.shape}, but the first picture has {wanted}: get "
            "the features with the same number of regions for each picture (usually 36)"
        )
    if settings.boxes and picture.boxes is None:
        raise ValueError(f"{picture.where} has no boxes, but the first picture has: get it again")
    features = in_precision(picture.features, settings.dtype)[None]  # (1, N, F)
    if first_not_finite(features) is not None:
        raise ValueError(
            f"{picture.where} has features that are not finite in {settings.dtype}: get it again"
        )
    boxes = picture.boxes[None] if settings.boxes and picture.boxes is not None else None  # (1, N, 4)
    rows.write(row, features, [picture.sha256], boxes)


class _Folders:
    """A file for each picture.

    Args:
        folders: with features.
        boxes: a folder with boxes; None: they are with the features, or nowhere.
        splits: whose `files` are names of photographs.
        places: by every name of a picture, its place.
    """

    def __init__(
        self,
        folders: list[Path],
        boxes: Path | None,
        splits: Mapping[str, CaptionSplit],
        places: Mapping[str, _Place | None],
    ) -> None:
        if boxes is not None and not boxes.is_dir():
            raise FileNotFoundError(
                f"no folder {boxes}: name the one with a .npy file of boxes for each picture"
            )
        self._features = _listed(folders, places)
        self._boxes = None if boxes is None else _listed([boxes], places)
        self.splits: dict[str, CaptionSplit] = {}
        for name, split in splits.items():
            of_split = [(name, row) for row in range(len(split.files))]
            for kind, found, where in (
                ("features", self._features, folders),
                ("boxes", self._boxes, [boxes]),
            ):
                lacking = [
                    split.files[row].name
                    for _, row in of_split
                    if found is not None and (name, row) not in found
                ]
                if lacking:
                    raise ValueError(
                        f"{counted(lacking, 'picture')} of split {name!r} without a file of {kind} in "
                        f"{', '.join(map(str, where))}: get the rest, or name the other folders too"
                    )
            self.splits[name] = replace(split, files=[self._features[place] for place in of_split])

    def first(self) -> _Picture:
        """Read any picture."""
        return self._read(("train", 0))

    def read(self, missing: Mapping[str, np.ndarray]) -> Iterator[tuple[_Place, _Picture]]:
        """Read the pictures that are missing, one at a time."""
        for name, rows in missing.items():
            wanted = np.flatnonzero(rows).tolist()
            for row in files.progress(wanted, desc=name, unit="picture"):
                yield (name, row), self._read((name, row))

    def _read(self, place: _Place) -> _Picture:
        path = self._features[place]
        before = digest_of(path)
        features, boxes = _read_arrays(path)
        if self._boxes is not None:
            boxes, _ = _read_arrays(self._boxes[place])
        if boxes is not None:
            boxes = _checked_boxes(
                boxes, len(features), str(path if self._boxes is None else self._boxes[place])
            )
        if digest_of(path) != before:
            raise ValueError(f"{path} changed while it was read: run the same import again")
        return _Picture(features, boxes, before, str(path))


class _Tables:
    """TSV files, with a line for each picture.

    Args:
        paths: the files.
        splits: whose `files` are names of photographs.
        places: by every name of a picture, its place.
    """

    def __init__(
        self, paths: list[Path], splits: Mapping[str, CaptionSplit], places: Mapping[str, _Place | None]
    ) -> None:
        self._paths, self.splits, self._places = paths, splits, places

    def first(self) -> _Picture:
        """Read the first line."""
        for where, fields in self._lines():
            return _read_line(where, fields)
        raise ValueError(f"{', '.join(map(str, self._paths))}: no lines of features; get the file again")

    def read(self, missing: Mapping[str, np.ndarray]) -> Iterator[tuple[_Place, _Picture]]:
        """Read the lines of the pictures that are missing.

        Raises:
            ValueError: a picture has two lines that differ.
        """
        done: dict[_Place, bytes] = {}
        wanted = {(name, int(row)) for name, rows in missing.items() for row in np.flatnonzero(rows)}
        strange = 0
        for where, fields in self._lines(hidden=False):
            place = _place_of(fields[0].decode(errors="replace").strip(), self._places, where)
            strange += place is None
            if place not in wanted:
                continue
            picture = _read_line(where, fields)
            known = place in done
            if done.setdefault(place, picture.sha256) != picture.sha256:
                raise ValueError(
                    f"{where} has other features of a picture that an earlier line has: get it again"
                )
            if not known:
                yield place, picture
        if strange:
            print(f"{strange} lines of pictures that are in no split: left out", file=sys.stderr)

    def _lines(self, hidden: bool = True) -> Iterator[tuple[str, list[bytes]]]:
        """Yield where each line is, and its fields."""
        total = sum(path.stat().st_size for path in self._paths)
        hidden = hidden or files.in_batch()
        with files.progress(total=total, unit="B", unit_scale=True, disable=hidden) as bar:
            for path in self._paths:
                with path.open("rb") as file:
                    number = 0
                    while line := file.readline(LARGEST + 1):
                        number += 1
                        bar.update(len(line))
                        where = f"{path}, line {number}"
                        if len(line) > LARGEST:
                            raise ValueError(
                                f"{where} has more than {LARGEST} bytes: wanted one picture a line"
                            )
                        fields = line.rstrip(b"\r\n").split(b"\t")
                        if fields[0] in (b"", b"image_id", b"img_id"):  # an empty line, or names of columns
                            continue
                        yield where, fields


def _read_line(where: str, fields: list[bytes]) -> _Picture:
    if len(fields) not in _COLUMNS:
        raise ValueError(
            f"{where} has {len(fields)} columns, wanted image_id, image_w, image_h, num_boxes, boxes and "
            "features: it may be cut off; get the file again"
        )
    _, count, boxes, features = (fields[column] for column in _COLUMNS[len(fields)])
    try:
        number = int(count)
        numbers = [np.frombuffer(base64.b64decode(text, validate=True), "<f4") for text in (boxes, features)]
    except ValueError as error:
        raise ValueError(f"{where} is damaged or cut off ({error}): get the file again") from None
    if number < 1 or len(numbers[0]) != 4 * number or not len(numbers[1]) or len(numbers[1]) % number:
        raise ValueError(
            f"{where} says {number} boxes, but has {len(numbers[0])} numbers for them and {len(numbers[1])} "
            "of features: it is damaged or cut off; get the file again"
        )
    digest = hashlib.sha256(numbers[0].tobytes())
    digest.update(numbers[1].tobytes())
    kept = _checked_boxes(numbers[0].reshape(number, 4), number, where)
    return _Picture(numbers[1].reshape(number, -1), kept, digest.digest(), where)


def _read_arrays(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Read a `.npy` file, or features and boxes of a `.npz` file; never a pickle.

    Raises:
        ValueError: it is damaged, is too large, or holds something else than (N, F) numbers.
    """
    boxes = None
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"it has more than {LARGEST} bytes")
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                if sum(part.file_size for part in archive.infolist()) > LARGEST:
                    raise ValueError(f"it unpacks to more than {LARGEST} bytes")
            with np.load(path, allow_pickle=False) as arrays:
                features = _named(arrays, FEATURES)
                boxes = _named(arrays, BOXES)
            if features is None:
                raise ValueError(f"it has no array called {', '.join(FEATURES)}")
        else:
            features = np.array(np.load(path, mmap_mode="r", allow_pickle=False))  # a header's lie is noticed
    except OSError:
        raise
    # numpy parses a header as Python code, which fails in as many ways as code can, and so may an archive.
    except Exception as error:
        reason = str(error).partition("\n")[0][:100]
        raise ValueError(f"{path} cannot be read as features ({reason}): get the file again") from None
    if features.ndim != 2 or not features.size or features.dtype.kind not in "fiu":
        raise ValueError(
            f"{path} holds {features.dtype} {short(features.shape)}: wanted numbers (regions, width)"
        )
    return features, boxes


def _named(arrays: Any, names: Sequence[str]) -> np.ndarray | None:
    """Return the first array that has one of these names."""
    for name in names:
        if name in arrays:
            return np.asarray(arrays[name])
    return None


def _checked_boxes(boxes: np.ndarray, regions: int, where: str) -> np.ndarray:
    """Return boxes as (N, 4) float32.

    Raises:
        ValueError: they are something else, or not finite.
    """
    if boxes.shape != (regions, 4) or boxes.dtype.kind not in "fiu":
        raise ValueError(
            f"{where} has boxes {boxes.dtype} {short(boxes.shape)}: wanted numbers ({regions}, 4), a box each"
        )
    kept = boxes.astype(np.float32)
    if first_not_finite(kept) is not None:
        raise ValueError(f"{where} has boxes that are not finite: get it again")
    return kept


def _read_splits(captions: Path) -> tuple[dict[str, CaptionSplit], dict[str, _Place | None]]:
    """Read captions and splits, and map every name that a picture may have to its place.

    Returns:
        The splits, whose `files` are only names; and the places, None for a name that two pictures have.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a split is missing, or a picture has other than five captions.
    """
    if not captions.is_file():
        raise FileNotFoundError(f"no file {captions}: name a dataset_*.json (--captions)")
    dataset, entries = read_annotations(captions)
    splits: dict[str, CaptionSplit] = {}
    places: dict[str, _Place | None] = {}
    for name in ("train", "dev", "test"):
        own = [entry for entry in entries if entry.split == name]
        if not own:
            raise ValueError(f"{captions} has no pictures of split {name!r}: get the whole file")
        counts = [len(entry.captions) for entry in own]
        splits[name] = CaptionSplit(
            name=name,
            dataset=dataset,
            files=[Path(entry.file_name) for entry in own],
            captions=[caption for entry in own for caption in entry.captions],
            owner=np.repeat(np.arange(len(own)), counts),
            picture_ids=[entry.identity for entry in own],
            caption_ids=numbers_of(own),
        )
        for row, entry in enumerate(own):
            for known_as in _names_of(entry):
                places[known_as] = None if known_as in places else (name, row)
    refuse_uneven_captions(splits)
    return splits, places


def _names_of(entry: Entry) -> set[str]:
    """Return the names that a picture may have in a source."""
    stem = Path(entry.file_name).stem
    names = {entry.identity, entry.file_name, stem}
    if numbered := re.fullmatch(r"(?:COCO_\w+_)?0*(\d+)", stem):
        names.add(numbered[1])
    return names


def _place_of(name: str, places: Mapping[str, _Place | None], where: str) -> _Place | None:
    """Return the place of a picture; None: it is in no split.

    Raises:
        ValueError: two pictures have this name.
    """
    for known_as in (name, name.lstrip("0")):
        if known_as in places:
            place = places[known_as]
            if place is None:
                raise ValueError(
                    f"{where}: two pictures are called {short(name)}: use the names of their files"
                )
            return place
    return None


def _listed(folders: Sequence[Path], places: Mapping[str, _Place | None]) -> dict[_Place, Path]:
    """Find the file of each picture.

    Raises:
        ValueError: a picture has two files.
    """
    found: dict[_Place, Path] = {}
    for folder in folders:
        for path in sorted(folder.iterdir()):
            if path.suffix not in (".npy", ".npz") or not path.is_file():
                continue
            place = _place_of(path.stem, places, str(path))
            if place is not None and found.setdefault(place, path) != path:
                raise ValueError(f"{found[place]} and {path} are both of one picture: keep one of the two")
    return found
