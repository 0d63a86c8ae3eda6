"""From photographs to a folder of features, hours of work on a large dataset: it can be interrupted.

Rows go into a hidden file as they are made; it takes its real name when its split is complete, and
`meta.json`, which says how the features were made, is written last. A folder with a `meta.json` is whole.
"""

import collections
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vsecore.data import files
from vsecore.data.backbones import Backbone
from vsecore.data.karpathy import CAPTIONS_A_PICTURE, CaptionSplit
from vsecore.data.picture_files import open_picture

META, UNFINISHED = "meta.json", "extraction.json"


def extract(
    caption_splits: Mapping[str, CaptionSplit],
    backbone: Backbone,
    folder: str | Path,
    *,
    batch_size: int = 32,
    device: torch.device | str | None = None,
    dtype: str = "float16",
    workers: int | None = None,
) -> Path:
    """Write a folder of features from photographs. Interrupted, it goes on where it stopped.

    Each picture is seen whole, squashed to a square: what stands at its edges may be what a caption is about.
    Pictures are decoded in threads while the network looks at the ones before. Where another process extracts
    into the same folder, this one says so and waits for it (but not on Windows).

    Args:
        caption_splits: from `karpathy.load_karpathy`.
        backbone: from `load_backbone`; it is moved to the device.
        folder: where to write; made if it is missing.
        batch_size: pictures at a time. Small ones (16 to 32) are fastest on a CPU, whose caches they fit.
        device: where the network runs; None: a GPU if there is one.
        dtype: "float16" or "float32", on disk. Half precision is as good for training, in half the room.
        workers: threads that decode; None: one for each core, at most 16.

    Returns:
        The folder.

    Raises:
        ValueError: a picture cannot be read, features are not finite, or the folder holds other features.
            What was done until then is kept: the same call goes on from there.
        OSError: the disk has not enough room.
    """
    if dtype not in ("float16", "float32"):
        raise ValueError(f'dtype is {dtype!r}: wanted "float16" or "float32"')
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}: wanted at least 1")
    _refuse_uneven_captions(caption_splits)
    settings = {
        "dataset": next(iter(caption_splits.values())).dataset,
        "backbone": backbone.name,
        "backbone_sha256": backbone.fingerprint(),
        "kind": backbone.kind,
        "picture_size": backbone.picture_size,
        "dtype": dtype,
        "elements": backbone.elements,
        "feature_dim": backbone.feature_dim,
        "captions_a_picture": CAPTIONS_A_PICTURE,
        "pictures": {name: len(split.files) for name, split in caption_splits.items()},
        "captions_sha256": {name: split.fingerprint() for name, split in caption_splits.items()},
    }
    folder = Path(folder).expanduser()
    # Complete: nothing is to be written, and perhaps this process may not write there.
    if (folder / META).exists() and _ExtractionState.begin(folder, settings).is_whole():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with files.locked(folder, "extracts into"):
        state = _ExtractionState.begin(folder, settings)
        if not ((folder / META).exists() and state.is_whole()):  # else the other process has done it all
            state.refuse_a_full_disk()
            _extract_splits(state, caption_splits, backbone, batch_size, device, workers)
            state.finish()
    return folder


def _extract_splits(
    state: "_ExtractionState",
    caption_splits: Mapping[str, CaptionSplit],
    backbone: Backbone,
    batch_size: int,
    device: torch.device | str | None,
    workers: int | None,
) -> None:
    """Complete all splits, one after the other."""
    device = torch.device(device or torch.accelerator.current_accelerator(check_available=True) or "cpu")
    backbone = backbone.to(device).to(memory_format=torch.channels_last).eval()
    pool = ThreadPoolExecutor(workers or min(os.cpu_count() or 1, 16))
    try:
        for name, split in caption_splits.items():
            if state.is_complete(name):
                continue
            _extract_rows(state, name, split, backbone, batch_size, device, pool)
            with files.write_atomically(state.folder / f"{name}_caps.txt", "w") as file:
                file.writelines(f"{caption}\n" for caption in split.captions)
            with files.write_atomically(state.folder / f"{name}_ids.txt", "w") as file:
                file.writelines(f"{identity}\n" for identity in split.picture_ids)
            state.finish_split(name)
    finally:
        pool.shutdown(cancel_futures=True)


def _extract_rows(
    state: "_ExtractionState",
    name: str,
    split: CaptionSplit,
    backbone: Backbone,
    batch_size: int,
    device: torch.device,
    pool: ThreadPoolExecutor,
) -> None:
    """Make the rows of a split that are not there yet. What is there stays, also after an error."""
    features = state.open_partial_file(name)  # (n, N, F), on disk
    start = state.done[name]
    pictures_left = _decode_ahead(split.files[start:], batch_size, backbone.picture_size, pool)
    try:
        with files.progress(desc=name, total=len(split.files), initial=start, unit="picture") as bar:
            for pictures in pictures_left:
                stop = start + len(pictures)
                with torch.inference_mode():
                    batch = pictures.to(device).contiguous(memory_format=torch.channels_last)
                    seen = backbone(batch).float().cpu().numpy()  # (B, N, F)
                with np.errstate(over="ignore"):  # numbers too large for half precision are told below
                    features[start:stop] = seen
                bad = first_not_finite(features[start:stop])
                if bad is not None:
                    raise ValueError(
                        f"features of {split.files[start + bad]} by {backbone.name} are not finite in "
                        f'{features.dtype}: set dtype="float32", or use other weights'
                    )
                state.done[name] = start = stop
                bar.update(len(pictures))
                if state.should_save():
                    state.save(features)
    finally:
        state.save(features)


@dataclass
class _ExtractionState:
    """The state of an extraction, kept in its folder: how many rows of each split are done."""

    folder: Path
    settings: dict[str, Any]
    done: dict[str, int]
    kept: int = 0
    """Rows done when the state was last written."""

    @classmethod
    def begin(cls, folder: Path, settings: dict[str, Any]) -> "_ExtractionState":
        """A new extraction, or the one that the folder holds, if it was begun with these settings."""
        finished, unfinished = folder / META, folder / UNFINISHED
        if not finished.exists() and not unfinished.exists():
            foreign = [path.name for path in folder.glob("*_ims.npy")]
            if foreign:
                raise ValueError(
                    f"{folder} holds features from elsewhere ({foreign[0]}): name another folder"
                )
            return cls(folder, settings, {})
        if finished.exists():
            state = {"settings": files.read_json(finished), "done": {}}
        else:
            state = files.read_json(unfinished)
        before = state["settings"]
        for name, value in settings.items():
            if before.get(name) != value:
                raise ValueError(
                    f"{folder} holds features made otherwise: {name} was {before.get(name)!r} and is "
                    f"{value!r} now; name another folder, or empty this one"
                )
        return cls(folder, settings, state["done"])

    def finished_file(self, name: str) -> Path:
        return self.folder / f"{name}_ims.npy"

    def partial_file(self, name: str) -> Path:
        return self.folder / f".{name}_ims.npy.part"

    def is_complete(self, name: str) -> bool:
        return self.finished_file(name).exists()

    def is_whole(self) -> bool:
        return all(map(self.is_complete, self.settings["pictures"]))

    def refuse_a_full_disk(self) -> None:
        """A process that maps more than the disk holds dies without a word: better to look before."""
        left = sum(
            count - self.done.get(name, 0)
            for name, count in self.settings["pictures"].items()
            if not self.is_complete(name)
        )
        row = (
            self.settings["elements"]
            * self.settings["feature_dim"]
            * np.dtype(self.settings["dtype"]).itemsize
        )
        free = shutil.disk_usage(self.folder).free
        if left * row > free:
            raise OSError(
                f"{self.folder} needs {left * row / 1e9:.1f} GB, its disk has {free / 1e9:.1f} GB left: "
                "make room, or name a folder on another disk"
            )

    def open_partial_file(self, name: str) -> np.memmap:
        """The hidden file of a split, made if it is not there."""
        shape = (self.settings["pictures"][name], self.settings["elements"], self.settings["feature_dim"])
        if not self.partial_file(name).exists():
            self.done[name] = 0
        self.done.setdefault(name, 0)
        mode: Any = "r+" if self.done[name] else "w+"
        return np.lib.format.open_memmap(
            self.partial_file(name), mode=mode, dtype=np.dtype(self.settings["dtype"]), shape=shape
        )

    def should_save(self) -> bool:
        """Every thousand pictures: a process that is killed loses no more than these."""
        return sum(self.done.values()) - self.kept >= 1000

    def save(self, features: np.memmap) -> None:
        features.flush()  # first the rows, then the word that they are there
        with files.write_atomically(self.folder / UNFINISHED, "w") as file:
            json.dump({"settings": self.settings, "done": self.done}, file, indent=1)
        self.kept = sum(self.done.values())

    def finish_split(self, name: str) -> None:
        self.partial_file(name).replace(self.finished_file(name))

    def finish(self) -> None:
        with files.write_atomically(self.folder / META, "w") as file:
            json.dump(self.settings, file, indent=1)
        (self.folder / UNFINISHED).unlink(missing_ok=True)


def _decode_ahead(
    paths: list[Path], batch_size: int, size: int, pool: ThreadPoolExecutor
) -> Iterator[Tensor]:
    """Batches of pictures (B, 3, size, size) uint8: two batches are decoded ahead, and no more."""
    waiting: collections.deque[list[Future[np.ndarray]]] = collections.deque()
    for first in range(0, len(paths), batch_size):
        waiting.append(
            [pool.submit(_decode_picture, path, size) for path in paths[first : first + batch_size]]
        )
        if len(waiting) > 2:
            yield _stack(waiting.popleft())
    while waiting:
        yield _stack(waiting.popleft())


def _stack(futures: list[Future[np.ndarray]]) -> Tensor:
    pictures = np.stack([future.result() for future in futures])  # (B, size, size, 3)
    return torch.from_numpy(pictures).permute(0, 3, 1, 2)  # (B, 3, size, size)


def _decode_picture(path: Path, size: int) -> np.ndarray:
    """One picture, squashed to a square: (size, size, 3) uint8."""
    # Decoded at no less than twice the size: faster, and still twice as fine as wanted.
    picture = open_picture(path, at_least=2 * size)
    return np.asarray(picture.resize((size, size), Image.Resampling.BICUBIC))


def _refuse_uneven_captions(caption_splits: Mapping[str, CaptionSplit]) -> None:
    """The layout of the folder says whose a caption is by its line alone, five to a picture."""
    if not caption_splits:
        raise ValueError("caption_splits is empty: wanted the splits of karpathy.load_karpathy")
    for name, split in caption_splits.items():
        in_fives = np.repeat(np.arange(len(split.files)), CAPTIONS_A_PICTURE)
        if not np.array_equal(split.owner, in_fives):
            counts = np.bincount(split.owner, minlength=len(split.files))
            odd = int(np.argmax(counts != CAPTIONS_A_PICTURE))
            raise ValueError(
                f"split {name!r}: {split.files[odd]} has {counts[odd]} captions, a folder of features wants "
                f"{CAPTIONS_A_PICTURE} in a row for each picture: leave the picture out, or give it so many"
            )


def first_not_finite(features: np.ndarray) -> int | None:
    """The first row of (n, ...) that holds NaN or infinity."""
    bad = ~np.isfinite(features).all(tuple(range(1, features.ndim)))
    return int(bad.argmax()) if bad.any() else None
