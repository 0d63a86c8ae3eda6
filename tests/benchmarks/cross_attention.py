"""What cross-attention costs: over its bare matrix product, and against a loop over captions.

Run as: python tests/benchmarks/cross_attention.py [--record] [--threads 2] [--turns 3] [--loop-turns 1]

Pictures of 36 regions and captions of 5 to 20 words, 1024 wide. `cross_attention` and `focal_attention`, a
loop over captions in plain torch that follows the papers step by step, and the bare product of all regions
with all real words take turns in one process, so that what else the machine does falls on all alike, and
medians are compared. A training step is the forward and the backward pass of a batch of 128 pairs; its bare
products are three. On a machine with other work the processor's seconds are the ones to trust. With a GPU,
1,000 pictures and 5,000 captions are compared on it too.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, leaky_relu, normalize

from vsecore import records
from vsecore.similarity import cross_attention, focal_attention
from vsecore.training.distributed import hardware

REGIONS, SHORTEST, LONGEST, BATCH = 36, 5, 20, 128
ROOT = Path(__file__).resolve().parents[2]
SYSTEMS: dict[str, dict[str, object]] = {
    "t2i_lse": {"direction": "t2i", "smooth": 9.0, "aggregate": "lse", "lse": 6.0},
    "t2i_mean": {"direction": "t2i", "smooth": 9.0, "aggregate": "mean"},
    "i2t_lse": {"direction": "i2t", "smooth": 4.0, "aggregate": "lse", "lse": 5.0},
    "i2t_mean": {"direction": "i2t", "smooth": 4.0, "aggregate": "mean"},
    "focal_equal": {"focus": "equal", "smooth": 20.0},
    "focal_prob": {"focus": "prob", "smooth": 20.0},
}


def attend(query: Tensor, context: Tensor, smooth: float) -> Tensor:
    """The weights (B, L, S) of the papers, with the leak of their released codes."""
    affinity = leaky_relu(context @ query.mT, 0.1)  # (B, S, L)
    return (smooth * normalize(affinity, dim=2).mT).softmax(-1)


def answer(query: Tensor, context: Tensor, weights: Tensor) -> Tensor:
    """Each query element's cosine with its attended vector, (B, L)."""
    return cosine_similarity(query, weights @ context, dim=-1)


def refocus(weights: Tensor, focus: str) -> Tensor:
    """BFAN's second look: what is less relevant than the rest is left out."""
    trust = weights.sqrt() if focus == "prob" else torch.ones_like(weights)
    relevance = weights * trust.sum(-1, keepdim=True) - (weights * trust).sum(-1, keepdim=True)
    kept = torch.where(relevance > 0, weights, 0)
    return kept / kept.sum(-1, keepdim=True)


def loop(v: Tensor, t: Tensor, lengths: list[int], name: str) -> Tensor:
    """One caption after the other with all pictures at once, as the released codes do it."""
    options, columns = SYSTEMS[name], []
    v, t = normalize(v, dim=-1), normalize(t, dim=-1)
    smooth = float(str(options["smooth"]))
    for words, length in zip(t, lengths, strict=True):
        caption = words[:length].expand(len(v), -1, -1)  # (B, L, D)
        if name.startswith("focal"):
            score: Tensor | float = 0.0
            for query, context in ((caption, v), (v, caption)):
                weights = refocus(attend(query, context, smooth), str(options["focus"]))
                score = score + answer(query, context, weights).mean(1)
        else:
            query, context = (caption, v) if options["direction"] == "t2i" else (v, caption)
            cosines = answer(query, context, attend(query, context, smooth))  # (B, L)
            if options["aggregate"] == "mean":
                score = cosines.mean(1)
            else:
                lse = float(str(options["lse"]))
                score = (lse * cosines).logsumexp(1) / lse
        columns.append(score)
    return torch.stack(columns, 1)


def ours(v: Tensor, t: Tensor, mask: Tensor, name: str) -> Tensor:
    """The package's scores."""
    function: Callable[..., Tensor] = focal_attention if name.startswith("focal") else cross_attention
    return function(v, None, t, mask, **SYSTEMS[name])


class Peak:
    """The most memory that this process takes within a `with` beyond what it had before, in bytes."""

    def __enter__(self) -> Peak:
        if sys.platform == "linux":  # what was freed before goes back, so that it is counted when taken again
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        self.process, self.over, self.most = psutil.Process(), False, 0
        self.before = self.process.memory_info().rss
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self) -> None:
        """Look a thousand times a second."""
        while not self.over:
            self.most = max(self.most, self.process.memory_info().rss - self.before)
            time.sleep(0.001)

    def __exit__(self, *_: object) -> None:
        self.over = True
        self.thread.join()


@dataclass
class Task:
    """Something that is done several times, with the seconds by the clock and of the processor."""

    run: Callable[[], object]
    device: torch.device
    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def take_turn(self) -> None:
        """Do it once more."""
        self.wait()
        began = time.perf_counter(), time.process_time()
        self.run()
        self.wait()
        self.clock.append(time.perf_counter() - began[0])
        self.processor.append(time.process_time() - began[1])

    def wait(self) -> None:
        """Until a GPU has done what it was asked for."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def peak(self) -> float:
        """The extra memory that it takes once more, in MB."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            before = torch.cuda.memory_allocated(self.device)
            self.take_turn()
            return (torch.cuda.max_memory_allocated(self.device) - before) / 1e6
        with Peak() as peak:
            self.run()
        return peak.most / 1e6


def invented(
    device: torch.device, pictures: int, captions: int, dim: int
) -> tuple[Tensor, Tensor, Tensor, list[int]]:
    """Noise in the shape of regions and words: how long it takes does not depend on it."""
    dice = torch.Generator().manual_seed(0)
    lengths = torch.randint(SHORTEST, LONGEST + 1, (captions,), generator=dice)
    mask = torch.arange(LONGEST) < lengths[:, None]
    v = torch.randn(pictures, REGIONS, dim, generator=dice)
    t = torch.randn(captions, LONGEST, dim, generator=dice)
    return v.to(device), t.to(device), mask.to(device), lengths.tolist()


def tasks_of(
    device: torch.device, pictures: int, captions: int, dim: int, systems: list[str], learns: bool
) -> dict[str, Task]:
    """The bare product, and for each system our function and the loop; with `learns` both passes."""
    v, t, mask, lengths = invented(device, pictures, captions, dim)
    regions, words = v.flatten(0, 1), t[mask]
    chunk = 1024  # words at a time: the result of the whole would fill the memory for nothing
    results = torch.empty(chunk, len(regions), device=device)

    def product() -> None:
        for part in words.split(chunk):
            torch.mm(part, regions.T, out=results[: len(part)])
            if learns:  # the gradient of the regions, and that of the words
                results[: len(part)].T @ part
                results[: len(part)] @ regions

    def both(compute: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], object]:
        def run() -> object:
            if not learns:
                with torch.no_grad():
                    return compute(v, t)
            x, y = v.detach().requires_grad_(), t.detach().requires_grad_()
            return torch.autograd.grad(compute(x, y).sum(), (x, y))

        return run

    tasks = {"product": Task(product, device)}
    for name in systems:
        tasks[name] = Task(both(lambda x, y, name=name: ours(x, y, mask, name)), device)  # type: ignore[misc]
        tasks[f"{name} loop"] = Task(both(lambda x, y, name=name: loop(x, y, lengths, name)), device)  # type: ignore[misc]
    if not learns:
        few = slice(0, 50)
        for name in systems:
            torch.testing.assert_close(
                ours(v[:8], t[few], mask[few], name),
                loop(v[:8], t[few], lengths[few], name),
                rtol=1e-3,
                atol=1e-3,
            )
    return tasks


def measure(
    device: torch.device,
    pictures: int,
    captions: int,
    dim: int,
    systems: list[str],
    learns: bool,
    turns: int,
    loop_turns: int,
) -> dict[str, float]:
    """Print a table; return its numbers by name. Loops take the longest, so have turns of their own."""
    tasks = tasks_of(device, pictures, captions, dim, systems, learns)
    extra = {name: tasks[name].peak() for name in systems}  # before the loops have left memory to use again
    for task in [tasks["product"], *(tasks.values() if device.type == "cuda" else ())]:
        task.take_turn()  # a GPU's first turn chooses kernels
    for task in tasks.values():
        task.clock.clear()
        task.processor.clear()
    for turn in range(max(turns, loop_turns)):
        for name, task in tasks.items():
            if turn < (loop_turns if name.endswith(" loop") else turns):
                task.take_turn()
    median = {name: statistics.median(task.clock) for name, task in tasks.items()}
    spent = {name: statistics.median(task.processor) for name, task in tasks.items()}
    what = "a training step" if learns else "scores"
    print(f"\n{what}, {pictures} x {captions}, {dim} wide, on {hardware(device)}, {turns} turns")
    print(f"the bare product takes {median['product']:.3f} s\n")
    print("| | s | over the product | the loop over it | processor: over the product | the loop | MB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    metrics = {}
    for name in systems:
        other = f"{name} loop"
        row = {
            "over_product": median[name] / median["product"],
            "loop_over_ours": median[other] / median[name],
            "processor_over_product": spent[name] / spent["product"],
            "processor_loop_over_ours": spent[other] / spent[name],
            "extra_mb": extra[name],
        }
        print(
            f"| {name} | {median[name]:.3f} | " + " | ".join(f"{value:.2f}" for value in row.values()) + " |"
        )
        place = f"{device.type}_{'step' if learns else 'scores'}_{name}"
        metrics |= {f"{place}_{key}": round(value, 3) for key, value in row.items()}
    return metrics


def main() -> None:
    """Measure scores and a training step on every device; with --record, write the numbers down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=200, help="to score (default: 200)")
    parser.add_argument("--captions", type=int, default=1000, help="to score (default: 1000)")
    parser.add_argument("--dim", type=int, default=1024, help="how wide an element is (default: 1024)")
    parser.add_argument("--threads", type=int, default=2, help="of the processor (default: 2)")
    parser.add_argument("--turns", type=int, default=3, help="how often each task runs (default: 3)")
    parser.add_argument("--loop-turns", type=int, default=1, help="how often a loop runs (default: 1)")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--record", action="store_true", help="write a record into assets/results")
    options = parser.parse_args()
    os.environ.setdefault("VSECORE_BATCH", "1")
    torch.set_num_threads(options.threads)
    began, metrics = time.perf_counter(), {}
    shapes = [(torch.device("cpu"), options.pictures, options.captions)]
    if torch.cuda.is_available():
        shapes.append((torch.device("cuda"), 1000, 5000))
    for device, pictures, captions in shapes:
        for learns in (False, True):
            sizes = (BATCH, BATCH) if learns else (pictures, captions)
            turns = options.turns, options.loop_turns
            metrics |= measure(device, *sizes, options.dim, options.systems, learns, *turns)
    if options.record:
        names = ("pictures", "captions", "dim", "threads", "turns", "loop_turns", "systems")
        entry = records.record(
            "benchmark_cross_attention",
            config={name: getattr(options, name) for name in names},
            config_hash="",
            data={"name": "noise"},
            seed=0,
            metrics=metrics,
            seconds=time.perf_counter() - began,
            note="Each system's time as a multiple of the bare product of regions and words, how many times "
            "faster it is than a loop over captions in plain torch, by the clock and by the processor's "
            "seconds, and the extra memory. Medians.",
        )
        print(f"\nWrote {records.write(entry, ROOT / 'assets' / 'results').relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
