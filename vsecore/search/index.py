"""An index of pictures, searched by a sentence or by another picture."""

from __future__ import annotations

import secrets
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from vsecore.data.files import digest_of, expanded, locked, progress
from vsecore.data.picture_folders import Listing, list_pictures, readable_suffixes
from vsecore.search.engine import Engine
from vsecore.search.store import MEAN, Entry, Facts, QdrantServer, Store, Vectors

PROPOSED = 100
"""How many pictures MaxSim, and the sets' means, propose at least; the model's own similarity ranks them."""


@dataclass(frozen=True)
class Found:
    """A picture that a search has found."""

    number: int
    path: Path
    score: float
    """The model's similarity: for vectors the cosine, from -1 to 1. It ranks the pictures for one query.
    Neither scores of different queries nor those of different models can be compared."""


@dataclass(frozen=True)
class Term:
    """One part of a query that adds and subtracts."""

    query: str | Path
    weight: float = 1.0
    """Below 0 to subtract it."""


@dataclass
class Report:
    """What indexing a folder has changed."""

    added: int = 0
    changed: int = 0
    moved: int = 0
    """Files with another path, known by their bytes: they were not embedded again."""
    removed: int = 0
    kept: int = 0
    broken: dict[Path, str] = field(default_factory=dict)
    """Files that could not be read, and why; they are not in the index."""
    notes: list[str] = field(default_factory=list)
    """What else below the folder was left out, a sentence each."""
    absent: list[Path] = field(default_factory=list)
    """The highest of other folders that are not there: their pictures stay until `exclude` names these."""


class Index:
    """Pictures, and the vectors by which they are found. `Index.build` makes one, `Index.load` opens it."""

    def __init__(self, engine: Engine, store: Store, url: str | None = None) -> None:
        facts = store.facts
        if facts.fingerprint != engine.fingerprint:
            other = "" if facts.model != engine.name else ", and has changed since then"
            raise ValueError(
                f"{store.path} was built with the model {facts.model!r}{other}, not with {engine.name!r}: "
                "vectors of different models cannot be compared; search with that model, or build another "
                "index"
            )
        self.engine, self.store, self.url = engine, store, url
        self.report = Report()
        self.vectors: Vectors | QdrantServer = Vectors()
        if url is not None:
            self.vectors = QdrantServer(tuple(facts.shape), facts.collection, url)
        self._reading, self._read_at = threading.Lock(), store.writes()
        self.vectors.synchronise(store)

    @classmethod
    def build(
        cls,
        pictures: str | Path,
        engine: Engine,
        folder: str | Path | None = None,
        *,
        url: str | None = None,
        batch_size: int = 32,
        exclude: Sequence[str] = (),
    ) -> Index:
        """Index all pictures in a folder, or bring its index up to date; `report` then says what has changed.

        If it is killed, the same call continues: what was embedded is kept, nothing is there twice. Folders
        in it are searched too; for what is left out and may be excluded, see `list_pictures`. The index is
        kept in a `folder`; None: in memory. `url` is the address of a Qdrant server for the
        vectors; None: they are searched in this process.

        Raises:
            FileNotFoundError: there is no such folder, or it holds no pictures.
            ValueError: the index was built with another model, or is damaged.
            BlockingIOError: another process is indexing into the folder.
        """
        kept_in = None if folder is None else expanded(folder)
        _list_pictures(pictures, kept_in, exclude)  # before anything is created
        collection = f"vse-{engine.fingerprint[:12]}-{secrets.token_hex(4)}"
        facts = Facts(engine.name, engine.fingerprint, list(engine.shape), engine.source, collection)
        index = cls(engine, Store(kept_in, facts), url)
        if engine.source not in (None, index.store.facts.source):  # its run, or its network, was moved
            index.store.keep_facts(replace(facts, collection=index.store.facts.collection))
        index.report = index.add(pictures, batch_size=batch_size, exclude=exclude)
        return index

    @classmethod
    def load(cls, folder: str | Path, engine: Engine | None = None, *, url: str | None = None) -> Index:
        """Open the index in a folder, by `url` as in `build`; an engine that is not given is loaded anew."""
        store = Store(folder)
        try:
            if engine is None:
                if store.facts.source is None:
                    raise ValueError(
                        f"{folder} was built with a model of your own, {store.facts.model}: give its engine"
                    )
                engine = Engine.of(store.facts.source)
            return cls(engine, store, url)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}; if it was moved, index again and name where it is") from None

    def close(self) -> None:
        """Let go of the index's file."""
        self.store.close()

    def __len__(self) -> int:
        return len(self.store)

    def add(self, pictures: str | Path, *, batch_size: int = 32, exclude: Sequence[str] = ()) -> Report:
        """Index a folder of pictures, or bring it up to date: new, changed and removed files are noticed.

        A file is read again if its length or date has changed, and embedded again if its bytes have. One that
        was moved, also from another folder, is known by its bytes; those that are nowhere are forgotten. But
        where most of another folder is not there, nor the folder itself, as on a disk whose folder vanishes
        with it, its pictures stay until `exclude` names its whole path.
        """
        kept_in = self.store.folder
        with nullcontext() if kept_in is None else locked(kept_in, "is indexing into", wait=False):
            root = expanded(pictures).resolve()
            listing = _list_pictures(root, kept_in, exclude)
            report = Report(notes=listing.notes())
            known = {entry.path: entry for entry in self.store.entries()}
            wanted = self._reuse(listing, root, known, report, exclude)
            with progress(total=len(wanted), desc="index", unit="picture") as bar:
                for batch in self.engine.pictures(wanted, batch_size):
                    self.store.put(batch)
                    for seen in batch:
                        if seen.vectors is None:
                            report.broken[seen.path] = seen.problem
                        elif seen.path in known:
                            report.changed += 1
                        else:
                            report.added += 1
                    bar.update(len(batch))
            self.vectors.synchronise(self.store)
        return report

    def _reuse(
        self, listing: Listing, root: Path, known: dict[Path, Entry], report: Report, exclude: Sequence[str]
    ) -> list[Path]:
        """Keep the pictures whose bytes are still there, forget others, and return what must be embedded."""
        here = set(listing.pictures)
        gone: dict[int, list[Entry]] = defaultdict(list)  # by their size
        for entry in known.values():
            behind_a_door = any(map(entry.path.is_relative_to, listing.unreadable))  # perhaps still there
            if entry.path in here or behind_a_door:
                continue
            if entry.path.is_relative_to(root) or _is_gone(entry.path):
                gone[entry.size].append(entry)
        places: dict[int, tuple[Path, int]] = {}
        found_again: Counter[Path] = Counter()  # how many of each folder
        wanted = []
        for path in listing.pictures:
            try:
                status, own = path.stat(), known.get(path)
                size, changed = status.st_size, status.st_mtime_ns
                if own is not None and (own.size, own.changed) == (size, changed):
                    report.kept += 1
                    continue
                candidates = [one for one in (gone[size] if own is None else [own]) if one.size == size]
                digest = digest_of(path).hex() if candidates else ""
            except OSError:  # embedding it says why
                wanted.append(path)
                continue
            same = next((entry for entry in candidates if entry.digest == digest), None)
            if same is None:
                wanted.append(path)
                continue
            places[same.number] = path, changed
            if same is own:
                report.kept += 1
            else:
                report.moved += 1
                gone[size].remove(same)
                found_again[same.path.parent] += 1
        self.store.place(places)
        lost = [entry for entries in gone.values() for entry in entries]
        absent = {
            folder
            for folder, count in Counter(entry.path.parent for entry in lost).items()
            if count > found_again[folder] and _may_be_unplugged(folder, root, exclude)
        }
        nowhere = [entry.number for entry in lost if entry.path.parent not in absent]
        report.absent = sorted(
            {[one for one in (folder, *folder.parents) if not one.is_dir()][-1] for folder in absent}
        )
        self.store.drop(nowhere)
        report.removed = len(nowhere)
        return wanted

    def search(self, query: str | Path | Sequence[Term], k: int = 10) -> list[Found]:
        """Find the k pictures that a sentence describes, or that look like another picture, best first.

        A query is a sentence, as text; a picture's file, as a `Path`; or terms, whose similarities are added
        up by their weights. A ValueError says that it cannot be read, or that its terms cancel out.
        """
        if k < 1:
            raise ValueError(f"k is {k}: wanted at least 1")
        if isinstance(query, str | Path):
            return self.nearest(self.embed(query), k)
        terms = [(term.weight, self.embed(term.query)) for term in query]
        if not self.engine.by_cosine:
            return self._found(self._ranked(terms, self.store.vectors())[:k])
        total = np.sum([weight * vector for weight, vector in terms], axis=0)  # (D,)   its cosines add up
        length = float(np.linalg.norm(total))
        if length < 1e-4:
            raise ValueError("the terms of the query cancel each other out: nothing is left to look for")
        return self.nearest(np.asarray(total / length, np.float32), k)

    def embed(self, query: str | Path) -> np.ndarray:
        """Embed a sentence or a picture's file, (D,) or (K, D)."""
        return self.engine.picture(query) if isinstance(query, Path) else self.engine.sentence(query)

    def like(self, number: int, k: int = 10) -> list[Found]:
        """Find the pictures most similar to one in the index, which is left out itself."""
        self.store.entry(number)
        (_, vectors), *_ = self.store.vectors([number])
        return [one for one in self.nearest(vectors[0], k + 1) if one.number != number][:k]

    def nearest(self, query: np.ndarray, k: int = 10) -> list[Found]:
        """Find the pictures nearest to a query that is embedded already, (D,) or (L, D)."""
        with self._reading:
            if isinstance(self.vectors, Vectors) and (now := self.store.writes()) != self._read_at:
                self.vectors.synchronise(self.store)  # another process has brought the index up to date
                self._read_at = now
        if not (self.engine.by_cosine or self.engine.has_sets):  # nothing could propose the right ones
            return self._found(self._ranked([(1.0, query)], self.store.vectors())[:k])
        wanted = max(k, PROPOSED) if self.engine.has_sets else k
        best = self.vectors.nearest(query, wanted)
        if self.engine.has_sets and best:
            best += self.vectors.nearest(query, wanted, by=MEAN)
            proposed = sorted({number for number, _ in best})
            best = self._ranked([(1.0, query)], self.store.vectors(proposed))
        return self._found(best[:k])

    def all_vectors(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of all pictures, (n,), and their vectors, (n, D) or (n, K, D)."""
        return self.store.all_vectors()

    def _ranked(
        self, terms: Sequence[tuple[float, np.ndarray]], blocks: Iterable[tuple[np.ndarray, np.ndarray]]
    ) -> list[tuple[int, float]]:
        """Return the numbers and scores of pictures, best first by the weighted sum of their similarities."""
        scored = [
            pair
            for numbers, vectors in blocks
            for pair in zip(
                numbers.tolist(),
                np.sum([weight * self.engine.compare(vectors, one) for weight, one in terms], 0).tolist(),
                strict=True,
            )
        ]
        return sorted(scored, key=lambda pair: (-pair[1], pair[0]))

    def _found(self, best: list[tuple[int, float]]) -> list[Found]:
        """Return those that are there: another process may have taken some out since this one read them."""
        paths = {entry.number: entry.path for entry in self.store.entries([number for number, _ in best])}
        return [Found(number, paths[number], score) for number, score in best if number in paths]


def _is_gone(path: Path) -> bool:
    """Whether a file is surely not there; one behind a locked door may be."""
    try:
        path.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def _may_be_unplugged(folder: Path, root: Path, exclude: Sequence[str]) -> bool:
    """Whether a folder outside root is not there, and may come back: no whole path names it."""
    whole = [pattern for pattern in exclude if Path(pattern).is_absolute()]  # "media" is meant below root
    named = any(one.match(pattern) for one in (folder, *folder.parents) for pattern in whole)
    return not (named or folder.is_relative_to(root) or folder.is_dir())


def _list_pictures(root: str | Path, index: Path | None, exclude: Sequence[str] = ()) -> Listing:
    """List the picture files in a folder and its folders, but not the index's own."""
    root = expanded(root).resolve()
    if not root.is_dir():
        raise FileNotFoundError(f"no folder {root}: name a folder of pictures")
    own = None if index is None or index.resolve() == root else index.resolve()
    found = list_pictures(root, own, exclude)
    if not found.pictures:
        left_out = "; ".join(["", *found.notes()])
        kinds = ", ".join(sorted(readable_suffixes()))
        raise FileNotFoundError(f"{root} holds no pictures ({kinds}): name another folder{left_out}")
    return found
