"""The vectors of an index in Qdrant: in this process, or on a server that is named by its URL.

The calls are the same. In this process, Qdrant's client compares a query with every vector, in Python and
numpy: exact, and quick up to some tens of thousands of pictures. A server has a graph of near neighbours
(HNSW), quantised vectors, disks and shards, and serves many programs at once; it is how an index outgrows
one machine.

A set is kept in two ways: as its K vectors, which MaxSim compares, and as their mean. The inner product of
two means is the mean of all K·L cosines, so it stands for similarities in which every pair counts. MaxSim
stands for those in which the nearest pairs decide. Each proposes pictures, and the model's own similarity
ranks them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import numpy as np
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException

T = TypeVar("T")

ALL, MEAN = "all", "mean"
"""The names of a picture's vectors in Qdrant."""
BLOCK = 512
"""How many pictures go to Qdrant at a time."""


class Vectors:
    """Pictures' vectors in Qdrant, each under its picture's number.

    Args:
        shape: of one picture: (D,), or (K, D) for a set, which is compared by MaxSim.
        collection: its name in Qdrant.
        url: of a server; None: in this process, in memory.
        client: a client to use instead of a new one.

    Raises:
        OSError: the server cannot be reached.
        ValueError: the server's collection of this name holds other vectors.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        collection: str,
        url: str | None = None,
        client: QdrantClient | None = None,
    ) -> None:
        self.shape, self.collection, self.url = shape, collection, url
        self.client = client or (
            QdrantClient(":memory:") if url is None else QdrantClient(url=url, check_compatibility=False)
        )
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
        if not isinstance(found, dict) or _told(found) != _told(wanted):
            raise ValueError(
                f"{url} has a collection {collection} of other vectors: delete it there, or build the index "
                "again"
            )

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def __len__(self) -> int:
        """Return the number of pictures."""
        return int(self._call(lambda: self.client.count(self.collection, exact=True)).count)

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

    def put(self, numbers: np.ndarray, vectors: np.ndarray) -> None:
        """Add pictures' vectors (n, D) or (n, K, D) under their numbers (n,), in place of older ones."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a server is better for many: the module says so
            for start in range(0, len(numbers), BLOCK):
                part = slice(start, start + BLOCK)
                named: dict[str, Any] = {ALL: vectors[part].tolist()}
                if vectors.ndim == 3:
                    named[MEAN] = vectors[part].mean(1).tolist()
                batch = models.Batch(ids=numbers[part].tolist(), vectors=named)
                self._call(partial(self.client.upsert, self.collection, batch, wait=True))

    def drop(self, numbers: Iterable[int]) -> None:
        """Take pictures out."""
        gone: list[Any] = [int(number) for number in numbers]
        if gone:
            points = models.PointIdsList(points=gone)
            self._call(partial(self.client.delete, self.collection, points_selector=points, wait=True))

    def nearest(self, query: np.ndarray, k: int, by: str = ALL) -> list[tuple[int, float]]:
        """Return the k pictures nearest to a query, best first: by cosine, or by MaxSim for sets.

        Args:
            query: (D,), or (L, D).
            k: how many, at most.
            by: `ALL`; or for sets `MEAN`, the inner product of their means.

        Returns:
            Numbers and scores.
        """
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


def _told(wanted: dict[str, models.VectorParams]) -> dict[str, tuple[object, ...]]:
    """Return what must be the same in two collections."""
    return {name: (one.size, one.distance, one.multivector_config) for name, one in wanted.items()}
