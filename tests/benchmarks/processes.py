"""Whether several processes train as one does: the same recipe, the same joint batch, the same seeds.

Run as: OMP_NUM_THREADS=1 python tests/benchmarks/processes.py --features FOLDER --out FOLDER
    [--processes 2] [--seeds 0 1 2] [--record]

`torchrun` starts each training on the processor. Sums in another order round another way, so two
trainings with one seed part in the course of thousands of steps, as two seeds do from the start. What is
compared is where they end: the rsum on the test split, beside how much it differs from seed to seed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from vsecore import records
from vsecore.experiments.scales import changes_of

ROOT = Path(__file__).resolve().parents[2]


def trained(options: argparse.Namespace, processes: int, seed: int) -> records.Record:
    """Train with some processes, unless it was done before, and return the run's record."""
    folder = options.out / f"{processes}-{seed}"
    if not (folder / "record").is_dir():
        changes = changes_of("lesson", "flickr8k").items()
        # accelerate starts several processes for GPUs alone; it finds those that torchrun has started.
        launch = ["torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
        command = [
            *(sys.executable, "-m", *launch, "-m", "vsecore", "train", options.recipe, "--device", "cpu"),
            *("--data", str(options.features), "--out", str(folder)),
            *(part for name, value in changes for part in ("--set", f"{name}={value}")),
            *("--seed", str(seed), "--record", str(folder / "record"), "--resume"),
        ]
        subprocess.run(command, check=True, env=os.environ | {"VSECORE_BATCH": "1"})
    (entry,) = records.find(folder / "record")
    assert entry.processes == processes, "every process took part"
    print(f"{processes} processes, seed {seed}: rsum {entry.metrics['rsum']:.1f}", flush=True)
    return entry


def main() -> None:
    """Train; with --record, write the numbers down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=Path, required=True, help="grid features of Flickr8k")
    parser.add_argument("--out", type=Path, required=True, help="where the runs are kept, and found again")
    parser.add_argument("--recipe", default="vsepp_grid_gru", help="what is trained, at the lesson scale")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--record", action="store_true", help="write a record into assets/results")
    options = parser.parse_args()
    began, metrics, means = time.perf_counter(), {}, {}
    for count in (1, options.processes):
        entries = {seed: trained(options, count, seed) for seed in options.seeds}
        called = f"{count}_process" + "es" * (count > 1)
        sums = {seed: entry.metrics["rsum"] for seed, entry in entries.items()}
        means[count] = statistics.mean(sums.values())
        metrics |= {f"{called}_seed{seed}_rsum": round(rsum, 2) for seed, rsum in sums.items()}
        metrics[f"{called}_rsum"] = round(means[count], 2)
        if len(sums) > 1:
            metrics[f"{called}_rsum_deviation"] = round(statistics.stdev(sums.values()), 2)
        metrics[f"{called}_seconds"] = round(statistics.mean(one.seconds for one in entries.values()), 1)
    metrics["rsum_difference"] = round(means[options.processes] - means[1], 2)
    for name, value in metrics.items():
        print(f"{name:<32} {value:8.1f}")
    if options.record:
        first = next(iter(entries.values()))
        entry = records.record(
            "benchmark_processes",
            config=first.config | {"processes": options.processes, "seeds": options.seeds},
            config_hash="",
            data=first.data,
            seed=0,
            metrics=metrics,
            seconds=time.perf_counter() - began,
            processes=options.processes,
            note="The same recipe trained by one process and by several that share each batch, for some "
            "seeds: rsum of the best epoch on the test split, its mean and its standard deviation over the "
            "seeds, and the mean seconds of a training while other programs ran, with one thread a process.",
        )
        print(f"\nWrote {records.write(entry, ROOT / 'assets' / 'results').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
