"""What every notebook's first cell calls.

A notebook has one source and three tiers. `begin` checks its four parameters and turns them into a `Lesson`,
which picks each tier's sizes, opens the data, trains, and asserts what the text says of the results.
"""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar, cast

import numpy as np
import psutil
import torch
from pydantic import Field

from course.attention import Seen
from course.datasets import DatasetName, Sizes, has_regions, open_dataset, picture_files, region_boxes
from course.meanings import why_unread
from vsecore import scenes, threads
from vsecore.arguments import checked
from vsecore.data.files import cache_folder, locked
from vsecore.data.karpathy import find_annotations
from vsecore.data.picture_files import open_picture
from vsecore.data.splits import Dataset, FeatureKind, Split
from vsecore.paths import results
from vsecore.recipes import Recipe
from vsecore.scenes.build import SIZES, boxes_of
from vsecore.scenes.facts import SIDE
from vsecore.scenes.networks import NETWORKS, weights_file
from vsecore.training import RESULTS_VERSION, Run, fit

Tier = Literal["smoke", "lesson", "full"]
SMOKE_SIZES = {"train": 600, "dev": 100, "test": 200}
LESSON_RECORDS = results() / "lesson"
T = TypeVar("T")


@dataclass(frozen=True)
class Lesson:
    """One notebook's checked parameters. Made by `begin`, which says what they are."""

    tier: Tier
    data: DatasetName
    data_root: Path | None
    seed: int

    def pick(self, *, smoke: T, lesson: T, full: T) -> T:
        """Return this tier's value."""
        return {"smoke": smoke, "lesson": lesson, "full": full}[self.tier]

    def finding(self, statement: str, holds: bool) -> None:
        """Assert that what the text says of numbers that come out of a training holds in this run.

        Such numbers differ between processors, so a cell shows them without comparing them with a stored run,
        and asserts what does not differ: an order, a sign, a factor. Nothing is promised except at tier
        lesson, on the scenes and from seed 0: elsewhere a finding that fails is only printed.
        """
        if not holds and (self.tier, self.data, self.seed) == ("lesson", "scenes", 0):
            raise AssertionError(f"the text says: {statement}. In this run it is not so")
        self.outcome(statement, holds)

    def outcome(self, statement: str, holds: bool) -> None:
        """Say so where records of trainings no longer show what the text says of them.

        Nothing is raised: a new record may not stop whoever works through the notebook. A unit test compares
        what these cells print with what is stored.
        """
        if not holds:
            print(f"The text says: {statement}. In this run it is not so.")

    def dataset(self, features: FeatureKind = "grid") -> Dataset:
        """Open the data at this tier's size.

        Scenes have 600/100/200 pictures at tier smoke and 4000/500/1000 otherwise. Photographs come whole,
        but at tier smoke only the first 600/100/200 pictures of the splits are used.
        """
        sizes = cast(Sizes, SMOKE_SIZES) if self.tier == "smoke" else None
        return open_dataset(self.data, self.data_root, features=features, sizes=sizes)

    def regions_or_grid(self) -> FeatureKind:
        """Return "region" if the data have regions, else "grid": boxes of photographs need a detector."""
        return "region" if has_regions(self.data_root) else "grid"

    def test_split(self, features: FeatureKind = "grid") -> Split:
        """Open the test split alone: of the scenes, that saves drawing what is trained on."""
        if self.data != "scenes":
            return self.dataset(features).test
        count = SMOKE_SIZES["test"] if self.tier == "smoke" else SIZES["test"]
        return scenes.load(train=1, dev=1, test=count, features=features).test

    def pictures(self, split: str, rows: Sequence[int]) -> list[np.ndarray]:
        """Return pictures of a split to look at, each uint8 (height, width, 3)."""
        if self.data == "scenes":
            made = scenes.pictures(split, self._count(split))
            return [scenes.draw(made[row].scene, size=224) for row in rows]
        assert self.data_root is not None  # begin checked it
        files = picture_files(self.data_root, split)
        return [np.asarray(open_picture(files[row]).resize((224, 224))) for row in rows]

    def seen(self, dataset: Dataset, split: str, row: int) -> Seen:
        """Return one picture of a split for people and for a model, as `plots.word_maps` takes it.

        The features of `dataset` decide whether the picture has cells or boxes.
        """
        boxes: np.ndarray | torch.Tensor | None = None
        if dataset.feature_kind == "region":
            if self.data_root is not None:
                boxes = region_boxes(self.data_root, split, row)
            else:
                boxes = boxes_of(scenes.pictures(split, self._count(split))[row].scene) / SIDE
        return Seen.of_row(getattr(dataset, split), row, self.pictures(split, [row])[0], boxes)

    def true_of(
        self, sentence: str, split: str, rows: Sequence[int] | None = None
    ) -> tuple[list[bool] | None, str]:
        """Judge which pictures of a split, all or those in some rows, a learner's own sentence is true of.

        The result is a judgement for each row and an empty remark; or None and why it cannot be judged: the
        pictures are photographs, or the world's grammar cannot read the sentence.
        """
        if self.data != "scenes":
            return None, ""
        try:
            form = scenes.parse(sentence)
        except ValueError as unread:
            return None, f"\n(not judged: {why_unread(str(unread), sentence)})"
        made = scenes.pictures(split, self._count(split))
        chosen = made if rows is None else [made[row] for row in rows]
        return [scenes.holds(form, picture.scene) for picture in chosen], ""

    def relevance(self, split: str) -> np.ndarray | None:
        """Return which caption is true of which picture, bool (Nc, Ni); None for photographs."""
        if self.data != "scenes":
            return None
        made = scenes.pictures(split, self._count(split))
        captions = [caption for picture in made for caption in picture.captions]
        return scenes.relevance(captions, [picture.scene for picture in made])

    def trained(self, recipe: Recipe, dataset: Dataset) -> Run:
        """Train a recipe once; later it comes from the cache, as long as nothing about it changes.

        If another notebook is already training it, this one waits for the result.
        """
        key = f"{recipe.hash()}-{dataset.fingerprint()[:12]}-{RESULTS_VERSION}-{self.seed}"
        folder = cache_folder("runs", key)
        with locked(folder, "is training in"):  # around the lock of `fit`, which refuses to wait
            return fit(recipe, dataset, folder=folder / "run", resume=True, seed=self.seed)

    def _count(self, split: str) -> int | None:
        return SMOKE_SIZES[split] if self.tier == "smoke" else None


@checked
def begin(
    tier: Tier = "lesson",
    data: DatasetName = "scenes",
    data_root: str = "",
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0,
) -> Lesson:
    """Check a notebook's parameters and make its run repeatable.

    Args:
        tier: "smoke" (seconds, to see that all runs), "lesson" (2 CPU cores, the default) or "full" (GPUs).
        data: "scenes" or a photograph collection, one of `course.datasets.DatasetName`.
        data_root: the folder of a photograph collection (its pictures and captions, or extracted features).
        seed: seeds everything that is random; torch's generator is seeded with it.

    Raises:
        ValueError: a parameter has an invalid value.
        FileNotFoundError: `data_root` is not a folder, or holds no collection.
    """
    root = Path(data_root).expanduser() if data_root else None
    if (root is None) != (data == "scenes"):
        raise ValueError(
            f"data is {data!r} and data_root is {data_root!r}: it must name the folder of photographs with "
            "their captions, and be empty for the scenes, which are generated"
        )
    if root is not None:
        if not root.is_dir():
            raise FileNotFoundError(f"data_root is {data_root!r}: there is no such folder")
        if not (root / "train_ims.npy").exists():
            find_annotations(root)
        print(f"The text and the recorded runs are about drawn scenes; the cells show {data}.")
    if tier != "full" and threads.COUNT not in os.environ:  # this kernel was started by hand
        torch.set_num_threads(1)
    torch.manual_seed(seed)
    return Lesson(tier, data, root, seed)


def numbers(measured: Mapping[str, float]) -> None:
    """Print numbers below each other, each with its name and, unless it is a count, one decimal."""
    width = max(map(len, measured))
    for name, value in measured.items():
        print(f"{name:<{width}}  {value:8,}" if isinstance(value, int) else f"{name:<{width}}  {value:10.1f}")


def check_machine() -> None:
    """Check what the course needs and print a line for each thing, with what to do if it is missing."""
    memory = psutil.virtual_memory().total / 2**30
    less = f"{memory:.0f} GB found; close other programs, or use tier smoke"
    room = shutil.disk_usage(cache_folder()).free / 2**30
    networks = all(weights_file(name).is_file() for name in NETWORKS)
    wanted = (
        ("Python 3.11 or newer", sys.version_info >= (3, 11), "rebuild the environment with a newer Python"),
        ("PyTorch 2.11 or newer", torch.__version__ >= "2.11", "install what requirements.lock names"),
        ("memory", memory >= 6, less),
        ("room for the cache", room >= 2, f"{room:.1f} GB free; VSECORE_CACHE can name a folder elsewhere"),
        ("networks of the world", networks, "run: vse scenes pretrain scenes-cnn, and scenes-vit"),
    )
    for name, present, remedy in wanted:
        print(f"✓ {name}" if present else f"✗ {name}: {remedy}")
    if all(present for _, present, _ in wanted):
        print("This machine is ready.")
