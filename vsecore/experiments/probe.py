"""What a caption's vector still knows: linear probes of what the caption says, on scenes.

A fact that no probe can read from the vectors has been left out by the encoder. The paper can only look at
recalls; on scenes every caption comes with its logical form.

Source: Bleeker, Yates and de Rijke 2023 (LTD), section 6, asks for such a measure; linear probes as in Alain
and Bengio 2017.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score
from torch import Tensor

from vsecore import scenes
from vsecore.data.splits import Dataset, Split
from vsecore.experiments.worlds import WORLDS
from vsecore.model import VSE
from vsecore.scoring import Captions, encode

FACTS = ("noun", "colour", "size", "relation", "place")
"""What a caption may say, and what is probed."""
FEWEST = 20
"""A name that fewer captions of either split have, or lack, is left out."""
Said = Mapping[str, Mapping[str, np.ndarray]]
"""Which captions name what: by fact and name, (Nc,) bool."""


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
    read = read_off(train.cpu(), said_train, test.cpu(), said_test)
    return {probe_metric(fact): auc for fact, auc in read.items()}


def read_off(
    train: Tensor, said_train: Said, test: Tensor, said_test: Said, fewest: int = FEWEST
) -> dict[str, float]:
    """Return how well linear probes read facts from vectors, the mean area under the ROC curve in percent.

    Args:
        train: the vectors to learn from, (Nc, D).
        said_train: which of their captions name what.
        test: the vectors to read, (Mc, D).
        said_test: which of their captions name what.
        fewest: a name is left out that fewer captions of either side have, or lack.

    Returns:
        For each fact the mean over its names; facts without a name that is left are left out.
    """
    found = {}
    for fact in [one for one in said_train if one in said_test]:
        both = said_train[fact], said_test[fact]
        names = sorted(both[0].keys() & both[1].keys())
        names = [name for name in names if all(_varies(said[name], fewest) for said in both)]
        if not names:
            continue  # too few captions to learn from
        learned = np.stack([said_train[fact][name] for name in names], axis=1)  # (Nc, names)
        asked = np.stack([said_test[fact][name] for name in names], axis=1)  # (Mc, names)
        ranked = Ridge(alpha=1.0).fit(train.numpy(), learned).predict(test.numpy())
        found[fact] = 100 * float(roc_auc_score(asked, ranked.reshape(asked.shape)))
    return found


def said_in(split: Split, data: str) -> Said | None:
    """Return which captions of a split name what; None if this is not known.

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
    return facts_of(made)


def facts_of(captions: Sequence[scenes.Caption]) -> Said:
    """Return which captions of scenes name what."""
    named: list[dict[str, set[str | None]]] = [
        {
            "noun": {entity.noun for entity in caption.form.entities},
            "colour": {entity.colour for entity in caption.form.entities},
            "size": {entity.size for entity in caption.form.entities},
            "relation": {name for name, *_ in caption.form.relations},
            "place": {caption.form.place},
        }
        for caption in captions
    ]
    return {
        fact: {
            name: np.array([name in caption[fact] for caption in named])
            for name in {said for caption in named for said in caption[fact] if said is not None}
        }
        for fact in FACTS
    }


def _varies(said: np.ndarray, fewest: int) -> bool:
    """Whether enough captions name something, and enough do not."""
    return fewest <= int(said.sum()) <= len(said) - fewest
