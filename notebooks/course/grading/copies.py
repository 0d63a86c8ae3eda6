"""Learner copies: stored notebooks with the learner's parts cut out, brought up to date and never lost."""

import copy
import hashlib
import json
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course.batch import notebooks
from course.grading.parts import key_of, with_import, without_marks, without_parts
from course.grading.plain import Directive, blocks, folded, key_of_label, plain_markdown
from vsecore.data.files import write_whole
from vsecore.paths import ROOT, results

LEARNER_FOLDER = ROOT / "build" / "learner"

_LINK = re.compile(r"\[(?P<title>[^\]]+)\]\((?P<file>(?P<number>\d\d)_\w+\.ipynb)\)")


class Fate(StrEnum):
    """What became of a copy; the value says it in words."""

    NEW = "new"
    CURRENT = "current: nothing has changed"
    RENEWED = "renewed: it was out of date, and nobody had changed it"
    KEPT = "kept: somebody has worked in it"
    BEHIND = "behind: somebody has worked in it, so it stays, but there is a newer version"
    LOST = "lost: somebody had worked in it, and --force overwrote it"


def write_learner_copies(
    names: Iterable[str] = (), folder: Path = LEARNER_FOLDER, *, solutions: bool = True, force: bool = False
) -> dict[Path, Fate]:
    """Write a copy of each stored notebook for a learner to work in, and say what became of it.

    A copy that somebody has worked in is never written over, unless by `force`, and the others are brought up
    to date all the same. Running cells is no work: a copy whose cells are as they were written counts as
    unchanged. A link to a notebook that is neither written nor in the folder becomes words. Each exercise has
    its solution folded beneath it, or all of them are left out.
    """
    chosen, made = notebooks(names), {}
    beside = {path.name for path in (*chosen, *folder.glob("*.ipynb"))}
    for path in chosen:
        stored = nbformat.read(path, as_version=4)
        try:
            made[folder / path.name] = learner_copy(stored, solutions=solutions, beside=beside)
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from error
    fates = {}
    for path, one in made.items():
        fates[path] = _fate(path, one.metadata["vsecore"], force)
        if fates[path] not in (Fate.CURRENT, Fate.KEPT, Fate.BEHIND):
            write_whole(path, f"{nbformat.writes(one)}\n".encode())
    return fates


def _fate(path: Path, newest: Mapping[str, str], force: bool) -> Fate:
    """What will become of a copy, by the digests of the newest version's cells."""
    if not path.exists():
        return Fate.NEW
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        made, now = content["metadata"]["vsecore"], digest(content["cells"])
        written, version = made["sources"], made.get("version", made["sources"])
    except (ValueError, KeyError, TypeError, AttributeError):  # not one of ours: it is theirs
        written, version, now = "", "", "unknown"
    if now == newest["sources"]:
        return Fate.CURRENT
    if now == written:
        return Fate.RENEWED
    if force:
        return Fate.LOST
    return Fate.KEPT if version == newest["version"] else Fate.BEHIND


def digest(cells: Iterable[Any]) -> str:
    """Return what changes with what somebody writes into cells, and not with what running them does."""
    sources = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


def learner_copy(
    notebook: NotebookNode, *, solutions: bool = True, outputs: bool = False, beside: Collection[str] = ()
) -> NotebookNode:
    """Return a notebook with the learner's parts cut out, no outputs, and its text in plain Markdown.

    What was cut out stands folded where the notebook has the exercise's `solution`, if these stay. All cells
    stay, except those that held nothing but a solution which is left out; each exercise's cell imports what
    judges it. `beside` are the notebooks that the learner has; a link to any other becomes words.

    Raises:
        ValueError: a part begins or ends where it should not, an exercise's solution does not follow its
            cell, or the bibliography lacks a cited paper.
    """
    made = copy.deepcopy(notebook)
    solved: dict[str, str] = {}  # the exercises that wait for their solution, with the whole cell
    for cell in made.cells:
        if cell.cell_type == "markdown":
            cell.source = in_plain_words(cell.source, solved if solutions else None)
        elif cell.cell_type == "code":
            cell.source = with_import(cell.source)
            if key := key_of(cell.source):
                solved[key] = without_marks(cell.source)
                cell.source = without_parts(cell.source)
            if not outputs:
                cell.outputs, cell.execution_count = [], None
            cell.metadata.pop("execution", None)
            if {"hide-input", "remove-cell"} & set(cell.metadata.get("tags", [])):  # the book hides them too
                cell.metadata["jupyter"] = {"source_hidden": True}
    if solutions and solved:
        raise ValueError(f"the exercise {min(solved)!r} has no solution below its cell")
    made.cells = [cell for cell in made.cells if cell.cell_type != "markdown" or cell.source.strip()]
    # The pairing with the text source would write files beside the copy; widgets' states are outputs.
    for name in ("jupytext", "widgets"):
        made.metadata.pop(name, None)
    version = digest(made.cells)  # the same whatever lies beside it

    def said(link: re.Match[str]) -> str:
        return link[0] if link["file"] in beside else f"*{link['title']}* (notebook {link['number']})"

    for cell in made.cells:
        if cell.cell_type == "markdown":
            cell.source = _LINK.sub(said, cell.source)
    made.metadata["vsecore"] = {"sources": digest(made.cells), "version": version}
    nbformat.validate(made)
    return made


def in_plain_words(text: str, solved: dict[str, str] | None) -> str:
    """Return a Markdown cell in plain words, each solution folded around the code that it is about.

    `solved` holds the whole cell of each exercise above; what is used is taken out. None: solutions go.
    """
    made: list[str] = []
    waiting = ""  # text between solutions, which is said in one piece
    for block in blocks(text):
        if isinstance(block, Directive) and block.name == "solution":
            made.append(plain_markdown(waiting))
            waiting = ""
            if solved is not None:
                key = key_of_label(block.argument)
                if key not in solved:
                    raise ValueError(f"the solution to {block.argument!r} has no cell above it")
                words = plain_markdown("\n".join(block.body))
                made.append(folded("Solution", f"{words}\n\n```python\n{solved.pop(key)}\n```"))
        else:
            waiting += f"{block if isinstance(block, str) else block.source}\n"
    made.append(plain_markdown(waiting))
    return "\n\n".join(part for part in made if part.strip())


def write_package(folder: Path) -> Path:
    """Write ``vsecore`` as a file that pip installs, the folder ``course``, and ``results``, the records.

    Tests and notebooks are left out.
    """
    from hatchling.builders.wheel import WheelBuilder

    source, target = Path(__file__).parents[1], folder / "course"
    if target.exists() and (target.samefile(source) or not (target / "grading" / "copies.py").is_file()):
        raise FileExistsError(f"{target} is not an older copy of the course: name another folder with --out")
    shutil.rmtree(target, ignore_errors=True)  # an older one may have modules that are gone
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(results(), folder / "results", dirs_exist_ok=True)  # where an installed package looks
    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))
