"""Mark a learner's notebook: run it, and judge what it hands in.

The marks do not rest on what a notebook says about itself, such as its stored outputs or its kernel. Only the
sources of its cells are used, and one tag, which says where the parameters go.
"""

import hashlib
import re
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import nbformat
from nbformat import NotebookNode

from course.checks import EXERCISES, Judgement
from course.checks.exercise import NOT_ANSWERED
from course.grading.judging import go_on, judge_filed
from course.grading.kernel import Filed, run_cells
from course.grading.parts import in_quotes

MarkState = Literal["right", "noted", "partly right", "no points", "not answered", "not run", "not handed in"]

LARGEST_NOTEBOOK, LONGEST_MESSAGE = 50_000_000, 400
"""Bytes of a file; letters of a message."""

# Colab drops the tags, so the cell of the parameters is known by its text too.
_PARAMETERS = re.compile(r"tier = .*\ndata = ")


@dataclass(frozen=True)
class Mark:
    """What an exercise is worth.

    Attributes:
        exercise: its key, such as "04.read".
        state: in words; "noted" where no check can say whether an answer is right; "not run" where no
            answer was handed in.
        message: what the judge said, or why there was nothing to judge.
        checks: how often the exercise was checked in the run; the last counts.
        notebook: the file, relative to the learner's folder; "" if none was handed in.
    """

    exercise: str
    points: int
    possible: int
    state: MarkState
    message: str
    checks: int = 0
    notebook: str = ""


@dataclass(frozen=True)
class NotebookMarks:
    """How a learner's file went: the time of its run, a mark for each exercise that it should hold, troubles.

    Each trouble says in a sentence what stopped the notebook or one of its cells.
    """

    name: str
    seconds: float
    marks: tuple[Mark, ...]
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True)
class HandedIn:
    """A learner's notebook, read and not yet run.

    Attributes:
        name: the file, relative to the learner's folder.
        notebook: rebuilt from the sources of its cells alone; None if the file is not a notebook.
        lessons: the numbers of the course's notebooks whose exercises it should hold.
        parameters: the cell that sets the parameters, from 0; None if no cell does.
        trouble: why it cannot be run; "" if it can.
    """

    name: str
    notebook: NotebookNode | None
    digest: str
    lessons: frozenset[str] = frozenset()
    parameters: int | None = None
    trouble: str = ""


def read_hand_in(path: Path, name: str) -> HandedIn:
    """Read a learner's notebook, and nothing but the sources of its cells; the report calls it `name`."""
    name, digest = _whole(name), ""
    try:
        if path.stat().st_size > LARGEST_NOTEBOOK:
            raise ValueError(f"it has more than {LARGEST_NOTEBOOK // 1_000_000} MB")
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if re.search(rb"(?m)^<<<<<<< ", content):
            raise ValueError("two versions were merged, and both are still in it between marks")
        with warnings.catch_warnings(action="ignore"):  # what a schema wants of cells does not matter here
            cells = nbformat.reads(content.decode("utf-8-sig"), as_version=4).cells
        kinds = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}
        made = [kinds.get(cell.cell_type, kinds["markdown"])(_whole(str(cell.source))) for cell in cells]
        tags = [list(cell.metadata.get("tags", ())) for cell in cells]
    except Exception as error:  # a file from outside can be wrong in every way
        reason = one_line(f"{type(error).__name__}: {error}")
        return HandedIn(name, None, digest, trouble=f"Not run: it is not a notebook ({reason}).")
    notebook = nbformat.v4.new_notebook(cells=made)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    code = {place: cell.source for place, cell in enumerate(made) if cell.cell_type == "code"}
    keys = [key for key in EXERCISES if any(in_quotes(key, source) for source in code.values())]
    numbers = {key[:2] for key in keys} or set(re.findall(r"(?<!\d)(\d\d)(?=_[a-z])", name))
    lessons = frozenset(numbers & {key[:2] for key in EXERCISES})
    trouble = "" if lessons else "Not run: it holds no exercise of this course."
    injected = [place for place in code if "injected-parameters" in tags[place]]  # papermill's, below the own
    own = [place for place in code if "parameters" in tags[place] or _PARAMETERS.match(code[place])]
    return HandedIn(name, notebook, digest, lessons, next(iter(injected or own), None), trouble)


def _whole(text: str) -> str:
    """Without halves of letters, of which JSON, a message to a kernel and a page can hold none."""
    return text.encode("utf-8", "backslashreplace").decode()


def exercises_of(wanted: Iterable[str]) -> list[str]:
    """Return the exercises' keys, in the course's order, of notebooks such as "04" and of "04.step"."""
    named = set(wanted)
    return sorted((key for key in EXERCISES if {key, key[:2]} & named), key=lambda key: key[:2])


def run_and_mark(handed_in: HandedIn, tier: str, seconds: float, wanted: Iterable[str]) -> NotebookMarks:
    """Run a notebook at a tier, in some seconds at most, and mark the exercises that are wanted, or all.

    Its outputs are filled. The last check of the run counts; where there was none, the mark says why.
    """
    held = exercises_of(handed_in.lessons)
    counting = [key for key in held if key in (exercises_of(wanted) or held)]
    notebook = handed_in.notebook
    if notebook is None or not counting:
        trouble = handed_in.trouble or "Not run: it is not part of what was set."
        return NotebookMarks(handed_in.name, 0.0, (), (trouble,))
    cells = notebook.cells
    # A cell of its own, so that it sets them even if the learner's raises.
    first = 0 if handed_in.parameters is None else handed_in.parameters + 1
    parameters = f'tier = "{tier}"\ndata = "scenes"\ndata_root = ""\nseed = 0'
    cells.insert(first, nbformat.v4.new_code_cell(f"# Set by python -m course grade.\n{parameters}"))
    judged: dict[str, Mark] = {}
    passed: dict[tuple[str, int], bool] = {}  # by the cell, which may run once more

    def judge(key: str, filed: Filed) -> None:
        if (key, filed.place) in passed:
            if not passed[key, filed.place]:
                go_on(EXERCISES[key], filed)
        elif key in EXERCISES:
            judgement = judge_filed(EXERCISES[key], filed)
            passed[key, filed.place] = judgement.passed
            checks = filed.checks + (judged[key].checks if key in judged else 0)
            judged[key] = _mark(key, judgement, checks, handed_in.name)
            text = f"python -m course grade: {one_line(judgement)}\n"
            cells[filed.place].outputs.append(nbformat.v4.new_output("stream", name="stdout", text=text))

    began = time.perf_counter()
    run = run_cells(notebook, seconds, judge)

    def told(place: int, why: str) -> str:
        """Name a cell by its number in the file and how it begins, and say what became of it."""
        lines = [line.strip() for line in cells[place].source.splitlines()]
        begins = next((line for line in lines if line and not line.startswith("#")), "")
        return f"Cell {place + (place < first)} ({one_line(begins, 40)}): {one_line(why)}"

    troubles = [told(place, why) for place, why in run.trouble.items() if why]
    if run.end:
        troubles.append(f"The rest was not run: {run.end}.")
    for key in counting:
        if key not in judged:
            message = "No check of it was called."
            asks = [place for place, cell in enumerate(cells) if in_quotes(key, cell.source)]
            place = next((place for place in asks if cells[place].cell_type == "code"), None)
            if place is not None and (why := run.trouble.get(place, "it was not reached.")):
                message = told(place, why)
            judged[key] = Mark(key, 0, len(EXERCISES[key].trials), "not run", message, 0, handed_in.name)
    marks = tuple(judged[key] for key in counting)
    return NotebookMarks(handed_in.name, time.perf_counter() - began, marks, tuple(troubles))


def _mark(key: str, judgement: Judgement, checks: int, name: str) -> Mark:
    state: MarkState = "not answered" if judgement.message.startswith(NOT_ANSWERED) else "no points"
    if judgement.passed:
        state = "noted" if EXERCISES[key].kind in ("predict", "explore") else "right"
    elif judgement.points:
        state = "partly right"
    message = one_line(judgement.message)
    return Mark(key, judgement.points, judgement.possible, state, message, checks, name)


def one_line(text: object, longest: int = LONGEST_MESSAGE) -> str:
    """A learner's text on one line: nothing moves a terminal's cursor, and the end of a long one is cut."""
    shown = "".join(letter if letter.isprintable() else " " for letter in str(text))
    shown = " ".join(shown.split())
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"
