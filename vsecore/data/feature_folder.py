"""A folder of features while it is being made, and what its `meta.json` says when it is whole.

Rows are written as they are made (see `feature_rows`). `meta.json`, which says how the features were made, is
written last: a folder that has one is whole.
"""

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vsecore.arguments import Count
from vsecore.data import files
from vsecore.data.feature_rows import BLOCK, FeatureRows
from vsecore.data.karpathy import CaptionSplit, lines_sha256
from vsecore.data.sources import COLLECTIONS
from vsecore.data.splits import CAPTIONS_A_PICTURE, Split, caption_numbers
from vsecore.typed import counted, short

META, UNFINISHED, CHECKSUMS = "meta.json", "extraction.json", "checksums.json"
CAPTION_IDS = "caption_ids"
"""Ends the name of the file with COCO's numbers of a split's captions, which CxC and ECCV Caption ask for."""
CAPTION_COUNTS = "caption_counts"
"""Ends the name of the file that says how many captions each picture has, if that is not five of each."""
COUNTS = "counts"
"""Ends the name of the file that says how many elements each picture has, if not all have the same number."""

DType = Literal["float16", "float32"]
CaptionSplits = Mapping[str, CaptionSplit]


@dataclass(frozen=True)
class Settings:
    """The settings that determine the features: the content of `meta.json`."""

    dataset: str
    backbone: str
    backbone_sha256: str
    kind: str
    picture_size: Count | None
    """The side that pictures were given; None: the features come from elsewhere."""
    dtype: DType
    elements: Count
    """N; where pictures have different numbers, the largest."""
    feature_dim: Count
    captions_a_picture: Count
    """Of the picture that has most."""
    pictures: dict[str, Count]
    picture_ids_sha256: dict[str, str]
    captions_sha256: dict[str, str] = field(default_factory=dict)
    """A sha256 over the pictures' names and the captions. Captions may change: no feature depends on them."""
    boxes: bool = False
    """Whether the elements have boxes."""
    counts_sha256: dict[str, str] = field(default_factory=dict)
    """A sha256 over how many elements each picture has; empty: all have N."""
    unreadable: dict[str, list[str]] = field(default_factory=dict)
    """The ids of the pictures that were left out of each split because their files cannot be read."""

    @classmethod
    def of(
        cls, caption_splits: CaptionSplits, unreadable: Mapping[str, list[str]] | None = None, **others: Any
    ) -> "Settings":
        """Return the settings for features of these splits; `others` are those that the captions do not give.

        Raises:
            ValueError: the type is unknown, or a picture has no captions, or fewer than five in a collection
                where all have five, or they are in another order than the pictures: only a caption's line
                number says which picture it has.
        """
        if others["dtype"] not in ("float16", "float32"):
            raise ValueError(f'dtype is {others["dtype"]!r}: wanted "float16" or "float32"')
        if not caption_splits:
            raise ValueError("caption_splits is empty: wanted the splits of karpathy.load_karpathy")
        counts = [np.bincount(split.owner, minlength=len(split.files)) for split in caption_splits.values()]
        for one, (name, split) in zip(counts, caption_splits.items(), strict=True):
            least = CAPTIONS_A_PICTURE if split.dataset in COLLECTIONS else 1
            if one.min() < least or (np.diff(split.owner) < 0).any():
                odd = split.files[int(one.argmin())]
                raise ValueError(
                    f"split {name!r}: {odd} has {one.min()} captions: wanted at least {least}, in the "
                    "pictures' order"
                )
        return cls(
            dataset=next(iter(caption_splits.values())).dataset,
            captions_a_picture=int(max(one.max() for one in counts)),
            pictures={name: len(split.files) for name, split in caption_splits.items()},
            picture_ids_sha256={n: lines_sha256(split.picture_ids) for n, split in caption_splits.items()},
            captions_sha256={name: split.fingerprint() for name, split in caption_splits.items()},
            unreadable={name: ids for name, ids in (unreadable or {}).items() if ids},
            **others,
        )

    def as_json(self) -> str:
        """Return the settings as text, without those that are empty or False."""
        kept = {name: value for name, value in asdict(self).items() if value not in ({}, False)}
        return json.dumps(kept, indent=1)

    def rows(self, folder: Path, name: str) -> FeatureRows:
        """Return the rows of one split."""
        shape = (self.pictures[name], self.elements, self.feature_dim)
        return FeatureRows(folder, name, shape, self.dtype, self.boxes)


def texts_of(
    folder: Path, name: str, split: CaptionSplit | Split, counts: np.ndarray | None = None
) -> dict[Path, str]:
    """Return the text files that go beside the features of a split, each with what it must hold."""
    lines: dict[str, Sequence[object] | None] = {
        "ids": split.picture_ids,
        CAPTION_COUNTS: caption_numbers(split.owner, len(split.picture_ids)) or None,
        CAPTION_IDS: split.caption_ids,
        COUNTS: None if counts is None else counts.tolist(),
        "caps": split.captions,
    }
    return {
        folder / f"{name}_{kind}.txt": "".join(f"{line}\n" for line in texts)
        for kind, texts in lines.items()
        if texts is not None
    }


def find_damage(folder: Path) -> dict[str, str]:
    """Return a sentence for each split of a finished extraction whose rows do not match their digests."""
    settings, digests = files.read_json(folder / META, Settings), _read_digests(folder)
    problems: dict[str, str] = {}
    for name in settings.pictures:
        rows = settings.rows(folder, name)
        for path, start in rows.damaged(digests) if rows.fit else [(rows.path, None)]:
            place = "" if start is None else f", rows {start} to {start + BLOCK - 1},"
            problems.setdefault(name, f"{path}{place} is damaged or cut off: run the same extraction again")
    return problems


def _read_digests(folder: Path) -> dict[str, list[str]]:
    """Return the digests of a finished folder's files; {} for folders of other programs, which have none."""
    path = folder / CHECKSUMS
    digests: dict[str, list[str]] = files.read_json(path, dict[str, list[str]]) if path.exists() else {}
    return digests


def read_settings(folder: Path) -> Settings | None:
    """Return the settings that a folder was begun with; None: it was not begun."""
    for path in (folder / META, folder / UNFINISHED):
        if path.exists():
            settings: Settings = files.read_json(path, Settings)
            return settings
    return None


@dataclass(frozen=True)
class Extraction:
    """The features to be made, and the folder that they go into."""

    folder: Path
    settings: Settings
    caption_splits: CaptionSplits
    counts: Mapping[str, np.ndarray] = field(default_factory=dict)
    """For each split how many elements each picture has, (n,); empty: all have the same number."""

    @contextlib.contextmanager
    def opened(self) -> Iterator[dict[str, np.ndarray] | None]:
        """Begin, or continue, and keep every other program out of the folder meanwhile.

        Yields:
            For each incomplete split, which rows must be made, (n,) bool; None: nothing is left to do, not
            even for `finish`.

        Raises:
            ValueError: the folder holds other features.
            OSError: it cannot be created or written, or its disk lacks room.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with files.locked(self.folder, "is extracting into"):
            missing = self._missing()
            yield None if self._is_whole(missing) else self._begin(missing)

    def finish(self) -> None:
        """Write the texts and the digests; then mark the folder as whole."""
        for left in self.folder.glob(".*.part"):  # by a process that was killed while it wrote
            left.unlink()
        digests: dict[str, list[str]] = {}
        for name in self.caption_splits:
            for kind in (CAPTION_IDS, CAPTION_COUNTS):  # an old file would be about other captions
                if (path := self.folder / f"{name}_{kind}.txt") not in self._texts(name):
                    path.unlink(missing_ok=True)
            for path, text in self._texts(name).items():
                self._write(path, text)
            digests |= self.rows(name).digests()
        self._write(self.folder / CHECKSUMS, json.dumps(digests, indent=1))
        self._write(self.folder / META, self.settings.as_json())
        (self.folder / UNFINISHED).unlink(missing_ok=True)
        for name in self.caption_splits:
            self.rows(name).made.unlink(missing_ok=True)

    def rows(self, name: str) -> FeatureRows:
        """Return the rows of one split."""
        return self.settings.rows(self.folder, name)

    def _texts(self, name: str) -> dict[Path, str]:
        counts = self.counts[name] if self.counts else None
        return texts_of(self.folder, name, self.caption_splits[name], counts)

    def _missing(self) -> dict[str, np.ndarray]:
        """Return which rows of each split must be made, (n,) bool; refuse other features."""
        before = read_settings(self.folder)
        if before is None:
            for name in self.caption_splits:
                for path in (self.rows(name).path, *self._texts(name)):
                    if path.exists():
                        raise ValueError(
                            f"{self.folder} holds features from elsewhere ({path.name}): name another folder"
                        )
        else:
            for setting in ("unreadable", *asdict(self.settings)):
                was, now = getattr(before, setting), getattr(self.settings, setting)
                if was != now and setting != "captions_sha256":
                    raise ValueError(
                        f"{self.folder} holds features made with other settings: {setting} was {short(was)} "
                        f"and is now {short(now)}; name another folder, or empty this one"
                    )
        digests = _read_digests(self.folder) if (self.folder / META).exists() else None
        return {name: self.rows(name).missing(digests) for name in self.caption_splits}

    def _is_whole(self, missing: Mapping[str, np.ndarray]) -> bool:
        return (
            not (self.folder / UNFINISHED).exists()
            and read_settings(self.folder) == self.settings
            and not any(rows.any() for rows in missing.values())
            and all(files.holds(path, text) for name in missing for path, text in self._texts(name).items())
        )

    def _begin(self, missing: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Mark the folder as unfinished, and begin the splits that lack rows; return those."""
        begun = {name: rows for name, rows in missing.items() if rows.any()}
        for name, rows in begun.items() if (self.folder / META).exists() else ():
            pictures = [self.caption_splits[name].files[row].name for row in np.flatnonzero(rows)]
            print(f"{name}: features of {counted(pictures, 'picture')} made again", file=sys.stderr)
        wanted = sum(self.rows(name).bytes_missing(rows) for name, rows in begun.items())
        free = shutil.disk_usage(self.folder).free
        if wanted > free:
            raise OSError(
                f"{self.folder} needs {wanted / 1e6:,.1f} MB more, but its disk has {free / 1e6:,.1f} MB "
                "left: make room, or name a folder on another disk"
            )
        for name, rows in missing.items():
            self.rows(name).note_missing(rows)
        self._write(self.folder / UNFINISHED, self.settings.as_json())
        (self.folder / META).unlink(missing_ok=True)
        for name in begun:
            self.rows(name).begin()
        return begun

    def _write(self, path: Path, text: str) -> None:
        if not files.holds(path, text):
            with files.write_atomically(path, "w") as file:
                file.write(text)
