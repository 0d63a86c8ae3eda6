"""Mark a learner's notebook: run it, and hold the judgements of its checks against the exercises.

The marks do not rest on what a notebook says about itself, such as its stored outputs or its kernel. Two of
its tags are read: one says where the parameters go, the other which cells are solutions and are not run.
"""

from __future__ import annotations

import ast
import json
import re
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import nbformat
from nbformat import NotebookNode

from vsecore.course.batch import notebooks
from vsecore.course.checks import EXERCISES
from vsecore.course.checks.exercise import NOT_ANSWERED
from vsecore.course.grading.kernel import CellsRun, run_cells

MarkState = Literal["right", "partly right", "no points", "not answered", "not run", "not handed in"]

LARGEST_NOTEBOOK = 50_000_000  # bytes
LONGEST_MESSAGE = 400  # characters
# What a learner's own code has no reason to name, or to define anew.
_INNER_PARTS = re.compile(
    r"VSECORE_GRADES|vsecore\.course\.grading|vsecore\.course\.checks(?! import (?:check|exercise)\b)"
    r"|vsecore\.course import .*\b(?:checks|grading)\b"
    r"|\b(?:EXERCISES|Judgement|judge_answer)\b|\bdef check\b|\bcheck\s*=(?!=)"
)


@dataclass(frozen=True)
class Mark:
    """What an exercise is worth.

    Attributes:
        exercise: its key, such as "04.read".
        title: what the learner sees it called.
        kind: "compute", "code" or "break".
        points: trials passed in the last check of the run.
        possible: trials there are.
        state: in words; "not run" where no check gave a judgement.
        message: what the check said, or why no check did.
        checks: how often the exercise was checked in the run; the last counts.
        notebook: the file, relative to the learner's folder; "" if none was handed in.
    """

    exercise: str
    title: str
    kind: str
    points: int
    possible: int
    state: MarkState
    message: str
    checks: int = 0
    notebook: str = ""


@dataclass(frozen=True)
class NotebookMarks:
    """How a learner's notebook went.

    Attributes:
        name: the file, relative to the learner's folder.
        seconds: wall time of its run.
        marks: one for each exercise that it should hold.
        remarks: what the instructor should know, a sentence each.
    """

    name: str
    seconds: float
    marks: tuple[Mark, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class HandedIn:
    """A learner's notebook, read and not yet run.

    Attributes:
        name: the file, relative to the learner's folder.
        notebook: rebuilt from the sources of its cells alone; None if the file is no notebook.
        lessons: the two-digit numbers of the course's notebooks whose exercises it should hold.
        parameters: which cell sets the parameters, from 0; None if no cell does.
        remarks: what is to be said of it already.
    """

    name: str
    notebook: NotebookNode | None
    lessons: frozenset[str] = frozenset()
    parameters: int | None = None
    remarks: tuple[str, ...] = ()


def read_hand_in(path: Path, name: str) -> HandedIn:
    """Read a learner's notebook, taking nothing from it but the sources of its cells.

    Code cells with the tag "solution" are left out, with a remark: a learner copy has none.

    Args:
        path: the file.
        name: what it is called in the report.
    """
    try:
        cells = _cells(path)
    except Exception as error:  # a file from outside can be wrong in every way
        reason = one_line(f"{type(error).__name__}: {error}")
        return HandedIn(name, None, remarks=(f"Not run: it is no notebook ({reason}).",))
    kept = [cell for cell in cells if not _has_tag(cell, "solution")]
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for cell in kept:
        code = cell["cell_type"] == "code"
        make = nbformat.v4.new_code_cell if code else nbformat.v4.new_markdown_cell
        notebook.cells.append(make(cell["source"]))
    remarks = []
    if left_out := len(cells) - len(kept):
        remarks.append(
            f"Cells tagged as solutions, {left_out} of them, were not run: "
            "this is the full notebook, not a learner copy."
        )
    lessons = _lessons_of(notebook, name)
    if not lessons:
        remarks.append("Not run: it holds no exercise of this course.")
    parameters = next((place for place, cell in enumerate(kept) if _has_tag(cell, "parameters")), None)
    return HandedIn(name, notebook, lessons, parameters, tuple(remarks))


def _cells(path: Path) -> list[Any]:
    if path.stat().st_size > LARGEST_NOTEBOOK:
        raise ValueError(f"the file is larger than {LARGEST_NOTEBOOK // 1_000_000} MB")
    with warnings.catch_warnings(action="ignore"):  # an old notebook's cells lack ids, which does not matter
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
    nbformat.validate(notebook)
    return list(notebook.cells)


def _has_tag(cell: Any, tag: str) -> bool:
    return cell["cell_type"] == "code" and tag in cell["metadata"].get("tags", [])


def _lessons_of(notebook: NotebookNode, name: str) -> frozenset[str]:
    """The numbers of the course's notebooks whose exercises the cells or the file's name mention."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    numbers = {key.split(".")[0] for key in EXERCISES}
    mentioned = {key.split(".")[0] for key in EXERCISES if any(_names(source, key) for source in sources)}
    return frozenset(mentioned | set(re.findall(r"(?<!\d)(\d\d)(?=_[a-z])", name)) & numbers)


def run_and_mark(handed_in: HandedIn, tier: str, seconds: float, wanted: Iterable[str]) -> NotebookMarks:
    """Run a notebook and mark its exercises.

    Args:
        handed_in: see `read_hand_in`; its outputs are filled.
        tier: "smoke", "lesson" or "full", for the parameters.
        seconds: the limit for the whole notebook.
        wanted: the numbers of the notebooks that count.

    Returns:
        The marks. The last check of the run counts; where there was none, the mark says why.
    """
    remarks = list(handed_in.remarks)
    lessons = handed_in.lessons & set(wanted)
    notebook = handed_in.notebook
    if notebook is None or not lessons:
        if handed_in.lessons:
            remarks.append("Not run: it is not part of what was set.")
        return NotebookMarks(handed_in.name, 0.0, (), tuple(remarks))
    remarks += _suspicions(notebook)
    if handed_in.parameters is None:
        remarks.append("No cell is tagged as parameters, so its tier is what its own code says.")
    first = 0 if handed_in.parameters is None else handed_in.parameters + 1
    parameters = f'# Set by vse grade.\ntier = "{tier}"\ndata = "scenes"\ndata_root = ""\nseed = 0'
    notebook.cells.insert(first, nbformat.v4.new_code_cell(parameters))
    began = time.perf_counter()
    run = run_cells(notebook, seconds)
    remarks += [f"Cell {cell + 1}: {one_line(trouble)}" for cell, trouble in run.trouble.items() if trouble]
    if run.end:
        remarks.append(f"The rest was not run: {run.end}.")
    marks = tuple(_mark_of(key, notebook, run, handed_in.name) for key in exercises_of(lessons))
    return NotebookMarks(handed_in.name, time.perf_counter() - began, marks, tuple(remarks))


def exercises_of(lessons: Iterable[str]) -> list[str]:
    """The keys of the exercises of some notebooks, in the course's order."""
    numbers = set(lessons)
    keys = [key for key in EXERCISES if key.split(".")[0] in numbers]
    return sorted(keys, key=lambda key: key.split(".")[0])


def not_handed_in(key: str) -> Mark:
    """The mark for an exercise of a notebook that is not there."""
    task = EXERCISES[key]
    return Mark(key, task.title, task.kind, 0, len(task.trials), "not handed in", "No notebook holds it.")


def one_line(text: object) -> str:
    """A learner's text on one line: nothing moves a terminal's cursor, and the end of a long one is cut."""
    shown = "".join(letter if letter.isprintable() else " " for letter in str(text))
    shown = " ".join(shown.split())
    return shown if len(shown) <= LONGEST_MESSAGE else shown[: LONGEST_MESSAGE - 1] + "…"


def _mark_of(key: str, notebook: NotebookNode, run: CellsRun, name: str) -> Mark:
    task, possible = EXERCISES[key], len(EXERCISES[key].trials)
    found = [line for line in map(_read_judgement, run.judgements) if line and line["exercise"] == key]
    if not found:
        reason = _why_not_run(key, notebook, run)
        return Mark(key, task.title, task.kind, 0, possible, "not run", reason, 0, name)
    points, message = found[-1]["points"], found[-1]["message"]
    state: MarkState = "not answered" if message == NOT_ANSWERED else "no points"
    if points:
        state = "right" if points == possible else "partly right"
    return Mark(key, task.title, task.kind, points, possible, state, one_line(message), len(found), name)


def _why_not_run(key: str, notebook: NotebookNode, run: CellsRun) -> str:
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and _names(cell.source, key):
            if place not in run.trouble:
                return f"Its cell, number {place + 1}, was not reached."
            if run.trouble[place]:
                return f"Its cell, number {place + 1}: {one_line(run.trouble[place])}"
    return "No check of it was called."


def _read_judgement(line: str) -> Mapping[str, Any] | None:
    """A line that a check wrote; None if it is no such line, or says what cannot be."""
    try:
        said = json.loads(line)
        key, points = said["exercise"], said["points"]
        sound = type(points) is int and 0 <= points <= len(EXERCISES[key].trials)
        return {"exercise": key, "points": points, "message": str(said["message"])} if sound else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _suspicions(notebook: NotebookNode) -> list[str]:
    """What an instructor should read: copies of stored solutions, cells that name the grader's parts."""
    remarks, published = [], []
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        if key := _stored_solutions().get(_shape(cell.source)):
            published.append(key)
        if named := _INNER_PARTS.search(cell.source):
            remarks.append(f"A cell holds {one_line(named[0])!r}, which no exercise asks for: read it.")
    if published:
        remarks.append(
            f"Word for word the published solution: {', '.join(published)}. "
            "In a short answer that may be chance."
        )
    return remarks


@cache
def _stored_solutions() -> dict[str, str]:
    """The shape of each stored solution, and the exercise that it solves."""
    found = {}
    for path in notebooks():
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code" and "solution" in cell.metadata.get("tags", []):
                for key in (key for key in EXERCISES if _names(cell.source, key)):
                    found[_shape(cell.source)] = key
    return found


def _shape(source: str) -> str:
    """Code without its comments and layout; unchanged if it is no Python."""
    try:
        return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source


def _names(source: str, key: str) -> bool:
    """Whether code holds an exercise's key in quotes."""
    return f'"{key}"' in source or f"'{key}'" in source
