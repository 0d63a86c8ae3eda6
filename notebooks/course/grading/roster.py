"""Who is in the class, when work was due, and what an instructor adds by hand."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path

from course.grading.plain import counted
from vsecore.data.files import write_atomically

BY_HAND = "by_hand.csv"
_BY_HAND_COLUMNS = ("learner", "exercise", "points", "comment")
_LARGEST = 10_000_000  # bytes


@dataclass(frozen=True)
class Learner:
    """A learner, and the folder that holds what they handed in.

    Attributes:
        name: what the reports call them.
        id: what the school's system calls them; "" if there is no roster.
        folder: the folder; None if there is none.
        handed_in: when, as the roster says; None: the date of the files counts.
    """

    name: str
    id: str = ""
    folder: Path | None = None
    handed_in: datetime | None = None

    @property
    def place(self) -> str:
        """The name of the folder for their reports."""
        return self.folder.name if self.folder else re.sub(r"\W", "_", self.id)

    @property
    def known_as(self) -> set[str]:
        """What an instructor may call them."""
        return {self.name, self.id, self.folder.name if self.folder else ""} - {""}


@dataclass(frozen=True)
class ByHand:
    """A line of `by_hand.csv`.

    Attributes:
        learner: a name, an id or a folder.
        exercise: its points are replaced; "": points are added to the sum.
        points: None: only a comment.
        comment: for the learner to read.
    """

    learner: str
    exercise: str
    points: float | None
    comment: str


def read_time(what: str, text: str) -> datetime:
    """A date and time, in this machine's time zone unless it names one.

    Raises:
        ValueError: it is none.
    """
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{what} is {text!r}: it must be a date and time such as 2026-11-20T18:00") from None


def read_roster(path: Path, folders: Sequence[Path]) -> list[Learner]:
    """The learners of a roster, each with the folder that is theirs; then folders that are nobody's.

    Args:
        path: a CSV file with the columns id and name, and perhaps folder and handed_in. Without a folder it
            is the one called like the id or the name, or so with an underscore and more, as exports do.
            Capital and small letters are alike, and so are spaces, underscores, hyphens and dots.
        folders: the folders that were handed in.

    Raises:
        ValueError: a column is missing, somebody stands there twice, or a folder is claimed twice.
        FileNotFoundError: there is no such file.
    """
    learners: list[Learner] = []
    claimed: dict[Path, str] = {}
    for line, row in _rows(path, ("id", "name")):
        if not row["id"] or not row["name"]:
            missing = "name" if row["id"] else "id"
            raise ValueError(f"{path}, line {line}: {missing} is '': it must not be empty")
        if row["id"] in {learner.id for learner in learners}:
            raise ValueError(f"{path}, line {line}: id is {row['id']!r}: it must be one learner's alone")
        exact = [row.get("folder", "")] if row.get("folder") else [row["id"], row["name"]]
        alike = {_plain(name) for name in exact}
        found = (
            [folder for folder in folders if folder.name in exact]
            or [folder for folder in folders if _plain(folder.name) in alike]
            or [folder for folder in folders if alike & _beginnings(folder.name)]
        )
        for folder in found:
            if len(found) > 1 or folder in claimed:
                other = claimed.get(folder) or found[1].name
                raise ValueError(
                    f"{path}, line {line}: folder is {row.get('folder', '')!r}: it must name the folder of "
                    f"{row['name']}; now that could be {folder.name}, or it is that of {other}"
                )
            claimed[folder] = row["name"]
        told = row.get("handed_in", "")
        handed_in = read_time(f"{path}, line {line}: handed_in", told) if told else None
        learners.append(Learner(row["name"], row["id"], found[0] if found else None, handed_in))
    return learners + [Learner(folder.name, "", folder) for folder in folders if folder not in claimed]


def _plain(name: str) -> str:
    """A name as it is compared: people, exports and file systems differ in how they spell one."""
    return re.sub(r"[\s_.-]+", "_", unicodedata.normalize("NFC", name).strip().casefold())


def _beginnings(name: str) -> set[str]:
    """What stands before each underscore of a folder's name, as it is compared."""
    return {_plain(name[: underscore.start()]) for underscore in re.finditer("_", name)}


def like(learner: Learner, others: Iterable[Learner]) -> str:
    """The one of others whose name is most like a learner's: a person's folder, or a folder's person."""
    names = {_plain(name): other for other in others for name in other.known_as}
    found = [get_close_matches(_plain(name), names, 1) for name in sorted(learner.known_as)]
    return next((names[close[0]].name for close in found if close), "")


def compare(learners: Iterable[Learner], without_notebook: Container[Learner] = ()) -> str:
    """What an instructor should compare where folders are on no roster; "" if none is.

    Args:
        learners: see `read_roster`.
        without_notebook: those of them whose folder holds no notebook.
    """
    learners = list(learners)
    extra = [learner for learner in learners if not learner.id]
    missing = [learner for learner in learners if learner.id and learner.folder is None]
    empty = sum(bool(learner.id) and learner in without_notebook for learner in learners)
    if not extra:
        return ""
    said = [
        f"{counted(len(extra), 'folder')} {'belongs' if len(extra) == 1 else 'belong'} to nobody on the "
        "roster"
    ]
    if missing:
        said.append(f"{_people(len(missing))} on it {'has' if len(missing) == 1 else 'have'} no folder")
    if empty:
        said.append(
            f"{_people(empty)} on it {'has' if empty == 1 else 'have'} a folder that holds no notebook"
        )
    pairs = [f"{one.name} may be {other}" for one in extra if (other := like(one, missing))]
    if len(said) > 1:
        pairs = pairs or ["compare them"]
    return "; ".join(said) + (f": {', '.join(pairs)}." if pairs else ".")


def _people(count: int) -> str:
    return "1 person" if count == 1 else f"{count} people"


def read_by_hand(
    out: Path, learners: Iterable[Learner], exercises: Iterable[str]
) -> dict[Learner, list[ByHand]]:
    """What an instructor has written into `by_hand.csv` of a folder of reports, by learner.

    The first time, the file is made, with a line of headings alone.

    Raises:
        ValueError: lines name nobody, several, no exercise, or no points; it says so of all such lines.
    """
    path, learners, exercises = out / BY_HAND, list(learners), list(exercises)
    found: dict[Learner, list[ByHand]] = {learner: [] for learner in learners}
    if not path.is_file():
        with write_atomically(path, "w") as file:
            file.write(f"{','.join(_BY_HAND_COLUMNS)}\n")
    wrong = []
    for line, row in _rows(path, _BY_HAND_COLUMNS):
        try:
            learner, said = _line_by_hand(row, learners, exercises)
            found[learner].append(said)
        except ValueError as error:
            wrong.append(f"{path}, line {line}: {error}")
    if wrong:
        raise ValueError("\n".join(wrong))
    return found


def _line_by_hand(
    row: Mapping[str, str], learners: Sequence[Learner], exercises: Sequence[str]
) -> tuple[Learner, ByHand]:
    """Whom a line means, and what it says.

    Raises:
        ValueError: it names nobody, several, no exercise, or no points.
    """
    name = row["learner"]
    meant = [learner for learner in learners if name in learner.known_as] or [
        learner for learner in learners if _plain(name) in map(_plain, learner.known_as)
    ]
    if len(meant) != 1:
        whose = "nobody" if not meant else "several learners"
        near = like(Learner(name), learners) if name and not meant else ""
        raise ValueError(
            f"learner is {name!r}, which is {whose}: it must be the id, the name or the folder of one learner"
            + (f"; is it {near}?" if near else "")
        )
    if row["exercise"] and row["exercise"] not in exercises:
        raise ValueError(
            f"exercise is {row['exercise']!r}: it must be one that was set ({', '.join(exercises)})"
        )
    try:
        points = float(row["points"].replace(",", ".")) if row["points"] else None
    except ValueError:
        raise ValueError(f"points is {row['points']!r}: it must be a number or empty") from None
    if points is not None and not -1000 <= points <= 1000:
        raise ValueError(f"points is {row['points']}: it must be from -1000 to 1000")
    return meant[0], ByHand(name, row["exercise"], points, row["comment"])


def _rows(path: Path, needed: Sequence[str]) -> list[tuple[int, Mapping[str, str]]]:
    """The lines of a CSV file as spreadsheets write it, with their numbers; empty lines are left out."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist: it must be a CSV file with the columns {', '.join(needed)}"
        )
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"{path} is too large: it must have at most {_LARGEST // 1_000_000} MB")
    try:
        text = path.read_text(encoding="utf-8-sig")
        head = text.partition("\n")[0]
        rows = csv.DictReader(
            io.StringIO(text, newline=""), delimiter=";" if head.count(";") > head.count(",") else ","
        )
        columns = [str(name).strip().lower() for name in rows.fieldnames or ()]
        if missing := [name for name in needed if name not in columns]:
            raise ValueError(f"{path} lacks the column {missing[0]!r}: it must be in the first line")
        rows.fieldnames = columns
        return [
            (rows.line_num, {name: str(value or "").strip() for name, value in row.items() if name})
            for row in rows
            if any(row.values())
        ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read ({error}): it must be a CSV file in UTF-8") from None
