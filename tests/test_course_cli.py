"""`python -m course`: copies, grading, and mistakes told in a sentence."""

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from course import __main__ as commands
from course.checks import EXERCISES
from course.grading.copies import renewed


def run(*arguments: object) -> str:
    result = CliRunner().invoke(commands.app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["course", "99", "--tier", "smoke"], ["99", "00_start_here"]),
        (["course", "--tier", "quick"], ["quick", "smoke"]),
        (["course", "--data", "flickr8k"], ["data_root"]),
        (["learner", "99"], ["99", "00_start_here"]),
        (["grade", "nowhere"], ["nowhere", "folder"]),
        (["grade", "."], ["no notebook"]),
        (["grade", ".", "--tier", "quick"], ["quick", "smoke"]),
        (["grade", ".", "--homework", "99"], ["99", "00"]),
        (["grade", ".", "--minutes", "0"], ["minutes", "0"]),
        (["grade", "nowhere", "--out", "file"], ["is a file"]),
        (["learner", "--out", "file/inner"], ["is a file"]),
        (["learner", "--package"], ["--out"]),
    ],
)
def test_bad_input_is_told_in_a_sentence(
    arguments: list[str],
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["course", *arguments])
    Path("file").write_text("here already")
    with pytest.raises(SystemExit) as stopped:
        commands.main()
    said = capsys.readouterr().err
    assert stopped.value.code == 2 and "Traceback" not in said
    assert all(word in said for word in words), said
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "something half-written was left"


def test_a_copy_made_when_the_course_was_part_of_the_package_imports_it_where_it_is(tmp_path: Path) -> None:
    run("learner", "10", "--out", tmp_path)
    copy = tmp_path / "10_pooling.ipynb"
    old = copy.read_text().replace('"import course\\n"', '"from vsecore import course, records\\n"')
    old = old.replace("from course", "from vsecore.course").replace("...  # your part", "42  # your part")
    assert "from vsecore import course, " in old and old.count("vsecore.course") > 3
    copy.write_text(re.sub(r'"sources": "', r'"sources": "older', old))
    assert "kept" in run("learner", "10", "--out", tmp_path)
    made = copy.read_text()
    assert "vsecore.course" not in made and "42  # your part" in made
    assert renewed("from vsecore.course.book.findings import DATA") == "from course.verdicts import DATA"
    assert renewed("from vsecore.course.book.wording import mean") == "from course.wording import mean"
    assert "import course; from vsecore import records" in made and json.loads(made)["cells"]


def test_learner_copies_are_written_and_what_became_of_each_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    said = run("learner", "00", "--out", folder)
    copy = folder / "00_start_here.ipynb"
    assert said.startswith("1 notebook to work in: ")
    assert "  00_start_here: new\n" in said and f'-m course lab "{copy}"' in said
    assert "  00_start_here: current: " in run("learner", "00", "--out", folder)
    copy.write_text(copy.read_text().replace("your_place = ...", "your_place = 3"))
    said = run("learner", "00", "03", "--out", folder)
    assert said.startswith("2 notebooks to work in: ")
    assert "  00_start_here: kept: " in said and "  03_joint_space: new\n" in said and "newer" not in said
    copy.write_text(re.sub(r'"(sources|version)": "', r'"\1": "older', copy.read_text()))
    said = run("learner", "00", "--out", folder)
    assert "  00_start_here: behind: " in said and f'-m course learner 00 --out "{folder}-newer"' in said
    assert "  00_start_here: lost: " in run("learner", "00", "--out", folder, "--force")
    assert "your_place = ..." in copy.read_text()


def test_grading_tells_the_page_to_open(tmp_path: Path) -> None:
    cell = {
        "cell_type": "code",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": "'00.rank'",
    }
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    (tmp_path / "mine.ipynb").write_text(json.dumps(notebook))
    said = run("grade", tmp_path, "--homework", "00")
    assert "0 of 11 points" in said and f"open {tmp_path / 'grades' / 'report.html'}" in said


def test_an_assignment_for_otter_is_written_once(tmp_path: Path) -> None:
    said = run("learner", "00", "--otter", "--out", tmp_path)
    assert said.startswith(f'otter assign "{tmp_path / "00_start_here.ipynb"}"')
    sources = [
        "".join(cell["source"])
        for cell in json.loads((tmp_path / "00_start_here.ipynb").read_text())["cells"]
    ]
    assert sum(source.startswith("# BEGIN QUESTION") for source in sources) == 5
    points = sum(len(task.trials) for key, task in EXERCISES.items() if key.startswith("00."))
    assert sum("# BEGIN TEST CONFIG" in source for source in sources) == points
    everything = "\n".join(sources)
    assert "@exercise" not in everything, "it would put a right function in the place of a wrong one"
    assert "# your part" not in everything and 'judgement = check("00.search", ' in everything
    result = CliRunner().invoke(commands.app, ["learner", "00", "--otter", "--out", str(tmp_path)])
    assert isinstance(result.exception, FileExistsError), "somebody may have changed it"
