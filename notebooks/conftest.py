"""For `pytest --nbval`: one thread a kernel, the world made once, no progress bar (that is output too)."""

import os
import tempfile

import pytest

from vsecore.threads import one_thread

os.environ.update(one_thread(os.environ) | {"VSECORE_BATCH": "1"})  # the kernels get it


def pytest_configure(config: pytest.Config) -> None:
    """Make the world before the first notebook, in a cache that all of this run share (`pytest -n 2`)."""
    if hasattr(config, "workerinput") or not config.getoption("nbval", False):
        return
    from vsecore.course.batch import make_world

    cache = tempfile.TemporaryDirectory(prefix="vsecore-notebooks-", ignore_cleanup_errors=True)
    config.add_cleanup(cache.cleanup)
    os.environ["VSECORE_CACHE"] = cache.name
    make_world("lesson")
