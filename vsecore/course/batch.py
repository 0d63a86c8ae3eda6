"""Run notebooks in batch, each in a process of its own.

`run` executes them with papermill into another folder, never over the stored ones; `refresh` is the author's
command that makes the stored ones anew from their texts.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext

from vsecore import records
from vsecore.course.lesson import LESSON_RECORDS, ROOT
from vsecore.data.files import write_atomically
from vsecore.scenes.build import WORLD_VERSION


class CourseError(Exception):
    """A notebook or the book did not come through; the message says which, and where to look."""


def notebooks(names: Iterable[str] = ()) -> list[Path]:
    """List the stored notebooks in reading order, or those whose names begin with one of `names`.

    Raises:
        ValueError: a name fits no notebook.
    """
    return _fitting(sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")), names)


def _fitting(paths: list[Path], names: Iterable[str]) -> list[Path]:
    """Return the paths whose names begin with one of `names`, or all where there are no names."""
    chosen: list[Path] = []
    for name in names:
        fitting = [path for path in paths if path.stem.startswith(name)]
        if not fitting:
            raise ValueError(
                f"no notebook begins with {name!r}; there are {', '.join(path.stem for path in paths)}"
            )
        chosen.extend(fitting)
    return sorted(set(chosen)) if chosen else paths


@dataclass(frozen=True)
class NotebookRun:
    """How one notebook's batch run went: seconds of wall time, megabytes of its kernel's peak memory."""

    name: str
    seconds: float
    peak_megabytes: float


def run(
    paths: Iterable[Path],
    folder: Path,
    parameters: dict[str, Any],
    tell: Callable[[str], None] = print,
    at_once: int = 1,
) -> list[NotebookRun]:
    """Execute notebooks with papermill, each in a process of its own.

    Args:
        paths: the stored notebooks, which stay as they are.
        folder: where the executed copies go.
        parameters: papermill parameters, the same for each.
        tell: called with a line about each notebook.
        at_once: how many run side by side. More than one pays where notebooks mostly import and little
            computes, as at tier smoke; then each has one thread.

    Returns:
        One `NotebookRun` a notebook, in their order, also written to `folder/run.json`.

    Raises:
        CourseError: a cell failed; the message names notebook and error, and the half-run copy stays in
            `folder` to look at.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environment = {} if at_once == 1 else {"OMP_NUM_THREADS": "1"}

    def run_one(path: Path) -> NotebookRun:
        output = folder / path.name
        command = ["papermill", str(path), str(output), "--cwd", str(path.parent), "--kernel", "python3"]
        command += ["--no-log-output", "--parameters_yaml", json.dumps(parameters)]
        tell(f"running {path.stem}")
        # Papermill's bar is for who waits at a terminal; several would write over each other.
        entry = _execute(command, output, environment, bar=at_once == 1 and sys.stderr.isatty())
        tell(f"  {path.stem}: {entry.seconds:.0f} s, {entry.peak_megabytes:.0f} MB")
        return entry

    paths = list(paths)
    # The first makes the world that the others share: side by side, each would make it for itself.
    runs = [run_one(path) for path in paths[:1]]
    with ThreadPoolExecutor(at_once) as pool:
        begun = [pool.submit(run_one, path) for path in paths[1:]]
        try:
            runs += [one.result() for one in begun]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    with write_atomically(folder / "run.json", "w") as report:
        json.dump([vars(entry) for entry in runs], report, indent=2)
    return runs


def refresh(
    names: Iterable[str], *, keep_numbers: bool = False, tell: Callable[[str], None] = print
) -> list[NotebookRun]:
    """Make stored notebooks anew from their texts: every cell run at tier lesson, outputs kept.

    Also written are the records that `Lesson.report` shows, and one of each notebook's time and memory, to
    which the notebook's card is held.

    Args:
        names: beginnings of the texts' names, such as "04"; none: all.
        keep_numbers: leave the records as they are, and hold this run to them.
        tell: called with a line about each notebook.

    Raises:
        CourseError: a cell failed; the stored notebook is as it was.
        ValueError: a name fits no text.
    """
    folder = ROOT / "build" / "refresh"
    folder.mkdir(parents=True, exist_ok=True)
    runs: list[NotebookRun] = []
    for text in _fitting(sorted((ROOT / "notebooks" / "text").glob("[0-9][0-9]_*.py")), names):
        tell(f"running {text.stem}")
        stored, output = ROOT / "notebooks" / f"{text.stem}.ipynb", folder / f"{text.stem}.ipynb"
        # Made anew from the text, so that nothing of an older run, or of a learner's, stays in it.
        jupytext.write(jupytext.read(text), output)
        command = ["jupyter", "execute", "--inplace", str(output)]
        runs.append(_execute(command, output, {"VSECORE_RECORD": "0" if keep_numbers else "1"}))
        tell(f"  {runs[-1].seconds:.0f} s, {runs[-1].peak_megabytes:.0f} MB")
        steady = _steady(json.loads(output.read_text(encoding="utf-8")))
        with write_atomically(stored, "w") as file:
            file.write(json.dumps(steady, indent=1, ensure_ascii=False) + "\n")
        if not keep_numbers:
            records.write(_cost(runs[-1]), LESSON_RECORDS)
    return runs


def _steady(notebook: dict[str, Any]) -> dict[str, Any]:
    """Take out of an executed notebook what is new with each run, so that a diff shows what changed.

    That is the time of each cell, and the random names of cells and widgets: the latter are numbered in the
    order in which the page comes to them.
    """
    for number, cell in enumerate(notebook["cells"]):
        cell["id"] = f"cell-{number:03}"
        cell["metadata"].pop("execution", None)
    state = notebook["metadata"].get("widgets", {}).get(_WIDGET_STATE, {}).get("state", {})
    names: dict[str, str] = {}

    def number_from(model: str) -> None:
        if model in state and model not in names:
            names[model] = f"widget-{len(names):03}"
            for part in re.findall(r"IPY_MODEL_(\w+)", json.dumps(state[model], sort_keys=True)):
                number_from(part)

    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            number_from(output.get("data", {}).get(_WIDGET_VIEW, {}).get("model_id", ""))

    def told(model: str) -> str:
        content = json.dumps(state[model], sort_keys=True)
        return re.sub(r"IPY_MODEL_(\w+)", lambda part: names.get(part[1], ""), content)

    # What no page shows ties others together: a link between two widgets, say. It goes by what it ties.
    for model in sorted(state.keys() - names.keys(), key=told):
        number_from(model)
    if names:
        state_text = json.dumps(state)
        for model, name in names.items():
            state_text = state_text.replace(model, name)
        notebook["metadata"]["widgets"][_WIDGET_STATE]["state"] = dict(sorted(json.loads(state_text).items()))
        for cell in notebook["cells"]:
            for output in cell.get("outputs", []):
                if _WIDGET_VIEW in output.get("data", {}):
                    view = output["data"][_WIDGET_VIEW]
                    view["model_id"] = names.get(view["model_id"], view["model_id"])
    return notebook


_WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def _cost(run: NotebookRun) -> records.Record:
    return records.record(
        run.name,
        config={"tier": "lesson"},
        config_hash="",
        data={"name": "scenes", "version": WORLD_VERSION},
        seed=0,
        metrics={"minutes": round(run.seconds / 60, 2), "gigabytes": round(run.peak_megabytes / 1024, 2)},
        seconds=run.seconds,
        note="what the whole notebook takes, its kernel's start included",
    )


def _execute(
    command: list[str], output: Path, environment: Mapping[str, str], bar: bool = False
) -> NotebookRun:
    """Run a Jupyter program that executes a notebook into `output`, and measure it."""
    log = output.with_suffix(".log")
    started = time.perf_counter()
    with log.open("wb") as lines:
        # In batch, or the bars inside the notebook would end up in the book.
        quiet = os.environ | {"VSECORE_BATCH": "1"} | dict(environment)
        program = [str(Path(sysconfig.get_path("scripts")) / command[0]), *command[1:]]
        process = subprocess.Popen(program, env=quiet, stderr=None if bar else lines)
        # wait4 and not wait: it also tells the largest memory of the process and of its kernel.
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise CourseError(
            f"{output.stem} stopped: {_first_error(output) or 'see ' + str(log)} (half-run copy: {output})"
        )
    log.unlink()
    return NotebookRun(output.stem, time.perf_counter() - started, usage.ru_maxrss / _MAXRSS_UNITS_A_MEGABYTE)


# The kernel reports kilobytes on Linux and bytes on macOS.
_MAXRSS_UNITS_A_MEGABYTE = 1024 * 1024 if sys.platform == "darwin" else 1024


def _first_error(path: Path) -> str:
    """Return name and message of the first error stored in a notebook, or an empty string."""
    if not path.is_file():
        return ""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            if output["output_type"] == "error":
                return f"{output['ename']}: {output['evalue']}"
    return ""
