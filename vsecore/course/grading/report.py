"""Write what was marked: JSON for programs, CSV for a spreadsheet, HTML for people.

A page holds everything it needs and asks the network for nothing. The template beside this file says how it
looks.
"""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from vsecore.course.grading.marks import Mark, MarkState, NotebookMarks, one_line
from vsecore.data.files import write_atomically

# A sign for each state, so that nobody needs colour to tell them apart.
SIGNS: dict[MarkState, str] = {
    "right": "✓",
    "partly right": "◐",
    "no points": "✗",
    "not answered": "…",
    "not run": "!",
    "not handed in": "–",
}


@dataclass(frozen=True)
class LearnerReport:
    """What a learner handed in and what it is worth.

    Attributes:
        learner: the name of the learner's folder.
        notebooks: how each file went.
        marks: one for each exercise that was set.
        tier: the tier that the notebooks were run at.
        date: year-month-day.
    """

    learner: str
    notebooks: tuple[NotebookMarks, ...]
    marks: tuple[Mark, ...]
    tier: str
    date: str

    @property
    def points(self) -> int:
        """Points of all exercises."""
        return sum(mark.points for mark in self.marks)

    @property
    def possible(self) -> int:
        """Points that there were to get."""
        return sum(mark.possible for mark in self.marks)

    @property
    def percent(self) -> float:
        """The share of the possible points."""
        return 100 * self.points / self.possible

    @property
    def address(self) -> str:
        """The learner's folder as part of a link: its name may hold what a link gives a meaning."""
        return quote(self.learner, safe="", errors="surrogateescape")

    @property
    def remarks(self) -> list[str]:
        """What the instructor should know, with the file that it is about."""
        said = [f"{one.name}: {remark}" for one in self.notebooks for remark in one.remarks]
        for mark in self.marks:
            holding = [
                one.name for one in self.notebooks if mark.exercise in {found.exercise for found in one.marks}
            ]
            if len(holding) > 1:
                said.append(
                    f"{mark.exercise} is in {' and in '.join(holding)}: it counts where it has most points."
                )
        return said


@dataclass(frozen=True)
class ExerciseSummary:
    """How a class did in an exercise.

    Attributes:
        exercise: its key.
        title: what the learners see it called.
        right: how many have every point.
        percent: the share of the possible points.
        hint: the one most often given; "" if none was.
    """

    exercise: str
    title: str
    right: int
    percent: float
    hint: str


def write_learner_report(report: LearnerReport, folder: Path) -> None:
    """Write `report.json` and `report.html` into a folder."""
    content = {
        "learner": one_line(report.learner),
        "points": report.points,
        "possible": report.possible,
        "tier": report.tier,
        "date": report.date,
        "vsecore": importlib.metadata.version("vsecore"),
        "exercises": [asdict(mark) | {"notebook": one_line(mark.notebook)} for mark in report.marks],
        "notebooks": [
            {"name": one_line(one.name), "seconds": round(one.seconds, 1)} for one in report.notebooks
        ],
        "remarks": [one_line(remark) for remark in report.remarks],
    }
    with write_atomically(folder / "report.json", "w") as file:
        json.dump(content, file, indent=2, ensure_ascii=False)
    with write_atomically(folder / "report.html", "w") as file:
        file.write(_page(report.learner, report=report))


def write_class_summary(reports: Sequence[LearnerReport], folder: Path) -> None:
    """Write `summary.csv` and `summary.html` of a class into a folder, beside the learners' reports."""
    exercises = [mark.exercise for mark in reports[0].marks]
    lines = io.StringIO()
    rows = csv.writer(lines, lineterminator="\n")
    rows.writerow(["learner", *exercises, "points", "possible", "percent", "remarks"])
    for report in reports:
        points = [mark.points for mark in report.marks]
        totals = [report.points, report.possible, f"{report.percent:.1f}", len(report.remarks)]
        rows.writerow([_spreadsheet_cell(report.learner), *points, *totals])
    with write_atomically(folder / "summary.csv", "w") as file:
        file.write(lines.getvalue())
    page = _page(
        "Summary of the class",
        report=None,
        reports=reports,
        exercises=exercises,
        hardest_first=sorted(summarise_exercises(reports), key=lambda exercise: exercise.percent),
        legend=f"Learners. {', '.join(f'{sign} {state}' for state, sign in SIGNS.items())}.",
    )
    with write_atomically(folder / "summary.html", "w") as file:
        file.write(page)


def summarise_exercises(reports: Sequence[LearnerReport]) -> list[ExerciseSummary]:
    """Say how a class did in each exercise, in the order of the reports' marks."""
    summaries = []
    for marks in zip(*(report.marks for report in reports), strict=True):
        hints = [mark.message for mark in marks if mark.state in ("no points", "partly right")]
        summaries.append(
            ExerciseSummary(
                marks[0].exercise,
                marks[0].title,
                right=sum(mark.state == "right" for mark in marks),
                percent=100 * sum(mark.points for mark in marks) / (len(marks) * marks[0].possible),
                hint=max(hints, key=hints.count, default=""),
            )
        )
    return summaries


def _page(title: str, **content: Any) -> str:
    pages = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: value if hasattr(value, "__html__") else one_line(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    pages.filters["whole"] = "{:.0f}".format
    return pages.get_template("report.html.jinja").render(title=title, signs=SIGNS, **content)


def _spreadsheet_cell(text: str) -> str:
    """A name as a spreadsheet's cell: one that begins like a formula is kept from being one."""
    shown = one_line(text)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown
