"""What every notebook's first cell calls.

A notebook has one source and three tiers. `begin` checks its four parameters and turns them into a `Lesson`,
which picks each tier's sizes, opens the data, and compares what was measured with the stored run.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import psutil
import torch

from vsecore import records, scenes, threads
from vsecore.course.attention import Seen
from vsecore.course.datasets import DATASETS, open_dataset, picture_files, read_pixels
from vsecore.course.meanings import why_unread
from vsecore.data.files import cache_folder, in_batch, locked, read_json, write_atomically
from vsecore.data.karpathy import find_annotations
from vsecore.data.splits import Dataset, FeatureKind, Split
from vsecore.paths import PACKAGE, results
from vsecore.recipes import Recipe
from vsecore.scenes.build import SIZES, WORLD_VERSION, boxes_of
from vsecore.scenes.facts import SIDE
from vsecore.scenes.networks import NETWORKS, weights_file
from vsecore.training import Run, fit

Tier = Literal["smoke", "lesson", "full"]
TIERS: tuple[Tier, ...] = ("smoke", "lesson", "full")
SMOKE_SIZES = {"train": 600, "dev": 100, "test": 200}
LESSON_RECORDS = results() / "lesson"
RECORD, REPORTS = "VSECORE_RECORD", "VSECORE_REPORTS"
"""Environment variables for authors: "1" makes this run the stored one; a folder that collects reports."""
EXACT = 0.05
"""Half a unit of the last digit that a report shows: no tolerance is smaller."""
T = TypeVar("T")


@dataclass(frozen=True)
class Report:
    """Measured numbers beside the stored run's. Made by `Lesson.report`.

    Attributes:
        measured: this run's numbers by their names.
        stored: the stored run's; None if there are none.
        spread: the standard deviation of each over the authors' runs, which differ in rounding alone, as
            runs on other machines do; empty: unknown.
        runs: how many runs those were.
    """

    measured: dict[str, float]
    stored: dict[str, float] | None = None
    spread: dict[str, float] = field(default_factory=dict)
    runs: int = 1

    @property
    def tolerance(self) -> float:
        """How far a number may be from the stored one: four times the largest spread, rounded up to tenths.

        Numbers without a spread must agree to the last digit that is shown.
        """
        largest = max(self.spread.values(), default=0.0)
        return max(EXACT, math.ceil(40 * largest) / 10)

    @property
    def agrees(self) -> bool:
        """Whether every number is within the tolerance of the stored one. True if nothing is stored."""
        return self.stored is None or all(
            abs(value - self.stored[name]) <= self.tolerance for name, value in self.measured.items()
        )

    def __repr__(self) -> str:
        """The numbers and the verdict, as a table.

        In batch (see `files.in_batch`) only the stored run's numbers are shown if they agree, so that the
        text is the same on every machine. A learner at work sees both.
        """
        stored = self.stored or {}
        both = bool(stored) and not (in_batch() and self.agrees)
        columns = ["this run", "stored run"] if both else [""]
        width = max(map(len, self.measured))
        lines = ["  ".join([" " * width, *(f"{column:>10}" for column in columns)])] if both else []
        for name, value in self.measured.items():
            shown = [value, stored[name]] if both else [stored.get(name, value)]
            lines.append("  ".join([f"{name:<{width}}", *(f"{number:10.1f}" for number in shown)]))
        if self.stored is None:
            lines.append("Measured in this run.")
        elif self.agrees:
            whose = "They agree" if both else "From the stored run; this run agrees"
            lines.append(f"{whose} within {self._margin()}.")
        else:
            lines.append(f"They differ by more than {self._margin()}.")
        return "\n".join(lines)

    def _margin(self) -> str:
        """The tolerance, and where it comes from."""
        if self.tolerance == EXACT:
            return f"{EXACT}"
        return f"{self.tolerance:.1f} (four standard deviations over {self.runs} runs)"


@dataclass(frozen=True)
class Lesson:
    """One notebook's checked parameters. Made by `begin`.

    Attributes:
        tier: "smoke" (seconds, to see that all runs), "lesson" (2 CPU cores, the default) or "full" (GPUs).
        data: "scenes" or a photograph collection, one of `vsecore.course.datasets.DATASETS`.
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

    def report(self, name: str, measured: Mapping[str, float]) -> Report:
        """Compare what a cell measured with the stored run of the same lesson.

        Training on another machine, or with another number of threads, gives slightly different numbers. So
        the lesson shows the stored run's numbers and says whether this run agrees; if no stored run has these
        numbers for this tier, data and seed, it shows what was measured.

        How far a number may be from the stored one was measured too: see `Report.tolerance`.

        Args:
            name: the record's name in `assets/results/lesson`.
            measured: this run's numbers by their names.

        Returns:
            A report whose printed form is the table and the verdict.
        """
        numbers = {key: round(float(value), 4) for key, value in measured.items()}
        if folder := os.environ.get(REPORTS):
            with write_atomically(Path(folder) / f"{name}-{secrets.token_hex(4)}.json", "w") as file:
                json.dump(numbers, file)
        if (self.tier, self.data, self.seed) != ("lesson", "scenes", 0):
            return Report(dict(measured))
        if os.environ.get(RECORD) == "1":
            self._record(name, numbers)
        stored = _stored(name)
        if stored is None or stored.metrics.keys() != measured.keys():
            return Report(dict(measured))  # not recorded yet, or a learner has put in numbers of their own
        spread, runs = stored.config.get("spread", {}), stored.config.get("runs", 1)
        return Report(dict(measured), stored.metrics, spread, runs)

    def _record(self, name: str, numbers: dict[str, float]) -> None:
        """Make this run's numbers the stored ones, with a new spread or the one already known."""
        folder = os.environ.get(REPORTS)
        files = sorted(Path(folder).glob(f"{name}-*.json")) if folder else []
        config: dict[str, Any] = {"tier": self.tier}
        if len(files) > 1:
            config |= {"spread": _spread(name, [read_json(file) for file in files]), "runs": len(files)}
        elif (before := _stored(name)) is not None and "spread" in before.config:
            config |= {key: before.config[key] for key in ("spread", "runs")}
        entry = records.record(
            name,
            config=config,
            config_hash="",
            data={"name": self.data, "version": WORLD_VERSION},
            seed=self.seed,
            metrics=numbers,
            seconds=time.perf_counter() - self.began,
            note="a lesson's stored run; the seconds are since its first cell, the spread is the standard "
            "deviation over runs that differ in rounding",
        )
        records.write(entry, LESSON_RECORDS)

    def dataset(self, features: FeatureKind = "grid") -> Dataset:
        """Open the data at this tier's size.

        Scenes have 600/100/200 pictures at tier smoke and 4000/500/1000 otherwise. Photographs come whole,
        but at tier smoke only the first 600/100/200 pictures of the splits are used.
        """
        sizes = SMOKE_SIZES if self.tier == "smoke" else None
        return open_dataset(self.data, self.data_root, features=features, sizes=sizes)

    def test_split(self, features: FeatureKind = "grid") -> Split:
        """Open the test split alone: of the scenes, that saves drawing what is trained on."""
        if self.data != "scenes":
            return self.dataset(features).test
        count = SMOKE_SIZES["test"] if self.tier == "smoke" else SIZES["test"]
        return scenes.load(train=1, dev=1, test=count, features=features).test

    def pictures(self, split: str, rows: Sequence[int]) -> list[np.ndarray]:
        """Return pictures of a split to look at, each uint8 (height, width, 3)."""
        if self.data == "scenes":
            made = scenes.pictures(split, self._count(split))
            return [scenes.draw(made[row].scene, size=224) for row in rows]
        assert self.data_root is not None  # begin checked it
        files = picture_files(self.data_root, split)
        return read_pixels([files[row] for row in rows])

    def seen(self, dataset: Dataset, split: str, row: int) -> Seen:
        """Return one picture for people and for a model, as `plots.attend` takes it.

        Args:
            dataset: what `dataset` gave; its features decide whether the picture has cells or boxes.
            split: "train", "dev" or "test".
            row: which of the split's pictures.

        Raises:
            ValueError: regions of photographs, whose boxes are not kept, or a row that there is not.
        """
        boxes = None
        if dataset.feature_kind == "region":
            if self.data != "scenes":
                raise ValueError(f"dataset has regions of {self.data}: their boxes are not kept")
            boxes = boxes_of(scenes.pictures(split, self._count(split))[row].scene) / SIDE
        return Seen.of_row(getattr(dataset, split), row, self.pictures(split, [row])[0], boxes)

    def true_of(
        self, sentence: str, split: str, rows: Sequence[int] | None = None
    ) -> tuple[list[bool] | None, str]:
        """Judge which pictures a learner's own sentence is true of.

        Args:
            sentence: in the world's words.
            split: whose pictures.
            rows: which of them; None: all.

        Returns:
            A judgement for each row and an empty remark; or None and why it cannot be judged: the pictures
            are photographs, or the world's grammar cannot read the sentence.
        """
        if self.data != "scenes":
            return None, ""
        try:
            form = scenes.parse(sentence)
        except ValueError as unread:
            return None, f"\n(not judged: {why_unread(str(unread), sentence)})"
        made = scenes.pictures(split, self._count(split))
        chosen = made if rows is None else [made[row] for row in rows]
        return [scenes.holds(form, picture.scene) for picture in chosen], ""

    def relevance(self, split: str) -> np.ndarray | None:
        """Return which caption is true of which picture, bool (Nc, Ni); None for photographs."""
        if self.data != "scenes":
            return None
        made = scenes.pictures(split, self._count(split))
        captions = [caption for picture in made for caption in picture.captions]
        return scenes.relevance(captions, [picture.scene for picture in made])

    def trained(self, recipe: Recipe, dataset: Dataset) -> Run:
        """Train a recipe once; later it comes from the cache, as long as nothing about it changes.

        If another notebook is already training it, this one waits for the result.
        """
        sources = sorted(PACKAGE.rglob("*.py"))
        code = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
        key = f"{recipe.hash()}-{dataset.fingerprint()[:12]}-{code[:12]}-{self.seed}"
        folder = cache_folder("runs", key)
        with locked(folder, "is training in"):  # around the lock of `fit`, which refuses to wait
            return fit(recipe, dataset, folder=folder / "run", resume=True, seed=self.seed)

    def _count(self, split: str) -> int | None:
        return SMOKE_SIZES[split] if self.tier == "smoke" else None


def begin(tier: str = "lesson", data: str = "scenes", data_root: str = "", seed: int = 0) -> Lesson:
    """Check a notebook's parameters and make its run repeatable.

    Args:
        tier: one of `TIERS`.
        data: one of `vsecore.course.datasets.DATASETS`.
        data_root: the folder of a photograph collection (its pictures and captions, or extracted features).
        seed: a whole number >= 0; torch's generator is seeded with it.

    Raises:
        ValueError: a parameter has an invalid value.
        FileNotFoundError: `data_root` is not a folder, or holds no collection.
    """
    if tier not in TIERS:
        raise ValueError(f"tier is {tier!r}; it must be one of {', '.join(TIERS)}")
    if data not in DATASETS:
        raise ValueError(f"data is {data!r}; it must be one of {', '.join(DATASETS)}")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ValueError(f"seed is {seed!r}; it must be a whole number, 0 or more and less than 2 to the 63")
    if not isinstance(data_root, str):
        raise ValueError(f"data_root is {data_root!r}; it must be the name of a folder, or empty")
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
        if not (root / "train_ims.npy").exists():
            find_annotations(root)
    if tier != "full" and threads.COUNT not in os.environ:  # this kernel was started by hand
        torch.set_num_threads(1)
    torch.manual_seed(seed)
    return Lesson(tier, data, root, seed, began=time.perf_counter())


def published(*systems: str, data: str = "") -> str:
    """Return what papers report about some systems, as a Markdown table made from `assets/published.json`.

    A recall that was not found is a dash. The rsum is added up from the recalls; where some are missing, it
    is the printed one.

    Args:
        systems: their names.
        data: only rows whose data begins with this, such as "coco".

    Raises:
        ValueError: a system is unknown.
    """
    entries = records.published()
    known = {entry.system for entry in entries}
    if unknown := set(systems) - known:
        raise ValueError(
            f"nothing published is known about {min(unknown)!r}; there are {', '.join(sorted(known))}"
        )
    heads = ["system", "backbone", "models", "pre-training pairs", "data"]
    heads += ["picture to text", "text to picture", "rsum", "source", "read in"]
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |"]
    for entry in entries:
        if entry.system not in systems or not entry.data.startswith(data) or entry.rsum is None:
            continue
        shown = [f"{entry.metrics[name]:.1f}" if name in entry.metrics else "–" for name in records.RECALLS]
        cells = [
            entry.system,
            entry.backbone,
            str(entry.models),
            entry.pairs_before,
            entry.data,
            " / ".join(shown[:3]),
            " / ".join(shown[3:]),
            f"{entry.rsum:.1f}",
            entry.source,
            entry.read_in + (f"; misprint: {entry.misprint}" if entry.misprint else ""),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def check_machine(least_gigabytes: float = 6.0) -> None:
    """Check what the course needs and print a line for each thing, with what to do if it is missing."""
    memory = psutil.virtual_memory().total / 2**30
    room = shutil.disk_usage(cache_folder()).free / 2**30
    lines = {
        "Python 3.11 or newer": (
            sys.version_info >= (3, 11),
            "rebuild the environment with a newer Python",
        ),
        "PyTorch 2.11 or newer": (
            _version(torch.__version__) >= (2, 11),
            "install what requirements.lock names",
        ),
        "memory": (
            memory >= least_gigabytes,
            f"{memory:.0f} GB found; close other programs, or use tier smoke",
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


def _stored(name: str) -> records.Record | None:
    """The record of a stored run, if there is one."""
    found = records.find(LESSON_RECORDS, name=name) if LESSON_RECORDS.is_dir() else []
    return found[0] if found else None


def _spread(name: str, runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The standard deviation of each number over runs that differ in rounding.

    Raises:
        ValueError: the runs do not report the same numbers.
    """
    odd = {key for run in runs for key in run.keys() ^ runs[0].keys()}
    if odd:
        raise ValueError(f"report {name!r} has other numbers in another run: {', '.join(sorted(odd))}")
    return {key: round(statistics.stdev(run[key] for run in runs), 4) for key in runs[0]}


def _version(text: str) -> tuple[int, int]:
    major, minor, *_ = text.split(".")
    return int(major), int(minor)
