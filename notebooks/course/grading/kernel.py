"""Run a learner's cells in a process of their own, with limits of time and output, and go on after errors.

Answers are judged in the grader's process, which runs no code of a learner. What a kernel says is only ever
an answer, never a judgement.
"""

import ast
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager
from nbformat import NotebookNode
from nbformat.v4 import output_from_msg

from course.grading import room, values

START_SECONDS = 300
"""For Python to import the course, which is not counted as a learner's time."""
INTERRUPT_SECONDS = 10
"""An interrupted cell that goes on for longer ends its kernel."""
ANSWER_SECONDS = 10
"""For one call of a learner's function."""
OUTPUT_BYTES = 20_000_000
"""For all outputs of a notebook; what is printed beyond is dropped."""
KERNELS = 5
"""How many kernels a notebook may use up."""
_OUTPUTS = ("stream", "display_data", "execute_result", "error")
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError)  # by messages that only a meddler sends


_INSIDE = "__import__('sys').modules.get('course.checks')"


class KernelGone(ConnectionError):
    """The kernel cannot do anything more; the message says why."""


@dataclass
class CellsRun:
    """What stopped each code cell that began, by its place, and why the others did not; "" if nothing."""

    trouble: dict[int, str] = field(default_factory=dict)
    end: str = ""


@dataclass(frozen=True)
class Filed:
    """An answer, as a learner's kernel tells it, and the cell that handed it in.

    It checked the exercise so many times; the last counts. The form is that of `values`. `ask` has the kernel
    evaluate a call of `inside`; it raises KernelGone, TimeoutError, or ValueError if what it says makes no
    sense.
    """

    place: int
    checks: int
    form: Any
    ask: Callable[[str], Any]


def run_cells(
    notebook: NotebookNode,
    seconds: float,
    judge: Callable[[str, Filed], None] = lambda exercise, filed: None,
    output_bytes: int = OUTPUT_BYTES,
) -> CellsRun:
    """Run a notebook's code cells in order, in a new Python kernel, whatever kernel the notebook asks for.

    After a cell that raises, the next one runs. A cell may take half of the seconds that are left and is then
    interrupted, so one endless loop does not take the time of the others. If a cell ends its kernel or cannot
    be stopped, a new kernel runs the cells before it once more, without it, and goes on; where only a call of
    its function did that, the cell stays. Each kernel works in an empty folder with settings of its own. When
    it ends, so does all that it started, and what it wrote is deleted. The notebook's outputs are replaced,
    and `judge` gets each answer right after its cell, also when the cell runs once more.
    """
    made, left = CellsRun(), seconds
    sources = {place: cell.source for place, cell in enumerate(notebook.cells) if cell.cell_type == "code"}
    places = [place for place, source in sources.items() if source.strip()]
    imports_course = any("course" in source for source in sources.values())
    for _ in range(KERNELS):
        place, ended = -1, True
        try:
            with _started(imports_course) as kernel:
                kernel.room, kernel.until = output_bytes, time.monotonic() + left
                for place in places:
                    repeated, ended = place in made.trouble, True
                    if kernel.until <= time.monotonic() and not repeated:
                        made.end = "the time limit was reached"
                        return made
                    if repeated:
                        kernel.run(sources[place])
                    else:
                        made.trouble[place] = ""
                        notebook.cells[place].outputs = []
                        made.trouble[place] = kernel.run(sources[place], notebook.cells[place].outputs)
                    ended = repeated  # what ends Python from here on is a call of its function
                    for exercise, filed in kernel.filed(place).items():
                        judge(exercise, filed)
                    if kernel.gone:  # for a judge takes it as one more answer that is wrong
                        raise KernelGone(kernel.gone)
            return made
        except KernelGone as gone:
            if place < 0:
                made.end = str(gone)
                return made
            made.trouble[place] = made.trouble[place] or str(gone)
            left, output_bytes = kernel.left, kernel.room
            slow = {other for other, why in made.trouble.items() if why.startswith("stopped after")}
            places = [other for other in places if not (other == place and ended) and other not in slow]
            if made.trouble.keys() >= set(places):
                return made
    made.end = f"its cells have ended Python {KERNELS} times"
    return made


class _Kernel:
    """Runs one cell after another, and keeps what they show as long as there is room."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self._manager, self._client = manager, client
        self.room = 0  # bytes of output that may still come
        self.until = 0.0  # when the time of the notebook is over, by the monotonic clock
        self.gone, self.left = "", 0.0  # why it can do nothing more, and the seconds that were left then

    def run(self, source: str, outputs: list[NotebookNode] | None = None) -> str:
        """Run a cell in half of the time that is left, and return what stopped it; "" if nothing did.

        Without `outputs`, what it shows is neither kept nor counted.
        """
        seconds = max(1.0, (self.until - time.monotonic()) / 2)

        def keep(message: dict[str, Any]) -> None:
            """Keep an output if there is room. Widgets, and changes to earlier outputs, escape the count."""
            size = len(repr(message["content"]))
            if outputs is not None and message["msg_type"] in _OUTPUTS and size <= self.room:
                self.room -= size
                outputs.append(output_from_msg(message))

        reply, interrupted = self._execute(source, seconds, keep)
        if interrupted:
            return f"stopped after {seconds:.0f} s: half of the time that was left"
        failed = reply.get("status") == "error"
        return f"{reply.get('ename')}: {reply.get('evalue')}" if failed else ""

    def filed(self, place: int) -> dict[str, Filed]:
        """Return the answers that the cell just run has handed in; of each exercise the last."""
        last: dict[str, Filed] = {}
        with suppress(ValueError, TimeoutError):
            for filed in self.ask("hand_over()") or ():
                match filed:
                    case [str(exercise), form]:
                        checks = last[exercise].checks + 1 if exercise in last else 1
                        last[exercise] = Filed(place, checks, form, self.ask)
        return last

    def ask(self, call: str) -> Any:
        """Have the kernel evaluate a call of `inside` (see `Filed.ask`); None if it knows no `inside`."""
        if self.gone:
            raise KernelGone(self.gone)
        expression = f"(lambda inside: inside and inside.{call})({_INSIDE})"
        reply, interrupted = self._execute("", ANSWER_SECONDS, None, expression)
        if interrupted:
            raise TimeoutError(f"it took more than {ANSWER_SECONDS} s")
        try:
            said = ast.literal_eval(reply["user_expressions"]["said"]["data"]["text/plain"])
        except (*_MALFORMED, SyntaxError, RecursionError, MemoryError):
            said = ""
        return None if said is None else values.read(str(said))

    def _execute(
        self, source: str, seconds: float, keep: Callable[[Any], None] | None, expression: str = ""
    ) -> tuple[dict[str, Any], bool]:
        """Run code; return the content of the reply, and whether it had to be interrupted."""
        asks = {"said": expression} if expression else {}
        sent = self._client.execute(
            source, silent=bool(expression), allow_stdin=False, stop_on_error=False, user_expressions=asks
        )
        until, interrupted = time.monotonic() + seconds, False
        # First what it shows, until it is idle again; then its reply.
        for receive in (self._client.get_iopub_msg, self._client.get_shell_msg):
            while True:
                if time.monotonic() > until:
                    if interrupted:
                        raise self._lost("went on after it was interrupted")
                    self._manager.interrupt_kernel()
                    self.until += INTERRUPT_SECONDS if keep else 0  # this takes no other cell's time
                    until, interrupted = time.monotonic() + INTERRUPT_SECONDS, True
                try:
                    message = receive(timeout=0.5)
                    if message["parent_header"].get("msg_id") != sent:
                        continue
                    kind, content = message["msg_type"], dict(message["content"])
                    if kind == "execute_reply" or content.get("execution_state") == "idle":
                        break
                except Empty:
                    if not self._manager.is_alive():
                        raise self._lost("Python ended here: out of memory, or told to end") from None
                    continue
                except _MALFORMED as error:
                    raise self._lost(f"a message that is not Jupyter's ({type(error).__name__})") from error
                if keep:
                    with suppress(*_MALFORMED):
                        keep(message)
        return content, interrupted

    def _lost(self, why: str) -> KernelGone:
        self.gone, self.left = why, self.until - time.monotonic()
        return KernelGone(why)


class _OwnPython(KernelSpecManager):
    """Knows one kernel, that of a room, which nothing that is installed can replace."""

    command: list[str]

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return it, whatever it is called."""
        return KernelSpec(argv=self.command, display_name="Python 3", language="python")


@contextmanager
def _started(imports_course: bool) -> Iterator[_Kernel]:
    """Start a kernel of this Python in a room of its own, and end it with all that it started."""
    room.adopt_orphans()
    before = room.running()
    with ExitStack() as end:  # what is told last is done first
        scratch = tempfile.TemporaryDirectory(prefix="vse-grade-", ignore_cleanup_errors=True)
        folder = Path(end.enter_context(scratch)).resolve()
        command, environment = room.furnish(folder, imports_course)
        end.callback(room.end_new, before)
        own = _OwnPython()
        own.command = command
        manager = KernelManager(kernel_name="python3", kernel_spec_manager=own)
        if os.name == "posix":  # sockets that are files: there is no port that another program could reach
            manager.transport, manager.ip = "ipc", str(folder / "kernel")
        manager.connection_file = str(folder / "kernel.json")
        end.callback(manager.shutdown_kernel, now=True)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        manager.start_kernel(cwd=str(folder / "work"), env=environment, **quiet)
        client = manager.blocking_client()
        client.start_channels(stdin=False, hb=False)
        end.callback(client.stop_channels)
        try:
            client.wait_for_ready(timeout=START_SECONDS)
        except RuntimeError as error:
            raise KernelGone(f"the kernel did not come up ({error})") from error
        yield _Kernel(manager, client)
