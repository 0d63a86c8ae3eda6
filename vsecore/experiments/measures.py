"""What an experiment measures beyond recalls, of pairs of pictures, of captions' vectors and of sets.

Pictures that differ in relations alone: does a system prefer the correct one, and the correct caption? The
scenes' knob `relations_only` makes such pictures, 2k and 2k + 1. All five captions of either are false of the
other, and both pictures hold the same things, so a system that only knows which things there are has to
guess: chance is 50 %.

What a caption's vector still knows: a fact that no linear probe can read from the vectors has been left out
by the encoder. The paper can only look at recalls; on scenes every caption comes with its logical form.

Source: Bleeker, Yates and de Rijke 2023 (LTD), section 6, asks for such a measure; linear probes as in Alain
and Bengio 2017. R-precision and nDCG: LTD, section 4.3, and for nDCG Messina et al. 2020 (TERN). Sets: Kim,
Kim and Kwak 2023 (DivE), section 4.6, table 3, and section 4.8, table 5.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import count, takewhile
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from vsecore import scenes
from vsecore.arguments import Shape, checked
from vsecore.data.caption_overlap import rouge_l
from vsecore.data.splits import Dataset, FeatureKind, Split
from vsecore.evaluation import evaluate, ndcg, r_precision
from vsecore.experiments.references import scenes_of
from vsecore.model import VSE
from vsecore.scoring import Captions, encode, score_embedded
from vsecore.sets import circular_variance

PICTURES = 1000
"""How many pictures are compared; two of them are a pair."""
SIDEWAYS = ("left of", "right of")
PAIRS = ("pairs_t2i", "pairs_i2t", "pairs_left_right", "pairs_other")
"""The names of the numbers that `pair_accuracy` returns."""
FACTS = ("noun", "colour", "size", "relation", "place")
"""What a caption may say, and what is probed."""
PROBES = tuple(f"probe_{fact}" for fact in FACTS)
"""The names of the numbers that `probes` returns."""
FEWEST = 20
"""A name that fewer captions of either split have, or lack, is left out."""
GRADED = ("i2t_r_precision", "t2i_ndcg_rouge_l")
"""What `graded` gives."""
Facts = Mapping[str, Mapping[str, np.ndarray]]
"""Which captions name what: by fact and name, (Nc,) bool."""
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
    found = [
        score_embedded(model, v[first : first + 2], t[first * each : (first + 2) * each])
        for first in range(0, count, 2)
    ]
    return torch.stack(found).view(-1, 2, 2, each)


@checked
def pair_accuracy(
    scores: Annotated[Tensor, Shape("P A A C")],
    sideways: Annotated[Tensor, Shape("P A C", "bool")] | None = None,
) -> dict[str, float]:
    """Return how often the correct one of two is preferred, in percent; a tie counts half.

    Args:
        scores: what `pair_scores` gives.
        sideways: what `sideways_captions` gives; None: this is not asked.

    Returns:
        `pairs_t2i`: of each caption, the correct picture of two. `pairs_i2t`: of each picture, one of its own
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
    """Return 1 where the correct one scores higher, 1/2 where both score the same, else 0."""
    return (right > wrong).double() + (right == wrong).double() / 2


@torch.inference_mode()
def probes(model: VSE, data: Dataset, tokenizer: Captions) -> dict[str, float]:
    """Return how well linear probes read from captions' vectors what the captions say, in percent.

    For each noun, colour, size, relation and place, a ridge regression learns from the training captions'
    vectors whether a caption names it, and ranks the test captions by theirs. Of each fact it is the mean
    area under the ROC curve: 50 for vectors that say nothing about it, 100 for those that always show it.
    Facts are left out if all their names are too rare or too frequent, see `FEWEST`. Nothing is returned for
    data that are no scenes, and for models without a single vector for a caption.
    """
    shown = [scenes_of(split, data.name) for split in (data.train, data.test)]
    if None in shown:
        return {}
    train, test = (encode(model, split, tokenizer)[1].vectors for split in (data.train, data.test))
    if train is None or test is None or train.ndim != 2:
        return {}
    from sklearn.linear_model import Ridge  # takes seconds to import, and only this needs it
    from sklearn.metrics import roc_auc_score

    found = {}
    facts = [facts_of([caption for one in pictures or () for caption in one.captions]) for pictures in shown]
    for fact in FACTS:
        both = [of_split[fact] for of_split in facts]
        names = [
            name
            for name in sorted(both[0].keys() & both[1].keys())
            if all(FEWEST <= int(named[name].sum()) <= len(named[name]) - FEWEST for named in both)
        ]
        if not names:
            continue  # too few captions to learn from
        learned, asked = (np.stack([named[name] for name in names], axis=1) for named in both)
        ranked = Ridge(alpha=1.0).fit(train.numpy(), learned).predict(test.numpy())  # (Mc, names)
        found[f"probe_{fact}"] = 100 * float(roc_auc_score(asked, ranked.reshape(asked.shape)))
    return found


def facts_of(captions: Sequence[scenes.Caption]) -> Facts:
    """Return which captions of scenes name what."""
    named: list[dict[str, set[str | None]]] = [
        {each: {getattr(entity, each) for entity in form.entities} for each in ("noun", "colour", "size")}
        | {"relation": {name for name, *_ in form.relations}, "place": {form.place}}
        for form in (caption.form for caption in captions)
    ]
    return {
        fact: {
            name: np.array([name in caption[fact] for caption in named])
            for name in {each for caption in named for each in caption[fact] if each is not None}
        }
        for fact in FACTS
    }


def graded(scores: Tensor, split: Split) -> dict[str, float]:
    """Return the R-precision of caption retrieval and the nDCG of picture retrieval, in percent.

    A picture is relevant to a caption in the degree in which its captions share words with it (ROUGE-L).
    `scores` are the similarities of the split's n pictures and Nc captions, (n, Nc).
    """
    own = torch.arange(len(split))[:, None] == torch.from_numpy(split.owner)  # (n, Nc)
    overlap = rouge_l(split.captions, split.captions, split.owner)  # (Nc, n)
    values = (r_precision(scores, own), ndcg(scores.T, overlap))
    return {name: 100 * value for name, value in zip(GRADED, values, strict=True)}


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
