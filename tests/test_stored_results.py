"""What a notebook tells of recorded trainings is what the records say: words for a figure, and sentences."""

from __future__ import annotations

import ast
from typing import Any

import nbformat
import pytest

from vsecore.course import plots
from vsecore.course.batch import notebooks
from vsecore.course.book import dots

READ = {path: nbformat.read(path, as_version=4) for path in notebooks()}
DRAWS = "dots.words_for("
WITH_RESULTS = [path for path, notebook in READ.items() if DRAWS in nbformat.writes(notebook)]
"""The notebooks with a dot plot of recorded trainings."""


def of_records(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The dot plot's cell, and the cells below it that tell more of the same records."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    begin = next(place for place, cell in enumerate(code) if DRAWS in cell.source)
    told = [cell for cell in code[begin + 1 :] if "\nMarkdown(" in cell.source]
    return [code[begin], *told]


def imports(notebook: nbformat.NotebookNode) -> str:
    """The import statements of a notebook's cells."""
    lines = (
        line for cell in notebook.cells if cell.cell_type == "code" for line in ast.parse(cell.source).body
    )
    return "\n".join(ast.unparse(line) for line in lines if isinstance(line, ast.Import | ast.ImportFrom))


def stored(cell: nbformat.NotebookNode) -> str:
    """What a cell tells: the words for its figure, or its Markdown."""
    [data] = [output["data"] for output in cell.outputs if "data" in output]
    return data.get("text/markdown") or data["text/plain"]


def told_now(source: str, space: dict[str, Any], drawn: list[str]) -> str:
    """Run a cell, and return what it tells."""
    *steps, last = ast.parse(source).body
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(steps, []), "cell", "exec"), space)
    result = eval(compile(ast.Expression(last.value), "cell", "eval"), space)
    return drawn.pop() if result is None else result.data


@pytest.mark.parametrize("path", WITH_RESULTS, ids=lambda path: path.stem)
def test_a_dot_plots_words_and_the_sentences_below_it_say_what_is_recorded_now(
    path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(plots, "show", lambda figure, alt: drawn.append(alt))
    monkeypatch.setattr(dots, "compared", lambda *_: None)
    cells, space = of_records(READ[path]), {}
    assert "image/png" in str(cells[0].outputs) and len(cells) > 1
    exec(imports(READ[path]), space)
    for cell in cells:
        assert told_now(cell.source, space, drawn) == stored(cell), f"run: vse refresh {path.stem[:2]}"


def test_every_dot_plot_is_looked_at() -> None:
    sources = {path: nbformat.writes(notebook) for path, notebook in READ.items()}
    plotting = [path for path, source in sources.items() if "dots.compared(" in source]
    assert plotting == WITH_RESULTS != []
    assert all(sources[path].count(text) == 1 for path in plotting for text in (DRAWS, "dots.compared("))
