"""What a caption's vector still knows: linear probes of what the caption says, on scenes.

A fact that no probe can read from the vectors has been left out by the encoder. The paper can only look at
recalls; on scenes every caption comes with its logical form.

Source: Bleeker, Yates and de Rijke 2023 (LTD), section 6, asks for such a measure; linear probes as in Alain
and Bengio 2017.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

from vsecore import scenes
from vsecore.data.splits import Dataset, Split
from vsecore.experiments.worlds import WORLDS
from vsecore.model import VSE
from vsecore.training.embedding import Captions, encode

FACTS = ("noun", "colour", "size", "relation", "place")
"""What a caption may say, and what is probed."""
SMALLEST = 20
"""A fact that fewer captions of either split say, or fail to say, is left out."""


def probe_metric(fact: str) -> str:
    """Return the name that records give the probe of a fact."""
    return f"probe_{fact}"


@torch.inference_mode()
def probes(model: VSE, data: Dataset, tokenizer: Captions) -> dict[str, float]:
    """Return how well linear probes read from captions' vectors what the captions say.

    For each noun, colour, size, relation and place, a ridge regression learns from the training captions'
    vectors whether a caption names it, and ranks the test captions.

    Args:
        model: with one vector for a caption; on any device.
        data: a world of scenes.
        tokenizer: the one that the model was trained with.

    Returns:
        For each of `FACTS` the mean area under the ROC curve, in percent: 50 for a vector that knows nothing
        of it, 100 for one that tells it always. Nothing for data that are no scenes, and for models that have
        no single vectors.
    """
    said_train, said_test = (said_in(split, data.name) for split in (data.train, data.test))
    if said_train is None or said_test is None:
        return {}
    train, test = (encode(model, split, tokenizer)[1].vectors for split in (data.train, data.test))
    if train is None or test is None or train.ndim != 2:
        return {}
    found = {}
    for fact in FACTS:
        names = sorted(said_train[fact].keys() & said_test[fact].keys())
        names = [name for name in names if all(_varies(said[fact][name]) for said in (said_train, said_test))]
        if not names:
            continue  # too few captions to learn from
        learned = np.stack([said_train[fact][name] for name in names], axis=1)  # (Nc, names)
        asked = np.stack([said_test[fact][name] for name in names], axis=1)
        ranked = Ridge(alpha=1.0).fit(train.cpu().numpy(), learned).predict(test.cpu().numpy())
        found[probe_metric(fact)] = 100 * float(roc_auc_score(asked, ranked.reshape(asked.shape)))
    return found


def said_in(split: Split, data: str) -> dict[str, dict[str, np.ndarray]] | None:
    """Return which captions of a split name what: by fact and name, (Nc,) bool; None if this is not known.

    Args:
        split: of a world of scenes, from the seed 0.
        data: the name of the data.
    """
    if data not in WORLDS:
        return None
    made = [
        caption
        for picture in scenes.pictures(split.name, len(split), **WORLDS[data])
        for caption in picture.captions
    ]
    if [caption.text for caption in made] != split.captions:
        return None  # the split comes from another seed of the world
    named: list[dict[str, set[str | None]]] = [
        {
            "noun": {entity.noun for entity in caption.form.entities},
            "colour": {entity.colour for entity in caption.form.entities},
            "size": {entity.size for entity in caption.form.entities},
            "relation": {name for name, *_ in caption.form.relations},
            "place": {caption.form.place},
        }
        for caption in made
    ]
    return {
        fact: {
            name: np.array([name in caption[fact] for caption in named])
            for name in {said for caption in named for said in caption[fact] if said is not None}
        }
        for fact in FACTS
    }


def _varies(said: np.ndarray) -> bool:
    """Whether enough captions name something, and enough do not."""
    return SMALLEST <= int(said.sum()) <= len(said) - SMALLEST
