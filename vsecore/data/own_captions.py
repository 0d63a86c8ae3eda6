"""Captions as people have them: a table with a line for each caption, or a text file beside each picture.

A table is a CSV in UTF-8 whose columns have the usual names. Without a column of splits, pictures are shared
out by their bytes, and copies of one picture stay in one split.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from vsecore.data.files import digest_of, progress, read_text
from vsecore.data.picture_files import open_picture
from vsecore.data.picture_folders import SUFFIXES, list_pictures, name_key
from vsecore.data.splits import LONGEST_CAPTION
from vsecore.typed import short

TABLES = (".csv", ".tsv")
FILE = ("file", "filename", "file_name", "filepath", "file_path", "image", "image_name", "image_path", "path")
CAPTION = ("caption", "text", "title", "comment", "sentence", "description")
SPLIT = ("split",)
SPLITS = {
    **{"train": "train", "training": "train", "restval": "train"},
    **{"dev": "dev", "val": "dev", "valid": "dev", "validation": "dev", "test": "test"},
}
"""What people call the splits."""
SAME = 3.0
"""Mean difference of two pictures' small copies, of 255 levels, below which they may be the same picture."""
ALIKE = 0.02
"""The square of that difference may be at most this share of the variance of the picture's own pixels, or all
pictures of small things on white would be one."""
FLAT = 50.0
"""Variance below which a small copy shows too little to say that two pictures are the same."""


@dataclass(frozen=True)
class OwnPicture:
    """A picture and its captions."""

    path: str
    """Below the root."""
    captions: list[str]
    split: str | None = None
    """None: nothing says it."""
    place: str = ""
    """The line that names it first."""


def read_table(path: Path, root: Path | None = None) -> list[OwnPicture]:
    """Read a table of captions.

    Args:
        path: its columns are called `file` and `caption`, and perhaps `split`, or by other usual names; what
            stands between them is a comma, a tab, a semicolon or a bar, as the first line shows.
        root: the folder of the pictures, for tables that name them by whole paths.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line is damaged or lacks something, or a picture is in two splits; the line is named.
    """
    found: dict[str, OwnPicture] = {}
    for line, row in _rows(path):
        name, caption = row["file"].strip(), " ".join(row["caption"].replace("\ufeff", " ").split())
        if not name or not caption or len(caption) > LONGEST_CAPTION:
            raise ValueError(
                f"{line}: file is {short(name)} and caption {short(caption)}: wanted both, and at most "
                f"{LONGEST_CAPTION} characters"
            )
        split = None
        if "split" in row and (split := SPLITS.get(row["split"].strip().casefold())) is None:
            raise ValueError(f"{line}: split is {short(row['split'])}: wanted train, dev or test")
        file = _below(name, root, line)
        known = found.setdefault(file, OwnPicture(file, [], split, line.rpartition(", ")[2]))
        if known.split != split:
            raise ValueError(f"split leakage: {line}: {name} is in {split} and in {known.split}: one only")
        known.captions.append(caption)
    if not found:
        raise ValueError(f"{path} has no captions: wanted a line for each")
    return list(found.values())


def is_table(path: Path) -> bool:
    """Whether a file is a table of captions, by its ending or, of a .txt, by its first line."""
    if path.suffix.lower() in TABLES:
        return True
    if path.suffix.lower() != ".txt" or not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.readline(1000).decode("utf-8-sig", "replace")
    return _columns(first) is not None


def read_beside(root: Path) -> tuple[list[OwnPicture], list[str]]:
    """Read the text file beside each picture: NAME.txt, or NAME.jpg.txt, with a caption on each line.

    Returns:
        The pictures with captions, and the names of those that have none.

    Raises:
        ValueError: a text is not UTF-8 or has a caption that is too long, or two pictures have one text.
    """
    found: list[OwnPicture] = []
    without: list[str] = []
    owner: dict[Path, Path] = {}
    for picture in list_pictures(root).pictures:
        name = picture.relative_to(root).as_posix()
        beside = [picture.with_name(f"{picture.name}.txt"), picture.with_suffix(".txt")]
        text = next((path for path in beside if path.is_file()), None)
        if text is not None and owner.setdefault(text, picture) != picture:
            raise ValueError(f"{text} stands beside {owner[text].name} and {picture.name}: name each its own")
        lines = [] if text is None else _lines(text)
        if lines:
            found.append(OwnPicture(name, lines))
        else:
            without.append(name)
    return found, without


def has_beside(root: Path) -> bool:
    """Whether pictures in a folder, or in a folder of it, have text files beside them."""
    below = (path for pattern in ("*.txt", "*/*.txt") for path in root.glob(pattern))
    return any(
        path.with_suffix("").suffix.lower() in SUFFIXES
        or any(path.with_suffix(s).is_file() for s in (*SUFFIXES, *map(str.upper, SUFFIXES)))
        for path in below
    )


def copies(pictures: Sequence[Path], sure: bool = False) -> list[list[Path]]:
    """Group files that show the same picture: the same bytes, or saved again at another size or quality.

    Of a picture that cannot be read, only the bytes are compared.

    Args:
        pictures: n files.
        sure: whether the bytes alone decide for nearly flat pictures, for whoever refuses copies.
    """
    small = np.stack([_small(path) for path in progress(pictures, desc="compare", unit="picture")])  # (n, F)
    variance = small.reshape(len(small), -1, 3).var(1).mean(1)  # (n,)   within each colour
    squares = np.square(small).sum(1)  # (n,)
    flat = ALIKE * variance < SAME**2  # (n,)
    limits = np.where(flat, ALIKE * variance, SAME**2) * small.shape[1]  # (n,)
    limits[(variance < FLAT) & sure] = -1
    group = np.arange(len(pictures))
    for start in range(0, len(pictures), 1024):
        block = small[start : start + 1024]
        gaps = squares[start : start + 1024, None] + squares - 2 * block @ small.T  # (b, n)
        within = gaps <= np.minimum(limits[start : start + 1024, None], limits)
        for row, column in zip(*np.nonzero(within), strict=True):
            if start + row < column:
                group[group == group[column]] = group[start + row]
    by_size: dict[int, dict[bytes, int]] = {}
    for row, path in enumerate(pictures):
        if flat[row]:
            first = by_size.setdefault(path.stat().st_size, {}).setdefault(digest_of(path), row)
            group[group == group[row]] = group[first]
    return [[pictures[int(row)] for row in np.flatnonzero(group == one)] for one in np.unique(group)]


def share_out(groups: Sequence[Sequence[Path]]) -> dict[Path, str]:
    """Give a tenth of the pictures, at least two, to dev and to test; copies stay together."""
    wanted = max(2, round(sum(map(len, groups)) / 10))
    made: dict[str, list[Path]] = {"test": [], "dev": [], "train": []}
    for group in sorted(groups, key=lambda group: min(sha256(digest_of(file)).digest() for file in group)):
        name = next((name for name in ("test", "dev") if len(made[name]) < wanted), "train")
        made[name].extend(group)
    return {file: name for name, files in made.items() for file in files}


def _small(path: Path) -> np.ndarray:
    """Return a copy of 16 x 16 pixels, (768,); of a picture that cannot be read, zeros."""
    try:
        return np.asarray(open_picture(path, at_least=32).resize((16, 16)), np.float32).ravel()
    except (ValueError, OSError):
        return np.zeros(16 * 16 * 3, np.float32)


def _lines(path: Path) -> list[str]:
    try:
        text = read_text(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}): save it as UTF-8") from None
    lines = [" ".join(line.split()) for line in text.split("\n")]
    if "\x00" in text or any(len(line) > LONGEST_CAPTION for line in lines):
        raise ValueError(f"{path}: wanted a caption on each line, of at most {LONGEST_CAPTION} characters")
    return [line for line in lines if line]


def _below(name: str, root: Path | None, line: str) -> str:
    """Return the path of a picture below the root."""
    plain = name.replace("\\", "/")
    if re.match(r"^([A-Za-z]:|/)", plain):
        if root is None or not Path(plain).is_relative_to(root):
            raise ValueError(f"{line}: {short(name)} is outside {root or 'the folder of the pictures'}")
        plain = Path(plain).relative_to(root).as_posix()
    path = PurePosixPath(plain)
    if ".." in path.parts or path == PurePosixPath() or re.search(r"[\x00-\x1f\x7f\ufeff]", plain):
        raise ValueError(f"{line}: {short(name)} is outside {root or 'the folder of the pictures'}")
    return name_key(str(path))


def _columns(first: str) -> tuple[str, list[str]] | None:
    """Return the delimiter of a table, and its columns as `file`, `caption` and `split`; None: it is none."""
    for delimiter in ",\t;|":
        names = [name.strip().strip('"').casefold() for name in first.rstrip("\r\n").split(delimiter)]
        ours = list(names)
        for ours_is, theirs in (("file", FILE), ("caption", CAPTION), ("split", SPLIT)):
            found = next((name for name in theirs if name in names), None)
            if found is not None:
                ours[names.index(found)] = ours_is
        if {"file", "caption"} <= set(ours):
            return delimiter, ours
    return None


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the place of each line and its fields."""
    try:
        text = read_text(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a CSV in UTF-8 ({error}): save it again as one") from None
    if "\x00" in text:
        at = text.count("\n", 0, text.index("\x00")) + 1
        raise ValueError(f"{path}, line {at} holds a NUL: the file is damaged, or not UTF-8: save it again")
    first = text.partition("\n")[0]
    shape = _columns(first)
    if shape is None:
        raise ValueError(f"{path} has the columns {short(first.strip())}: wanted file and caption")
    delimiter, columns = shape
    quoting: Any = csv.QUOTE_NONE if delimiter == "|" else csv.QUOTE_MINIMAL  # such tables quote nothing
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        quoting=quoting,
        strict=True,
        skipinitialspace=True,
    )
    while True:
        begin = reader.line_num + 1
        line = f"{path}, line {begin}"
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise ValueError(
                f'{line} ({error}): a field that begins with a quote (") must end with one, and a quote in '
                "it is doubled"
            ) from None
        if row is None:
            return
        if not row or begin == 1:
            continue
        if len(row) != len(columns):
            raise ValueError(
                f"{line} has {len(row)} fields, and the first line {len(columns)}: a caption with "
                f'"{delimiter}" in it must stand in double quotes'
            )
        if (swallowed := _swallowed(row, delimiter)) is not None:
            raise ValueError(
                f"{line} opens a quote that takes in the line of {short(swallowed)} too: close it on its line"
            )
        yield line, dict(zip(columns, row, strict=True))


def _swallowed(row: Sequence[str], delimiter: str) -> str | None:
    """Return the picture of a line that an open quote has taken into a field."""
    for value in row:
        for inner in value.splitlines()[1:]:
            name, found, _ = inner.partition(delimiter)
            if found and PurePosixPath(name.strip().strip('"')).suffix.lower() in SUFFIXES:
                return name.strip()
    return None
