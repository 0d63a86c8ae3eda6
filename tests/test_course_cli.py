"""`python -m course`: copies, grading, and mistakes told in a sentence."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from course import __main__ as commands
from vsecore import stopping


def run(*arguments):
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
    arguments,
    words,
    capsys,
    monkeypatch,
    tmp_path,
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["course", *arguments])
    monkeypatch.setattr(
        stopping, "stop_tidily", lambda _: None
    )  # other tests of this process are not stopped
    Path("file").write_text("here already")
    with pytest.raises(SystemExit) as stopped:
        commands.main()
    said = capsys.readouterr().err
    assert stopped.value.code == 2 and "Traceback" not in said
    assert all(word in said for word in words), said
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "something half-written was left"
