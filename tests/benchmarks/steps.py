"""What a training step costs, in time and memory.

Run as: OMP_NUM_THREADS=1 python tests/benchmarks/steps.py lesson|latent_targets [--record]

- lesson: AdPool on grid cells and on words, 128 wide, with AdOpt, on batches of 128 pairs, as the lessons
  train it. Its steps take turns with its own matrix products, recorded in one step and computed again by
  themselves.
- latent_targets: the systems of LTD's table 1, as wide as in its released code, on cells as a ResNet-50 gives
  them, over the baseline, which takes part twice: what its second copy costs over the first would be 1 on a
  quiet machine, and says how far the other ratios can be trusted.
"""

from __future__ import annotations

import statistics
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from harness import Peak, Run, benchmark, table, take_turns
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vsecore.data.batches import make_loader
from vsecore.data.splits import Dataset, Split
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.words import TokenizedCaptions
from vsecore.recipes import Recipe, get
from vsecore.training.optimization import make_optimizer
from vsecore.training.system import System

AT = torch.ops.aten
PRODUCTS = {AT.mm.default, AT.bmm.default, AT.addmm.default, AT.baddbmm.default}


def invented_data(steps: int, pictures: int, width: int, words: int, longest: int, target: int) -> Dataset:
    """Noise in the shape of pictures and their captions: how long a step takes does not depend on it."""
    dice = np.random.default_rng(0)
    lexicon = [f"word{number}" for number in range(words)]
    cells = dice.standard_normal((pictures, 49, width), dtype=np.float32).astype(np.float16)
    count = max(steps * 128, pictures)
    captions = [" ".join(dice.choice(lexicon, dice.integers(5, longest))) for _ in range(count)]
    owner = np.concatenate([np.arange(pictures), dice.integers(0, pictures, count - pictures)])
    targets = dice.standard_normal((count, target), dtype=np.float32) if target else None
    train = Split("train", cells, captions, owner, [str(row) for row in range(pictures)], targets=targets)
    dev = Split("dev", cells[:2], lexicon[:2], np.arange(2), ["0", "1"])
    return Dataset("noise", train, dev, dev, "grid")


def training(recipe: Recipe, data: Dataset, words: int) -> Iterator[System]:
    """What `fit` does in each step of an epoch; stops after each."""
    tokenizer, settings = Vocabulary([f"word{number}" for number in range(words)]), recipe.training
    torch.manual_seed(0)
    system = System.build(recipe, data, tokenizer).train()
    optimizer = make_optimizer(system, settings)
    tokens = TokenizedCaptions.encode(tokenizer, data.train.captions)
    drops = {"element_drop": recipe.image.element_drop, "word_drop": recipe.text.word_drop}
    while True:
        for batch in make_loader(data.train, tokens, settings.batch_size, mode=settings.batches, **drops):
            terms, _ = system(batch.to("cpu"), 0)
            optimizer.zero_grad()
            torch.stack(list(terms.values())).sum().backward()
            torch.nn.utils.clip_grad_norm_(system.parameters(), settings.clip_norm)
            optimizer.step()
            yield system


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

    def again(self) -> Run:
        """A function that computes all of them by themselves."""
        pairs = [(torch.randn(left), torch.randn(right)) for left, right in self.shapes]
        return lambda: [left @ right for left, right in pairs]


def lesson(options: Namespace) -> dict[str, float]:
    """The recipe of a lesson over its own products."""
    recipe = get("2ad_grid_gru").override({"dim": 128, "text.encoder.word_dim": 64})
    data, seen = invented_data(options.turns, 1000, 144, 300, 19, 0), Products()
    with mock.patch("vsecore.encoders.cpu.can_read", lambda words: False), seen:
        next(training(recipe, data, 300))  # a plain step, which knows no shortcut around the padding
    return compared({"products": seen.again(), "step": partial(next, training(recipe, data, 300))}, options)


def latent_targets(options: Namespace) -> dict[str, float]:
    """The systems of LTD's table 1 over its baseline."""
    systems = {
        "bl": "ltd_grid_gru",
        "bl_again": "ltd_grid_gru",
        "ltd_dual": "ltd_grid_gru+ltd",
        "ltd_constraint": "ltd_grid_gru+ltd_constraint",
    }
    data, taken = invented_data(options.turns, 500, 2048, 8000, 16, 384), {}
    steps = {}
    for name, recipe in systems.items():
        steps[name] = training(get(recipe), data, 8000)
        with Peak() as peak:
            next(steps[name])
        taken[f"{name}_taken_mb"] = peak.most / 2**20
    return compared({name: partial(next, run) for name, run in steps.items()}, options) | taken


def compared(tasks: Mapping[str, Run], options: Namespace) -> dict[str, float]:
    """Print and return the seconds, and the ratios to the first task within a turn with their quartiles."""
    times, rows, metrics = take_turns(tasks, options.turns), [], {}
    first = next(iter(times))
    for name, own in times.items():
        pairs = zip(own.processor[1:], times[first].processor[1:], strict=True)
        low, ratio, high = statistics.quantiles([one / other for one, other in pairs], n=4)
        clock, processor = own.medians
        row = {"clock_seconds": clock, "processor_seconds": processor, f"processor_over_{first}": ratio}
        row |= {f"processor_over_{first}_low": low, f"processor_over_{first}_high": high}
        rows.append({"": name, **row})
        metrics |= {f"{name}_{key}": value for key, value in row.items()}
    table(rows)
    return metrics


STEPS: dict[str, Callable[[Namespace], dict[str, float]]] = {
    "lesson": lesson,
    "latent_targets": latent_targets,
}
NOTE = (
    "A training step: seconds by the clock and of the processor, and the median and quartiles of the ratios "
    "to the first task within a turn."
)

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in STEPS:
        sys.exit(f"name one of {', '.join(STEPS)}")
    chosen = sys.argv.pop(1)
    benchmark(chosen, STEPS[chosen], NOTE, turns=20, threads=1)
