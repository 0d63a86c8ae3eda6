"""What a lesson's training step costs: over its bare matrix products, and over a loop written by hand.

Run as: python tests/benchmarks/training.py [--threads 1] [--steps 40]

A step of `training.fit` is AdPool on grid cells and on words, 128 wide, with AdOpt, on batches of 128 pairs:
what the lessons train. The matrix products of a plain step, which knows no shortcut around the padding, are
recorded forward and backward, and then computed again by themselves. `fit`, a loop by hand and the bare
products take turns in one process, so that what else the machine does falls on all alike, and medians are
compared. On a machine with other work the processor's seconds are the ones to trust.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vsecore.data.batches import Batch, make_loader
from vsecore.data.splits import Dataset, Split
from vsecore.losses import adopt
from vsecore.model import VSE
from vsecore.recipes import Recipe, get
from vsecore.training import Event, fit

SKIPPED = 5  # the first steps also fill caches
PICTURES, CELLS, WIDTH = 1000, 49, 144  # as the scenes have them
PRODUCTS = {
    torch.ops.aten.mm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.baddbmm.default,
}


def invented_data(captions: int) -> Dataset:
    """Noise in the shape of the lessons' data: how long a step takes does not depend on it."""
    dice = np.random.default_rng(0)
    cells = dice.standard_normal((PICTURES, CELLS, WIDTH), dtype=np.float32).astype(np.float16)
    words = [f"word{number}" for number in range(300)]
    sentences = [" ".join(dice.choice(words, dice.integers(4, 19))) for _ in range(captions)]
    owner = np.concatenate([np.arange(PICTURES), dice.integers(0, PICTURES, captions - PICTURES)])
    train = Split("train", cells, sentences, owner, [str(row) for row in range(PICTURES)])
    dev = Split("dev", cells[:2], ["word1", "word2"], np.arange(2), ["0", "1"])  # as good as free to evaluate
    return Dataset("noise", train, dev, dev, "grid")


class Products(TorchDispatchMode):
    """Takes down the operands' shapes of every matrix product that happens inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[torch.Size, torch.Size]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let the function do its work, and look at what it was given."""
        if function in PRODUCTS:
            left, right = [arg for arg in args if isinstance(arg, Tensor)][-2:]
            self.shapes.append((left.shape, right.shape))
        return function(*args, **(kwargs or {}))

    def again(self) -> Callable[[], None]:
        """A function that computes all of them by themselves."""
        pairs = [(torch.randn(left), torch.randn(right)) for left, right in self.shapes]

        def compute() -> None:
            for left, right in pairs:
                left @ right

        return compute


def learn(model: VSE, batch: Batch) -> None:
    """The forward and the backward pass of a step."""
    v, t = model(batch.to("cpu"))
    adopt(model.scores(v, t), margin=0.2, positives=batch.positives).backward()


def loop_by_hand(recipe: Recipe, data: Dataset, seen: Products) -> Iterator[None]:
    """The shortest loop that does what `fit` does; stops after each step. The first step is taken down."""
    tokenizer = recipe.tokenizer(data.train.captions)
    torch.manual_seed(0)
    model = recipe.build(data.feature_dim, tokenizer).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.training.learning_rate, fused=True)
    drops = {"element_drop": recipe.image.element_drop, "word_drop": recipe.text.word_drop}
    for number, batch in enumerate(make_loader(data.train, tokenizer, 128, **drops)):
        optimizer.zero_grad()
        if number == 0:
            with mock.patch("vsecore.encoders.cpu.can_read", lambda words: False), seen:
                learn(model, batch)
        else:
            learn(model, batch)
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.training.clip_norm)
        optimizer.step()
        yield


class Turns:
    """A callback of `fit` that lets the other two take a step after each of `fit`'s, and times all."""

    def __init__(self, by_hand: Iterator[None], seen: Products) -> None:
        self.by_hand, self.seen = by_hand, seen
        self.products: Callable[[], None] | None = None
        self.times: dict[str, list[tuple[float, float]]] = {"fit": [], "by hand": [], "products": []}
        self.resumed = self.clock()

    @staticmethod
    def clock() -> tuple[float, float]:
        """Seconds by the clock, and of the processor."""
        return time.perf_counter(), time.process_time()

    def note(self, name: str) -> None:
        """Take down how long this took since the last note."""
        now = self.clock()
        self.times[name].append((now[0] - self.resumed[0], now[1] - self.resumed[1]))
        self.resumed = self.clock()

    def __call__(self, event: Event) -> None:
        """Note how long `fit` took, then let the others do the same work."""
        if event.kind != "step":
            return
        self.note("fit")
        next(self.by_hand)
        self.note("by hand")
        self.products = self.products or self.seen.again()
        self.products()
        self.note("products")


def main() -> None:
    """Time them and print a table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--steps", type=int, default=40)
    chosen = options.parse_args()
    os.environ.setdefault("VSECORE_BATCH", "1")
    torch.set_num_threads(chosen.threads)
    recipe = get("2ad_grid_gru").override(
        {"dim": 128, "training.epochs": 1, "text.encoder.word_dim": 64, "text.encoder.minimum_count": 1}
    )
    data = invented_data(captions=max(chosen.steps * 128, PICTURES))
    seen = Products()
    turns = Turns(loop_by_hand(recipe, data, seen), seen)
    run = fit(recipe, data, device="cpu", callback=turns)
    print("| | products, ms | by hand, ms | fit, ms | fit / products | fit / by hand |")
    print("| --- | --- | --- | --- | --- | --- |")
    for column, name in enumerate(["by the clock", "of the processor"]):
        bare, hand, ours = (
            1000 * statistics.median(step[column] for step in turns.times[who][SKIPPED:])
            for who in ("products", "by hand", "fit")
        )
        numbers = f"{bare:.1f} | {hand:.1f} | {ours:.1f} | {ours / bare:.2f} | {ours / hand:.3f}"
        print(f"| a step, {name} | {numbers} |")
    # The run's own mean step holds the other two: what it waited is set against its own steps alone.
    waited = run.timings["data_wait"] * run.timings["step_seconds"]
    share = waited / statistics.mean(step[0] for step in turns.times["fit"])
    print(f"\nWaiting for data: {share:.1%} of a step")


if __name__ == "__main__":
    main()
