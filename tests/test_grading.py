"""Grading: a class gets what it deserves, whatever one learner's code does."""

import csv
import json
import re
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course.grading.grade import grade_folder
from vsecore.paths import ROOT

IMPORT = "from course.checks import check, exercise"
FOUND = "[int(i) for i in ((v / v.norm(dim=1, keepdim=True)) @ query).topk(k).indices]"
RIGHT = (
    'check("00.rank", 3)',
    f'@exercise("00.search")\ndef search(v, query, k):\n    return {FOUND}',
    'check("00.break", 0.1)',
    'check("00.predict", "own")',
    'check("00.explore", ("It will find more pictures.", "It did find more pictures."))',
)
LINES = 'no judgement\\n{}\\n[]\\n{"exercise": "00.break", "points": Infinity}\\n\\xff\\n'
FORGED = f"import os\nopen(os.environ['COURSE_JUDGEMENTS'], 'ab').write(b'{LINES}')"


def hand_in(path, *sources):
    """Write a learner's notebook: a parameters cell, then these cells of code."""
    cells = [new_code_cell(source) for source in ('tier = "full"\ndata = "scenes"', *sources)]
    cells.append(new_markdown_cell("In my own words"))
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), path)
    return path


def table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def school(tmp_path_factory):
    """A class that was graded: one is right, one partly right and troublesome, others hand in nothing."""
    folder = tmp_path_factory.mktemp("hand-ins")
    hand_in(folder / "anna" / "homework.ipynb", IMPORT, *RIGHT)
    hand_in(
        folder / "=ben" / "inner" / "00 (1).ipynb",
        f"{IMPORT}\nassert tier == 'smoke'",
        'check("00.rank", 3)\ncheck("00.rank", 4)',
        FORGED,
        'while True: "00.break"',
        '@exercise("00.search")\ndef search(v, query, k):\n    raise ValueError("=1")',
        "import os\nos._exit(9)",
        'check("00.predict", "own")',
    )
    hand_in(folder / "=ben" / "second.ipynb", IMPORT, 'check("00.rank", 3)')
    (folder / "dora").mkdir()
    (folder / "dora" / "notes.ipynb").write_text("no notebook")
    (folder / "emil").mkdir()
    grade_folder(folder, minutes=1, jobs=2)
    return folder


def test_right_answers_get_every_point(school):
    points = {row["learner"]: row for row in table(school / "grades" / "points.csv")}
    assert list(points) == ["'=ben", "anna", "dora", "emil"], "no name is a formula, nobody is missing"
    assert [points["anna"][part] for part in ("points", "percent", "00.search")] == ["11", "100.0", "3"]
    assert (points["emil"]["points"], points["emil"]["possible"]) == ("0", "11")
    executed = (school / "grades" / "executed" / "anna" / "homework.ipynb").read_text("utf-8")
    assert executed.count("✓") == 5 and "In my own words" in executed
    original = nbformat.read(school / "anna" / "homework.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in original.cells), "what was handed in stays as it was"


def test_wrong_answers_get_their_points_and_hints_and_no_cell_takes_others_with_it(school):
    answers = table(school / "grades" / "answers.csv")
    found = {row["exercise"]: row for row in answers if row["learner"] == "'=ben"}
    assert (found["00.rank"]["points"], found["00.rank"]["notebook"]) == ("2", "second.ipynb"), "the better"
    assert found["00.search"]["points"] == "0" and "ValueError" in found["00.search"]["message"]
    assert found["00.break"]["message"].startswith("No check of it was called.")
    assert "ended Python" in found["00.predict"]["message"], "an endless loop is stopped, this cannot be"


def test_homework_names_what_counts(tmp_path):
    hand_in(tmp_path / "anna" / "a.ipynb", IMPORT, 'check("00.rank", 3)\ncheck("00.rank", 4)')
    (row,) = table(grade_folder(tmp_path, tmp_path / "out", homework=("00.rank", "04.read"), minutes=1))
    assert [row[key] for key in ("00.rank", "04.read", "points")] == ["1", "0", "1"], "the last check counts"
    assert "00.search" not in row


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ({"tier": "quick"}, "tier"),
        ({"minutes": 0}, "minutes"),
        ({"homework": ["99.step"]}, "homework"),
        ({"folder": Path("links")}, "no notebook"),
        ({"folder": Path()}, "both"),
        ({"folder": Path("nowhere")}, "folder"),
    ],
)
def test_a_bad_option_is_named(option, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hand_in(Path("class", "00.ipynb"), "'00.rank'")
    hand_in(Path("mine.ipynb"), "'00.rank'")
    hand_in(Path("links", "anna", ".ipynb_checkpoints", "00.ipynb"), "'00.rank'")
    Path("links", "00.ipynb").symlink_to(tmp_path / "class" / "00.ipynb")
    Path("links", "inner").symlink_to(tmp_path / "class")
    with pytest.raises((ValueError, NotADirectoryError), match=named):
        grade_folder(**{"folder": Path("class")} | option)
    assert not list(tmp_path.rglob("grades"))


def test_a_notebook_is_read_however_a_program_has_written_it(tmp_path):
    path = hand_in(tmp_path / "00.ipynb", IMPORT, 'check("00.rank", 3 if tier == "smoke" else 4)')
    stored = json.loads(path.read_text("utf-8"))
    stored["nbformat_minor"] = 1  # in which a cell has no id
    for cell in stored["cells"]:
        cell.pop("outputs", None)
        del cell["id"]
    path.write_text(json.dumps(stored), "utf-8-sig")
    (row,) = table(grade_folder(tmp_path, minutes=1, homework=["00.rank"]))
    assert row["points"] == "2", "and its own tier does not count"


def test_the_container_sees_no_network_and_writes_tables_alone():
    command = ["make", "-n", "grade", "CONTAINER=docker", "HANDED=assets", "GRADES=book"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for part in ("network none", "read-only", "cap-drop ALL", "no-new-privileges", "label=disable", "memory"):
        assert part in made
    mounts = {target: line for line in made.splitlines() for target in re.findall(r"target=([\w/]+)", line)}
    written = [target for target, line in mounts.items() if "type=bind" in line and "readonly" not in line]
    assert written == ["/grades"] and {"/course", "/handed", "/course/tests"} <= mounts.keys()
