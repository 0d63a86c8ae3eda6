"""Run a stranger's cells: a process of its own, a limit of time and of output, and going on after errors.

What a cell does to the machine is not held back here. Grade in a container (see the instructor page).
"""

from __future__ import annotations

import os
import queue
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from nbformat import NotebookNode
from nbformat.v4 import output_from_msg

from vsecore.course.checks import GRADES
from vsecore.threads import one_thread

START_SECONDS = 60.0  # a kernel that has not answered by then does not come
INTERRUPT_SECONDS = 10.0  # an interrupted cell that goes on for longer ends the run
OUTPUT_BYTES = 20_000_000  # of a whole notebook; what is printed beyond is dropped
_OUTPUTS = ("stream", "display_data", "execute_result", "error")


class _Gone(Exception):
    """The kernel cannot run another cell; the message says why."""


@dataclass
class CellRun:
    """What became of one code cell.

    Attributes:
        cell: its place in the notebook, from 0.
        trouble: what stopped it, in words; "" if nothing did.
        verdicts: the lines that checks wrote while it ran, as they were written.
    """

    cell: int
    trouble: str = ""
    verdicts: list[str] = field(default_factory=list)


def run_cells(
    notebook: NotebookNode, seconds: float, output_bytes: int = OUTPUT_BYTES
) -> tuple[list[CellRun], str]:
    """Run a notebook's code cells in order, in a new Python kernel, whatever kernel the notebook asks for.

    A cell that raises is followed by the next. A cell may take half of the time that is left, and is then
    interrupted, so that one endless loop does not take the others' time. The kernel works in an empty
    folder, which is deleted, with settings of its own, so that nothing is kept for the next notebook.

    Args:
        notebook: its outputs are replaced.
        seconds: the limit for the whole notebook.
        output_bytes: the limit for all outputs together.

    Returns:
        A `CellRun` for each code cell that began, and why the rest were not run; "" if all were.
    """
    runs: list[CellRun] = []
    with tempfile.TemporaryDirectory(prefix="vse-grade-", ignore_cleanup_errors=True) as scratch:
        verdicts = Path(scratch) / "verdicts.jsonl"
        verdicts.touch()
        try:
            with _kernel(Path(scratch), verdicts) as (manager, client), verdicts.open("rb") as lines:
                until, room = time.monotonic() + seconds, output_bytes
                for number, cell in enumerate(notebook.cells):
                    if cell.cell_type != "code" or not cell.source.strip():
                        continue
                    left = until - time.monotonic()
                    if left <= 0:
                        raise _Gone("the time limit was reached")
                    runs.append(CellRun(number))
                    try:
                        room -= _run_cell(manager, client, cell, runs[-1], left / 2, room)
                    finally:
                        written = lines.read(1_000_000).decode("utf-8", errors="replace")
                        runs[-1].verdicts = written.splitlines()
        except _Gone as end:
            return runs, str(end)
    return runs, ""


@contextmanager
def _kernel(scratch: Path, verdicts: Path) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    """Start a kernel of this Python, and end it with all that it started in its process group."""
    work, settings = scratch / "work", scratch / "settings"
    work.mkdir()
    settings.mkdir()
    environment = one_thread(os.environ)
    environment.pop("VSECORE_RECORD", None)
    environment |= {
        GRADES: str(verdicts),
        "VSECORE_BATCH": "1",
        "IPYTHONDIR": str(settings),  # else what a learner's cell puts there would start with the next kernel
        "HF_HUB_OFFLINE": "1",
    }
    # No folder of kernels is looked into, so that python3 is this interpreter and nothing that was installed.
    manager = KernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    manager.start_kernel(cwd=str(work), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    client = manager.blocking_client()
    try:
        client.start_channels()
        try:
            client.wait_for_ready(timeout=START_SECONDS)
        except RuntimeError as error:
            raise _Gone(f"no kernel came up ({error})") from error
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _run_cell(
    manager: KernelManager,
    client: BlockingKernelClient,
    cell: NotebookNode,
    run: CellRun,
    seconds: float,
    room: int,
) -> int:
    """Run one cell, keeping as many bytes of its outputs as there is room for; return how many were kept.

    Raises:
        _Gone: the kernel ended, or cannot be stopped.
    """
    cell.outputs = []
    request = client.execute(cell.source, allow_stdin=False, stop_on_error=False)
    until, interrupted, kept = time.monotonic() + seconds, False, 0
    while True:
        if time.monotonic() > until:
            if interrupted:
                run.trouble = "went on after it was interrupted"
                raise _Gone("a cell could not be stopped")
            interrupted, until = True, time.monotonic() + INTERRUPT_SECONDS
            manager.interrupt_kernel()
        try:
            message = client.get_iopub_msg(timeout=0.5)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind == "error":
                run.trouble = f"{content['ename']}: {content['evalue']}"
            if kind in _OUTPUTS and kept + (size := len(repr(content))) <= room:
                kept += size
                cell.outputs.append(output_from_msg(message))
        except queue.Empty:
            if not manager.is_alive():
                run.trouble = "the kernel ended here or just before: no memory was left, or it was told to"
                raise _Gone("the kernel had ended") from None
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
        ) as error:  # only a meddler sends such messages
            run.trouble = f"a message that is not Jupyter's ({type(error).__name__})"
            raise _Gone("the kernel sent what is no message") from error
    if interrupted:
        run.trouble = f"stopped after {seconds:.0f} s: half of the time that was left"
    return kept
