"""What all tests share: one thread, a cache of their own, real data if there is any, no bars, no network."""

import json
import os
import runpy
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from vsecore.threads import one_thread

# Before PyTorch is imported, which counts its threads then, and any library of the hub: a test that asked the
# network would wait for it.
os.environ.update(one_thread(os.environ) | {"HF_HUB_OFFLINE": "1", "VSECORE_BATCH": "1"})

import numpy as np
import pytest
from PIL import Image


def pytest_configure(config: pytest.Config) -> None:
    """Refuse the network. Give this run a cache of its own, which its workers share: scenes are made once.

    `make test` gives one to this run and to that of the notebooks.
    """
    offline = Path(__file__).parent / "offline"
    runpy.run_path(str(offline / "sitecustomize.py"))
    # Every Python that a test starts imports it too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(offline), os.environ.get("PYTHONPATH", "")]))
    if "VSECORE_TEST_CACHE" in os.environ:
        os.environ["VSECORE_CACHE"] = os.environ["VSECORE_TEST_CACHE"]
    elif not hasattr(config, "workerinput"):
        cache = tempfile.TemporaryDirectory(prefix="vsecore-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(cache.cleanup)
        os.environ["VSECORE_CACHE"] = cache.name


@pytest.fixture(scope="session")
def photographs() -> Path:
    """The folder of real data: flickr8k/, weights/ and glove/."""
    folder = os.environ.get("VSECORE_TEST_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip(
            "needs photographs: set VSECORE_TEST_DATA to a folder with flickr8k/, weights/ and glove/"
        )
    return Path(folder)


@pytest.fixture(scope="session")
def make_album() -> Callable[..., Path]:
    """Make a folder `album` of small pictures, with a `dataset_album.json` in Karpathy's format."""

    def make(
        where: Path, train: int = 5, restval: int = 1, val: int = 2, test: int = 2, captions: int = 5
    ) -> Path:
        folder = where / "album"
        (folder / "images").mkdir(parents=True)
        rng, entries = np.random.default_rng(0), []
        for split, count in (("train", train), ("restval", restval), ("val", val), ("test", test)):
            for number in range(count):
                name = f"{split}{number}.jpg"
                pixels = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).resize((80, 60)).save(folder / "images" / name)
                sentences = [
                    {"raw": f"Caption {c} of the {split} picture {number} ."} for c in range(captions)
                ]
                entries.append({"filename": name, "split": split, "sentences": sentences})
        content = {"dataset": "album", "images": entries}
        (folder / "dataset_album.json").write_text(json.dumps(content), "utf-8")
        return folder

    return make


@pytest.fixture
def album(make_album: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """Make the folder of `make_album` where this test alone works."""
    return partial(make_album, tmp_path)


@pytest.fixture
def tiny() -> "Backbone":  # noqa: F821
    """A grid of 4 × 4 cells whose features are the mean colours of its pixels, times a little matrix."""
    import torch
    from torch import nn

    from vsecore.data.backbones import Backbone

    class Halve(nn.Module):
        """uint8 to numbers from 0 to 2, so that a cell's feature can be told by hand."""

        def forward(self, pictures: torch.Tensor) -> torch.Tensor:
            return pictures.float() / 127.5

    torch.manual_seed(0)
    return Backbone("tiny", nn.Sequential(nn.AvgPool2d(8), nn.Conv2d(3, 5, 1)), Halve(), 32)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that takes the photographs, so that `-m "not photographs"` leaves it out.

    A name with an address in it is refused: it differs between the processes that share the tests.
    """
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: its parameters need ids that stay the same")
        if "photographs" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.photographs)


@pytest.fixture
def claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write claims: each is the usual one with some fields changed, and without those that are None."""
    import yaml

    from studies import CLAIM
    from vsecore.experiments import claims

    def write(*changes: dict[str, str | None]) -> None:
        path = tmp_path / "claims.yml"
        entries = [
            {field: value for field, value in (CLAIM | change).items() if value is not None}
            for change in changes
        ]
        path.write_text(yaml.safe_dump(entries), encoding="utf-8")
        monkeypatch.setattr(sys.modules[claims.__module__], "CLAIMS", path)

    write({})
    return write


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Register a part for one test: `add(LOSSES, "mine", Mine)`."""
    return lambda registry, name, entry: monkeypatch.setitem(registry._entries, name, entry)
