"""Bottom-up attention's features as the field shares them, turned into a folder to train on.

Two formats are read. A TSV file has a line for each picture, with boxes and features as base64. A folder has
a file for each picture: `.npy` with the features (N, F), or `.npz` with features and boxes. Both are read one
picture at a time, so collections may be larger than memory, and an import that was stopped goes on where it
was.

Source: Anderson et al. 2018 (bottom-up attention) for the features and the TSV.
"""

import base64
import contextlib
import itertools
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from vsecore.data import files
from vsecore.data.annotations import Entry, expanded, read_annotations
from vsecore.data.extraction import DType, Extraction, Settings, about_splits, sizes_of
from vsecore.data.feature_rows import as_stored, first_not_finite
from vsecore.data.karpathy import CaptionSplit, numbers_of
from vsecore.typed import counted, short

NAME = "bottom-up attention"
"""What `meta.json` says about the network."""
FEATURES, BOXES = ("feat", "features", "x"), ("bbox", "boxes")
"""What arrays in a `.npz` are called, by whoever shares them."""
LARGEST = 1 << 26
"""How many bytes one picture may have: 36 regions of 2,048 numbers take 300,000."""
MARKED_TOGETHER = 256
"""After how many pictures those written are marked as made: a killed process loses at most so many."""

_COLUMNS = {6: (3, 4, 5), 10: (7, 8, 9)}
"""Where a TSV of so many columns has the number of boxes, the boxes and the features."""

_Place = tuple[str, int]
"""A split, and a row of it."""


@dataclass(frozen=True)
class _Picture:
    """What a source holds of one picture.

    Raises:
        ValueError: the features are not numbers (N, F), or the boxes are not finite numbers (N, 4).
    """

    where: str
    """Its file, and its line in it, for messages."""
    features: np.ndarray
    """(N, F) floats."""
    boxes: np.ndarray | None
    """(N, 4): left, top, right, bottom in pixels; None: the source has none."""

    def __post_init__(self) -> None:
        features, boxes = self.features, self.boxes
        if features.ndim != 2 or not features.size or features.dtype.kind not in "fiu":
            raise ValueError(
                f"{self.where} holds {features.dtype} {short(features.shape)}: wanted numbers (N, width)"
            )
        if boxes is not None and (
            boxes.shape != (len(features), 4)
            or boxes.dtype.kind not in "fiu"
            or first_not_finite(boxes.astype(np.float32)) is not None
        ):
            raise ValueError(
                f"{self.where} has boxes {boxes.dtype} {short(boxes.shape)}: wanted finite numbers "
                f"({len(features)}, 4), a box for each region"
            )


class _Source(Protocol):
    """TSV files, or folders with a file for each picture."""

    sizes: dict[str, np.ndarray]
    """For each split (n,) the bytes of the file that each row is made from, 1 for a line of a TSV file."""

    def first(self) -> _Picture:
        """Read any picture."""

    def read(self, missing: Mapping[str, np.ndarray]) -> Iterator[tuple[_Place, _Picture]]:
        """Read the pictures of the rows that are missing, one at a time, as long as they are missing."""


def import_regions(
    sources: Sequence[str | Path],
    captions: str | Path,
    folder: str | Path,
    *,
    boxes: str | Path | None = None,
    dtype: DType = "float16",
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
    folder, paths = Path(folder).expanduser(), [expanded(source) for source in sources]
    splits, places = _read_splits(expanded(captions))
    about = about_splits(splits, dtype)
    source = _open(paths, None if boxes is None else expanded(boxes), folder, splits, places)
    first = source.first()
    settings = Settings(
        **about,
        backbone=NAME,
        backbone_sha256="",
        kind="region",
        picture_size=None,
        elements=first.features.shape[0],
        feature_dim=first.features.shape[1],
        boxes=first.boxes is not None,
    )
    extraction = Extraction(folder, settings, splits, source.sizes)
    with contextlib.ExitStack() as stack:
        missing = extraction.open(stack)
        if missing is not None:
            _write(extraction, source, missing)
            for name, lacking in missing.items():
                if lacking.any():
                    names = [splits[name].files[row].name for row in np.flatnonzero(lacking)]
                    raise ValueError(
                        f"{counted(names, 'picture')} of split {name!r} not found in "
                        f"{', '.join(map(str, paths))}: name the other files or folders too"
                    )
                extraction.rows(name).finish()
            extraction.close()
    return folder


def _open(
    paths: list[Path],
    boxes: Path | None,
    folder: Path,
    splits: Mapping[str, CaptionSplit],
    places: Mapping[str, _Place | None],
) -> _Source:
    """Open files or folders of features.

    Raises:
        FileNotFoundError: one is missing.
        ValueError: they are of both kinds, or one is the folder to write to, or files are given with boxes.
    """
    for path in paths:
        if not (path.is_dir() or path.is_file()):  # a pipe could be read only once
            raise FileNotFoundError(f"no file or folder {path}: name TSV files, or folders of .npy files")
        if path.resolve() == folder.resolve():
            raise ValueError(f"{folder} is one of the sources: name another folder for the features")
    if len({path.is_dir() for path in paths}) != 1:
        raise ValueError(
            "sources must be TSV files, or folders of .npy files: name one kind, and at least one"
        )
    if paths[0].is_dir():
        return _Folders(paths, boxes, splits, places)
    if boxes is not None:
        raise ValueError(f"boxes is {boxes}, but a TSV file has its own: leave it out")
    return _Tables(paths, splits, places)


def _write(extraction: Extraction, source: _Source, missing: Mapping[str, np.ndarray]) -> None:
    """Write the rows that are missing, as far as the source has them, and note that they no longer are.

    Raises:
        ValueError: a picture is not like the first one.
    """
    settings = extraction.settings
    rows = {name: extraction.rows(name) for name in missing}
    wanted = (settings.elements, settings.feature_dim)
    read = source.read(missing)
    try:
        for number, ((name, row), picture) in enumerate(read, start=1):
            if picture.features.shape != wanted or (settings.boxes and picture.boxes is None):
                raise ValueError(
                    f"{picture.where} has features {picture.features.shape} and "
                    f"{'no ' if picture.boxes is None else ''}boxes, unlike the first picture with {wanted}: "
                    "get all with the same number of regions (usually 36)"
                )
            arrays = [as_stored(picture.features[None], settings.dtype, [picture.where])]  # (1, N, F)
            if settings.boxes and picture.boxes is not None:
                arrays.append(picture.boxes[None].astype(np.float32))  # (1, N, 4)
            rows[name].write(row, arrays, extraction.sizes[name][row : row + 1])
            missing[name][row] = False
            if number % MARKED_TOGETHER == 0:
                for some in rows.values():
                    some.mark()
    finally:
        for some in rows.values():
            some.mark()


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
            raise FileNotFoundError(f"no folder {boxes}: name one with a .npy file of boxes a picture")
        self._features = _listed(folders, places)
        self._boxes = None if boxes is None else _listed([boxes], places)
        self.sizes: dict[str, np.ndarray] = {}
        for name, split in splits.items():
            for kind, found in (("features", self._features), ("boxes", self._boxes)):
                lacking = [
                    file.name
                    for row, file in enumerate(split.files)
                    if found is not None and (name, row) not in found
                ]
                if lacking:
                    raise ValueError(
                        f"{counted(lacking, 'picture')} of split {name!r} without a file of {kind} in "
                        f"{', '.join(map(str, folders))}: get the rest, or name the other folders too"
                    )
            self.sizes[name] = sizes_of([self._features[name, row] for row in range(len(split.files))])

    def first(self) -> _Picture:
        """Read any picture."""
        return self._read(("train", 0))

    def read(self, missing: Mapping[str, np.ndarray]) -> Iterator[tuple[_Place, _Picture]]:
        """Read the pictures of the rows that are missing, one at a time."""
        for name, rows in missing.items():
            for row in files.progress(np.flatnonzero(rows).tolist(), desc=name, unit="picture"):
                yield (name, row), self._read((name, row))

    def _read(self, place: _Place) -> _Picture:
        path = self._features[place]
        features, boxes = _read_arrays(path)
        if self._boxes is not None:
            boxes, _ = _read_arrays(self._boxes[place])
        return _Picture(str(path), features, boxes)


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
        self._paths, self._places = paths, places
        self.sizes = {name: np.ones(len(split.files), np.int64) for name, split in splits.items()}

    def first(self) -> _Picture:
        """Read the first line."""
        for where, fields in self._lines():
            return _read_line(where, fields)
        raise ValueError(f"{', '.join(map(str, self._paths))}: no lines of features; get the file again")

    def read(self, missing: Mapping[str, np.ndarray]) -> Iterator[tuple[_Place, _Picture]]:
        """Read the lines of the pictures that are missing; of a picture with several lines, the first."""
        strange = 0
        for where, fields in self._lines(hidden=files.in_batch()):
            place = _place_of(fields[0].decode("utf-8", "replace").strip(), self._places, where)
            strange += place is None
            if place and place[0] in missing and missing[place[0]][place[1]]:
                yield place, _read_line(where, fields)
        if strange:
            print(f"{strange} lines of pictures that are in no split: left out", file=sys.stderr)

    def _lines(self, hidden: bool = True) -> Iterator[tuple[str, list[bytes]]]:
        """Yield where each line is, and its fields."""
        total = sum(path.stat().st_size for path in self._paths)
        with files.progress(total=total, unit="B", unit_scale=True, disable=hidden) as bar:
            for path in self._paths:
                with path.open("rb") as file:
                    for number in itertools.count(1):
                        line = file.readline(LARGEST + 1)
                        if not line:
                            break
                        bar.update(len(line))
                        where = f"{path}, line {number}"
                        if len(line) > LARGEST:
                            raise ValueError(f"{where} has over {LARGEST} bytes: wanted one picture a line")
                        fields = line.rstrip(b"\r\n").split(b"\t")
                        if fields[0] not in (b"", b"image_id", b"img_id"):  # nor names of columns
                            yield where, fields


def _read_line(where: str, fields: list[bytes]) -> _Picture:
    try:
        count, *encoded = (fields[column] for column in _COLUMNS[len(fields)])
        number = int(count)
        boxes, features = (np.frombuffer(base64.b64decode(text, validate=True), "<f4") for text in encoded)
        return _Picture(where, features.reshape(number, -1), boxes.reshape(number, 4))
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{where} is damaged or cut off ({error}): wanted image_id, image_w, image_h, num_boxes, "
            "boxes and features; get the file again"
        ) from None


def _read_arrays(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Read a `.npy` file, or features and boxes of a `.npz` file; never a pickle.

    Raises:
        ValueError: it is damaged or too large.
    """
    try:
        size = path.stat().st_size
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                size = sum(part.file_size for part in archive.infolist())
        if size > LARGEST:
            raise ValueError(f"it has more than {LARGEST} bytes")
        if path.suffix == ".npy":
            return np.array(np.load(path, mmap_mode="r", allow_pickle=False)), None  # maps: a header may lie
        with np.load(path, allow_pickle=False) as arrays:
            named = [[arrays[name] for name in names if name in arrays] for names in (FEATURES, BOXES)]
        if not named[0]:
            raise ValueError(f"it has no array called {', '.join(FEATURES)}")
        return named[0][0], named[1][0] if named[1] else None
    except OSError:
        raise
    # numpy parses a header as Python code, which fails in as many ways as code can, and so may an archive.
    except Exception as error:
        reason = str(error).partition("\n")[0][:100]
        raise ValueError(f"{path} cannot be read as features ({reason}): get the file again") from None


def _read_splits(captions: Path) -> tuple[dict[str, CaptionSplit], dict[str, _Place | None]]:
    """Read captions and splits, and map every name that a picture may have to its place.

    Returns:
        The splits, whose `files` are only names; and the places, None for a name that two pictures have.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a split is missing.
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
        splits[name] = CaptionSplit(
            name=name,
            dataset=dataset,
            files=[Path(entry.file_name) for entry in own],
            captions=[caption for entry in own for caption in entry.captions],
            owner=np.repeat(np.arange(len(own)), [len(entry.captions) for entry in own]),
            picture_ids=[entry.identity for entry in own],
            caption_ids=numbers_of(own),
        )
        for row, entry in enumerate(own):
            for known_as in _names_of(entry):
                places[known_as] = None if known_as in places else (name, row)
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
    known_as = name if name in places else name.lstrip("0")
    if known_as in places and places[known_as] is None:
        raise ValueError(f"{where}: two pictures are called {short(name)}: use the names of their files")
    return places.get(known_as)


def _listed(folders: Sequence[Path], places: Mapping[str, _Place | None]) -> dict[_Place, Path]:
    """Find the file of each picture.

    Raises:
        ValueError: a picture has two files.
    """
    found: dict[_Place, Path] = {}
    for path in (path for folder in folders for path in sorted(folder.iterdir())):
        if path.suffix in (".npy", ".npz") and path.is_file():
            place = _place_of(path.stem, places, str(path))
            if place is not None and found.setdefault(place, path) != path:
                raise ValueError(f"{found[place]} and {path} are both of one picture: keep one of the two")
    return found
