"""The files that say which pictures a collection has, their captions and their splits.

All formats become one list of entries: Karpathy's `dataset_*.json` for COCO, Flickr30K and Flickr8K,
Flickr8k's own text files, and of one's own a table with a line for each caption or a text file beside each
picture. A picture that is listed twice is refused, since it could be both trained on and tested on.
"""

import csv
import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, FailFast, Field

from vsecore.data import files
from vsecore.data.picture_folders import SUFFIXES, list_pictures, name_key
from vsecore.data.sources import COLLECTIONS
from vsecore.data.splits import CAPTIONS_A_PICTURE, LONGEST_CAPTION
from vsecore.typed import convert, short

T = TypeVar("T")
SPLITS = {
    **{"train": "train", "training": "train", "restval": "train"},
    **{"dev": "dev", "val": "dev", "valid": "dev", "validation": "dev", "test": "test"},
}
"""What files call the splits, and we. COCO's "restval" is used for training, as is usual."""
TABLES = (".csv", ".tsv")
COLUMNS = {
    "file": (
        *("file", "filename", "file_name", "filepath", "file_path"),
        *("image", "image_name", "image_path", "path"),
    ),
    "caption": ("caption", "text", "title", "comment", "sentence", "description"),
    "split": ("split",),
}
"""The names that the columns of a table may have."""


@dataclass(frozen=True)
class Entry:
    """One picture as an annotation file describes it."""

    split: str | None
    """ "train", "dev" or "test"; "" if no split has it; None if its file has no splits."""
    file: str
    """Its path below the root, as far as the file says."""
    captions: list[str]
    place: str
    identity: str
    """COCO's number where there is one, else `file`."""
    caption_ids: list[str] | None = None
    """COCO's number of each caption; None: the file does not give the numbers of all."""

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return PurePosixPath(self.file).name


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
    if len(caption) > LONGEST_CAPTION or "\0" in caption:
        raise ValueError(f"text of at most {LONGEST_CAPTION} characters, without NUL")
    return " ".join(caption.replace("\ufeff", " ").split())


def as_dataset_name(folder: str) -> str:
    """Return the name of a folder in the form of a `DatasetName`."""
    return re.sub(r"[^\w.-]+", "-", folder).strip("-.")[:100] or "own"


DatasetName = Annotated[str, Field(pattern=r"^\w[\w.-]{0,99}$")]


def read_annotations(path: Path, root: Path | None = None) -> tuple[str, list[Entry]]:
    """Return the dataset's name and its pictures.

    Of a published collection, or of another one in its format whose pictures all have five captions or more,
    the first five are kept. Captions of one's own are all kept.

    Args:
        path: the file; or a folder with a text file beside each picture.
        root: the folder of the pictures, for tables that name them by whole paths.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, a name leads out of the root, or a picture is listed twice.
    """
    if path.is_dir() or is_table(path):
        folder = path if path.is_dir() else root or path.parent
        name = as_dataset_name(folder.resolve().name)
        entries = read_beside(path)[0] if path.is_dir() else _read_table(path, root)
        # Published collections have five captions a picture, and are refused with fewer.
        few = any(len(entry.captions) < CAPTIONS_A_PICTURE for entry in entries)
        return f"own-{name}" if few and name in COLLECTIONS else name, entries
    name, entries = _read_flickr8k(path) if path.suffix == ".txt" else _read_karpathy(path)
    fewest = min((len(entry.captions) for entry in entries if entry.split and entry.captions), default=0)
    if name in COLLECTIONS or fewest >= CAPTIONS_A_PICTURE:
        first = slice(CAPTIONS_A_PICTURE)
        entries = [
            replace(one, captions=one.captions[first], caption_ids=one.caption_ids and one.caption_ids[first])
            for one in entries
        ]
    return name, entries


def find_annotations(root: Path, json_path: str | Path | None = None) -> Path:
    """Find the file with a collection's captions and splits; the root itself if texts lie beside pictures."""
    if json_path is not None:
        found = [files.expanded(json_path)]
    else:
        found = sorted(root.glob("dataset*.json")) or list(root.glob("Flickr8k.token.txt"))
        # Other texts may lie beside pictures, so a .txt counts as a table only by its name too.
        found = found or sorted(
            path
            for path in root.glob("[!.]*")  # not what macOS keeps beside a file
            if path.is_file()
            and (path.suffix.lower() in TABLES or (path.stem == "captions" and is_table(path)))
        )
        if not found and read_beside(root)[0]:
            return root
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ValueError(f"{root} has several annotation files ({names}): name one (--captions, json_path)")
    if not found or not found[0].is_file():
        raise FileNotFoundError(
            f"no file {found[0] if found else root / 'dataset_*.json'}, and no other captions: name or get "
            "Karpathy's dataset_coco.json, dataset_flickr30k.json or dataset_flickr8k.json (vse data get), "
            "or a Flickr8k.token.txt; for your own captions, a CSV with the columns file and caption, or a "
            "NAME.txt beside each picture"
        )
    return found[0]


# Karpathy's JSON.


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


def _read_karpathy(path: Path) -> tuple[str, list[Entry]]:
    try:
        content: _KarpathyFile = files.read_json(path, _KarpathyFile)
    except ValueError as error:
        raise ValueError(
            f"{error}. Wanted Karpathy's format, as in dataset_coco.json (vse data get): COCO's other files "
            "and Flickr30K's .token do not name splits; for your own pictures, a CSV with the columns file "
            "and caption will do"
        ) from None
    entries: list[Entry] = []
    seen: dict[tuple[str, object], Entry] = {}
    for row, image in enumerate(content.images):
        first = [sentence for sentence in image.sentences if sentence.raw]
        numbers = [str(sentence.sentid) for sentence in first if sentence.sentid is not None]
        file = str(PurePosixPath(image.filepath, image.filename))
        entry = Entry(
            split=SPLITS[image.split],
            file=file,
            captions=[sentence.raw for sentence in first],
            place=f"images[{row}]",
            identity=file if image.cocoid is None else str(image.cocoid),
            caption_ids=numbers if len(numbers) == len(first) else None,
        )
        entries.append(entry)
        # If two pictures have one `imgid`, entries were mixed up, and any caption may be wrong.
        for kind, name in (("file", file), ("identity", entry.identity), ("imgid", image.imgid)):
            before = entry if name is None else seen.setdefault((kind, name), entry)
            if before is not entry:
                raise ValueError(
                    f"{path}: {before.place} and {entry.place}, of {before.split} and {entry.split}, have "
                    f"one {kind}, {short(name)}: keep one of them"
                )
    name = content.dataset or path.stem.removeprefix("dataset_")
    return convert(f"{path}: dataset", name, DatasetName), entries


# Flickr8k's text files.


def _read_flickr8k(path: Path) -> tuple[str, list[Entry]]:
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
            splits[_file_name(line)] = split

    _each_line(path, read_caption)
    for split in ("train", "dev", "test"):
        _each_line(path.with_name(f"Flickr_8k.{split}Images.txt"), read_picture)
    spoken = {picture: [text for text in texts.values() if text] for picture, texts in captions.items()}
    names = splits | captions  # first in the order of the lists, then the rest
    return "flickr8k", [
        Entry(splits.get(name, ""), name, spoken.get(name, []), place=name, identity=name) for name in names
    ]


def _each_line(path: Path, read: Callable[[str], T]) -> list[T]:
    """Return what `read` makes of each line of a text file; it says what it wants of one that it refuses."""
    made = []
    for number, line in enumerate(files.read_lines(path), start=1):
        try:
            made.append(read(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is {short(line)}: wanted {error}") from None
    return made


# Captions of one's own.


def is_table(path: Path) -> bool:
    """Whether a file is a table of captions, by its ending or, of a .txt, by its first line."""
    if path.suffix.lower() in TABLES:
        return True
    if path.suffix.lower() != ".txt" or not path.is_file():
        return False
    with path.open("rb") as file:
        return _columns(file.readline(1000).decode("utf-8-sig", "replace")) is not None


def _columns(first: str) -> tuple[str, int, dict[str, int]] | None:
    """Return a table's delimiter, how many columns it has, and which are `file`, `caption` and `split`.

    None: it is no table.
    """
    for delimiter in ",\t;|":
        names = [name.strip().strip('"').casefold() for name in first.rstrip("\r\n").split(delimiter)]
        places = {
            ours: names.index(theirs)
            for ours, known in COLUMNS.items()
            for theirs in reversed(known)  # of several columns, the first of these names counts
            if theirs in names
        }
        if {"file", "caption"} <= places.keys():
            return delimiter, len(names), places
    return None


def _read_table(path: Path, root: Path | None) -> list[Entry]:
    """Read a table of captions; a comma, a tab, a semicolon or a bar stands between its columns."""
    text = files.read_unicode(path)
    first = text.partition("\n")[0]
    if (shape := _columns(first)) is None:
        raise ValueError(f"{path} has the columns {short(first.strip())}: wanted file and caption")
    delimiter, columns, places = shape
    found: dict[str, Entry] = {}

    def read(row: list[str], place: str) -> None:
        if len(row) != columns:
            remedy = "" if delimiter == "|" else f'; with a "{delimiter}" in it, a caption stands in quotes'
            raise ValueError(f"{len(row)} fields, wanted {columns}{remedy}")
        for line in (line for field in row for line in field.splitlines()[1:]):
            if PurePosixPath(line.partition(delimiter)[0].strip(' "')).suffix.lower() in SUFFIXES:
                raise ValueError(f"a quote takes in the line {short(line)} too: close it")
        file = _path_below_root(row[places["file"]].strip(), root)
        caption = _on_one_line(row[places["caption"]])
        if not file or not caption:
            raise ValueError(f"file {short(file)} and caption {short(caption)}: wanted both")
        split = None
        if "split" in places and (split := SPLITS.get(row[places["split"]].strip().casefold())) is None:
            raise ValueError(f"split {short(row[places['split']])}: wanted train, dev or test")
        known = found.setdefault(file, Entry(split, file, [], place, identity=file))
        if known.split != split:
            raise ValueError(f"split leakage: {file} is in {split} and in {known.split}: one only")
        known.captions.append(caption)

    quoting: Any = csv.QUOTE_NONE if delimiter == "|" else csv.QUOTE_MINIMAL  # tables with bars quote nothing
    style: dict[str, Any] = {"delimiter": delimiter, "quoting": quoting, "skipinitialspace": True}
    rows = csv.reader(io.StringIO(text, newline=""), strict=True, **style)
    begin = 1
    try:
        for row in rows:
            if row and begin > 1:
                read(row, f"line {begin}")
            begin = rows.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f'{path}, line {begin}: a field that begins with a quote (") must end with one ({error})'
        ) from None
    except ValueError as error:
        raise ValueError(f"{path}, line {begin}: {error}") from None
    if not found:
        raise ValueError(f"{path} has no captions: wanted a line for each")
    return list(found.values())


def _path_below_root(name: str, root: Path | None) -> str:
    """Return the path of a picture below the root; "" for the root itself."""
    plain = name.replace("\\", "/")
    try:
        if root is not None and Path(plain).is_absolute():
            plain = Path(os.path.relpath(plain, root)).as_posix()
        return name_key(inside(plain))
    except ValueError:
        folder = root or "the folder of the pictures"
        raise ValueError(f"{short(name)} is outside {folder}, or no name of a file") from None


def read_beside(root: Path) -> tuple[list[Entry], list[str]]:
    """Read the text file beside each picture: NAME.txt, or NAME.jpg.txt, with a caption on each line.

    Return the pictures with captions, and the names of those that have none.
    """
    found: list[Entry] = []
    without: list[str] = []
    owner: dict[Path, Path] = {}
    for picture in list_pictures(root).pictures:
        name, captions = picture.relative_to(root).as_posix(), list[str]()
        beside = [picture.with_name(f"{picture.name}.txt"), picture.with_suffix(".txt")]
        if text := next((path for path in beside if path.is_file()), None):
            if owner.setdefault(text, picture) != picture:
                raise ValueError(
                    f"{text} stands beside {owner[text].name} and {picture.name}: name each its own"
                )
            captions = list(filter(None, _each_line(text, _on_one_line)))
        if captions and (name != name.strip() or "\n" in name):  # no line of `{split}_ids.txt` can hold it
            raise ValueError(f"{short(name)} begins with a blank or holds a line break: rename it")
        if captions:
            found.append(Entry(None, name, captions, place=name, identity=name))
        else:
            without.append(name)
    return found, without
