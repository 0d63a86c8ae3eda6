"""From photographs to a folder of features, in hours: it may be interrupted, and shared among processes."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vsecore.data.backbones import Backbone
from vsecore.data.feature_folder import DType, Meta, read_meta
from vsecore.data.files import expanded
from vsecore.data.folder_writer import FolderWriter, as_stored
from vsecore.data.karpathy import CaptionSplit, find_unreadable
from vsecore.data.picture_files import decoded_ahead
from vsecore.processes import from_main_process, join_processes
from vsecore.typed import counted

_FRAME = 32
"""A frame's sides are multiples of this, so that every layer of a detector divides them evenly."""


def extract(
    caption_splits: Mapping[str, CaptionSplit],
    backbone: Backbone,
    folder: str | Path,
    *,
    batch_size: int | None = None,
    device: torch.device | str | None = None,
    dtype: DType = "float16",
    skip_unreadable: bool = False,
) -> Path:
    """Write a folder of features from photographs. If interrupted, the same call continues where it stopped.

    Each picture is used whole, squashed to a square: what is at its edges may be what a caption is about. For
    a detector it keeps its proportions, and its boxes are written too: left, top, right and bottom in pixels
    of the upright picture, best first. Every picture is opened before the first is extracted.

    If `accelerate launch` or `torchrun` has started several processes, which must see the same disk, each
    makes its share, and the folder ends byte for byte as one would have written it. If one is killed, the
    same command continues with any number of them.

    Args:
        caption_splits: from `karpathy.load_karpathy`.
        backbone: from `load_backbone`; it is moved to the device.
        folder: where to write; made if it is missing.
        batch_size: pictures at a time; None: the backbone's own, 32, or 4 for a detector. Small ones (16 to
            32) are fastest on a CPU, whose caches they fit.
        device: where the network runs; None: a GPU if there is one, each process its own.
        dtype: "float16" or "float32", on disk. Half precision is as good for training, in half the room.
        skip_unreadable: leave out pictures that cannot be read; stderr and `meta.json` name them.
    """
    size = backbone.batch_size if batch_size is None else batch_size
    if size < 1:
        raise ValueError(f"batch_size is {size}: wanted at least 1")
    group, folder, left_out = join_processes(), expanded(folder), {}
    if skip_unreadable or from_main_process(lambda: read_meta(folder) is None):
        left_out = from_main_process(lambda: _find_unreadable(caption_splits, skip_unreadable))
    kept = {name: split.without({*left_out.get(name, ())}) for name, split in caption_splits.items()}
    meta = Meta.of(
        kept,
        dataset=next((split.dataset for split in kept.values()), None),
        backbone=backbone.name,
        backbone_sha256=backbone.fingerprint(),
        kind=backbone.kind,
        picture_size=backbone.picture_size,
        dtype=dtype,
        elements=backbone.elements,
        feature_dim=backbone.feature_dim,
        boxes=backbone.kind == "region",
        unreadable={name: ids for name, ids in left_out.items() if ids},
    )
    where = device or group.device

    def make(name: str, blocks: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
        backbone.to(where).to(memory_format=torch.channels_last).eval()
        batches = [[kept[name].files[row] for row in rows] for rows in blocks]
        for paths, decoded in zip(batches, decoded_ahead(backbone.decode, batches), strict=True):
            pixels, sizes = _framed(decoded)
            with torch.inference_mode():
                batch = pixels.to(where).contiguous(memory_format=torch.channels_last)
                seen, boxes = backbone.features_and_boxes(batch, sizes)  # (B, N, F), (B, N, 4)
            names = [f"{path} by {backbone.name}" for path in paths]
            arrays = [as_stored(seen.float().cpu().numpy(), dtype, names)]
            yield arrays if boxes is None else [*arrays, boxes.float().cpu().numpy()]

    return FolderWriter(folder, meta, kept).fill(make, size)


def _find_unreadable(caption_splits: Mapping[str, CaptionSplit], skip: bool) -> dict[str, list[str]]:
    """Return the ids of pictures that cannot be read; refuse them, or a split without others."""
    found = {}
    for name, split in caption_splits.items():
        broken = find_unreadable(split.files)
        found[name] = [split.picture_ids[row] for row, path in enumerate(split.files) if path in broken]
        lost = counted([path.name for path in broken], "picture")
        if broken and (not skip or len(broken) == len(split.files)):
            raise ValueError(
                f"{name}: {lost} cannot be read: {next(iter(broken.values()))}; or leave them out "
                "(--skip-unreadable)"
            )
        if broken:
            print(f"{name}: {lost} left out, with captions: cannot be read", file=sys.stderr)
    return found


def _framed(decoded: list[tuple[np.ndarray, tuple[int, int]]]) -> tuple[Tensor, Tensor]:
    sizes = np.array([picture.shape[:2] for picture, _ in decoded])  # (B, 2)
    height, width = sizes.max(0)
    if (sizes != sizes[0]).any():
        height, width = -(-height // _FRAME) * _FRAME, -(-width // _FRAME) * _FRAME
    frames = np.zeros((len(decoded), height, width, 3), np.uint8)
    for frame, (picture, _) in zip(frames, decoded, strict=True):
        frame[: picture.shape[0], : picture.shape[1]] = picture
    both = np.concatenate([sizes, np.array([file for _, file in decoded])], 1)
    return torch.from_numpy(frames).permute(0, 3, 1, 2), torch.from_numpy(both)
