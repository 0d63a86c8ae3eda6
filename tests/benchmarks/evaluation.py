"""How long the metrics take, and how much memory, beside sorting every row.

Run as: python tests/benchmarks/evaluation.py

Each line runs in a process of its own, on two threads, so that its peak of memory is its own. "Beside" is
what a metric needed on top of the score matrix; the last column is how many times longer sorting takes. On a
machine with other work the processor's seconds, summed over the threads, are the ones to trust.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from vsecore.evaluation import evaluate, map_at_r, ndcg, r_precision, ranks

SIZES = [1_000, 5_000]
REPEATS = 3  # the fastest counts


def ranks_by_sorting(scores: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
    """The usual way: sort every row and column, and look where the own items stand. Ties fall as they may."""
    i2t = (owner[scores.argsort(1, descending=True)] == torch.arange(len(scores))[:, None]).int().argmax(1)
    t2i = (scores.argsort(0, descending=True) == owner).int().argmax(0)
    return i2t, t2i


def relevance_of(scores: Tensor, owner: Tensor) -> Tensor:
    """The plainest relevance, (Ni, Nc): each picture's own captions."""
    return owner == torch.arange(len(scores))[:, None]


TASKS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "ranks by sorting": ranks_by_sorting,
    "ranks": ranks,
    "ranks, float16": lambda scores, owner: ranks(scores.half(), owner),
    "evaluate": evaluate,
    "evaluate, 5 folds": lambda scores, owner: evaluate(scores, owner, folds=5),
    "r_precision": lambda scores, owner: r_precision(scores, relevance_of(scores, owner)),
    "map_at_r": lambda scores, owner: map_at_r(scores, relevance_of(scores, owner)),
    "ndcg": lambda scores, owner: ndcg(scores, relevance_of(scores, owner)),
}


def peak() -> float:
    """The most memory this process ever held, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def measure(job: tuple[str, int]) -> tuple[float, float, float, float]:
    """Seconds by the clock and of the processor, MiB beside the matrix and in all, of one task and size."""
    name, pictures = job
    torch.set_num_threads(2)
    owner = torch.arange(5 * pictures) // 5
    scores = torch.randn(pictures, 5 * pictures, generator=torch.Generator().manual_seed(0))
    before, clock, processor = peak(), [], []
    for _ in range(REPEATS):
        start = time.perf_counter(), time.process_time()
        TASKS[name](scores, owner)
        clock.append(time.perf_counter() - start[0])
        processor.append(time.process_time() - start[1])
    return min(clock), min(processor), peak() - before, peak()


def main() -> None:
    """Print one table a size."""
    fresh = multiprocessing.get_context("spawn")
    print(f"torch {torch.__version__}, numpy {np.__version__}, 2 threads, best of {REPEATS}")
    for pictures in SIZES:
        print(f"\n{pictures:,} x {5 * pictures:,}, {pictures * pictures * 5 * 4 / 2**20:,.0f} MiB of float32")
        print(f"{'':18}{'seconds':>10}{'processor':>11}{'beside, MiB':>13}{'in all, MiB':>13}{'ratio':>15}")
        slow = None
        for name in TASKS:
            with fresh.Pool(1) as pool:
                clock, processor, beside, whole = pool.map(measure, [(name, pictures)])[0]
            slow = slow or processor
            ratio = f"{slow / processor:13.1f} x"
            print(f"{name:18}{clock:10.3f}{processor:11.3f}{beside:13,.0f}{whole:13,.0f}{ratio}", flush=True)


if __name__ == "__main__":
    main()
