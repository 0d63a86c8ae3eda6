"""Build the book from executed notebooks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vsecore.batch import CourseError, notebooks
from vsecore.course import ROOT


def build_book(executed: Path, tell: Callable[[str], None] = print) -> Path:
    """Build the book from executed notebooks, every warning an error.

    Args:
        executed: the folder of the executed notebooks: `build/notebooks`, or `notebooks` for the stored.
        tell: called with a line about what is done.

    Returns:
        The page to open, `book/_build/html/index.html`.

    Raises:
        CourseError: the book did not build; what was wrong is in the printed log.
    """
    source = ROOT / "build" / "book"
    _stage_book(executed, source)
    tell(
        f"building the book from {executed.relative_to(ROOT) if executed.is_relative_to(ROOT) else executed}"
    )
    program = Path(sysconfig.get_path("scripts")) / "jupyter-book"
    command = [str(program), "build", "-W", "-n", "--keep-going", "--quiet"]
    command += ["--path-output", str(ROOT / "book"), str(source)]
    built = subprocess.run(command, env=os.environ | {"PYTHONWARNINGS": "ignore"}, check=False)
    if built.returncode != 0:
        raise CourseError(
            "the book did not build without warnings; the lines above name the page and the line"
        )
    return ROOT / "book" / "_build" / "html" / "index.html"


def _stage_book(executed: Path, source: Path) -> None:
    """Copy the book's own pages and the executed notebooks into one folder, as jupyter-book wants them."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "book", source, ignore=shutil.ignore_patterns("_build"))
    (source / "notebooks").mkdir()
    for stored in notebooks():
        path = executed / stored.name
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing; run the whole course first, or build from the stored notebooks"
            )
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            _give_alt_text(cell)
        (source / "notebooks" / stored.name).write_text(json.dumps(notebook), encoding="utf-8")


def _give_alt_text(cell: dict[str, Any]) -> None:
    """Hand a figure's words to the book: `plots.show` stores them beside the picture as plain text."""
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "image/png" in data and "text/plain" in data:
            words = "".join(data["text/plain"])
            cell.setdefault("metadata", {}).setdefault("mystnb", {}).setdefault("image", {})["alt"] = words
