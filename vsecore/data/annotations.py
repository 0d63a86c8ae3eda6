"""The files that say which pictures a collection has, their captions and their splits.

Karpathy's `dataset_*.json` for COCO, Flickr30K and Flickr8K, Flickr8k's own text files, and what people have
of their own (see `own_captions`): all give the same list of entries. A picture that is listed twice is
refused: in two splits, it would be both trained on and tested on.
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, FailFast

from vsecore.data import files
from vsecore.data.own_captions import OwnPicture, is_table, read_beside, read_table
from vsecore.data.picture_folders import SUFFIXES
from vsecore.data.sources import COLLECTIONS
from vsecore.data.splits import CAPTIONS_A_PICTURE, LONGEST_CAPTION
from vsecore.typed import convert, short

SPLITS = {"train": "train", "restval": "train", "val": "dev", "test": "test"}
"""Karpathy's name for a split, and ours. COCO's "restval" is used for training, as is usual."""


def expanded(path: str | Path) -> Path:
    """Return a path with "~" expanded to the home folder, as it is if there is no such user."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  (where pathlib would raise)


def _dataset_name(name: str) -> str:
    """Return a dataset's name if it can become part of a folder's name."""
    if not re.fullmatch(r"\w[\w.-]{,99}", name):
        raise ValueError('a name of at most 100 letters, digits, "_", "." and "-"')
    return name


def inside(path: str) -> str:
    """Return a path below the root in its simplest form, "" for the root; refuse one that leads out of it."""
    plain = PurePosixPath(path)
    odd = re.search(r"^[A-Za-z]:|[\\\x00-\x1f\x7f\ufeff]", path) or path != path.strip()
    if odd or plain.is_absolute() or ".." in plain.parts:
        raise ValueError('a path inside the root, such as "val2014", without control characters')
    return "" if plain == PurePosixPath() else str(plain)


def _file_name(name: str) -> str:
    """Return the name of a picture file if it stays within its folder, and on one line of a text file."""
    if not name or "/" in name or inside(name) != name:
        raise ValueError("the name of a file, without folders, control characters or blanks at its ends")
    return name


def _on_one_line(caption: str) -> str:
    """Return a caption without line breaks; some of COCO's captions contain one."""
    if len(caption) > LONGEST_CAPTION:
        raise ValueError(f"at most {LONGEST_CAPTION} characters")
    return " ".join(caption.replace("\ufeff", " ").split())


DatasetName = Annotated[str, AfterValidator(_dataset_name)]


@dataclass(frozen=True)
class _Sentence:
    raw: Annotated[str, AfterValidator(_on_one_line)]
    sentid: int | None = None


@dataclass(frozen=True)
class _Image:
    filename: Annotated[str, AfterValidator(_file_name)]
    split: Literal["train", "restval", "val", "test"]
    sentences: list[_Sentence]
    filepath: Annotated[str, AfterValidator(inside)] = ""
    cocoid: int | None = None
    imgid: int | str | None = None


@dataclass(frozen=True)
class _KarpathyFile:
    images: Annotated[list[_Image], FailFast()]
    dataset: DatasetName | None = None


@dataclass(frozen=True)
class Entry:
    """One picture as an annotation file describes it."""

    split: str | None
    """ "train", "dev" or "test"; "" if no split has it; None if its file has no splits."""
    folder: str
    """The folder below the root that holds the picture, as far as the file says."""
    file_name: str
    identity: str
    """COCO's number where there is one, else the picture file's name, with its folder if one is given."""
    captions: list[str]
    place: str
    """The entry's place in the annotation file."""
    caption_ids: list[str] | None = None
    """COCO's number of each caption; None: the file does not give the numbers of all."""


def read_annotations(path: Path, root: Path | None = None) -> tuple[str, list[Entry]]:
    """Return the dataset's name and its pictures.

    Args:
        path: the file; or a folder with a text file beside each picture.
        root: the folder of the pictures, for tables that name them by whole paths.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, a name leads out of the root, or a picture is listed twice.
    """
    if path.is_dir():
        return own_name(path), _own(read_beside(path)[0])
    if is_table(path):
        return own_name(root or path.parent), _own(read_table(path, root))
    if path.suffix == ".txt":
        return "flickr8k", _first_five("flickr8k", _read_flickr8k(path))
    content = _read_karpathy(path)
    entries: list[Entry] = []
    seen: dict[tuple[str, object], Entry] = {}
    for row, image in enumerate(content.images):
        first = [sentence for sentence in image.sentences if sentence.raw]
        numbers = [str(sentence.sentid) for sentence in first if sentence.sentid is not None]
        file = str(PurePosixPath(image.filepath, image.filename))
        entry = Entry(
            SPLITS[image.split],
            image.filepath,
            image.filename,
            file if image.cocoid is None else str(image.cocoid),
            [sentence.raw for sentence in first],
            f"images[{row}]",
            numbers if len(numbers) == len(first) else None,
        )
        entries.append(entry)
        # If two pictures have one `imgid`, entries were mixed up, and any caption may be wrong.
        for kind, name in (("file", file), ("identity", entry.identity), ("imgid", image.imgid)):
            before = entry if name is None else seen.setdefault((kind, name), entry)
            if before is not entry:
                raise ValueError(
                    f"{path}: {before.place} and {entry.place} have the same {kind}, {short(name)}, in split "
                    f"{before.split!r} and in split {entry.split!r}: keep one of them"
                )
    name = content.dataset or path.stem.removeprefix("dataset_")
    name = convert(f"{path}: dataset", name, DatasetName)
    return name, _first_five(name, entries)


def own_name(root: Path) -> str:
    """Return a dataset's name for a folder of one's own."""
    return re.sub(r"[^\w.-]+", "-", root.resolve().name).strip("-.")[:100] or "own"


def _own(pictures: Sequence[OwnPicture]) -> list[Entry]:
    """Return entries of pictures of one's own."""
    return [
        Entry(one.split, *one.path.rpartition("/")[::2], one.path, one.captions, one.place or one.path)
        for one in pictures
    ]


def _first_five(name: str, entries: list[Entry]) -> list[Entry]:
    """Keep the first five captions of a published collection, or of one whose pictures have five or more.

    Captions of one's own are all kept, if all pictures have the same number or one has fewer than five.
    """
    counts = {len(entry.captions) for entry in entries if entry.split} - {0}
    if name not in COLLECTIONS and (len(counts) < 2 or min(counts) < CAPTIONS_A_PICTURE):
        return entries
    return [
        replace(
            entry,
            captions=entry.captions[:CAPTIONS_A_PICTURE],
            caption_ids=entry.caption_ids and entry.caption_ids[:CAPTIONS_A_PICTURE],
        )
        for entry in entries
    ]


def _read_karpathy(path: Path) -> _KarpathyFile:
    """Read Karpathy's JSON; say of another file of captions what it is."""
    try:
        content: _KarpathyFile = files.read_json(path, _KarpathyFile)
    except ValueError as error:
        if (kind := _kind_of(path)) is None:
            raise
        raise ValueError(
            f"{path} is {kind}, which says nothing of Karpathy's splits: get dataset_coco.json (or "
            "dataset_flickr30k.json, dataset_flickr8k.json) by vse data get; for pictures of your own, a CSV "
            "with the columns file, caption and, if you like, split will do"
        ) from error
    return content


def _kind_of(path: Path) -> str | None:
    """Name the well-known files of captions that are not Karpathy's; None: it is none of them."""
    try:
        content = json.loads(files.read_text(path))
    except (ValueError, OSError, RecursionError):
        return None
    rows = content if isinstance(content, list) else []
    first = rows[0] if rows and isinstance(rows[0], dict) else {}
    if {"image", "caption"} <= first.keys():
        return "a list of pictures and captions as BLIP and LAVIS share them"
    if "conversations" in first:
        return "a list of conversations as LLaVA shares them"
    if not isinstance(content, dict):
        return f"a list of {len(rows)} entries"
    notes = content.get("annotations")
    if isinstance(notes, list) and "images" in content:
        of = (
            "captions"
            if notes and isinstance(notes[0], dict) and "caption" in notes[0]
            else "boxes and other annotations"
        )
        return f"COCO's own file of {of} (or one written like it)"
    if PurePosixPath(next(iter(content), "")).suffix.lower() in SUFFIXES:
        return "a list of captions by the name of the picture"
    return None


def _read_flickr8k(path: Path) -> list[Entry]:
    """Read Flickr8k.token.txt, and the list of each split beside it."""
    captions: dict[str, dict[str, str]] = {}  # by the picture's name, then by the caption's number
    splits: dict[str, str] = {}

    def read_caption(line: str) -> None:
        head, tab, caption = line.partition("\t")
        picture, _, number = head.rpartition("#")
        known = captions.setdefault(_file_name(picture), {})
        if not tab or not re.fullmatch("[0-9]+", number) or number in known:
            raise ValueError("picture#number, a tab and a caption, and each number once")
        known[number] = _on_one_line(caption)

    def read_picture(line: str) -> None:
        if line in splits:
            raise ValueError(f"each picture once, and it is in the list of split {splits[line]!r}")
        if line:
            splits[_file_name(line)] = name

    _read_each(path, read_caption)
    for name in ("train", "dev", "test"):
        _read_each(path.with_name(f"Flickr_8k.{name}Images.txt"), read_picture)
    spoken = {picture: [text for text in texts.values() if text] for picture, texts in captions.items()}
    return [
        Entry(splits.get(name, ""), "", name, name, spoken.get(name, []), name)
        for name in splits | captions  # first in the order of the lists, then the rest
    ]


def _read_each(path: Path, read: Callable[[str], None]) -> None:
    """Read the lines of a text file one by one."""
    for number, line in enumerate(files.read_lines(path), start=1):
        try:
            read(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is {short(line)}: wanted {error}") from None
