"""Run notebooks in batch, each in a process of its own, or rebuild the stored ones from their texts."""

import copy
import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import psutil
import typer
from nbclient import NotebookClient

from course.lesson import LESSON_RECORDS, SMOKE_SIZES
from vsecore import records, scenes
from vsecore.data.files import holds, write_whole
from vsecore.paths import ROOT
from vsecore.scenes.build import NETWORK_OF, SIZES, WORLD_VERSION
from vsecore.threads import one_thread, whole_machine

RESULTS = "results"
"""The tag of cells that draw from records."""
TEXTS = "text/[0-9][0-9]_*.py"
"""The texts that the notebooks are made from."""


class CourseError(ChildProcessError):
    """A notebook or the book failed; the message says which, and where to look."""


def notebooks(names: Iterable[str] = (), files: str = "[0-9][0-9]_*.ipynb") -> list[Path]:
    """List the stored notebooks in reading order, or those whose names begin with one of `names`."""
    paths, chosen = sorted((ROOT / "notebooks").glob(files)), list[Path]()
    for name in names:
        fitting = [path for path in paths if path.stem.startswith(name)]
        if not fitting:
            known = ", ".join(path.stem for path in paths)
            raise ValueError(f"no notebook begins with {name!r}; there are {known}")
        chosen.extend(fitting)
    return sorted(set(chosen)) if chosen else paths


def make_world(tier: str) -> None:
    """Put the embedded world and all kinds of features of it into the cache, unless they are there.

    Otherwise, notebooks that run side by side would each make it.
    """
    sizes = SMOKE_SIZES if tier == "smoke" else SIZES
    for split, count in sizes.items():
        scenes.pictures(split, count)  # drawn on all cores; then the kinds of features two at a time
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda kind: scenes.load(**sizes, features=kind), NETWORK_OF))


def run(paths: Iterable[Path], folder: Path, parameters: dict[str, Any], at_once: int = 1) -> None:
    """Execute notebooks with papermill into a folder, never over the stored ones.

    Alone, a notebook has all cores; side by side, each runs on one thread.

    Raises:
        CourseError: a cell failed; the message names notebook and error, and the half-run copy stays in
            `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environment = whole_machine(os.environ) if at_once == 1 else one_thread(os.environ)

    def run_one(path: Path) -> None:
        output = folder / path.name
        command = ["papermill", str(path), str(output), "--cwd", str(path.parent), "--kernel", "python3"]
        command += ["--no-log-output", "--parameters_yaml", json.dumps(parameters)]
        typer.echo(f"running {path.stem}")
        # Papermill's bar is for someone at a terminal; several would overwrite each other.
        seconds, megabytes = _execute(command, output, environment, at_once == 1 and sys.stderr.isatty())
        typer.echo(f"  {path.stem}: {seconds:.0f} s, {megabytes:.0f} MB")

    # Side by side, the longest first: started last, it would still run when the others are done.
    costs = {entry.name: entry.seconds for entry in records.find(LESSON_RECORDS)}
    with ThreadPoolExecutor(at_once) as pool, _ending_with_us():
        slowest_first = sorted(paths, key=lambda path: -costs.get(path.stem, 0.0))
        list(pool.map(run_one, slowest_first if at_once > 1 else paths))  # if one fails, the rest is left


def refresh(names: Iterable[str], *, cost: bool = False) -> None:
    """Rebuild stored notebooks from their texts: run every cell at tier lesson, keep the outputs.

    With `cost`, which wants a quiet machine, also record each notebook's time and memory, which its card must
    match. If a cell fails, the stored notebook is as it was.
    """
    for text in notebooks(names, TEXTS):
        output = ROOT / "build" / "refresh" / f"{text.stem}.ipynb"
        output.parent.mkdir(parents=True, exist_ok=True)
        typer.echo(f"running {text.stem}")
        # Rebuilt from the text, so that nothing of an older run, or of a learner's, stays in it.
        jupytext.write(jupytext.read(text), output)
        command = ["jupyter", "execute", "--inplace", str(output)]
        with _ending_with_us():
            seconds, megabytes = _execute(command, output, one_thread(os.environ))
        typer.echo(f"  {seconds:.0f} s, {megabytes:.0f} MB")
        _store(text.stem, _steady(json.loads(output.read_text(encoding="utf-8"))))
        if cost:
            entry = records.record(
                text.stem,
                config={"tier": "lesson"},
                config_hash="",
                data={"name": "scenes", "version": WORLD_VERSION},
                seed=0,
                metrics={"minutes": round(seconds / 60, 2), "gigabytes": round(megabytes / 1024, 2)},
                seconds=seconds,
                note="what the whole notebook takes, its kernel's start included",
            )
            records.write(entry, LESSON_RECORDS)


def refresh_results(names: Iterable[str]) -> None:
    """Run again only the cells that draw from records (see `results_cells`); words come from the texts.

    All other outputs stay as they are stored.

    Raises:
        CourseError: a notebook's other cells have new code, and must be run.
    """
    os.environ.update(one_thread(os.environ) | {"VSECORE_BATCH": "1"})  # the kernels get it
    for text in notebooks(names, TEXTS):
        stored = nbformat.read(ROOT / "notebooks" / f"{text.stem}.ipynb", as_version=4)
        laid = jupytext.read(text)
        ran, kept = ([one for one in _code(book) if not _is_result(one)] for book in (stored, laid))
        if [one.source for one in ran] != [one.source for one in kept]:
            raise CourseError(f"{text.stem} has new code beside its results: refresh all of it")
        for old, cell in zip(ran, kept, strict=True):
            cell.outputs = old.outputs
        for number, cell in enumerate(laid.cells):
            cell.id = f"cell-{number:03}"
        stored.cells = laid.cells
        chosen = results_cells(stored)
        small = nbformat.v4.new_notebook(cells=copy.deepcopy(chosen), metadata=stored.metadata)
        if chosen:
            NotebookClient(small, resources={"metadata": {"path": str(ROOT / "notebooks")}}).execute()
        for cell, run in zip(chosen, small.cells, strict=True):
            if _is_result(cell):
                cell.outputs = run.outputs
        for count, cell in enumerate(_code(laid), 1):
            cell.execution_count = count
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = count
        if _store(text.stem, json.loads(nbformat.writes(stored))):
            typer.echo(f"{text.stem}: new words or results")


def results_cells(notebook: Any) -> list[Any]:
    """Return what draws a notebook's results: its parameters, its imports, the cells tagged "results".

    Training and results are apart: these cells need nothing else of the notebook, and nothing else needs
    them. They carry the tag "nbval-ignore-output" too, so that a new record turns no stored notebook red.
    """
    results = [cell for cell in _code(notebook) if _is_result(cell)]
    return [*_code(notebook)[:2], *results] if results else []


def _code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _is_result(cell: Any) -> bool:
    return RESULTS in cell.metadata.get("tags", ())


def _store(name: str, notebook: dict[str, Any]) -> bool:
    """Make an executed notebook the stored one; return whether that changed it."""
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    stored = ROOT / "notebooks" / f"{name}.ipynb"
    if holds(stored, text):
        return False
    write_whole(stored, text)
    return True


def _steady(notebook: dict[str, Any]) -> dict[str, Any]:
    """Remove from an executed notebook what is new in each run, so that a diff shows what changed.

    That is the time of each cell, and the random names of cells and widgets; widgets are numbered in the
    order in which they appear on the page.
    """
    for number, cell in enumerate(notebook["cells"]):
        cell["id"] = f"cell-{number:03}"
        cell["metadata"].pop("execution", None)
    state = notebook["metadata"].get("widgets", {}).get(_WIDGET_STATE, {}).get("state", {})
    said = {model: json.dumps(content, sort_keys=True) for model, content in state.items()}
    names: dict[str, str] = {}

    def number_from(models: Iterable[str]) -> None:
        for model in models:
            if model in said and model not in names:
                names[model] = f"widget-{len(names):03}"
                number_from(re.findall(r"IPY_MODEL_(\w+)", said[model]))

    def by_content(model: str) -> str:
        return re.sub(r"IPY_MODEL_(\w+)", lambda part: names.get(part[1], ""), said[model])

    number_from(re.findall(r'"model_id": "(\w+)"', json.dumps(notebook["cells"])))
    # What no page shows connects others, such as a link between two widgets: sorted by what it connects.
    number_from(sorted(said.keys() - names.keys(), key=by_content))
    text = json.dumps(notebook)
    for model, name in names.items():
        text = text.replace(model, name)
    notebook = json.loads(text)
    if names:
        widgets = notebook["metadata"]["widgets"][_WIDGET_STATE]
        widgets["state"] = dict(sorted(widgets["state"].items()))
    return notebook


_WIDGET_STATE = "application/vnd.jupyter.widget-state+json"


@contextmanager
def _ending_with_us() -> Iterator[None]:
    """If we are told to end, end the notebooks that run too: they would go on, on all cores."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception):
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.terminate()
        raise


def _execute(
    command: list[str], output: Path, environment: Mapping[str, str], bar: bool = False
) -> tuple[float, float]:
    """Run a Jupyter program that executes a notebook into `output`; return its seconds and peak megabytes.

    Its memory is that of the program, its kernel and whatever they start, together, sampled five times a
    second: shorter peaks are missed.
    """
    log = output.with_suffix(".log")
    started, peak, returned = time.perf_counter(), 0, None
    with log.open("wb") as lines:
        # In batch: otherwise the bars inside the notebook would end up in the book.
        quiet = {**environment, "VSECORE_BATCH": "1"}
        program = [str(Path(sysconfig.get_path("scripts")) / command[0]), *command[1:]]
        process = subprocess.Popen(program, env=quiet, stderr=None if bar else lines)
        while returned is None:
            peak = max(peak, _memory(process.pid))
            with suppress(subprocess.TimeoutExpired):
                returned = process.wait(timeout=0.2)
    if returned != 0:
        cells = nbformat.read(output, as_version=4).cells if output.is_file() else []
        shown = (one for cell in cells for one in cell.get("outputs", ()) if one.output_type == "error")
        why = next((f"{error.ename}: {error.evalue}" for error in shown), f"see {log}")
        raise CourseError(f"{output.stem} stopped: {why} (half-run copy: {output})")
    log.unlink()
    return time.perf_counter() - started, peak / 2**20


def _memory(process: int) -> int:
    """Bytes of memory that a process and all its descendants have at this moment."""
    total = 0
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process)
        for member in (parent, *parent.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # it ended while we looked
                total += member.memory_info().rss
    return total
