"""Grading: a class gets what it deserves, its report is safe to open, and a stopped run goes on."""

import csv
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest

from course.grading import kernel, marking, work
from course.grading.grade import SIGNS, best_marks, grade_folder
from vsecore.paths import ROOT

IMPORT = "from course.checks import check, exercise"
FOUND = "[int(i) for i in ((v / v.norm(dim=1, keepdim=True)) @ query).topk(k).indices]"
RIGHT = (
    'check("00.rank", 3)',
    f'def search(v, query, k):\n    return {FOUND}\n\ncheck("00.search", search)',
    'check("00.break", 0.1)',
    'check("00.predict", "own")',
    'check("00.explore", ("It will find more pictures.", "It did find more pictures."))',
)


def code(source, *tags):
    return nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)} if tags else {})


def hand_in(path, *sources, **metadata):
    """Write a learner's notebook: a parameters cell, then these cells of code."""
    cells = [code('tier = "lesson"', "parameters"), *map(code, sources)]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)
    return path


@pytest.fixture(scope="module")
def school(tmp_path_factory):
    """A class that was graded: one is right, one is partly right and troublesome, others hand in nothing."""
    folder = tmp_path_factory.mktemp("hand-ins")
    hand_in(folder / "anna" / "homework.ipynb", IMPORT, *RIGHT)
    hand_in(
        folder / "=<img src=x>" / "00 (1).ipynb",
        f"{IMPORT}\nassert tier == 'smoke'",
        'check("00.rank", 3)\ncheck("00.rank", 4)',
        'def search(v, query, k):\n    raise ValueError("<script>alert(1)</script>\\x1b[2J")\n'
        'check("00.search", search)',
        'raise KeyError("<b>bold</b>")\ncheck("00.break", 0.1)',
        "your_guess = ...\n" + 'check("00.predict", your_guess)',
        kernelspec={"name": "../../evil", "display_name": "<i>evil</i>", "language": "python"},
    )
    (folder / "dora").mkdir()
    (folder / "dora" / "notes.ipynb").write_text("no notebook")
    (folder / "emil").mkdir()
    grade_folder(folder, minutes=2, jobs=2)
    return folder


def marks_of(school, learner):
    stored = json.loads((school / "grades" / "learners" / learner / work.MARKS).read_text("utf-8"))
    return {mark["exercise"][3:]: mark for mark in stored["notebooks"][0]["marks"]}


def test_right_answers_get_every_point(school):
    found = marks_of(school, "anna")
    assert all(mark["points"] == mark["possible"] for mark in found.values()) and len(found) == len(RIGHT)
    states = {key: mark["state"] for key, mark in found.items()}
    assert states.pop("predict") == states.pop("explore") == "noted", "nothing says that they are right"
    assert set(states.values()) == {"right"}
    executed = school / "grades" / "learners" / "anna" / "executed" / "homework.ipynb"
    assert "grade: ✓ Read a ranking: 2 of 2." in executed.read_text("utf-8")
    original = nbformat.read(school / "anna" / "homework.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in original.cells), "what was handed in stays as it was"


def test_wrong_answers_get_their_points_and_hints_and_the_last_check_counts(school):
    found = marks_of(school, "=<img src=x>")
    assert (found["rank"]["points"], found["rank"]["checks"]) == (1, 2)
    assert found["rank"]["state"] == "partly right" and "low to high" in found["rank"]["message"]
    assert found["search"]["state"] == "no points" and "ValueError" in found["search"]["message"]
    assert found["break"]["state"] == "not run" and found["break"]["message"].startswith("Cell 5 (raise Key")
    assert found["predict"]["state"] == "not answered"
    assert found["explore"]["message"] == "No check of it was called."


class Tags(HTMLParser):
    """Collect a page's tags, and the text between them."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.tags = set()
        self.text = ""
        self.links = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_class_has_one_report_and_one_table_and_no_word_of_a_learner_becomes_markup(school):
    page = Tags(school / "grades" / "report.html")
    assert not page.tags & {"script", "img", "b", "i", "iframe", "link"} and "\x1b" not in page.text
    assert set(page.links) == {f"#learner-{number}" for number in range(1, 5)}, "nothing from elsewhere"
    for words in ("<script>alert(1)</script>", "=<img src=x>", "KeyError", "no notebook", "low to high"):
        assert words in page.text
    with (school / "grades" / "points.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["learner"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["'=<img src=x>", "anna", "dora", "emil"], "no name is a formula, nobody is missing"
    assert [rows["anna"][part] for part in ("points", "percent", "00.search")] == ["11", "100.0", "3"]
    assert (rows["emil"]["points"], rows["emil"]["possible"]) == ("0", "11")
    assert len(set(SIGNS.values())) == len(SIGNS), "each state has a sign of its own"


def test_what_has_not_changed_is_not_marked_again(school, monkeypatch):
    again = []

    def mark_all(works, jobs, done):
        for one in works:
            again.append(one.learner)
            done(one, work._keep(one, ()))

    monkeypatch.setattr("course.grading.grade.mark_all", mark_all)
    was = (school / "grades" / "report.html").read_text("utf-8")
    grade_folder(school, minutes=2)
    assert again == [] and (school / "grades" / "report.html").read_text("utf-8") == was
    hand_in(school / "dora" / "notes.ipynb", "'00.rank'")
    grade_folder(school, minutes=2)
    assert again == ["dora"]
    grade_folder(school, minutes=3)
    assert sorted(again) == ["=<img src=x>", "anna", "dora", "dora"], "another limit may give other marks"


def test_of_two_notebooks_with_the_same_exercise_the_better_counts():
    def one(name, points):
        return marking.NotebookMarks(name, 1.0, (marking.Mark("00.rank", points, 2, "right", "", 1, name),))

    best = best_marks([one("a", 1), one("b", 2), one("c", 0)], ["00.rank", "00.search"])
    found = [(mark.notebook, mark.points, mark.state) for mark in best]
    assert found == [("b", 2, "right"), ("", 0, "not handed in")]


def test_homework_names_what_counts(tmp_path):
    hand_in(tmp_path / "anna" / "a.ipynb", "'00.rank'")
    hand_in(tmp_path / "ben" / "b.ipynb", "'04.read'")
    homework = ("03.ranks", "04.read")
    page = grade_folder(tmp_path, tmp_path / "out", homework=homework, minutes=1)
    assert "not part of what was set" in Tags(page).text
    with page.with_name("points.csv").open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head[4:] == ["03.ranks", "04.read"] and [row[0] for row in rows] == ["anna", "ben"]


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ({"tier": "quick"}, "tier"),
        ({"minutes": 0}, "minutes"),
        ({"jobs": 0}, "jobs"),
        ({"homework": ["99.step"]}, "homework"),
        ({"out": Path("class")}, "out"),
        ({"folder": Path("empty")}, "folder"),
        ({"folder": Path("links")}, "folder"),
        ({"folder": Path("broken")}, r"a\.ipynb.*not a notebook"),
        ({"folder": Path("other")}, "holds no exercise"),
        ({"folder": Path()}, "both"),
    ],
)
def test_a_bad_option_is_named(option, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hand_in(Path("class", "00.ipynb"), "'00.rank'")
    hand_in(Path("other", "some.ipynb"), "1")
    hand_in(Path("mine.ipynb"), "'00.rank'")
    hand_in(Path("links", ".ipynb_checkpoints", "00.ipynb"), "'00.rank'")
    Path("links", "00.ipynb").symlink_to(tmp_path / "class" / "00.ipynb")
    Path("links", "inner").symlink_to(tmp_path / "class")
    Path("empty").mkdir()
    Path("broken").mkdir()
    Path("broken", "a.ipynb").write_text('{"cells": 3}')
    with pytest.raises(ValueError, match=named):
        grade_folder(**{"folder": Path("class")} | option)
    for wrong in (Path("nowhere"), Path("class", "00.ipynb")):
        with pytest.raises(NotADirectoryError, match="folder"):
            grade_folder(wrong)
    assert not list(tmp_path.rglob("grades"))


def test_a_notebook_is_read_however_a_program_has_written_it(tmp_path):
    path = hand_in(tmp_path / "00.ipynb", "x = 1", 'check("00.rank", 3)')
    stored = json.loads(path.read_text("utf-8"))
    stored["nbformat_minor"] = 1  # in which a cell has no id
    for cell in stored["cells"]:
        cell.pop("outputs")
        cell["metadata"] = {}  # as Colab does
    stored["cells"][0]["source"] = ["# Parameters\n", 'tier = "full"\n', 'data = "scenes"']
    path.write_text(json.dumps(stored), "utf-8-sig")
    one = marking.read_hand_in(path, "hw_02_mine.ipynb")
    assert one.trouble == "" and one.lessons == {"00"} and one.notebook is not None
    assert one.parameters is None and len(one.notebook.cells) == 3
    stored["cells"][0]["source"] = ['tier = "full"\n', 'data = "scenes"']
    path.write_text(json.dumps(stored), "utf-8")
    assert marking.read_hand_in(path, "mine.ipynb").parameters == 0
    stored["cells"][1] = code("x = '\ud83d'", "injected-parameters")  # half a letter; papermill's tag
    path.write_text(json.dumps(stored), "utf-8")
    one = marking.read_hand_in(path, "L\udcf6sung.ipynb")
    assert (one.name, one.parameters) == (r"L\udcf6sung.ipynb", 1)
    assert one.notebook.cells[1].source == r"x = '\ud83d'"


def one_work(tmp_path, name):
    path = hand_in(tmp_path / name / "00.ipynb", "print(1)\n'00.rank'")
    handed_in = (marking.read_hand_in(path, "00.ipynb"),)
    return work.Work(name, tmp_path / "out" / name, handed_in, "smoke", 60, ())


def _end_at_once(one):
    if one.learner == "bad":
        os._exit(9)
    work._keep(one, (marking.NotebookMarks("00.ipynb", 1.0, ()),))


def test_whose_process_is_ended_is_tried_once_more_and_told(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "_mark", _end_at_once)
    results = {}
    works = [one_work(tmp_path, name) for name in ("anna", "bad", "cem")]
    work.mark_all(works, 2, lambda one, marked: results.update({one.learner: marked}))
    assert results.keys() == {"anna", "bad", "cem"}
    assert "ended twice" in results["bad"].notebooks[0].troubles[0]
    assert not results["cem"].notebooks[0].troubles
    assert work.known(works[0]) == results["anna"] and work.known(replace(works[0], seconds=61)) is None
    monkeypatch.setattr(work, "PACKAGE", tmp_path, raising=False)
    assert work.known(work.Work("anna", works[0].place, works[0].notebooks, "smoke", 60, ())) is None
    path = works[0].place / work.MARKS
    path.write_text(path.read_text()[:-5])
    assert work.known(works[0]) is None, "what is damaged is marked again"


def test_a_run_that_was_killed_goes_on(tmp_path, capsys):
    hand_in(tmp_path / "anna" / "00.ipynb", "'00.rank'")
    hand_in(tmp_path / "ben" / "00.ipynb", "import time; time.sleep(40)\n'00.rank'")
    command = [sys.executable, "-m", "course", "grade", str(tmp_path)]
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    learners = tmp_path / "grades" / "learners"
    until = time.monotonic() + 120
    while not (learners / "anna" / work.MARKS).is_file() and time.monotonic() < until:
        time.sleep(0.2)
    killed.kill()
    killed.wait()
    was = (learners / "anna" / work.MARKS).read_bytes()
    assert not (learners / "ben" / work.MARKS).exists() and not (tmp_path / "grades" / "report.html").exists()
    hand_in(tmp_path / "ben" / "00.ipynb", "'00.rank'")
    grade_folder(tmp_path)
    said = capsys.readouterr().out.splitlines()
    assert "1 of 2" in said[0] and "ben" in said and "anna" not in said
    assert (learners / "anna" / work.MARKS).read_bytes() == was


def test_the_container_sees_no_network_and_writes_reports_alone():
    command = ["make", "-n", "grade", "CONTAINER=docker", "HANDED=assets", "GRADES=book"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for part in ("network none", "read-only", "cap-drop ALL", "no-new-privileges", "label=disable", "memory"):
        assert part in made
    mounts = {target: line for line in made.splitlines() for target in re.findall(r"target=([\w/]+)", line)}
    written = [target for target, line in mounts.items() if "type=bind" in line and "readonly" not in line]
    assert written == ["/grades"] and {"/course", "/handed", "/course/tests"} <= mounts.keys()


def run(*sources, seconds=60, **options):
    notebook = nbformat.v4.new_notebook(cells=[code(source) for source in sources])
    made = kernel.run_cells(notebook, seconds, **options)
    return notebook, list(made.trouble.values()), made.end


def test_errors_settings_and_floods_of_one_cell_do_not_reach_the_next(monkeypatch):
    monkeypatch.setenv("SECRET", "1")
    notebook, trouble, end = run(
        "1 / 0",
        "import os, IPython\nprint(os.listdir(), os.environ.get('SECRET'), IPython.paths.get_ipython_dir())",
        "input()",
        "k = get_ipython().kernel\nk.session.send(k.iopub_socket, 'stream', {}, parent=k.get_parent())\n"
        "k.session.send(k.iopub_socket, 'stream', 7, parent=k.get_parent())\nNone",
        "shown = display('small', display_id='one')\nshown.update('x' * 100_000)",
        "import ipywidgets\nbox = ipywidgets.Output()\nwith box: print('y' * 100_000)",
        "for _ in range(50): display('z' * 1000)",
        "print('more')",
        output_bytes=15_000,
    )
    assert trouble[0] == "ZeroDivisionError: division by zero" and end == ""
    assert "StdinNotImplementedError" in trouble[2], "nobody is there to answer"
    shown = notebook.cells[1].outputs[0].text
    assert shown.startswith("[] None /") and "vse-grade-" in shown
    assert len(json.dumps(notebook)) < 40_000 and 1 <= len(notebook.cells[6].outputs) < 15


def test_an_endless_loop_is_stopped_and_the_rest_goes_on():
    flood = "import time\nwhile True:\n    print('x' * 1000); time.sleep(0.001)"
    _, trouble, end = run(flood, "print('after')", seconds=4, output_bytes=10_000)
    assert "stopped after 2 s" in trouble[0] and trouble[1] == "" and end == ""
