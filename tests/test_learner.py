"""A learner's first minutes: copies come and stay, links lead somewhere, a restarted kernel is explained."""

import json
import re
import subprocess
import sys
import zipfile

import nbformat
import pytest

from course import lab
from course.batch import notebooks
from course.checks import EXERCISES
from course.checks.exercise import RUN_ABOVE
from course.grading.copies import Fate, digest, learner_copy, write_learner_copies, write_package
from course.grading.parts import with_import, without_marks, without_parts
from vsecore import records
from vsecore.paths import ROOT

FIRST = notebooks()[0]


@pytest.fixture
def folder(tmp_path):
    write_learner_copies(["00", "03"], tmp_path)
    return tmp_path


def work_in(path):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[-1].source += "\nMy notes."
    nbformat.write(notebook, path)
    return path.read_bytes()


def test_given_again_new_notebooks_come_and_work_stays_unless_it_is_forced_away(folder):
    first, third = folder / FIRST.name, next(folder.glob("03_*"))
    mine = work_in(first)
    fates = write_learner_copies((), folder)
    assert [path.name for path in fates] == [path.name for path in notebooks()]
    assert first.read_bytes() == mine and fates.pop(first) is Fate.KEPT
    assert fates.pop(third) is Fate.RENEWED, "its links to new notebooks lead somewhere now"
    assert set(fates.values()) == {Fate.NEW} and all(path.is_file() for path in fates)
    assert set(write_learner_copies((), folder).values()) == {Fate.KEPT, Fate.CURRENT}
    fates = write_learner_copies(["00", "03"], folder, force=True)
    assert list(fates.values()) == [Fate.LOST, Fate.CURRENT] and b"My notes." not in first.read_bytes()


def test_running_cells_is_no_work_and_what_they_showed_stays(folder):
    path = folder / FIRST.name
    ran = nbformat.read(path, as_version=4)
    ran.cells[2].execution_count = 7
    ran.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {}}
    nbformat.write(ran, path)
    as_it_was = path.read_bytes()
    assert write_learner_copies(["00"], folder) == {path: Fate.CURRENT}
    assert path.read_bytes() == as_it_was


def test_an_older_copy_is_brought_up_to_date_only_if_nobody_worked_in_it(folder):
    paths = [folder / FIRST.name, *folder.glob("03_*")]
    for path in paths:  # as an earlier version of the course would have written it
        notebook = nbformat.read(path, as_version=4)
        notebook.cells[-1].source = "What stood here before."
        notebook.metadata["vsecore"] = dict.fromkeys(("sources", "version"), digest(notebook.cells))
        nbformat.write(notebook, path)
    mine = work_in(paths[0])
    fates = write_learner_copies((), folder)
    assert [fates[path] for path in paths] == [Fate.BEHIND, Fate.RENEWED]
    assert paths[0].read_bytes() == mine and b"What stood here before." not in paths[1].read_bytes()


@pytest.mark.parametrize("content", [b"\xff", b"no notebook", b"[]", b'{"cells": [{}], "metadata": {}}'])
def test_a_file_that_is_not_ours_stays(content, tmp_path):
    path = tmp_path / FIRST.name
    path.write_bytes(content)
    assert write_learner_copies(["00"], tmp_path) == {path: Fate.BEHIND}
    assert path.read_bytes() == content


def test_the_package_that_is_handed_out_has_records_and_no_answers_in_it(tmp_path):
    with zipfile.ZipFile(write_package(tmp_path)) as package:
        names = package.namelist() + [path.as_posix() for path in tmp_path.rglob("*")]
    assert (tmp_path / "course" / "checks" / "__init__.py").is_file()
    assert records.find(tmp_path / "results" / "warm_up")
    assert not any("answers" in name or "tests/" in name or name.endswith(".ipynb") for name in names)
    (tmp_path / "course" / "grading" / "copies.py").unlink()  # somebody's own folder
    with pytest.raises(FileExistsError, match="--out"):
        write_package(tmp_path)


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    return list(write_learner_copies((), tmp_path_factory.mktemp("copies")))


@pytest.mark.parametrize("solutions", [True, False])
@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_copy_has_every_exercise_and_no_answer_but_what_is_folded(path, solutions):
    stored = nbformat.read(path, as_version=4)
    made = learner_copy(stored, solutions=solutions)
    text = "\n".join(cell.source for cell in made.cells if cell.cell_type == "markdown")
    sources = [cell.source for cell in made.cells if cell.cell_type == "code"]
    assert not re.search(r"\{(cite|exercise|solution|admonition)", text)
    keys = [key for key in EXERCISES if key.startswith(f"{path.name[:2]}.")]
    assert keys and text.count("<summary>Solution</summary>") == (len(keys) if solutions else 0)
    for key in keys:
        assert len(re.findall(rf'\b(?:check|exercise)\("{key}"', "\n".join(sources))) == 1
        assert f"### Exercise: {EXERCISES[key].title}\n" in text
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in made.cells)
    kept = [without_parts(with_import(cell.source)) for cell in stored.cells if cell.cell_type == "code"]
    assert kept == sources and "parameters" in made.cells[1].metadata.tags
    left_out = [cell for cell in made.cells if "remove-cell" in cell.metadata.get("tags", [])]  # in the book
    assert all(cell.metadata.jupyter.source_hidden for cell in left_out)


def test_every_link_of_the_copies_leads_to_a_notebook_or_to_the_web(copies):
    for path in copies:
        cells = nbformat.read(path, as_version=4).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        assert re.findall(r"\]\(https://[^)\s]+\)", text), f"{path.name} cites nothing"
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            assert link.startswith("https://") or path.parent / link in copies, f"{link} in {path.name}"


def test_a_link_to_a_notebook_that_was_not_handed_out_is_words(tmp_path):
    first = next(iter(write_learner_copies(["04"], tmp_path)))
    alone = first.read_text("utf-8")
    assert ".ipynb)" not in alone and "*Relations* (notebook 05)" in alone
    write_learner_copies(["05"], tmp_path)
    beside = (tmp_path / "05_relations.ipynb").read_text("utf-8")
    assert f"[Learning to rank]({first.name})" in beside and "10_pooling.ipynb" not in beside
    assert write_learner_copies(["04"], tmp_path) == {first: Fate.RENEWED}
    assert "[Relations](05_relations.ipynb)" in first.read_text("utf-8")
    mine = work_in(first)
    assert write_learner_copies((), tmp_path)[first] is Fate.KEPT and first.read_bytes() == mine


RUN_EACH = """
import gc, json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
import course.checks

gc.freeze()  # a reset collects garbage, which would take longer than the cells
shell = InteractiveShell.instance()
found = []
for source in json.load(sys.stdin):
    shell.reset(new_session=False)
    shell.custom_exceptions = ()
    sys.modules.pop("course.checks", None)  # so that the cell imports it for the first time
    with capture_output() as said:
        result = shell.run_cell(source)
    found.append([said.stdout + said.stderr, type(result.error_in_exec or result.error_before_exec).__name__])
json.dump(found, sys.stdout)
"""


def run_each(sources):
    """What IPython prints for each cell, run first of all, and which exception it ends with."""
    command = [sys.executable, "-c", RUN_EACH]
    run = subprocess.run(command, input=json.dumps(sources), capture_output=True, text=True, check=True)
    return [tuple(one) for one in json.loads(run.stdout.splitlines()[-1])]


@pytest.fixture(scope="module")
def exercise_cells(copies):
    """Every exercise's cell as it is handed out, and as it is solved."""
    cells = []
    for path in copies:
        solved = nbformat.read(ROOT / "notebooks" / path.name, as_version=4).cells
        cells += nbformat.read(path, as_version=4).cells
        cells += [cell | {"source": without_marks(with_import(cell.source))} for cell in solved]
    asked = re.compile(r"\b(check|exercise)\(\"\d\d\.")
    return [cell["source"] for cell in cells if cell["cell_type"] == "code" and asked.search(cell["source"])]


def test_after_a_restart_every_exercise_judges_or_says_what_to_run_first(exercise_cells):
    look, missing = "from course.checks import check\n\n", 0
    inside, outside = (f"{look}def count():\n    {line}\n\ncount()" for line in ("n += 1", "return n + 1"))
    *ran, own, other = run_each([*exercise_cells, inside, outside])
    for source, (said, error) in zip(exercise_cells, ran, strict=True):
        judged = re.search(r"[✓…] .+: \d+ of \d+\. ", said)
        told = said.rstrip().endswith(RUN_ABOVE)
        assert told if error == "NameError" else judged and error == "NoneType", f"{source}\n{said}"
        missing += error == "NameError"
    assert missing, "no cell needs another: then this test sees nothing"
    assert own[1] == "UnboundLocalError" and RUN_ABOVE not in own[0], "no cell above can help"
    assert other[1] == "NameError"
    places = [other[0].index(words) for words in ("Traceback", "name 'n' is not defined", RUN_ABOVE)]
    assert places == sorted(places)


def test_the_first_search_needs_no_training_and_few_cells(tmp_path, monkeypatch):
    (path,) = write_learner_copies([FIRST.stem], tmp_path)
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    shown = next(number for number, source in enumerate(cells) if re.search(r"^show_search\(", source, re.M))
    assert shown < 6
    monkeypatch.setattr("vsecore.training.fit", lambda *_, **__: pytest.fail("a network is trained"))
    monkeypatch.setattr("course.lesson.fit", lambda *_, **__: pytest.fail("a network is trained"))
    monkeypatch.setattr("course.plots.show", lambda figure, alt: drawn.append(alt))
    drawn = []
    space = {"__name__": "__main__"}
    for source in cells[: shown + 1]:
        exec(source.replace('tier = "lesson"', 'tier = "smoke"'), space)
    assert len(drawn) == 1 and "pictures found for" in drawn[0]


def test_lab_opens_the_first_of_the_learners_copies(tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "ROOT", tmp_path)
    for stored in ("notebooks", "build/learner"):
        path = tmp_path / stored / FIRST.name
        path.parent.mkdir(parents=True)
        path.touch()
        assert lab.first_notebook() == path
    command = lab.lab_command(path)
    assert command[1:] == ["lab", f"--ServerApp.root_dir={tmp_path}", str(path)]
    assert "$(BIN)/python -m course lab" in (ROOT / "Makefile").read_text("utf-8")
