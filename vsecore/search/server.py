"""The vectors of an index on a Qdrant server, for more pictures than one machine holds.

A server has a graph of near neighbours (HNSW), quantised vectors, disks and shards, and serves many programs
at once. The index's own file stays the truth: what a server lacks, or has too much, is set right by
`synchronise`, also after a kill.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException

from vsecore.search.store import Store
from vsecore.search.vectors import ALL, MEAN

T = TypeVar("T")

BLOCK = 512
"""How many pictures go to Qdrant at a time."""


class QdrantServer:
    """Pictures' vectors on a server, each under its picture's number, as `Vectors` has them in memory.

    Args:
        shape: of one picture: (D,), or (K, D) for a set, which is compared by MaxSim.
        collection: its name in Qdrant.
        url: of the server.

    Raises:
        OSError: the server cannot be reached.
        ValueError: the server's collection of this name holds other vectors.
    """

    def __init__(self, shape: tuple[int, ...], collection: str, url: str) -> None:
        self.collection, self.url = collection, url
        self.client = QdrantClient(url=url, check_compatibility=False)
        # Unit vectors: their inner product is their cosine.
        plain = models.VectorParams(size=shape[-1], distance=models.Distance.DOT)
        sets = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
        wanted = {ALL: plain}
        if len(shape) == 2:
            wanted = {ALL: plain.model_copy(update={"multivector_config": sets}), MEAN: plain}
        if not self._call(lambda: self.client.collection_exists(collection)):
            self._call(lambda: self.client.create_collection(collection, vectors_config=wanted))
            return
        found = self._call(lambda: self.client.get_collection(collection)).config.params.vectors
        if not isinstance(found, dict) or _kinds(found) != _kinds(wanted):
            raise ValueError(
                f"{url} has a collection {collection} of other vectors: delete it there, or build the index "
                "again"
            )

    def synchronise(self, store: Store) -> None:
        """Take out what the index no longer has, and send what is new or missing here."""
        ours, here = {entry.number for entry in store.entries()}, self.numbers()
        gone: list[Any] = sorted(here - ours)
        if gone:
            points = models.PointIdsList(points=gone)
            self._call(partial(self.client.delete, self.collection, points_selector=points, wait=True))
        wanted = sorted({*store.unsent(), *(ours - here)})
        for start in range(0, len(wanted), BLOCK):
            for numbers, vectors in store.vectors(wanted[start : start + BLOCK]):
                named: dict[str, Any] = {ALL: vectors.tolist()}
                if vectors.ndim == 3:
                    named[MEAN] = vectors.mean(1).tolist()
                batch = models.Batch(ids=numbers.tolist(), vectors=named)
                self._call(partial(self.client.upsert, self.collection, batch, wait=True))
                store.mark_sent(numbers)

    def numbers(self) -> set[int]:
        """Return the numbers of all pictures that are here."""
        found: set[int] = set()
        place: Any = None
        while True:
            scroll = partial(self.client.scroll, limit=10_000, with_payload=False, with_vectors=False)
            points, place = self._call(partial(scroll, self.collection, offset=place))
            found.update(int(point.id) for point in points)
            if place is None:
                return found

    def nearest(self, query: np.ndarray, k: int, by: str = ALL) -> list[tuple[int, float]]:
        """Return the k pictures nearest to a query, as `Vectors.nearest` does."""
        asked = query.mean(0) if by == MEAN else query
        search = partial(self.client.query_points, limit=k, using=by, with_payload=False)
        found = self._call(partial(search, self.collection, query=asked.tolist()))
        return [(int(point.id), float(point.score)) for point in found.points]

    def _call(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except (ResponseHandlingException, ApiException) as error:
            reason = " ".join(str(error).split())[:200]
            raise OSError(
                f"the Qdrant server at {self.url} cannot be used ({reason}): is it running?"
            ) from None


def _kinds(vectors: dict[str, models.VectorParams]) -> dict[str, tuple[object, ...]]:
    """Return what must be the same in two collections."""
    return {name: (one.size, one.distance, one.multivector_config) for name, one in vectors.items()}
