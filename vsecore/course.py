"""Run the course: what every notebook's first cell calls, the batch run, and the book.

A notebook has one source and three tiers. `begin` turns its four parameters into a `Lesson`, which checks
them, picks each tier's sizes and opens the data; `run` executes notebooks with papermill into a folder of
their own, never over the stored ones; `build_book` makes the book from executed notebooks.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from vsecore import records
from vsecore.data import scenes
from vsecore.data.files import cache_folder, write_atomically
from vsecore.data.loader import Dataset, FeatureKind
from vsecore.data.opening import DATASETS, open_dataset, picture_files, read_pixels
from vsecore.data.scenes.build import WORLD_VERSION
from vsecore.data.scenes.networks import NETWORKS, weights_file
from vsecore.recipes import Recipe
from vsecore.training import Run, fit

Tier = Literal["smoke", "lesson", "full"]
TIERS: tuple[Tier, ...] = ("smoke", "lesson", "full")
ROOT = Path(__file__).resolve().parent.parent
SMOKE_SIZES = {"train": 600, "dev": 100, "test": 200}
LESSON_RECORDS = ROOT / "assets" / "results" / "lesson"
T = TypeVar("T")


class CourseError(Exception):
    """A notebook or the book did not come through; the message says which, and where to look."""


@dataclass(frozen=True)
class Report:
    """Measured numbers beside the stored run's. Made by `Lesson.report`."""

    measured: dict[str, float]
    stored: dict[str, float] | None
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether every number is within the tolerance of the stored one. True where nothing is stored."""
        return self.stored is None or all(
            abs(value - self.stored[name]) <= self.tolerance for name, value in self.measured.items()
        )

    def __repr__(self) -> str:
        """Print the stored run where this one agrees with it, and both where it does not."""
        shown = self.stored if self.stored is not None and self.agrees else self.measured
        width = max(map(len, shown))
        lines = [f"{name:<{width}}  {value:8.1f}" for name, value in shown.items()]
        if self.stored is None:
            lines.append("Measured in this run.")
        elif self.agrees:
            lines.append(f"From the stored run; this run agrees within {self.tolerance:g}.")
        else:
            pairs = ", ".join(f"{name} {value:.1f}" for name, value in self.stored.items())
            lines.append(
                f"This run differs from the stored run by more than {self.tolerance:g}: there {pairs}."
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class Lesson:
    """One notebook's checked parameters. Made by `begin`.

    Attributes:
        tier: "smoke" (seconds, to see that all runs), "lesson" (2 CPU cores, the default) or "full" (GPUs).
        data: "scenes" or a photograph collection, one of `vsecore.data.opening.DATASETS`.
        data_root: the collection's folder; None for scenes.
        seed: seeds everything that is random.
        began: when its first cell ran, on the clock of `time.perf_counter`.
    """

    tier: Tier
    data: str
    data_root: Path | None
    seed: int
    began: float

    def pick(self, *, smoke: T, lesson: T, full: T) -> T:
        """Return this tier's value."""
        return {"smoke": smoke, "lesson": lesson, "full": full}[self.tier]

    def report(self, name: str, measured: Mapping[str, float], tolerance: float) -> Report:
        """Hold what a cell measured against the stored run of the same lesson.

        Training on another machine, or with other threads, ends a little elsewhere. The lesson therefore
        shows the stored run's numbers and says whether this run agrees with them; where there is no stored
        run of this tier and data, it shows what was measured.

        Args:
            name: the record's name in `assets/results/lesson`.
            measured: this run's numbers by their names.
            tolerance: how far a number may lie from the stored one, in its own unit.

        Returns:
            A report whose printed form is the table and the verdict.

        Raises:
            ValueError: the stored run has other names than `measured`.
        """
        if (self.tier, self.data, self.seed) != ("lesson", "scenes", 0):
            return Report(dict(measured), None, tolerance)
        if os.environ.get("VSECORE_RECORD") == "1":
            entry = records.record(
                name,
                config={"tier": self.tier},
                config_hash="",
                data={"name": self.data, "version": WORLD_VERSION},
                seed=self.seed,
                metrics={key: round(float(value), 2) for key, value in measured.items()},
                seconds=time.perf_counter() - self.began,
                note="a lesson's stored run; the seconds are since its first cell",
            )
            records.write(entry, LESSON_RECORDS)
        found = records.find(LESSON_RECORDS, name=name) if LESSON_RECORDS.is_dir() else []
        stored = found[0].metrics if found else None
        if stored is not None and stored.keys() != measured.keys():
            raise ValueError(
                f"measured has {sorted(measured)}, its record {sorted(stored)}: record {name} anew"
            )
        return Report(dict(measured), stored, tolerance)

    def dataset(self, features: FeatureKind = "grid") -> Dataset:
        """Open the data at this tier's size.

        Scenes have 600/100/200 pictures at tier smoke and 4000/500/1000 otherwise. Photographs come whole,
        but at tier smoke only the first 600/100/200 pictures of the splits are used.
        """
        sizes = SMOKE_SIZES if self.tier == "smoke" else None
        return open_dataset(self.data, self.data_root, features=features, sizes=sizes)

    def pictures(self, split: str, rows: Sequence[int]) -> list[np.ndarray]:
        """Return pictures of a split to look at, each uint8 (height, width, 3)."""
        if self.data == "scenes":
            made = scenes.pictures(split, self._count(split))
            return [scenes.draw(made[row].scene, size=224) for row in rows]
        assert self.data_root is not None  # begin saw to it
        files = picture_files(self.data_root, split)
        return read_pixels([files[row] for row in rows])

    def true_of(self, sentence: str, split: str, rows: Sequence[int]) -> tuple[list[bool] | None, str]:
        """Judge of which pictures a learner's own sentence is true.

        Returns:
            A judgement for each row and an empty remark; or None and why nobody can judge: the pictures are
            photographs, or the world's grammar cannot read the sentence.
        """
        if self.data != "scenes":
            return None, ""
        try:
            form = scenes.parse(sentence)
        except ValueError as unread:
            return None, f"\n(not judged: {unread})"
        made = scenes.pictures(split, self._count(split))
        return [scenes.holds(form, made[row].scene) for row in rows], ""

    def relevance(self, split: str) -> np.ndarray | None:
        """Return which caption is true of which picture, bool (Nc, Ni); None for photographs."""
        if self.data != "scenes":
            return None
        made = scenes.pictures(split, self._count(split))
        captions = [caption for picture in made for caption in picture.captions]
        return scenes.relevance(captions, [picture.scene for picture in made])

    def trained(self, recipe: Recipe, dataset: Dataset) -> Run:
        """Train a recipe once; then it comes from the cache, as long as nothing about it changes."""
        sources = sorted(Path(__file__).parent.rglob("*.py"))
        code = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
        key = f"{recipe.hash()}-{dataset.fingerprint()[:12]}-{code[:12]}-{self.seed}"
        return fit(recipe, dataset, folder=cache_folder("runs", key), resume=True, seed=self.seed)

    def _count(self, split: str) -> int | None:
        return SMOKE_SIZES[split] if self.tier == "smoke" else None


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
            raise ValueError(
                f"data_root is {data_root!r}, but the scenes are generated and have no folder; leave it empty"
            )
        root = None
    else:
        if not data_root:
            raise ValueError(
                f"data is {data!r}, so data_root must name the folder with its pictures and captions"
            )
        root = Path(data_root).expanduser()
        if not root.is_dir():
            raise FileNotFoundError(
                f"data_root is {data_root!r}, and there is no such folder; name the folder of {data}"
            )
    torch.manual_seed(seed)
    return Lesson(tier, data, root, seed, began=time.perf_counter())


def published(*systems: str) -> str:
    """Return what papers report of some systems, as a Markdown table made from `assets/published.json`.

    Raises:
        ValueError: nothing is known of a system.
    """
    entries = json.loads((ROOT / "assets" / "published.json").read_text(encoding="utf-8"))
    known = {entry["system"] for entry in entries}
    if unknown := set(systems) - known:
        raise ValueError(
            f"nothing is published of {min(unknown)!r} here; there are {', '.join(sorted(known))}"
        )
    recalls = [f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)]
    lines = [
        "| system | data | picture to text | text to picture | rsum | source |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for entry in (entry for entry in entries if entry["system"] in systems):
        ways = [" / ".join(f"{entry[name]:.1f}" for name in part) for part in (recalls[:3], recalls[3:])]
        rsum = sum(entry[name] for name in recalls)
        cells = [entry["system"], entry["data"], *ways, f"{rsum:.1f}", entry["source"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def check_machine(least_gigabytes: float = 6.0) -> None:
    """Look for what the course needs and print a line for each thing, with what to do where it is missing."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    room = shutil.disk_usage(cache_folder()).free / 2**30
    lines = {
        "Python 3.11 or newer": (
            sys.version_info >= (3, 11),
            "make the environment anew with a newer Python",
        ),
        "PyTorch 2.11 or newer": (
            _version(torch.__version__) >= (2, 11),
            "install what requirements.lock names",
        ),
        "memory": (
            memory >= least_gigabytes,
            f"{memory:.0f} GB found; close other programs, or take tier smoke",
        ),
        "room for the cache": (
            room >= 2,
            f"{room:.1f} GB free; VSECORE_CACHE can name a folder on another disk",
        ),
        "networks of the world": (
            all(weights_file(name).is_file() for name in NETWORKS),
            "run: vse scenes pretrain scenes-cnn, and scenes-vit",
        ),
    }
    for name, (present, remedy) in lines.items():
        print(f"✓ {name}" if present else f"✗ {name}: {remedy}")
    if all(present for present, _ in lines.values()):
        print("This machine is ready.")


def _version(text: str) -> tuple[int, int]:
    major, minor, *_ = text.split(".")
    return int(major), int(minor)


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
            raise ValueError(
                f"no notebook begins with {name!r}; there are {', '.join(path.stem for path in stored)}"
            )
        chosen.extend(fitting)
    return sorted(set(chosen)) if chosen else stored


@dataclass(frozen=True)
class NotebookRun:
    """How one notebook's batch run went: seconds of wall time, megabytes of its kernel's peak memory."""

    name: str
    seconds: float
    peak_megabytes: float


def run(
    paths: Iterable[Path],
    folder: Path,
    parameters: dict[str, Any],
    tell: Callable[[str], None] = print,
) -> list[NotebookRun]:
    """Execute notebooks with papermill, one after the other, each in a process of its own.

    Args:
        paths: the stored notebooks, which stay as they are.
        folder: where the executed copies go.
        parameters: papermill parameters, the same for each.
        tell: called with a line about each notebook.

    Returns:
        One `NotebookRun` a notebook, also written to `folder/run.json`.

    Raises:
        CourseError: a cell failed; the message names notebook and error, and the half-run copy stays in
            `folder` to look at.
    """
    folder.mkdir(parents=True, exist_ok=True)
    runs: list[NotebookRun] = []
    for path in paths:
        tell(f"running {path.stem}")
        output = folder / path.name
        command = [sys.executable, "-m", "papermill", str(path), str(output), "--cwd", str(path.parent)]
        command += ["--kernel", "python3", "--no-log-output", "--parameters_yaml", json.dumps(parameters)]
        log = output.with_suffix(".log")
        started = time.perf_counter()
        with log.open("wb") as lines:
            # The bars inside the notebook would end up in the book; papermill's own shows the cells.
            quiet = os.environ | {"VSECORE_PROGRESS": "0"}
            process = subprocess.Popen(command, env=quiet, stderr=None if sys.stderr.isatty() else lines)
            # wait4 and not wait: it also tells the largest memory of the process and of its kernel.
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise CourseError(
                f"{path.stem} stopped: {_first_error(output) or 'see ' + str(log)} (half-run copy: {output})"
            )
        runs.append(
            NotebookRun(path.stem, time.perf_counter() - started, usage.ru_maxrss / _MAXRSS_UNITS_A_MEGABYTE)
        )
        log.unlink()
        tell(f"  {runs[-1].seconds:.0f} s, {runs[-1].peak_megabytes:.0f} MB")
    with write_atomically(folder / "run.json", "w") as report:
        json.dump([vars(entry) for entry in runs], report, indent=2)
    return runs


# The kernel reports kilobytes on Linux and bytes on macOS.
_MAXRSS_UNITS_A_MEGABYTE = 1024 * 1024 if sys.platform == "darwin" else 1024


def _first_error(path: Path) -> str:
    """Return name and message of the first error stored in a notebook, or an empty string."""
    if not path.is_file():
        return ""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            if output["output_type"] == "error":
                return f"{output['ename']}: {output['evalue']}"
    return ""


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
