"""From photographs to a folder of features. That takes hours on a large dataset, so it can be interrupted.

Rows go into a hidden file as they are made (see `feature_rows`); it takes its real name when its split is
complete, and `meta.json`, which says how the features were made, is written last. A folder with a `meta.json`
is whole. Several processes can share the work (see `processes`): each makes its own rows, in the same files.
"""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from vsecore.data import files
from vsecore.data.annotations import CAPTIONS_A_PICTURE
from vsecore.data.backbones import Backbone
from vsecore.data.decoding import look_ahead
from vsecore.data.feature_rows import BLOCK, FeatureRows, as_stored, refuse_all_but_files
from vsecore.data.karpathy import CaptionSplit, lines_sha256
from vsecore.processes import ProcessGroup, from_main_process, join_processes
from vsecore.typed import counted, short

META, UNFINISHED, CHECKSUMS = "meta.json", "extraction.json", "checksums.json"
CAPTION_IDS = "caption_ids"
"""Ends the name of the file with COCO's numbers of a split's captions, which CxC and ECCV Caption ask for."""

Count = Annotated[int, Field(ge=1)]
DType = Literal["float16", "float32"]


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

    def rows(self, folder: Path, name: str) -> FeatureRows:
        """Return the rows of one split."""
        shape = (self.pictures[name], self.elements, self.feature_dim)
        return FeatureRows(folder, name, shape, self.dtype, self.boxes)


def extract(
    caption_splits: Mapping[str, CaptionSplit],
    backbone: Backbone,
    folder: str | Path,
    *,
    batch_size: int | None = None,
    device: torch.device | str | None = None,
    dtype: DType = "float16",
    workers: int | None = None,
) -> Path:
    """Write a folder of features from photographs. If interrupted, the same call continues where it stopped.

    Each picture is used whole, squashed to a square: what is at its edges may be what a caption is about. For
    a detector it keeps its proportions, and its boxes are written too: `{split}_boxes.npy`, (n, N, 4)
    float32, left, top, right and bottom in pixels of the upright picture, best first.

    Pictures are decoded in threads while the network works on the ones before them. If another process is
    extracting into the same folder, this one says so and waits for it (Windows has no lock for that).

    Rows that are already in the folder stay. Those of files that are damaged or cut off, and those of
    pictures whose files now have another size, are made again, and stderr says which. If only captions have
    changed, they are written again, and no picture is decoded.

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
    batch_size = backbone.batch_size if batch_size is None else batch_size
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}: wanted at least 1")
    settings = Settings(
        **about_splits(caption_splits, dtype),
        backbone=backbone.name,
        backbone_sha256=backbone.fingerprint(),
        kind=backbone.kind,
        picture_size=backbone.picture_size,
        elements=backbone.elements,
        feature_dim=backbone.feature_dim,
        boxes=backbone.kind == "region",
    )
    sizes = {name: sizes_of(split.files) for name, split in caption_splits.items()}
    group = join_processes()
    extraction = Extraction(Path(folder).expanduser(), settings, caption_splits, sizes)
    with contextlib.ExitStack() as stack:
        missing = from_main_process(lambda: extraction.open(stack))
        if missing is not None:
            found = device or group.device or torch.accelerator.current_accelerator(check_available=True)
            backbone = backbone.to(found or "cpu").to(memory_format=torch.channels_last).eval()
            pool = ThreadPoolExecutor(workers or min(os.cpu_count() or 1, 16))
            stack.callback(pool.shutdown, cancel_futures=True)
            for name, rows in missing.items():
                _make_rows(extraction, name, rows, backbone, batch_size, pool, group)
            if group.is_first:
                extraction.close()
            group.wait()
    return extraction.folder


def _make_rows(
    extraction: "Extraction",
    name: str,
    missing: np.ndarray,
    backbone: Backbone,
    batch_size: int,
    pool: ThreadPoolExecutor,
    group: ProcessGroup,
) -> None:
    """Make this process's share of the missing rows of a split; the first process then finishes it."""
    rows, pictures = extraction.rows(name), extraction.caption_splits[name].files
    device = next(iter(backbone.state_dict().values()), torch.empty(0)).device
    # Whole batches, always the same ones: how many pictures go in at once can change a last digit.
    starts = [s for s in range(0, len(pictures), batch_size) if missing[s : s + batch_size].any()]
    starts = starts[group.index :: group.count]
    batches = [pictures[start : start + batch_size] for start in starts]
    decoded = look_ahead(batches, backbone.picture_size, pool, backbone.longest)
    share = sum(map(len, batches))
    done = len(pictures) - share if group.count == 1 else 0
    hidden = files.in_batch() or not group.is_first
    with files.progress(desc=name, total=done + share, initial=done, unit="picture", disable=hidden) as bar:
        for start, paths, (pixels, sizes) in zip(starts, batches, decoded, strict=True):
            with torch.inference_mode():
                batch = pixels.to(device).contiguous(memory_format=torch.channels_last)
                seen, boxes = backbone.look(batch, sizes)  # (B, N, F), (B, N, 4)
            names = [f"{path} by {backbone.name}" for path in paths]
            arrays = [as_stored(seen.float().cpu().numpy(), extraction.settings.dtype, names)]
            if boxes is not None:
                arrays.append(boxes.float().cpu().numpy())
            rows.write(start, arrays, extraction.sizes[name][start : start + batch_size])
            rows.mark()
            bar.update(len(paths))
    group.wait()
    if group.is_first:
        rows.finish()


def about_splits(caption_splits: Mapping[str, CaptionSplit], dtype: DType) -> dict[str, Any]:
    """Return the settings that come from the captions.

    Raises:
        ValueError: a picture has other than five captions (only a caption's line number says which picture
            it has), or the type is unknown.
    """
    if dtype not in ("float16", "float32"):
        raise ValueError(f'dtype is {dtype!r}: wanted "float16" or "float32"')
    if not caption_splits:
        raise ValueError("caption_splits is empty: wanted the splits of karpathy.load_karpathy")
    for name, split in caption_splits.items():
        if not np.array_equal(split.owner, np.repeat(np.arange(len(split.files)), CAPTIONS_A_PICTURE)):
            counts = np.bincount(split.owner, minlength=len(split.files))
            odd = int(np.argmax(counts != CAPTIONS_A_PICTURE))
            raise ValueError(
                f"split {name!r}: {split.files[odd]} has {counts[odd]} captions, but a folder of features "
                f"needs {CAPTIONS_A_PICTURE} in a row for each picture: leave it out, or give it that many"
            )
    return {
        "dataset": next(iter(caption_splits.values())).dataset,
        "dtype": dtype,
        "captions_a_picture": CAPTIONS_A_PICTURE,
        "pictures": {name: len(split.files) for name, split in caption_splits.items()},
        "picture_ids_sha256": {n: lines_sha256(split.picture_ids) for n, split in caption_splits.items()},
        "captions_sha256": {name: split.fingerprint() for name, split in caption_splits.items()},
    }


def sizes_of(paths: Sequence[Path]) -> np.ndarray:
    """Return the sizes of files in bytes, (n,) int64, each at least 1."""
    return np.array([max(1, path.stat().st_size) for path in paths], np.int64)


def read_checksums(folder: Path) -> dict[str, list[str]]:
    """Return the digests of the files of features; {}: the folder has none, as those of other programs."""
    path = folder / CHECKSUMS
    found: dict[str, list[str]] = files.read_json(path, dict[str, list[str]]) if path.exists() else {}
    return found


def find_damage(folder: Path) -> dict[str, str]:
    """Compare the rows of a finished extraction with their digests.

    Args:
        folder: written by `extract`.

    Returns:
        For each split that is damaged, by its name, a sentence.

    Raises:
        ValueError: its `meta.json` or `checksums.json` is damaged.
    """
    settings, digests = files.read_json(folder / META, Settings), read_checksums(folder)
    problems: dict[str, str] = {}
    for name in settings.pictures:
        rows = settings.rows(folder, name)
        blocks = list(rows.damaged(digests)) if rows.are_whole else [(rows.finished, 0)]
        if blocks:
            path, start = blocks[0]
            place = f", rows {start} to {start + BLOCK - 1}," if rows.are_whole else ""
            problems[name] = f"{path}{place} is damaged or cut off: run the same extraction again"
    return problems


@dataclass(frozen=True)
class Extraction:
    """The features to be made, and the folder that they go into."""

    folder: Path
    settings: Settings
    caption_splits: Mapping[str, CaptionSplit]
    sizes: Mapping[str, np.ndarray]
    """For each split (n,) the bytes of the file that each row is made from, each at least 1."""

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
        if (self.folder / META).exists() and self._is_whole(self._missing()):
            return None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(
                f"{self.folder} cannot be created ({error.strerror}): name another folder"
            ) from None
        stack.enter_context(files.locked(self.folder, "is extracting into"))
        missing = self._missing()  # by now another process may have done it all
        if self._is_whole(missing):
            return None
        return self._begin(missing)

    def close(self) -> None:
        """Write the texts and the digests; then mark the folder as whole."""
        for name in self.caption_splits:
            for path, text in self._texts(name).items():
                self._write(path, text)
        digests = {
            file: known for name in self.caption_splits for file, known in self.rows(name).digests().items()
        }
        self._write(self.folder / CHECKSUMS, json.dumps(digests, indent=1))
        self._write(self.folder / META, self.settings.as_json())
        (self.folder / UNFINISHED).unlink(missing_ok=True)

    def rows(self, name: str) -> FeatureRows:
        """Return the rows of one split."""
        return self.settings.rows(self.folder, name)

    def _texts(self, name: str) -> dict[Path, str]:
        """Return the text files that go beside the features: the names of the pictures, and the captions."""
        split = self.caption_splits[name]
        lines = {"ids": split.picture_ids, "caps": split.captions, CAPTION_IDS: split.caption_ids}
        return {
            self.folder / f"{name}_{kind}.txt": "".join(f"{line}\n" for line in some)
            for kind, some in lines.items()
            if some is not None
        }

    def _missing(self) -> dict[str, np.ndarray]:
        """Return which rows of each split must be made, (n,) bool.

        Raises:
            ValueError: what is there was made with other settings, or by another program.
        """
        before = self._before()
        if before is None:
            for name in self.caption_splits:
                for path in (self.rows(name).finished, *self._texts(name)):
                    if path.exists():
                        raise ValueError(
                            f"{self.folder} holds features from elsewhere ({path.name}): name another folder"
                        )
        else:
            for setting, now in asdict(self.settings).items():
                was = getattr(before, setting)
                if was != now and setting != "captions_sha256":
                    raise ValueError(
                        f"{self.folder} holds features made with other settings: {setting} was {short(was)} "
                        f"and is now {short(now)}; name another folder, or empty this one"
                    )
        digests = read_checksums(self.folder) if (self.folder / META).exists() else {}
        return {name: self.rows(name).missing(self.sizes[name], digests) for name in self.caption_splits}

    def _is_whole(self, missing: Mapping[str, np.ndarray]) -> bool:
        return (
            not (self.folder / UNFINISHED).exists()
            and self._before() == self.settings
            and not any(rows.any() or not self.rows(name).are_whole for name, rows in missing.items())
            and all(files.holds(path, text) for name in missing for path, text in self._texts(name).items())
        )

    def _begin(self, missing: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Mark the folder as unfinished, and begin the splits that are not whole.

        Returns:
            For each of them, the rows that must be made, (n,) bool.

        Raises:
            ValueError: a link, or something other than a file, is where a file is to be written.
            OSError: there is not enough room.
        """
        refuse_all_but_files(*(path for name in missing for path in self._texts(name)))
        before = self._before()
        for name, digest in self.settings.captions_sha256.items():
            if before is not None and before.captions_sha256.get(name) != digest:
                print(f"captions of {name} changed since the last time: written again", file=sys.stderr)
                # The numbers of other captions, if these have none.
                (self.folder / f"{name}_{CAPTION_IDS}.txt").unlink(missing_ok=True)
        begun = {name: rows for name, rows in missing.items() if rows.any() or not self.rows(name).are_whole}
        wanted, free = 0, shutil.disk_usage(self.folder).free
        for name, rows in begun.items():
            refuse_all_but_files(*self.rows(name).paths)
            wanted += self.rows(name).bytes_missing(rows)
            if self.rows(name).finished.exists():
                pictures = [self.caption_splits[name].files[row].name for row in np.flatnonzero(rows)]
                reason = "damaged, or made from pictures that have changed"
                print(
                    f"{name}: features of {counted(pictures, 'picture')} {reason}: made again",
                    file=sys.stderr,
                )
        if wanted > free:
            raise OSError(
                f"{self.folder} needs {wanted / 1e6:,.1f} MB more, but its disk has {free / 1e6:,.1f} MB "
                "left: make room, or name a folder on another disk"
            )
        self._write(self.folder / UNFINISHED, self.settings.as_json())
        (self.folder / META).unlink(missing_ok=True)
        for name, rows in begun.items():
            self.rows(name).begin(rows)
        return begun

    def _write(self, path: Path, text: str) -> None:
        for left in self.folder.glob(f".{path.name}.*.part"):  # left by a process that was killed
            left.unlink()
        if not files.holds(path, text):
            with files.write_atomically(path, "w") as file:
                file.write(text)

    def _before(self) -> Settings | None:
        """Return the settings that the folder was begun with; None: it was not begun."""
        for path in (self.folder / META, self.folder / UNFINISHED):
            if path.exists():
                try:
                    settings: Settings = files.read_json(path, Settings)
                except ValueError as error:
                    raise ValueError(f"{error}; or empty the folder, and extract everything again") from None
                return settings
        return None
