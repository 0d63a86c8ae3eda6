"""What notebooks tell of recorded trainings is what the records say, and their findings hold."""

import sys

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from course.batch import RESULTS, notebooks, results_cells

READ = {path: nbformat.read(path, as_version=4) for path in notebooks()}
WITH_RESULTS = [path for path, notebook in READ.items() if results_cells(notebook)]


def words(data):
    return data.get("text/markdown", data["text/plain"])


def said_now(shell, source):
    """Run a cell, and return what it shows: printed text, Markdown, the words for its figures."""
    with capture_output() as captured:
        shell.display_trap.hook = sys.displayhook  # the last value of a cell is captured too
        shell.run_cell(source).raise_error()
    return [*filter(None, [captured.stdout]), *(words(output.data) for output in captured.outputs)]


def said_then(cell):
    printed = "".join(output.text for output in cell.outputs if output.output_type == "stream")
    return [*filter(None, [printed]), *(words(output.data) for output in cell.outputs if "data" in output)]


@pytest.mark.parametrize("path", WITH_RESULTS, ids=lambda path: path.stem)
def test_results_are_what_the_records_say_and_findings_hold(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()  # whatever displays a figure asks for this one
    for cell in results_cells(READ[path]):
        said = said_now(shell, cell.source)
        if RESULTS in cell.metadata.get("tags", ()):
            assert said == said_then(cell), f"run: python -m course refresh --results {path.stem[:2]}"
            assert not [text for text in said if "it is not so" in text], "then mend the text"


def test_a_new_record_turns_no_stored_notebook_red():
    for path, notebook in READ.items():
        for cell in notebook.cells:
            tags = cell.metadata.get("tags", ())
            if RESULTS in tags:
                assert "nbval-ignore-output" in tags and "lesson.finding(" not in cell.source, path.stem
            if any(one in cell.source for one in ("experiments.studied(", "dots.show(", "records.find(")):
                assert RESULTS in tags, f"{path.stem}: {cell.source}"
