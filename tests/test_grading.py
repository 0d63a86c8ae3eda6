"""Teaching: learner copies hold no solution; grading gives what is deserved and survives what it is given."""

import csv
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nbformat
import pytest

from course.batch import notebooks
from course.checks import EXERCISES
from course.grading import Grading, instructor, instructor_page, kernel, marks, write_learner_copies
from course.grading.grade import grade_folder
from course.grading.learner import learner_copy
from course.grading.parts import with_import, without_parts
from course.grading.plain import citations, plain_markdown
from course.grading.remarks import Cell, suspicions
from course.grading.report import LearnerReport, write_class_summary
from vsecore.paths import ROOT

IMPORT = "from course.checks import check"
FOUND = "[int(i) for i in ((v / v.norm(dim=1, keepdim=True)) @ query).topk(k).indices]"
RIGHT = (
    'check("00.rank", 3)',
    f'def search(v, query, k):\n    return {FOUND}\n\ncheck("00.search", search)',
    'check("00.break", 0.1)',
    'check("00.predict", "own")',
    'check("00.explore", ("It will find more pictures.", "It did find more pictures."))',
)

POSSIBLE = sum(len(task.trials) for key, task in EXERCISES.items() if key.startswith("00."))


def no_words(line: str) -> None:
    """Hear nothing."""


def cite(keys: str) -> str:
    return f"({keys})"


def code(source: str, *tags: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)} if tags else {})


def markdown(*lines: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_markdown_cell("\n".join(lines))


def code_of(notebook: nbformat.NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def hand_in(path: Path, *sources: str | nbformat.NotebookNode, **metadata: Any) -> Path:
    """Write a learner's notebook: a parameters cell, then these cells of code."""
    cells = [source if isinstance(source, nbformat.NotebookNode) else code(source) for source in sources]
    made = nbformat.v4.new_notebook(cells=[code('tier = "lesson"', "parameters"), *cells], metadata=metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(made, path)
    return path


# ---- learner copies -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, nbformat.NotebookNode]:
    written = write_learner_copies((), tmp_path_factory.mktemp("learner"))
    return {path.name: nbformat.read(path, as_version=4) for path in written}


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_learner_copy_has_every_exercise_and_no_solution(
    path: Path, copies: dict[str, nbformat.NotebookNode]
) -> None:
    stored, made = nbformat.read(path, as_version=4), copies[path.name]
    nbformat.validate(made)
    text = "\n".join(cell.source for cell in made.cells if cell.cell_type == "markdown")
    assert not re.search(r"\{(cite|exercise|solution|admonition)", text)
    keys = [key for key in EXERCISES if key.startswith(f"{path.name[:2]}.")]
    assert keys
    for key in keys:
        assert len(re.findall(rf'\b(?:check|exercise)\("{key}"', "\n".join(code_of(made)))) == 1
        assert f"### Exercise: {EXERCISES[key].title}\n" in text
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in made.cells)
    # All else is kept, in its order.
    assert [without_parts(with_import(source)) for source in code_of(stored)] == code_of(made)
    assert "parameters" in next(cell for cell in made.cells if cell.cell_type == "code").metadata.tags


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_an_untouched_copy_gives_the_grader_nothing_to_remark(
    path: Path, copies: dict[str, nbformat.NotebookNode]
) -> None:
    sources = [cell.source for cell in copies[path.name].cells if cell.cell_type == "code"]
    assert suspicions([Cell(0, source) for source in sources]) == []


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_no_cell_of_a_notebook_names_what_is_remarked_on(path: Path) -> None:
    cells = [
        Cell(place, cell.source)
        for place, cell in enumerate(nbformat.read(path, as_version=4).cells)
        if cell.cell_type == "code"
    ]
    assert [remark for remark in suspicions(cells) if "published solution" not in remark] == []


def test_solutions_may_be_left_out() -> None:
    made = learner_copy(
        nbformat.v4.new_notebook(
            cells=[
                markdown("Before.", "", "```{solution} ex-2", "Hidden.", "```", "", "After."),
                code("kept = 3", "hide-input"),
                markdown("```{solution} ex-3", "Hidden too.", "```"),
            ]
        ),
        cite,
        solutions=False,
    )
    assert [cell.source for cell in made.cells] == ["Before.\n\nAfter.", "kept = 3"]


def test_the_books_markdown_is_said_in_plain_words() -> None:
    said = plain_markdown(
        "```{exercise} Read a ranking\n:label: ex-00-rank\n\nWhich place?\n```\n\n"
        "````{admonition} Where {x} departs\n:class: note\n\nIt does {cite}`a,b`.\n\n"
        "```python\nx = 1\n```\n````\n\nSee {ref}`the table <label>` and {cite:t}`a`.\n\n"
        "```python\ny = '{cite}`a`'\n```",
        cite,
    )
    assert said == (
        "### Exercise: Read a ranking\n\n*00.rank: compute, easy; about 2 minutes; 2 points.*\n\n"
        "Which place?\n\n"
        "> **Where {x} departs**\n>\n> It does (a,b).\n>\n> ```python\n> x = 1\n> ```\n\n"
        "See the table and (a).\n\n```python\ny = '{cite}`a`'\n```"
    )


def test_citations_read_as_names_and_years(tmp_path: Path) -> None:
    bibliography = tmp_path / "some.bib"
    bibliography.write_text(
        '@misc{one, author={G{\\"o}del, Kurt}, year={1931}}\n'
        "@misc{two, author={van den Oord, A. and Li, Y.}, year={2018}}\n"
        "@misc{three, author={A, B. and C, D. and E, F.}, year={2020}}\n"
    )
    say = citations(bibliography)
    assert say("one") == "(Gödel, 1931)"
    assert say("two, three") == "(van den Oord and Li, 2018; A et al., 2020)"
    with pytest.raises(ValueError, match="four"):
        say("four")
    assert citations()("faghri2018vsepp").startswith("([Faghri et al., 2018](https://")


# ---- running learners' cells -----------------------------------------------------------------------------


def run(*sources: str, seconds: float = 60, **options: Any) -> tuple[nbformat.NotebookNode, list[str], str]:
    notebook = nbformat.v4.new_notebook(cells=[code(source) for source in sources])
    made = kernel.run_cells(notebook, seconds, **options)
    return notebook, list(made.trouble.values()), made.end


@pytest.fixture(scope="module")
def meddling() -> Iterator[tuple[nbformat.NotebookNode, list[str], str]]:
    """Cells that do what they should not, in one kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSECORE_RECORD", "1")
        yield run(
            "1 / 0",
            "print('after', __import__('os').listdir())",
            "input()",
            "import os, IPython\nprint(os.environ.get('VSECORE_RECORD'))\nIPython.paths.get_ipython_dir()",
            "k = get_ipython().kernel\n"
            "k.session.send(k.iopub_socket, 'stream', {}, parent=k.get_parent())\nNone",
            "print('after')",
            "shown = display('small', display_id='one')\nshown.update('x' * 100_000)",
            "import ipywidgets\nbox = ipywidgets.Output()\nwith box: print('y' * 100_000)",
            "for _ in range(50): display('z' * 1000)",
            "print('more')",
            output_bytes=15_000,
        )


def test_a_cell_that_raises_is_followed_by_the_next(meddling: Any) -> None:
    notebook, trouble, end = meddling
    assert trouble[0] == "ZeroDivisionError: division by zero" and trouble[1] == "" and end == ""
    assert notebook.cells[1].outputs[0].text == "after []\n", "an empty folder, in the same kernel"
    assert "StdinNotImplementedError" in trouble[2], "nobody is there to answer"


def test_a_learners_run_records_nothing_and_keeps_no_settings(meddling: Any) -> None:
    printed, settings = meddling[0].cells[3].outputs
    assert printed.text == "None\n" and "vse-grade-" in settings.data["text/plain"]


def test_what_is_no_output_is_dropped(meddling: Any) -> None:
    notebook, trouble, _ = meddling
    assert trouble[4:6] == ["", ""] and [len(cell.outputs) for cell in notebook.cells[4:6]] == [0, 1]


def test_what_changes_later_cannot_outgrow_the_limit(meddling: Any) -> None:
    notebook, trouble, _ = meddling
    assert trouble[6:8] == ["", ""] and len(json.dumps(notebook.cells[6:8])) < 10_000


def test_output_beyond_the_limit_is_dropped(meddling: Any) -> None:
    notebook, trouble, _ = meddling
    assert 1 <= len(notebook.cells[8].outputs) < 15 and trouble[8:] == ["", ""]
    assert len(json.dumps(notebook)) < 40_000


def test_an_endless_loop_is_stopped_and_the_rest_goes_on() -> None:
    flood = "import time\nwhile True:\n    print('x' * 1000); time.sleep(0.001)"
    _, trouble, end = run(flood, "print('after')", seconds=4, output_bytes=10_000)
    assert "stopped after 2 s" in trouble[0] and trouble[1] == "" and end == ""


def test_what_ends_a_kernel_is_left_out_of_the_next_which_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "INTERRUPT_SECONDS", 1)
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    notebook, trouble, end = run("x = 1", "import os; os._exit(1)", "print(x)", stubborn, "x", seconds=8)
    assert ["ended" in why for why in trouble] == [False, True, False, False, False] and end == ""
    assert trouble[3] == "went on after it was interrupted"
    assert (
        notebook.cells[2].outputs[0].text == "1\n" and notebook.cells[4].outputs[0].data["text/plain"] == "1"
    )


def test_no_more_kernels_are_started_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "KERNELS", 2)
    _, trouble, end = run("import os; os._exit(1)", "os = __import__('os'); os._exit(1)", "print('never')")
    assert len(trouble) == 2 and "ended Python 2 times" in end


# ---- marks ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class that was graded: one is right, one is partly right and troublesome, one cheats."""
    folder = tmp_path_factory.mktemp("hand-ins")
    hand_in(folder / "anna" / "homework.ipynb", IMPORT, *RIGHT)
    hand_in(
        folder / "=<img src=x>" / "00 (1).ipynb",
        f"{IMPORT}\nassert tier == 'smoke'",
        'check("00.rank", 3)\ncheck("00.rank", 4)',
        "1 / 0",
        'def search(v, query, k):\n    raise ValueError("<script>alert(1)</script>\\x1b[2J")\n'
        'check("00.search", search)',
        'raise KeyError("<b>bold</b>")\ncheck("00.break", 0.1)',
        kernelspec={"name": "../../evil", "display_name": "<i>evil</i>", "language": "python"},
    )
    hand_in(
        folder / "chris" / "00_start_here.ipynb",
        IMPORT,
        "your_place = ...\n" + 'check("00.rank", your_place)',
        code(
            "your_place = 1 + sum(other > 0.4 for other in (0.2, 0.9, 0.1, 0.7))\n"
            'check("00.rank", your_place)',
            "solution",
        ),
        'print("✓ Write the search: 3 of 3. Right.")',
        "import sys\nmodule = sys.modules['course.checks']\n"
        "module.hand_over = lambda: '[[\"00.search\", 3], 7, [[]]]'",
        'your_recall = 100 * 5 / (5 * 1000)  # mine\ncheck("00.break", your_recall)',
    )
    (folder / "dora").mkdir()
    (folder / "dora" / "notes.ipynb").write_text("no notebook")
    (folder / "emil").mkdir()
    grade_folder(folder, grading=Grading(minutes=2, jobs=2), tell=no_words)
    return folder


def report(school: Path, learner: str) -> dict[str, Any]:
    made = json.loads((school / "grades" / "learners" / learner / "report.json").read_text("utf-8"))
    return made | {"by_key": {mark["exercise"]: mark for mark in made["exercises"]}}


def test_right_answers_get_every_point(school: Path) -> None:
    made = report(school, "anna")
    assert made["points"] == made["possible"] == POSSIBLE and made["remarks"] == []
    states = {mark["exercise"]: mark["state"] for mark in made["exercises"]}
    assert states.pop("00.predict") == states.pop("00.explore") == "noted", "nothing says that they are right"
    assert set(states.values()) == {"right"}
    executed = school / "grades" / "learners" / "anna" / "executed" / "homework.ipynb"
    assert "7" not in nbformat.read(executed, as_version=4).cells[0].source
    original = nbformat.read(school / "anna" / "homework.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in original.cells), "what was handed in stays as it was"


def test_wrong_answers_get_their_points_and_hints_and_the_last_check_counts(school: Path) -> None:
    found = report(school, "=<img src=x>")["by_key"]
    assert (found["00.rank"]["points"], found["00.rank"]["checks"]) == (1, 2)
    assert found["00.rank"]["state"] == "partly right" and "low to high" in found["00.rank"]["message"]
    assert found["00.search"]["state"] == "no points" and "ValueError" in found["00.search"]["message"]


def test_a_cell_that_raised_is_named_where_its_check_did_not_run(school: Path) -> None:
    made = report(school, "=<img src=x>")
    assert made["by_key"]["00.break"]["state"] == "not run"
    assert "KeyError" in made["by_key"]["00.break"]["message"]
    assert any("ZeroDivisionError" in remark for remark in made["remarks"])
    assert not any("AssertionError" in remark for remark in made["remarks"]), "the grader's tier counts"
    assert "ZeroDivisionError" in made["notebooks"][0]["troubles"][0]


def test_solutions_printed_judgements_and_impossible_ones_count_for_nothing(school: Path) -> None:
    made = report(school, "chris")
    assert made["by_key"]["00.rank"]["state"] == "not answered"
    assert made["by_key"]["00.search"]["state"] == "no points"
    remarks = " ".join(made["remarks"])
    assert "1 cell tagged as solutions" in remarks and "Cell 6 (import sys) names" in remarks
    assert "published solution: 00.break. In so short an answer that may be chance." in remarks


def test_remarks_are_the_instructors_and_what_stopped_a_cell_is_the_learners_too(school: Path) -> None:
    summary = Tags(school / "grades" / "summary.html")
    for learner in ("anna", "=<img src=x>", "chris", "dora"):
        page = Tags(school / "grades" / "learners" / learner / "report.html").text
        made = report(school, learner)
        troubles = [trouble for one in made["notebooks"] for trouble in one["troubles"]]
        assert all(trouble in page for trouble in troubles)
        for remark in made["remarks"]:
            assert remark in summary.text
            assert remark not in page and (remark.partition(": ")[2] in troubles) == (
                remark.partition(": ")[2] in page
            )
    assert any("tagged as solutions" in remark for remark in report(school, "chris")["remarks"])


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("from course.checks.exercise import Exercise", "course.checks"),
        ("import course.grading.marks", "course.grading"),
        ("from course import checks", "course import checks"),
        ("def check(*_): pass", "def check"),
        ("check = print", "check ="),
    ],
)
def test_a_cell_that_names_the_graders_parts_is_pointed_out(source: str, named: str) -> None:
    (remark,) = suspicions([Cell(3, source)])
    assert repr(named) in remark and remark.startswith("Cell 3 (")


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("found = nn.Module.__subclasses__()", "__subclasses__"),
        ("kinds = type(x).__mro__", "__mro__"),
        ("kinds = type(x).__bases__", "__bases__"),
        ("known = torch.__dict__", "__dict__"),
        ("from gc import get_objects", "gc"),
        ("import weakref", "weakref"),
        ("import pickle as preserve", "pickle"),
        ('setattr(torch.Tensor, "pool", pool)', "setattr("),
        ("torch.Tensor.pool = pool", "Tensor.pool ="),
        ("nn.Module.pool = pool", "Module.pool ="),
        ("vars(torch)['x']", "vars("),
        ("from os import _exit", "_exit"),
        ("import os as system\nsystem._exit(0)", "_exit"),
    ],
)
def test_a_cell_that_could_look_anywhere_is_pointed_out(source: str, named: str) -> None:
    (remark,) = suspicions([Cell(3, source)])
    assert f"{named!r}. Read it." in remark


def test_a_cell_that_only_calls_its_check_is_not_pointed_out() -> None:
    assert suspicions([Cell(3, f"{IMPORT}\npassed = check('00.rank', 3) == 3")]) == []


def test_a_file_that_is_no_notebook_is_told_and_the_others_are_graded(school: Path) -> None:
    made = report(school, "dora")
    assert made["points"] == 0 and "no notebook" in made["remarks"][0]
    assert {mark["state"] for mark in made["exercises"]} == {"not handed in"}


class Tags(HTMLParser):
    """Collect a page's tags, and the text between them."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.links: list[str] = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_nothing_that_a_learner_wrote_becomes_markup(school: Path) -> None:
    for page in (school / "grades").rglob("*.html"):
        made = Tags(page)
        assert not made.tags & {"script", "img", "b", "i", "iframe", "link"}, page
        assert not any(":" in link or link.startswith("/") for link in made.links), "nothing from elsewhere"
        assert "\x1b" not in page.read_text("utf-8")
    page = Tags(school / "grades" / "learners" / "=<img src=x>" / "report.html")
    assert "<script>alert(1)</script>" in page.text and "=<img src=x>" in page.text


def test_a_link_leads_to_any_learners_report(tmp_path: Path) -> None:
    names = ["ü%/ &\"'" + 100 * "é", "\udcff"]
    reports = [
        LearnerReport(name, name, (), (marks.not_handed_in("00.rank"),), "smoke", "2026-01-01")
        for name in names
    ]
    write_class_summary(reports, tmp_path)
    links = Tags(tmp_path / "summary.html").links
    assert [unquote(link, errors="surrogateescape") for link in links] == [
        f"learners/{name}/report.html" for name in names
    ]


def test_the_class_has_a_table_for_people_and_one_for_spreadsheets(school: Path) -> None:
    with (school / "grades" / "summary.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["learner"]: row for row in csv.DictReader(file)}
    assert rows["anna"]["percent"] == "100.0" and rows["anna"]["00.search"] == "3"
    assert rows["possible"]["00.search"] == "3" and rows["possible"]["points"] == str(POSSIBLE)
    assert "'=<img src=x>" in rows, "no name is a formula"
    page = Tags(school / "grades" / "summary.html")
    for link in page.links:
        assert (
            link.startswith("#")
            or (school / "grades" / re.sub("%(..)", lambda hit: chr(int(hit[1], 16)), link)).is_file()
        )
    assert page.text.index("Write the search") < page.text.index("Read a ranking"), "the hardest first"


def test_an_endless_loop_is_stopped_and_reported(tmp_path: Path) -> None:
    hand_in(tmp_path / "00.ipynb", 'while True: pass\ncheck("00.rank", 3)')
    said: list[str] = []
    assert (
        grade_folder(tmp_path, tmp_path / "out", Grading(minutes=3 / 60), tell=said.append)
        == tmp_path / "out" / "report.html"
    )
    made = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert made["points"] == 0 and "stopped after" in made["exercises"][0]["message"]
    assert f"0 of {POSSIBLE}" in said[-2], "then the remarks, since nobody but the learner reads the report"
    assert said[-1].startswith("  remark: ") and "stopped after" in said[-1]


def test_homework_names_what_counts(tmp_path: Path) -> None:
    hand_in(tmp_path / "anna" / "a.ipynb", "'00.rank'")
    hand_in(tmp_path / "ben" / "b.ipynb", "'04.read'")
    grading = Grading(homework=("03.ranks", "04"), minutes=1)
    page = grade_folder(tmp_path, tmp_path / "out", grading, tell=no_words)
    assert page == tmp_path / "out" / "summary.html"
    anna, ben = (
        json.loads((tmp_path / "out" / "learners" / name / "report.json").read_text("utf-8"))
        for name in ("anna", "ben")
    )
    assert (
        anna["possible"]
        == ben["possible"]
        == sum(len(EXERCISES[key].trials) for key in ["03.ranks", *marks.exercises_of(["04"])])
    )
    assert {mark["state"] for mark in anna["exercises"]} == {"not handed in"}
    assert {mark["state"] for mark in ben["exercises"]} == {"not run", "not handed in"}
    assert "not part of what was set" in anna["remarks"][0]


def test_of_two_notebooks_with_the_same_exercise_the_better_counts() -> None:
    from course.grading.grade import best_marks

    def one(name: str, points: int) -> marks.NotebookMarks:
        mark = marks.Mark("00.rank", "", "compute", points, 2, "right", "", 1, name)
        return marks.NotebookMarks(name, 1.0, (mark,), ())

    best = {mark.exercise: mark for mark in best_marks([one("a", 1), one("b", 2), one("c", 0)], ["00"])}
    assert best["00.rank"].notebook == "b" and best["00.search"].state == "not handed in"


def test_what_cannot_be_graded_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no notebook"):
        grade_folder(tmp_path, tell=no_words)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        grade_folder(tmp_path / "nowhere", tell=no_words)
    file = hand_in(tmp_path / "00.ipynb", "1")
    with pytest.raises(ValueError, match="is a file"):
        grade_folder(file, tell=no_words)
    with pytest.raises(ValueError, match=r"no notebook in .* holds an exercise"):
        grade_folder(hand_in(tmp_path / "other" / "some.ipynb", "1").parent, tell=no_words)
    with pytest.raises(ValueError, match="itself and in its subfolders"):
        grade_folder(tmp_path, tell=no_words)
    with pytest.raises(ValueError, match="among the notebooks"):
        grade_folder(tmp_path, tmp_path, tell=no_words)
    with pytest.raises(ValueError, match="quick"):
        Grading(tier="quick")
    with pytest.raises(ValueError, match="minutes"):
        Grading(minutes=0)
    with pytest.raises(ValueError, match=r"homework is '99\.step': it must be"):
        Grading(homework=("04.step", "99.step"))
    with pytest.raises(ValueError, match="deadline is 'Friday'"):
        Grading(deadline="Friday")
    with pytest.raises(ValueError, match="jobs is 0"):
        Grading(jobs=0)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.ipynb").write_text('{"cells": 3}')
    with pytest.raises(ValueError, match=r"a\.ipynb.*no notebook"):
        grade_folder(tmp_path / "broken", tell=no_words)
    assert not list(tmp_path.rglob("grades"))


def test_links_and_hidden_files_are_not_graded(tmp_path: Path) -> None:
    hand_in(tmp_path / "elsewhere" / "00_a.ipynb", "1")
    folder = tmp_path / "anna"
    hand_in(folder / ".ipynb_checkpoints" / "00_a.ipynb", "1")
    (folder / "00_b.ipynb").symlink_to(tmp_path / "elsewhere" / "00_a.ipynb")
    (folder / "inner").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="holds no notebook"):
        grade_folder(folder, tell=no_words)


def test_the_untouched_copy_of_the_first_notebook_runs(tmp_path: Path) -> None:
    write_learner_copies(["00"], tmp_path)
    grade_folder(tmp_path, tell=no_words)
    made = json.loads((tmp_path / "grades" / "report.json").read_text("utf-8"))
    assert made["remarks"] == [] and {mark["checks"] for mark in made["exercises"]} == {1}
    assert made["points"] == 0


# ---- the instructor page --------------------------------------------------------------------------------


def test_the_instructor_page_is_filled_from_notebooks_records_and_exercises() -> None:
    page = instructor_page((ROOT / "book" / "instructor.md").read_text("utf-8"))
    assert "{{" not in page
    for path in notebooks():
        assert path.stem[:2] in page
    for task in EXERCISES.values():
        assert instructor._quoted(task.title) in page
        for trial in (*task.trials, *task.mistakes):
            assert instructor._quoted(trial.hint) in page


def test_a_placeholder_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        instructor_page((ROOT / "book" / "instructor.md").read_text("utf-8") + "{{ nonsense }}")
    with pytest.raises(ValueError, match="differ in"):
        instructor_page("nothing to fill")


def test_a_notebook_that_was_not_measured_says_so() -> None:
    known = {"00": instructor.LessonPlan("00_start_here", "Start", 5.0, None, {})}  # its card says nothing
    table = instructor._timings_table(known, instructor._naming(known, set()))
    assert "| 00 Start | not measured yet |" in table
    measured = {"00": instructor.LessonPlan("00_start_here", "Start", 5.0, (0.5, 2.0), {})}
    shown = instructor._timings_table(measured, instructor._naming(measured, set()))
    assert "0.5 min | 2 GB" in shown.replace(instructor.GLUE, " ")


def test_a_course_promises_only_notebooks_that_exist_and_the_longest_has_them_all() -> None:
    existing = {path.name[:2] for path in notebooks()}
    for length, weeks in instructor.COURSES.items():
        assert len(weeks) == length
        numbers = [number for week, _ in weeks for number in week]
        assert numbers == sorted(numbers) and set(numbers) <= existing
        assert all(len(week) == len(set(week)) for week, _ in weeks), "a half a week"
        assert all(numbers.count(number) <= 2 for number in numbers)
    assert {number for week, _ in instructor.COURSES[12] for number in week} == existing


def cells_of(table: str) -> list[list[str]]:
    """A Markdown table's rows below its headings."""
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return [[cell.replace(instructor.GLUE, " ") for cell in row] for row in rows[2:]]


def test_minutes_agree_in_cards_exercises_tables_and_plans() -> None:
    tables = instructor.instructor_tables()
    hours = {}
    for path, row in zip(notebooks(), cells_of(tables["timings"]), strict=True):
        tasks = [task for key, task in EXERCISES.items() if key.startswith(path.name[:2])]
        card = nbformat.read(path, as_version=4).cells[0].source
        about = row[1].replace("0.5 min", "half a min").removesuffix(" min")
        assert re.search(rf"takes\*\* about {about} minutes? and {row[2]} of memory", card), (path, row)
        assert row[4:] == [str(len(tasks)), f"{sum(task.minutes for task in tasks)} min"]
        hours[path.name[:2]] = (int(row[3].removesuffix(" min")), sum(task.minutes for task in tasks))
    for length, weeks in instructor.COURSES.items():
        for (numbers, _), row in zip(weeks, cells_of(tables[f"weeks_{length}"]), strict=True):
            every = [number for week, _ in weeks for number in week]
            minutes = sum(sum(hours[number]) / every.count(number) for number in numbers)
            if numbers:  # the table of notebooks rounds each to a minute, that of weeks to a tenth of an hour
                assert abs(float(row[2].removesuffix(" h")) * 60 - minutes) <= 3 + len(numbers) / 2
            assert all(number in row[1] for number in numbers)
            assert row[1].count(" half") == sum(every.count(number) == 2 for number in numbers)
        assert [row[1].count("second half") for row in cells_of(tables["weeks_6"])] == [0, 0, 1, 0, 0, 0]


def test_no_week_asks_for_much_more_than_the_others() -> None:
    for length in instructor.COURSES:
        loads = [row[2] for row in cells_of(instructor.instructor_tables()[f"weeks_{length}"])]
        hours = [float(load.removesuffix(" h")) for load in loads if load.endswith(" h")]
        assert max(hours) <= 1.5 * sum(hours) / len(hours), (length, hours)


def test_every_notebook_has_something_to_talk_about() -> None:
    talk = (ROOT / "book" / "instructor.md").read_text("utf-8").split("## To talk about")[1].split("\n## ")[0]
    assert re.findall(r"^\*\*(\d\d) ", talk, re.MULTILINE) == [path.name[:2] for path in notebooks()]
