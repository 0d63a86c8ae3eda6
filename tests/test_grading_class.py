"""A class: its roster, what came late, points by hand, tables for the school, a run that goes on."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from course.checks import EXERCISES
from course.grading import Grading, grade_folder, marks, work, write_package
from course.grading.roster import Learner, compare, read_by_hand, read_roster
from test_grading import Tags, hand_in, no_words
from vsecore.paths import ROOT

DEADLINE = "2026-01-10T18:00"


@pytest.fixture
def marked_elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Mark without running anything: every exercise gets one point. Returns whose work was done."""
    did: list[str] = []

    def mark_all(works: Any, jobs: int, done: Any) -> None:
        for one in works:
            did.append(one.learner)
            made = tuple(
                marks.Mark(key, EXERCISES[key].title, "code", 1, 2, "partly right", "Half.", 1, "00.ipynb")
                for key in marks.exercises_of(["00"])
            )
            done(one, work._keep(one, (marks.NotebookMarks("00.ipynb", 1.0, made, ("Cell 3: odd.",)),)))

    monkeypatch.setattr("course.grading.grade.mark_all", mark_all)
    return did


@pytest.fixture
def handed(tmp_path: Path) -> Path:
    folder = tmp_path / "hand-ins"
    for place, date in (("anna", "2026-01-10T17:59"), ("B7_assignsubmission_file", "2026-01-11T18:00")):
        path = hand_in(folder / place / "00.ipynb", 'check("00.rank", 1)')
        when = work.datetime.fromisoformat(date).timestamp()
        os.utime(path, (when, when))
    (folder / "empty").mkdir()
    (tmp_path / "roster.csv").write_text(
        "ID,Name,Handed_in\nA1,anna,\nB7,Ben Ü,\nC3,Cem,\nD4,Dora,\n", "utf-8-sig"
    )
    return folder


def table(path: Path, key: str) -> dict[str, dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return {row[key]: row for row in csv.DictReader(file)}


def test_a_class_has_everybody_in_it(handed: Path, marked_elsewhere: list[str]) -> None:
    grading = Grading(roster=handed.parent / "roster.csv", deadline=DEADLINE)
    page = grade_folder(handed, None, grading, no_words)
    rows = table(page.with_name("summary.csv"), "learner")
    assert rows.pop("possible")["00.rank"] == "2", "what there was to get"
    assert list(rows) == ["anna", "Ben Ü", "Cem", "Dora", "empty"]
    assert [row["points"] for row in rows.values()] == ["5", "5", "0", "0", "0"]
    assert [row["late_hours"] for row in rows.values()] == ["0.0", "24.0", "0.0", "0.0", "0.0"]
    assert list(rows["anna"])[:4] == ["learner", "id", "points", "possible"], "the important ones come first"

    def remarks(place: str) -> str:
        return " ".join(json.loads((page.parent / "learners" / place / "report.json").read_text())["remarks"])

    assert "Nothing was handed in" in remarks("C3") and "Nothing was handed in" in remarks("empty")
    assert "Not on the roster" in remarks("empty") and "Not on the roster" not in remarks("anna")
    assert "24.0 hours late" in remarks("B7_assignsubmission_file") and "late" not in remarks("anna")
    heads = Tags(page).text
    assert heads.index("points") < heads.index("00.rank")
    for link in Tags(page).links:
        assert link.startswith("#remarks-") or (page.parent / link).is_file()
    school = table(page.with_name("lms.csv"), "ID number")
    assert list(school) == ["A1", "B7", "C3", "D4"], "the school knows nobody else"
    assert school["B7"]["Name"] == "Ben Ü" and school["B7"]["Grade"] == "5" and school["C3"]["Grade"] == "0"


def test_the_rosters_time_counts_more_than_the_files(handed: Path, marked_elsewhere: list[str]) -> None:
    roster = handed.parent / "roster.csv"
    roster.write_text("id;name;handed_in\nB7;Ben;2026-01-10T10:00\n", "utf-8")
    page = grade_folder(handed, None, Grading(roster=roster, deadline=DEADLINE), no_words)
    assert table(page.with_name("summary.csv"), "learner")["Ben"]["late_hours"] == "0.0"


def test_points_and_comments_by_hand_are_taken_up_without_another_run(
    handed: Path, marked_elsewhere: list[str]
) -> None:
    grading = Grading(roster=handed.parent / "roster.csv")
    page = grade_folder(handed, None, grading, no_words)
    assert sorted(marked_elsewhere) == ["Ben Ü", "anna"]
    by_hand = page.with_name("by_hand.csv")
    assert by_hand.read_text("utf-8") == "learner,exercise,points,comment\n"
    by_hand.write_text(
        by_hand.read_text("utf-8")
        + 'A1,00.rank,2,"Right, said\nin words."\nanna,,0.5,For the figure.\nCem,00.break,1,Told me.\n'
    )
    said: list[str] = []
    grade_folder(handed, None, grading, said.append)
    assert len(marked_elsewhere) == 2 and "2 of 2" in said[0], "nobody was run again"
    school = table(page.with_name("lms.csv"), "ID number")
    assert (school["A1"]["Grade"], school["B7"]["Grade"], school["C3"]["Grade"]) == ("6.5", "5", "1")
    said_to_anna = school["A1"]["Feedback comments"]
    assert said_to_anna.startswith("For the figure.; 00.rank: 2/2, Right, said in words.; 00.")
    made = json.loads((page.parent / "learners" / "anna" / "report.json").read_text("utf-8"))
    assert (
        made["exercises"][0]["state"] == "by hand" and "the grader gave 1" in made["exercises"][0]["message"]
    )
    assert by_hand.read_text("utf-8").count("\n") == 5, "it is the instructor's"


def test_only_what_has_changed_is_marked_again(handed: Path, marked_elsewhere: list[str]) -> None:
    grade_folder(handed, None, Grading(), no_words)
    hand_in(handed / "anna" / "00.ipynb", 'check("00.rank", 2)')
    hand_in(handed / "late" / "00.ipynb", 'check("00.rank", 2)')
    marked_elsewhere.clear()
    grade_folder(handed, None, Grading(), no_words)
    assert marked_elsewhere == ["anna", "late"]
    marked_elsewhere.clear()
    grade_folder(handed, None, Grading(minutes=5), no_words)
    assert len(marked_elsewhere) == 3, "another limit may give other marks"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("name\nanna\n", "lacks the column 'id'"),
        ("id,name\nA1,\n", "line 2: name is '': it must"),
        ("id,name\nA1,anna\nA1,ben\n", "line 3: id is 'A1': it must"),
        ("id,name,folder\nA1,anna,x\nB2,ben,x\n", "line 3: folder is 'x': it must"),
        ("id,name,handed_in\nA1,anna,Friday\n", "handed_in is 'Friday'"),
        (b"id,name\nA1,\xff\n", "it must be a CSV file in UTF-8"),
    ],
)
def test_a_roster_that_cannot_be_right_is_refused(tmp_path: Path, content: str | bytes, said: str) -> None:
    path = tmp_path / "roster.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ValueError, match=said):
        read_roster(path, [tmp_path / "x"])


@pytest.mark.parametrize(
    ("row", "folder"),
    [
        ("s123,Anna", "anna"),
        ("s123,Anna", "ANNA_99_assignsubmission_file"),
        ("S123,Anna", "s123"),
        ("s1,Anna Ay", "anna_ay"),
        ("s1,ANNA  AY", "anna-ay"),
        ("s1,Anna-Ay", "anna.ay"),
        ("s1,Anna_Ay", "Anna Ay"),
        ("s1,Anna Ay", "anna ay_99_assignsubmission_file"),
        ("s1,Jörg", "jo\u0308rg"),
        ("s1,Anna,GROUP B", "group_b"),
    ],
)
def test_a_folder_is_found_however_its_name_is_spelled(tmp_path: Path, row: str, folder: str) -> None:
    path = tmp_path / "roster.csv"
    path.write_text(f"id,name,folder\n{row}\n", "utf-8")
    (learner,) = read_roster(path, [tmp_path / folder])
    assert learner.folder == tmp_path / folder and compare([learner]) == ""


def test_a_name_is_no_part_of_a_longer_one_and_the_same_spelling_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "roster.csv"
    path.write_text("id,name\ns1,Anna\ns2,Anna Bell\n", "utf-8")
    folders = [tmp_path / name for name in ("anna", "Anna", "Anna Bell")]
    places = {learner.folder: learner.id for learner in read_roster(path, folders)}
    assert places == {folders[0]: "", folders[1]: "s1", folders[2]: "s2"}


def test_folders_that_are_nobodys_are_told_beside_those_who_handed_in_nothing(
    handed: Path, marked_elsewhere: list[str]
) -> None:
    roster, said = handed.parent / "roster.csv", list[str]()
    roster.write_text("id,name,folder,handed_in\nA1,Anna,,\nE5,Ema,empty,\nC3,Cem Benn,,2026-01-10T18:30\n")
    (handed / "cem-ben").mkdir()
    page = grade_folder(handed, None, Grading(roster=roster, deadline=DEADLINE), said.append)
    assert said[-1] == (
        "2 folders belong to nobody on the roster; 1 person on it has no folder; "
        "1 person on it has a folder that holds no notebook: cem-ben may be Cem Benn."
    )
    cem = json.loads((page.parent / "learners" / "C3" / "report.json").read_text("utf-8"))
    assert cem["remarks"] == ["The roster has a time of hand-in, but no folder fits the name; is it cem-ben?"]
    assert cem["late_hours"] == 0, "nothing came, so nothing came late"
    nobodys = Learner("x", "", handed)
    assert compare([nobodys, nobodys]) == "2 folders belong to nobody on the roster."


def test_a_roster_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        read_roster(tmp_path / "nowhere.csv", [])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nobody,,1,", "learner is 'nobody', which is nobody: it must"),
        ("twin,,1,", "several learners"),
        ("A1,99.x,1,", "exercise is '99.x': it must be one that was set"),
        ("A1,,many,", "points is 'many': it must"),
        ("A1,,nan,", "from -1000 to 1000"),
    ],
)
def test_a_line_by_hand_that_cannot_be_right_is_refused(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "by_hand.csv").write_text(f"learner,exercise,points,comment\n{line}\n")
    learners = [Learner("twin", "A1"), Learner("twin", "A2")]
    with pytest.raises(ValueError, match=said):
        read_by_hand(tmp_path, learners, ["00.rank"])


# ---- processes --------------------------------------------------------------------------------------------


def one_work(tmp_path: Path, name: str) -> work.Work:
    path = hand_in(tmp_path / name / "00.ipynb", "print(1)\n'00.rank'")
    return work.Work(name, tmp_path / "out" / name, (marks.read_hand_in(path, "00.ipynb"),), "smoke", 60, ())


def _end_at_once(one: work.Work) -> None:
    if one.learner == "bad":
        os._exit(9)
    work._keep(one, (marks.NotebookMarks("00.ipynb", 1.0, (), ()),))


def test_whose_process_is_ended_is_tried_once_more_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "_mark", _end_at_once)
    results: dict[str, work.Marked] = {}
    works = [one_work(tmp_path, name) for name in ("anna", "bad", "cem")]
    work.mark_all(works, 2, lambda one, marked: results.update({one.learner: marked}))
    assert results.keys() == {"anna", "bad", "cem"}
    assert "ended twice" in results["bad"].notebooks[0].remarks[0] and not results["cem"].notebooks[0].remarks
    assert work.known(works[0]) == results["anna"]
    assert work.known(replace(works[0], seconds=61)) is None


def test_a_stored_result_that_is_damaged_is_marked_again(tmp_path: Path) -> None:
    one = one_work(tmp_path, "anna")
    work._keep(one, ())
    path = one.place / work.MARKS
    path.write_text(path.read_text()[:-5])
    assert work.known(one) is None


# ---- what is handed out, and the container -----------------------------------------------------------------


def test_the_package_that_is_handed_out_has_no_answers_in_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(write_package(tmp_path)) as package:
        names = package.namelist()
    assert "notebooks/course/checks/__init__.py" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"vsecore"}
    assert not any("answers" in name or name.endswith(".ipynb") for name in names)


def test_the_container_sees_no_network_and_writes_reports_alone() -> None:
    made = subprocess.run(
        ["make", "-n", "grade", "CONTAINER=docker", "HANDED=assets", "GRADES=book"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for part in ("--network none", "--read-only", "--cap-drop ALL", "no-new-privileges", "--memory"):
        assert part in made
    mounts = [line for line in made.splitlines() if "type=bind" in line]
    assert [
        ("readonly" in line, line.split("target=")[1].split(",")[0].split(" ")[0]) for line in mounts
    ] == [
        (True, "/course"),
        (True, "/handed"),
        (False, "/grades"),
    ]
    assert "target=/course/tests" in made
