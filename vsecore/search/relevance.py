"""Where relevance ends: the probability that a found picture is the right one, learned from captions.

Scores of different queries cannot be compared: for a sentence in the model's own words all of them are higher
than for an odd one, so no threshold fits both. How far a score stands above the query's own scores can be.
A logistic regression turns it into a probability, on captions of the index's own kind of pictures.

The probability is that the picture is the very one that such a caption was written for. A picture that would
do as well counts as wrong, so the true share of pictures that fit is higher.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from vsecore.data.karpathy import CaptionSplit
from vsecore.search.index import Found, Index
from vsecore.typed import from_json

FACT = "relevance"
MOST = 1000
"""How many captions, and how many pictures for a query's mean and spread, are enough."""
ENOUGH = 20_000
"""How many pictures are enough to learn from."""
FEWEST = 20
"""Captions below which nothing can be learned and checked."""


@dataclass(frozen=True)
class Relevance:
    """A logistic regression on a score's distance from the query's mean, in its standard deviations."""

    offset: float
    slope: float
    captions: int
    """On how many it was learned."""
    pictures: int = 0
    """Among how many; 0: an older index did not note it."""

    def of(self, index: Index, query: np.ndarray, found: Sequence[Found]) -> list[float]:
        """Return the probability of each found picture."""
        numbers = _spread(index.store.numbers())
        sample = np.concatenate(
            [index.engine.compare(some, query) for _, some in index.store.vectors(numbers)]
        )
        distances = _standard(np.array([one.score for one in found]), sample)
        return self._probability(distances, len(index)).tolist()

    def _probability(self, distances: np.ndarray, pictures: int) -> np.ndarray:
        """Where there are more wrong pictures for each right one, the odds are lower by as much."""
        more = np.log(pictures / self.pictures) if self.pictures else 0.0
        return np.asarray(expit(self.offset + self.slope * distances - more))


def calibrate(index: Index, splits: dict[str, CaptionSplit]) -> tuple[Relevance, str]:
    """Learn from one half of the captions, and check the probabilities on the other.

    All splits are used, so the model should not have been trained on them. The index keeps what was learned;
    it is returned with a sentence about the check.
    """
    from sklearn.linear_model import LogisticRegression  # takes seconds to import, and only this needs it

    number_of = {entry.path.resolve(): entry.number for entry in index.store.entries()}
    pairs = [
        (caption, number_of[split.files[owner].resolve()])
        for split in splits.values()
        for caption, owner in zip(split.captions, split.owner, strict=True)
        if split.files[owner].resolve() in number_of
    ]
    if len(pairs) < FEWEST or len(index) < 2:
        raise ValueError(f"the index has pictures of {len(pairs)} captions: wanted {FEWEST} or more")
    pairs = _spread(pairs)
    some = {*_spread(index.store.numbers(), ENOUGH), *(number for _, number in pairs)}
    numbers, vectors = index.store.all_vectors(sorted(some))
    distances, right = [], []
    for caption, number in pairs:
        scores = index.engine.compare(vectors, index.engine.sentence(caption))
        distances.append(_standard(scores, scores))
        right.append(numbers == number)
    x, y = np.stack(distances), np.stack(right)  # (C, n)
    fit = LogisticRegression(C=1000).fit(x[::2].reshape(-1, 1), y[::2].ravel())
    learned = Relevance(float(fit.intercept_[0]), float(fit.coef_[0, 0]), len(x[::2]), len(numbers))
    index.store.keep_fact(FACT, json.dumps(asdict(learned)))
    shares, y = learned._probability(x[1::2], len(numbers)), y[1::2]
    found = "no picture reached 50 %"
    if (likely := shares >= 0.5).any():
        held, told = 100 * y[likely].mean(), 100 * shares[likely].mean()
        found = f"of the pictures given 50 % or more, {held:.0f} % were right (expected: {told:.0f} %)"
    return learned, f"checked on {len(y)} other captions: {found}"


def relevance_of(index: Index) -> Relevance | None:
    """Return what an index was calibrated to; None: it was not."""
    kept = index.store.fact(FACT)
    return None if kept is None else from_json(str(index.store.path), kept, Relevance)


def _standard(scores: np.ndarray, of: np.ndarray) -> np.ndarray:
    return (scores - of.mean()) / max(float(of.std()), 1e-9)


def _spread(things: list[Any], most: int = MOST) -> list[Any]:
    """Return at most so many of some things, evenly spread."""
    return [things[row] for row in np.unique(np.linspace(0, len(things) - 1, most).astype(int))]
