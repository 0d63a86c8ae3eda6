"""Grade what learners handed in: find it, run it, and write the reports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import nbformat

from vsecore.course.checks import EXERCISES
from vsecore.course.grading import report
from vsecore.course.grading.marks import (
    HandedIn,
    Mark,
    NotebookMarks,
    exercises_of,
    mark,
    not_handed_in,
    plain,
    read_hand_in,
)
from vsecore.course.grading.report import LearnerReport
from vsecore.course.lesson import TIERS
from vsecore.data.files import write_atomically


def grade(
    folder: Path,
    out: Path | None = None,
    *,
    tier: str = "smoke",
    minutes: float = 10.0,
    homework: Iterable[str] = (),
    tell: Callable[[str], None] = print,
) -> Path:
    """Run the notebooks of one learner or of a class, and write a report of each learner's exercises.

    A folder whose notebooks lie directly in it is one learner's. If subfolders hold notebooks, each subfolder
    is a learner's. What was handed in is read and never written to. It is code of strangers: run this in a
    container (see the instructor page).

    Args:
        folder: what was handed in.
        out: where the reports go. [default: `folder/grades`]
        tier: the tier that the notebooks are run at.
        minutes: the limit for each notebook.
        homework: the numbers of the notebooks that were set, such as "04"; none: all that anybody handed in.
        tell: called with a line about each notebook.

    Returns:
        The page to open: the learner's report, or the class's summary.

    Raises:
        ValueError: there is nothing to grade, or an option has no such value.
        FileNotFoundError: there is no such folder.
    """
    if tier not in TIERS:
        raise ValueError(f"tier is {tier!r}; it must be one of {', '.join(TIERS)}")
    if not minutes > 0:
        raise ValueError(f"minutes is {minutes}; a notebook needs a limit above 0")
    numbers = sorted({key.split(".")[0] for key in EXERCISES})
    asked = frozenset(homework)
    if unknown := asked - set(numbers):
        raise ValueError(
            f"homework names {min(unknown)!r}, and no notebook of that number has exercises; "
            f"there are {', '.join(numbers)}"
        )
    if folder.is_file():
        raise ValueError(f"{folder} is a file; name the folder that it lies in")
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder of notebooks")
    out = folder / "grades" if out is None else out
    if out.resolve() == folder.resolve():
        raise ValueError(
            f"the reports cannot go into {folder} itself, among the notebooks; name another folder"
        )
    homes = _homes(folder, out)
    if not homes:
        raise ValueError(f"{folder} holds no notebook (*.ipynb); name the folder of a learner or of a class")
    if folder in homes and len(homes) > 1:
        raise ValueError(
            f"notebooks lie in {folder} itself and in its subfolders; give each learner one subfolder"
        )
    handed_in = {
        home: [read_hand_in(path, path.relative_to(home).as_posix()) for path in homes[home]]
        for home in homes
    }
    every = [one for notebooks in handed_in.values() for one in notebooks]
    if all(one.notebook is None for one in every):
        raise ValueError(
            f"{folder} holds nothing that can be run: {plain(every[0].name)}: {every[0].remarks[0]}"
        )
    wanted = asked or frozenset(number for one in every for number in one.lessons)
    if not wanted:
        raise ValueError(f"no notebook in {folder} holds an exercise of this course")

    reports = []
    for home, notebooks in handed_in.items():
        learner = home.resolve().name
        place = out if home == folder else out / "learners" / learner
        tell(plain(learner))
        reports.append(_grade_one(learner, notebooks, place, tier, 60 * minutes, wanted, tell))
    if folder in handed_in:
        return out / "report.html"
    report.write_summary(reports, out)
    return out / "summary.html"


def _grade_one(
    learner: str,
    notebooks: list[HandedIn],
    place: Path,
    tier: str,
    seconds: float,
    wanted: frozenset[str],
    tell: Callable[[str], None],
) -> LearnerReport:
    marked = []
    for one in notebooks:
        marked.append(mark(one, tier, seconds, wanted))
        tell(f"  {_spoken(marked[-1])}")
        if one.notebook is not None and marked[-1].marks:
            with write_atomically(place / "executed" / one.name, "w") as file:
                nbformat.write(one.notebook, file)
    date = datetime.now(UTC).date().isoformat()
    made = LearnerReport(learner, tuple(marked), best_marks(marked, wanted), tier, date)
    report.write_learner(made, place)
    return made


def best_marks(marked: Iterable[NotebookMarks], wanted: Iterable[str]) -> tuple[Mark, ...]:
    """One mark an exercise: where several notebooks hold it the one with most points counts."""
    best = {key: not_handed_in(key) for key in exercises_of(wanted)}
    for found in (found for notebook in marked for found in notebook.marks):
        known = best[found.exercise]
        if not known.notebook or found.points > known.points:
            best[found.exercise] = found
    return tuple(best.values())


def _homes(folder: Path, out: Path) -> dict[Path, list[Path]]:
    """Each learner's folder and the notebooks in it: no links, nothing hidden, and no reports."""
    homes: dict[Path, list[Path]] = {}
    reports = (out.resolve(), (folder / "grades").resolve())
    for place, inner, files in os.walk(folder):
        here = Path(place)
        inner[:] = sorted(
            name for name in inner if not name.startswith(".") and (here / name).resolve() not in reports
        )
        for path in (here / name for name in sorted(files)):
            if path.suffix == ".ipynb" and not path.name.startswith(".") and _is_plain(path):
                parts = path.relative_to(folder).parts
                homes.setdefault(folder / parts[0] if len(parts) > 1 else folder, []).append(path)
    return dict(sorted(homes.items()))


def _is_plain(path: Path) -> bool:
    """Whether a path is a file and neither a link, which leads elsewhere, nor a pipe, which never ends."""
    return path.is_file() and not path.is_symlink()


def _spoken(marked: NotebookMarks) -> str:
    if not marked.marks:
        return f"{plain(marked.name)}: {' '.join(marked.remarks)}"
    points, possible = (sum(getattr(one, name) for one in marked.marks) for name in ("points", "possible"))
    remarks = f"; {len(marked.remarks)} remarks" if marked.remarks else ""
    return f"{plain(marked.name)}: {points} of {possible} points in {marked.seconds:.0f} s{remarks}"
