"""Grade what learners handed in: run each notebook, and write the points that its own checks give.

The checks run in the learner's process, as they do while learners work, and hand every judgement on through a
file that `COURSE_JUDGEMENTS` names (see `course.checks.check`).
"""

import csv
import json
import logging
import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import nbformat
import typer
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course.batch import make_world
from course.checks import EXERCISES, JUDGEMENTS
from course.grading.parts import in_quotes
from course.lesson import Tier
from vsecore.arguments import Count, Positive, checked
from vsecore.data.files import write_atomically
from vsecore.threads import one_thread


class Mark(NamedTuple):
    """What a learner's answer to an exercise is worth, and why."""

    learner: str
    notebook: str
    exercise: str
    points: int
    possible: int
    message: str


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
    """Run the notebooks of one learner or of a class, and return the table of everybody's points.

    Beside `points.csv` lie `answers.csv`, with the hint of each answer, and `executed`, the notebooks that
    were run. This runs other people's code with the rights of your account: do it in a container. The
    arguments are those of `python -m course grade`.
    """
    wanted = _exercises(homework)
    if unknown := [name for name in homework if not _exercises([name])]:
        raise ValueError(
            f"homework is {unknown[0]!r}: it must be a notebook that has exercises "
            f"({', '.join(sorted({key[:2] for key in EXERCISES}))}) or an exercise, such as 04.step"
        )
    out = folder / "grades" if out is None else out
    homes = _find_notebooks(folder, out)
    works = [(home, path) for home, paths in homes.items() for path in paths]
    typer.echo("making the embedded world, unless it is in the cache")
    make_world(tier)
    with ThreadPoolExecutor(jobs) as pool:
        marks = list(pool.map(lambda work: _mark(work[0], work[1], out, tier, 60 * minutes), works))
    counted = wanted or _exercises(mark.exercise for each in marks for mark in each)
    if not counted:
        raise ValueError(f"folder is {folder}: it must hold exercises of this course")
    best = {home.resolve().name: dict[str, Mark]() for home in homes}
    for mark in (mark for each in marks for mark in each if mark.exercise in counted):
        known = best[mark.learner].get(mark.exercise)  # in another notebook: the better one counts
        if known is None or mark.points > known.points:
            best[mark.learner][mark.exercise] = mark
    return _write_tables(best, counted, out)


def _exercises(names: Iterable[str]) -> list[str]:
    """Return the keys of a notebook's exercises, "04", or of one, "04.step", in the course's order."""
    named = set(names)
    return [key for key in EXERCISES if {key, key[:2]} & named]


def _find_notebooks(folder: Path, out: Path) -> dict[Path, list[Path]]:
    """Return each learner's folder and the notebooks in it: no links, nothing hidden, and no reports."""
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder: name the one that the notebooks lie in")
    reports = (out.resolve(), (folder / "grades").resolve())
    homes = {
        home: list[Path]()
        for home in sorted(folder.iterdir())
        if home.is_dir() and not home.is_symlink() and home.name[0] != "." and home.resolve() not in reports
    }
    for home in (folder, *homes):
        found = home.glob("*.ipynb") if home == folder else home.rglob("*.ipynb")
        paths = [path for path in sorted(found) if path.is_file() and not path.is_symlink()]
        paths = [path for path in paths if not any(part[0] == "." for part in path.relative_to(home).parts)]
        if paths:
            homes[home] = paths
    if (folder in homes) == any(paths for home, paths in homes.items() if home != folder):
        raise ValueError(
            f"folder is {folder}: it must hold the notebooks (*.ipynb) of one learner, or a subfolder for "
            f"each learner; {'it holds both' if folder in homes else 'no notebook is in it'}"
        )
    return {folder: homes[folder]} if folder in homes else homes


def _mark(home: Path, path: Path, out: Path, tier: str, seconds: float) -> list[Mark]:
    """Run a learner's notebook, keep the executed copy, and mark the exercises that it should hold."""
    learner, name = home.resolve().name, str(path.relative_to(home))
    try:
        notebook = _opened(path, tier)
    except Exception as error:  # a file from outside can be wrong in every way
        typer.echo(f"{learner}, {name}: not run, for it is not a notebook ({type(error).__name__}: {error})")
        return []
    held = {key[:2] for key in EXERCISES if any(in_quotes(key, cell.source) for cell in notebook.cells)}
    with tempfile.TemporaryDirectory() as room:
        judged = Path(room) / "judgements.jsonl"
        trouble = _run(notebook, room, judged, seconds)
        last = _last_judgements(judged)
    with write_atomically(out / "executed" / learner / name, "w") as file:
        nbformat.write(notebook, file)
    marks = []
    for key in _exercises(held):
        possible = len(EXERCISES[key].trials)
        points, message = last.get(key, (0, f"No check of it was called. {trouble}".strip()))
        marks.append(Mark(learner, name, key, min(max(points, 0), possible), possible, message))
    points, possible = sum(mark.points for mark in marks), sum(mark.possible for mark in marks)
    typer.echo(f"{learner}, {name}: {points} of {possible} points. {trouble}".strip())
    return marks


def _opened(path: Path, tier: str) -> NotebookNode:
    """Read a notebook, of which only the cells' sources are used, and set its parameters."""
    kinds = {"code": new_code_cell, "markdown": new_markdown_cell}
    cells = nbformat.reads(path.read_text("utf-8-sig"), as_version=4).cells
    made = new_notebook(
        cells=[kinds[cell.cell_type](cell.source) for cell in cells if cell.cell_type in kinds]
    )
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    # By its text, since some programs drop the tags.
    places = [place for place, cell in enumerate(made.cells, 1) if "\ndata = " in f"\n{cell.source}"]
    parameters = f'tier = "{tier}"\ndata = "scenes"\ndata_root = ""\nseed = 0'
    made.cells.insert(places[0] if places else 0, new_code_cell(f"# Set by the grader.\n{parameters}"))
    return made


def _run(notebook: NotebookNode, room: str, judged: Path, seconds: float) -> str:
    """Run all cells, whatever some of them raise, and say what ended the run early; "" if nothing did."""
    ends = time.monotonic() + seconds

    def half_of_the_rest(_: NotebookNode) -> int:
        return max(1, int((ends - time.monotonic()) / 2))

    client = NotebookClient(
        notebook,
        allow_errors=True,
        interrupt_on_timeout=True,
        timeout_func=half_of_the_rest,
        resources={"metadata": {"path": room}},
    )
    client.log.setLevel(logging.CRITICAL)  # what became of a cell stands below it
    environment = one_thread(os.environ) | {"VSECORE_BATCH": "1", JUDGEMENTS: str(judged)}
    try:
        client.execute(env=environment, stderr=subprocess.DEVNULL)  # the kernel's own warnings
    except DeadKernelError:
        return "A cell ended Python, and the rest was not run."
    return ""


def _last_judgements(path: Path) -> dict[str, tuple[int, str]]:
    """Return the points and the message of each exercise's last check, which is the one that counts."""
    last = {}
    for line in path.read_text("utf-8", "replace").splitlines() if path.exists() else ():
        # A learner's code can write anything into the file.
        with suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
            one = json.loads(line)
            last[str(one["exercise"])] = (int(one["points"]), str(one["message"]))
    return last


def _write_tables(best: dict[str, dict[str, Mark]], counted: Sequence[str], out: Path) -> Path:
    """Write `points.csv`, a line a learner, and `answers.csv`, a line an answer; print how a class did."""
    possible = sum(len(EXERCISES[key].trials) for key in counted)
    rows: list[list[object]] = [["learner", "points", "possible", "percent", *counted]]
    for learner, marks in best.items():
        each = [marks[key].points if key in marks else 0 for key in counted]
        rows.append([learner, sum(each), possible, f"{100 * sum(each) / possible:.1f}", *each])
    answers = [mark for marks in best.values() for mark in marks.values()]
    for name, table in (("points.csv", rows), ("answers.csv", [Mark._fields, *answers])):
        with write_atomically(out / name, "w") as file:
            csv.writer(file, lineterminator="\n").writerows([map(_no_formula, row) for row in table])
    for key in counted:
        of_it = [mark for mark in answers if mark.exercise == key]
        hints = Counter(mark.message for mark in of_it if mark.points < mark.possible)
        right = len(of_it) - hints.total()
        often = "".join(f"; most often: {hint}" for hint, _ in hints.most_common(1))
        typer.echo(f"{key}: {right} of {len(best)} have all points{often}")
    return out / "points.csv"


def _no_formula(value: object) -> object:
    """A spreadsheet runs what begins like a formula."""
    return f"'{value}" if str(value).startswith(("=", "+", "-", "@")) else value
