"""The batch run: notebooks in processes of their own, the stored ones left alone."""

import json
from pathlib import Path

import nbformat
import pytest

from vsecore.course import batch


def test_notebooks_are_found_by_the_beginning_of_their_name() -> None:
    assert [path.stem for path in batch.notebooks(["04"])] == ["04_learning_to_rank"]
    assert batch.notebooks()[0].stem == "00_start_here"
    with pytest.raises(ValueError, match="99"):
        batch.notebooks(["99"])


def notebook(path: Path, *cells: str) -> Path:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.cells[0].metadata["tags"] = ["parameters"]
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, path)
    return path


def test_the_batch_run_leaves_the_stored_notebook_alone(tmp_path: Path) -> None:
    stored = notebook(tmp_path / "00_small.ipynb", 'tier = "lesson"', "tier")
    before, said = stored.read_bytes(), []
    (entry,) = batch.run([stored], tmp_path / "out", {"tier": "smoke"}, said.append)
    assert stored.read_bytes() == before
    assert entry.seconds > 0 and entry.peak_megabytes > 20 and len(said) == 2
    executed = nbformat.read(tmp_path / "out" / "00_small.ipynb", as_version=4)
    assert executed.cells[-1].outputs[0].data["text/plain"] == "'smoke'"
    assert json.loads((tmp_path / "out" / "run.json").read_text())[0]["name"] == "00_small"


def test_several_at_once_keep_their_order(tmp_path: Path) -> None:
    paths = [notebook(tmp_path / f"0{n}_small.ipynb", f"import time; time.sleep({2 - n})") for n in (0, 1, 2)]
    runs = batch.run(paths, tmp_path / "out", {}, lambda line: None, at_once=2)
    assert [entry.name for entry in runs] == ["00_small", "01_small", "02_small"]
    assert [entry["name"] for entry in json.loads((tmp_path / "out" / "run.json").read_text())] == [
        "00_small",
        "01_small",
        "02_small",
    ]


def test_a_failing_cell_is_named_and_the_half_run_copy_kept(tmp_path: Path) -> None:
    stored = notebook(tmp_path / "00_small.ipynb", 'tier = "lesson"', "1 / 0")
    with pytest.raises(batch.CourseError, match=r"00_small.*ZeroDivisionError"):
        batch.run([stored], tmp_path / "out", {}, lambda line: None)
    assert (tmp_path / "out" / "00_small.ipynb").exists()


def test_two_runs_of_a_widget_are_stored_alike(tmp_path: Path) -> None:
    source = "import ipywidgets; a, b = ipywidgets.IntSlider(), ipywidgets.IntText()"
    show = "link = ipywidgets.jslink((a, 'value'), (b, 'value')); ipywidgets.HBox([a, b])"
    path, kept = notebook(tmp_path / "00_small.ipynb", source, show), []
    for name in ("first", "second"):
        output = tmp_path / name / path.name
        batch.run([path], output.parent, {}, lambda line: None)
        made = json.loads(output.read_text())
        for extra in ("papermill", "language_info"):
            made["metadata"].pop(extra, None)
        for cell in made["cells"]:
            cell["metadata"].pop("papermill", None)
        kept.append(batch._steady(made))
    assert kept[0] == kept[1]
    views = [
        output["data"][batch._WIDGET_VIEW]
        for output in kept[0]["cells"][-1]["outputs"]
        if batch._WIDGET_VIEW in output["data"]
    ]
    state = kept[0]["metadata"]["widgets"][batch._WIDGET_STATE]["state"]
    assert views[0]["model_id"] == "widget-000" and views[0]["model_id"] in state
    assert any(model["model_name"] == "LinkModel" for model in state.values())
