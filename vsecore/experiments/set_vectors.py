"""The vectors of embedding sets: how widely they spread, and what each of them is worth in retrieval.

Source: Kim, Kim and Kwak 2023 (DivE), section 4.6, table 3, and section 4.8, table 5.
"""

import statistics
from collections.abc import Mapping
from dataclasses import replace
from itertools import count, takewhile

import torch

from vsecore.data.splits import Split
from vsecore.evaluation import evaluate
from vsecore.model import VSE
from vsecore.scoring import Captions, encode, score_embedded
from vsecore.sets import circular_variance

SIDES = ("pictures", "texts")
"""The two sides, as they are called in the names of metrics."""
LOG_VARIANCES = ("log_variance_pictures", "log_variance_texts")
"""The mean logarithm of the circular variance of the sets, on either side."""
LOST_ALONE = ("lost_with_one_of_pictures", "lost_with_one_of_texts")
"""The share of the rsum that is lost if one side's sets have one vector only, in percent: the mean over its
vectors."""
LOST_WITHOUT = "lost_without_the_weakest_of_pictures"
"""The same if the pictures' sets lack the vector that is the weakest alone."""
SMALLEST = 1e-12
"""Smaller variances count as this one, so that sets whose vectors are all the same have a logarithm too."""


def alone(side: str, number: int) -> str:
    """Return the name of a metric: the rsum where one side's sets have only this vector, counted from 1."""
    return f"rsum_{side}_only_{number}"


def without(side: str, number: int) -> str:
    """Return the name of a metric: the rsum where one side's sets lack this vector, counted from 1."""
    return f"rsum_{side}_without_{number}"


def lost(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return `LOST_ALONE` and `LOST_WITHOUT` from the metrics of a system; {} if it makes no sets."""
    found: dict[str, float] = {}
    for side, name in zip(SIDES, LOST_ALONE, strict=True):
        names = takewhile(metrics.__contains__, (alone(side, number) for number in count(1)))
        if not (sums := [metrics[one] for one in names]) or not metrics["rsum"]:
            return {}
        found[name] = 100 * (1 - statistics.mean(sums) / metrics["rsum"])
        if side == "pictures":
            weakest = without(side, 1 + sums.index(min(sums)))
            found[LOST_WITHOUT] = 100 * (1 - metrics[weakest] / metrics["rsum"])
    return found


@torch.inference_mode()
def measure_sets(model: VSE, split: Split, tokenizer: Captions) -> dict[str, float]:
    """Measure the sets that a model makes of a split.

    Returns:
        `LOG_VARIANCES`, in natural logarithms; and by the names that `alone` and `without` give, the rsum
        with one vector of one side's sets alone, and without it, where the other side's sets stay whole.
        Nothing for a model that does not make sets of at least two vectors on both sides.
    """
    sides = encode(model, split, tokenizer)
    found: dict[str, float] = {}
    for place, (side, name) in enumerate(zip(SIDES, LOG_VARIANCES, strict=True)):
        sets = sides[place].vectors  # (n, K, D)
        if sets is None or sets.ndim < 3 or sets.shape[1] < 2:
            return {}
        found[name] = float(circular_variance(sets.double()).clamp(min=SMALLEST).log().mean())
        every = list(range(sets.shape[1]))
        for number in every:
            others = every[:number] + every[number + 1 :]
            for metric, kept in ((alone, [number]), (without, others)):
                compared = list(sides)
                compared[place] = replace(sides[place], vectors=sets[:, kept])
                scores = score_embedded(model, *compared)
                found[metric(side, number + 1)] = evaluate(scores, split.owner)["rsum"]
    return found
