"""What sets cost: smooth-Chamfer and its kin over the bare matrix product, beside one vector and SCAN.

Run as: OMP_NUM_THREADS=2 python tests/benchmarks/sets.py [--record] [--turns 5] [--pictures 1000]

Pictures and captions are sets of 4 vectors, 1024 wide. Every similarity of sets, the bare product of all
elements with all elements, the cosine of one vector each, and SCAN on 36 regions with 5 to 20 words take
turns in one process, so that what else the machine does falls on all alike, and medians are compared. SCAN
gets a twenty-fifth of the pairs, and its time is multiplied. A training step is the forward and the backward
pass of smooth-Chamfer on 200 pictures with their 1,000 captions; its bare products are three. On a machine
with other work the processor's seconds are the ones to trust. With a GPU, everything runs on it too; there,
"top 10" is what a search takes: all scores, and the ten best captions of each picture.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from cross_attention import Task, hardware, invented
from torch import Tensor

from vsecore import records
from vsecore.similarity import (
    chamfer,
    cosine,
    cross_attention,
    match_probability,
    max_sim,
    mil,
    smooth_chamfer,
)

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "smooth_chamfer": smooth_chamfer,
    "chamfer": chamfer,
    "mil": mil,
    "match_probability": lambda v, t: match_probability(v, t, 10.0, -5.0),
    "max_sim": max_sim,
}
BATCH = (200, 1000)
FEWER = 5  # SCAN's pictures and captions are so many times fewer


def drawn(rows: int, elements: int, dim: int, device: torch.device, seed: int) -> Tensor:
    """Noise in the shape of sets: how long it takes does not depend on it."""
    dice = torch.Generator().manual_seed(seed)
    return torch.randn(rows, elements, dim, generator=dice).to(device)


def product(v: Tensor, t: Tensor, learns: bool = False) -> Callable[[], None]:
    """The bare product of all elements, some columns at a time: storing the whole would cost more."""
    rows, columns = v.flatten(0, 1), t.flatten(0, 1)
    room = torch.empty(len(rows), 1024, device=v.device)

    def run() -> None:
        for part in columns.split(1024):
            found = torch.mm(rows, part.T, out=room) if len(part) == 1024 else rows @ part.T
            if learns:  # the gradient of the pictures, and that of the captions
                found @ part
                found.T @ rows

    return run


def scored(function: Callable[[Tensor, Tensor], Tensor], v: Tensor, t: Tensor) -> Callable[[], Tensor]:
    """All scores, without gradient."""

    def run() -> Tensor:
        with torch.no_grad():
            return function(v, t)

    return run


def searched(function: Callable[[Tensor, Tensor], Tensor], v: Tensor, t: Tensor) -> Callable[[], Tensor]:
    """The ten best captions of each picture."""
    return lambda: scored(function, v, t)().topk(10, dim=1).indices


def learned(function: Callable[[Tensor, Tensor], Tensor], v: Tensor, t: Tensor) -> Callable[[], object]:
    """The forward and the backward pass."""
    x, y = v.requires_grad_(), t.requires_grad_()
    return lambda: torch.autograd.grad(function(x, y).sum(), (x, y))


def medians(tasks: dict[str, Task], turns: int) -> dict[str, tuple[float, float]]:
    """Let the tasks take turns; return each one's seconds by the clock and of the processor."""
    for task in tasks.values():
        task.take_turn()  # the first one loads libraries, touches memory and chooses kernels
        task.clock.clear()
        task.processor.clear()
    for _ in range(turns):
        for task in tasks.values():
            task.take_turn()
    return {
        name: (statistics.median(task.clock), statistics.median(task.processor))
        for name, task in tasks.items()
    }


def measure(device: torch.device, options: argparse.Namespace) -> dict[str, float]:
    """Print a table of one device; return its numbers by name."""
    pictures, captions, elements, dim = options.pictures, options.captions, options.elements, options.dim
    v = drawn(pictures, elements, dim, device, 0)
    t = drawn(captions, elements, dim, device, 1)
    few = max(1, pictures // FEWER), max(1, captions // FEWER)
    regions, words, mask, _ = invented(device, *few, dim)
    times_more = pictures * captions / (few[0] * few[1])
    one_v, one_t = v[:, 0].contiguous(), t[:, 0].contiguous()
    tasks = {"product": Task(product(v, t), device)}
    tasks["single_vector"] = Task(scored(cosine, one_v, one_t), device)
    tasks |= {name: Task(scored(function, v, t), device) for name, function in SYSTEMS.items()}
    tasks["scan"] = Task(scored(lambda x, y: cross_attention(x, None, y, mask), regions, words), device)
    if device.type == "cuda":
        tasks["single_vector_top_10"] = Task(searched(cosine, one_v, one_t), device)
        tasks["smooth_chamfer_top_10"] = Task(searched(smooth_chamfer, v, t), device)
    extra = {name: task.peak() for name, task in tasks.items() if name != "product"}
    found = medians(tasks, options.turns)
    found["scan"] = found["scan"][0] * times_more, found["scan"][1] * times_more

    step_v = drawn(BATCH[0], elements, dim, device, 2)
    step_t = drawn(BATCH[1], elements, dim, device, 3)
    bare = Task(product(step_v, step_t, learns=True), device)
    step = Task(learned(smooth_chamfer, step_v.clone(), step_t.clone()), device)
    extra["smooth_chamfer_step"] = step.peak()
    steps = medians({"product": bare, "step": step}, options.turns)

    print(f"\n{pictures} x {captions} sets of {elements}, {dim} wide, on {hardware(device)}")
    print(f"the bare product takes {found['product'][0]:.4f} s, {options.turns} turns\n")
    print("| | s | over the product | processor: over the product | MB |")
    print("| --- | --- | --- | --- | --- |")
    metrics = {f"{device.type}_product_seconds": round(found["product"][0], 5)}
    rows = {name: (found[name], found["product"]) for name in found if name != "product"}
    rows["smooth_chamfer_step"] = steps["step"], steps["product"]
    for name, ((clock, processor), base) in rows.items():
        row = {
            "seconds": clock,
            "over_product": clock / base[0],
            "processor_over_product": processor / base[1],
            "extra_mb": extra[name],
        }
        print(f"| {name} | " + " | ".join(f"{value:.4g}" for value in row.values()) + " |")
        metrics |= {f"{device.type}_{name}_{key}": float(f"{value:.4g}") for key, value in row.items()}
    return metrics


def main() -> None:
    """Measure on every device; with --record, write the numbers down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--captions", type=int, default=5000, help="(default: 5000)")
    parser.add_argument("--elements", type=int, default=4, help="of a set (default: 4)")
    parser.add_argument("--dim", type=int, default=1024, help="how wide an element is (default: 1024)")
    parser.add_argument("--threads", type=int, default=2, help="of the processor (default: 2)")
    parser.add_argument("--turns", type=int, default=5, help="how often each task runs (default: 5)")
    parser.add_argument("--record", action="store_true", help="write a record into assets/results")
    options = parser.parse_args()
    os.environ.setdefault("VSECORE_BATCH", "1")
    torch.set_num_threads(options.threads)
    began, metrics = time.perf_counter(), {}
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    for device in devices:
        metrics |= measure(torch.device(device), options)
    if options.record:
        names = ("pictures", "captions", "elements", "dim", "threads", "turns")
        entry = records.record(
            "benchmark_sets",
            config={name: getattr(options, name) for name in names},
            config_hash="",
            data={"name": "noise"},
            seed=0,
            metrics=metrics,
            seconds=time.perf_counter() - began,
            note="Seconds to score all pictures with all captions, and as a multiple of the bare product of "
            "all their elements, by the clock and by the processor's seconds, and the extra memory. SCAN on "
            "a twenty-fifth of the pairs, its time multiplied. A step: forward and backward pass of "
            "smooth-Chamfer on 200 pictures with 1,000 captions, over three products. Medians.",
        )
        print(f"\nWrote {records.write(entry, ROOT / 'assets' / 'results').relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
