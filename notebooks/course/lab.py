"""JupyterLab as the course opens it: on the learner's copies, with the settings that the course needs."""

import os
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path

from vsecore.data.files import write_json
from vsecore.paths import ROOT
from vsecore.threads import one_thread

SETTINGS = {
    # A notebook that is opened again shows its widgets, which Lab stores only if it is told to.
    "@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": True},
    # Lab would ask whether it may fetch news, over the first page of the course.
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
}
"""What differs from JupyterLab's own defaults. A learner's own settings win."""


def first_notebook() -> Path:
    """The notebook to begin with: the learner's copy if there is one, or else the stored one."""
    learner = ROOT / "build" / "learner" / "00_start_here.ipynb"
    return learner if learner.is_file() else ROOT / "notebooks" / learner.name


def lab_command(notebook: Path) -> list[str]:
    """What starts JupyterLab on a notebook, in the course's folder or in that of a notebook elsewhere."""
    if not notebook.is_file():
        raise FileNotFoundError(f"notebook is {notebook}: it must be a file that exists")
    notebook = notebook.resolve()
    folder = ROOT if notebook.is_relative_to(ROOT) else notebook.parent
    program = Path(sysconfig.get_path("scripts")) / "jupyter"
    return [str(program), "lab", f"--ServerApp.root_dir={folder}", str(notebook)]


def open_lab(notebook: Path | None = None) -> None:
    """Become JupyterLab, opened on a notebook, by default on the first one."""
    command = lab_command(notebook or first_notebook())
    overrides = Path(sys.prefix, "share/jupyter/lab/settings/overrides.d/vsecore.json")
    with suppress(OSError):  # in an environment that others look after, Lab keeps its own defaults
        write_json(overrides, SETTINGS, indent=2)
    environment = one_thread(os.environ)  # which its kernels get
    if os.name == "posix":  # replaces this process, so that Ctrl-C reaches the lab
        os.execve(command[0], command, environment)
    sys.exit(subprocess.call(command, env=environment))
