"""`python -m course`: copies, grading, and mistakes told in a sentence."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from course import __main__ as commands
from course.checks import EXERCISES
from vsecore import stopping


def run(*arguments):
    result = CliRunner().invoke(commands.app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["course", "99", "--tier", "smoke"], ["99", "00_start_here"]),
        (["course", "--data", "flickr8k"], ["data_root"]),
        (["learner", "99"], ["99", "00_start_here"]),
        (["grade", "nowhere"], ["nowhere", "folder"]),
        (["grade", "."], ["no notebook"]),
        (["grade", ".", "--homework", "99"], ["99", "00"]),
        (["grade", "nowhere", "--out", "file"], ["is a file"]),
        (["learner", "--out", "file/inner"], ["is a file"]),
        (["learner", "--package"], ["--out"]),
    ],
)
def test_bad_input_is_told_in_a_sentence(arguments, words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["course", *arguments])
    monkeypatch.setattr(stopping, "stop_tidily", lambda _: None)  # it would stop other tests of this process
    Path("file").write_text("here already")
    with pytest.raises(SystemExit) as stopped:
        commands.main()
    said = capsys.readouterr().err
    assert stopped.value.code == 2 and "Traceback" not in said
    assert all(word in said for word in words), said
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "something half-written was left"


def test_a_newer_version_goes_beside_the_folder_where_you_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("00_start_here.ipynb").write_text("somebody's")
    assert f'--out "{tmp_path}-newer"' in run("learner", "00", "--out", ".")


def test_an_assignment_for_otter_is_written_once(tmp_path):
    said = run("learner", "00", "--otter", "--out", tmp_path)
    assert said.startswith(f'otter assign "{tmp_path / "00_start_here.ipynb"}"')
    cells = json.loads((tmp_path / "00_start_here.ipynb").read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    assert sum(source.startswith("# BEGIN QUESTION") for source in sources) == 5
    points = sum(len(task.trials) for key, task in EXERCISES.items() if key.startswith("00."))
    assert sum("# BEGIN TEST CONFIG" in source for source in sources) == points
    everything = "\n".join(sources)
    assert "@exercise" not in everything, "it would put a right function in the place of a wrong one"
    assert "# your part" not in everything and 'judgement = check("00.search", ' in everything
    result = CliRunner().invoke(commands.app, ["learner", "00", "--otter", "--out", str(tmp_path)])
    assert isinstance(result.exception, FileExistsError), "somebody may have changed it"
