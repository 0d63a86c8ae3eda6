"""What is in a learner copy: a stored notebook with the learner's parts cut out."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

import nbformat
from nbformat import NotebookNode

from course.grading.parts import key_of, with_import, without_marks, without_parts
from course.grading.plain import Directive, blocks, folded, key_of_label, plain_markdown

_LINK = re.compile(r"\[(?P<title>[^\]]+)\]\((?P<file>(?P<number>\d\d)_\w+\.ipynb)\)")


def learner_copy(
    notebook: NotebookNode,
    cite: Callable[[str], str],
    *,
    solutions: bool = True,
    beside: Collection[str] | None = None,
) -> NotebookNode:
    """Cut the learner's parts out of a notebook, clear its outputs and say its text in plain Markdown.

    What was cut out stands folded where the notebook has the exercise's `solution`. All cells stay, in their
    order, except those that held nothing but a solution which is left out; each exercise's cell imports what
    judges it.

    Args:
        notebook: a stored notebook; it is not changed.
        cite: see `plain.citations`.
        solutions: whether the folded solutions stay.
        beside: the files of the notebooks that the learner has; a link to any other becomes words. None: all
            links stay.

    Raises:
        ValueError: a part begins or ends where it should not, an exercise's solution does not follow its
            cell, or the bibliography lacks a cited paper.
    """
    made = copy.deepcopy(notebook)
    made.cells = []
    solved: dict[str, str] = {}  # the exercises that wait for their solution, with the whole cell
    for original in notebook.cells:
        cell = copy.deepcopy(original)
        if cell.cell_type == "markdown":
            cell.source = _with_solutions(cell.source, solved if solutions else None, cite)
            if not cell.source.strip():
                continue
        elif cell.cell_type == "code":
            cell.source = with_import(cell.source)
            if key := key_of(cell.source):
                solved[key] = without_marks(cell.source)
                cell.source = without_parts(cell.source)
            cell.outputs, cell.execution_count = [], None
            cell.metadata.pop("execution", None)
            if "hide-input" in cell.metadata.get("tags", []):  # folded in the book, and so in JupyterLab
                cell.metadata["jupyter"] = {"source_hidden": True}
        made.cells.append(cell)
    if solutions and solved:
        raise ValueError(f"the exercise {min(solved)!r} has no solution below its cell")
    # The pairing with the text source would write files beside the copy; widgets' states are outputs.
    for name in ("jupytext", "widgets"):
        made.metadata.pop(name, None)
    version = digest(made.cells)  # the same whatever lies beside it
    if beside is not None:
        _unlink(made.cells, beside)
    made.metadata["vsecore"] = {"sources": digest(made.cells), "version": version}
    nbformat.validate(made)
    return made


def _with_solutions(text: str, solved: dict[str, str] | None, cite: Callable[[str], str]) -> str:
    """A Markdown cell in plain words, each solution folded around the code that it is about.

    Args:
        text: of the cell.
        solved: the whole cell of each exercise above; what is used is taken out. None: solutions go.
        cite: see `plain.citations`.

    Raises:
        ValueError: a solution to no exercise above.
    """
    made: list[str] = []
    waiting = ""  # text between solutions, which is said in one piece
    for block in blocks(text):
        if isinstance(block, Directive) and block.name == "solution":
            made.append(plain_markdown(waiting, cite))
            waiting = ""
            if solved is not None:
                key = key_of_label(block.argument)
                if key not in solved:
                    raise ValueError(f"the solution to {block.argument!r} has no cell above it")
                words = plain_markdown("\n".join(block.body), cite)
                made.append(folded("Solution", f"{words}\n\n```python\n{solved.pop(key)}\n```"))
        else:
            waiting += f"{block if isinstance(block, str) else block.source}\n"
    made.append(plain_markdown(waiting, cite))
    return "\n\n".join(part for part in made if part.strip())


def _unlink(cells: Iterable[NotebookNode], beside: Collection[str]) -> None:
    """Make words of links to notebooks that the learner does not have."""

    def said(link: re.Match[str]) -> str:
        return link[0] if link["file"] in beside else f"*{link['title']}* (notebook {link['number']})"

    for cell in cells:
        if cell.cell_type == "markdown":
            cell.source = _LINK.sub(said, cell.source)


def digest(cells: Iterable[Any]) -> str:
    """Changes with what somebody writes into cells, and not with what running them does."""
    sources = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()
