"""The batch run: notebooks in processes of their own, the stored ones left alone."""

import json
import re
import subprocess
import sys
import threading

import nbformat
import pytest
from nbclient import NotebookClient

from course import batch
from vsecore import scenes


def notebook(path, *cells):
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.cells[0].metadata["tags"] = ["parameters"]
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, path)
    return path


def test_the_batch_run_leaves_the_stored_notebook_alone(tmp_path, capsys):
    stored = notebook(tmp_path / "00_small.ipynb", 'tier = "lesson"', "tier")
    before = stored.read_bytes()
    batch.run([stored], tmp_path / "out", {"tier": "smoke"})
    assert stored.read_bytes() == before
    said = capsys.readouterr().out.splitlines()
    assert int(re.fullmatch(r"  00_small: \d+ s, (\d+) MB", said[1])[1]) > 20
    executed = nbformat.read(tmp_path / "out" / "00_small.ipynb", as_version=4)
    assert executed.cells[-1].outputs[0].data["text/plain"] == "'smoke'"


def test_of_several_at_once_the_longest_begin(tmp_path, monkeypatch):
    begun, together = [], threading.Barrier(2, timeout=20)

    def execute(command, output, environment, bar):
        begun.append(output.stem)
        together.wait()  # none goes on unless two of them run
        return 1.0, 1.0

    monkeypatch.setattr(batch, "_execute", execute)
    paths = [
        tmp_path / f"{name}.ipynb" for name in ("01_short", "04_learning_to_rank", "09_new", "10_pooling")
    ]
    batch.run(paths, tmp_path / "out", {}, at_once=2)
    assert set(begun[:2]) == {"04_learning_to_rank", "10_pooling"}  # the longest, as they are recorded


def test_memory_is_that_of_a_program_and_of_what_it_starts():
    hold = "held = b'x' * 100_000_000; print(flush=True); input()"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    program = subprocess.Popen([sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdin is not None and program.stdout is not None
    program.stdout.readline()
    assert 100_000_000 < batch._memory(program.pid) < 200_000_000
    program.communicate(b"\n")
    assert batch._memory(program.pid) == 0


def test_a_failing_cell_is_named_and_the_half_run_copy_kept(tmp_path):
    stored = notebook(tmp_path / "00_small.ipynb", 'tier = "lesson"', "1 / 0")
    with pytest.raises(batch.CourseError, match=r"00_small.*ZeroDivisionError"):
        batch.run([stored], tmp_path / "out", {})
    assert (tmp_path / "out" / "00_small.ipynb").exists()


def test_two_runs_of_a_widget_are_stored_alike(tmp_path):
    source = "import ipywidgets; a, b = ipywidgets.IntSlider(), ipywidgets.IntText()"
    show = "link = ipywidgets.jslink((a, 'value'), (b, 'value')); ipywidgets.HBox([a, b])"
    path, kept = notebook(tmp_path / "00_small.ipynb", source, show), []
    for _ in range(2):
        made = nbformat.read(path, as_version=4)
        NotebookClient(made).execute()
        kept.append(batch._steady(json.loads(nbformat.writes(made))))
    assert kept[0] == kept[1]
    views = [
        output["data"]["application/vnd.jupyter.widget-view+json"]
        for output in kept[0]["cells"][-1]["outputs"]
        if "application/vnd.jupyter.widget-view+json" in output["data"]
    ]
    state = kept[0]["metadata"]["widgets"][batch._WIDGET_STATE]["state"]
    assert views[0]["model_id"] == "widget-000" and views[0]["model_id"] in state
    assert any(model["model_name"] == "LinkModel" for model in state.values())


def test_the_world_is_made_with_every_kind_of_features(monkeypatch):
    sizes = {"train": 6, "dev": 3, "test": 3}
    monkeypatch.setattr(batch, "SMOKE_SIZES", sizes)
    batch.make_world("smoke")
    monkeypatch.setattr("vsecore.scenes.build._build", None)  # from here on nothing can be made
    for kind in ("grid", "region", "patch"):
        assert len(scenes.load(**sizes, features=kind).train) == 6
