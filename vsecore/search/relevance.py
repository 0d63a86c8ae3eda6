"""Where relevance ends: the probability that a found picture is the right one, learned from captions.

Scores of different queries cannot be compared: for a sentence in the model's own words all of them are higher
than for an odd one, so no threshold fits both. How far a score stands above the query's own scores can be.
A logistic regression turns it into a probability, on captions of the index's own kind of pictures.

The probability is that the picture is the very one that such a caption was written for. A picture that would
do as well counts as wrong, so the true share of pictures that fit is higher.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from vsecore.data.karpathy import CaptionSplit
from vsecore.search.index import Found, Index
from vsecore.typed import from_json

FACT = "relevance"
MOST = 1000
"""How many captions, and how many pictures for a query's mean and spread, are enough."""
FEWEST = 20
"""Captions below which nothing can be learned and checked."""


@dataclass(frozen=True)
class Relevance:
    """A logistic regression on a score's distance from the query's mean, in its standard deviations."""

    offset: float
    slope: float
    captions: int
    """On how many it was learned."""

    def of(self, index: Index, query: np.ndarray, found: Sequence[Found]) -> list[float]:
        """Return the probability of each found picture."""
        scores = index.sample_scores(query, MOST)
        return self._probability(_standard(np.array([one.score for one in found]), scores)).tolist()

    def _probability(self, distances: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-np.clip(self.offset + self.slope * distances, -60, 60)))


def calibrate(index: Index, splits: dict[str, CaptionSplit]) -> tuple[Relevance, str]:
    """Learn from one half of the captions, and check the probabilities on the other.

    Args:
        index: has the captions' pictures.
        splits: from `tuning.read_captions` or `karpathy.load_karpathy`; all of them are used, so the model
            should not have been trained on them.

    Returns:
        What was learned, which the index keeps too, and a sentence about the check.

    Raises:
        ValueError: the index has too few of the pictures.
    """
    number_of = {entry.path.resolve(): entry.number for entry in index.store.entries()}
    pairs = [
        (caption, number_of[split.files[owner].resolve()])
        for split in splits.values()
        for caption, owner in zip(split.captions, split.owner, strict=True)
        if split.files[owner].resolve() in number_of
    ]
    if len(pairs) < FEWEST:
        raise ValueError(
            f"the index has pictures of {len(pairs)} captions: wanted {FEWEST} or more; index their folder"
        )
    pairs = [pairs[row] for row in np.unique(np.linspace(0, len(pairs) - 1, MOST).astype(int))]
    numbers, vectors = index.all_vectors()
    distances, right = [], []
    for caption, number in pairs:
        scores = index.engine.compare(vectors, index.engine.sentence(caption))
        distances.append(_standard(scores, scores))
        right.append(numbers == number)
    x, y = np.stack(distances), np.stack(right)  # (C, n)
    offset, slope = _logistic(x[::2].ravel(), y[::2].ravel())
    learned = Relevance(offset, slope, len(x[::2]))
    index.store.note(FACT, json.dumps(asdict(learned)))
    likely = learned._probability(x[1::2]) >= 0.5
    found = f"{100 * y[1::2][likely].mean():.0f} % were right" if likely.any() else "there were none"
    share = 100 * learned._probability(x[1::2])[likely].mean() if likely.any() else 0
    told = f" (told: {share:.0f} %)" if likely.any() else ""
    return (
        learned,
        f"checked on {len(x[1::2])} other captions: of the pictures told 50 % or more, {found}{told}",
    )


def relevance_of(index: Index) -> Relevance | None:
    """Return what an index was calibrated to; None: it was not.

    Raises:
        ValueError: what is kept of it is damaged.
    """
    kept = index.store.noted(FACT)
    return None if kept is None else from_json(str(index.store.path), kept, Relevance)


def _standard(scores: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return how many standard deviations scores lie above the mean of a query's scores."""
    return (scores - of.mean()) / max(float(of.std()), 1e-9)


def _logistic(x: np.ndarray, y: np.ndarray, steps: int = 50) -> tuple[float, float]:
    """Fit a logistic regression by Newton's method, with a weak prior that keeps a perfect fit finite."""
    design = np.stack([np.ones_like(x, dtype=np.float64), x.astype(np.float64)], 1)  # (m, 2)
    weights = np.zeros(2)
    for _ in range(steps):
        p = 1 / (1 + np.exp(-np.clip(design @ weights, -60, 60)))
        gradient = design.T @ (y - p) - 1e-3 * weights
        curvature = (design * (p * (1 - p))[:, None]).T @ design + 1e-3 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        weights = weights + step * min(1.0, 4.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-8:
            break
    return float(weights[0]), float(weights[1])
