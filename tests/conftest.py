"""What all tests share: one thread, a cache of their own, real data if there is any, no bars, no network."""

import os
import runpy
import sys
import tempfile
from functools import partial
from pathlib import Path

from vsecore.threads import one_thread

# Before PyTorch is imported, which counts its threads then, and any library of the hub: a test that asked the
# network would wait for it.
os.environ.update(one_thread(os.environ) | {"HF_HUB_OFFLINE": "1", "VSECORE_BATCH": "1"})

import pytest

from coco import make_album


def pytest_configure(config):
    """Refuse the network. Give this run a cache of its own, which its workers share: scenes are made once.

    `make test` gives one to this run and to that of the notebooks.
    """
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        del os.environ[name]  # a hook's would have tests commit into the clone that it belongs to
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
def photographs():
    """The folder of real data: flickr8k/, weights/ and glove/."""
    folder = os.environ.get("VSECORE_TEST_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip(
            "needs photographs: set VSECORE_TEST_DATA to a folder with flickr8k/, weights/ and glove/"
        )
    return Path(folder)


@pytest.fixture(scope="module")
def drawn_photographs(tmp_path_factory):
    """A folder in the form of Flickr8k, with drawn pictures."""
    from towers import make_photographs

    root = tmp_path_factory.mktemp("pictures")
    make_photographs(root)
    return root


@pytest.fixture
def album(tmp_path):
    """Make the folder of `make_album` where this test alone works."""
    return partial(make_album, tmp_path)


@pytest.fixture
def tiny():
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


def pytest_collection_modifyitems(items):
    """Mark every test that takes the photographs, so that `-m "not photographs"` leaves it out.

    A name with an address in it is refused: it differs between the processes that share the tests.
    """
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: its parameters need ids that stay the same")
        if "photographs" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.photographs)


@pytest.fixture
def claimed(tmp_path, monkeypatch):
    """Write claims: each is the usual one with some fields changed, and without those that are None."""
    import yaml

    from studies import CLAIM
    from vsecore.experiments import claims

    def write(*changes):
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
def add(monkeypatch):
    """Register a part for one test: `add(LOSSES, "mine", Mine)`."""
    return lambda registry, name, entry: monkeypatch.setitem(registry._entries, name, entry)
