"""What every benchmark shares: options, turns, medians, memory, and the record in assets/results.

All tasks take turns in one process, so that what else the machine does falls on all alike, and medians are
compared. On a machine with other work the processor's seconds, summed over the threads, are the ones to
trust.
"""

from __future__ import annotations

import argparse
import ctypes
import inspect
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch

from vsecore import records

RESULTS = Path(__file__).resolve().parents[2] / "assets" / "results"
Run = Callable[[], object]


@dataclass
class Times:
    """How long each turn took, in seconds."""

    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def time(self, run: Run) -> Any:
        synchronise()
        began = time.perf_counter(), time.process_time()
        result = run()
        synchronise()
        self.clock.append(time.perf_counter() - began[0])
        self.processor.append(time.process_time() - began[1])
        return result

    @property
    def medians(self) -> tuple[float, float]:
        """By the clock, and of the processor; the first turn, which fills caches, only counts alone."""
        return statistics.median(self.clock[1:] or self.clock), statistics.median(
            self.processor[1:] or self.processor
        )


def take_turns(tasks, turns):
    """Let tasks take turns, and one before."""
    times = {name: Times() for name in tasks}
    for _ in range(turns + 1):
        for name, run in tasks.items():
            times[name].time(run)
    return times


def synchronise():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Peak:
    """The most memory that this process takes within a `with` beyond what it had before, in bytes."""

    def __enter__(self) -> Peak:
        if sys.platform == "linux":  # what was freed before goes back, so that it is counted when taken again
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        self.process, self.over, self.most = psutil.Process(), False, 0
        self.before = self.process.memory_info().rss
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.over:
            self.most = max(self.most, self.process.memory_info().rss - self.before)
            time.sleep(0.001)

    def __exit__(self, *_: object) -> None:
        self.over = True
        self.thread.join()


def extra_mb(run):
    """The memory that a task takes while it runs, in MB."""
    with Peak() as peak:
        run()
    return peak.most / 1e6


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def table(rows):
    print("\n| " + " | ".join(rows[0]) + " |\n|" + " --- |" * len(rows[0]))
    for row in rows:
        cells = (f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row.values())
        print("| " + " | ".join(cells) + " |", flush=True)


def benchmark(name, measure, note, **options):
    """Parse the command line, measure, print the numbers, and record them if asked to.

    An option is given as its default, or as a type where it must be given. `measure` may set `data` and
    `config` of the record as attributes of the options.
    """
    described = inspect.getdoc(inspect.getmodule(measure))
    parser = argparse.ArgumentParser(
        description=described, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option, default in options.items():
        flag, required = f"--{option.replace('_', '-')}", isinstance(default, type)
        if isinstance(default, list):
            parser.add_argument(flag, type=type(default[0]), nargs="+", default=default)
        else:
            kind = default if required else type(default)
            parser.add_argument(flag, type=kind, required=required, default=None if required else default)
    parser.add_argument("--record", action="store_true", help="write a record into assets/results")
    chosen = parser.parse_args()
    os.environ["VSECORE_BATCH"] = "1"
    if "threads" in options:
        torch.set_num_threads(chosen.threads)
    began, metrics = time.perf_counter(), measure(chosen)
    for key, value in metrics.items():
        print(f"{key:44}{value:14,.4f}")
    if chosen.record:
        settings = {key: value for key, value in vars(chosen).items() if not isinstance(value, Path)}
        entry = records.record(
            f"benchmark_{name}",
            config=settings.pop("config", {key: settings[key] for key in options if key in settings}),
            config_hash="",
            data=settings.pop("data", {"name": "noise"}),
            seed=0,
            metrics={key: float(f"{value:.5g}") for key, value in metrics.items()},
            seconds=time.perf_counter() - began,
            note=note,
            **settings.pop("facts", {}),
        )
        print(f"\nWrote {records.write(entry, RESULTS)}")
