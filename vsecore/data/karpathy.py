"""Photographs with captions, as they are published: COCO, Flickr30K and Flickr8K.

Two formats are read: Karpathy's `dataset_*.json` for all three, and Flickr8k's own text files. Both give the
same: for each split the picture files, the captions, and which picture each caption belongs to.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vsecore.data import files
from vsecore.data.picture_files import open_picture

CAPTIONS_A_PICTURE = 5
SPLITS = {"train": "train", "restval": "train", "val": "dev", "test": "test"}
"""The JSON's word for a split, and ours. COCO's "restval" is used for training, as everybody does."""

PICTURE_FOLDERS = (
    "",
    "images",
    "Images",
    "Flicker8k_Dataset",
    "Flickr8k_Dataset",
    "flickr30k-images",
    "flickr30k_images",
)
"""Where below the root pictures are looked for, in this order."""


@dataclass(frozen=True, eq=False)
class CaptionSplit:
    """Picture files and captions of one split, before anything is computed from them."""

    name: str
    """ "train", "dev" or "test"."""
    dataset: str
    """The source's name for itself: "coco", "flickr30k", "flickr8k"."""
    files: list[Path]
    """n pictures."""
    captions: list[str]
    """Nc sentences, one line each."""
    owner: np.ndarray
    """(Nc,) int64: the picture of each caption."""
    picture_ids: list[str]
    """n: COCO's number where there is one, else the file's name."""

    def __repr__(self) -> str:
        """One line: the captions of COCO would fill a notebook."""
        counts = f"{len(self.files)} pictures, {len(self.captions)} captions"
        return f"CaptionSplit({self.name!r} of {self.dataset}: {counts})"

    def fingerprint(self) -> str:
        """A sha256 over names and captions: what the text files of a folder of features hold."""
        return hashlib.sha256("\n".join([*self.picture_ids, *self.captions]).encode()).hexdigest()


@dataclass
class DataReport:
    """What a check of data has found."""

    facts: list[str] = field(default_factory=list)
    """What is there; nothing to be done."""
    problems: list[str] = field(default_factory=list)
    """What must be mended before training."""


@dataclass(frozen=True)
class _Entry:
    """One picture as an annotation file describes it."""

    split: str
    folder: str
    file_name: str
    identity: str
    captions: list[str]


def load_karpathy(root: str | Path, json_path: str | Path | None = None) -> dict[str, CaptionSplit]:
    """The splits of a photograph dataset: the first five captions of each picture.

    Args:
        root: the folder of the dataset. Pictures may lie in it, in its folder `images`, or where the JSON's
            `filepath` says below either.
        json_path: the `dataset_*.json`, or `Flickr8k.token.txt` beside the lists of its splits; None: the one
            that lies in `root` (the JSON, if both do).

    Returns:
        "train" (with COCO's restval), "dev" and "test".

    Raises:
        FileNotFoundError: the folder, the annotations or picture files are missing.
        ValueError: the annotations lack a field or a split, or a picture has no captions.

    Source: Karpathy and Fei-Fei 2015 for the splits and the format; Hodosh, Young and Hockenmaier 2013 for
    the text files.
    """
    root = _existing_folder(root)
    annotations = find_annotations(root, json_path)
    dataset, entries = _read_annotations(annotations)
    finder = _PictureFinder(root)
    splits = {}
    for name in ("train", "dev", "test"):
        chosen = [entry for entry in entries if entry.split == name]
        if not chosen:
            raise ValueError(f"{annotations} has no pictures of split {name!r}: get the whole file")
        silent = [entry.file_name for entry in chosen if not entry.captions]
        if len(silent) == len(chosen):
            raise ValueError(f"{annotations}: split {name!r} has no captions, each picture needs one")
        if silent:
            raise ValueError(
                f"{annotations}: {_counted(silent, 'picture')} of split {name!r} without captions"
            )
        found = [finder.find(entry) for entry in chosen]
        missing = [entry.file_name for entry, path in zip(chosen, found, strict=True) if path is None]
        if missing:
            raise FileNotFoundError(
                f"{_counted(missing, 'picture')} of split {name!r} not in {root}, nor in its folders "
                f'"images" and {chosen[0].folder or "such"!r}: put them there, or name another root'
            )
        owner = np.repeat(np.arange(len(chosen)), [len(entry.captions) for entry in chosen])
        splits[name] = CaptionSplit(
            name=name,
            dataset=dataset,
            files=[path for path in found if path is not None],
            captions=[caption for entry in chosen for caption in entry.captions],
            owner=owner.astype(np.int64),
            picture_ids=[entry.identity for entry in chosen],
        )
    return splits


def check_photographs(root: str | Path, json_path: str | Path | None = None) -> DataReport:
    """Look for everything that is wrong with a folder of photographs, and open every picture.

    Args:
        root: as for `load_karpathy`.
        json_path: as for `load_karpathy`.

    Returns:
        What is there, and every problem; no problems: `extract` will take the folder.
    """
    report = DataReport()
    try:
        root = _existing_folder(root)
        annotations = find_annotations(root, json_path)
        dataset, entries = _read_annotations(annotations)
    except (ValueError, OSError) as error:
        report.problems.append(str(error))
        return report
    report.facts.append(f"{dataset}, from {annotations}")
    finder = _PictureFinder(root)
    present: list[Path] = []
    for name in ("train", "dev", "test"):
        chosen = [entry for entry in entries if entry.split == name]
        counts = f"{len(chosen)} pictures, {sum(len(entry.captions) for entry in chosen)} captions"
        report.facts.append(f"{name}: {counts}")
        silent = [entry.file_name for entry in chosen if not entry.captions]
        terse = [entry.file_name for entry in chosen if 0 < len(entry.captions) < CAPTIONS_A_PICTURE]
        found = {entry.file_name: finder.find(entry) for entry in chosen}
        missing = [file_name for file_name, path in found.items() if path is None]
        present += [path for path in found.values() if path is not None]
        if not chosen:
            report.problems.append(f"split {name!r} has no pictures")
        if silent:
            report.problems.append(f"split {name!r}: {_counted(silent, 'picture')} without captions")
        if terse:
            report.problems.append(
                f"split {name!r}: {_counted(terse, 'picture')} with fewer than "
                f"{CAPTIONS_A_PICTURE} captions: give them so many, or leave them out"
            )
        if missing:
            report.problems.append(f"split {name!r}: {_counted(missing, 'picture')} not found")
    unused = [entry for entry in entries if not entry.split]
    lost = [entry.file_name for entry in unused if finder.find(entry) is None]
    if unused:
        report.facts.append(f"{len(unused)} more ids have captions and belong to no split")
    if lost:
        report.facts.append(f"{_counted(lost, 'id')} with captions and no picture: not used")
    with ThreadPoolExecutor() as pool:
        readable = pool.map(_problem_with, present)
        for problem in files.progress(readable, total=len(present), desc="open pictures", unit="picture"):
            if problem:
                report.problems.append(problem)
    return report


def _problem_with(path: Path) -> str | None:
    try:
        open_picture(path)
    except ValueError as error:
        return str(error)
    return None


class _PictureFinder:
    """Finds picture files by listing each folder once: asking for 123,287 files one by one is slow."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.listings: dict[Path, frozenset[str]] = {}

    def find(self, entry: _Entry) -> Path | None:
        for folder in self._folders(entry):
            if folder not in self.listings:
                names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
                self.listings[folder] = frozenset(names)
            if entry.file_name in self.listings[folder]:
                return folder / entry.file_name
        return None

    def _folders(self, entry: _Entry) -> Iterator[Path]:
        if entry.folder:
            yield self.root / entry.folder
            yield self.root / "images" / entry.folder
        for folder in PICTURE_FOLDERS:
            yield self.root / folder


def _existing_folder(root: str | Path) -> Path:
    root = Path(root).expanduser()
    if not root.is_dir():
        raise FileNotFoundError(
            f"no folder {root}: name the folder that holds the pictures and their captions"
        )
    return root


def find_annotations(root: Path, json_path: str | Path | None = None) -> Path:
    """The file with a collection's captions and splits.

    Raises:
        FileNotFoundError: there is none.
        ValueError: there are several, and `json_path` does not say which.
    """
    if json_path is not None:
        path = Path(json_path).expanduser()
        if not path.is_file():
            raise FileNotFoundError(f"no file {path}: name a dataset_*.json or a Flickr8k.token.txt")
        return path
    found = sorted(root.glob("dataset*.json"))
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ValueError(f"{root} holds several annotation files ({names}): name one as json_path")
    if found:
        return found[0]
    text = root / "Flickr8k.token.txt"
    if text.is_file():
        return text
    raise FileNotFoundError(
        f"{root} holds no dataset_*.json and no Flickr8k.token.txt: put Karpathy's dataset_coco.json, "
        "dataset_flickr30k.json or dataset_flickr8k.json there"
    )


def _read_annotations(annotations: Path) -> tuple[str, list[_Entry]]:
    """The dataset's name and its pictures, each split by our word, or "" for those that no split holds."""
    if annotations.suffix == ".txt":
        return "flickr8k", _read_flickr8k_texts(annotations)
    content = files.read_json(annotations)
    if not isinstance(content.get("images"), list):
        raise ValueError(f'{annotations} lacks the list "images": wanted a file in Karpathy\'s format')
    entries = [_parse_entry(annotations, row, image) for row, image in enumerate(content["images"])]
    name = content.get("dataset") or annotations.stem.removeprefix("dataset_")
    return check_dataset_name(name, annotations), entries


def check_dataset_name(name: Any, file: Path) -> str:
    """The name that a file gives to its dataset, which must be fit to be part of a folder's name.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(
            f'{file}: the field "dataset" is {name!r}: wanted a name of letters, digits, "_", "." and "-"'
        )
    return name


def _parse_entry(annotations: Path, row: int, image: dict) -> _Entry:
    place = f"{annotations}: images[{row}]"
    for name in ("filename", "split", "sentences"):
        if name not in image:
            raise ValueError(f'{place} lacks the field "{name}": get the file again')
    if image["split"] not in SPLITS:
        raise ValueError(f"{place} has split {image['split']!r}: wanted one of {', '.join(SPLITS)}")
    for number, sentence in enumerate(image["sentences"]):
        if "raw" not in sentence:
            raise ValueError(f'{place}["sentences"][{number}] lacks the field "raw": get the file again')
    return _Entry(
        split=SPLITS[image["split"]],
        folder=image.get("filepath", ""),
        file_name=image["filename"],
        identity=str(image.get("cocoid", image["filename"])),
        captions=_first_captions(sentence["raw"] for sentence in image["sentences"]),
    )


def _read_flickr8k_texts(annotations: Path) -> list[_Entry]:
    captions: dict[str, list[str]] = {}
    for number, line in enumerate(annotations.read_text("utf-8").splitlines(), start=1):
        head, tab, caption = line.partition("\t")
        file_name, hash_sign, _ = head.rpartition("#")
        if not tab or not hash_sign:
            raise ValueError(f"{annotations}, line {number}: wanted picture#number, a tab, a caption")
        captions.setdefault(file_name, []).append(caption)
    splits: dict[str, str] = {}
    for word, name in (("train", "train"), ("dev", "dev"), ("test", "test")):
        listing = annotations.with_name(f"Flickr_8k.{word}Images.txt")
        if not listing.is_file():
            raise FileNotFoundError(
                f"no file {listing}, which lists split {name!r}: put it beside {annotations}"
            )
        splits |= dict.fromkeys(listing.read_text("utf-8").split(), name)
    return [
        _Entry(
            splits.get(file_name, ""), "", file_name, file_name, _first_captions(captions.get(file_name, []))
        )
        for file_name in splits | captions  # the order of the lists, then what no list holds
    ]


def _first_captions(raw: Iterable[str]) -> list[str]:
    """The first five that say something, each on one line: some of COCO's hold an end of line."""
    tidy = (" ".join(sentence.split()) for sentence in raw)
    return [sentence for sentence in tidy if sentence][:CAPTIONS_A_PICTURE]


def _counted(names: list[str], thing: str) -> str:
    """A count and the first few: "7 pictures (a.jpg, b.jpg, c.jpg, ...)"."""
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"{len(names)} {thing}{'s' if len(names) > 1 else ''} ({shown})"
