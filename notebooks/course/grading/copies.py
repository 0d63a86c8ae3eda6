"""Learner copies on disk: new notebooks come, old ones are brought up to date, and work is never lost."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path

import nbformat

from course.batch import notebooks
from course.grading.learner import digest, learner_copy
from course.grading.plain import citations
from vsecore.data.files import write_atomically
from vsecore.paths import ROOT

LEARNER_FOLDER = ROOT / "build" / "learner"


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
    """Write a copy of each stored notebook for a learner to work in.

    A copy that somebody has worked in is never written over, and the others are brought up to date all the
    same. Running cells is no work: a copy whose cells are as they were written counts as unchanged. A link to
    a notebook that is neither written nor in the folder becomes words.

    Args:
        names: beginnings of notebooks' names, such as "04"; none: all.
        folder: where the copies go.
        solutions: fold a solution beneath each exercise; otherwise leave all of them out.
        force: write over copies that were worked in, too.

    Returns:
        The copies, and what became of each.

    Raises:
        ValueError: a name fits no notebook, or a notebook cannot be copied (see `learner_copy`). Then
            nothing is written.
    """
    cite = citations()
    chosen = notebooks(names)
    beside = {path.name for path in (*chosen, *folder.glob("*.ipynb"))}
    made = {}
    for path in chosen:
        try:
            made[folder / path.name] = learner_copy(
                nbformat.read(path, as_version=4), cite, solutions=solutions, beside=beside
            )
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from error
    fates = {}
    for path, copy in made.items():
        fates[path] = _fate(path, copy.metadata["vsecore"], force)
        if fates[path] in (Fate.NEW, Fate.RENEWED, Fate.LOST):
            with write_atomically(path, "w") as file:
                file.write(nbformat.writes(copy) + "\n")
        elif fates[path] in (Fate.KEPT, Fate.BEHIND):
            _rehouse(path)
    return fates


def _rehouse(path: Path) -> None:
    """Let a copy import the course where it is now: once it was ``vsecore.course``."""
    text = path.read_text(encoding="utf-8")
    if "vsecore.course" in text or "from vsecore import course" in text:
        copy = nbformat.reads(text, as_version=4)
        for cell in copy.cells:
            source = re.sub(
                r"\bvsecore\.course\.book import (dots|tally)\b", r"course import \1", cell.source
            )
            source = re.sub(r"\bvsecore\.course\.book\b", "coursebook", source)
            source = re.sub(r"\bvsecore\.course\b", "course", source)
            cell.source = re.sub(r"\bfrom vsecore import course\b(, )?", _two_imports, source)
        with write_atomically(path, "w") as file:
            file.write(nbformat.writes(copy) + "\n")


def _two_imports(line: re.Match[str]) -> str:
    return "import course\nfrom vsecore import " if line[1] else "import course"


def write_package(folder: Path) -> Path:
    """Write ``vsecore`` as a file that pip installs, and the folder ``course``, which notebooks import.

    They are handed out beside the copies. Neither has tests, whose answers are right ones, nor notebooks,
    whose solutions are.

    Raises:
        ModuleNotFoundError: what builds packages is not installed.
    """
    from hatchling.builders.wheel import WheelBuilder

    shutil.copytree(
        Path(__file__).parents[1],
        folder / "course",
        ignore=shutil.ignore_patterns("__pycache__"),
        dirs_exist_ok=True,
    )
    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))


def _fate(path: Path, newest: Mapping[str, str], force: bool) -> Fate:
    """What will become of a copy, by the digests of the newest version's cells."""
    if not path.exists():
        return Fate.NEW
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        made, now = content["metadata"]["vsecore"], digest(content["cells"])
        written, version = made["sources"], made.get("version", made["sources"])
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ):  # not one of ours: whoever wrote it, it is theirs
        written, version, now = "", "", "unknown"
    if now == newest["sources"]:
        return Fate.CURRENT
    if now == written:
        return Fate.RENEWED
    if force:
        return Fate.LOST
    return Fate.KEPT if version == newest["version"] else Fate.BEHIND
