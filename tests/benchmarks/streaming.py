"""What it costs to train on features that are on disk, over features that are in memory.

Run as: OMP_NUM_THREADS=1 python tests/benchmarks/streaming.py [--record] [--folder FOLDER] [--share 1.0]

Drawn numbers of COCO's exact shape are written to the folder (18 GB; they stay there). Then the same recipe
takes some steps from memory and from disk, in turns, each in a process of its own; before a turn from disk,
the system is asked to forget what it has read. With `--workers 1` another process prepares the batches.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil

from vsecore import records
from vsecore.data.features import open_precomp
from vsecore.data.rehearsal import Shape, write_rehearsal
from vsecore.recipes import get
from vsecore.training import Event, fit

ROOT = Path(__file__).resolve().parents[2]
HELD = 512
"""Pictures in memory, which stand for all."""
WARMING = 3


class Enough(Exception):
    """Ends a training."""


class Again:
    """The same few pictures again and again, as if all were in memory."""

    def __init__(self, held: np.ndarray, count: int) -> None:
        self.held, self.count, self.dtype = held, count, held.dtype
        self.shape = (count, *held.shape[1:])

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: object) -> np.ndarray:
        return self.held[np.arange(self.count)[rows] % len(self.held)]  # type: ignore[index]


def turn(where: str, folder: Path, recipe: str, steps: int, workers: int) -> dict[str, float]:
    """Take steps from memory or from disk, and return what they took."""
    data = open_precomp(folder)
    if where == "memory":
        held = Again(data.train.pictures[np.arange(HELD)], len(data.train))
        data = dataclasses.replace(data, train=dataclasses.replace(data.train, pictures=held))
    else:
        with (folder / "train_ims.npy").open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    times, memory = [], []
    disk = psutil.disk_io_counters()

    def watch(event: Event) -> None:
        times.append(time.perf_counter())
        memory.append(psutil.Process().memory_info().rss)
        if event.step >= steps:
            raise Enough

    with contextlib.suppress(Enough):
        fit(get(recipe), data, callback=watch, device="cpu", workers=workers)
    came = psutil.disk_io_counters()
    return {
        "step_seconds": statistics.mean(np.diff(times)[WARMING:]),
        "rss_gb": max(memory) / 1e9,
        "read_gb": (came.read_bytes - disk.read_bytes) / 1e9 if came and disk else 0.0,
    }


def main() -> None:
    """Measure in turns; with --record, write the numbers down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "rehearsal")
    parser.add_argument("--share", type=float, default=1.0, help="of COCO's pictures")
    parser.add_argument("--recipe", default="vsepp_region_gru")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="write a record into assets/results")
    parser.add_argument("--only", choices=("memory", "disk"), help=argparse.SUPPRESS)  # one turn, by itself
    options = parser.parse_args()
    if options.only:
        print(json.dumps(turn(options.only, options.folder, options.recipe, options.steps, options.workers)))
        return
    shape = Shape.of("coco", share=options.share)
    write_rehearsal(options.folder, shape)
    began = time.perf_counter()
    found: dict[str, list[dict[str, float]]] = {"memory": [], "disk": []}
    for _ in range(options.turns):
        for where, seen in found.items():
            asked = [sys.executable, __file__, *sys.argv[1:], "--only", where]
            ended = subprocess.run(asked, capture_output=True, text=True, check=True)
            seen.append(json.loads(ended.stdout.splitlines()[-1]))
            print(where, seen[-1], flush=True)
    steps = {where: statistics.median(one["step_seconds"] for one in seen) for where, seen in found.items()}
    metrics = {
        "memory_step_seconds": steps["memory"],
        "disk_step_seconds": steps["disk"],
        "disk_speed_over_memory": steps["memory"] / steps["disk"],
        "disk_rss_gb": max(one["rss_gb"] for one in found["disk"]),
        "disk_read_gb": max(one["read_gb"] for one in found["disk"]),
        "wanted_gb": options.steps * get(options.recipe).training.batch_size * 2 * 36 * 2048 / 1e9,
        "features_gb": shape.bytes_on_disk / 1e9,
        "workers": float(options.workers),
    }
    for name, value in metrics.items():
        print(f"{name:<26} {value:10.4g}")
    if options.record:
        entry = records.record(
            "benchmark_streaming",
            config={"recipe": options.recipe, "steps": options.steps, "turns": options.turns},
            config_hash="",
            data={"name": "rehearsal"},
            seed=0,
            metrics={name: round(value, 5) for name, value in metrics.items()},
            seconds=time.perf_counter() - began,
            note="steps from disk and from memory took turns, each in a process of its own",
        )
        print(records.write(entry, ROOT / "assets" / "results"))


if __name__ == "__main__":
    main()
