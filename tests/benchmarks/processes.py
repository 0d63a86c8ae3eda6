"""Whether several processes train as one does: the same recipe, the same joint batch, the same seeds.

Run as: OMP_NUM_THREADS=1 python tests/benchmarks/processes.py --features FOLDER --out FOLDER
    [--processes 2] [--seeds 0 1 2] [--record]

`torchrun` starts each training on the processor; a run that is in --out already is not trained again. Sums in
another order round another way, so two trainings with one seed part in the course of thousands of steps, as
two seeds do from the start. What is compared is where they end: the rsum on the test split, beside how much
it differs from seed to seed.
"""

import statistics
import subprocess
import sys
from pathlib import Path

from harness import benchmark

from vsecore import records
from vsecore.experiments.scales import changes_of


def trained(options, processes, seed):
    """Train with some processes, unless it was done before, and return the run's record."""
    folder = options.out / f"{processes}-{seed}"
    if not (folder / "record").is_dir():
        # accelerate starts several processes for GPUs alone; it finds those that torchrun has started.
        launch = ["torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
        command = [sys.executable, "-m", *launch, "-m", "vsecore", "train", options.recipe, "--device", "cpu"]
        for name, value in changes_of("lesson", "flickr8k").items():
            command += ["--set", f"{name}={value}"]
        command += ["--data", str(options.features), "--out", str(folder), "--resume"]
        subprocess.run([*command, "--seed", str(seed), "--record", str(folder / "record")], check=True)
    (entry,) = records.find(folder / "record")
    assert entry.processes == processes, "every process took part"
    return entry


def measure(options):
    metrics = {}
    for count, called in ((1, "1_process"), (options.processes, f"{options.processes}_processes")):
        entries = [trained(options, count, seed) for seed in options.seeds]
        sums = [entry.metrics["rsum"] for entry in entries]
        metrics |= {f"{called}_seed{seed}_rsum": rsum for seed, rsum in zip(options.seeds, sums, strict=True)}
        metrics[f"{called}_rsum"] = statistics.mean(sums)
        if len(sums) > 1:
            metrics[f"{called}_rsum_deviation"] = statistics.stdev(sums)
        metrics[f"{called}_seconds"] = statistics.mean(entry.seconds for entry in entries)
    metrics["rsum_difference"] = metrics[f"{called}_rsum"] - metrics["1_process_rsum"]
    options.config = entries[0].config | {"processes": options.processes, "seeds": options.seeds}
    options.data, options.facts = entries[0].data, {"processes": options.processes}
    return metrics


if __name__ == "__main__":
    benchmark(
        "processes",
        measure,
        "The same recipe trained by one process and by several that share each batch, for some seeds: rsum "
        "of the best epoch on the test split, its mean and its standard deviation over the seeds, and the "
        "mean seconds of a training, with one thread a process.",
        features=Path,
        out=Path,
        recipe="vsepp_grid_gru",
        processes=2,
        seeds=[0, 1, 2],
    )
