"""Write a folder of features (see `feature_folder`) so that an interruption loses nothing."""

import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from vsecore.data import files
from vsecore.data.feature_folder import (
    BLOCK,
    CHECKSUMS,
    META,
    UNFINISHED,
    FeatureRows,
    Meta,
    first_not_finite,
    read_meta,
)
from vsecore.data.splits import Split
from vsecore.processes import from_main_process, join_processes
from vsecore.typed import counted, short


@dataclass(frozen=True)
class FolderWriter:
    """Writes a folder of features. If it is interrupted, the same call continues where it stopped.

    Rows that are already there stay; those that are damaged or cut off are made again.
    """

    folder: Path
    meta: Meta
    splits: Mapping[str, Split]
    counts: Mapping[str, np.ndarray] = field(default_factory=dict)
    """For each split how many elements each picture has, (n,); empty: all have the same number."""

    def fill(
        self, make: Callable[[str, Sequence[np.ndarray]], Iterable[Sequence[np.ndarray]]], block: int = BLOCK
    ) -> Path:
        """Write the rows that are missing, shared among all processes, and return the folder.

        `make` yields what `FeatureRows.write` takes for each of some blocks of a split's rows. Blocks have at
        most `block` rows, always the same ones: how many pictures a network sees at once can change a last
        digit. An interruption loses at most one block of each process.
        """
        group = join_processes()
        with contextlib.ExitStack() as stack:
            missing = from_main_process(lambda: stack.enter_context(self.opened()))
            for name, lacking in (missing or {}).items():
                rows, every = self.rows(name), np.arange(self.meta.pictures[name])
                starts = np.unique(lacking // block * block)[group.process_index :: group.num_processes]
                blocks = [every[start : start + block] for start in starts]
                share = sum(map(len, blocks))
                done = len(every) - share if group.num_processes == 1 else 0
                with files.progress(desc=name, total=done + share, initial=done, unit="picture") as bar:
                    for some, arrays in zip(blocks, make(name, blocks), strict=True):
                        rows.write(some, arrays)
                        bar.update(len(some))
                group.wait_for_everyone()
            if missing is not None:
                if group.is_main_process:
                    self.finish()
                group.wait_for_everyone()
        return self.folder

    @contextlib.contextmanager
    def opened(self) -> Iterator[dict[str, np.ndarray] | None]:
        """Begin, or continue, and keep every other program out of the folder meanwhile.

        Yields:
            For each incomplete split, the numbers of the rows that must be made; None: nothing is left to do,
            not even for `finish`.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with files.locked(self.folder, "is extracting into"):
            self._refuse_others()
            missing = {name: self._missing(name) for name in self.splits}
            yield None if self._is_whole(missing) else self._begin(missing)

    def finish(self) -> None:
        """Write the texts and the digests; then mark the folder as whole.

        A network disk may lose what other processes write, so a row that is missing is an error.
        """
        for left in self.folder.glob(".*.part"):  # by a process that was killed while it wrote
            left.unlink()
        digests: dict[str, list[str]] = {}
        for name in self.splits:
            rows, texts = self.rows(name), self._texts(name)
            if not rows.made().all():
                raise OSError(f"{rows.path} lacks rows that were written: run the same extraction again")
            for kind in ("caption_ids", "caption_counts", "counts"):  # an old file would be of others
                if (path := self.folder / f"{name}_{kind}.txt") not in texts:
                    path.unlink(missing_ok=True)
            for path, text in texts.items():
                files.write_whole(path, text)
            digests |= rows.digests()
        files.write_whole(self.folder / CHECKSUMS, json.dumps(digests, indent=1))
        files.write_whole(self.folder / META, self.meta.as_json())
        (self.folder / UNFINISHED).unlink(missing_ok=True)
        for name in self.splits:
            self.rows(name).note(None)

    def rows(self, name: str) -> FeatureRows:
        """Return the rows of one split."""
        return FeatureRows(self.folder, self.meta, name)

    def _texts(self, name: str) -> dict[Path, str]:
        """Return the text files that go beside the features of a split, each with what it must hold."""
        split, counts = self.splits[name], self.counts.get(name)
        lines: dict[str, Sequence[object] | None] = {
            "ids": split.picture_ids,
            "caption_counts": split.caption_numbers or None,
            "caption_ids": split.caption_ids,
            "counts": None if counts is None else counts.tolist(),
            "caps": split.captions,
        }
        return {
            self.folder / f"{name}_{kind}.txt": "".join(f"{line}\n" for line in texts)
            for kind, texts in lines.items()
            if texts is not None
        }

    def _refuse_others(self) -> None:
        before = read_meta(self.folder)
        for setting in () if before is None else ("unreadable", *asdict(self.meta)):
            was, now = getattr(before, setting), getattr(self.meta, setting)
            if was != now and setting not in ("captions_sha256", "captions_a_picture"):
                raise ValueError(
                    f"{self.folder} holds features made with other settings ({setting} was "
                    f"{short(was)}, is now {short(now)}): name another folder, or empty this one"
                )
        ours = [path for name in self.splits for path in (self.rows(name).path, *self._texts(name))]
        if before is None and (there := [path.name for path in ours if path.exists()]):
            raise ValueError(f"{self.folder} holds features from elsewhere ({there[0]}): name another folder")

    def _missing(self, name: str) -> np.ndarray:
        """Return which rows of a split must be made, (n,) bool."""
        rows = self.rows(name)
        if not rows.fit:
            return np.ones(rows.count, bool)
        if not (self.folder / META).exists():
            return ~rows.made()
        missing = np.zeros(rows.count, bool)
        for _, start in rows.damaged():
            missing[start : start + BLOCK] = True
        return missing

    def _is_whole(self, missing: Mapping[str, np.ndarray]) -> bool:
        return (
            not (self.folder / UNFINISHED).exists()
            and read_meta(self.folder) == self.meta
            and not any(rows.any() for rows in missing.values())
            and all(files.holds(path, text) for name in missing for path, text in self._texts(name).items())
        )

    def _begin(self, missing: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Mark the folder as unfinished, and make the files of splits that lack rows; return those rows."""
        begun = {name: np.flatnonzero(rows) for name, rows in missing.items() if rows.any()}
        for name, rows in begun.items() if (self.folder / META).exists() else ():
            pictures = [self.splits[name].picture_ids[row] for row in rows]
            print(f"{name}: features of {counted(pictures, 'picture')} made again", file=sys.stderr)
        wanted = sum(self.rows(name).bytes_lacking() for name in begun)
        free = shutil.disk_usage(self.folder).free
        if wanted > free:
            raise OSError(
                f"{self.folder} needs {wanted / 1e6:,.1f} MB more, but its disk has {free / 1e6:,.1f} MB "
                "left: make room, or name a folder on another disk"
            )
        for name, rows in missing.items():
            self.rows(name).note(~rows)
        files.write_whole(self.folder / UNFINISHED, self.meta.as_json())
        (self.folder / META).unlink(missing_ok=True)
        for name in begun:
            self.rows(name).make_files()
        return begun


def as_stored(features: np.ndarray, dtype: str, names: Sequence[object]) -> np.ndarray:
    """Return features (m, N, F) as "float16" or "float32"; `names` says what each was made from."""
    if features.dtype.kind not in "fiu":
        raise ValueError(f"{names[0]} holds {features.dtype}: wanted real numbers")
    with np.errstate(over="ignore"):
        stored = features.astype(dtype)
    bad = first_not_finite(stored)
    if bad is not None:
        large = np.isfinite(features[bad]).all()
        remedy = "float16 ends at 65,504; float32 (dtype) does not" if large else "extract them again"
        raise ValueError(f"features of {names[bad]} are not finite in {dtype}: {remedy}")
    return stored
