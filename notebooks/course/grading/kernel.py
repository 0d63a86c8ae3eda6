"""Run a learner's cells in a process of their own, with limits of time and output, and go on after errors.

Answers are judged in the grader's process, which runs no code of a learner. What a kernel says is only ever
an answer, never a judgement.
"""

from __future__ import annotations

import ast
import copy
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbclient.util import ensure_async, run_sync
from nbformat import NotebookNode
from nbformat.v4 import output_from_msg

from course.grading import values
from course.grading.processes import adopt_orphans, end_new, running
from course.grading.room import furnish

START_SECONDS = 300  # for Python to import the course, which is not counted as a learner's time
INTERRUPT_SECONDS = 10  # an interrupted cell that goes on for longer ends its kernel
ANSWER_SECONDS = 10  # for one call of a learner's function
OUTPUT_BYTES = 20_000_000  # for a whole notebook; what is printed beyond is dropped
KERNELS = 5  # how many a notebook may use up
_OUTPUTS = ("stream", "display_data", "execute_result", "error")
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError)  # by messages that only a meddler sends


class KernelGone(ConnectionError):
    """The kernel cannot do anything more; the message says why."""


@dataclass
class CellsRun:
    """What became of a notebook's cells.

    Attributes:
        trouble: what stopped each code cell that began, by its place in the notebook; "" if nothing did.
        end: why the other cells were not run; "" if all were.
    """

    trouble: dict[int, str] = field(default_factory=dict)
    end: str = ""


@dataclass(frozen=True)
class Filed:
    """An answer, as a learner's kernel tells it.

    Attributes:
        place: the cell that handed it in.
        checks: how often that cell checked this exercise; the last counts.
        form: the answer's form (see `values`).
        ask: has the kernel evaluate a call of `inside`. It raises KernelGone if the kernel cannot,
            TimeoutError if that takes too long, or ValueError if what it says makes no sense.
    """

    place: int
    checks: int
    form: Any
    ask: Callable[[str], Any]


Judge = Callable[[str, Filed], None]


def run_cells(
    notebook: NotebookNode,
    seconds: float,
    judge: Judge = lambda exercise, filed: None,
    output_bytes: int = OUTPUT_BYTES,
) -> CellsRun:
    """Run a notebook's code cells in order, in a new Python kernel, whatever kernel the notebook asks for.

    After a cell that raises, the next one runs. A cell may take half of the time that is left and is then
    interrupted, so one endless loop does not take the time of the others. If a cell ends its kernel or cannot
    be stopped, a new kernel runs the cells before it once more, without it, and goes on. Each kernel works in
    an empty folder with settings of its own. When it ends, so does all that it started, and what it wrote is
    deleted.

    Args:
        notebook: its outputs are replaced.
        seconds: the limit for the whole notebook.
        judge: what to do with each answer, right after the cell that handed it in.
        output_bytes: the limit for all outputs together.
    """
    made, left, room = CellsRun(), seconds, output_bytes
    cells = [
        place for place, cell in enumerate(notebook.cells) if cell.cell_type == "code" and cell.source.strip()
    ]
    client: _Client
    slow = set()  # no new kernel runs these once more
    for _ in range(KERNELS):
        place = -1
        try:
            with _kernel(notebook) as client:
                client.room, client.until = room, time.monotonic() + left
                for place in cells:
                    if place in made.trouble:
                        client.run(copy.deepcopy(notebook.cells[place]), place)
                        client.hear(place, lambda exercise, filed: None)
                    elif client.out_of_time:
                        made.end = "the time limit was reached"
                        return made
                    else:
                        made.trouble[place] = ""
                        made.trouble[place] = client.run(notebook.cells[place], place)
                        if client.interrupted:
                            slow.add(place)
                        client.hear(place, judge)
            return made
        except KernelGone as gone:
            if place < 0:
                made.end = str(gone)
                return made
            made.trouble[place] = made.trouble[place] or str(gone)
            left, room = client.left, client.room
            cells = [other for other in cells if other != place and other not in slow]
            if made.trouble.keys() >= set(cells):
                return made
    made.end = f"its cells have ended Python {KERNELS} times"
    return made


class _Client(NotebookClient):
    """Runs one cell after another, and keeps what they show as long as there is room."""

    room = 0  # bytes of output
    until = 0.0  # by the monotonic clock
    interrupted = False  # whether the last cell took too long
    gone = ""  # why the kernel can do nothing more
    left = 0.0  # seconds that were left then: to end it and to start another is not counted

    @property
    def out_of_time(self) -> bool:
        return time.monotonic() >= self.until

    def run(self, cell: NotebookNode, place: int) -> str:
        """Run one cell in half of the time that is left, and return what stopped it; "" if nothing did.

        Raises:
            KernelGone: the kernel ended, or the cell cannot be stopped.
        """
        seconds = max(1.0, (self.until - time.monotonic()) / 2)
        trouble = [""]
        self.timeout_func = lambda _: seconds  # type: ignore[assignment]
        # nbclient reports a cell that it had to interrupt as if the cell had raised this.
        stopped = f"stopped after {seconds:.0f} s"
        self.error_on_timeout = {"ename": stopped, "evalue": "half of the time that was left"}

        def note(execute_reply: dict[str, Any], **_: Any) -> None:
            trouble[0] = "{ename}: {evalue}".format_map(execute_reply["content"])

        self.on_cell_error = note
        try:
            self.execute_cell(cell, place)
        except DeadKernelError:
            raise self._lost("Python ended in this cell: out of memory, or the cell ended it") from None
        except CellTimeoutError:
            self.until += INTERRUPT_SECONDS  # it waited for that long
            raise self._lost("went on after it was interrupted") from None
        except _MALFORMED as error:
            raise self._lost(f"a message that is not Jupyter's ({type(error).__name__})") from error
        self.interrupted = trouble[0].startswith(stopped)
        return trouble[0]

    def hear(self, place: int, judge: Judge) -> None:
        """Have the answers judged that the cell just run has handed in; of each exercise the last.

        Raises:
            KernelGone: the kernel ended, or a call cannot be stopped.
        """
        last: dict[str, Filed] = {}
        with suppress(ValueError, TimeoutError):
            for filed in self.ask("hand_over()") or ():
                match filed:
                    case [str(exercise), form]:
                        checks = last[exercise].checks + 1 if exercise in last else 1
                        last[exercise] = Filed(place, checks, form, self.ask)
        for exercise, answer in last.items():
            judge(exercise, answer)
        if self.gone:  # for a judge takes it as one more answer that is wrong
            raise KernelGone(self.gone)

    def ask(self, call: str) -> Any:
        """Have the kernel evaluate a call of `inside`, and return what it says; None if it knows no `inside`.

        Raises:
            KernelGone: the kernel ended, or the call cannot be stopped.
            TimeoutError: the call took too long.
            ValueError: what the kernel says makes no sense.
        """
        if self.gone:
            raise KernelGone(self.gone)
        inside = "__import__('sys').modules.get('course.checks')"
        said = run_sync(self._reply)(f"(lambda inside: inside and inside.{call})({inside})")
        return None if said is None else values.read(said)

    async def _reply(self, expression: str) -> str | None:
        assert self.kc is not None
        sent = self.kc.execute("", silent=True, allow_stdin=False, user_expressions={"said": expression})
        until, interrupted = time.monotonic() + ANSWER_SECONDS, False
        while True:
            try:
                reply = await self.kc.shell_channel.get_msg(timeout=0.5)
                if reply["parent_header"].get("msg_id") == sent:
                    break
            except Empty:
                if self.km is None or not await ensure_async(self.km.is_alive()):
                    raise self._lost("Python ended while an answer was tried") from None
            except _MALFORMED as error:
                raise self._lost(f"a message that is not Jupyter's ({type(error).__name__})") from error
            if time.monotonic() > until and interrupted:
                raise self._lost("an answer that was tried went on after it was interrupted")
            if time.monotonic() > until:
                assert self.km is not None
                await ensure_async(self.km.interrupt_kernel())
                until, interrupted = time.monotonic() + INTERRUPT_SECONDS, True
        if interrupted:
            raise TimeoutError(f"it took more than {ANSWER_SECONDS} s")
        try:
            said = ast.literal_eval(reply["content"]["user_expressions"]["said"]["data"]["text/plain"])
        except (*_MALFORMED, SyntaxError, RecursionError, MemoryError):
            said = ""
        if said is not None and not isinstance(said, str):
            raise ValueError("it says what makes no sense")
        return said

    def _lost(self, why: str) -> KernelGone:
        self.gone, self.left = why, self.until - time.monotonic()
        return KernelGone(why)

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> None:
        """Keep an output if there is room. Widgets and changes to earlier outputs would escape the count."""
        kind, content = msg["msg_type"], msg["content"]
        if kind == "status":
            super().process_message(msg, cell, cell_index)  # it says when the cell is done
        elif kind in _OUTPUTS and (size := len(repr(content))) <= self.room:
            self.room -= size
            with suppress(*_MALFORMED):
                cell.outputs.append(output_from_msg(msg))


class _OwnPython(KernelSpecManager):
    """Knows one kernel, which nothing that is installed can replace."""

    def __init__(self, command: list[str]) -> None:
        super().__init__()
        self._command = command

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """The kernel of a room, whatever it is called."""
        return KernelSpec(argv=self._command, display_name="Python 3", language="python")


@contextmanager
def _kernel(notebook: NotebookNode) -> Iterator[_Client]:
    """Start a kernel of this Python in a room of its own, and end it with all that it started."""
    adopt_orphans()
    before = running()
    with tempfile.TemporaryDirectory(prefix="vse-grade-", ignore_cleanup_errors=True) as scratch:
        room = furnish(Path(scratch).resolve(), "".join(cell.source for cell in notebook.cells))
        manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=_OwnPython(room.command))
        if os.name == "posix":  # sockets that are files: there is no port that another program could reach
            manager.transport, manager.ip = "ipc", str(room.sockets)
        manager.connection_file = str(room.sockets.with_suffix(".json"))
        client = _Client(
            notebook,
            manager,
            allow_errors=True,
            interrupt_on_timeout=True,
            raise_on_iopub_timeout=True,  # so a cell that goes on after its interrupt is noticed
            iopub_timeout=INTERRUPT_SECONDS,
            record_timing=False,
            startup_timeout=START_SECONDS,
        )
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        try:
            with client.setup_kernel(cwd=str(room.work), env=room.environment, **quiet):
                yield client
        except RuntimeError as error:
            raise KernelGone(f"the kernel did not come up, or failed ({error})") from error
        finally:
            run_sync(manager.shutdown_kernel)(now=True)
            end_new(before)
