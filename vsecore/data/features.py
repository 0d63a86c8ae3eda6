"""Folders of features (see `feature_folder`), mapped from disk: files of 33 GB are never read whole."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vsecore.data import files
from vsecore.data.feature_folder import (
    CHECKSUMS,
    META,
    UNFINISHED,
    MappedPictures,
    Meta,
    find_damage,
    first_not_finite,
)
from vsecore.data.karpathy import DataReport
from vsecore.data.known_words import look_at_words
from vsecore.data.splits import CAPTIONS_A_PICTURE, Dataset, Split, captions_sha256, lines_sha256
from vsecore.typed import counted, short

REPEATS = 5
"""How often such folders repeat each evaluation picture: once for each of its captions."""


def open_precomp(folder: str | Path, test: str = "test") -> Dataset:
    """Open a folder of features as a dataset; the features stay on disk.

    A split may hold one row per picture, or repeat each picture once for each of its five captions; the rows
    show which. A few of them are checked for NaN; `check_precomp` checks all, and compares checksums. No
    picture may be in two splits, but ids that are only numbers of the file's lines name no pictures. Elements
    are regions if no `meta.json` says otherwise.

    Args:
        folder: has `{split}_ims.npy`, `{split}_caps.txt` and, if there are any, `{split}_ids.txt`.
        test: the split to test on: "testall" is the 5,000 pictures of COCO where "test" is 1,000 of them.

    Raises:
        FileNotFoundError: the folder or one of its files is missing.
        ValueError: a file is damaged, or does not fit the others; or the extraction is unfinished.
    """
    folder, meta, names = _begin(folder, test)
    parts = [_Part.open(folder, theirs, ours, meta) for ours, theirs in names.items()]
    for part in parts:
        part.read(np.unique(np.linspace(0, len(part.whole) - 1, 32).astype(np.int64)))
    _refuse_shared_pictures(folder, parts)
    return _dataset(folder, meta, parts)


def check_precomp(folder: str | Path) -> DataReport:
    """Check a folder of features, reading every number, and list every problem.

    Its `testall` may repeat the pictures of `test`. Checksums, which `extract` writes, show a single wrong
    bit. If rows of a split are damaged, nothing else of it is checked: extracting again repairs all.
    """
    report, damage = DataReport(), dict[str, str]()
    with report.noting():
        folder, meta, names = _begin(folder, "test")
        if (folder / "testall_ims.npy").exists():
            names["testall"] = "testall"
        if (folder / META).exists():
            name = meta.dataset or folder.resolve().name
            report.facts.append(f"{name}: {meta.kind} features of {meta.network or 'others'}")
            report.facts += (
                f"left out of {name}, because they cannot be read: {counted(ids, 'picture')}"
                for name, ids in meta.unreadable.items()
            )
        if (folder / CHECKSUMS).exists():
            with report.noting():
                damage = find_damage(folder, meta)
        else:
            report.facts.append("no checksums: numbers that are wrong, but finite, go unnoticed")
        report.problems += damage.values()
        parts: list[_Part] = []
        for ours, theirs in names.items():
            if theirs not in damage:
                with report.noting():
                    parts.append(_Part.open(folder, theirs, ours, meta))
                    report.facts.append(repr(parts[-1].split))
                    parts[-1].check()
        with report.noting():
            _refuse_shared_pictures(folder, parts)
        if len(parts) == len(names):
            _dataset(folder, meta, parts[:3])
            facts, warnings = look_at_words({part.split.name: part.split for part in parts})
            report.facts += facts
            report.warnings += warnings
    return report


def holds_features(folder: str | Path) -> bool:
    """Whether a folder holds features, finished or not; otherwise it may hold photographs."""
    return any(any(files.expanded(folder).glob(name)) for name in ("*_ims.npy", META, UNFINISHED))


@dataclass(frozen=True)
class _Part:
    """One split of a folder."""

    split: Split
    whole: MappedPictures
    """All rows of the file."""
    repeats: int
    """How many consecutive rows are the same picture."""
    has_ids: bool

    @classmethod
    def open(cls, folder: Path, theirs: str, ours: str, meta: Meta) -> "_Part":
        """Open a split that the folder calls `theirs`; its texts must fit its rows and `meta.json`."""
        path = folder / f"{theirs}_ims.npy"
        whole, captions = MappedPictures(path), _lines(folder / f"{theirs}_caps.txt")
        counts = _numbers(folder / f"{theirs}_caption_counts.txt", len(whole))
        repeats, each = _captions_each(whole, captions, counts, meta)
        pictures = whole[::repeats]
        count, ids = len(pictures), folder / f"{theirs}_ids.txt"
        identities = [str(row) for row in range(count)]
        if ids.exists():
            identities = _picture_ids(ids, count, {len(whole), len(captions)})
        numbers_file = folder / f"{theirs}_caption_ids.txt"
        split = Split(
            name=ours,
            pictures=pictures,
            captions=captions,
            owner=np.repeat(np.arange(count), each),
            picture_ids=identities,
            picture_counts=_numbers(folder / f"{theirs}_counts.txt", count),
            caption_ids=_lines(numbers_file, len(captions)) if numbers_file.exists() else None,
        )
        _compare_with_meta(whole, split, theirs, meta)
        return cls(split, whole, repeats, ids.exists())

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Read some rows of the file, which must be finite numbers."""
        read: np.ndarray = self.whole[rows]
        bad = first_not_finite(read)
        if bad is not None:
            raise ValueError(
                f"{self.whole.path}, row {rows[bad]} holds NaN or infinity: get or extract it again"
            )
        return read

    def check(self) -> None:
        """Read every number: all must be finite, and repeated rows equal."""
        block = 64 * self.repeats
        starts = range(0, len(self.whole), block)
        for start in files.progress(starts, desc=f"read {self.split.name}", unit="block"):
            rows = self.read(np.arange(start, min(start + block, len(self.whole))))
            fives = rows.reshape(-1, self.repeats, *rows.shape[1:])
            differ = (fives != fives[:, :1]).any(tuple(range(1, fives.ndim)))
            if differ.any():
                row = start + self.repeats * int(differ.argmax())
                raise ValueError(
                    f"{self.whole.path}, rows {row} to {row + self.repeats - 1} differ, though elsewhere in "
                    f"it each picture has {self.repeats} equal rows: get the file again"
                )

    @functools.cached_property
    def only_counts(self) -> bool:
        """Whether its ids are no names, but only numbers of the file's lines."""
        most = max(len(self.whole), len(self.split.captions))
        return all(identity.isdecimal() and int(identity) <= most for identity in self.split.picture_ids)


def _begin(folder: str | Path, test: str) -> tuple[Path, Meta, dict[str, str]]:
    """Return the folder, what `meta.json` says, and by what names the folder calls our splits."""
    folder = files.expanded(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}: name a folder that holds train_ims.npy and the rest")
    meta: Meta = files.read_json(folder / META, Meta) if (folder / META).exists() else Meta()
    if (folder / UNFINISHED).exists() and not (folder / META).exists():
        raise ValueError(f"{folder} holds an unfinished extraction: run it again to finish it")
    if test in ("train", "dev"):
        raise ValueError(f"test is {test!r}: wanted a split of its own, to test on")
    return folder, meta, {"train": "train", "dev": "dev", "test": test}


def _dataset(folder: Path, meta: Meta, parts: Iterable[_Part]) -> Dataset:
    name = meta.dataset or folder.resolve().name
    train, dev, test = (part.split for part in parts)
    return Dataset(name, train, dev, test, meta.kind, meta.network)


def _refuse_shared_pictures(folder: Path, parts: Iterable[_Part]) -> None:
    """Refuse a picture in two splits: testing on a picture that was trained on is no test."""
    places: dict[str, _Part] = {}
    for part in parts:
        for identity in part.split.picture_ids if part.has_ids else ():
            before = places.setdefault(identity, part)
            if before is part or {before.split.name, part.split.name} == {"test", "testall"}:
                continue
            if not (before.only_counts and part.only_counts):
                raise ValueError(
                    f"{folder}: the picture {identity!r} is in split {before.split.name!r} and in split "
                    f"{part.split.name!r}: keep it in one"
                )


def _captions_each(
    whole: MappedPictures, captions: list[str], counts: np.ndarray | None, meta: Meta
) -> tuple[int, np.ndarray]:
    """Return how many rows each picture has, and how many captions, (n,) or ()."""
    rows, each = len(whole), meta.captions_a_picture
    if counts is not None and len(captions) == counts.sum():
        return 1, counts
    if counts is None and len(captions) == rows and rows % REPEATS == 0 and _repeats_pictures(whole):
        return REPEATS, np.array(REPEATS)
    # If another split has pictures with more captions, one where all have five has no file of counts.
    for number in (each, CAPTIONS_A_PICTURE) if each > CAPTIONS_A_PICTURE else (each,):
        if counts is None and len(captions) == number * rows:
            return 1, np.array(number)
    wanted = f"{each * rows}, {each} for each (or {rows}, if each picture is repeated {REPEATS} times)"
    raise ValueError(
        f"{whole.path.name.removesuffix('ims.npy')}caps.txt in {whole.path.parent} has {len(captions)} "
        f"captions for the {rows} rows of {whole.path.name}: wanted "
        f"{wanted if counts is None else f'{counts.sum()}, as are counted'}; one of the files may be cut off"
    )


def _repeats_pictures(pictures: MappedPictures) -> bool:
    """Whether rows come in fives of the same picture, judged by the first, a middle and the last five."""
    groups = len(pictures) // REPEATS
    fives = (pictures[REPEATS * group + np.arange(REPEATS)] for group in {0, groups // 2, groups - 1})
    return all(np.array_equal(five, five[:1].repeat(REPEATS, 0), equal_nan=True) for five in fives)


def _lines(path: Path, *counts: int) -> list[str]:
    """Return the lines of a file, none of them empty and, if counts are given, one of so many."""
    lines = files.read_lines(path)
    if "" in lines:
        raise ValueError(f"{path}, line {lines.index('') + 1} is empty: wanted something on each line")
    if counts and len(lines) not in counts:
        raise ValueError(
            f"{path} has {len(lines)} lines, wanted {' or '.join(map(str, counts))}: get it again"
        )
    return lines


def _numbers(path: Path, pictures: int) -> np.ndarray | None:
    """Return a whole number for each picture, (n,); None: there is no such file."""
    if not path.exists():
        return None
    lines = _lines(path, pictures)
    if not all(line.isdecimal() and len(line) < 10 for line in lines):
        raise ValueError(f"{path} holds more than whole numbers: get it again")
    return np.array(list(map(int, lines)))


def _picture_ids(path: Path, pictures: int, lengths: set[int]) -> list[str]:
    """Read one id for each picture; its lines must be equal, unless all lines differ and number captions."""
    lines = _lines(path, pictures, *(length for length in lengths if length % pictures == 0))
    each = len(lines) // pictures
    identities = lines[::each]
    if len(set(lines)) < len(lines):
        for row, identity in enumerate(identities):
            if lines[each * row : each * (row + 1)] != [identity] * each:
                raise ValueError(
                    f"{path}, lines {each * row + 1} to {each * (row + 1)} name different "
                    "pictures for one row of features"
                )
    first: dict[str, int] = {}
    for row, identity in enumerate(identities):
        if first.setdefault(identity, row) != row:
            raise ValueError(
                f"{path}, line {each * row + 1} names {identity!r} of line "
                f"{each * first[identity] + 1} again: keep one of them"
            )
    return identities


def _compare_with_meta(whole: MappedPictures, split: Split, theirs: str, meta: Meta) -> None:
    count, *rest = whole.shape
    said = [meta.pictures.get(theirs), meta.elements, meta.feature_dim, meta.dtype]
    held = [count, *rest, str(whole.dtype)] if len(rest) == 2 else []
    for name, ours, known in zip(("pictures", "elements", "feature_dim", "dtype"), held, said, strict=False):
        if known not in (None, ours):
            raise ValueError(
                f"{whole.path} has {name} {ours}, but {META} says {short(known)}: get the folder again, or "
                "extract it again"
            )
    counts = [] if split.picture_counts is None else split.picture_counts.tolist()
    for field_name, names, digest in (
        ("captions_sha256", f"{theirs}_caps.txt or {theirs}_ids.txt", captions_sha256(split)),
        ("counts_sha256", f"{theirs}_counts.txt", lines_sha256(map(str, counts))),
    ):
        if getattr(meta, field_name).get(theirs) not in (None, digest):
            raise ValueError(
                f"{whole.path.with_name(names)} does not match {META}: extract again, or get the folder "
                f'again; if you changed it on purpose, delete "{field_name}" in {META}'
            )
