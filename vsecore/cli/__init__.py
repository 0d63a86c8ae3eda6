"""The `vse` command: scenes, data, training, evaluation, mining, experiments and search.

Each command is a thin layer: it reads options, calls the library and prints. A mistake in the user's input
gives one sentence, no traceback, and exit status 2. The heavy imports are inside the commands, so that
`vse --help` answers at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import IO, Annotated, Any, NoReturn

import typer

from vsecore import threads
from vsecore.cli import data, evaluation, experiments, mining, runs, scenes, search

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Visual-semantic embedding: data, training, evaluation, search.",
    rich_markup_mode=None,  # else a default in brackets would be taken for markup, and not shown
)
app.add_typer(scenes.app, name="scenes")
app.add_typer(data.app, name="data")
app.add_typer(search.app, name="search")
for command in (
    runs.plan,
    runs.train,
    evaluation.evaluate,
    mining.mine,
    experiments.baselines,
    experiments.experiment,
    experiments.compare,
):
    app.command()(command)


def main(app: typer.Typer = app, name: str = "vse", extra: str = "") -> None:
    """Run a command line. A user's mistake prints one sentence, or a traceback with --debug.

    `extra` is the extra that brings a missing module if `EXTRAS` does not name it.
    """
    os.environ.update(threads.whole_machine(os.environ))  # before a command imports PyTorch
    try:
        with contextlib.redirect_stdout(_Output(sys.stdout)):
            app()
    except SystemExit as ended:  # in which typer hides every broken pipe, also that of a worker
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        _refuse(ended.__context__, name, extra)
    except Exception as error:
        _refuse(error, name, extra)


SEARCH = ("faiss", "jinja2", "python_multipart", "qdrant_client", "starlette", "uvicorn")
EXTRAS = {"tensorboard": "logs", "pyarrow": "offline"} | dict.fromkeys(SEARCH, "search")
"""The extra that brings each module that may be missing."""


class _Output:
    """Standard output that ends the command quietly when its reader, such as head, has seen enough."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text."""
        with contextlib.suppress(BrokenPipeError):
            return self._stream.write(text)
        self._end()

    def flush(self) -> None:
        """Write what is still in the buffer."""
        with contextlib.suppress(BrokenPipeError):
            return self._stream.flush()
        self._end()

    def _end(self) -> NoReturn:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())  # for what is written at exit
        sys.exit(1)


def _refuse(error: BaseException, name: str, extra: str) -> NoReturn:
    """End with one sentence, or with a traceback if --debug asks for it or the mistake is not the user's."""
    missing = isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("vsecore")
    expected = missing or isinstance(error, ValueError | OSError | FloatingPointError)
    if "--debug" in sys.argv or not expected:
        raise error
    extra = EXTRAS.get(str(getattr(error, "name", "")).partition(".")[0], extra)
    remedy = ", which this command needs" if missing else ""
    if missing and extra:
        remedy += f": pip install 'vsecore[{extra}]' brings it"
    if isinstance(error, BrokenPipeError):
        remedy = ": a process that this command works with has ended; give the command again"
    _complain(f"{name}: {error}{remedy}")
    sys.exit(2)


def _complain(sentence: str) -> None:
    """Print an error on stderr, even if it holds a file name that is not valid text."""
    typer.echo(sentence.encode(errors="backslashreplace").decode(), err=True)


@app.callback()
def everywhere(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Take what every command takes."""
