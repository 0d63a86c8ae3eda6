"""From a folder of photographs to a search, by the README's commands, timed as a whole.

Run as: OMP_NUM_THREADS=1 python tests/benchmarks/end_to_end.py --photographs FLICKR8K --out FOLDER
    [--backbone NAME] [--weights FILE] [--recipe NAME] [--record]

The folder must be empty: features, run and index go there. Each command has a process of its own.
"""

import re
import resource
import subprocess
import sys
import time
from pathlib import Path

from harness import benchmark

from vsecore.data.karpathy import load_karpathy
from vsecore.recipes import get
from vsecore.search import Index

QUERY = "two dogs on the beach"


def commands(options, pictures):
    photographs = str(options.photographs)
    features, run, index = (str(options.out / name) for name in ("features", "run", "index"))
    weights = ["--weights", options.weights] if options.weights else []
    see = ["--features", features, "--index", index, *weights]
    return {
        "check": ["data", "check", photographs],
        "extract": ["data", "extract", photographs, features, "--backbone", options.backbone, *weights],
        "train": ["train", options.recipe, "--data", features, "--out", run],
        "evaluate": ["evaluate", run, "--data", features],
        "index": ["search", "index", str(pictures), "--run", run, *see],
        "query": ["search", QUERY, "--index", index],
    }


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(options):
    if options.out.exists() and any(options.out.iterdir()):
        sys.exit(f"--out {options.out} is not empty: what is there would not be made again")
    (first, *_), began = load_karpathy(options.photographs)["test"].files, time.perf_counter()
    metrics, printed = {}, {}
    for name, command in commands(options, first.parent).items():
        print("vse", *command, flush=True)
        clock, processor = time.perf_counter(), processor_seconds()
        asked = [sys.executable, "-m", "vsecore", *command]
        printed[name] = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True).stdout
        metrics[f"{name}_seconds"] = time.perf_counter() - clock
        metrics[f"{name}_processor_seconds"] = processor_seconds() - processor
    with_rsum = re.search(r"^rsum +([\d.]+)$", printed["evaluate"], re.MULTILINE)
    assert with_rsum, "an evaluation prints its rsum"
    options.config = {"backbone": options.backbone, "recipe": get(options.recipe).portable(), "query": QUERY}
    options.data = {"name": "flickr8k"}
    return metrics | {
        "all_seconds": time.perf_counter() - began,
        "all_processor_seconds": processor_seconds(),
        "rsum": float(with_rsum[1]),
        "indexed_pictures": len(Index.load(options.out / "index")),
        "largest_command_gb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20,
    }


if __name__ == "__main__":
    benchmark(
        "end_to_end",
        measure,
        "Seconds of each command, from a folder of photographs to a search: data check, data extract, train, "
        "evaluate, search index and one query, one after the other, each in a process of its own with one "
        "thread; the processor's seconds are its own alone. And rsum on the 1,000 test pictures.",
        photographs=Path,
        out=Path,
        backbone="mobilenetv2_100_same",
        weights="",
        recipe="window_grid",
    )
