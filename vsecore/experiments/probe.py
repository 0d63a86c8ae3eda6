"""More than recalls: what a caption's vector still knows, and how good a whole ranking is.

A fact that no linear probe can read from the vectors has been left out by the encoder. The paper can only
look at recalls; on scenes every caption comes with its logical form.

Source: Bleeker, Yates and de Rijke 2023 (LTD), section 6, asks for such a measure; linear probes as in Alain
and Bengio 2017. R-precision and nDCG: LTD, section 4.3, and for nDCG Messina et al. 2020 (TERN).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from vsecore import scenes
from vsecore.data.caption_overlap import rouge_l
from vsecore.data.splits import Dataset, Split
from vsecore.evaluation import ndcg, r_precision
from vsecore.experiments.references import scenes_of
from vsecore.model import VSE
from vsecore.scoring import Captions, encode

FACTS = ("noun", "colour", "size", "relation", "place")
"""What a caption may say, and what is probed."""
FEWEST = 20
"""A name that fewer captions of either split have, or lack, is left out."""
GRADED = ("i2t_r_precision", "t2i_ndcg_rouge_l")
"""What `graded` gives."""
Facts = Mapping[str, Mapping[str, np.ndarray]]
"""Which captions name what: by fact and name, (Nc,) bool."""


def probe_metric(fact: str) -> str:
    """Return the name that records give the probe of a fact."""
    return f"probe_{fact}"


@torch.inference_mode()
def probes(model: VSE, data: Dataset, tokenizer: Captions) -> dict[str, float]:
    """Return how well linear probes read from captions' vectors what the captions say, see `read_off`.

    Nothing is returned for data that are no scenes, and for models without a single vector for a caption.
    """
    shown = [scenes_of(split, data.name) for split in (data.train, data.test)]
    if None in shown:
        return {}
    captions = [[caption for picture in pictures or () for caption in picture.captions] for pictures in shown]
    train, test = (encode(model, split, tokenizer)[1].vectors for split in (data.train, data.test))
    if train is None or test is None or train.ndim != 2:
        return {}
    read = read_off(train.cpu(), facts_of(captions[0]), test.cpu(), facts_of(captions[1]))
    return {probe_metric(fact): auc for fact, auc in read.items()}


def read_off(
    train: Tensor, train_facts: Facts, test: Tensor, test_facts: Facts, fewest: int = FEWEST
) -> dict[str, float]:
    """Return how well linear probes read facts from vectors, the mean area under the ROC curve in percent.

    For each noun, colour, size, relation and place, a ridge regression learns from the training captions'
    vectors, (Nc, D), whether a caption names it, and ranks the test captions by theirs, (Mc, D): 50 for
    vectors that say nothing about it, 100 for those that always show it. Names that fewer than `fewest`
    captions of either side have, or lack, are left out, and facts without a name that is left.
    """
    from sklearn.linear_model import Ridge  # takes seconds to import, and only this needs it
    from sklearn.metrics import roc_auc_score

    found = {}
    for fact in [each for each in train_facts if each in test_facts]:
        both = train_facts[fact], test_facts[fact]
        names = [
            name
            for name in sorted(both[0].keys() & both[1].keys())
            if all(fewest <= int(facts[name].sum()) <= len(facts[name]) - fewest for facts in both)
        ]
        if not names:
            continue  # too few captions to learn from
        learned, asked = (np.stack([facts[name] for name in names], axis=1) for facts in both)
        ranked = Ridge(alpha=1.0).fit(train.numpy(), learned).predict(test.numpy())  # (Mc, names)
        found[fact] = 100 * float(roc_auc_score(asked, ranked.reshape(asked.shape)))
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
