"""What an index keeps, and what a query is compared with.

On disk it is every picture's name, version and vectors (float32), in one SQLite file. They are searched in
this process, where a query is compared with every vector, which is quick up to some hundred thousand
pictures; or on a Qdrant server, where an index outgrows one machine. The file stays the truth.

A set is searched in two ways: by MaxSim over its K vectors, and by their mean. The inner product of two means
is the mean of all K·L cosines, so it stands for similarities in which every pair counts. MaxSim stands for
those in which the nearest pairs decide. Each proposes pictures, and the model's own similarity ranks them.
"""

import contextlib
import json
import math
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from vsecore.data.files import expanded
from vsecore.retriever import Source
from vsecore.search.engine import Seen
from vsecore.typed import from_json

FILE = "index.sqlite"
BLOCK = 500
"""How many pictures are read at a time."""
REBUILD = "delete the index's folder and build it again"
ALL, MEAN = "all", "mean"
"""By what is searched: all vectors of a picture, or their mean."""
AT_ONCE = 2**19
"""How many numbers are sent at a time, and their means: 22 MB of JSON at most, of which a server takes 32."""

_TABLES = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS pictures (
    number INTEGER PRIMARY KEY AUTOINCREMENT, path BLOB NOT NULL UNIQUE, size INTEGER NOT NULL,
    changed INTEGER NOT NULL, digest TEXT NOT NULL, vectors BLOB NOT NULL, sum INTEGER NOT NULL);
COMMIT;
"""


@dataclass(frozen=True)
class Facts:
    """What an index says of itself."""

    model: str
    fingerprint: str
    shape: Annotated[list[Annotated[int, Field(ge=1, le=2**20)]], Field(min_length=1, max_length=2)]
    """The shape of a picture's vectors, (D,) or (K, D)."""
    source: Source | None
    """Where the engine comes from; None: the index was built in Python with a model of one's own."""
    collection: str
    """The name of its collection on a Qdrant server."""
    version: Literal[2] = 2


@dataclass(frozen=True)
class Entry:
    """A picture in an index: its number, its file, the file's version, and a sha256 of its bytes."""

    number: int
    path: Path
    size: int
    changed: int
    digest: str


class Store:
    """The pictures of an index. A number stays with a picture, and no other one ever gets it.

    Without a folder they are kept in memory. Only with `facts`, what an index says of itself, is one begun.
    """

    def __init__(self, folder: str | Path | None, facts: Facts | None = None) -> None:
        self.folder = folder = None if folder is None else expanded(folder)
        self.path = Path(":memory:") if folder is None else folder / FILE
        if facts is None and not self.path.is_file():
            raise FileNotFoundError(f"{folder} holds no index: build one with vse search index FOLDER")
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._open = sqlite3.connect(self.path, check_same_thread=False, timeout=30)
        with self._transaction():
            self._open.execute("PRAGMA trusted_schema = OFF")
            if facts is not None:
                self._open.executescript(_TABLES)
                written = json.dumps(asdict(facts))
                self._open.execute("INSERT OR IGNORE INTO facts VALUES ('index', ?)", (written,))
        rows = self._rows("SELECT value FROM facts WHERE name = 'index'")
        self.facts: Facts = from_json(str(self.path), rows[0][0] if rows else "", Facts)

    def close(self) -> None:
        self._open.close()

    def __len__(self) -> int:
        return int(self._rows("SELECT count(*) FROM pictures")[0][0])

    def numbers(self) -> list[int]:
        """Return the numbers of all pictures, in order."""
        return [number for (number,) in self._rows("SELECT number FROM pictures ORDER BY number")]

    def entries(self, numbers: Sequence[int] | None = None) -> list[Entry]:
        """Return every picture; or those of some numbers that are there."""
        columns = "number, CAST(path AS BLOB), size, changed, digest"
        return [
            Entry(row[0], Path(os.fsdecode(row[1])), *row[2:])
            for block in self._pictures(columns, numbers)
            for row in block
        ]

    def entry(self, number: int) -> Entry:
        """Return one picture; raise a KeyError if there is none of this number."""
        found = self.entries([number])
        if not found:
            raise KeyError(number)
        return found[0]

    def vectors(self, numbers: Sequence[int] | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield pictures' numbers (n,) and vectors (n, D) or (n, K, D) in blocks; None: of all pictures."""
        shape = tuple(self.facts.shape)
        length = 4 * int(np.prod(shape))
        for rows in self._pictures("number, CAST(path AS BLOB), CAST(vectors AS BLOB), sum", numbers):
            for number, path, content, checksum in rows:
                if len(content) != length or _sum(path, content) != checksum:
                    raise ValueError(f"{self.path}: the vectors of picture {number} are damaged: {REBUILD}")
            joined = np.frombuffer(bytearray().join(row[2] for row in rows), np.float32)
            yield np.array([row[0] for row in rows], np.int64), joined.reshape(len(rows), *shape)

    def all_vectors(self, numbers: Sequence[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of all pictures, or those asked for, (n,), and vectors (n, D) or (n, K, D)."""
        none = np.zeros(0, np.int64), np.zeros((0, *self.facts.shape), np.float32)
        found, vectors = zip(none, *self.vectors(numbers), strict=True)
        return np.concatenate(found), np.concatenate(vectors)

    def put(self, seen: Iterable[Seen]) -> None:
        """Add pictures, or new versions of them, and take out those that are broken: all of them, or none."""
        insert = "INSERT INTO pictures (path, size, changed, digest, vectors, sum) VALUES (?, ?, ?, ?, ?, ?)"
        with self._transaction():
            for one in seen:
                path = os.fsencode(one.path)
                self._open.execute("DELETE FROM pictures WHERE path = ?", (path,))
                if one.vectors is not None:
                    content = np.ascontiguousarray(one.vectors, np.float32).tobytes()
                    row = path, one.size, one.changed, one.digest, content, _sum(path, content)
                    self._open.execute(insert, row)

    def place(self, places: Mapping[int, tuple[Path, int]]) -> None:
        """Note where pictures are now, and when their files were written; their vectors stay."""
        updates = []
        for numbers, vectors in self.vectors(list(places)):
            for number, content in zip(numbers.tolist(), vectors, strict=True):
                path, changed = places[number]
                name = os.fsencode(path)
                updates.append((name, changed, _sum(name, content.tobytes()), number))
        with self._transaction():
            self._open.executemany(
                "UPDATE pictures SET path = ?, changed = ?, sum = ? WHERE number = ?", updates
            )

    def keep_fact(self, name: str, value: str) -> None:
        with self._transaction():
            self._open.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def fact(self, name: str) -> str | None:
        """Return a fact about the index; None: there is none."""
        rows = self._rows("SELECT value FROM facts WHERE name = ?", name)
        return rows[0][0] if rows else None

    def keep_facts(self, facts: Facts) -> None:
        """Say something else of the index itself from now on."""
        self.facts = facts
        self.keep_fact("index", json.dumps(asdict(facts)))

    def writes(self) -> int:
        """Return a number that is another one once another process has written."""
        return int(self._rows("PRAGMA data_version")[0][0])

    def drop(self, numbers: Iterable[int]) -> None:
        with self._transaction():
            self._open.executemany("DELETE FROM pictures WHERE number = ?", [(one,) for one in numbers])

    def _pictures(self, columns: str, numbers: Sequence[int] | None) -> Iterator[list[Any]]:
        wanted = self.numbers() if numbers is None else numbers
        for start in range(0, len(wanted), BLOCK):
            some = wanted[start : start + BLOCK]
            marks = ",".join("?" * len(some))
            command = f"SELECT {columns} FROM pictures WHERE number IN ({marks}) ORDER BY number"
            yield self._rows(command, *some)

    def _rows(self, command: str, *values: Any) -> list[Any]:
        with self._transaction():
            return self._open.execute(command, values).fetchall()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write all or nothing, and tell damage from a file that is locked or cannot be written."""
        try:
            with self._open:
                yield
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and "no such" not in str(error):
                raise OSError(f"{self.path} cannot be used ({error})") from None
            raise ValueError(f"{self.path} is not an index, or is damaged ({error}): {REBUILD}") from None


def _sum(path: bytes, content: bytes) -> int:
    """Return the CRC-32 of what a search answers with: a picture's name and its vectors."""
    return zlib.crc32(content, zlib.crc32(path))


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
