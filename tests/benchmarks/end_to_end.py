"""From a folder of photographs to a search, by the README's commands, timed as a whole.

Run as: OMP_NUM_THREADS=1 python tests/benchmarks/end_to_end.py --photographs FLICKR8K --out FOLDER
    [--backbone NAME] [--weights FILE] [--recipe NAME] [--record]

The folder must be empty: features, run and index go there. Each command has a process of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

from vsecore import records
from vsecore.data.karpathy import load_karpathy
from vsecore.recipes import get
from vsecore.search import Index

ROOT = Path(__file__).resolve().parents[2]
QUERY = "two dogs on the beach"


def commands(options: argparse.Namespace, pictures: Path) -> dict[str, list[str]]:
    """Return the commands, by what they do."""
    photographs, out = str(options.photographs), options.out
    features, run, index = (str(out / name) for name in ("features", "run", "index"))
    weights = [] if options.weights is None else ["--weights", str(options.weights)]
    return {
        "check": ["data", "check", photographs],
        "extract": ["data", "extract", photographs, features, "--backbone", options.backbone, *weights],
        "train": ["train", options.recipe, "--data", features, "--out", run],
        "evaluate": ["evaluate", run, "--data", features],
        "index": [
            *("search", "index", str(pictures), "--run", run, "--features", features),
            *("--index", index, *weights),
        ],
        "query": ["search", QUERY, "--index", index],
    }


def processor_seconds() -> float:
    """Return the processor's seconds of all commands that have ended: other programs do not lengthen them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_timed(command: list[str]) -> tuple[dict[str, float], str]:
    """Run a command of `vse`; return the seconds that it took, by two clocks, and what it printed."""
    print("vse", *command, flush=True)
    began, used = time.perf_counter(), processor_seconds()
    ended = subprocess.run(
        [sys.executable, "-m", "vsecore", *command],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"VSECORE_BATCH": "1"},
    )
    took = {"seconds": time.perf_counter() - began, "processor_seconds": processor_seconds() - used}
    told = ", ".join(f"{value:.1f} {clock.replace('_', ' ')}" for clock, value in took.items())
    print(f"{ended.stdout.rstrip()}\n({told})\n", flush=True)
    return took, ended.stdout


def main() -> None:
    """Give the commands; with --record, write the times down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photographs", type=Path, required=True, help="pictures and captions")
    parser.add_argument("--out", type=Path, required=True, help="an empty folder")
    parser.add_argument("--backbone", default="mobilenetv2_100_same", help="the network that sees pictures")
    parser.add_argument("--weights", type=Path, help="a file of its weights; default: the published ones")
    parser.add_argument("--recipe", default="window_grid", help="what is trained")
    parser.add_argument("--record", action="store_true", help="write a record into assets/results")
    options = parser.parse_args()
    if options.out.exists() and any(options.out.iterdir()):
        parser.error(f"--out {options.out} is not empty: what is there would not be made again")
    (first, *_), began = load_karpathy(options.photographs)["test"].files, time.perf_counter()
    metrics, printed = {}, {}
    for name, command in commands(options, first.parent).items():
        took, printed[name] = run_timed(command)
        metrics |= {f"{name}_{clock}": round(value, 1) for clock, value in took.items()}
    seconds = time.perf_counter() - began
    with_rsum = re.search(r"^rsum +([\d.]+)$", printed["evaluate"], re.MULTILINE)
    assert with_rsum, "an evaluation prints its rsum"
    metrics |= {
        "all_seconds": round(seconds, 1),
        "all_processor_seconds": round(processor_seconds(), 1),
        "rsum": float(with_rsum[1]),
        "indexed_pictures": len(Index.load(options.out / "index")),
        "largest_command_gb": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20, 2),
    }
    for name, value in metrics.items():
        print(f"{name:<28} {value:10,.5g}")
    if options.record:
        recipe = get(options.recipe)
        entry = records.record(
            "benchmark_end_to_end",
            config={"backbone": options.backbone, "recipe": recipe.portable(), "query": QUERY},
            config_hash="",
            data={"name": "flickr8k"},
            seed=0,
            metrics=metrics,
            seconds=seconds,
            note="Seconds of each command, from a folder of photographs to a search: data check, data "
            "extract, train, evaluate, search index and one query, one after the other, each in a process "
            "of its own with one thread, while other programs ran; the processor's seconds are its own "
            "alone. And rsum on the 1,000 test pictures.",
        )
        print(f"\nWrote {records.write(entry, ROOT / 'assets' / 'results').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
