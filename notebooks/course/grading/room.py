"""The room that a learner's code runs in: its folders, its environment, and what it sees of the package."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from course.checks import borrowed
from course.grading import confined, inside, values
from vsecore.data.files import cache_folder
from vsecore.paths import PACKAGE, assets
from vsecore.threads import one_thread

COURSE = Path(__file__).parents[1]

# What a program may need to find its libraries. Passwords and keys have other names, and do not go in.
_NEEDED = (
    "PATH",
    "LANG",
    "LC_",
    "LD_",
    "DYLD_",
    "OMP_",
    "MKL_",
    "CUDA_",
    "NVIDIA_",
    "PYTHON",
    "SYSTEMROOT",
    "TZ",
)


@dataclass(frozen=True)
class Room:
    """Where a kernel runs.

    Attributes:
        work: its working folder, empty.
        sockets: what the names of its sockets begin with.
        command: what starts it; Jupyter fills in the file that says how to reach it.
        environment: its variables.
    """

    work: Path
    sockets: Path
    command: list[str]
    environment: dict[str, str]


def furnish(scratch: Path, sources: str) -> Room:
    """Make the folders of a room.

    The room's checkout has the package with `inside` in the place of the checks, and the course's records. It
    has no tests, no notebooks and no grader. The cache is the user's, as links: what a learner's code adds or
    replaces stays in the room.

    Args:
        scratch: an empty folder.
        sources: what will be run, to know whether to import the course beforehand.
    """
    work, settings, checkout = scratch / "work", scratch / "settings", scratch / "checkout"
    for folder in (work, settings, checkout / "notebooks" / "text", checkout / "book"):
        folder.mkdir(parents=True)
    (checkout / "book" / "_toc.yml").touch()  # with notebooks/text: what `paths.is_checkout` looks for
    shutil.copytree(PACKAGE, checkout / "vsecore", ignore=shutil.ignore_patterns("_assets"))
    course = checkout / "notebooks" / "course"
    shutil.copytree(COURSE, course, ignore=shutil.ignore_patterns("grading", "checks"))
    checks = course / "checks"
    checks.mkdir()
    shutil.copyfile(inside.__file__, checks / "__init__.py")
    shutil.copyfile(values.__file__, checks / "values.py")
    shutil.copyfile(borrowed.__file__, checks / "borrowed.py")
    shutil.copytree(assets(), checkout / "assets")
    cache = cache_folder()
    shutil.copytree(cache, scratch / "cache", copy_function=_link, ignore=shutil.ignore_patterns(".*"))

    environment = {name: value for name, value in os.environ.items() if name.startswith(_NEEDED)}
    environment = one_thread(environment) | {
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(checkout), str(course.parent), os.environ.get("PYTHONPATH", "")])
        ),
        "VSECORE_CACHE": str(scratch / "cache"),
        "VSECORE_BATCH": "1",
        "HF_HUB_OFFLINE": "1",
        **dict.fromkeys(("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR", "XDG_CACHE_HOME"), str(settings)),
    }
    rules = {"readable": [str(cache.resolve())], "writable": [str(scratch)], "course": "course" in sources}
    command = [sys.executable, "-P", confined.__file__, json.dumps(rules), "-f", "{connection_file}"]
    return Room(work, scratch / "kernel", command, environment)


def _link(source: str, target: str) -> str:
    Path(target).symlink_to(Path(source).resolve())
    return target
