"""Run a learner's cells in a process of their own, with limits of time and output, and go on after errors.

Nothing here keeps a cell from harming the machine. Grade in a container (see the instructor page).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbclient.util import run_sync
from nbformat import NotebookNode
from nbformat.v4 import output_from_msg

from vsecore.course.checks import GRADES

START_SECONDS = 60  # a kernel that has not answered by then will not come
INTERRUPT_SECONDS = 10  # an interrupted cell that goes on for longer ends the run
OUTPUT_BYTES = 20_000_000  # for a whole notebook; what is printed beyond is dropped
_OUTPUTS = ("stream", "display_data", "execute_result", "error")


class _Gone(Exception):
    """The kernel cannot run another cell; the message says why."""


@dataclass
class CellRun:
    """What became of one code cell.

    Attributes:
        cell: its place in the notebook, from 0.
        trouble: what stopped it, in words; "" if nothing did.
        judgements: the lines that checks wrote while it ran, as they were written.
    """

    cell: int
    trouble: str = ""
    judgements: list[str] = field(default_factory=list)


def run_cells(
    notebook: NotebookNode, seconds: float, output_bytes: int = OUTPUT_BYTES
) -> tuple[list[CellRun], str]:
    """Run a notebook's code cells in order, in a new Python kernel, whatever kernel the notebook asks for.

    After a cell that raises, the next one runs. A cell may take half of the time that is left and is then
    interrupted, so one endless loop does not take the time of the others. The kernel works in an empty
    folder with settings of its own. Both are deleted, so nothing is kept for the next notebook.

    Args:
        notebook: its outputs are replaced.
        seconds: the limit for the whole notebook.
        output_bytes: the limit for all outputs together.

    Returns:
        A `CellRun` for each code cell that began, and why the rest were not run; "" if all were.
    """
    runs: list[CellRun] = []
    with tempfile.TemporaryDirectory(prefix="vse-grade-", ignore_cleanup_errors=True) as scratch:
        judgements = Path(scratch) / "judgements.jsonl"
        judgements.touch()
        try:
            with _kernel(notebook, Path(scratch), judgements) as client, judgements.open("rb") as lines:
                until, client.room = time.monotonic() + seconds, output_bytes
                for number, cell in enumerate(notebook.cells):
                    if cell.cell_type != "code" or not cell.source.strip():
                        continue
                    left = until - time.monotonic()
                    if left <= 0:
                        raise _Gone("the time limit was reached")
                    runs.append(CellRun(number))
                    try:
                        _run_cell(client, cell, runs[-1], left / 2)
                    finally:
                        written = lines.read(1_000_000).decode("utf-8", errors="replace")
                        runs[-1].judgements = written.splitlines()
        except _Gone as end:
            return runs, str(end)
    return runs, ""


class _Client(NotebookClient):
    """Keeps what the cells show, as long as there is room for it."""

    room = 0  # bytes

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> None:
        """Keep an output if there is room. Widgets and changes to earlier outputs would escape the count."""
        kind, content = msg["msg_type"], msg["content"]
        if kind == "status":
            super().process_message(msg, cell, cell_index)  # it says when the cell is done
        elif kind in _OUTPUTS and (size := len(repr(content))) <= self.room:
            self.room -= size
            with suppress(ValueError, KeyError, TypeError, AttributeError):  # only a meddler sends such outputs
                cell.outputs.append(output_from_msg(msg))


@contextmanager
def _kernel(notebook: NotebookNode, scratch: Path, judgements: Path) -> Iterator[_Client]:
    """Start a kernel of this Python, and end it with all that it started in its process group."""
    work, settings = scratch / "work", scratch / "settings"
    work.mkdir()
    settings.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "VSECORE_RECORD"}
    environment |= {
        GRADES: str(judgements),
        "VSECORE_BATCH": "1",
        "IPYTHONDIR": str(settings),  # else what a cell puts there would start with the next kernel
        "HF_HUB_OFFLINE": "1",
    }
    # No folder of kernels is looked into, so python3 is this interpreter and nothing that was installed.
    manager = AsyncKernelManager(
        kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[])
    )
    client = _Client(
        notebook,
        manager,
        allow_errors=True,
        interrupt_on_timeout=True,
        raise_on_iopub_timeout=True,
        iopub_timeout=INTERRUPT_SECONDS,
        startup_timeout=START_SECONDS,
        record_timing=False,
    )
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        with client.setup_kernel(cleanup_kc=True, cwd=str(work), env=environment, **quiet):
            yield client
    except RuntimeError as error:
        raise _Gone(f"the kernel did not come up, or failed ({error})") from error
    finally:  # even if the kernel ended by itself, what it started may still run
        run_sync(manager.shutdown_kernel)(now=True)


def _run_cell(client: _Client, cell: NotebookNode, run: CellRun, seconds: float) -> None:
    """Run one cell and note in `run` what stopped it.

    Raises:
        _Gone: the kernel ended, or cannot be stopped.
    """

    def note(execute_reply: dict[str, Any], **_: Any) -> None:
        error = execute_reply["content"]
        run.trouble = f"{error['ename']}: {error['evalue']}"

    client.on_cell_error = note
    client.timeout_func = lambda _: seconds
    stopped = {"ename": f"stopped after {seconds:.0f} s", "evalue": "half of the time that was left"}
    client.error_on_timeout = stopped  # noted as if the cell had raised it
    try:
        client.execute_cell(cell, run.cell)
    except DeadKernelError:
        run.trouble = "the kernel ended here or just before: no memory was left, or it was told to"
        raise _Gone("the kernel had ended") from None
    except CellTimeoutError:
        run.trouble = "went on after it was interrupted"
        raise _Gone("a cell could not be stopped") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # only a meddler sends such replies
        run.trouble = f"a message that is not Jupyter's ({type(error).__name__})"
        raise _Gone("the kernel sent what is no message") from error
