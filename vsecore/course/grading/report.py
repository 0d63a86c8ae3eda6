"""Write what was marked: JSON for programs, CSV for a spreadsheet, HTML for people.

A page holds everything it needs, asks the network for nothing, and lets no word of a learner become markup.
"""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

from vsecore.course.grading.marks import Mark, NotebookMarks, State, plain
from vsecore.data.files import write_atomically

# Read by eye before it is read: a sign for each state, so that colour is never needed.
SIGNS: dict[State, str] = {
    "right": "✓",
    "partly right": "◐",
    "no points": "✗",
    "not answered": "…",
    "not run": "!",
    "not handed in": "–",
}

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --paper: #fff; --line: #cfd6de; --head: #eef2f6;
        --link: #0b57a4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --paper: #14181e; --line: #3a434f; --head: #1f262f; --link: #8ab8f0; }
}
a { color: var(--link); }
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 66rem; margin: 2rem auto; padding: 0 1rem; }
h1, li { overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
caption { text-align: left; font-weight: 600; padding: .4rem 0; }
th, td { border: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top; }
thead th { background: var(--head); }
td { min-width: 7rem; overflow-wrap: anywhere; }
td:last-child:not(.number) { min-width: 14rem; }
.number, .short { min-width: 0; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --line: #999; --head: #eee; --link: #000; }
  body { max-width: none; margin: 0; }
  tr { break-inside: avoid; }
}
"""


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


def write_learner(report: LearnerReport, folder: Path) -> None:
    """Write `report.json` and `report.html` into a folder."""
    content = {
        "learner": plain(report.learner),
        "points": report.points,
        "possible": report.possible,
        "tier": report.tier,
        "date": report.date,
        "vsecore": importlib.metadata.version("vsecore"),
        "exercises": [asdict(mark) | {"notebook": plain(mark.notebook)} for mark in report.marks],
        "notebooks": [
            {"name": plain(one.name), "seconds": round(one.seconds, 1)} for one in report.notebooks
        ],
        "remarks": [plain(remark) for remark in report.remarks],
    }
    with write_atomically(folder / "report.json", "w") as file:
        json.dump(content, file, indent=2, ensure_ascii=False)
    with write_atomically(folder / "report.html", "w") as file:
        file.write(learner_page(report))


def learner_page(report: LearnerReport) -> str:
    """The report of a learner as a page of its own."""
    rows = [
        [
            _Short(mark.exercise),
            mark.title,
            _Number(f"{mark.points} of {mark.possible}"),
            _Short(f"{SIGNS[mark.state]} {mark.state}"),
            _Number(str(mark.checks)),
            mark.message,
        ]
        for mark in report.marks
    ]
    heads = ["exercise", "title", "points", "result", "checks", "what the check said"]
    body = [
        f"<p>{_total(report)} at tier {escape(report.tier)}, {escape(report.date)}.</p>",
        _table("Exercises. The last check of a run counts.", heads, rows),
        _table(
            "Notebooks, run anew from top to bottom",
            ["file", "seconds"],
            [[one.name, _Number(f"{one.seconds:.0f}")] for one in report.notebooks],
        ),
    ]
    if report.remarks:
        items = "".join(f"<li>{escape(plain(remark))}</li>" for remark in report.remarks)
        body.append(f"<h2>Remarks</h2><ul>{items}</ul>")
    return _page(report.learner, body)


def write_summary(reports: Sequence[LearnerReport], folder: Path) -> None:
    """Write `summary.csv` and `summary.html` of a class into a folder; each learner's report lies beside."""
    keys = [mark.exercise for mark in reports[0].marks]
    lines = io.StringIO()
    table = csv.writer(lines, lineterminator="\n")
    table.writerow(["learner", *keys, "points", "possible", "percent", "remarks"])
    for report in reports:
        points = [mark.points for mark in report.marks]
        table.writerow(
            [
                _cell(report.learner),
                *points,
                report.points,
                report.possible,
                f"{_percent(report):.1f}",
                len(report.remarks),
            ]
        )
    with write_atomically(folder / "summary.csv", "w") as file:
        file.write(lines.getvalue())
    with write_atomically(folder / "summary.html", "w") as file:
        file.write(summary_page(reports))


def summary_page(reports: Sequence[LearnerReport]) -> str:
    """A class on a page: its learners, then its exercises, the hardest first."""
    heads = ["learner", *(mark.exercise for mark in reports[0].marks), "points", "percent", "remarks"]
    rows = [
        [
            _Link(report.learner),
            *(_Number(f"{SIGNS[mark.state]} {mark.points}") for mark in report.marks),
            _Number(f"{report.points} of {report.possible}"),
            _Number(f"{_percent(report):.0f}"),
            _Number(str(len(report.remarks))),
        ]
        for report in reports
    ]
    exercises = []
    for marks in zip(*(report.marks for report in reports), strict=True):
        share = 100 * sum(mark.points for mark in marks) / (len(marks) * marks[0].possible)
        right = sum(mark.state == "right" for mark in marks)
        missed = [mark.message for mark in marks if mark.state in ("no points", "partly right")]
        often = max(missed, key=missed.count, default="")
        exercises.append(
            (
                share,
                [
                    _Short(marks[0].exercise),
                    marks[0].title,
                    _Number(f"{right} of {len(marks)}"),
                    _Number(f"{share:.0f}"),
                    often,
                ],
            )
        )
    exercises.sort(key=lambda row: row[0])
    legend = ", ".join(f"{sign} {state}" for state, sign in SIGNS.items())
    body = [
        _table(f"Learners. {legend}.", heads, rows),
        _table(
            "Exercises, the hardest first",
            ["exercise", "title", "right", "points in percent", "the hint most often given"],
            [row for _, row in exercises],
        ),
    ]
    return _page("Summary of the class", body)


class _Number(str):
    """A cell that is set to the right."""


class _Short(str):
    """A cell that is kept on one line."""


class _Link(str):
    """A learner's name, which leads to the report."""


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    lines = "".join(f"<tr>{''.join(map(_as_html, row))}</tr>" for row in rows)
    return (
        f'<div class="wide"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _as_html(cell: str) -> str:
    words = escape(plain(cell))
    if isinstance(cell, _Link):
        # Quoted as an address too: a folder's name may hold what an address gives a meaning.
        folder = quote(str(cell), safe="", errors="surrogateescape")
        return f'<td><a href="learners/{folder}/report.html">{words}</a></td>'
    kind = {_Number: ' class="number"', _Short: ' class="short"'}.get(type(cell), "")
    return f"<td{kind}>{words}</td>"


def _page(title: str, body: Iterable[str]) -> str:
    shown = escape(plain(title))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        # No script and nothing from elsewhere, even if a word should slip through as markup.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{shown}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{shown}</h1>{''.join(body)}</body></html>\n"
    )


def _total(report: LearnerReport) -> str:
    return f"<strong>{report.points} of {report.possible} points</strong> ({_percent(report):.0f} %)"


def _percent(report: LearnerReport) -> float:
    return 100 * report.points / report.possible


def _cell(text: str) -> str:
    """A name as a spreadsheet's cell: one that begins like a formula is kept from being one."""
    shown = plain(text)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown
