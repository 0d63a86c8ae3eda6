"""The files that say which pictures a collection has, their captions and their splits.

Two formats are read: Karpathy's `dataset_*.json` for COCO, Flickr30K and Flickr8K, and Flickr8k's own text
files. Both give the same list of entries. A picture that is listed twice is refused: in two splits, it
would be both trained on and tested on.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, FailFast

from vsecore.data import files
from vsecore.memory import check_text
from vsecore.typed import short

CAPTIONS_A_PICTURE = 5
SPLITS = {"train": "train", "restval": "train", "val": "dev", "test": "test"}
"""Karpathy's name for a split, and ours. COCO's "restval" is used for training, as is usual."""

_FILE = re.compile(r"(?!\.\.?$|[A-Za-z]:)[^/\\\x00-\x1f\x7f\ufeff]+")
_OUTSIDE = re.compile(r"^/|^[A-Za-z]:|(^|/)\.\.(/|$)|[\\\x00-\x1f\x7f\ufeff]")


def expanded(path: str | Path) -> Path:
    """Return a path with "~" expanded to the home folder.

    Raises:
        FileNotFoundError: there is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise FileNotFoundError(f'no folder {path}: "~" names a user unknown on this machine') from None


def dataset_name(name: str) -> str:
    """Return a dataset's name if it can become part of a folder's name.

    Raises:
        ValueError: it cannot; the message says only what is wanted.
    """
    if not re.fullmatch(r"\w[\w.-]{,99}", name):
        raise ValueError('a name of at most 100 letters, digits, "_", "." and "-"')
    return name


def file_name(name: str) -> str:
    """Return the name of a picture file if it stays within its folder.

    Raises:
        ValueError: it leads out of the folder, or does not fit on a line of text; the message says only what
            is wanted.
    """
    if not _FILE.fullmatch(name) or name != name.strip():
        raise ValueError("the name of a file, without folders, control characters or blanks at its ends")
    return name


def folder_name(path: str) -> str:
    """Return the path of a folder below the root in its simplest form.

    Raises:
        ValueError: it could be outside the root; the message says only what is wanted.
    """
    if _OUTSIDE.search(path) or path != path.strip():
        raise ValueError('a folder inside the root, such as "val2014"')
    plain = str(PurePosixPath(path))
    return "" if plain == "." else plain


DatasetName = Annotated[str, AfterValidator(dataset_name)]


@dataclass(frozen=True)
class _Sentence:
    raw: str
    sentid: int | None = None


@dataclass(frozen=True)
class _Image:
    filename: Annotated[str, AfterValidator(file_name)]
    split: Literal["train", "restval", "val", "test"]
    sentences: list[_Sentence]
    filepath: Annotated[str, AfterValidator(folder_name)] = ""
    cocoid: int | None = None
    imgid: int | str | None = None


@dataclass(frozen=True)
class _KarpathyFile:
    images: Annotated[list[_Image], FailFast()]
    dataset: DatasetName | None = None


@dataclass(frozen=True)
class Entry:
    """One picture as an annotation file describes it."""

    split: str
    """ "train", "dev" or "test"; "" if no split has it."""
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


def read_annotations(path: Path) -> tuple[str, list[Entry]]:
    """Return the dataset's name and its pictures.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, a name leads out of the root, or a picture is listed twice.
    """
    if path.suffix == ".txt":
        return "flickr8k", _read_flickr8k(path)
    content: _KarpathyFile = files.read_json(path, _KarpathyFile)
    entries = [
        Entry(
            split=SPLITS[image.split],
            folder=image.filepath,
            file_name=image.filename,
            identity=str(PurePosixPath(image.filepath, image.filename))
            if image.cocoid is None
            else str(image.cocoid),
            captions=list(captions),
            place=f"images[{row}]",
            caption_ids=None if None in numbers else [str(number) for number in numbers],
        )
        for row, image in enumerate(content.images)
        for captions, numbers in [_first_captions((one.raw, one.sentid) for one in image.sentences)]
    ]
    _refuse_repeats(path, entries, [image.imgid for image in content.images])
    name = content.dataset or path.stem.removeprefix("dataset_")
    try:
        return dataset_name(name), entries
    except ValueError as error:
        raise ValueError(
            f'{path} has no field "dataset", and its own name gives {name!r}: wanted {error}'
        ) from None


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file, without the blanks around them.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is not UTF-8, or would fill the memory.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: get it, or name another folder")
    check_text(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}): save it as UTF-8") from None
    # Only at "\n": splitlines would also cut at rarer characters, which some captions contain.
    return [line.strip() for line in text.removesuffix("\n").split("\n")]


def _read_flickr8k(path: Path) -> list[Entry]:
    captions: dict[str, dict[str, str]] = {}  # by the picture's name, then by the caption's number
    for number, line in enumerate(read_lines(path), start=1):
        head, tab, caption = line.partition("\t")
        picture, _, which = head.rpartition("#")
        if not tab or not re.fullmatch("[0-9]+", which):
            raise ValueError(f"{path}, line {number}: wanted picture#number, a tab and a caption")
        known = captions.setdefault(_checked(picture, f"{path}, line {number}"), {})
        if which in known:
            raise ValueError(
                f"{path}, line {number}: {head} is there already: give each caption its own number"
            )
        known[which] = caption
    splits: dict[str, str] = {}
    for name in ("train", "dev", "test"):
        listing = path.with_name(f"Flickr_8k.{name}Images.txt")
        if not listing.is_file():
            raise FileNotFoundError(f"no file {listing}, which lists split {name!r}: put it beside {path}")
        for number, picture in enumerate(read_lines(listing), start=1):
            if not picture:
                continue
            if picture in splits:
                where = "this list" if splits[picture] == name else f"the list of split {splits[picture]!r}"
                raise ValueError(
                    f"{listing}, line {number}: {picture} is in {where} already: keep one of the two"
                )
            splits[_checked(picture, f"{listing}, line {number}")] = name
    return [
        Entry(
            splits.get(picture, ""),
            "",
            picture,
            picture,
            list(_first_captions((caption, None) for caption in captions.get(picture, {}).values())[0]),
            picture,
        )
        for picture in splits | captions  # first in the order of the lists, then the rest
    ]


def _checked(picture: str, place: str) -> str:
    try:
        return file_name(picture)
    except ValueError as error:
        raise ValueError(f"{place}: the picture is {picture[:60]!r}: wanted {error}") from None


def _first_captions(
    raw: Iterable[tuple[str, int | None]],
) -> tuple[tuple[str, ...], tuple[int | None, ...]]:
    """Return the first five captions that are not empty, and their numbers.

    Each caption is brought onto one line: some of COCO's contain a break.
    """
    tidy = ((" ".join(sentence.replace("\ufeff", " ").split()), number) for sentence, number in raw)
    first = [(sentence, number) for sentence, number in tidy if sentence][:CAPTIONS_A_PICTURE]
    return tuple(sentence for sentence, _ in first), tuple(number for _, number in first)


def _refuse_repeats(path: Path, entries: list[Entry], image_ids: list[int | str | None]) -> None:
    """Refuse a picture in two splits (a leak) or twice in one (it would be a wrong answer to itself).

    Two pictures with one `imgid` are refused too: then entries were mixed up, and any caption may be wrong.
    """
    seen: dict[tuple[str, object], Entry] = {}
    for entry, image_id in zip(entries, image_ids, strict=True):
        for kind, name in (
            ("file", (entry.folder, entry.file_name)),
            ("identity", entry.identity),
            ("imgid", image_id),
        ):
            before = entry if name is None else seen.setdefault((kind, name), entry)
            if before is not entry:
                raise ValueError(
                    f"{path}: {before.place} and {entry.place} have the same {kind}, {short(name)}, in split "
                    f"{before.split!r} and in split {entry.split!r}: keep one of them"
                )
