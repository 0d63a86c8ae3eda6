"""What a notebook tells of recorded trainings is what the records say: words for a figure, and sentences."""

from __future__ import annotations

import ast
from itertools import takewhile
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
    folded = list(takewhile(lambda cell: "hide-input" in cell.metadata.get("tags", ()), code[begin:]))
    told = [cell for cell in code[begin + len(folded) :] if "\nMarkdown(" in cell.source]
    return [*folded, *told]


def definitions(notebook: nbformat.NotebookNode) -> str:
    """The import statements of a notebook's cells, and its functions that are no exercises."""
    lines = (
        line for cell in notebook.cells if cell.cell_type == "code" for line in ast.parse(cell.source).body
    )
    return "\n".join(
        ast.unparse(line)
        for line in lines
        if isinstance(line, ast.Import | ast.ImportFrom)
        or (isinstance(line, ast.FunctionDef) and not line.decorator_list)
    )


def stored(cell: nbformat.NotebookNode) -> list[str]:
    """What a cell tells: the words for its figures, and its Markdown."""
    found = [output["data"] for output in cell.outputs if "data" in output]
    return [data.get("text/markdown", data["text/plain"]) for data in found]


def told_now(source: str, space: dict[str, Any], drawn: list[str]) -> list[str]:
    """Run a cell, and return what it tells."""
    drawn.clear()
    *steps, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        steps, last = [*steps, last], ast.Expr(ast.Constant(None))
    exec(compile(ast.Module(steps, []), "cell", "exec"), space)
    result = eval(compile(ast.fix_missing_locations(ast.Expression(last.value)), "cell", "eval"), space)
    return [*drawn, *([] if result is None else [result.data])]


@pytest.mark.parametrize("path", WITH_RESULTS, ids=lambda path: path.stem)
def test_a_dot_plots_words_and_the_sentences_below_it_say_what_is_recorded_now(
    path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(plots, "show", lambda figure, alt: drawn.append(alt))
    monkeypatch.setattr(dots, "compared", lambda *_: None)
    cells, space = of_records(READ[path]), {}
    assert any(stored(cell) for cell in cells)  # sentences, if nothing is recorded yet
    exec(definitions(READ[path]), space)
    for cell in cells:
        assert told_now(cell.source, space, drawn) == stored(cell), f"run: vse refresh {path.stem[:2]}"


def test_every_dot_plot_is_looked_at() -> None:
    sources = {path: nbformat.writes(notebook) for path, notebook in READ.items()}
    plotting = [path for path, source in sources.items() if "dots.compared(" in source]
    assert plotting == WITH_RESULTS != []
    for path in plotting:
        assert sources[path].count(DRAWS) == sources[path].count("dots.compared(") > 0
        looked_at = sum(cell.source.count(DRAWS) for cell in of_records(READ[path]))
        assert looked_at == sources[path].count(DRAWS)
