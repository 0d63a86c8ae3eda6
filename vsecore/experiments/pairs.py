"""Pictures that differ in one relation alone: does a system prefer the right one, and the right caption?

The scenes' knob `relations_only` makes such pictures, 2k and 2k + 1. All five captions of either are false
of the other, and both pictures hold the same things, so a system that only knows which things there are has
to guess: chance is 50 %.
"""

from dataclasses import replace
from functools import cache
from typing import Annotated

import torch
from torch import Tensor

from vsecore import scenes
from vsecore.arguments import Shape, checked
from vsecore.data.splits import FeatureKind, Split
from vsecore.model import VSE
from vsecore.scoring import Captions
from vsecore.training import encode

PICTURES = 1000
"""How many pictures are compared; two of them are a pair."""
SIDEWAYS = ("left of", "right of")
METRICS = ("pairs_t2i", "pairs_i2t", "pairs_left_right", "pairs_other")
"""The names of the numbers that `pair_accuracy` returns."""


def relation_pairs(features: FeatureKind) -> Split:
    """Return the pairs of the scenes' test split, with five captions a picture."""
    return scenes.load(train=1, dev=1, test=PICTURES, features=features, relations_only=1.0).test


@cache
def sideways_captions(count: int = PICTURES) -> Tensor:
    """Return which captions of `relation_pairs` only left or right makes false of the other picture.

    (P, 2, C) bool: for each pair, picture of it and caption of this picture.
    """
    made = scenes.pictures("test", count, relations_only=1.0)

    def needs_sideways(form: scenes.Form, other: scenes.Scene) -> bool:
        rest = tuple(relation for relation in form.relations if relation[0] not in SIDEWAYS)
        return scenes.holds(replace(form, relations=rest), other)

    found = [
        [needs_sideways(caption.form, made[number ^ 1].scene) for caption in own.captions]  # 2k and 2k + 1
        for number, own in enumerate(made)
    ]
    return torch.tensor(found).view(count // 2, 2, -1)


@torch.inference_mode()
def pair_scores(model: VSE, pairs: Split, tokenizer: Captions) -> Tensor:
    """Compare the two pictures of each pair with the captions of both, C for each, which stand in order.

    Returns:
        (P, 2, 2, C), for each pair: picture, picture that the caption was written for, caption. On the CPU.
    """
    count, each = len(pairs), len(pairs.captions) // len(pairs)
    v, t = encode(model, pairs, tokenizer)
    device = next(model.parameters()).device
    found = [
        model.scores(v[first : first + 2].to(device), t[first * each : (first + 2) * each].to(device)).cpu()
        for first in range(0, count, 2)
    ]
    return torch.stack(found).float().view(-1, 2, 2, each)


@checked
def pair_accuracy(
    scores: Annotated[Tensor, Shape("P A A C")],
    sideways: Annotated[Tensor, Shape("P A C", "bool")] | None = None,
) -> dict[str, float]:
    """Return how often the right one of two is preferred, in percent; a tie counts half.

    Args:
        scores: what `pair_scores` gives.
        sideways: what `sideways_captions` gives; None: this is not asked.

    Returns:
        `pairs_t2i`: of each caption, the right picture of two. `pairs_i2t`: of each picture, one of its own
        captions before one of the other's, over all C x C couples. With `sideways` also `pairs_left_right`
        and `pairs_other`: `pairs_t2i` of these captions and of all others, as far as there are some.
    """
    if scores.shape[1] != 2 or scores.isnan().any():
        raise ValueError(f"scores is {tuple(scores.shape)}, or has NaN: it must be numbers, (P, 2, 2, C)")
    own = scores.diagonal(dim1=1, dim2=2).movedim(2, 1)  # (P, 2, C)   picture w, captions of w
    crossed = scores.flip(1).diagonal(dim1=1, dim2=2).movedim(2, 1)  # the other picture, captions of w
    foreign = crossed.flip(1)  # (P, 2, C)   picture w, captions of the other
    to_picture = _preferred(own, crossed)  # (P, 2, C)
    to_text = _preferred(own[..., :, None], foreign[..., None, :])  # (P, 2, C, C)
    found = {"pairs_t2i": to_picture, "pairs_i2t": to_text}
    if sideways is not None:
        found |= {"pairs_left_right": to_picture[sideways], "pairs_other": to_picture[~sideways]}
    return {name: 100 * float(hits.mean()) for name, hits in found.items() if len(hits)}


def _preferred(right: Tensor, wrong: Tensor) -> Tensor:
    """Return 1 where the right one scores higher, 1/2 where both score the same, else 0."""
    return (right > wrong).double() + (right == wrong).double() / 2
