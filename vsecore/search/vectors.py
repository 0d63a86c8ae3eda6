"""The vectors of an index, which a query is compared with: in this process, or on a Qdrant server.

In this process a query is compared with every vector, which is quick up to some hundred thousand pictures. A
server takes over where an index outgrows one machine. The index's own file stays the truth.

A set is searched in two ways: by MaxSim over its K vectors, and by their mean. The inner product of two means
is the mean of all K·L cosines, so it stands for similarities in which every pair counts. MaxSim stands for
those in which the nearest pairs decide. Each proposes pictures, and the model's own similarity ranks them.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from vsecore.search.store import Store

ALL, MEAN = "all", "mean"
"""By what is searched: all vectors of a picture, or their mean."""
AT_ONCE = 2**19
"""How many numbers are sent at a time, and their means: 22 MB of JSON at most, of which a server takes 32."""


class Vectors:
    """Pictures' vectors in memory: what `synchronise` read from an index's file."""

    def synchronise(self, store: Store) -> None:
        """Read all vectors anew."""
        numbers, vectors = store.all_vectors()  # (n,), (n, D) or (n, K, D)
        self._held = numbers, vectors, vectors.mean(1) if vectors.ndim == 3 else vectors

    def nearest(self, query: np.ndarray, k: int, by: str = ALL) -> list[tuple[int, float]]:
        """Return the k pictures nearest to a query (D,) or (L, D), by cosine, or by MaxSim for sets.

        They are numbers and scores, best first. `MEAN` takes the inner product of the sets' means instead.
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


class QdrantServer:
    """Pictures' vectors on a server, each under its picture's number, as `Vectors` has them in memory."""

    def __init__(self, shape: tuple[int, ...], collection: str, url: str) -> None:
        from qdrant_client import QdrantClient, models  # of the extra search, and only a server needs it

        self.collection, self.url, self.models = collection, url, models
        self.client = QdrantClient(url=url, check_compatibility=False, timeout=60)
        # Unit vectors: their inner product is their cosine.
        plain = models.VectorParams(size=shape[-1], distance=models.Distance.DOT)
        sets = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
        kinds = {ALL: plain}
        if len(shape) == 2:
            kinds = {ALL: plain.model_copy(update={"multivector_config": sets}), MEAN: plain}
        with self._reached():
            if not self.client.collection_exists(collection):
                self.client.create_collection(collection, vectors_config=kinds)

    def synchronise(self, store: Store) -> None:
        """Take out what the index no longer has, and send what is missing here; new versions are both."""
        here = self.numbers()  # first: what another process sends is in the index before
        ours = set(store.numbers())
        gone: list[Any] = sorted(here - ours)
        with self._reached():
            if gone:
                self.client.delete(self.collection, self.models.PointIdsList(points=gone))
            for numbers, vectors in store.vectors(sorted(ours - here)):
                most = max(1, AT_ONCE // math.prod(vectors.shape[1:]))
                for start in range(0, len(numbers), most):
                    ids, some = numbers[start : start + most].tolist(), vectors[start : start + most]
                    named: dict[str, Any] = {ALL: some.tolist()}
                    if some.ndim == 3:
                        named[MEAN] = some.mean(1).tolist()
                    self.client.upsert(self.collection, self.models.Batch(ids=ids, vectors=named))

    def numbers(self) -> set[int]:
        """Return the numbers of all pictures that are here."""
        found: set[int] = set()
        place: Any = 0  # numbers begin at 1
        with self._reached():
            while place is not None:
                points, place = self.client.scroll(
                    self.collection, limit=10_000, offset=place, with_payload=False, with_vectors=False
                )
                found.update(int(point.id) for point in points)
        return found

    def nearest(self, query: np.ndarray, k: int, by: str = ALL) -> list[tuple[int, float]]:
        """Return the k pictures nearest to a query, as `Vectors.nearest` does."""
        wanted = (query.mean(0) if by == MEAN else query).tolist()
        with self._reached():
            found = self.client.query_points(
                self.collection, query=wanted, limit=k, using=by, with_payload=False
            )
        return [(int(point.id), float(point.score)) for point in found.points]

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        from qdrant_client.http.exceptions import ApiException

        try:
            yield
        except ApiException as error:
            reason = " ".join(str(error).split())[:200]
            raise OSError(
                f"the Qdrant server at {self.url} cannot be used ({reason}): is it running?"
            ) from None
