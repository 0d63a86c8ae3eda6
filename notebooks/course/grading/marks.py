"""Mark a learner's notebook: run it, and judge what it hands in.

The marks do not rest on what a notebook says about itself, such as its stored outputs or its kernel. Two of
its tags are read: one says where the parameters go, the other which cells are solutions and are not run.
"""

from __future__ import annotations

import hashlib
import re
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import nbformat
from nbformat import NotebookNode

from course.checks import EXERCISES, Judgement
from course.checks.exercise import NOT_ANSWERED
from course.grading.judging import judge_filed
from course.grading.kernel import CellsRun, Filed, run_cells
from course.grading.parts import in_quotes
from course.grading.plain import counted
from course.grading.remarks import (
    Cell,
    is_tagged,
    one_line,
    suspicions,
    what_stopped,
)

MarkState = Literal[
    "right", "noted", "partly right", "no points", "by hand", "not answered", "not run", "not handed in"
]

LARGEST_NOTEBOOK = 50_000_000  # bytes

_PARAMETERS = re.compile(r"tier = .*\ndata = ")


@dataclass(frozen=True)
class Mark:
    """What an exercise is worth.

    Attributes:
        exercise: its key, such as "04.read".
        title: what the learner sees it called.
        kind: what it asks for, such as "code".
        points: trials passed in the last check of the run, or what an instructor gave.
        possible: trials there are.
        state: in words; "noted" where no check can say whether an answer is right; "not run" where no
            answer was handed in.
        message: what the judge said, or why there was nothing to judge.
        checks: how often the exercise was checked in the run; the last counts.
        notebook: the file, relative to the learner's folder; "" if none was handed in.
    """

    exercise: str
    title: str
    kind: str
    points: int | float
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
        remarks: for the instructor alone, a sentence each.
        troubles: what stopped the notebook or its cells, a sentence each; the learner reads them too.
    """

    name: str
    seconds: float
    marks: tuple[Mark, ...]
    remarks: tuple[str, ...]
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True)
class HandedIn:
    """A learner's notebook, read and not yet run.

    Attributes:
        name: the file, relative to the learner's folder.
        notebook: rebuilt from the sources of its cells alone; None if the file is no notebook.
        numbers: what number each of these cells has in the file, from 1.
        lessons: the two-digit numbers of the course's notebooks whose exercises it should hold.
        parameters: which cell sets the parameters, from 0; None if no cell does.
        remarks: what the instructor should know already.
        troubles: why it cannot be run; empty if it can.
        digest: of the file's content.
    """

    name: str
    notebook: NotebookNode | None
    numbers: tuple[int, ...] = ()
    lessons: frozenset[str] = frozenset()
    parameters: int | None = None
    remarks: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()
    digest: str = ""


def read_hand_in(path: Path, name: str) -> HandedIn:
    """Read a learner's notebook, taking nothing from it but the sources of its cells.

    Code cells with the tag "solution" are left out, with a remark: a learner copy has none.

    Args:
        path: the file.
        name: what it is called in the report.
    """
    digest = ""
    try:
        if path.stat().st_size > LARGEST_NOTEBOOK:
            size = path.stat().st_size // 1_000_000
            raise ValueError(f"the file has {size} MB: it must have at most {LARGEST_NOTEBOOK // 1_000_000}")
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        cells = _cells(content)
    except Exception as error:  # a file from outside can be wrong in every way
        reason = one_line(f"{type(error).__name__}: {error}")
        return HandedIn(name, None, troubles=(f"Not run: it is no notebook ({reason}).",), digest=digest)
    kept = [(number, cell) for number, cell in enumerate(cells, 1) if not is_tagged(cell, "solution")]
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for _, cell in kept:
        code = cell["cell_type"] == "code"
        make = nbformat.v4.new_code_cell if code else nbformat.v4.new_markdown_cell
        notebook.cells.append(make(cell["source"]))
    remarks = []
    if left_out := len(cells) - len(kept):
        remarks.append(
            f"Not run: {counted(left_out, 'cell')} tagged as solutions. "
            "This is the full notebook, not a learner copy."
        )
    lessons = _lessons_of(notebook, name)
    troubles = () if lessons else ("Not run: it holds no exercise of this course.",)
    # Colab drops the tags, so the cell is known by its text too.
    named = (is_tagged(cell, "parameters") or _PARAMETERS.match(cell["source"]) for _, cell in kept)
    parameters = next((place for place, found in enumerate(named) if found), None)
    numbers = tuple(number for number, _ in kept)
    return HandedIn(name, notebook, numbers, lessons, parameters, tuple(remarks), troubles, digest)


def _cells(content: bytes) -> list[Any]:
    with warnings.catch_warnings(action="ignore"):  # an old notebook's cells lack ids, which does not matter
        notebook = nbformat.reads(content.decode(), as_version=4)
    nbformat.validate(notebook)
    return list(notebook.cells)


def _lessons_of(notebook: NotebookNode, name: str) -> frozenset[str]:
    """The numbers of the course's notebooks whose exercises the cells or the file's name mention."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    numbers = {key.split(".")[0] for key in EXERCISES}
    mentioned = {key.split(".")[0] for key in EXERCISES if any(in_quotes(key, source) for source in sources)}
    return frozenset(mentioned | set(re.findall(r"(?<!\d)(\d\d)(?=_[a-z])", name)) & numbers)


def run_and_mark(handed_in: HandedIn, tier: str, seconds: float, wanted: Iterable[str]) -> NotebookMarks:
    """Run a notebook and mark its exercises.

    Args:
        handed_in: see `read_hand_in`; its outputs are filled.
        tier: "smoke", "lesson" or "full", for the parameters.
        seconds: the limit for the whole notebook.
        wanted: the numbers of the notebooks, and the exercises, that count; none: all.

    Returns:
        The marks. The last check of the run counts; where there was none, the mark says why.
    """
    remarks, troubles = list(handed_in.remarks), list(handed_in.troubles)
    held = exercises_of(handed_in.lessons)
    counting = sorted(set(held) & set(exercises_of(wanted) or held), key=held.index)
    notebook = handed_in.notebook
    if notebook is None or not counting:
        if held:
            troubles.append("Not run: it is not part of what was set.")
        return NotebookMarks(handed_in.name, 0.0, (), tuple(remarks), tuple(troubles))
    cells = {
        place: Cell(handed_in.numbers[place], cell.source)
        for place, cell in enumerate(notebook.cells)
        if cell.cell_type == "code"
    }
    remarks += suspicions(cells.values(), held)
    if handed_in.parameters is None:
        remarks.append("No cell sets the parameters, so its tier is what its own code says.")
    first = 0 if handed_in.parameters is None else handed_in.parameters + 1
    parameters = (
        f'# Set by python -m course grade.\ntier = "{tier}"\ndata = "scenes"\ndata_root = ""\nseed = 0'
    )
    notebook.cells.insert(first, nbformat.v4.new_code_cell(parameters))
    cells = {place + (place >= first): cell for place, cell in cells.items()}  # as their learner knows them
    cells[first] = Cell(0, parameters)
    began = time.perf_counter()
    verdicts: dict[str, tuple[Judgement, int]] = {}

    def judge(key: str, filed: Filed) -> None:
        if key in EXERCISES:
            judgement = judge_filed(EXERCISES[key], filed)
            verdicts[key] = judgement, filed.checks + (verdicts[key][1] if key in verdicts else 0)
            said = nbformat.v4.new_output(
                "stream", name="stdout", text=f"python -m course grade: {one_line(judgement)}\n"
            )
            notebook.cells[filed.place].outputs.append(said)

    run = run_cells(notebook, seconds, judge)
    troubles += what_stopped(cells, run.trouble)
    if run.end:
        troubles.append(f"The rest was not run: {run.end}.")
    marks = tuple(
        _judged(key, *verdicts[key], handed_in.name)
        if key in verdicts
        else _mark(key, "not run", _why_not_run(key, cells, run), handed_in.name)
        for key in counting
    )
    seconds = time.perf_counter() - began
    return NotebookMarks(handed_in.name, seconds, marks, tuple(remarks), tuple(troubles))


def exercises_of(wanted: Iterable[str]) -> list[str]:
    """The keys of exercises, in the course's order.

    Args:
        wanted: numbers of notebooks, such as "04", for all their exercises, and exercises, such as "04.step".
    """
    named = set(wanted)
    keys = [key for key in EXERCISES if {key, key.split(".")[0]} & named]
    return sorted(keys, key=lambda key: key.split(".")[0])


def not_handed_in(key: str) -> Mark:
    """The mark for an exercise of a notebook that is not there."""
    return _mark(key, "not handed in", "No notebook holds it.")


def _mark(
    key: str, state: MarkState, message: str, name: str = "", points: int | float = 0, checks: int = 0
) -> Mark:
    task = EXERCISES[key]
    return Mark(key, task.title, task.kind, points, len(task.trials), state, message, checks, name)


def _judged(key: str, judgement: Judgement, checks: int, name: str) -> Mark:
    state: MarkState = "not answered" if judgement.message.startswith(NOT_ANSWERED) else "no points"
    if judgement.passed:
        state = "noted" if EXERCISES[key].kind in ("predict", "explore") else "right"
    elif judgement.points:
        state = "partly right"
    return _mark(key, state, one_line(judgement.message), name, judgement.points, checks)


def _why_not_run(key: str, cells: dict[int, Cell], run: CellsRun) -> str:
    for place, cell in sorted(cells.items()):
        if in_quotes(key, cell.source):
            if place not in run.trouble:
                return f"{cell} was not reached."
            if run.trouble[place]:
                return f"{cell}: {one_line(run.trouble[place])}"
    return "No check of it was called."
