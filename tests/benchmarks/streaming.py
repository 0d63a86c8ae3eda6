"""What it costs to train on features that are on disk, over features that are in memory.

Run as: OMP_NUM_THREADS=1 python tests/benchmarks/streaming.py [--record] [--folder FOLDER] [--share 1.0]

Drawn numbers of COCO's exact shape are written to the folder (18 GB; they stay there). Then the same recipe
takes some steps from memory and from disk, in turns, each in a process of its own; before a turn from disk,
the system is asked to forget what it has read. With `--workers 1` another process prepares the batches.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import statistics
import time
from pathlib import Path

import numpy as np
import psutil
from harness import benchmark

from vsecore.data.features import open_precomp
from vsecore.data.rehearsal import Shape, write_rehearsal
from vsecore.recipes import get
from vsecore.training import fit

HELD = 512
"""Pictures in memory, which stand for all."""


class Enough(Exception):
    """Ends a training."""


class Repeated:
    """The same few pictures time and again, as if all were in memory."""

    def __init__(self, held: np.ndarray, count: int) -> None:
        self.held, self.count, self.dtype = held, count, held.dtype
        self.shape = (count, *held.shape[1:])

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: object) -> np.ndarray:
        return self.held[np.arange(self.count)[rows] % len(self.held)]  # type: ignore[index]


def turn(where, options):
    data = open_precomp(options.folder)
    if where == "memory":
        held = Repeated(data.train.pictures[np.arange(HELD)], len(data.train))
        data = dataclasses.replace(data, train=dataclasses.replace(data.train, pictures=held))
    else:
        with (Path(options.folder) / "train_ims.npy").open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    times, memory, disk = [], [], psutil.disk_io_counters()

    def watch(event):
        times.append(time.perf_counter())
        memory.append(psutil.Process().memory_info().rss)
        if event.step >= options.steps:
            raise Enough

    with contextlib.suppress(Enough):
        fit(get(options.recipe), data, callback=watch, device="cpu", workers=options.workers)
    came = psutil.disk_io_counters()
    return {
        "step_seconds": statistics.mean(np.diff(times)[3:]),
        "rss_gb": max(memory) / 1e9,
        "read_gb": (came.read_bytes - disk.read_bytes) / 1e9 if came and disk else 0.0,
    }


def measure(options):
    shape = Shape.of("coco", share=options.share)
    write_rehearsal(Path(options.folder), shape)
    found = {"memory": [], "disk": []}
    for _ in range(options.turns):
        for where, seen in found.items():
            with multiprocessing.get_context("spawn").Pool(1) as fresh:
                seen.append(fresh.apply(turn, (where, options)))
    steps = {where: statistics.median(one["step_seconds"] for one in seen) for where, seen in found.items()}
    options.data = {"name": "rehearsal"}
    return {
        "memory_step_seconds": steps["memory"],
        "disk_step_seconds": steps["disk"],
        "disk_speed_over_memory": steps["memory"] / steps["disk"],
        "disk_rss_gb": max(one["rss_gb"] for one in found["disk"]),
        "disk_read_gb": max(one["read_gb"] for one in found["disk"]),
        "wanted_gb": options.steps * get(options.recipe).training.batch_size * 2 * 36 * 2048 / 1e9,
        "features_gb": shape.bytes_on_disk / 1e9,
        "workers": float(options.workers),
    }


if __name__ == "__main__":
    benchmark(
        "streaming",
        measure,
        "Steps from disk and from memory took turns, each in a process of its own.",
        folder=str(Path(__file__).resolve().parents[2] / "build" / "rehearsal"),
        share=1.0,
        recipe="vsepp_region_gru",
        steps=40,
        turns=3,
        workers=0,
    )
