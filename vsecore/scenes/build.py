"""The embedded world as data: drawn, kept on disk, and as features of its own networks (`load`)."""

import hashlib
import json
import multiprocessing
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from vsecore.data.feature_folder import MappedPictures
from vsecore.data.files import cache_folder, locked, progress, write_atomically, write_whole
from vsecore.data.splits import Dataset, FeatureKind, Split
from vsecore.scenes.annotators import ANNOTATORS
from vsecore.scenes.drawing import draw
from vsecore.scenes.facts import SIDE, Scene
from vsecore.scenes.generation import Knobs, Picture, Stream
from vsecore.scenes.networks import SceneCNN, SceneNetwork, load_network, weights_file
from vsecore.stopping import leave_to_parent
from vsecore.typed import from_json

SIZES = {"train": 4000, "dev": 500, "test": 1000}
"""The splits, and how many pictures each has when nothing else is asked for."""

NETWORK_OF: dict[FeatureKind, str] = {"grid": "scenes-cnn", "region": "scenes-cnn", "patch": "scenes-vit"}
"""The network that gives each kind of features."""

REGIONS = 6  #: Boxes of a picture: the whole of it, and at most five things

BLOCK = 50  #: Pictures that a process makes before it reports


def _world_version() -> str:
    """A hash of the world's laws: when its code or its drawing library changes, what is on disk is old."""
    digest, onlookers = hashlib.sha256(PIL.__version__.encode()), ("networks", "backbones", "pretraining")
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        if path.stem not in onlookers:  # which do not make the world
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


WORLD_VERSION = _world_version()  # once, so that it is of the code that runs


def pictures(split: str = "train", count: int | None = None, *, seed: int = 0, **knobs: Any) -> list[Picture]:
    """The facts and captions of a split, row by row as `load` has them; made if they are new.

    Without a count it has its own size, see `SIZES`; a split of your own needs one. Seed and knobs are those
    of `generate`. A wrong count or knob, or a name that no folder can have, raises a ValueError.
    """
    return _read(_built(split, count, seed, knobs))


def pixels(split: str = "train", count: int | None = None, *, seed: int = 0, **knobs: Any) -> np.ndarray:
    """The drawn pictures of a split, (n, 112, 112, 3) uint8, read from disk as they are asked for.

    The arguments and errors are those of `pictures`.
    """
    drawn: np.ndarray = np.load(_built(split, count, seed, knobs) / "pixels.npy", mmap_mode="r")
    return drawn


def load(
    train: int = 4000,
    dev: int = 500,
    test: int = 1000,
    seed: int = 0,
    features: FeatureKind = "grid",
    **knobs: Any,
) -> Dataset:
    """The embedded world, ready to train on.

    What is made once stays in the user's cache, whole or not at all. Nothing there is ever deleted, also when
    the world's laws have changed: delete the folder ``vsecore.data.files.cache_folder("scenes")`` when it has
    grown too large, and what is asked for again is made again.

    Args:
        train: pictures to learn from.
        dev: pictures that decide when a model is best.
        test: pictures to report on.
        seed: as for `generate`.
        features: "grid" gives 49 cells of width 144, "patch" 49 patches of width 128, "region" the whole
            picture and each of its things: up to 6 boxes of width 246 (see `SceneCNN.regions`).
        knobs: as for `generate`; they hold for all three splits.

    Returns:
        The three splits, half-precision features on disk, five captions a picture.

    Raises:
        ValueError: unknown features, a size below 1 or a wrong knob.
        FileNotFoundError: the weights of the network that gives these features are missing.
    """
    if features not in NETWORK_OF:
        raise ValueError(f"features is {features!r}: wanted one of {', '.join(NETWORK_OF)}")
    network = load_network(NETWORK_OF[features])  # missing weights are told before the long work
    folders = [
        _built(name, count, seed, knobs) for name, count in (("train", train), ("dev", dev), ("test", test))
    ]
    parts = [_split(folder, network, features) for folder in folders]
    return Dataset("scenes", parts[0], parts[1], parts[2], features)


def _split(folder: Path, network: SceneNetwork, features: FeatureKind) -> Split:
    """One part of `load`, from the folder in which it was built."""
    name, made = folder.name.split("-")[0], _read(folder)
    counts = np.array([len(boxes_of(picture.scene)) for picture in made])
    return Split(
        name,
        _features(folder, made, network, features),
        captions=[caption.text for picture in made for caption in picture.captions],
        owner=np.repeat(np.arange(len(made)), len(ANNOTATORS)),
        picture_ids=[f"{name}-{row}" for row in range(len(made))],
        picture_counts=counts if features == "region" else None,
    )


def _features(
    folder: Path, made: Sequence[Picture], network: SceneNetwork, features: FeatureKind
) -> MappedPictures:
    """The features of a built split, (n, N, F) float16 on disk; computed if they are missing or cut short."""
    digest = hashlib.sha256(weights_file(NETWORK_OF[features]).read_bytes())
    for name in ("networks.py", "build.py"):
        digest.update(Path(__file__).with_name(name).read_bytes())
    path = folder / f"{features}-{digest.hexdigest()[:16]}.npy"
    with suppress(OSError, ValueError):  # missing, or cut short
        return MappedPictures(path)
    drawn = np.load(folder / "pixels.npy", mmap_mode="r")
    starts = range(0, len(made), BLOCK)
    with write_atomically(path) as file, torch.inference_mode():
        for start in progress(starts, desc=f"{features} features", unit="block"):
            block = torch.from_numpy(np.array(drawn[start : start + BLOCK]))
            block = block.permute(0, 3, 1, 2)  # (B, 3, 112, 112)
            if isinstance(network, SceneCNN) and features == "region":
                boxes = [boxes_of(picture.scene) for picture in made[start : start + BLOCK]]
                rows = pad_sequence(network.regions(block, boxes), batch_first=True)
                values = F.pad(rows, (0, 0, 0, REGIONS - rows.shape[1]))  # (B, 6, 246)
            else:
                values = network(block)  # (B, N, F)
            if start == 0:
                shape = (len(made), *values.shape[1:])
                header = {"descr": "<f2", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
            file.write(values.numpy().astype("<f2").tobytes())
    return MappedPictures(path)


def boxes_of(scene: Scene) -> Tensor:
    """The boxes that region features stand for: the whole picture, then each thing, (1 + things, 4)."""
    return torch.tensor([(0, 0, SIDE, SIDE), *(thing.box for thing in scene.things)])


def _built(split: str, count: int | None, seed: int, knobs: dict[str, Any]) -> Path:
    """The folder of a split, with `pictures.jsonl` and `pixels.npy`; built unless it is there."""
    unknown = sorted(set(knobs) - set(Knobs.__dataclass_fields__))
    if unknown:
        known = ", ".join(Knobs.__dataclass_fields__)
        raise ValueError(f"the world has no knob {unknown[0]!r}: there are {known}")
    if count is None and split not in SIZES:
        raise ValueError(f"split {split!r} has no size of its own: give count")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", split):  # it becomes part of a folder's name
        raise ValueError(f'split is {split!r}: wanted a name of letters, digits, "_" and "-"')
    count = SIZES[split] if count is None else count
    if count < 1:
        raise ValueError(f"{split} is {count}: wanted 1 or more pictures")
    request = {"split": split, "seed": seed, "version": WORLD_VERSION, **asdict(Knobs(**knobs))}
    key = hashlib.sha256(json.dumps([request, count]).encode()).hexdigest()[:16]
    folder = cache_folder("scenes", f"{split}-{count}-{key}")
    facts = folder / "pictures.jsonl"  # written last
    if not facts.is_file():
        with locked(folder, "is drawing into"):
            if not facts.is_file():  # another process may just have built it
                _build(folder, request, count)
    return folder


def _build(folder: Path, request: dict[str, Any], count: int) -> None:
    """Make all pictures of a split, on all cores when there are many."""
    np.lib.format.open_memmap(folder / "pixels.npy", "w+", np.uint8, (count, SIDE, SIDE, 3)).flush()
    blocks = [(request, start, min(start + BLOCK, count), folder) for start in range(0, count, BLOCK)]
    lines: dict[int, str] = {}
    with progress(total=count, desc=f"drawing {request['split']}", unit="picture") as bar:
        for start, block in _made(blocks):
            lines[start] = block
            bar.update(min(BLOCK, count - start))
    write_whole(folder / "pictures.jsonl", "".join(lines[start] for start in sorted(lines)))


Block = tuple[dict[str, Any], int, int, Path]


def _made(blocks: list[Block]) -> Iterator[tuple[int, str]]:
    """Make blocks of pictures; yields the first number and the facts of each as it is done."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Each process imports PyTorch and draws every kind of thing anew: for 1,500 pictures that takes longer.
    if cores == 1 or len(blocks) < 30:
        yield from map(_make_block, blocks)
        return
    # Spawned, not forked: a notebook has threads, and a fork may stop on a lock that one of them held.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(cores, 8), spawn, initializer=leave_to_parent) as pool:
        try:
            for done in as_completed([pool.submit(_make_block, block) for block in blocks]):
                yield done.result()
        except BrokenProcessPool as error:
            raise RuntimeError(
                "the processes that draw pictures ended early: a script that loads scenes must do its work "
                'under `if __name__ == "__main__":`'
            ) from error


def _make_block(block: Block) -> tuple[int, str]:
    """Draw some pictures into their split's file; gives the first number, and their facts as JSON lines."""
    request, start, stop, folder = block
    if request["version"] != WORLD_VERSION:  # this process has newer code than the one that asks
        raise RuntimeError("the code of the scenes changed while this program ran: start it anew")
    knobs = {name: request[name] for name in Knobs.__dataclass_fields__}
    stream = Stream(request["seed"], request["split"], Knobs(**knobs))
    drawn = np.load(folder / "pixels.npy", mmap_mode="r+", allow_pickle=False)
    lines = []
    for index in range(start, stop):
        picture = stream.picture(index)
        drawn[index] = draw(picture.scene)
        captions = [{**vars(caption), "form": caption.form.to_dict()} for caption in picture.captions]
        lines.append(json.dumps({"scene": asdict(picture.scene), "captions": captions}) + "\n")
    drawn.flush()
    return start, "".join(lines)


def _read(folder: Path) -> list[Picture]:
    """The pictures of a built split."""
    path = folder / "pictures.jsonl"
    return [from_json(str(path), line, Picture) for line in path.read_bytes().splitlines()]
