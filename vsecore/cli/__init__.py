"""The `vse` command: scenes, data, training, evaluation, mining, experiments and search.

Each command is a thin layer: it reads options, calls the library and prints. A mistake in the user's input
gives one sentence, no traceback, and exit status 2. The heavy imports are inside the commands, so that
`vse --help` answers at once.
"""

import os
import sys
from typing import Annotated

import typer

from vsecore import __version__, threads
from vsecore.cli import data, evaluation, experiments, lists, runs, scenes, search
from vsecore.cli.options import command

app = typer.Typer(
    no_args_is_help=True,
    help="Visual-semantic embedding: data, training, evaluation, search.",
    rich_markup_mode=None,  # else a default in brackets would be taken for markup, and not shown
)
app.add_typer(scenes.app, name="scenes")
app.add_typer(data.app, name="data")
app.add_typer(search.app, name="search")
for function in (
    runs.plan,
    runs.train,
    evaluation.evaluate,
    runs.mine,
    experiments.baselines,
    experiments.experiment,
    experiments.compare,
    experiments.show,
    lists.recipes,
    lists.parts,
    lists.experiments,
):
    command(app, own_parts=True)(function)

SEARCH = ("faiss", "jinja2", "python_multipart", "qdrant_client", "starlette", "uvicorn")
EXTRAS = {"tensorboard": "logs", "pyarrow": "offline"} | dict.fromkeys(SEARCH, "search")
"""The extra that brings each module that may be missing."""


def main(app: typer.Typer = app, name: str = "vse", extra: str = "") -> None:
    """Run a command line. A user's mistake prints one sentence, or a traceback with --debug.

    `extra` is the extra that brings a missing module if `EXTRAS` does not name it. A reader of the output
    that has seen enough, such as head, ends the command quietly.
    """
    os.environ.update(threads.whole_machine(os.environ))  # before a command imports PyTorch
    try:
        app()
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("vsecore")
        expected = missing or isinstance(error, ValueError | OSError | FloatingPointError)
        if "--debug" in sys.argv or not expected:
            raise
        remedy = ", which this command needs" if missing else ""
        if missing and (extra := EXTRAS.get(str(getattr(error, "name", "")).partition(".")[0], extra)):
            remedy += f": vsecore's extra {extra!r} brings it"
        sentence = f"{name}: {error}{remedy}"
        typer.echo(sentence.encode(errors="backslashreplace").decode(), err=True)  # it may hold any file name
        sys.exit(2)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"vsecore {__version__}")
        raise typer.Exit


@app.callback()
def everywhere(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version, and end.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Take what every command takes."""
