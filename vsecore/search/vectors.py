"""The vectors of an index in this process: a query is compared with every one of them.

That is exact, and quick up to some hundred thousand pictures. A Qdrant server (`search.server`) takes over
where an index outgrows one machine; both answer `nearest` alike.

A set is searched in two ways: by MaxSim over its K vectors, and by their mean. The inner product of two means
is the mean of all K·L cosines, so it stands for similarities in which every pair counts. MaxSim stands for
those in which the nearest pairs decide. Each proposes pictures, and the model's own similarity ranks them.
"""

from __future__ import annotations

import numpy as np

from vsecore.search.store import Store

ALL, MEAN = "all", "mean"
"""By what is searched: all vectors of a picture, or their mean."""


class Vectors:
    """Pictures' vectors in memory: what `synchronise` read from an index's file."""

    def synchronise(self, store: Store) -> None:
        """Read all vectors anew.

        Raises:
            ValueError: the file is damaged.
        """
        store.check()  # all of it is read, so that looking through it takes little more
        numbers, vectors = store.all_vectors()  # (n,), (n, D) or (n, K, D)
        self._held = numbers, vectors, vectors.mean(1) if vectors.ndim == 3 else vectors

    def nearest(self, query: np.ndarray, k: int, by: str = ALL) -> list[tuple[int, float]]:
        """Return the k pictures nearest to a query, best first: by cosine, or by MaxSim for sets.

        Args:
            query: (D,), or (L, D).
            k: how many, at most.
            by: `ALL`; or for sets `MEAN`, the inner product of their means.

        Returns:
            Numbers and scores.
        """
        numbers, vectors, means = self._held
        if not len(numbers):
            return []
        if by == MEAN:
            scores = means @ query.mean(0)
        elif vectors.ndim == 2:
            scores = vectors @ query
        else:
            scores = (vectors @ query.T).max(1).sum(1)  # MaxSim: (n, K, L) -> (n,)
        k = min(k, len(scores))
        best = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
        best = best[np.argsort(-scores[best], kind="stable")][:k]
        return [(int(numbers[row]), float(scores[row])) for row in best]
