"""What mining costs: over the bare product in the same blocks, and beside FAISS's exact search.

Run as: OMP_NUM_THREADS=2 python tests/benchmarks/mining.py [--record] [--pictures 20000] [--captions 100000]

Random unit vectors. The product, mining in both directions, and FAISS's exact search, once each way, take
turns in one process, and FAISS's answers are compared with ours. On a machine with other work the processor's
seconds, summed over the threads, are the ones to trust. With a GPU, COCO's size is mined on it too.
COCO's time on this processor is estimated: its multiplications at the product's rate, and for each score what
selecting took here.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from vsecore import records
from vsecore.mining import mine_offline_negatives
from vsecore.mining.vectors import BUDGET, _block

Peak = importlib.import_module("cross_attention").Peak  # the benchmark beside this one
TEXTS, PICTURES = 300, 60
COCO = (113_287, 566_435, 1024)
ROOT = Path(__file__).resolve().parents[2]


def invented(pictures: int, captions: int, dim: int, device: str) -> tuple[Tensor, Tensor, np.ndarray]:
    """Random unit vectors, and owners: the captions are dealt out to the pictures."""
    dice = torch.Generator(device).manual_seed(0)
    v = normalize(torch.randn(pictures, dim, generator=dice, device=device), dim=1)
    t = normalize(torch.randn(captions, dim, generator=dice, device=device), dim=1)
    return v, t, np.arange(captions) * pictures // captions


def product(v: Tensor, t: Tensor) -> None:
    """Multiply in the blocks that mining takes, and keep nothing."""
    rows, columns = _block(None, BUDGET, len(v), len(t))
    memory = v.new_empty(rows * columns)
    for top in range(0, len(v), rows):
        some = v[top : top + rows]
        for left in range(0, len(t), columns):
            others = t[left : left + columns]
            torch.mm(some, others.T, out=memory[: len(some) * len(others)].view(len(some), len(others)))


def faiss_search(v: Tensor, t: Tensor, most: int) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """FAISS's exact search both ways, own items among what it finds."""
    faiss.omp_set_num_threads(torch.get_num_threads())

    def one_way(queries: np.ndarray, items: np.ndarray, k: int) -> np.ndarray:
        index = faiss.IndexFlatIP(items.shape[1])
        index.add(items)
        rows: np.ndarray = index.search(queries, k)[1]
        return rows

    pictures, captions = v.numpy(), t.numpy()
    return lambda: (
        one_way(pictures, captions, TEXTS + most),
        one_way(captions, pictures, PICTURES + 1),
    )


def agreement(found: np.ndarray, theirs: np.ndarray, own: Callable[[np.ndarray], np.ndarray]) -> float:
    """The share of our negatives that FAISS names too; rounding may let near ties change places."""
    hits = sum(
        len(np.intersect1d(mine, row[~own_row][: len(mine)]))
        for mine, row, own_row in zip(found, theirs, own(theirs), strict=True)
    )
    return hits / found.size


def timed(run: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds by the clock, seconds of the processor, and the result."""
    began = time.perf_counter(), time.process_time()
    result = run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began[0], time.process_time() - began[1], result


def on_processor(pictures: int, captions: int, dim: int, turns: int) -> dict[str, float]:
    """Print the ratios on the processor, and return them."""
    v, t, owner = invented(pictures, captions, dim, "cpu")
    most = int(np.bincount(owner).max())
    tasks: dict[str, Callable[[], Any]] = {
        "product": lambda: product(v, t),
        "mining": lambda: mine_offline_negatives(v, t, owner, TEXTS, PICTURES),
        "faiss": faiss_search(v, t, most),
    }
    product(v[:1024], t[:8192])  # the first product starts the threads
    clock: dict[str, list[float]] = {name: [] for name in tasks}
    processor: dict[str, list[float]] = {name: [] for name in tasks}
    results, extra = {}, 0.0
    for _ in range(turns):
        for name, task in tasks.items():
            with Peak() as peak:
                by_clock, by_processor, results[name] = timed(task)
            clock[name].append(by_clock)
            processor[name].append(by_processor)
            extra = max(extra, peak.most / 1e6) if name == "mining" else extra
    seconds = {name: statistics.median(times) for name, times in clock.items()}
    spent = {name: statistics.median(times) for name, times in processor.items()}
    metrics = {"product_seconds": seconds["product"], "product_processor_seconds": spent["product"]}
    for name in list(tasks)[1:]:
        metrics[f"{name}_over_product"] = seconds[name] / seconds["product"]
        metrics[f"{name}_processor_over_product"] = spent[name] / spent["product"]
    metrics["mining_extra_mb"] = extra
    found, (texts, others) = results["mining"], results["faiss"]
    rows = np.arange(pictures)[:, None]
    metrics["texts_agreement"] = agreement(found.texts, texts, lambda theirs: owner[theirs] == rows)
    metrics["pictures_agreement"] = agreement(found.pictures, others, lambda theirs: theirs == owner[:, None])
    work = COCO[0] * COCO[1] * COCO[2] / (pictures * captions * dim)
    metrics["coco_product_seconds_estimate"] = work * seconds["product"]
    # Selecting depends on the number of scores, not on their width: what it adds grows with the scores only.
    selecting = (seconds["mining"] - seconds["product"]) * COCO[0] * COCO[1] / (pictures * captions)
    metrics["coco_seconds_estimate"] = metrics["coco_product_seconds_estimate"] + selecting
    return {name: round(value, 5) for name, value in metrics.items()}


def on_gpu() -> dict[str, float]:
    """Mine random vectors in the numbers of COCO's training split, and multiply them."""
    v, t, owner = invented(*COCO, "cuda")
    half = v.bfloat16(), t.bfloat16()
    few = slice(0, 4096)
    mine_offline_negatives(v[few], t[: 5 * 4096], np.arange(5 * 4096) // 5)  # chooses kernels
    torch.cuda.reset_peak_memory_stats()
    seconds = timed(lambda: mine_offline_negatives(v, t, owner, TEXTS, PICTURES, budget=2**33))[0]
    return {
        "gpu_coco_seconds": round(seconds, 3),
        "gpu_coco_product_seconds": round(timed(lambda: product(*half))[0], 3),
        "gpu_peak_mb": round(torch.cuda.max_memory_allocated() / 1e6, 1),
    }


def main() -> None:
    """Measure on every device; with --record, write the numbers down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--captions", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="write a record into assets/results")
    options = parser.parse_args()
    os.environ.setdefault("VSECORE_BATCH", "1")
    torch.set_num_threads(options.threads)
    began = time.perf_counter()
    metrics = on_processor(options.pictures, options.captions, options.dim, options.turns)
    if torch.cuda.is_available():
        metrics |= on_gpu()
    for name, value in metrics.items():
        print(f"{name:34}{value:14,.3f}")
    if options.record:
        names = ("pictures", "captions", "dim", "threads", "turns")
        entry = records.record(
            "benchmark_mining",
            config={name: getattr(options, name) for name in names} | {"texts": TEXTS, "negatives": PICTURES},
            config_hash="",
            data={"name": "noise"},
            seed=0,
            metrics=metrics,
            seconds=time.perf_counter() - began,
            note="Mining in both directions, and FAISS's exact search once each way, as multiples of the "
            "bare product, by the clock and by the processor's seconds; the share of our negatives that "
            "FAISS names too; and the seconds that the training split of COCO would take on this processor.",
        )
        print(f"Wrote {records.write(entry, ROOT / 'assets' / 'results').relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
