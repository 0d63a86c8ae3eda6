"""Run the course: what every notebook's first cell calls, the batch run, and the book.

A notebook has one source and three tiers. `begin` turns its four parameters into a `Lesson`, which checks
them, picks each tier's sizes and opens the data; `run` executes notebooks with papermill into a folder of
their own, never over the stored ones; `build_book` makes the book from executed notebooks.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from vsecore.data.loader import Dataset
from vsecore.data.opening import DATASETS, open_dataset

Tier = Literal["smoke", "lesson", "full"]
TIERS: tuple[Tier, ...] = ("smoke", "lesson", "full")
ROOT = Path(__file__).resolve().parent.parent
T = TypeVar("T")


@dataclass(frozen=True)
class Lesson:
    """One notebook's checked parameters. Made by `begin`.

    Attributes:
        tier: "smoke" (seconds, to see that all runs), "lesson" (2 CPU cores, the default) or "full" (GPUs).
        data: "scenes" or a photograph collection, one of `vsecore.data.opening.DATASETS`.
        data_root: the collection's folder; None for scenes.
        seed: seeds everything that is random.
    """

    tier: Tier
    data: str
    data_root: Path | None
    seed: int

    def pick(self, *, smoke: T, lesson: T, full: T) -> T:
        """Return this tier's value."""
        return {"smoke": smoke, "lesson": lesson, "full": full}[self.tier]

    def dataset(self, features: str = "grid") -> Dataset:
        """Open the data at this tier's size.

        Scenes have 600/100/200 pictures at tier smoke and 4000/500/1000 otherwise. Photographs come whole, but
        at tier smoke only the first 600/100/200 pictures of each split are used.
        """
        sizes = {"train": 600, "dev": 100, "test": 200} if self.tier == "smoke" else None
        return open_dataset(self.data, self.data_root, features=features, sizes=sizes, seed=self.seed)


def begin(tier: str = "lesson", data: str = "scenes", data_root: str | None = None, seed: int = 0) -> Lesson:
    """Check a notebook's parameters and make its run repeatable.

    Args:
        tier: one of `TIERS`.
        data: one of `vsecore.data.opening.DATASETS`.
        data_root: the folder of a photograph collection (its pictures and captions, or extracted features).
        seed: a whole number >= 0; torch's generator is seeded with it.

    Raises:
        ValueError: a parameter has no such value.
        FileNotFoundError: `data_root` is not a folder.
    """
    if tier not in TIERS:
        raise ValueError(f"tier is {tier!r}; it must be one of {', '.join(TIERS)}")
    if data not in DATASETS:
        raise ValueError(f"data is {data!r}; it must be one of {', '.join(DATASETS)}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed is {seed!r}; it must be a whole number, 0 or more")
    if data == "scenes":
        if data_root:
            raise ValueError(f"data_root is {data_root!r}, but the scenes are generated and have no folder; leave it empty")
        root = None
    else:
        if not data_root:
            raise ValueError(f"data is {data!r}, so data_root must name the folder with its pictures and captions")
        root = Path(data_root).expanduser()
        if not root.is_dir():
            raise FileNotFoundError(f"data_root is {data_root!r}, and there is no such folder; name the folder of {data}")
    torch.manual_seed(seed)
    return Lesson(tier, data, root, seed)


def notebooks(names: Iterable[str] = ()) -> list[Path]:
    """List the stored notebooks in reading order, or those whose names begin with one of `names`.

    Raises:
        ValueError: a name fits no notebook.
    """
    stored = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    chosen: list[Path] = []
    for name in names:
        fitting = [path for path in stored if path.stem.startswith(name)]
        if not fitting:
            raise ValueError(f"no notebook begins with {name!r}; there are {', '.join(path.stem for path in stored)}")
        chosen.extend(fitting)
    return sorted(set(chosen)) if chosen else stored


@dataclass(frozen=True)
class NotebookRun:
    """How one notebook's batch run went: seconds of wall time and megabytes of its kernel's peak memory."""

    name: str
    seconds: float
    peak_megabytes: float


def run(
    paths: Iterable[Path],
    folder: Path,
    parameters: dict[str, Any],
    tell: Callable[[str], None] = print,
) -> list[NotebookRun]:
    """Execute notebooks with papermill, one after the other, into `folder`.

    Args:
        paths: the stored notebooks, which stay as they are.
        folder: where the executed copies go.
        parameters: papermill parameters, the same for each.
        tell: called with a line about each notebook.

    Returns:
        One `NotebookRun` a notebook, also written to `folder/run.json`.

    Raises:
        RuntimeError: a cell failed; the message names notebook, cell and error, and the half-run copy stays in
            `folder` to look at.
    """
    import papermill

    folder.mkdir(parents=True, exist_ok=True)
    runs: list[NotebookRun] = []
    for path in paths:
        tell(f"running {path.stem}")
        started = time.perf_counter()
        output = folder / path.name
        try:
            executed = papermill.execute_notebook(
                path, output, parameters=parameters, cwd=path.parent, kernel_name="python3", log_output=False
            )
        except papermill.PapermillExecutionError as error:
            raise RuntimeError(
                f"{path.stem} stopped in cell {error.exec_count} with {error.ename}: {error.evalue}; see {output}"
            ) from error
        peak = executed.metadata.get("vsecore", {}).get("peak_megabytes", 0.0)
        runs.append(NotebookRun(path.stem, time.perf_counter() - started, peak or _children_peak_megabytes()))
        tell(f"  done in {runs[-1].seconds:.0f} s, at most {runs[-1].peak_megabytes:.0f} MB so far")
    (folder / "run.json").write_text(json.dumps([vars(entry) for entry in runs], indent=2) + "\n")
    return runs


def _children_peak_megabytes() -> float:
    """Return the largest memory of any finished child process, such as a notebook's kernel."""
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)  # kilobytes on Linux, bytes on macOS


def build_book(executed: Path, tell: Callable[[str], None] = print) -> Path:
    """Build the book from executed notebooks, every warning an error.

    Args:
        executed: the folder of the executed notebooks (`build/notebooks`, or `notebooks` for the stored ones).

    Returns:
        The page to open, `book/_build/html/index.html`.

    Raises:
        RuntimeError: the book did not build; what was wrong is in the printed log.
    """
    source = ROOT / "build" / "book"
    _stage_book(executed, source)
    tell(f"building the book from {executed.relative_to(ROOT) if executed.is_relative_to(ROOT) else executed}")
    command = [sys.executable, "-m", "jupyter_book", "build", "-W", "-n", "--keep-going", "--quiet"]
    command += ["--path-output", str(ROOT / "book"), str(source)]
    built = subprocess.run(command, env=os.environ | {"PYTHONWARNINGS": "ignore"}, check=False)
    if built.returncode != 0:
        raise RuntimeError("the book did not build without warnings; the lines above name the page and the line")
    return ROOT / "book" / "_build" / "html" / "index.html"


def _stage_book(executed: Path, source: Path) -> None:
    """Copy the book's own pages and the executed notebooks into one folder, as jupyter-book wants them."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "book", source, ignore=shutil.ignore_patterns("_build"))
    (source / "notebooks").mkdir()
    for stored in notebooks():
        path = executed / stored.name
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing; run the whole course first, or build from the stored notebooks")
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
