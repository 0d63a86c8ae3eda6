"""Grade what learners handed in: find it, run it, and write the reports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import nbformat

from vsecore.course.checks import EXERCISES
from vsecore.course.grading.marks import (
    HandedIn,
    Mark,
    NotebookMarks,
    exercises_of,
    not_handed_in,
    one_line,
    read_hand_in,
    run_and_mark,
)
from vsecore.course.grading.report import LearnerReport, write_class_summary, write_learner_report
from vsecore.course.lesson import TIERS
from vsecore.data.files import write_atomically


def grade_folder(
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
    is a learner's. What was handed in is read and never written to. It is other people's code: run this in a
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
    homework = _known(homework)
    out = folder / "grades" if out is None else out
    handed_in = _read_hand_ins(folder, out)
    wanted = homework or _lessons_handed_in(folder, handed_in)

    reports = []
    for home, notebooks in handed_in.items():
        learner = home.resolve().name
        place = out if home == folder else out / "learners" / learner
        tell(one_line(learner))
        marked = [_mark_and_store(one, place, tier, 60 * minutes, wanted, tell) for one in notebooks]
        date = datetime.now(UTC).date().isoformat()
        reports.append(LearnerReport(learner, tuple(marked), best_marks(marked, wanted), tier, date))
        write_learner_report(reports[-1], place)
    if folder in handed_in:
        return out / "report.html"
    write_class_summary(reports, out)
    return out / "summary.html"


def best_marks(marked: Iterable[NotebookMarks], wanted: Iterable[str]) -> tuple[Mark, ...]:
    """One mark an exercise: where several notebooks hold it the one with most points counts."""
    best = {key: not_handed_in(key) for key in exercises_of(wanted)}
    for found in (found for notebook in marked for found in notebook.marks):
        known = best[found.exercise]
        if not known.notebook or found.points > known.points:
            best[found.exercise] = found
    return tuple(best.values())


def _known(homework: Iterable[str]) -> frozenset[str]:
    """The numbers of the notebooks that were set, each of which has exercises."""
    asked, numbers = frozenset(homework), sorted({key.split(".")[0] for key in EXERCISES})
    if unknown := asked - set(numbers):
        raise ValueError(
            f"homework names {min(unknown)!r}, and no notebook of that number has exercises; "
            f"there are {', '.join(numbers)}"
        )
    return asked


def _read_hand_ins(folder: Path, out: Path) -> dict[Path, list[HandedIn]]:
    """Read every learner's notebooks, by the learner's folder."""
    if folder.is_file():
        raise ValueError(f"{folder} is a file; name the folder that it lies in")
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder of notebooks")
    if out.resolve() == folder.resolve():
        raise ValueError(
            f"the reports cannot go into {folder} itself, among the notebooks; name another folder"
        )
    homes = _find_notebooks(folder, out)
    if not homes:
        raise ValueError(f"{folder} holds no notebook (*.ipynb); name the folder of a learner or of a class")
    if folder in homes and len(homes) > 1:
        raise ValueError(
            f"notebooks lie in {folder} itself and in its subfolders; give each learner one subfolder"
        )
    handed_in = {
        home: [read_hand_in(path, path.relative_to(home).as_posix()) for path in paths]
        for home, paths in homes.items()
    }
    every = [one for notebooks in handed_in.values() for one in notebooks]
    if all(one.notebook is None for one in every):
        raise ValueError(
            f"{folder} holds nothing that can be run: {one_line(every[0].name)}: {every[0].remarks[0]}"
        )
    return handed_in


def _find_notebooks(folder: Path, out: Path) -> dict[Path, list[Path]]:
    """Each learner's folder and the notebooks in it: no links, nothing hidden, and no reports."""
    homes: dict[Path, list[Path]] = {}
    reports = (out.resolve(), (folder / "grades").resolve())
    for place, inner, files in os.walk(folder):
        here = Path(place)
        inner[:] = sorted(
            name for name in inner if not name.startswith(".") and (here / name).resolve() not in reports
        )
        for path in (here / name for name in sorted(files)):
            if path.suffix == ".ipynb" and not path.name.startswith(".") and _is_plain_file(path):
                parts = path.relative_to(folder).parts
                homes.setdefault(folder / parts[0] if len(parts) > 1 else folder, []).append(path)
    return dict(sorted(homes.items()))


def _is_plain_file(path: Path) -> bool:
    """Whether a path is a file and neither a link, which leads elsewhere, nor a pipe, which never ends."""
    return path.is_file() and not path.is_symlink()


def _lessons_handed_in(folder: Path, handed_in: dict[Path, list[HandedIn]]) -> frozenset[str]:
    """The numbers of all notebooks whose exercises anybody handed in."""
    found = frozenset(
        number for notebooks in handed_in.values() for one in notebooks for number in one.lessons
    )
    if not found:
        raise ValueError(f"no notebook in {folder} holds an exercise of this course")
    return found


def _mark_and_store(
    one: HandedIn,
    place: Path,
    tier: str,
    seconds: float,
    wanted: frozenset[str],
    tell: Callable[[str], None],
) -> NotebookMarks:
    """Mark a notebook, tell how it went, and keep the executed copy beside the report."""
    marked = run_and_mark(one, tier, seconds, wanted)
    tell(f"  {_spoken(marked)}")
    if one.notebook is not None and marked.marks:
        with write_atomically(place / "executed" / one.name, "w") as file:
            nbformat.write(one.notebook, file)
    return marked


def _spoken(marked: NotebookMarks) -> str:
    if not marked.marks:
        return f"{one_line(marked.name)}: {' '.join(marked.remarks)}"
    points, possible = sum(mark.points for mark in marked.marks), sum(mark.possible for mark in marked.marks)
    remarks = f"; {len(marked.remarks)} remarks" if marked.remarks else ""
    return f"{one_line(marked.name)}: {points} of {possible} points in {marked.seconds:.0f} s{remarks}"
