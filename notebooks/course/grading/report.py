"""Write what was marked: a page for people and a table for spreadsheets.

The page holds everything it needs and asks the network for nothing. The template beside this file says how it
looks.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from course.checks import EXERCISES
from course.grading.marks import Mark, MarkState, NotebookMarks, one_line
from vsecore.data.files import write_atomically

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


@dataclass(frozen=True)
class LearnerMarks:
    """What a learner handed in and what it is worth.

    Attributes:
        learner: what the learner is called.
        notebooks: how each file went.
        marks: one for each exercise that was set.
    """

    learner: str
    notebooks: tuple[NotebookMarks, ...]
    marks: tuple[Mark, ...]

    @property
    def points(self) -> int:
        """Points of all exercises."""
        return sum(mark.points for mark in self.marks)

    @property
    def possible(self) -> int:
        """Points that there were to get."""
        return sum(mark.possible for mark in self.marks)


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
    page = pages.get_template("report.html.jinja").render(
        learners=learners,
        exercises=exercises,
        tasks=EXERCISES,
        signs=SIGNS,
        tier=tier,
        date=datetime.now(UTC).date().isoformat(),
    )
    with write_atomically(folder / "report.html", "w") as file:
        file.write(page)
    return folder / "report.html"
