"""Write what was marked: JSON for programs, CSV for a spreadsheet, HTML for people.

A page holds everything it needs and asks the network for nothing. The template beside this file says how it
looks.
"""

from __future__ import annotations

import csv
import importlib.metadata
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from course.grading.marks import Mark, MarkState, NotebookMarks
from course.grading.remarks import one_line
from vsecore.data.files import write_atomically

# A sign for each state, so that nobody needs colour to tell them apart.
SIGNS: dict[MarkState, str] = {
    "right": "✓",
    "noted": "•",
    "partly right": "◐",
    "no points": "✗",
    "by hand": "✎",
    "not answered": "…",
    "not run": "!",
    "not handed in": "–",
}


@dataclass(frozen=True)
class LearnerReport:
    """What a learner handed in and what it is worth.

    Attributes:
        learner: what the learner is called.
        place: the name of the folder with their report.
        notebooks: how each file went.
        marks: one for each exercise that was set.
        tier: the tier that the notebooks were run at.
        date: year-month-day.
        id: what the school's system calls them; "" if there is no roster.
        late: by how many hours the work came too late.
        late_by_roster: whether the roster says so; otherwise it is the date of a file, which proves little.
        nothing: what there was in place of a notebook, in a sentence; "" if one was handed in.
        added: points that an instructor has added to the sum.
        comments: what an instructor has written to the learner, each after the exercise that it is about; ""
            if it is about none.
        remarks: for the instructor alone: they do not stand on the learner's page.
    """

    learner: str
    place: str
    notebooks: tuple[NotebookMarks, ...]
    marks: tuple[Mark, ...]
    tier: str
    date: str
    id: str = ""
    late: float = 0.0
    late_by_roster: bool = False
    nothing: str = ""
    added: float = 0.0
    comments: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def points(self) -> float:
        """Points of all exercises, and what was added to them: never below 0, which schools refuse."""
        return max(0.0, self.summed)

    @property
    def summed(self) -> float:
        """The same, which an instructor's points may make negative."""
        return sum(mark.points for mark in self.marks) + self.added

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
        return quote(self.place, safe="", errors="surrogateescape")


@dataclass(frozen=True)
class ExerciseSummary:
    """How a class did in an exercise.

    Attributes:
        exercise: its key.
        title: what the learners see it called.
        handed_in: how many handed it in.
        right: how many of them have every point.
        percent: their share of the possible points.
        hint: the one most often given; "" if none was.
    """

    exercise: str
    title: str
    handed_in: int
    right: int
    percent: float
    hint: str


def write_learner_report(report: LearnerReport, folder: Path) -> None:
    """Write `report.html`, which is the learner's, and `report.json`, with the remarks for the instructor."""
    content = {
        "learner": one_line(report.learner),
        "id": one_line(report.id),
        "points": report.points,
        "possible": report.possible,
        "late_hours": round(report.late, 1),
        "late_by": ("roster" if report.late_by_roster else "file") if report.late else "",
        "added": report.added,
        "comments": [{"exercise": exercise, "text": one_line(text)} for exercise, text in report.comments],
        "tier": report.tier,
        "date": report.date,
        "vsecore": importlib.metadata.version("vsecore"),
        "exercises": [asdict(mark) | {"notebook": one_line(mark.notebook)} for mark in report.marks],
        "notebooks": [
            {
                "name": one_line(one.name),
                "seconds": round(one.seconds, 1),
                "troubles": [one_line(trouble) for trouble in one.troubles],
            }
            for one in report.notebooks
        ],
        "remarks": [one_line(remark) for remark in report.remarks],
    }
    with write_atomically(folder / "report.json", "w") as file:
        json.dump(content, file, indent=2, ensure_ascii=False)
    with write_atomically(folder / "report.html", "w") as file:
        file.write(_page(report.learner, report=report))


def write_class_summary(reports: Sequence[LearnerReport], folder: Path) -> None:
    """Write a class's `summary.html` and `summary.csv`, and `lms.csv` for the school's system.

    Where there is a roster, `lms.csv` has only those who are on it: the school knows nobody else.
    """
    counting = [report for report in reports if report.id] or list(reports)
    exercises = [mark.exercise for mark in reports[0].marks]
    possible = [str(mark.possible) for mark in reports[0].marks]
    total = str(reports[0].possible)
    table = [
        ["learner", "id", "points", "possible", "percent", "late_hours", "remarks", *exercises],
        ["possible", "", total, total, "100.0", "", "", *possible],
    ]
    lms = [["ID number", "Name", "Grade", "Maximum grade", "Percent", "Hours late", "Feedback comments"]]
    for report in reports:
        learner, id = map(_spreadsheet_cell, (report.learner, report.id))
        totals = [f"{report.points:g}", str(report.possible), f"{report.percent:.1f}"]
        points = [f"{mark.points:g}" for mark in report.marks]
        table.append([learner, id, *totals, f"{report.late:.1f}", str(len(report.remarks)), *points])
        if report in counting:
            late = f"{report.late:.1f}" if report.late_by_roster or not report.late else ""
            lms.append([id, learner, *totals, late, _spreadsheet_cell(feedback(report))])
    for name, rows in (("summary.csv", table), ("lms.csv", lms)):
        with write_atomically(folder / name, "w") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    page = _page(
        "Summary of the class",
        report=None,
        reports=reports,
        heads=[f"{mark.exercise} /{mark.possible}" for mark in reports[0].marks],
        hardest_first=sorted(summarise_exercises(counting), key=lambda exercise: exercise.percent),
        on_roster=" and are on the roster" if len(counting) < len(reports) else "",
        legend=f"Learners. {', '.join(f'{sign} {state}' for state, sign in SIGNS.items())}.",
    )
    with write_atomically(folder / "summary.html", "w") as file:
        file.write(page)


def feedback(report: LearnerReport) -> str:
    """What the learner reads in the school's system: comments, and the points of each exercise."""
    said = [text for exercise, text in report.comments if not exercise]
    states = {mark.state for mark in report.marks}
    about = {exercise for exercise, _ in report.comments if exercise}
    if report.nothing and not about and states == {"not handed in"}:
        return "; ".join([*said, report.nothing])
    if not about and states == {"not answered"}:
        return "; ".join([*said, "Handed in without answers."])
    for mark in report.marks:
        own = [text for exercise, text in report.comments if exercise == mark.exercise]
        said.append(", ".join([f"{mark.exercise}: {mark.points:g}/{mark.possible}", *own]))
    return "; ".join(said)


def summarise_exercises(reports: Sequence[LearnerReport]) -> list[ExerciseSummary]:
    """Say how those who handed in an exercise did in it, in the order of the reports' marks."""
    summaries = []
    for every in zip(*(report.marks for report in reports), strict=True):
        marks = [mark for mark in every if mark.state != "not handed in"]
        hints = [mark.message for mark in marks if mark.state in ("no points", "partly right")]
        points, possible = sum(mark.points for mark in marks), sum(mark.possible for mark in marks)
        summaries.append(
            ExerciseSummary(
                every[0].exercise,
                every[0].title,
                handed_in=len(marks),
                right=sum(mark.state in ("right", "noted") for mark in marks),
                percent=100 * points / possible if possible else 0.0,
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
    pages.filters |= {"whole": "{:.0f}".format, "hours": "{:.1f}".format, "number": "{:g}".format}
    return pages.get_template("report.html.jinja").render(title=title, signs=SIGNS, **content)


def _spreadsheet_cell(text: str) -> str:
    """A name as a spreadsheet's cell: one that begins like a formula is kept from being one."""
    shown = one_line(text)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown
