"""Grade what learners handed in: find it, have it marked, and write a page and a table."""

import csv
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import typer
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from course.batch import make_world
from course.checks import EXERCISES
from course.grading.marking import Mark, MarkState, NotebookMarks, exercises_of, one_line, read_hand_in
from course.grading.work import Marked, Work, known, mark_all
from course.lesson import Tier
from vsecore.arguments import Count, Positive, checked
from vsecore.data.files import write_atomically, write_whole

SIGNS: dict[MarkState, str] = {
    "right": "✓",
    "noted": "•",
    "partly right": "◐",
    "no points": "✗",
    "not answered": "…",
    "not run": "!",
    "not handed in": "–",
}
"""A sign for each state, so that nobody needs colour to tell them apart."""


class LearnerMarks:
    """What a learner handed in: how each file went, and a mark for each exercise that was set."""

    def __init__(self, learner: str, notebooks: Sequence[NotebookMarks], marks: Sequence[Mark]) -> None:
        self.learner, self.notebooks, self.marks = learner, notebooks, marks
        self.points, self.possible = sum(mark.points for mark in marks), sum(mark.possible for mark in marks)


@checked
def grade_folder(
    folder: Path,
    out: Path | None = None,
    *,
    homework: Sequence[str] = (),
    tier: Tier = "smoke",
    minutes: Positive = 10.0,
    jobs: Count = 1,
) -> Path:
    """Run the notebooks of one learner or of a class, write a report, and return the page to open.

    What was handed in is read and never written to. It is other people's code: run this in a container (see
    the instructor page). What an earlier run has marked is not run again if nothing has changed since, so a
    run that was stopped goes on. The arguments are those of `python -m course grade`.
    """
    if unknown := [name for name in homework if not exercises_of([name])]:
        raise ValueError(
            f"homework is {unknown[0]!r}: it must be a notebook that has exercises "
            f"({', '.join(sorted({key[:2] for key in EXERCISES}))}) or an exercise, such as 04.step"
        )
    out = folder / "grades" if out is None else out
    works = []
    for home, paths in _find_notebooks(folder, out).items():
        name, chosen = home.resolve().name, tuple(sorted(homework))
        handed_in = tuple(read_hand_in(path, path.relative_to(home).as_posix()) for path in paths)
        works.append(Work(name, out / "learners" / name, handed_in, tier, 60 * minutes, chosen))
    every = [one for work in works for one in work.notebooks]
    wanted = exercises_of(homework or {number for one in every for number in one.lessons})
    if not wanted:
        reasons = "; ".join(f"{one_line(one.name)}: {one.trouble}" for one in every[:3])
        raise ValueError(f"folder is {folder}: it must hold exercises of this course. {reasons}")

    marked = {work.learner: earlier for work in works if (earlier := known(work))}
    if marked:
        typer.echo(f"kept, since nothing has changed: the marks of {len(marked)} of {len(works)}")

    def done(work: Work, result: Marked) -> None:
        marked[work.learner] = result
        typer.echo(one_line(work.learner))
        for one in result.notebooks:
            points = sum(mark.points for mark in one.marks)
            possible = sum(mark.possible for mark in one.marks)
            typer.echo(f"  {one_line(one.name)}: {points} of {possible} points in {one.seconds:.0f} s")
            for trouble in one.troubles:
                typer.echo(f"    {trouble}")

    waiting = [work for work in works if work.notebooks and work.learner not in marked]
    opened = [one.notebook for work in waiting for one in work.notebooks if one.notebook]
    if any("course.begin(" in cell.source for notebook in opened for cell in notebook.cells):
        typer.echo("making the embedded world, unless it is in the cache")
        make_world(tier)  # for a kernel cannot add to the cache
    mark_all(waiting, jobs, done)
    learners = []
    for work in works:
        notebooks = marked[work.learner].notebooks if work.notebooks else ()
        learners.append(LearnerMarks(work.learner, notebooks, best_marks(notebooks, wanted)))
    return write_report(learners, out, tier)


def best_marks(marked: Iterable[NotebookMarks], wanted: Iterable[str]) -> tuple[Mark, ...]:
    """Return one mark an exercise: where several notebooks hold it, the one with most points counts."""
    best = {k: Mark(k, 0, len(EXERCISES[k].trials), "not handed in", "No notebook holds it.") for k in wanted}
    for mark in (mark for notebook in marked for mark in notebook.marks if mark.exercise in best):
        if not best[mark.exercise].notebook or mark.points > best[mark.exercise].points:
            best[mark.exercise] = mark
    return tuple(best.values())


def _find_notebooks(folder: Path, out: Path) -> dict[Path, list[Path]]:
    """Return each learner's folder and the notebooks in it: no links, nothing hidden, and no reports."""
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder: name the one that the notebooks lie in")
    if out.resolve() == folder.resolve():
        raise ValueError(f"out is {out}: it must be another folder, where no notebook lies")
    homes: dict[Path, list[Path]] = {}
    reports = (out.resolve(), (folder / "grades").resolve())
    for place, inner, files in os.walk(folder):
        here = Path(place)
        inner[:] = sorted(name for name in inner if name[0] != "." and (here / name).resolve() not in reports)
        home = folder / here.relative_to(folder).parts[0] if here != folder else folder
        homes.setdefault(home, []).extend(
            path
            for path in (here / name for name in sorted(files))
            # neither a link, which leads elsewhere, nor a pipe, which never ends
            if path.suffix == ".ipynb" and path.name[0] != "." and path.is_file() and not path.is_symlink()
        )
    own = homes.pop(folder)
    if bool(own) == any(homes.values()):
        raise ValueError(
            f"folder is {folder}: it must hold the notebooks (*.ipynb) of one learner, or a subfolder for "
            f"each learner; {'it holds both' if own else 'no notebook is in it'}"
        )
    return {folder: own} if own else homes


def write_report(learners: Sequence[LearnerMarks], folder: Path, tier: str) -> Path:
    """Write `report.html` and `points.csv` of a class, or of one learner; return the page."""
    keys = [mark.exercise for mark in learners[0].marks]
    rows = [["learner", "points", "possible", "percent", *keys]]
    for one in learners:
        name = one_line(one.learner)
        name = f"'{name}" if name.startswith(("=", "+", "-", "@")) else name  # no spreadsheet's formula
        totals = [one.points, one.possible, f"{100 * one.points / one.possible:.1f}"]
        rows.append([name, *map(str, totals), *(str(mark.points) for mark in one.marks)])
    with write_atomically(folder / "points.csv", "w") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)

    exercises = []
    for every in zip(*(one.marks for one in learners), strict=True):
        handed_in = [mark for mark in every if mark.state != "not handed in"]
        right = sum(mark.state in ("right", "noted") for mark in handed_in)
        hints = Counter(mark.message for mark in handed_in if mark.state in ("no points", "partly right"))
        hint = next((hint for hint, _ in hints.most_common(1)), "")
        exercises.append((every[0].exercise, right, len(handed_in), hint))
    pages = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: value if hasattr(value, "__html__") else one_line(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = {"learners": learners, "exercises": exercises, "tasks": EXERCISES, "signs": SIGNS, "tier": tier}
    date = datetime.now(UTC).date().isoformat()
    write_whole(folder / "report.html", pages.get_template("report.html.jinja").render(date=date, **shown))
    return folder / "report.html"
