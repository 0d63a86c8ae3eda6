"""Splits of photographs with captions, from a folder of pictures and an annotation file (`annotations`)."""

import functools
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np

from vsecore.data import files
from vsecore.data.annotations import (
    Entry,
    find_annotations,
    is_table,
    read_annotations,
    read_beside,
)
from vsecore.data.copies import copies, share_out
from vsecore.data.known_words import look_at_words
from vsecore.data.photographs import Photographs, View
from vsecore.data.picture_files import open_picture
from vsecore.data.picture_folders import list_pictures, name_key
from vsecore.data.sources import COLLECTIONS
from vsecore.data.splits import CAPTIONS_A_PICTURE, Dataset, Split
from vsecore.typed import counted


@dataclass(frozen=True, eq=False, repr=False)
class CaptionSplit(Split):
    """A split of photographs, which are decoded only when somebody asks for their pixels.

    Its `picture_ids` are COCO's numbers, or the files' names, with their folder if the annotations name one.
    """

    dataset: str = ""
    """The dataset's own name: "coco", "flickr30k" or "flickr8k"."""

    @classmethod
    def of(cls, name: str, dataset: str, pictures: Sequence[tuple[Entry, Path | None]]) -> "CaptionSplit":
        """Make a split of entries, each with the file of its picture."""
        entries = [entry for entry, _ in pictures]
        numbers = [entry.caption_ids for entry in entries]
        return cls(
            name=name,
            pictures=Photographs([path or Path(entry.file) for entry, path in pictures], View()),
            captions=[caption for entry in entries for caption in entry.captions],
            owner=np.repeat(np.arange(len(entries)), [len(entry.captions) for entry in entries]),
            picture_ids=[entry.identity for entry in entries],
            caption_ids=None if None in numbers else list(itertools.chain(*filter(None, numbers))),
            dataset=dataset,
        )

    @functools.cached_property
    def files(self) -> list[Path]:
        """The file of each picture."""
        assert isinstance(self.pictures, Photographs)
        return [self.pictures.files[row] for row in self.pictures.rows]

    def without(self, picture_ids: Container[str]) -> Self:
        """Return the split without some pictures and their captions."""
        rows = [row for row, identity in enumerate(self.picture_ids) if identity not in picture_ids]
        return self.take(np.array(rows), Photographs([self.files[row] for row in rows], View()))


@dataclass
class DataReport:
    """What a check of data has found."""

    facts: list[str] = field(default_factory=list)
    """What is there; nothing needs to be done about it."""
    warnings: list[str] = field(default_factory=list)
    """What may make results look better or worse than they are, but lets everything run."""
    problems: list[str] = field(default_factory=list)
    """What must be corrected before training."""

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Let a user's mistake end the block, and note it among the problems."""
        try:
            yield
        except (ValueError, OSError) as error:
            self.problems.append(str(error))


def load_karpathy(
    root: str | Path, json_path: str | Path | None = None, missing: bool = False
) -> dict[str, CaptionSplit]:
    """Load the splits of a photograph dataset: "train" (with COCO's restval), "dev" and "test".

    Names in an annotation file never lead out of the root, but the root, its folders and the pictures may be
    links, since large collections are often on another disk.

    Args:
        root: the folder of the dataset. Pictures may be in it, in its folder `images`, or where the JSON's
            `filepath` says below either.
        json_path: the captions, as `annotations` reads them; None: the file in `root`.
        missing: whether pictures that are not there are listed too.

    Raises:
        FileNotFoundError: the folder, the annotations or picture files are missing.
        ValueError: the annotations are damaged or lack a split, or a picture has no captions.

    Source: Karpathy and Fei-Fei 2015 for the splits and the format; Hodosh, Young and Hockenmaier 2013 for
    the text files.
    """
    found = _Collection.read(root, json_path)
    for mistake in found.mistakes():
        if not (missing and isinstance(mistake, FileNotFoundError)):
            raise mistake
    return {
        name: CaptionSplit.of(
            name, found.dataset, [(entry, path or found.root / entry.file) for entry, path in pictures]
        )
        for name, pictures in found.splits.items()
    }


def missing_pictures(root: Path, json_path: Path) -> list[str]:
    """Return the paths, as the annotation file has them, of the pictures that are nowhere below a folder."""
    splits = _Collection.read(root, json_path).splits.values()
    return [entry.file for pictures in splits for entry, path in pictures if path is None]


def from_files(splits: Mapping[str, CaptionSplit], view: View) -> Dataset:
    """Make a dataset of pixels from "train", "dev" and "test" as `load_karpathy` gives them."""
    train, dev, test = (
        replace(splits[name], pictures=Photographs(splits[name].files, view))
        for name in ("train", "dev", "test")
    )
    return Dataset(splits["train"].dataset, train, dev, test, "pixels")


def check_photographs(root: str | Path, json_path: str | Path | None = None) -> DataReport:
    """Look for everything that is wrong with a folder of photographs, and open every picture.

    Pictures that are byte for byte the same in two splits are a warning, not a problem: the official splits
    of large collections hold a few, and whoever compares results with a paper needs those splits as they are.
    """
    report = DataReport()
    with report.noting():
        found = _Collection.read(root, json_path)
        report.facts.append(f"{found.dataset}, from {found.annotations}")
        report.problems += map(str, found.mistakes())
        for name, pictures in found.splits.items():
            numbers = [len(entry.captions) for entry, _ in pictures] or [0]
            each = (
                f"{min(numbers)} to {max(numbers)} a picture" if len({*numbers}) > 1 else f"{numbers[0]} each"
            )
            report.facts.append(f"{name}: {len(pictures)} pictures, {sum(numbers)} captions, {each}")
            terse = [entry.name for entry, _ in pictures if 0 < len(entry.captions) < CAPTIONS_A_PICTURE]
            if terse and found.dataset.removeprefix("own-") in COLLECTIONS:
                few = f"{counted(terse, 'picture')} with fewer than {CAPTIONS_A_PICTURE} captions"
                if found.dataset in COLLECTIONS:
                    report.problems.append(f"split {name!r}: {few}: give each that many, or leave it out")
                else:
                    report.warnings.append(
                        f"split {name!r}: {few}, so this is called {found.dataset}: if it is the published "
                        "collection, get its captions again"
                    )
        if found.unused:
            report.facts.append(f"{counted(found.unused, 'more id')} with captions: in no split, not used")
        present = {name: [path for _, path in pictures if path] for name, pictures in found.splits.items()}
        unreadable = find_unreadable([path for paths in present.values() for path in paths])
        report.problems += unreadable.values()
        whole = {name: [path for path in paths if path not in unreadable] for name, paths in present.items()}
        report.warnings += _shared(whole)
        if found.annotations == found.root and (without := read_beside(found.root)[1]):
            report.warnings.append(f"{counted(without, 'picture')} without a text beside it: left out")
        spoken = {
            name: [(entry, path) for entry, path in pictures if entry.captions]
            for name, pictures in found.splits.items()
        }
        facts, warnings = look_at_words({n: CaptionSplit.of(n, "", p) for n, p in spoken.items() if p})
        report.facts += facts
        report.warnings += warnings
    return report


@dataclass(frozen=True)
class _Collection:
    """What an annotation file lists, and the picture files of it that are there."""

    root: Path
    annotations: Path
    dataset: str
    splits: dict[str, list[tuple[Entry, Path | None]]]
    """Entries, each with the file of its picture; None: it is missing."""
    unused: list[str]
    """Names of pictures that are in no split."""

    @classmethod
    def read(cls, root: str | Path, json_path: str | Path | None) -> "_Collection":
        root = files.expanded(root)
        if not root.is_dir():
            raise FileNotFoundError(f"no folder {root}: name the one with the pictures and captions")
        annotations = find_annotations(root, json_path)
        dataset, entries = read_annotations(annotations, root)
        find = _finder(root)
        pictures = [(entry, find(entry)) for entry in entries if entry.split != ""]
        to_share = [path for entry, path in pictures if entry.split is None and path is not None]
        split_of = share_out(copies(to_share))
        splits: dict[str, list[tuple[Entry, Path | None]]] = {"train": [], "dev": [], "test": []}
        for entry, path in pictures:
            name = entry.split or ("train" if path is None else split_of[path])
            splits[name].append((replace(entry, split=name), path))
        unused = [entry.file for entry in entries if entry.split == ""]
        return cls(root, annotations, dataset, splits, unused)

    def mistakes(self) -> Iterator[Exception]:
        """Yield what keeps the splits from being used: loading raises the first, a check lists all."""
        owners: dict[Path, Entry] = {}
        told = is_table(self.annotations)
        for name, pictures in self.splits.items():
            where = f"{self.annotations}, split {name!r}"
            if not pictures:
                shared = "its column split names them; without it they are shared out"
                remedy = shared if told else "a published file is cut off; of your own captions, give it some"
                yield ValueError(f"{where} has no pictures: wanted some in each split ({remedy})")
            if silent := [entry.name for entry, _ in pictures if not entry.captions]:
                yield ValueError(f"{where}: {counted(silent, 'picture')} without captions")
            lacking = [entry for entry, path in pictures if path is None]
            if missing := [f"{one.file} of {one.place}" if told else one.file for one in lacking]:
                get = f"vse data get {self.dataset} --root {self.root}, or "
                yield FileNotFoundError(
                    f"{counted(missing, 'picture')} of split {name!r} not found in {self.root} or its "
                    f"picture folders: {get if self.dataset in COLLECTIONS else ''}put them there under "
                    "these names, or name another root"
                )
            for entry, path in pictures:
                before = entry if path is None else owners.setdefault(path, entry)
                if before is not entry:
                    yield ValueError(
                        f"{where}: {before.place}, of split {before.split!r}, and {entry.place} are both the "
                        f"picture {path}: add the other one's file"
                    )


def _finder(root: Path) -> Callable[[Entry], Path | None]:
    """Return what finds an entry's file below a root; names are compared in Unicode's composed form."""
    named: dict[str, dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))  # then by whole path
    for path in list_pictures(root).pictures:
        named[name_key(path.name)][f"/{name_key(path.relative_to(root).as_posix())}"].append(path)

    def find(entry: Entry) -> Path | None:
        below = f"/{name_key(entry.file)}"
        folder, names = below.rpartition("/")[0], _names_of(entry.name)
        for name in names:
            here = named.get(name, {})
            near = (here.get(f"{place}/{name}", []) for place in (folder, f"/images{folder}", "", "/images"))
            if path := next(filter(Path.is_file, itertools.chain(*near)), None):  # a pipe would make us wait
                return path
            # Every folder may have a "1.jpg": "red/1.jpg" may be "photos/red/1.jpg", or the other way round,
            # but not "blue/1.jpg". COCO has each number once.
            same = [here[inside] for inside in here if inside.endswith(below) or below.endswith(inside)]
            listed = same or (here.values() if len(names) > 1 else [])
            found = list(filter(Path.is_file, itertools.chain(*listed)))
            if len(found) > 1 and len({files.digest_of(path) for path in found}) > 1:
                raise ValueError(
                    f"{entry.name} is in {found[0].parent} and, with other bytes, in {found[1].parent}: "
                    "name the one folder of the pictures as root, with the captions' file beside (--captions)"
                )
            if found:
                return found[0]
        return None

    return find


def _names_of(file_name: str) -> list[str]:
    """Return the names under which a picture may lie: in 2017, COCO dropped their prefix."""
    numbered = re.fullmatch(r"(?:COCO_(?:train|val)2014_)?(\d{12}\.jpg)", file_name)
    if numbered is None:
        return [name_key(file_name)]
    return [file_name, *(f"{prefix}{numbered[1]}" for prefix in ("", "COCO_val2014_", "COCO_train2014_"))]


def find_unreadable(present: Sequence[Path]) -> dict[Path, str]:
    """Say what is wrong with each picture that cannot be read."""

    def problem(path: Path) -> str | None:
        try:
            open_picture(path)
        except ValueError as error:
            return str(error)
        return None

    with ThreadPoolExecutor() as pool:
        problems = pool.map(problem, present)
        shown = files.progress(problems, total=len(present), desc="open pictures", unit="picture")
        return {path: problem for path, problem in zip(present, shown, strict=True) if problem}


def _shared(present: dict[str, list[Path]]) -> Iterator[str]:
    """Find pictures that two splits hold under two names. Only files of the same size are read."""
    sizes = {path: path.stat().st_size for paths in present.values() for path in paths}
    times = Counter(size for paths in present.values() for size in {sizes[path] for path in paths})
    found: dict[bytes, dict[str, Path]] = {}
    for name, paths in present.items():
        for path in paths:
            if times[sizes[path]] > 1:  # another split has this size too
                found.setdefault(files.digest_of(path), {})[name] = path
    for one, other in itertools.combinations(present, 2):
        same = [f"{at[one].name} and {at[other].name}" for at in found.values() if {one, other} <= at.keys()]
        if same:
            yield (
                f"{one} and {other} have {counted(same, 'picture')} in common, byte for byte: in your own "
                "splits, keep one of each two; a published split may hold a few"
            )


def read_splits(annotations: Path) -> dict[str, CaptionSplit]:
    """Read "train", "dev" and "test" from an annotation file that names them; no picture need be there."""
    dataset, entries = read_annotations(annotations)
    splits = {}
    for name in ("train", "dev", "test"):
        own = [(entry, None) for entry in entries if entry.split == name]
        if not own:
            raise ValueError(f"{annotations} has no pictures of split {name!r}: get the whole file")
        splits[name] = CaptionSplit.of(name, dataset, own)
    return splits


def numbered(split: Split, annotations: Path) -> Split:
    """Give the captions and pictures of a test split COCO's numbers, from Karpathy's JSON.

    The split must have the same captions in the order of the file, as the field's folders of features do (see
    `Split.shows_the_same`).
    """
    test = read_splits(annotations)["test"]
    if test.caption_ids is None:
        raise ValueError(f"{annotations} does not give the numbers of its captions: name dataset_coco.json")
    if not test.shows_the_same(split):
        raise ValueError(
            f"the test split of {annotations} ({len(test.captions)} captions) has other captions than that "
            f"of the features ({len(split.captions)}), or in another order"
        )
    return replace(split, caption_ids=test.caption_ids, picture_ids=test.picture_ids)
