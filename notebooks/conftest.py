"""For `pytest --nbval`: one thread a kernel, one world, no network, no progress bar (that is output too)."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from nbval import kernel

from vsecore.threads import one_thread

RECORDS = Path(__file__).resolve().parent.parent / "assets" / "results" / "lesson"

os.environ.update(one_thread(os.environ) | {"VSECORE_BATCH": "1"})  # the kernels get it


_start = kernel.start_new_kernel


def start_kernel(*args: Any, **options: Any) -> Any:
    """Start a kernel, and once more if it dies: two that start together may be given the same port."""
    try:
        return _start(*args, **options)
    except RuntimeError:
        return _start(*args, **options)


kernel.start_new_kernel = start_kernel


def pytest_configure(config: pytest.Config) -> None:
    """Refuse the kernels the network. Make the world first, in a cache that all of this run share."""
    offline = Path(__file__).resolve().parent.parent / "tests" / "offline"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(offline), os.environ.get("PYTHONPATH", "")]))
    if hasattr(config, "workerinput") or not config.getoption("nbval", False):
        return
    from course.batch import make_world

    if "VSECORE_TEST_CACHE" in os.environ:
        os.environ["VSECORE_CACHE"] = os.environ["VSECORE_TEST_CACHE"]
    else:
        cache = tempfile.TemporaryDirectory(prefix="vsecore-notebooks-", ignore_cleanup_errors=True)
        config.add_cleanup(cache.cleanup)
        os.environ["VSECORE_CACHE"] = cache.name
    make_world("lesson")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the notebook that takes longest first: begun last, it would still run when the others are done."""
    seconds = {path: _seconds(path.stem) for path in {item.path for item in items}}
    items.sort(key=lambda item: (-seconds[item.path], item.path))  # the cells of each stay in order


def _seconds(name: str) -> float:
    """What a notebook took when its numbers were recorded; 0: it has no record."""
    found = RECORDS.glob(f"{name}-scenes-*.json")
    return max((json.loads(path.read_text(encoding="utf-8"))["seconds"] for path in found), default=0.0)
