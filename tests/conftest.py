"""What all tests share: real data if there is any, a cache of their own, no progress bars, no network."""

import os
from collections.abc import Iterator
from pathlib import Path

# Before any library of the hub is imported: a test that asked the network would wait for it.
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch


@pytest.fixture(scope="session")
def photographs() -> Path:
    """The folder of real data: flickr8k/, weights/ and glove/."""
    folder = os.environ.get("VSECORE_TEST_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip(
            "needs photographs: set VSECORE_TEST_DATA to a folder with flickr8k/, weights/ and glove/"
        )
    return Path(folder)


@pytest.fixture(scope="session", autouse=True)
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache that lives as long as the tests, so that scenes are made once, and no progress bars."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSECORE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("VSECORE_PROGRESS", "0")
        torch.set_num_threads(min(threads, 2))
        yield
        torch.set_num_threads(threads)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that takes the photographs, so that `-m "not photographs"` leaves it out."""
    for item in items:
        if "photographs" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.photographs)
