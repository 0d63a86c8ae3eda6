"""How long each pooler takes compared with the mean, and how long our sorting takes compared with others.

Run as: python tests/benchmarks/pooling.py [--record] [--batch 128] [--dim 1024] [--threads 2] [--turns 7]

By default batches of 36 regions and of 577 patches, 1024 wide, on two threads and on a GPU if there is one.
All tasks of a shape take turns in one process, so that other work on the machine slows all of them alike, and
medians are compared. Forward is the time in search, where no gradient is needed; both ways is the time in
training. A task that has used up its share of seconds takes no more turns: the graph and the recurrent pool
of 577 elements take a minute each. The last column compares the forward time with reading the elements once
at the speed of a plain copy: no pooler can get below 1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor, nn

from vsecore import records
from vsecore.pooling import POOLS, GaussianPool, adpool, build_pool, sort_descending
from vsecore.pooling.set_pools import SetPool
from vsecore.training.distributed import hardware

ELEMENTS = (36, 577)
SHARE = 20.0  # seconds, after which a task takes no more turns
ROOT = Path(__file__).resolve().parents[2]


def sort_by_torch(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """The usual way to sort each dimension; no mask here."""
    return x.sort(dim=1, descending=True).values


class OnTorchSort(nn.Module):
    """AdPool as it is, but for the sorting."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        with mock.patch.object(adpool, "sort_descending", sort_by_torch):
            return self.pool(x)


class Task:
    """Something to do with a batch, and how long it took each time."""

    def __init__(self, run: Callable[[Tensor], Tensor], x: Tensor, backward: bool) -> None:
        self.run, self.backward = run, backward
        self.x = x.detach().requires_grad_(backward)
        self.seconds: list[float] = []

    def take_turn(self) -> None:
        """Do it once, unless its share of seconds is used up."""
        if sum(self.seconds) > SHARE:
            return
        wait(self.x.device)
        began = time.perf_counter()
        with torch.set_grad_enabled(self.backward):
            result = self.run(self.x)
            if self.backward:
                result.sum().backward()
        wait(self.x.device)
        self.seconds.append(time.perf_counter() - began)
        self.x.grad = None
        if isinstance(self.run, nn.Module):
            self.run.zero_grad()

    @property
    def median(self) -> float:
        """Seconds; the first turn, which fills caches, is left out where there are others."""
        return statistics.median(self.seconds[1:] or self.seconds)


def wait(device: torch.device) -> None:
    """Until a GPU has done what it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(device: torch.device, batch: int, elements: int, dim: int, turns: int) -> dict[str, float]:
    """Print a table of one shape on one device.

    Returns:
        The numbers of the table by name: multiples of the mean's time, and how many times faster sorting is.
    """
    torch.manual_seed(0)
    x = torch.randn(batch, elements, dim, device=device)
    runs: dict[str, Callable[[Tensor], Tensor]] = {
        name: build_pool(name, dim, **({"k": 5} if name == "kmax" else {})).to(device)
        for name in POOLS
        if not issubclass(POOLS[name], SetPool | GaussianPool)  # type: ignore[arg-type]
    }
    runs["adpool on torch.sort"] = OnTorchSort(runs["adpool"])  # type: ignore[arg-type]
    runs |= {"sort_descending": sort_descending, "torch.sort": sort_by_torch}
    if device.type == "cuda":
        runs["adpool, compiled"] = torch.compile(runs["adpool"])
    assert torch.equal(sort_descending(x), sort_by_torch(x))
    tasks = {
        (name, backward): Task(run, x, backward) for name, run in runs.items() for backward in (False, True)
    }
    copy = Task(torch.clone, x, backward=False)
    for _ in range(turns + 1):
        for task in (copy, *tasks.values()):
            task.take_turn()

    forward, both = ({name: tasks[name, backward].median for name in runs} for backward in (False, True))
    once = copy.median / 2  # a copy reads and writes
    print(f"\n({batch}, {elements}, {dim}) on {hardware(device)}, {turns} turns\n")
    print("| | forward, ms | both ways, ms | forward / mean | both / mean | forward / one reading |")
    print("| --- | --- | --- | --- | --- | --- |")
    metrics = {}
    for name in runs:
        multiples = forward[name] / forward["mean"], both[name] / both["mean"]
        print(
            f"| {name} | {1000 * forward[name]:.2f} | {1000 * both[name]:.2f} | {multiples[0]:.1f} | "
            f"{multiples[1]:.1f} | {forward[name] / once:.1f} |"
        )
        label = name.replace(" ", "_").replace(",", "")
        place = f"{device.type}_{elements}_{label}"
        metrics[f"{place}_forward"], metrics[f"{place}_both"] = multiples
        metrics[f"{place}_readings"] = forward[name] / once
    print()
    for what, slow, fast in (
        ("sorting", "torch.sort", "sort_descending"),
        ("AdPool", "adpool on torch.sort", "adpool"),
    ):
        gains = forward[slow] / forward[fast], both[slow] / both[fast]
        print(f"{what} by {fast}: {gains[0]:.1f} times as fast as {slow} forward, {gains[1]:.1f} both ways")
        place = f"{device.type}_{elements}_{what.lower()}_gain"
        metrics[f"{place}_forward"], metrics[f"{place}_both"] = gains
    return {name: round(value, 3) for name, value in metrics.items()}


def main() -> None:
    """Measure every shape on every device; with --record, write the numbers down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=128, help="how many sets (default: 128)")
    parser.add_argument("--turns", type=int, default=7, help="how often each task runs (default: 7)")
    parser.add_argument("--dim", type=int, default=1024, help="how wide an element is (default: 1024)")
    parser.add_argument("--threads", type=int, default=2, help="of the processor (default: 2)")
    parser.add_argument("--elements", type=int, nargs="+", default=ELEMENTS, help="how many a set has")
    parser.add_argument("--record", action="store_true", help="write a record into assets/results")
    options = parser.parse_args()
    os.environ.setdefault("VSECORE_BATCH", "1")
    torch.set_num_threads(options.threads)
    began, metrics = time.perf_counter(), {}
    devices = [torch.device("cpu")] + [torch.device("cuda")] * torch.cuda.is_available()
    for device in devices:
        for elements in options.elements:
            metrics |= measure(device, options.batch, elements, options.dim, options.turns)
    if options.record:
        names = ("batch", "elements", "dim", "threads")
        config = {name: getattr(options, name) for name in names}
        entry = records.record(
            "benchmark_pooling",
            config=config | {"turns": options.turns},
            config_hash="",
            data={"name": "noise"},
            seed=0,
            metrics=metrics,
            seconds=time.perf_counter() - began,
            note="Each pooler's time as a multiple of the mean's, forward and both ways, and over one "
            "reading of its input; how many times faster sort_descending is than torch.sort. Medians.",
        )
        print(f"\nWrote {records.write(entry, ROOT / 'assets' / 'results').relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
