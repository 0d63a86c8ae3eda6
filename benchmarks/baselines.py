"""What needs no training loop: chance, and a ridge regression from pooled features to words.

They stand beside every trained system: a number above chance is not yet a good number. Run as

    python benchmarks/baselines.py FEATURES_FOLDER RECORDS_FOLDER

with a folder of extracted features, and the folder that the two records go to.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge

from vsecore import records
from vsecore.data.features import open_precomp
from vsecore.data.loader import Split
from vsecore.data.words import tokenize
from vsecore.evaluation import evaluate

SEED = 0
ALPHA = 1.0
MINIMUM_COUNT = 5


def pooled(split: Split) -> np.ndarray:
    """Mean of each picture's elements, scaled to length one: (n, F)."""
    rows = [np.asarray(split.pictures[at : at + 256], np.float32).mean(1) for at in range(0, len(split), 256)]
    means = np.concatenate(rows)
    return means / np.linalg.norm(means, axis=1, keepdims=True)


def ridge_scores(train: Split, test: Split) -> torch.Tensor:
    """Predict the words of a picture's captions from its mean element; compare by cosine with each caption.

    Words are weighted by their rarity (tf-idf) and a picture's target is the mean over its captions.
    """
    words = TfidfVectorizer(tokenizer=tokenize, token_pattern=None, min_df=MINIMUM_COUNT, sublinear_tf=True)
    captions = words.fit_transform(train.captions)  # (Nc, V), sparse
    per_picture = np.bincount(train.owner, minlength=len(train))
    target = np.zeros((len(train), captions.shape[1]), np.float32)  # (n, V)
    np.add.at(target, train.owner, captions.toarray().astype(np.float32))
    target /= per_picture[:, None]
    features, mean = pooled(train), target.mean(0)
    model = Ridge(alpha=ALPHA).fit(features, target - mean)
    predicted = model.predict(pooled(test)).astype(np.float32)  # (n, V)   what is special about each picture
    predicted /= np.linalg.norm(predicted, axis=1, keepdims=True)
    return torch.from_numpy(predicted @ words.transform(test.captions).toarray().T.astype(np.float32))


def main() -> None:
    """Run both baselines and write their records."""
    if len(sys.argv) != 3:
        sys.exit("usage: python benchmarks/baselines.py FEATURES_FOLDER RECORDS_FOLDER")
    data = open_precomp(Path(sys.argv[1]))
    for name, note in (
        ("chance", "uniform random scores"),
        ("ridge", "ridge regression from the mean element to the tf-idf of the captions, compared by cosine"),
    ):
        started = time.perf_counter()
        if name == "chance":
            generator = torch.Generator().manual_seed(SEED)
            scores = torch.rand(len(data.test), len(data.test.captions), generator=generator)
            config = {}
        else:
            config = {"alpha": ALPHA, "minimum_count": MINIMUM_COUNT}
            scores = ridge_scores(data.train, data.test)
        metrics = evaluate(scores, data.test.owner)
        entry = records.record(
            name,
            config=config,
            config_hash="",
            data={"name": data.name, "fingerprint": data.fingerprint()},
            seed=SEED,
            metrics=metrics,
            seconds=time.perf_counter() - started,
            note=f"{note}; {len(data.test)} test pictures",
        )
        print(f"{name}: rsum {metrics['rsum']:.1f}, {records.write(entry, sys.argv[2])}")


if __name__ == "__main__":
    main()
