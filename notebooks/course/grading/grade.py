"""Grade what learners handed in: find it, have it marked, and write the reports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from course.batch import make_world
from course.checks import EXERCISES
from course.grading.marks import (
    HandedIn,
    Mark,
    NotebookMarks,
    exercises_of,
    not_handed_in,
    read_hand_in,
)
from course.grading.plain import counted
from course.grading.remarks import one_line
from course.grading.report import LearnerReport, write_class_summary, write_learner_report
from course.grading.roster import (
    ByHand,
    Learner,
    compare,
    like,
    read_by_hand,
    read_roster,
    read_time,
)
from course.grading.work import Marked, Work, known, mark_all
from course.lesson import TIERS


@dataclass(frozen=True)
class Grading:
    """How hand-ins are graded.

    Attributes:
        tier: the tier that the notebooks are run at.
        minutes: the limit for each notebook.
        homework: what was set: numbers of notebooks, such as "04", and exercises, such as "04.step"; none:
            all that anybody handed in.
        roster: a CSV file of the class (see `roster.read_roster`).
        deadline: what comes later is remarked on; "": there is none.
        jobs: how many learners are graded at a time.
    """

    tier: str = "smoke"
    minutes: float = 10.0
    homework: tuple[str, ...] = ()
    roster: Path | None = None
    deadline: str = ""
    jobs: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.tier not in TIERS:
            raise ValueError(f"tier is {self.tier!r}: it must be one of {', '.join(TIERS)}")
        if not self.minutes > 0:
            raise ValueError(f"minutes is {self.minutes}: it must be above 0")
        if self.deadline:
            read_time("deadline", self.deadline)
        if self.jobs < 1:
            raise ValueError(f"jobs is {self.jobs}: it must be at least 1")
        numbers = sorted({key.split(".")[0] for key in EXERCISES})
        if unknown := set(self.homework) - set(numbers) - EXERCISES.keys():
            raise ValueError(
                f"homework is {min(unknown)!r}: it must be a notebook that has exercises "
                f"({', '.join(numbers)}) or an exercise, such as 04.step"
            )


def grade_folder(
    folder: Path,
    out: Path | None = None,
    grading: Grading | None = None,
    tell: Callable[[str], None] = print,
) -> Path:
    """Run the notebooks of one learner or of a class, and write a report of each learner's exercises.

    A folder whose notebooks lie directly in it is one learner's. Otherwise each subfolder is a learner's.
    What was handed in is read and never written to. It is other people's code: run this in a container (see
    the instructor page).

    What an earlier run has marked is not run again if nothing has changed since. So a run that was stopped
    goes on, and a change in the roster or in `by_hand.csv` is taken up at once.

    Args:
        folder: what was handed in.
        out: where the reports go. [default: `folder/grades`]
        grading: how. [default: all as the class `Grading` says]
        tell: called with a line about each notebook.

    Returns:
        The page to open: the learner's report, or the class's summary.

    Raises:
        ValueError: there is nothing to grade, or an option has no such value.
        FileNotFoundError: there is no such folder.
    """
    grading = grading or Grading()
    out = folder / "grades" if out is None else out
    homes = _find_notebooks(folder, out)
    handed_in = {
        home: tuple(read_hand_in(path, path.relative_to(home).as_posix()) for path in paths)
        for home, paths in homes.items()
    }
    alone = folder in homes
    if grading.roster and alone:
        raise ValueError(
            f"roster is {grading.roster}: it must be left out for the folder of one learner, as {folder} is"
        )
    learners = (
        read_roster(grading.roster, list(homes))
        if grading.roster
        else [Learner(home.resolve().name, "", home) for home in homes]
    )
    wanted = frozenset(grading.homework) or _lessons_handed_in(folder, handed_in)
    by_hand = read_by_hand(out, learners, exercises_of(wanted))

    works = {
        learner: Work(
            learner.name,
            out if alone else out / "learners" / learner.place,
            handed_in[learner.folder],
            grading.tier,
            60 * grading.minutes,
            tuple(sorted(grading.homework)),
        )
        for learner in learners
        if learner.folder and handed_in[learner.folder]
    }
    marked = _mark(works, grading.jobs, tell)
    reports = []
    nobodys = [learner for learner in learners if not learner.id]
    for learner in learners:
        nearest = like(learner, nobodys) if learner.folder is None else ""
        reports.append(report_on(learner, marked.get(learner), wanted, by_hand[learner], grading, nearest))
        write_learner_report(reports[-1], out if alone else out / "learners" / learner.place)
    if alone:
        for remark in reports[0].remarks:  # the report is the learner's
            tell(f"  remark: {one_line(remark)}")
        return out / "report.html"
    write_class_summary(reports, out)
    empty = {learner for learner in learners if learner.folder and learner not in works}
    if grading.roster and (differing := compare(learners, empty)):
        tell(differing)
    return out / "summary.html"


def report_on(
    learner: Learner,
    marked: Marked | None,
    wanted: Iterable[str],
    by_hand: Sequence[ByHand],
    grading: Grading,
    nearest: str = "",
) -> LearnerReport:
    """Put together what was marked and what an instructor has added.

    Args:
        learner: whose report it is.
        marked: what was marked; None if there was nothing to mark.
        wanted: numbers of notebooks, and exercises.
        by_hand: what the instructor has added.
        grading: how it was graded.
        nearest: a folder on no roster, called much like a learner who has none.
    """
    notebooks = marked.notebooks if marked else ()
    marks = {mark.exercise: mark for mark in best_marks(notebooks, wanted)}
    added, comments = 0.0, []
    for line in by_hand:
        if line.points is not None and line.exercise:
            was = marks[line.exercise]
            said = f"By hand; the grader gave {was.points:g}. {was.message}"
            marks[line.exercise] = replace(was, points=line.points, state="by hand", message=said)
        elif line.points is not None:
            added += line.points
        if line.comment:
            comments.append((line.exercise, line.comment))
    report = LearnerReport(
        learner=learner.name,
        id=learner.id,
        place=learner.place,
        notebooks=notebooks,
        marks=tuple(marks.values()),
        tier=grading.tier,
        date=marked.date if marked else datetime.now(UTC).date().isoformat(),
        late=_hours_late(learner, grading.deadline),
        late_by_roster=learner.handed_in is not None,
        nothing="" if notebooks else _in_place_of_notebooks(learner),
        added=added,
        comments=tuple(comments),
    )
    return replace(report, remarks=tuple(_remarks(report, learner, grading, nearest)))


def best_marks(marked: Iterable[NotebookMarks], wanted: Iterable[str]) -> tuple[Mark, ...]:
    """One mark an exercise: where several notebooks hold it the one with most points counts."""
    best = {key: not_handed_in(key) for key in exercises_of(wanted)}
    for found in (found for notebook in marked for found in notebook.marks):
        known = best[found.exercise]
        if not known.notebook or found.points > known.points:
            best[found.exercise] = found
    return tuple(best.values())


def _mark(works: Mapping[Learner, Work], jobs: int, tell: Callable[[str], None]) -> dict[Learner, Marked]:
    """Have marked what has changed since it was marked last."""
    marked = {learner: earlier for learner, work in works.items() if (earlier := known(work))}
    if marked:
        tell(f"kept, since nothing has changed: the marks of {len(marked)} of {len(works)}")

    def done(work: Work, result: Marked) -> None:
        tell(one_line(work.learner))
        for one in result.notebooks:
            tell(f"  {_spoken(one)}")

    waiting = [work for learner, work in works.items() if learner not in marked]
    asked = [work.features for work in waiting if work.features is not None]
    if asked:
        tell("making the embedded world, unless it is in the cache")
        make_world(waiting[0].tier, sorted(set().union(*asked)))  # for a kernel cannot add to the cache
    mark_all(waiting, jobs, done)
    return marked | {learner: now for learner, work in works.items() if (now := known(work))}


def _remarks(report: LearnerReport, learner: Learner, grading: Grading, nearest: str) -> Iterator[str]:
    """What the instructor should know, with the file that it is about."""
    if report.nothing and learner.folder is None:
        found = "The roster has a time of hand-in, but" if learner.handed_in else "Nothing was handed in:"
        yield f"{found} no folder fits the name{f'; is it {nearest}?' if nearest else '.'}"
    elif report.nothing:
        yield report.nothing
    if grading.roster and not learner.id:
        yield "Not on the roster."
    if report.late:
        source = "roster" if report.late_by_roster else "file's date, which anybody can set"
        yield f"Handed in {report.late:.1f} hours late, by the {source}."
    if report.summed < 0:
        yield f"By hand the sum became {report.summed:g}: it is given as 0."
    for one in report.notebooks:
        yield from (f"{one.name}: {remark}" for remark in (*one.remarks, *one.troubles))
    for key in (mark.exercise for mark in report.marks):
        holding = [one.name for one in report.notebooks if key in {found.exercise for found in one.marks}]
        if len(holding) > 1:
            yield f"{key} is in {' and in '.join(holding)}: it counts where it has most points."


def _in_place_of_notebooks(learner: Learner) -> str:
    """What a learner handed in who handed in no notebook."""
    folder = learner.folder
    inside = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")) if folder else []
    names = [name for name in inside if folder and (folder / name).is_file() and not _is_hidden(name)]
    if not names:
        return "Nothing was handed in."
    more = f" and {counted(len(names) - 3, 'more file')}" if len(names) > 3 else ""
    return f"No notebook was handed in; the folder holds {', '.join(names[:3])}{more}."


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _hours_late(learner: Learner, deadline: str) -> float:
    """By how many hours work came too late; 0 if it did not, if nobody knows, or if there is none."""
    if learner.folder is None:
        return 0.0
    found = learner.folder.rglob("*.ipynb")
    files = [path for path in found if ".ipynb_checkpoints" not in path.parts]
    dates = [datetime.fromtimestamp(path.lstat().st_mtime).astimezone() for path in files]
    handed_in = learner.handed_in or max(dates, default=None)
    if not deadline or handed_in is None:
        return 0.0
    return max(0.0, (handed_in - read_time("deadline", deadline)).total_seconds() / 3600)


def _find_notebooks(folder: Path, out: Path) -> dict[Path, list[Path]]:
    """Each learner's folder and the notebooks in it, if any: no links, nothing hidden, and no reports."""
    if folder.is_file():
        raise ValueError(f"folder is {folder}, which is a file: it must be the folder that it lies in")
    if not folder.is_dir():
        raise FileNotFoundError(f"folder is {folder}, which does not exist: it must be a folder of notebooks")
    if out.resolve() == folder.resolve():
        raise ValueError(
            f"out is {out}: it must be another folder, so that no report lies among the notebooks"
        )
    homes: dict[Path, list[Path]] = {}
    reports = (out.resolve(), (folder / "grades").resolve())
    for place, inner, files in os.walk(folder):
        here = Path(place)
        inner[:] = sorted(
            name for name in inner if not name.startswith(".") and (here / name).resolve() not in reports
        )
        home = folder / here.relative_to(folder).parts[0] if here != folder else folder
        homes.setdefault(home, [])
        for path in (here / name for name in sorted(files)):
            if path.suffix == ".ipynb" and not path.name.startswith(".") and _is_plain_file(path):
                homes[home].append(path)
    if not any(homes.values()):
        raise ValueError(
            f"folder is {folder}, which holds no notebook (*.ipynb): it must be that of a learner or a class"
        )
    own = homes.pop(folder)
    if own and any(homes.values()):
        raise ValueError(
            f"folder is {folder}, with notebooks in itself and in its subfolders: it must hold one subfolder "
            "for each learner"
        )
    return {folder: own} if own else dict(sorted(homes.items()))


def _is_plain_file(path: Path) -> bool:
    """Whether a path is a file and neither a link, which leads elsewhere, nor a pipe, which never ends."""
    return path.is_file() and not path.is_symlink()


def _lessons_handed_in(folder: Path, handed_in: Mapping[Path, Iterable[HandedIn]]) -> frozenset[str]:
    """The numbers of all notebooks whose exercises anybody handed in."""
    every = [one for notebooks in handed_in.values() for one in notebooks]
    if all(one.notebook is None for one in every):
        raise ValueError(
            f"folder is {folder}: it must hold a notebook that can be run. {one_line(every[0].name)}: "
            f"{every[0].troubles[0]}"
        )
    found = frozenset(number for one in every for number in one.lessons)
    if not found:
        raise ValueError(
            f"folder is {folder}: it must hold exercises of this course, and no notebook in it holds an "
            "exercise"
        )
    return found


def _spoken(marked: NotebookMarks) -> str:
    if not marked.marks:
        return f"{one_line(marked.name)}: {' '.join((*marked.remarks, *marked.troubles))}"
    points, possible = sum(mark.points for mark in marked.marks), sum(mark.possible for mark in marked.marks)
    count = len(marked.remarks) + len(marked.troubles)
    remarks = f"; {counted(count, 'remark')}" if count else ""
    return f"{one_line(marked.name)}: {points:g} of {possible} points in {marked.seconds:.0f} s{remarks}"
