"""What reports say: what is known and how, what was noted, who handed in what, and figures about those."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from course.checks import EXERCISES
from course.grading import Grading, marks
from course.grading.grade import report_on
from course.grading.report import (
    SIGNS,
    LearnerReport,
    feedback,
    summarise_exercises,
    write_class_summary,
    write_learner_report,
)
from course.grading.roster import ByHand, Learner, compare, like, read_by_hand, read_time
from course.grading.work import Marked
from test_grading import Tags

KEYS = ("00.rank", "00.search")


def mark(key: str, state: marks.MarkState, points: float) -> marks.Mark:
    return replace(marks.not_handed_in(key), state=state, points=points, notebook="00.ipynb")


def report(learner: str = "anna", *states: tuple[marks.MarkState, float], **facts: Any) -> LearnerReport:
    """A report on two exercises; without states, of somebody who handed in nothing."""
    made = tuple(mark(key, *state) for key, state in zip(KEYS, states, strict=False))
    absent = tuple(marks.not_handed_in(key) for key in KEYS)
    return LearnerReport(learner, learner, (), made or absent, "smoke", "2026-01-01", **facts)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


RIGHT: tuple[tuple[marks.MarkState, float], ...] = (("right", 2), ("right", 3))


@pytest.mark.parametrize(
    ("by_roster", "said", "hours"), [(True, "46.3 hours late.", "46.3"), (False, "by the file's date.", "")]
)
def test_who_is_late_by_a_files_date_alone_is_told_so(
    tmp_path: Path, by_roster: bool, said: str, hours: str
) -> None:
    made = report("anna", *RIGHT, late=46.3, late_by_roster=by_roster)
    write_learner_report(made, tmp_path / "learners" / "anna")
    write_class_summary([made], tmp_path)
    assert said in Tags(tmp_path / "learners" / "anna" / "report.html").text
    assert [row["Hours late"] for row in rows(tmp_path / "lms.csv")] == [hours]
    assert ("46.3 h (file)" in Tags(tmp_path / "summary.html").text) == (not by_roster)


@pytest.mark.parametrize(
    ("handed_in", "by_roster", "late"), [("2026-01-11T18:00", True, 24.0), ("", False, None)]
)
def test_the_report_knows_who_says_that_it_is_late(
    tmp_path: Path, handed_in: str, by_roster: bool, late: float | None
) -> None:
    (tmp_path / "00.ipynb").write_text("{}")
    when = read_time("handed_in", handed_in) if handed_in else None
    made = report_on(
        Learner("anna", "A1", tmp_path, when), None, ["00"], [], Grading(deadline="2026-01-10T18:00")
    )
    assert made.late_by_roster is by_roster and made.late > 0 and made.late == (late or made.late)


def test_a_sum_never_falls_below_nothing_and_the_instructor_is_told(tmp_path: Path) -> None:
    made = report_on(Learner("ben"), None, ["00"], [ByHand("ben", "", -1.0, "")], Grading())
    assert made.points == made.percent == 0
    assert "By hand the sum became -1: it is given as 0." in made.remarks
    write_class_summary([made], tmp_path)
    assert [(row["Grade"], row["Percent"]) for row in rows(tmp_path / "lms.csv")] == [("0", "0.0")]
    write_learner_report(made, tmp_path)
    page = Tags(tmp_path / "report.html").text
    assert "taken off by hand: 1." in page and "it is given as 0" not in page


def test_by_hand_finds_whom_the_roster_finds_and_tells_all_wrong_lines_at_once(tmp_path: Path) -> None:
    learners = [Learner("Anna Ay", "s1"), Learner("BEN  BEE", "s2"), Learner("anna", "s3")]
    path = tmp_path / "by_hand.csv"
    path.write_text("learner,exercise,points,comment\nanna ay,,1,\nBen-Bee,,2,\nanna,,3,\n")
    found = read_by_hand(tmp_path, learners, ["00.rank"])
    assert [[line.points for line in found[learner]] for learner in learners] == [[1], [2], [3]]
    path.write_text("learner,exercise,points,comment\nAnna Ai,,1,\nanna,99.x,1,\nanna,,1,\nzzz,,1,\n")
    with pytest.raises(ValueError) as told:
        read_by_hand(tmp_path, learners, ["00.rank"])
    lines = str(told.value).splitlines()
    assert [f"line {number}: " in line for number, line in zip((2, 3, 5), lines, strict=True)] == [True] * 3
    assert lines[0].endswith("; is it Anna Ay?") and "is it" not in lines[2]


def test_names_that_are_alike_are_named_together(tmp_path: Path) -> None:
    folder, person = Learner("ben-b", "", tmp_path / "ben-b"), Learner("Ben Bee", "s2")
    assert like(person, [folder]) == "ben-b" and like(Learner("Zoe", "s9"), [folder]) == ""
    assert compare([folder, person]).endswith(": ben-b may be Ben Bee.")
    assert compare([folder, Learner("Zoe", "s9")]).endswith("1 person on it has no folder: compare them.")


def test_what_lies_there_in_place_of_a_notebook_is_named(tmp_path: Path) -> None:
    learner = Learner("faye", "s1", tmp_path / "faye")
    (tmp_path / "faye" / ".ipynb_checkpoints").mkdir(parents=True)

    def nothing() -> str:
        return report_on(learner, None, ["00"], [], Grading()).nothing

    assert nothing() == "Nothing was handed in."
    (tmp_path / "faye" / "essay.docx").touch()
    assert nothing() == "No notebook was handed in; the folder holds essay.docx."
    for name in "abcd":
        (tmp_path / "faye" / name).touch()
    assert nothing().endswith("the folder holds a, b, c and 2 more files.")
    assert report_on(learner, Marked("", "", ()), ["00"], [], Grading()).remarks == (nothing(),)


def test_a_table_of_cells_that_failed_does_not_say_that_they_stopped_the_notebook(tmp_path: Path) -> None:
    failed = marks.NotebookMarks("00.ipynb", 1.0, (), (), ("Cell 2 (1 / 0): ZeroDivisionError",))
    write_learner_report(replace(report("anna", *RIGHT), notebooks=(failed,)), tmp_path)
    page = Tags(tmp_path / "report.html").text
    assert "what failed" in page and "stopped" not in page and "times checked" in page


def test_what_nobody_can_judge_is_noted() -> None:
    for key, task in EXERCISES.items():
        full = marks.Judgement(task.title, len(task.trials), len(task.trials), task.message)
        state = marks._judged(key, full, 1, "00.ipynb").state
        assert state == ("noted" if task.kind in ("predict", "explore") else "right"), key
        none = marks.Judgement(task.title, 0, len(task.trials), "No.")
        assert marks._judged(key, none, 1, "00.ipynb").state == "no points"
    assert len(set(SIGNS.values())) == len(SIGNS), "each state has a sign of its own"


def test_figures_are_about_those_who_handed_it_in_and_are_on_the_roster(tmp_path: Path) -> None:
    class_of = [
        report("anna", *RIGHT, id="s1"),
        report("ben", ("noted", 2), ("no points", 0), id="s2"),
        report("cem", id="s3"),
        report("nobody", ("no points", 0), ("no points", 0)),
    ]
    found = summarise_exercises(class_of[:3])
    assert [(one.handed_in, one.right, one.percent) for one in found] == [(2, 2, 100), (2, 1, 50)]
    assert summarise_exercises([class_of[2]])[0].percent == 0, "nobody handed it in"
    write_class_summary(class_of, tmp_path)
    page = Tags(tmp_path / "summary.html").text
    assert "of those who handed it in and are on the roster" in page and "1 of 2" in page
    assert "00.rank /2" in page and "00.search /3" in page, "what each exercise is worth"
    assert "noted" in page, "the legend has every sign"
    first = rows(tmp_path / "summary.csv")[0]
    assert (first["learner"], first["points"], first["00.rank"]) == ("possible", "5", "2")
    assert [row["ID number"] for row in rows(tmp_path / "lms.csv")] == ["s1", "s2", "s3"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (report(nothing="Nothing was handed in."), "Nothing was handed in."),
        (report("anna", ("not answered", 0), ("not answered", 0)), "Handed in without answers."),
        (report("anna", ("not answered", 0), ("not run", 0)), "00.rank: 0/2; 00.search: 0/3"),
        (
            report("anna", *RIGHT, comments=(("00.search", "Argued well."), ("", "Thanks."))),
            "Thanks.; 00.rank: 2/2; 00.search: 3/3, Argued well.",
        ),
    ],
)
def test_a_school_s_system_reads_an_exercise_once_and_absence_in_words(
    made: LearnerReport, said: str
) -> None:
    assert feedback(made) == said


def test_a_learners_page_holds_no_remark(tmp_path: Path) -> None:
    write_learner_report(report("anna", *RIGHT, remarks=("Cell 9 names triplet. Read it.",)), tmp_path)
    assert "triplet" not in (tmp_path / "report.html").read_text("utf-8")
    assert "triplet" in (tmp_path / "report.json").read_text("utf-8"), "which is the instructor's"


def test_the_classs_page_may_be_wide_and_breaks_no_name(tmp_path: Path) -> None:
    write_class_summary([report("anna", *RIGHT)], tmp_path)
    page = (tmp_path / "summary.html").read_text("utf-8")
    assert '<body class="class">' in page and "body.class { max-width: none; }" in page
    (names,) = [rule for rule in page.split("}") if rule.split("*/")[-1].strip().startswith("tbody th {")]
    assert "break-word" in names and "anywhere" not in names
