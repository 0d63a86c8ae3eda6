"""What each vector of the sets is worth at search: one of them alone, and all but one.

Source: Kim, Kim and Kwak 2023 (DivE), section 4.8, table 5.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from vsecore.data.splits import Split
from vsecore.evaluation import evaluate
from vsecore.model import VSE
from vsecore.scoring import Captions, encode, score_embedded

SIDES = ("pictures", "texts")
"""The two sides, as the names of metrics have them."""


def alone(side: str, number: int) -> str:
    """Return the name of a metric: the rsum where one side's sets have only this vector, counted from 1."""
    return f"rsum_{side}_only_{number}"


def without(side: str, number: int) -> str:
    """Return the name of a metric: the rsum where one side's sets lack this vector, counted from 1."""
    return f"rsum_{side}_without_{number}"


@torch.inference_mode()
def element_sums(model: VSE, split: Split, tokenizer: Captions) -> dict[str, float]:
    """Return the rsum with one vector of one side's sets alone, and without it; the other side's stay whole.

    Args:
        model: on any device.
        split: whose pictures and captions are compared.
        tokenizer: the one that the model was trained with.

    Returns:
        By the names that `alone` and `without` give; nothing for a model that does not make sets of at least
        two vectors on both sides.
    """
    sides = encode(model, split, tokenizer)
    sets = [side.vectors for side in sides]
    sums: dict[str, float] = {}
    for place, (name, whole) in enumerate(zip(SIDES, sets, strict=True)):
        if whole is None or whole.ndim < 3 or whole.shape[1] < 2:
            return {}
        count = whole.shape[1]
        for number in range(count):
            others = [other for other in range(count) if other != number]
            for metric, kept in ((alone, [number]), (without, others)):
                compared = list(sides)
                compared[place] = replace(sides[place], vectors=whole[:, kept])
                sums[metric(name, number + 1)] = evaluate(score_embedded(model, *compared), split.owner)[
                    "rsum"
                ]
    return sums
