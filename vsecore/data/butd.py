"""Bottom-up attention's features as the field shares them, turned into a folder to train on.

A TSV file has a line for each picture, with boxes and features as base64. A folder has a file for each
picture: `.npy` with the features (N, F), or `.npz` with features and boxes. The import looks up where each
picture is, then it reads a few at a time.

Source: Anderson et al. 2018 (bottom-up attention) for the features and the TSV.
"""

import base64
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from vsecore.data import files
from vsecore.data.feature_folder import DType, Meta
from vsecore.data.folder_writer import FolderWriter, as_stored
from vsecore.data.karpathy import CaptionSplit, read_splits
from vsecore.data.splits import lines_sha256
from vsecore.typed import counted, short

FEATURES, BOXES = ("feat", "features", "x"), ("bbox", "boxes")
"""What arrays in a `.npz` are called, by whoever shares them."""
TOGETHER = 64
"""How many pictures are read at a time: a killed process loses at most so many."""

_COLUMNS = (6, 10)
"""How many columns a TSV may have: the last three are the number of boxes, the boxes and the features."""
_QUOTED = re.compile(rb"""^\s*b(['"])(.*)\1\s*$""", re.DOTALL)
"""A field with what Python 3 writes around bytes: b'...'."""
MOST, LEAST = 256, 512
"""An array (more than LEAST, at most MOST) is (width, regions), not (regions, width)."""

_Arrays = tuple[np.ndarray, np.ndarray | None]
"""Features (N, F), and boxes (N, 4) if there are any: left, top, right and bottom in pixels."""


@dataclass(frozen=True)
class _Source:
    """Where the features of a picture are."""

    where: str
    """Its file, and its line in it, for messages."""
    regions: int
    read: Callable[[], _Arrays]


def import_regions(
    sources: Sequence[str | Path],
    captions: str | Path,
    folder: str | Path,
    *,
    dtype: DType = "float16",
) -> Path:
    """Write a folder of features from those that others share. If interrupted, the same call continues.

    A picture is known by COCO's number, or by the name of its file with or without ".jpg". Those that are in
    no split are left out. Where pictures have different numbers of regions, zeros follow up to the largest,
    and `{split}_counts.txt` says how many are real.

    Args:
        sources: TSV files, or folders with a `.npy` or `.npz` file for each picture.
        captions: Karpathy's `dataset_*.json`, which has the captions and splits. No photograph is needed.
        folder: where to write; made if it is missing.
        dtype: "float16" or "float32", on disk.
    """
    folder, paths = files.expanded(folder), [files.expanded(source) for source in sources]
    splits = read_splits(files.expanded(captions))
    known = _Names(splits)
    found = _find(paths, folder, known)
    pictures: dict[str, list[_Source]] = {}
    for name, split in splits.items():
        lacking = [file.name for row, file in enumerate(split.files) if (name, row) not in found]
        if lacking:
            raise ValueError(
                f"{counted(lacking, 'picture')} of split {name!r} not found in "
                f"{', '.join(map(str, paths))}: name the other files or folders too"
            )
        pictures[name] = [found[name, row] for row in range(len(split.files))]
    regions = {name: np.array([picture.regions for picture in own]) for name, own in pictures.items()}
    counts = {} if len(np.unique(np.concatenate(list(regions.values())))) == 1 else regions
    first, first_boxes = pictures["train"][0].read()
    meta = Meta.of(
        splits,
        dataset=splits["train"].dataset,
        backbone="bottom-up attention",
        kind="region",
        dtype=dtype,
        elements=int(max(own.max() for own in regions.values())),
        feature_dim=first.shape[-1],
        boxes=first_boxes is not None,
        counts_sha256={name: lines_sha256(map(str, own)) for name, own in counts.items()},
    )

    def make(name: str, blocks: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
        for rows in blocks:
            padded = [_padded(pictures[name][row], meta) for row in rows]
            yield [np.stack(arrays) for arrays in zip(*padded, strict=True)]

    return FolderWriter(folder, meta, splits, counts).fill(make, TOGETHER)


def _padded(picture: _Source, meta: Meta) -> list[np.ndarray]:
    """Read a picture as it will be on disk, (N, F) and perhaps (N, 4); refuse one unlike the first."""
    arrays = [array for array in picture.read() if array is not None]
    widths = [meta.feature_dim, 4][: 1 + meta.boxes]
    if [array.shape for array in arrays] != [(picture.regions, width) for width in widths]:
        raise ValueError(
            f"{picture.where} has features and boxes {[array.shape for array in arrays]}, unlike the first "
            f"picture: wanted {picture.regions} regions, and numbers of each: {widths}"
        )
    types = (str(meta.dtype), "float32")
    stored = [as_stored(x[None], t, [picture.where])[0] for x, t in zip(arrays, types, strict=False)]
    return [np.pad(array, ((0, (meta.elements or 0) - picture.regions), (0, 0))) for array in stored]


# Which picture a name means.

_Place = tuple[str, int]  # a split, and a row of it
_NUMBERED = re.compile(r"^(?:COCO_\w+_)?0*(\d+)(?:\.jpg)?$")  # COCO has each number once


class _Names:
    """Every name that a picture may have in a source, with its place; None for a name that two have."""

    def __init__(self, splits: Mapping[str, CaptionSplit]) -> None:
        self.places: dict[str, _Place | None] = {}
        for name, split in splits.items():
            for row, (file, identity) in enumerate(zip(split.files, split.picture_ids, strict=True)):
                known_as = {identity, file.name, file.stem}
                if numbered := _NUMBERED.match(file.stem):
                    known_as.add(numbered[1])
                for one in known_as:
                    self.places[one] = None if one in self.places else (name, row)
        self.count = sum(len(split.files) for split in splits.values())

    def place(self, name: str, where: str) -> _Place | None:
        """Return the place of a picture; None: it is in no split. A name of two pictures is refused."""
        known_as = name if name in self.places else _NUMBERED.sub(r"\1", name)
        if known_as in self.places and self.places[known_as] is None:
            raise ValueError(f"{where}: two pictures are called {short(name)}: use the names of their files")
        return self.places.get(known_as)


def _find(paths: list[Path], folder: Path, names: _Names) -> dict[_Place, _Source]:
    for path in paths:
        if not (path.is_dir() or path.is_file()):  # a pipe could be read only once
            raise FileNotFoundError(f"no file or folder {path}: name TSV files, or folders of .npy files")
    if len({path.is_dir() for path in paths}) != 1 or folder.resolve() in map(Path.resolve, paths):
        raise ValueError(f"sources must be TSV files, or folders of .npy files, and not {folder}")
    return (_find_files if paths[0].is_dir() else _find_lines)(paths, names)


# Folders with a file for each picture.


def _find_files(folders: Sequence[Path], names: _Names) -> dict[_Place, _Source]:
    """Find the file of each picture, and count its regions; refuse two files of one picture."""
    found: dict[_Place, Path] = {}
    for path in (path for folder in folders for path in sorted(folder.iterdir())):
        if path.suffix in (".npy", ".npz") and path.is_file():
            place = names.place(path.stem, str(path))
            if place is not None and found.setdefault(place, path) != path:
                raise ValueError(f"{found[place]} and {path} are both of one picture: keep one of the two")
    return {
        place: _Source(str(path), len(_read_arrays(path)[0]), partial(_read_arrays, path))
        for place, path in files.progress(found.items(), desc="look up", unit="picture")
    }


def _read_arrays(path: Path) -> _Arrays:
    """Return the features of a file, and its boxes if it has any: a `.npy` file is mapped, a `.npz` read."""
    with files.damage_named(path):
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        found = {FEATURES[0]: loaded}
        if path.suffix == ".npz":
            with loaded as arrays:
                found = {name: arrays[name] for name in (*FEATURES, *BOXES) if name in arrays}
        features, boxes = (next((found[n] for n in names if n in found), None) for names in (FEATURES, BOXES))
        if features is not None:
            features = _upright(features, features.shape[-1] <= MOST and features.shape[-2:-1] > (LEAST,))
        if features is None or features.ndim != 2 or not len(features):
            shapes = {name: array.shape for name, array in found.items()}
            raise ValueError(f"it holds {shapes}, wanted features (regions, width) in {FEATURES}")
        if boxes is not None:  # some share a row for each number
            boxes = _upright(boxes, wide=boxes.shape[-2:-1] == (4,) and boxes.shape[-1] != 4)
        return features, boxes


def _upright(array: np.ndarray, wide: bool) -> np.ndarray:
    """Return an array with a row for each region; some share it `wide`, or as a batch of one."""
    array = array[0] if array.ndim == 3 and len(array) == 1 else array
    return array.T if array.ndim == 2 and wide else array


# TSV files with a line for each picture.


def _find_lines(paths: Sequence[Path], names: _Names) -> dict[_Place, _Source]:
    """Look up each picture in TSV files; of a picture with several, the first that is no fragment counts."""
    found: dict[_Place, _Source] = {}
    damaged: dict[str, str] = {}
    left_out = 0
    with files.progress(total=sum(path.stat().st_size for path in paths), unit="B", unit_scale=True) as bar:
        for path, number, begin, line in _lines_of(paths):
            bar.update(len(line))
            where = f"{path}, line {number}"
            if line.split(b"\t")[0].strip() in (b"", b"image_id", b"img_id"):  # names of columns
                continue
            try:
                known_as, regions, *_ = _fields_of(where, line)
            except ValueError as error:
                damaged[where] = str(error)
                continue
            place = names.place(known_as, where)
            left_out += place is None
            if place is not None:
                found.setdefault(place, _Source(where, regions, partial(_read_line, path, begin, where)))
    if damaged and len(found) < names.count:
        raise ValueError(next(iter(damaged.values())))
    if damaged:
        lines = counted(list(damaged), "damaged line")
        print(f"{lines} left out: their pictures have whole ones", file=sys.stderr)
    if left_out:
        print(f"{left_out} lines of pictures that are in no split: left out", file=sys.stderr)
    return found


def _lines_of(paths: Sequence[Path]) -> Iterator[tuple[Path, int, int, bytes]]:
    for path in paths:
        with path.open("rb") as file:
            begin = 0
            for number, line in enumerate(file, start=1):
                yield path, number, begin, line
                begin += len(line)


def _fields_of(where: str, line: bytes) -> tuple[str, int, bytes, bytes]:
    """Return a line's picture, number of regions, and encoded boxes and features."""
    fields = [_QUOTED.sub(rb"\2", field) for field in line.rstrip(b"\r\n").split(b"\t")]
    with files.damage_named(where):
        if len(fields) not in _COLUMNS:
            raise ValueError(f"{len(fields)} columns, wanted {' or '.join(map(str, _COLUMNS))}")
        count, boxes, features = fields[-3:]
        regions = int(count)
        if regions < 1 or len(boxes) != -(-16 * regions // 3) * 4:  # four letters for three bytes
            raise ValueError(f"{len(boxes)} letters for {regions} boxes")
        bytes_each, rest = divmod(len(features) // 4 * 3 - features[-2:].count(b"="), 4 * regions)
        if rest or not bytes_each or len(features) % 4:
            raise ValueError(f"{len(features)} letters for the features of {regions} regions")
    return fields[0].decode("utf-8", "replace").strip(), regions, boxes, features


def _read_line(path: Path, begin: int, where: str) -> _Arrays:
    with path.open("rb") as file:
        file.seek(begin)
        _, regions, boxes, features = _fields_of(where, file.readline())

    def decoded(text: bytes) -> np.ndarray:
        return np.frombuffer(base64.b64decode(text, validate=True), "<f4").reshape(regions, -1)

    with files.damage_named(where):
        return decoded(features), decoded(boxes)
