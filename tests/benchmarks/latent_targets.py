"""What a latent target adds to a training step, in time and memory: over the paper's baseline (BL).

Run as: OMP_NUM_THREADS=1 python tests/benchmarks/latent_targets.py [--record] [--rounds 20]

The systems are those of the paper's table 1, as wide as in its released code, on cells as a ResNet-50 gives
them, with batches of 128 captions of usual length. A step is what `training.fit` does in one: a batch is
prepared, its loss computed, and the weights moved. Targets are in memory, as after reading the cache.

All systems live in one process and take a step on the same batch, one after the other, each round in another
order, so that what else the machine does falls on all alike. The processor's seconds are compared within a
round, and the median of these ratios counts. The baseline takes part twice: what its second copy costs over
the first would be 1 on a quiet machine, and says how far the other ratios can be trusted. For its memory each
system is trained in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from cross_attention import Peak

from vsecore import records
from vsecore.data.batches import make_loader
from vsecore.data.splits import Dataset, Split
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.words import TokenizedCaptions
from vsecore.recipes import get
from vsecore.training.optimization import make_optimizer
from vsecore.training.system import System

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = {
    "bl": "ltd_grid_gru",
    "bl_again": "ltd_grid_gru",
    "ltd_dual": "ltd_grid_gru+ltd",
    "ltd_constraint": "ltd_grid_gru+ltd_constraint",
}
PICTURES, CELLS, WIDTH, WORDS, TARGET = 500, 49, 2048, 8000, 384
LEXICON = [f"word{number}" for number in range(WORDS)]
SKIPPED = 2  # the first steps also load libraries and touch memory
TURNS = 3  # of the processes that measure memory


def invented_data(steps: int, batch_size: int) -> Dataset:
    """Noise in the shape of photographs and their captions: how long a step takes does not depend on it."""
    dice = np.random.default_rng(0)
    cells = dice.standard_normal((PICTURES, CELLS, WIDTH), dtype=np.float32).astype(np.float16)
    count = max(steps * batch_size, PICTURES)
    captions = [" ".join(dice.choice(LEXICON, dice.integers(7, 16))) for _ in range(count)]
    owner = np.concatenate([np.arange(PICTURES), dice.integers(0, PICTURES, count - PICTURES)])
    targets = dice.standard_normal((count, TARGET), dtype=np.float32)
    train = Split("train", cells, captions, owner, [str(row) for row in range(PICTURES)], targets=targets)
    dev = Split("dev", cells[:2], LEXICON[:2], np.arange(2), ["0", "1"])
    return Dataset("noise", train, dev, dev, "grid")


def training(name: str, data: Dataset) -> Iterator[System]:
    """What `fit` does in each step of an epoch; stops after each."""
    recipe, tokenizer = get(SYSTEMS[name]), Vocabulary(LEXICON)
    torch.manual_seed(0)
    system = System.build(recipe, data, tokenizer).train()
    settings = recipe.training
    optimizer = make_optimizer(system, settings)
    tokens = TokenizedCaptions.encode(tokenizer, data.train.captions)
    drops = {"element_drop": recipe.image.element_drop, "word_drop": recipe.text.word_drop}
    for batch in make_loader(data.train, tokens, settings.batch_size, mode=settings.batches, **drops):
        terms, _ = system(batch.to("cpu"), 0)
        optimizer.zero_grad()
        torch.stack(list(terms.values())).sum().backward()
        torch.nn.utils.clip_grad_norm_(system.parameters(), settings.clip_norm)
        optimizer.step()
        yield system


def seconds(data: Dataset, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Let the systems take turns; return the seconds of each step, by the clock and of the processor."""
    steps = {name: training(name, data) for name in SYSTEMS}
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in SYSTEMS}
    names = list(SYSTEMS)
    for number in range(SKIPPED + rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            clock, processor = time.perf_counter(), time.process_time()
            next(steps[name])
            took = time.perf_counter() - clock, time.process_time() - processor
            if number >= SKIPPED:
                spent[name].append(took)
    return spent


def memory(name: str, data: Dataset) -> dict[str, float]:
    """Train a system for a few steps; return the megabytes it takes.

    Returns:
        "peak_mb": of the whole process, with its libraries and data; "taken_mb": of these, what the training
        took; "weights_mb": of these, the weights, which have a gradient and two moments beside them.
    """
    with Peak() as peak:
        steps = training(name, data)
        for _ in range(SKIPPED + 1):
            system = next(steps)
    weights = sum(one.numel() * one.element_size() for one in system.parameters())
    found = {"peak_mb": peak.before + peak.most, "taken_mb": peak.most, "weights_mb": weights}
    return {key: size / 2**20 for key, size in found.items()}


def held() -> dict[str, dict[str, float]]:
    """Call `memory` for each system in turns, each time in another process; return the medians."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SYSTEMS}
    for _ in range(TURNS):
        for name, seen in found.items():
            command = [sys.executable, __file__, "--only", name]
            ended = subprocess.run(command, capture_output=True, text=True, check=True)
            seen.append(json.loads(ended.stdout.splitlines()[-1]))
    return {
        name: {key: statistics.median(one[key] for one in seen) for key in seen[0]}
        for name, seen in found.items()
    }


def main() -> None:
    """Measure time, then memory; with --record, write the numbers down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="steps of each system (default: 20)")
    parser.add_argument("--record", action="store_true", help="write a record into assets/results")
    parser.add_argument("--only", choices=SYSTEMS, help=argparse.SUPPRESS)  # memory of one, by itself
    options = parser.parse_args()
    os.environ.setdefault("VSECORE_BATCH", "1")
    torch.set_num_threads(1)
    batch_size = get(SYSTEMS["bl"]).training.batch_size
    data = invented_data(SKIPPED + options.rounds, batch_size)
    if options.only:
        print(json.dumps(memory(options.only, data)))
        return
    began, metrics = time.perf_counter(), {}
    spent = seconds(data, options.rounds)
    taken = held()
    columns = ("", "clock, s", "processor, s", "over BL", "quartiles")
    columns += ("process, MB", "over BL", "training, MB", "over BL", "weights, MB")
    print(f"| {' | '.join(columns)} |")
    print("|" + " --- |" * len(columns))
    for name, steps in spent.items():
        clock, processor = (statistics.median(step[column] for step in steps) for column in (0, 1))
        ratios = [own[1] / bl[1] for own, bl in zip(steps, spent["bl"], strict=True)]
        low, ratio, high = statistics.quantiles(ratios, n=4)
        row = {
            "clock_seconds": clock,
            "processor_seconds": processor,
            "processor_over_bl": ratio,
            "processor_over_bl_low": low,
            "processor_over_bl_high": high,
            "peak_mb": taken[name]["peak_mb"],
            "peak_over_bl": taken[name]["peak_mb"] / taken["bl"]["peak_mb"],
            "taken_mb": taken[name]["taken_mb"],
            "taken_over_bl": taken[name]["taken_mb"] / taken["bl"]["taken_mb"],
            "weights_mb": taken[name]["weights_mb"],
        }
        shown = [f"{one:.4g}" for one in row.values()]
        print(f"| {name} | {' | '.join([*shown[:3], '–'.join(shown[3:5]), *shown[5:]])} |")
        metrics |= {f"{name}_{key}": float(text) for key, text in zip(row, shown, strict=True)}
    if options.record:
        entry = records.record(
            "benchmark_latent_targets",
            config={
                "systems": SYSTEMS,
                "rounds": options.rounds,
                "batch_size": batch_size,
                "pictures": [PICTURES, CELLS, WIDTH],
                "vocabulary": WORDS,
                "target_width": TARGET,
                "threads": 1,
            },
            config_hash="",
            data={"name": "noise"},
            seed=0,
            metrics=metrics,
            seconds=time.perf_counter() - began,
            note="A training step with a latent target over one of the baseline, which takes part twice: the "
            "processor's seconds, the median of the ratios within a round and their quartiles; the peak "
            "memory of a process that trains one system, and what of it the training took beyond libraries "
            "and data. Other programs were at work on the machine, so the systems took turns step by step.",
        )
        print(f"\nWrote {records.write(entry, ROOT / 'assets' / 'results').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
