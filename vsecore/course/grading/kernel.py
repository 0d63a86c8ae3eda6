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
from vsecore.threads import one_thread

INTERRUPT_SECONDS = 10  # an interrupted cell that goes on for longer ends the run
OUTPUT_BYTES = 20_000_000  # for a whole notebook; what is printed beyond is dropped
JUDGEMENT_BYTES = 10_000_000  # likewise, of what the checks write
_OUTPUTS = ("stream", "display_data", "execute_result", "error")
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError)  # by messages that only a meddler sends


@dataclass
class CellsRun:
    """What became of a notebook's cells.

    Attributes:
        trouble: what stopped each code cell that began, by its place in the notebook; "" if nothing did.
        judgements: the lines that checks wrote, as they were written.
        end: why the other cells were not run; "" if all were.
    """

    trouble: dict[int, str] = field(default_factory=dict)
    judgements: list[str] = field(default_factory=list)
    end: str = ""


class _Gone(Exception):
    """The kernel cannot run another cell; the message says why."""


def run_cells(notebook: NotebookNode, seconds: float, output_bytes: int = OUTPUT_BYTES) -> CellsRun:
    """Run a notebook's code cells in order, in a new Python kernel, whatever kernel the notebook asks for.

    After a cell that raises, the next one runs. A cell may take half of the time that is left and is then
    interrupted, so one endless loop does not take the time of the others. The kernel works in an empty
    folder with settings of its own. Both are deleted, so nothing is kept for the next notebook.

    Args:
        notebook: its outputs are replaced.
        seconds: the limit for the whole notebook.
        output_bytes: the limit for all outputs together.
    """
    made = CellsRun()
    with (
        tempfile.TemporaryDirectory(prefix="vse-grade-", ignore_cleanup_errors=True) as scratch,
        (Path(scratch) / "judgements.jsonl").open("x+b") as judgements,
    ):
        try:
            with _kernel(notebook, Path(scratch), judgements.name) as client:
                client.room, until = output_bytes, time.monotonic() + seconds
                for number, cell in enumerate(notebook.cells):
                    if cell.cell_type == "code" and cell.source.strip():
                        client.run(cell, number, until - time.monotonic(), made.trouble)
        except _Gone as end:
            made.end = str(end)
        made.judgements = judgements.read(JUDGEMENT_BYTES).decode("utf-8", errors="replace").splitlines()
    return made


class _Client(NotebookClient):
    """Runs one cell after another, and keeps what they show as long as there is room."""

    room = 0  # bytes

    def run(self, cell: NotebookNode, number: int, left: float, trouble: dict[int, str]) -> None:
        """Run one cell in half of the seconds that are left, and note what stopped it.

        Raises:
            _Gone: no time is left, the kernel ended, or the cell cannot be stopped.
        """
        if left <= 0:
            raise _Gone("the time limit was reached")
        self.timeout_func, trouble[number] = lambda _: left / 2, ""  # type: ignore[assignment]
        # nbclient reports a cell that it had to interrupt as if the cell had raised this.
        self.error_on_timeout = {
            "ename": f"stopped after {left / 2:.0f} s",
            "evalue": "half of the time that was left",
        }

        def note(execute_reply: dict[str, Any], **_: Any) -> None:
            trouble[number] = "{ename}: {evalue}".format_map(execute_reply["content"])

        self.on_cell_error = note
        try:
            self.execute_cell(cell, number)
        except DeadKernelError:
            trouble[number] = "the kernel ended here or just before: no memory was left, or it was told to"
            raise _Gone("the kernel had ended") from None
        except CellTimeoutError:
            trouble[number] = "went on after it was interrupted"
            raise _Gone("a cell could not be stopped") from None
        except _MALFORMED as error:
            trouble[number] = f"a message that is not Jupyter's ({type(error).__name__})"
            raise _Gone("the kernel sent what is no message") from error

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> None:
        """Keep an output if there is room. Widgets and changes to earlier outputs would escape the count."""
        kind, content = msg["msg_type"], msg["content"]
        if kind == "status":
            super().process_message(msg, cell, cell_index)  # it says when the cell is done
        elif kind in _OUTPUTS and (size := len(repr(content))) <= self.room:
            self.room -= size
            with suppress(*_MALFORMED):
                cell.outputs.append(output_from_msg(msg))


@contextmanager
def _kernel(notebook: NotebookNode, scratch: Path, judgements: str) -> Iterator[_Client]:
    """Start a kernel of this Python, and end it with all that it started in its process group."""
    work, settings = scratch / "work", scratch / "settings"
    work.mkdir()
    settings.mkdir()
    environment = one_thread(os.environ)
    environment.pop("VSECORE_RECORD", None)
    environment |= {
        GRADES: judgements,
        "VSECORE_BATCH": "1",
        "IPYTHONDIR": str(settings),  # else what a cell puts there would start with the next kernel
        "HF_HUB_OFFLINE": "1",
    }
    # No folder of kernels is looked into, so python3 is this interpreter and nothing that was installed.
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    client = _Client(
        notebook,
        manager,
        allow_errors=True,
        interrupt_on_timeout=True,
        raise_on_iopub_timeout=True,  # so a cell that goes on after its interrupt is noticed
        iopub_timeout=INTERRUPT_SECONDS,
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
