"""What a trained system is compared with: the scenes' truth, a linear baseline, an oracle.

No photograph shows how many mined "negatives" are true of their anchor (Chen, Deng and Luo 2020, section
3.2). On the scenes, whose truth is known, they can be counted, and left out.
"""

import statistics
import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsecore import records, scenes
from vsecore.baselines import ridge_scores
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.splits import Dataset, Split, captions_sha256, lines_sha256
from vsecore.evaluation import evaluate, map_at_r
from vsecore.experiments.scales import WORLDS, on_every_processor
from vsecore.mining import mine
from vsecore.model import VSE
from vsecore.records import RECALLS, Record
from vsecore.scoring import Captions, score_split

BASELINE = "ridge"
"""The record of a ridge regression from the mean element to words, which every system should beat."""
RIDGE = "ridge regression from the mean element to tf-idf words, compared by cosine"
ORACLE = "oracle"
"""The record of a ranking that knows which captions are true of which scenes, and breaks ties at random."""
DRAWS = 20
"""How many times the oracle breaks its ties at random; the record holds the mean."""
SHARES = ("mined_true_texts", "mined_true_pictures")
"""What `shares_true` gives."""
ANCHORS_AT_ONCE = 1000
CLOSE = 0.25
"""By how many points the linear baseline's recalls may differ on features that two processors made."""


def scenes_of(split: Split, data: str) -> list[scenes.Picture] | None:
    """Return the scenes that a split of some data shows; None where they are not known."""
    if data not in WORLDS:
        return None
    made = scenes.pictures(split.name, len(split), **WORLDS[data])
    same = [caption.text for picture in made for caption in picture.captions] == split.captions
    return made if same else None  # the split comes from another seed of the world


def truth_of(split: Split, data: str) -> Tensor | None:
    """Return which captions are true of which pictures, (Nc, n) bool; None where this is not known."""
    return None if scenes_of(split, data) is None else _truth(split.name, len(split), data)


@cache
def _truth(name: str, count: int, data: str) -> Tensor:
    made = scenes.pictures(name, count, **WORLDS[data])
    captions = [caption for picture in made for caption in picture.captions]
    return torch.from_numpy(scenes.relevance(captions, [picture.scene for picture in made]))


def on_truth(scores: Tensor, test: Split, data: str) -> dict[str, float]:
    """Return mAP@R of scores (n, Nc) on the exact truth, both ways, in percent; {}: it is unknown."""
    truth = truth_of(test, data)
    if truth is None:
        return {}
    both = {"i2t": map_at_r(scores, truth.T), "t2i": map_at_r(scores.T, truth)}
    return {f"{way}_map_at_r": 100 * value for way, value in both.items()}


@torch.inference_mode()
def mine_for(
    model: VSE, split: Split, tokenizer: Captions, texts: int, pictures: int, truth: Tensor | None = None
) -> OfflineNegatives:
    """Mine so many of the hardest negatives of a training split with the first round's model.

    What `truth`, (Nc, n) bool, holds to be true of an anchor is left out; None: all that are not an anchor's
    own are negatives, as in the paper. The lists are shorter where some anchor has fewer.
    """
    if truth is None:
        return mine(model, split, tokenizer, texts, pictures)
    scores = score_split(model, split, tokenizer)  # (n, Nc)
    scores.masked_fill_(truth.T, -torch.inf)
    scores[torch.as_tensor(split.owner), torch.arange(scores.shape[1])] = -torch.inf
    return OfflineNegatives(_hardest(scores, texts), _hardest(scores.T, pictures))


def _hardest(scores: Tensor, count: int) -> np.ndarray:
    """Return the places of the highest scores of each row, (A, k) int32, as many as every row has."""
    fewest = int(scores.isfinite().sum(1).min())
    if fewest == 0:
        raise ValueError("everything is true of some picture or caption: no negative is left to learn from")
    best = [block.topk(min(count, fewest)).indices.int() for block in scores.split(ANCHORS_AT_ONCE)]
    return torch.cat(best).numpy()


def shares_true(negatives: OfflineNegatives, truth: Tensor) -> dict[str, float]:
    """Return how many of the mined negatives are true of their anchor by `truth`, (Nc, n), in percent."""
    true = truth.numpy()
    pictures, captions = (np.arange(len(rows))[:, None] for rows in (negatives.texts, negatives.pictures))
    found = (true[negatives.texts, pictures], true[captions, negatives.pictures])
    return {name: 100 * float(each.mean()) for name, each in zip(SHARES, found, strict=True)}


def alike(entries: Iterable[Record]) -> dict[str, str]:
    """Map fingerprints of features to the one that stands for all that differ from it in last digits only.

    What a network makes of a picture differs a little from one processor to another. Features of the same
    kind, width and, if both records say it, network and layout are taken for the same if the linear baseline
    has the same recalls on both, within `CLOSE`.
    """
    found, firsts = dict[str, str](), dict[str, Record]()
    baselines = [entry for entry in entries if entry.name == BASELINE and {*RECALLS} <= entry.metrics.keys()]
    for entry in sorted(baselines, key=lambda entry: str(entry.data["fingerprint"])):
        fingerprint = entry.data["fingerprint"]
        same = (
            first
            for first, other in firsts.items()
            if all(entry.data.get(key, x) == x for key, x in other.data.items() if key != "fingerprint")
            and all(abs(entry.metrics[recall] - other.metrics[recall]) <= CLOSE for recall in RECALLS)
        )
        if first := next(same, ""):
            found[fingerprint] = first
        else:
            firsts[fingerprint] = entry
    return found


def record_references(data: Dataset, folder: Path, log: Callable[[str], None]) -> None:
    """Record the linear baseline if the data have features, and on scenes the oracle, if they are not yet."""
    described = {
        "name": data.name,
        "fingerprint": data.fingerprint(),
        "feature_kind": data.feature_kind,
        "feature_dim": data.feature_dim,
    }
    if data.name not in WORLDS:
        described |= {"network": data.network, "layout": _layout(data)}
    found = on_every_processor(described)
    known = {entry.name for entry in records.find(folder) if on_every_processor(entry.data) == found}
    wanted: dict[str, tuple[Callable[[Dataset], dict[str, float]], str]] = {}
    if not data.train.has_pixels:
        wanted[BASELINE] = _baseline, RIDGE
    if truth_of(data.test, data.name) is not None:
        wanted[ORACLE] = _oracle, f"knows every true pair, breaks ties at random; the mean of {DRAWS} draws"
    for name, (measure, note) in wanted.items():
        if name in known:
            continue
        entry = untrained(name, described, note, data.test, partial(measure, data))
        records.write(entry, folder)
        log(f"{name}, {data.feature_kind} features: rsum {entry.metrics['rsum']:.1f}")


def _layout(data: Dataset) -> str:
    """Return a digest of what is the same on every processor: pictures, elements and captions."""
    splits = (data.train, data.dev, data.test)
    return lines_sha256(f"{split.pictures.shape} {captions_sha256(split)}" for split in splits)


def untrained(
    name: str,
    data: dict[str, Any],
    note: str,
    test: Split,
    measure: Callable[[], dict[str, float]],
    seed: int = 0,
) -> records.Record:
    """Measure what needs no training, and return its record."""
    start, metrics = time.perf_counter(), measure()
    return records.record(
        name,
        config={},
        config_hash="",
        data=data,
        seed=seed,
        metrics=metrics,
        seconds=time.perf_counter() - start,
        note=f"{note}; {len(test)} test pictures",
    )


def _baseline(data: Dataset) -> dict[str, float]:
    scores = ridge_scores(data.train, data.test)
    return evaluate(scores, data.test.owner) | on_truth(scores, data.test, data.name)


def _oracle(data: Dataset) -> dict[str, float]:
    truth, dice = _truth(data.test.name, len(data.test), data.name).T, torch.Generator().manual_seed(0)
    ties = (0.5 * torch.rand(truth.shape, generator=dice) for _ in range(DRAWS))
    drawn = [evaluate(truth + noise, data.test.owner) for noise in ties]
    return {metric: statistics.mean(one[metric] for one in drawn) for metric in drawn[0]}
