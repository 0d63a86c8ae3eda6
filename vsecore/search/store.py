"""What an index keeps on disk: every picture's name, version and vectors, in one SQLite file.

SQLite writes a whole transaction or none of it, whenever the program is killed. The vectors stand in it as
plain float32 numbers.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from vsecore.search.engine import Seen, Source
from vsecore.typed import from_json, short

FILE = "index.sqlite"
VERSION = 2
REBUILD = "delete the index's folder and build it again"

_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE pictures (
    number INTEGER PRIMARY KEY AUTOINCREMENT, path BLOB NOT NULL UNIQUE, size INTEGER NOT NULL,
    changed INTEGER NOT NULL, digest TEXT NOT NULL, vectors BLOB NOT NULL, sum INTEGER NOT NULL,
    sent INTEGER NOT NULL DEFAULT 0);
CREATE TABLE problems (
    path BLOB PRIMARY KEY, size INTEGER NOT NULL, changed INTEGER NOT NULL, problem TEXT NOT NULL);
"""
_ENTRIES = "SELECT number, path, size, changed, digest FROM pictures"
_VECTORS = "SELECT number, path, vectors, sum FROM pictures"


@dataclass(frozen=True)
class Facts:
    """What an index says of itself.

    Attributes:
        model: the engine's name.
        fingerprint: the engine's.
        shape: of a picture's vectors, (D,) or (K, D).
        source: where the engine comes from; None: the index was built in Python with a model of one's own.
        collection: the name of its collection on a Qdrant server.
        version: of this format.
    """

    model: str
    fingerprint: str
    shape: Annotated[list[Annotated[int, Field(ge=1, le=2**20)]], Field(min_length=1, max_length=2)]
    source: Source | None
    collection: str
    version: int = VERSION


@dataclass(frozen=True)
class Entry:
    """A picture in an index: its number, its file, the file's version, and a sha256 of its bytes."""

    number: int
    path: Path
    size: int
    changed: int
    digest: str


class Store:
    """The pictures of an index.

    Args:
        folder: of the index; None: it is kept in memory.
        facts: of a new index; None: it must be there already.

    Raises:
        FileNotFoundError: there is no index, and `facts` is None.
        ValueError: it is damaged, or not an index.
    """

    def __init__(self, folder: Path | None, facts: Facts | None = None) -> None:
        self.folder = folder
        path = Path(":memory:") if folder is None else folder / FILE
        if facts is None and not path.is_file():
            raise FileNotFoundError(f"{folder} holds no index: build one with vse search index FOLDER")
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._open = sqlite3.connect(str(path), check_same_thread=False, timeout=30, isolation_level=None)
        with self._refusing_damage():
            self._open.execute("PRAGMA trusted_schema = OFF")
            if facts is not None and not self._rows("SELECT 1 FROM sqlite_master"):
                self._begin(facts)
            self.facts = self._read_facts()

    def close(self) -> None:
        """Let go of the file."""
        self._open.close()

    def __len__(self) -> int:
        """Return the number of pictures."""
        return int(self._rows("SELECT count(*) FROM pictures")[0][0])

    def entries(self, numbers: Sequence[int] | None = None) -> list[Entry]:
        """Return every picture, by its number; or those of some numbers that are there."""
        some = "" if numbers is None else f" WHERE number IN ({_marks(numbers)})"
        return [_entry(row) for row in self._rows(f"{_ENTRIES}{some} ORDER BY number", *numbers or ())]

    def entry(self, number: int) -> Entry:
        """Return one picture.

        Raises:
            KeyError: there is no picture of this number.
        """
        found = self.entries([number])
        if not found:
            raise KeyError(number)
        return found[0]

    def problems(self) -> dict[Path, tuple[int, int, str]]:
        """Return every file that could not be read: its length, when it was written, and why not."""
        found = self._rows("SELECT path, size, changed, problem FROM problems")
        return {_path(path): (size, changed, problem) for path, size, changed, problem in found}

    def check(self) -> None:
        """Look through the whole file.

        Raises:
            ValueError: it is damaged.
        """
        (found,) = self._rows("PRAGMA integrity_check(1)")[0]
        if found != "ok":
            raise ValueError(f"{self.path} is damaged ({found}): {REBUILD}")
        ((lowest,),) = self._rows("SELECT min(number) FROM pictures")
        if lowest is not None and lowest < 1:  # SQLite counts from 1; `vectors` would leave it out
            raise ValueError(f"{self.path} is damaged (a picture has the number {lowest}): {REBUILD}")

    def vectors(self, numbers: Sequence[int] | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield pictures' numbers (n,) and vectors (n, D) or (n, K, D) in blocks; None: of all pictures.

        Raises:
            ValueError: some are damaged.
        """
        if numbers is not None:
            for start in range(0, len(numbers), 500):
                part = numbers[start : start + 500]
                yield self._block(self._rows(f"{_VECTORS} WHERE number IN ({_marks(part)})", *part))
            return
        last = 0  # SQLite counts from 1
        while rows := self._rows(f"{_VECTORS} WHERE number > ? ORDER BY number LIMIT 4096", last):
            last = rows[-1][0]
            yield self._block(rows)

    def all_vectors(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of all pictures, (n,), and their vectors, (n, D) or (n, K, D)."""
        blocks = list(self.vectors())
        if not blocks:
            return np.zeros(0, np.int64), np.zeros((0, *self.facts.shape), np.float32)
        numbers, vectors = zip(*blocks, strict=True)
        return np.concatenate(numbers), np.concatenate(vectors)

    def put(self, seen: Iterable[Seen]) -> None:
        """Add pictures, or new versions of them, and note files that are broken now: all of them, or none."""
        with self._transaction():
            for one in seen:
                path = os.fsencode(one.path)
                if one.vectors is None:
                    self._open.execute("DELETE FROM pictures WHERE path = ?", (path,))
                    problem = one.problem.encode(errors="backslashreplace").decode()
                    values: tuple[Any, ...] = (path, one.size, one.changed, problem)
                    self._open.execute("INSERT OR REPLACE INTO problems VALUES (?, ?, ?, ?)", values)
                    continue
                content = np.ascontiguousarray(one.vectors, np.float32).tobytes()
                self._open.execute("DELETE FROM problems WHERE path = ?", (path,))
                self._open.execute(
                    "INSERT INTO pictures (path, size, changed, digest, vectors, sum)"
                    " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (path) DO UPDATE SET"
                    " size = excluded.size, changed = excluded.changed,"
                    " digest = excluded.digest, vectors = excluded.vectors, sum = excluded.sum, sent = 0",
                    (path, one.size, one.changed, one.digest, content, _sum(path, content)),
                )

    def touch(self, entries: Iterable[tuple[int, int]]) -> None:
        """Note when files were written whose bytes are still the same: (number, changed) each."""
        with self._transaction():
            self._open.executemany(
                "UPDATE pictures SET changed = ? WHERE number = ?",
                [(changed, number) for number, changed in entries],
            )

    def drop(self, numbers: Iterable[int], problems: Iterable[Path] = ()) -> None:
        """Forget pictures, and files that could not be read."""
        with self._transaction():
            self._open.executemany("DELETE FROM pictures WHERE number = ?", [(one,) for one in numbers])
            self._open.executemany(
                "DELETE FROM problems WHERE path = ?", [(os.fsencode(path),) for path in problems]
            )

    def unsent(self) -> list[int]:
        """Return the pictures that a server does not have yet, or in an older version."""
        return [number for (number,) in self._rows("SELECT number FROM pictures WHERE sent = 0")]

    def mark_sent(self, numbers: Iterable[int]) -> None:
        """Note that the server has these pictures as they are."""
        with self._transaction():
            self._open.executemany(
                "UPDATE pictures SET sent = 1 WHERE number = ?", [(int(number),) for number in numbers]
            )

    def copy_to(self, folder: Path, collection: str) -> None:
        """Write the same index into another folder, with a name of its own for a server.

        Raises:
            ValueError: there is one already.
        """
        path = folder / FILE
        if path.exists():
            raise ValueError(f"{folder} holds an index already: name another folder, or delete it first")
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{FILE}.part")
        partial.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(str(partial))) as other:
            self._open.backup(other)
            other.execute("UPDATE pictures SET sent = 0")
            own = replace(self.facts, collection=collection)  # two indexes must not share one on a server
            other.execute("UPDATE facts SET value = ? WHERE name = 'index'", (json.dumps(asdict(own)),))
            other.commit()
        partial.replace(path)

    def _begin(self, facts: Facts) -> None:
        with self._transaction():
            for command in _TABLES.split(";"):
                self._open.execute(command)
            self._open.execute("INSERT INTO facts VALUES ('index', ?)", (json.dumps(asdict(facts)),))

    def _read_facts(self) -> Facts:
        rows = self._rows("SELECT value FROM facts WHERE name = 'index'")
        if not rows:
            raise ValueError(f"{self.path} does not say which model it was built with: {REBUILD}")
        facts: Facts = from_json(str(self.path), rows[0][0], Facts)
        if facts.version != VERSION:
            raise ValueError(
                f"{self.path} is an index of version {facts.version}, and this program reads "
                f"{VERSION}: {REBUILD}"
            )
        return facts

    def _block(self, rows: list[tuple[int, bytes, bytes, int]]) -> tuple[np.ndarray, np.ndarray]:
        shape = tuple(self.facts.shape)
        length = 4 * int(np.prod(shape))
        for number, path, content, checksum in rows:
            are_bytes = isinstance(path, bytes) and isinstance(content, bytes)
            if not are_bytes or len(content) != length or _sum(path, content) != checksum:
                raise ValueError(f"{self.path}: the vectors of picture {number} are damaged: {REBUILD}")
        numbers = np.array([row[0] for row in rows], np.int64)
        joined = np.frombuffer(b"".join(row[2] for row in rows), np.float32)
        return numbers, joined.reshape(len(rows), *shape).copy()

    def _rows(self, command: str, *values: Any) -> list[Any]:
        with self._refusing_damage():
            return self._open.execute(command, values).fetchall()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._refusing_damage():
            self._open.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._open.execute("ROLLBACK")
                raise
            self._open.execute("COMMIT")

    @contextlib.contextmanager
    def _refusing_damage(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if any(word in str(error) for word in ("no such table", "no such column", "malformed")):
                raise ValueError(f"{self.path} is not an index, or is damaged ({error}): {REBUILD}") from None
            raise OSError(f"{self.path} cannot be used ({error})") from None
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{self.path} is not an index, or is damaged ({error}): {REBUILD}") from None


def _sum(path: bytes, content: bytes) -> int:
    """Return the CRC-32 of what a search answers with: a picture's name and its vectors."""
    return zlib.crc32(content, zlib.crc32(path))


def _entry(row: tuple[int, bytes, int, int, str]) -> Entry:
    return Entry(row[0], _path(row[1]), *row[2:])


def _path(name: object) -> Path:
    if not isinstance(name, bytes):  # SQLite allows any type
        raise ValueError(f"the index is damaged, a path in it is {short(name)}: {REBUILD}")
    return Path(os.fsdecode(name))


def _marks(numbers: Sequence[int]) -> str:
    return ",".join("?" * len(numbers))
