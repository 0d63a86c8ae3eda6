"""Records: where every printed number comes from.

A record is one JSON file: what was run, on which data, with which code, on what hardware, and what came out.
It names no person, no computer and no path, so that it can be shared.
"""

import functools
import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import torch

from vsecore.arguments import Finite
from vsecore.data.files import read_bytes, read_json, write_whole
from vsecore.paths import ROOT, assets
from vsecore.recipes.plain import flatten
from vsecore.training import Run
from vsecore.training.distributed import best_device, hardware, peak_memory
from vsecore.training.identity import digest
from vsecore.typed import Strict, from_json, short

PACKAGES = ("vsecore", "torch", "torchvision", "timm", "transformers", "accelerate", "numpy")
RECALLS = tuple(f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10))  # what an rsum adds up
SOURCES = ("vsecore", "pyproject.toml", "requirements.lock")


@dataclass(frozen=True)
class Record(Strict):
    """One run and its result."""

    name: str
    """The name of the recipe, or of whatever was measured."""
    config: dict[str, Any]
    config_hash: str
    """Identifies the settings; "" if the name does."""
    data: dict[str, Any]
    """What it was measured on: its name and fingerprint, digests of tokenizer and word vectors, and more."""
    seed: int
    metrics: dict[str, int | Finite]
    note: str
    """In plain words, what the numbers are."""
    seconds: float
    """Wall time."""
    peak_memory_gb: float
    """The peak of the process since its start."""
    peak_gpu_memory_gb: float
    """0 without a GPU."""
    device: str
    """The hardware: a GPU, or else the processor."""
    cpus: int
    commit: str
    """The code's; "" outside a git checkout."""
    dirty: bool
    """Whether the code had changes since that commit."""
    versions: dict[str, str]
    date: str
    """year-month-day"""
    processes: int = 1
    """How many ran together."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """That of its matrix products."""

    def __post_init__(self) -> None:
        """Refuse a record that could not be shared, since it names a path of this machine."""
        for field, value in flatten(vars(self)).items():
            if isinstance(value, str) and re.search(r"(^|[\s='\"(])(~?/[\w.-]+/|[A-Za-z]:\\)", value):
                raise ValueError(f"record field {field} names a path ({short(value)}): leave it out")

    @property
    def file_name(self) -> str:
        """The record's file name: the same if the same thing is run again, different for anything else."""
        read = ("fingerprint", "tokenizer", "vectors", "targets", "negatives")
        digests = [str(self.data.get(key, ""))[:8] for key in read]
        if members := self.data.get("members"):  # of an ensemble, each with data of its own
            known = [[member.get(key, "") for key in read[:3]] for member in members]
            digests = [digest(json.dumps(known).encode())[:8]]
        half = "" if self.precision == "float32" else self.precision
        parts = (self.name, self.data.get("name", ""), *digests, self.config_hash, half, f"seed{self.seed}")
        return "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts if part) + ".json"


def record_run(run: Run, metrics: dict[str, float], note: str = "") -> Record:
    """Make the record of a training run, in the process that trained it, whose memory it reports."""
    return record(
        **member(run),
        config=run.recipe.portable(),
        metrics=metrics,
        seconds=run.timings["seconds"],
        note=note,
        device=run.device,
        processes=run.processes,
        precision=run.precision,
    )


def member(run: Run) -> dict[str, Any]:
    """Return what identifies a run within an ensemble."""
    return {"name": run.recipe.name, "config_hash": run.recipe.hash(), "seed": run.seed, "data": run.data}


def record_ensemble(
    members: Sequence[dict[str, Any]], split: str, metrics: dict[str, float], seconds: float, note: str = ""
) -> Record:
    """Make the record of an ensemble, or one run, evaluated on a split; `members` come from `member`.

    Its data's name and its seed are those of its first member; `seconds` are those of all trainings.
    """
    config = {"members": list(members), "split": split}
    return record(
        "ensemble" if len(members) > 1 else "evaluation",
        config=config,
        config_hash=digest(json.dumps(config, sort_keys=True).encode()),
        data={"name": members[0]["data"]["name"]},
        seed=members[0]["seed"],
        metrics=metrics,
        seconds=seconds,
        note=note,
    )


def record(name: str, *, seconds: float, note: str = "", device: str = "", **facts: Any) -> Record:
    """Make the record of anything that gives numbers, with the code's version and this machine's hardware.

    The facts are its `config`, `config_hash`, `data`, `seed` and `metrics`, and if they are not the usual
    ones `processes` and `precision`. The device is named if it is not the GPU, or else the processor, of this
    process.
    """
    commit, dirty = _code()
    return Record(
        name=name,
        note=note,
        seconds=round(seconds, 3),
        peak_memory_gb=round(peak_memory() / 2**30, 3),
        peak_gpu_memory_gb=round(torch.cuda.max_memory_allocated() / 2**30, 3),  # 0 without a GPU
        device=device or hardware(best_device()),
        cpus=os.cpu_count() or 1,
        commit=commit,
        dirty=dirty,
        versions={
            "python": platform.python_version(),
            **{package: _version(package) for package in PACKAGES},
        },
        date=datetime.now(UTC).date().isoformat(),
        **facts,
    )


def write(entry: Record, folder: str | Path) -> Path:
    """Write a record into a folder, in place of an older one of the same thing, and return the file."""
    path = Path(folder) / entry.file_name
    write_whole(path, json.dumps(asdict(entry), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def read(path: str | Path) -> Record:
    """Read what `write` wrote; a ValueError says where a file is no record."""
    return _read(str(path), read_bytes(path))


@functools.lru_cache(maxsize=4096)  # a table asks for all records many times
def _read(path: str, text: bytes) -> Record:
    return from_json(path, text, Record)


def find(folder: str | Path, **wanted: Any) -> list[Record]:
    """Find the records of a folder that have the given values, in order of file name.

    Example:
        >>> find("assets/results", name="vsepp_grid_gru", data="flickr8k")
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder of records")
    known = [field.name for field in fields(Record)]
    if unknown := wanted.keys() - known:
        raise ValueError(f"record field {min(unknown)!r} is unknown: there are {', '.join(known)}")
    entries = [read(path) for path in sorted(folder.glob("*.json"))]
    return [x for x in entries if wanted.items() <= (vars(x) | {"data": x.data.get("name")}).items()]


@dataclass(frozen=True)
class Published(Strict):
    """What a paper reports about one system on one collection."""

    system: str
    data: str
    """Which collection and how many test pictures, in words."""
    backbone: str
    """The features of pictures and the text encoder, in words."""
    models: int
    """How many are averaged: 1, or the size of an ensemble."""
    pretraining_pairs: int | None
    """Image-text pairs seen before this collection; None: not known."""
    source: str
    """The paper that made the system."""
    read_in: str
    """Where its numbers were read, and whether they were checked."""
    metrics: dict[str, float]
    """In percent, as far as they were found; "log_variance" is the logarithm of sets' circular variance, and
    the rsums of parts of the sets are called as in `experiments.measures`."""
    printed_rsum: float | None = None
    misprint: str = ""
    """Where the paper contradicts itself or another paper about this row."""

    @property
    def rsum(self) -> float | None:
        """The sum of the six recalls, added up here. If some are missing it is the printed sum, if any."""
        if all(name in self.metrics for name in RECALLS):
            return round(sum(self.metrics[name] for name in RECALLS), 2)
        return self.printed_rsum

    @property
    def pairs_before(self) -> str:
        """How many pairs it had seen before, in words."""
        if self.pretraining_pairs is None:
            return "not known"
        return f"{self.pretraining_pairs / 1e6:,g} million" if self.pretraining_pairs else "0"


@functools.cache
def published() -> list[Published]:
    """Read what papers report, from `assets/published.json`; a ValueError names a damaged entry."""
    return read_json(assets() / "published.json", list[Published])


def _code() -> tuple[str, bool]:
    """Return the commit of this checkout, and whether its sources have changed since."""
    if not (ROOT / ".git").exists():  # installed: git would describe another project
        return "", False

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)

    try:
        return git("rev-parse", "HEAD").strip(), bool(git("status", "--porcelain", "--", *SOURCES).strip())
    except (FileNotFoundError, subprocess.CalledProcessError):  # no git, or one that does not own the folder
        return "", False


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # used without being installed
        return ""
