"""The room that a learner's code runs in: its folders, what it sees of the course, and its end."""

import ctypes
import json
import os
import re
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from vsecore.data.files import cache_folder
from vsecore.paths import PACKAGE, assets
from vsecore.threads import one_thread

GRADING = Path(__file__).parent
COURSE = GRADING.parent
PATIENCE = 10
"""Seconds for processes to end that make new ones while they are ended."""

# What a program may need to find its libraries. Passwords and keys have other names, and do not go in.
_NEEDED = re.compile("PATH|LANG|LC_|LD_|DYLD_|OMP_|MKL_|CUDA_|NVIDIA_|PYTHON|SYSTEMROOT|TZ")
_SUBREAPER, _PARENT_DEATH_SIGNAL = 36, 1  # in linux/prctl.h


def furnish(scratch: Path, imports_course: bool) -> tuple[list[str], dict[str, str]]:
    """Make the folders of a room in an empty one; return the command that starts a kernel, and its variables.

    The room's checkout has the package with `inside` in the place of the checks, and the course's records. It
    has no tests, no notebooks and no grader. The cache is the user's, as links: what a learner's code adds or
    replaces stays in the room. To import the course before the kernel is up takes none of a learner's time.
    """
    work, settings, checkout = scratch / "work", scratch / "settings", scratch / "checkout"
    for folder in (work, settings, checkout):
        folder.mkdir(parents=True)
    shutil.copytree(PACKAGE, checkout / "vsecore", ignore=shutil.ignore_patterns("_assets"))
    course = checkout / "notebooks" / "course"
    shutil.copytree(COURSE, course, ignore=shutil.ignore_patterns("grading", "checks"))
    (course / "checks").mkdir()
    for file in (GRADING / "inside.py", GRADING / "values.py", COURSE / "checks" / "borrowed.py"):
        shutil.copyfile(file, course / "checks" / file.name.replace("inside", "__init__"))
    shutil.copytree(assets(), checkout / "assets")
    cache = cache_folder().resolve()
    shutil.copytree(cache, scratch / "cache", copy_function=os.symlink, ignore=shutil.ignore_patterns(".*"))

    environment = {name: value for name, value in os.environ.items() if _NEEDED.match(name)}
    found_before = [environment["PYTHONPATH"]] if environment.get("PYTHONPATH") else []
    environment = one_thread(environment) | {
        "PYTHONPATH": os.pathsep.join([str(checkout), str(course.parent), *found_before]),
        "VSECORE_CACHE": str(scratch / "cache"),
        "VSECORE_BATCH": "1",
        "HF_HUB_OFFLINE": "1",
        **dict.fromkeys(("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR", "XDG_CACHE_HOME"), str(settings)),
    }
    rules = {"readable": [str(cache)], "writable": [str(scratch)], "course": imports_course}
    program = str(GRADING / "confined.py")
    return [sys.executable, "-P", program, json.dumps(rules), "-f", "{connection_file}"], environment


# ---- Ending everything that a kernel has started, however well it hid -----------------------------------


def adopt_orphans() -> None:
    """From now on, on Linux, what loses its parent below this process becomes its child."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def running() -> set[psutil.Process]:
    """Return all that this process has started, and what that has started."""
    return set(psutil.Process().children(recursive=True))


def end_new(before: set[psutil.Process]) -> None:
    """End what `running` finds now and did not find before."""
    until = time.monotonic() + PATIENCE
    while (found := running() - before) and time.monotonic() < until:
        for step in (psutil.Process.suspend, psutil.Process.kill):  # first, so that none can start others
            for process in found:
                with suppress(psutil.Error):
                    step(process)
        psutil.wait_procs(found, timeout=1)


def end_with_parent() -> None:
    """Let the system end this process when the one that started it is gone. Only Linux does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
