"""From photographs to a folder of features. That takes hours on a large dataset, so it can be interrupted.

Rows go into a hidden file as they are made (see `feature_rows`); it takes its real name when its split is
complete, and `meta.json`, which says how the features were made, is written last. A folder with a `meta.json`
is whole. Several processes can share the work (see `processes`): each makes its own rows, in the same files.
"""

import contextlib
import errno
import json
import os
import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field

from vsecore.data import files
from vsecore.data.annotations import CAPTIONS_A_PICTURE
from vsecore.data.backbones import Backbone
from vsecore.data.decoding import look_ahead
from vsecore.data.feature_rows import FeatureRows, Verdict, refuse_all_but_files
from vsecore.data.karpathy import CaptionSplit, lines_sha256
from vsecore.processes import Crew, from_main_process, join_crew
from vsecore.typed import counted, short

META, UNFINISHED = "meta.json", "extraction.json"
CAPTION_IDS = "caption_ids"
"""Ends the name of the file with COCO's numbers of a split's captions, which CxC and ECCV Caption ask for."""

Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Settings:
    """The settings that determine the features: the content of `meta.json`."""

    dataset: str
    backbone: str
    backbone_sha256: str
    kind: str
    picture_size: Count | None
    """The side that pictures were given; None: the features come from elsewhere."""
    dtype: Literal["float16", "float32"]
    elements: Count
    feature_dim: Count
    captions_a_picture: Count
    pictures: dict[str, Count]
    picture_ids_sha256: dict[str, str]
    captions_sha256: dict[str, str] = field(default_factory=dict)
    """A sha256 over the pictures' names and the captions. Captions may change: no feature depends on them."""
    boxes: bool = False
    """Whether the elements have boxes."""

    def as_json(self) -> str:
        """Return the settings as text; without boxes, they are not mentioned."""
        return json.dumps(
            {name: value for name, value in asdict(self).items() if value is not False}, indent=1
        )

    def one_by_one(self) -> dict[str, object]:
        """Return each setting by its name, or by "NAME of SPLIT" where each split has its own."""
        settings: dict[str, object] = {}
        for name, value in asdict(self).items():
            each = value if isinstance(value, dict) else {}
            settings |= {f"{name} of {split}": v for split, v in each.items()} or {name: value}
        return settings

    def rows(self, folder: Path, name: str) -> FeatureRows:
        """Return the rows of one split."""
        shape = (self.pictures[name], self.elements, self.feature_dim)
        return FeatureRows(folder, name, shape, self.dtype, self.without_captions().as_json(), self.boxes)

    def without_captions(self) -> "Settings":
        """Return only the settings that determine the numbers."""
        return replace(self, captions_sha256={})


def extract(
    caption_splits: Mapping[str, CaptionSplit],
    backbone: Backbone,
    folder: str | Path,
    *,
    batch_size: int | None = None,
    device: torch.device | str | None = None,
    dtype: Literal["float16", "float32"] = "float16",
    workers: int | None = None,
) -> Path:
    """Write a folder of features from photographs. If interrupted, the same call continues where it stopped.

    Each picture is used whole, squashed to a square: what is at its edges may be what a caption is about. For
    a detector it keeps its proportions, and its boxes are written too: `{split}_boxes.npy`, (n, N, 4)
    float32, left, top, right and bottom in pixels of the upright picture, best first.

    Pictures are decoded in threads while the network works on the ones before them. If another process is
    extracting into the same folder, this one says so and waits for it (Windows has no lock for that).

    Rows that are already in the folder are read and checked against their checksums. Those that are damaged
    or cut off, and those of pictures that have changed, are made again, and stderr says which. If only
    captions have changed, they are written again, and no picture is decoded.

    If `accelerate launch` or `torchrun` has started several processes, each makes its share of the batches,
    and the folder ends byte for byte as one process would have written it. They must see the same disk. If
    one of them is killed, the launcher ends the others, and the same command continues, with as many
    processes as one likes.

    Args:
        caption_splits: from `karpathy.load_karpathy`.
        backbone: from `load_backbone`; it is moved to the device.
        folder: where to write; made if it is missing.
        batch_size: pictures at a time; None: the backbone's own, 32, or 4 for a detector. Small ones (16 to
            32) are fastest on a CPU, whose caches they fit.
        device: where the network runs; None: a GPU if there is one, each process its own.
        dtype: "float16" or "float32", on disk. Half precision is as good for training, in half the room.
        workers: threads that decode; None: one for each core, at most 16.

    Returns:
        The folder.

    Raises:
        ValueError: a picture cannot be read, features are not finite, or the folder holds other features.
            What was done until then is kept: the same call continues from there.
        OSError: the folder cannot be created or written, or its disk lacks room, which is checked before
            anything is extracted.
    """
    if dtype not in ("float16", "float32"):
        raise ValueError(f'dtype is {dtype!r}: wanted "float16" or "float32"')
    batch_size = backbone.batch_size if batch_size is None else batch_size
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}: wanted at least 1")
    refuse_uneven_captions(caption_splits)
    settings = Settings(
        dataset=next(iter(caption_splits.values())).dataset,
        backbone=backbone.name,
        backbone_sha256=backbone.fingerprint(),
        kind=backbone.kind,
        picture_size=backbone.picture_size,
        dtype=dtype,
        elements=backbone.elements,
        feature_dim=backbone.feature_dim,
        captions_a_picture=CAPTIONS_A_PICTURE,
        pictures={name: len(split.files) for name, split in caption_splits.items()},
        picture_ids_sha256={name: lines_sha256(split.picture_ids) for name, split in caption_splits.items()},
        captions_sha256={name: split.fingerprint() for name, split in caption_splits.items()},
        boxes=backbone.kind == "region",
    )
    crew = join_crew()
    extraction = Extraction(Path(folder).expanduser(), settings, caption_splits)
    with contextlib.ExitStack() as stack:
        missing = from_main_process(lambda: extraction.open(stack))
        if missing is not None:
            ahead = ThreadPoolExecutor(workers or min(os.cpu_count() or 1, 16))
            stack.callback(ahead.shutdown, cancel_futures=True)
            maker = _Maker(extraction, backbone, batch_size, device or crew.device, ahead, crew)
            for name, rows in missing.items():
                maker.make_rows(name, rows)
            if crew.is_first:
                extraction.close()
            crew.wait()
    return extraction.folder


def has_checksums(folder: Path) -> bool:
    """Whether a folder holds a checksum for each row, as `extract` writes them."""
    return any(folder.glob("*_sums.npy"))


def find_damage(folder: Path) -> dict[str, str]:
    """Check every row of a finished extraction against its checksum.

    Args:
        folder: written by `extract`, with checksums.

    Returns:
        For each split that is damaged, by its name, a sentence.

    Raises:
        FileNotFoundError: its `meta.json` is missing.
        ValueError: its `meta.json` is damaged, or something other than a file is where one should be.
    """
    settings = _read_settings(folder / META)
    problems = {name: _problem_with(settings.rows(folder, name)) for name in settings.pictures}
    return {
        name: f"{problem}: run the same extraction again" for name, problem in problems.items() if problem
    }


def _problem_with(rows: FeatureRows) -> str:
    """Say what is wrong with the rows of a finished split; "" if nothing."""
    if not rows.finished.exists():
        return f"{rows.finished} is missing"
    if missing := rows.missing_checksums():
        return missing
    if not rows.have_their_sizes():
        return f"{rows.finished} is cut off, or too long"
    verdict = rows.inspect()
    where = f" ({counted(verdict.damaged, 'row')})" if verdict.damaged else ""
    return "" if verdict.whole else f"{rows.finished}{where} is damaged"


@dataclass(frozen=True)
class Extraction:
    """The features to be made, and the folder that they go into."""

    folder: Path
    settings: Settings
    caption_splits: Mapping[str, CaptionSplit]
    compares_files: bool = True
    """Whether each row is made from the file that its split names, and again when that file changes."""

    def open(self, stack: contextlib.ExitStack) -> dict[str, np.ndarray] | None:
        """Begin, or continue, and keep every other program out of the folder until the stack is closed.

        Args:
            stack: what is to be undone at the end is put there.

        Returns:
            For each split that is not whole the rows that must be made, (n,) bool; None: nothing is to be
            done, not even by `close`.

        Raises:
            ValueError: the folder holds other features.
            OSError: it cannot be created or written, or its disk lacks room.
        """
        # A whole folder needs no writing, and perhaps this process may not write there.
        if (self.folder / META).exists() and self.is_whole(self.inspect()):
            return None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(
                f"{self.folder} cannot be created ({error.strerror}): name another folder"
            ) from None
        stack.enter_context(files.locked(self.folder, "is extracting into"))
        verdicts = self.inspect()  # by now another process may have done it all
        if self.is_whole(verdicts):
            return None
        self.begin(verdicts)
        return {name: verdict.missing for name, verdict in verdicts.items() if not verdict.whole}

    def close(self) -> None:
        """Write the texts; then mark the folder as whole."""
        for name in self.caption_splits:
            for path, text in self.texts(name).items():
                self._write(path, text)
        self._write(self.folder / META, self.settings.as_json())
        (self.folder / UNFINISHED).unlink(missing_ok=True)

    def rows(self, name: str) -> FeatureRows:
        return self.settings.rows(self.folder, name)

    def texts(self, name: str) -> dict[Path, str]:
        """Return the text files that go beside the features: the names of the pictures, and the captions."""
        split = self.caption_splits[name]
        lines = {"ids": split.picture_ids, "caps": split.captions, CAPTION_IDS: split.caption_ids}
        return {
            self.folder / f"{name}_{kind}.txt": "".join(f"{line}\n" for line in some)
            for kind, some in lines.items()
            if some is not None
        }

    def inspect(self) -> dict[str, Verdict]:
        """Find out what is already in the folder.

        Raises:
            ValueError: what is there was made with other settings, or by another program.
        """
        self._refuse_other_features()
        refuse_all_but_files(*(path for name in self.caption_splits for path in self.texts(name)))
        return {
            name: self.rows(name).inspect(split.files if self.compares_files else None)
            for name, split in self.caption_splits.items()
        }

    def is_whole(self, verdicts: Mapping[str, Verdict]) -> bool:
        return (
            not (self.folder / UNFINISHED).exists()
            and self._before() == self.settings
            and all(verdict.whole for verdict in verdicts.values())
            and all(files.holds(path, text) for name in verdicts for path, text in self.texts(name).items())
        )

    def begin(self, verdicts: Mapping[str, Verdict]) -> None:
        """Mark the folder as unfinished, and reserve room for all that goes into it.

        Raises:
            OSError: there is not enough room.
        """
        before, now = self._before(), self.settings.captions_sha256
        was = now if before is None else before.captions_sha256
        if changed := [name for name in now if now[name] != was.get(name)]:
            which = " and ".join(changed)
            print(f"captions of {which} changed since the last time: written again", file=sys.stderr)
            for name in changed:  # the numbers of other captions, if these have none
                (self.folder / f"{name}_{CAPTION_IDS}.txt").unlink(missing_ok=True)
        for name, verdict in verdicts.items():
            self._tell_what_is_made_again(name, verdict)
        incomplete = [self.rows(name) for name, verdict in verdicts.items() if not verdict.whole]
        new = [rows for rows in incomplete if not rows.are_on_disk()]
        wanted = sum(rows.bytes_to_take() for rows in incomplete)
        try:
            if wanted > shutil.disk_usage(self.folder).free:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._write(self.folder / UNFINISHED, self.settings.as_json())
            (self.folder / META).unlink(missing_ok=True)
            for rows in incomplete:
                rows.reserve()
        except OSError as error:
            for rows in new:
                rows.discard()
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            free = shutil.disk_usage(self.folder).free
            raise OSError(
                f"{self.folder} needs {_size(wanted)} more, but its disk has {_size(free)} left "
                f"({error.strerror}): make room, or name a folder on another disk"
            ) from None

    def _write(self, path: Path, text: str) -> None:
        for left in self.folder.glob(f".{path.name}.*.part"):  # left by a process that was killed
            left.unlink()
        if not files.holds(path, text):
            with files.write_atomically(path, "w") as file:
                file.write(text)

    def _before(self) -> Settings | None:
        """Read the settings that the folder was begun with; None: it was not begun.

        Raises:
            ValueError: the file that says so is damaged.
        """
        for path in (self.folder / META, self.folder / UNFINISHED):
            if path.exists():
                return _read_settings(path)
        return None

    def _refuse_other_features(self) -> None:
        before = self._before()
        if before is None:
            for name in self.caption_splits:
                for path in (self.rows(name).finished, *self.texts(name)):
                    if path.exists():
                        raise ValueError(
                            f"{self.folder} holds features from elsewhere ({path.name}): name another folder"
                        )
            return
        was, now = (settings.without_captions().one_by_one() for settings in (before, self.settings))
        for name in was | now:
            if was.get(name) != now.get(name):
                raise ValueError(
                    f"{self.folder} holds features made with other settings: {name} was "
                    f"{short(was.get(name))} and is now {short(now.get(name))}; name another folder, or "
                    "empty this one"
                )

    def _tell_what_is_made_again(self, name: str, verdict: Verdict) -> None:
        pictures, rows = self.caption_splits[name].files, self.rows(name)
        if rows.are_on_disk() and (missing := rows.missing_checksums()):
            print(f"{name}: {missing}: all rows made again", file=sys.stderr)
            return
        if verdict.changed:
            which = counted([pictures[row].name for row in verdict.changed], "picture")
            print(f"{name}: {which} changed since the last time: features made again", file=sys.stderr)
        if verdict.damaged:
            which = counted(verdict.damaged, "row")
            print(f"{name}: {which} damaged or cut off: made again", file=sys.stderr)


class _Maker:
    """Makes the rows of one process with a network."""

    def __init__(
        self,
        extraction: Extraction,
        backbone: Backbone,
        batch_size: int,
        device: torch.device | str | None,
        ahead: ThreadPoolExecutor,
        crew: Crew,
    ) -> None:
        self.extraction, self.batch_size, self.ahead, self.crew = extraction, batch_size, ahead, crew
        found = device or torch.accelerator.current_accelerator(check_available=True) or "cpu"
        self.device = torch.device(found)
        self.backbone = backbone.to(self.device).to(memory_format=torch.channels_last).eval()

    def make_rows(self, name: str, missing: np.ndarray) -> None:
        """Make this process's share of the missing rows of a split; the first process then finishes it.

        What is done is kept, even after an error.
        """
        rows, pictures = self.extraction.rows(name), self.extraction.caption_splits[name].files
        # Whole batches, always the same ones: how many pictures go in at once can change a last digit.
        size = self.batch_size
        starts = [start for start in range(0, len(pictures), size) if missing[start : start + size].any()]
        starts = starts[self.crew.index :: self.crew.count]
        batches = [pictures[start : start + size] for start in starts]
        looked_at = look_ahead(batches, self.backbone.picture_size, self.ahead, self.backbone.longest)
        share = sum(map(len, batches))
        done = len(pictures) - share if self.crew.count == 1 else 0
        hidden = files.in_batch() or not self.crew.is_first
        with files.progress(
            desc=name, total=done + share, initial=done, unit="picture", disable=hidden
        ) as bar:
            for start, paths, (pixels, sizes, digests) in zip(starts, batches, looked_at, strict=True):
                with torch.inference_mode():
                    batch = pixels.to(self.device).contiguous(memory_format=torch.channels_last)
                    seen, boxes = self.backbone.look(batch, sizes)  # (B, N, F), (B, N, 4)
                features = in_precision(seen.float().cpu().numpy(), self.extraction.settings.dtype)
                bad = first_not_finite(features)
                if bad is not None:
                    raise ValueError(
                        f"features of {paths[bad]} by {self.backbone.name} are not finite in "
                        f'{features.dtype}: set dtype="float32", or use other weights'
                    )
                rows.write(start, features, digests, None if boxes is None else boxes.float().cpu().numpy())
                bar.update(len(paths))
        self.crew.wait()
        if self.crew.is_first:
            if (
                self.crew.count > 1 and rows.inspect().missing.any()
            ):  # a network disk may lose what others write
                raise OSError(f"{rows.finished} lacks rows that were written: run the same extraction again")
            rows.finish()


def in_precision(features: np.ndarray, dtype: str) -> np.ndarray:
    """Return features in another type; numbers too large for it become infinite, without a warning."""
    with np.errstate(over="ignore"):
        return features.astype(dtype)


def refuse_uneven_captions(caption_splits: Mapping[str, CaptionSplit]) -> None:
    """Refuse other than five captions a picture: only a caption's line number says which picture it has."""
    if not caption_splits:
        raise ValueError("caption_splits is empty: wanted the splits of karpathy.load_karpathy")
    for name, split in caption_splits.items():
        in_fives = np.repeat(np.arange(len(split.files)), CAPTIONS_A_PICTURE)
        if not np.array_equal(split.owner, in_fives):
            counts = np.bincount(split.owner, minlength=len(split.files))
            odd = int(np.argmax(counts != CAPTIONS_A_PICTURE))
            raise ValueError(
                f"split {name!r}: {split.files[odd]} has {counts[odd]} captions, but a folder of features "
                f"needs {CAPTIONS_A_PICTURE} in a row for each picture: leave it out, or give it that many"
            )


def _read_settings(path: Path) -> Settings:
    try:
        settings: Settings = files.read_json(path, Settings)
    except ValueError as error:
        raise ValueError(f"{error}; or empty the folder, and extract everything again") from None
    return settings


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def first_not_finite(features: np.ndarray) -> int | None:
    """Return the first row of (n, ...) that holds NaN or infinity."""
    bad = ~np.isfinite(features).all(tuple(range(1, features.ndim)))
    return int(bad.argmax()) if bad.any() else None
