"""Mark each learner in a process of its own, so that nobody's code ends the grading of others."""

import hashlib
import json
import multiprocessing
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import nbformat

from course.grading.marking import HandedIn, NotebookMarks, run_and_mark
from course.grading.room import COURSE, end_with_parent
from vsecore.data.files import read_json, write_atomically, write_json
from vsecore.paths import PACKAGE

MARKS = "marks.json"
SLACK = 900
"""Seconds beyond a learner's own limits, for kernels to come up."""


def _code_digest() -> str:
    """Changes with the code that judges: the course's, and the package's, which has right answers."""
    paths = sorted([*COURSE.rglob("*.py"), *PACKAGE.rglob("*.py")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


@dataclass(frozen=True)
class Work:
    """What is to be done for a learner: run each notebook at a tier, for so long, and mark what is wanted.

    The marks and the executed notebooks go to `place`. If no notebooks and exercises are wanted, all count.
    """

    learner: str
    place: Path
    notebooks: tuple[HandedIn, ...]
    tier: str
    seconds: float
    wanted: tuple[str, ...]
    code: str = field(default_factory=_code_digest)

    @property
    def digest(self) -> str:
        """Changes with what was handed in, how it is run, and how it is judged."""
        handed_in = [(one.name, one.digest) for one in self.notebooks]
        content = [self.tier, self.seconds, self.wanted, self.code, handed_in]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


@dataclass(frozen=True)
class Marked:
    """What became of the work with a digest, kept in `marks.json`: how each file went."""

    digest: str
    notebooks: tuple[NotebookMarks, ...]


def known(work: Work) -> Marked | None:
    """Return what an earlier run has found, if nothing has changed since then."""
    try:
        stored: Marked = read_json(work.place / MARKS, Marked)
    except (ValueError, OSError):
        return None
    return stored if stored.digest == work.digest else None


def mark_all(works: Sequence[Work], jobs: int, done: Callable[[Work, Marked], None]) -> None:
    """Do all work, `jobs` learners at a time. What is done is kept at once, so that a stopped run can go on.

    A process that does not end well is tried once more, alone: another's code may have ended it.
    """
    for work in _tried(_tried(works, jobs, done), 1, done):
        trouble = "Not marked: the process that marked it was ended twice, or did not end. Read the code."
        done(work, _keep(work, [NotebookMarks(one.name, 0.0, (), (trouble,)) for one in work.notebooks]))


def _tried(works: Sequence[Work], jobs: int, done: Callable[[Work, Marked], None]) -> list[Work]:
    """Do work, and return what did not succeed."""
    failed = []
    pool = ThreadPoolExecutor(jobs)  # each thread waits for a process
    try:
        trials = {pool.submit(_in_a_process, work): work for work in works}
        for trial in as_completed(trials):
            if marked := trial.result():
                done(trials[trial], marked)
            else:
                failed.append(trials[trial])
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        pool.shutdown()
    return failed


def _in_a_process(work: Work) -> Marked | None:
    process = _CONTEXT.Process(target=_mark, args=(work,))
    process.start()
    process.join(SLACK + 2 * work.seconds * len(work.notebooks))
    process.kill()
    process.join()
    return known(work)


def _mark(work: Work) -> None:
    """Mark a learner's notebooks, and keep the marks and the executed copies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one says when to stop
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    end_with_parent()
    marked = []
    for one in work.notebooks:
        marked.append(run_and_mark(one, work.tier, work.seconds, work.wanted))
        if one.notebook is not None and marked[-1].marks:
            with write_atomically(work.place / "executed" / one.name, "w") as file:
                nbformat.write(one.notebook, file)
    _keep(work, marked)


def _keep(work: Work, notebooks: Sequence[NotebookMarks]) -> Marked:
    marked = Marked(work.digest, tuple(notebooks))
    write_json(work.place / MARKS, asdict(marked), indent=1)
    return marked


# Processes that are forked from one that has imported PyTorch begin at once.
_CONTEXT: Any = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
if sys.platform != "win32":
    _CONTEXT.set_forkserver_preload([__name__])
