"""What a step of `training.fit` costs over the same step in a bare loop, and how long it waits for its data.

Run as: python tests/benchmarks/training.py

Both train VSE++ on grid features with a BiGRU: batches of 128 pictures of (49, 1280) half-precision cells,
memory-mapped from disk, on two threads. The joint space is 256 wide, a quarter of the paper's: the shorter a
step, the more `fit` and the data have to show of themselves. They take turns step by step in one process, so
that what else the machine does falls on both alike; the medians are compared. On a machine with other work
the processor's seconds, summed over the threads, are the ones to trust.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from vsecore.data.batches import make_loader
from vsecore.data.splits import Dataset, Split
from vsecore.losses import triplet
from vsecore.recipes import Recipe, get
from vsecore.training import Event, fit

STEPS = 25
SKIPPED = 5  # the first steps also fill caches
PICTURES = 1000


def invented_data(folder: Path, captions: int) -> Dataset:
    """Noise in the shape of real features and captions: how long a step takes does not depend on them."""
    dice = np.random.default_rng(0)
    path = folder / "cells.npy"
    np.save(path, dice.standard_normal((PICTURES, 49, 1280), dtype=np.float32).astype(np.float16))
    cells = np.load(path, mmap_mode="r")
    words = [f"word{number}" for number in range(3000)]
    sentences = [" ".join(dice.choice(words, dice.integers(6, 18))) for _ in range(captions)]
    owner = np.concatenate([np.arange(PICTURES), dice.integers(0, PICTURES, captions - PICTURES)])
    train = Split("train", cells, sentences, owner, [str(row) for row in range(PICTURES)])
    dev = Split("dev", cells[:2], ["word1", "word2"], np.arange(2), ["0", "1"])  # as good as free to evaluate
    return Dataset("noise", train, dev, dev, "grid")


def bare_loop(recipe: Recipe, data: Dataset) -> Iterator[None]:
    """The shortest loop that does what `fit` does in its first epoch; stops after each step."""
    tokenizer = recipe.tokenizer(data.train.captions)
    torch.manual_seed(0)
    model = recipe.build(data.feature_dim, tokenizer).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.training.learning_rate, fused=True)
    for batch in make_loader(data.train, tokenizer, recipe.training.batch_size):
        v, t = model(batch)
        loss = triplet(model.scores(v, t), recipe.loss.margin, hardest=False, positives=batch.positives)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.training.clip_norm)
        optimizer.step()
        yield


class Turns:
    """A callback of `fit` that lets the bare loop take a step after each of `fit`'s, and times both."""

    def __init__(self, bare: Iterator[None]) -> None:
        self.bare = bare
        self.fit_times: list[tuple[float, float]] = []  # (by the clock, of the processor)
        self.bare_times: list[tuple[float, float]] = []
        self.resumed = self.clock()

    @staticmethod
    def clock() -> tuple[float, float]:
        """Seconds by the clock, and of the processor."""
        return time.perf_counter(), time.process_time()

    def __call__(self, event: Event) -> None:
        """Note how long `fit` took, then take and time a bare step."""
        if event.kind != "step":
            return
        began = self.clock()
        self.fit_times.append((began[0] - self.resumed[0], began[1] - self.resumed[1]))
        next(self.bare)
        self.resumed = self.clock()
        self.bare_times.append((self.resumed[0] - began[0], self.resumed[1] - began[1]))


def main() -> None:
    """Time the two loops and print a table."""
    os.environ.setdefault("VSECORE_BATCH", "1")
    torch.set_num_threads(2)
    recipe = get("vsepp_grid_gru").override({"dim": 256, "training.epochs": 1, "text.minimum_count": 1})
    with tempfile.TemporaryDirectory() as folder:
        data = invented_data(Path(folder), captions=STEPS * recipe.training.batch_size)
        turns = Turns(bare_loop(recipe, data))
        run = fit(recipe, data, device="cpu", callback=turns)
    print("| | bare loop, ms | fit, ms | fit / bare |\n| --- | --- | --- | --- |")
    for column, name in enumerate(["by the clock", "of the processor"]):
        bare, ours = (
            statistics.median(step[column] for step in steps[SKIPPED:])
            for steps in (turns.bare_times, turns.fit_times)
        )
        print(f"| a step, {name} | {1000 * bare:.0f} | {1000 * ours:.0f} | {ours / bare:.3f} |")
    # The run's own mean step holds the bare one too: what it waited is set against its own steps alone.
    waited = run.timings["data_wait"] * run.timings["step_seconds"]
    print(
        f"\nWaiting for data: {waited / statistics.mean(step[0] for step in turns.fit_times):.1%} of a step"
    )


if __name__ == "__main__":
    main()
