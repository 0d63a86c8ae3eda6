"""What an instructor is told to read: names that do the work, and solutions that were copied."""

import importlib

import nbformat
import pytest

from course.batch import notebooks
from course.checks import EXERCISES
from course.grading import remarks
from course.grading.parts import key_of, without_marks
from course.grading.ready_made import IN_THE_PACKAGE
from course.grading.remarks import Cell, suspicions

OF_04 = [key for key in EXERCISES if key.startswith("04.")]
WORK = "names triplet, which does the work of 04.all and 04.siblings. Read it."


def test_every_exercise_in_code_says_what_the_package_has_for_it() -> None:
    asked = {key for path in notebooks() for key in _written(nbformat.read(path, as_version=4))}
    assert asked == IN_THE_PACKAGE.keys()
    for path in {path for paths in IN_THE_PACKAGE.values() for path in paths}:
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(f"vsecore.{module}"), name)


def _written(notebook: nbformat.NotebookNode) -> list[str]:
    """The exercises whose answer is a function that the learner writes."""
    return [key_of(cell.source) for cell in notebook.cells if '@exercise("' in cell.source]


@pytest.mark.parametrize(
    "source",
    [
        "def serve():\n    while True:\n        told.put(triplet(*asked.get()))",
        "class Mode(Base):\n    def run(self, f, given):\n        return triplet(*given)",
        "def show(message, *rest):\n    message.out.append(triplet(message.scores))",
        "from vsecore.losses import triplet as mine",
        'mine = getattr(losses, "triplet")',
        'text = "from vsecore.losses import triplet"',
        'place = "vsecore.losses.triplet"',
        "triplet = triplet",
        "mine = (\n    triplet,\n)[0]",
        "if triplet(S) > 0",
    ],
)
def test_a_changed_cell_that_names_what_does_the_work_is_remarked_on(source: str) -> None:
    (remark,) = [one for one in suspicions([Cell(9, source)], OF_04) if "does the work" in one]
    assert remark.startswith("Cell 9 (") and remark.endswith(WORK)
    assert suspicions([Cell(9, source)], ["00.search"]) == [], "another notebook's exercises"


@pytest.mark.parametrize(
    "source",
    [
        'found = "The triplet loss with a wide margin learns faster."',
        'change = {"losses.triplet.margin": 0.1}',
        'rows = seen["triplet"]',
        "# triplet",
        "def triplet(S, margin):\n    return S.sum()\n\ntriplet(S, 0.2)",
    ],
)
def test_prose_keys_and_names_of_ones_own_are_not_remarked_on(source: str) -> None:
    assert suspicions([Cell(9, source)], OF_04) == []


def test_what_the_notebook_defines_counts_only_in_the_exercise_that_forbids_it() -> None:
    own = 'ranks = caption_ranks(S, owner)\ncheck("03.ranks", lambda S, owner: ranks)'
    (remark,) = suspicions([Cell(9, own)], ["03.ranks"])
    assert "names caption_ranks, which does the work of 03.ranks" in remark
    assert suspicions([Cell(9, "print(caption_ranks(S, owner))")], ["03.ranks"]) == []


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_cell_with_a_line_added_is_not_remarked_on_for_the_lines_it_had(path: object) -> None:
    keys = [key for key in EXERCISES if key.startswith(str(getattr(path, "name", ""))[:2])]
    cells = nbformat.read(path, as_version=4).cells
    sources = [f"{cell.source}\nmine = 1" for cell in cells if cell.cell_type == "code"]
    assert suspicions([Cell(0, source) for source in sources], keys) == []


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("import threading", "threading"),
        ("from queue import Queue", "from queue"),
        ("import torch, queue", "import torch, queue"),
        ("from concurrent.futures import ThreadPoolExecutor", "from concurrent"),
        ('@torch.library.custom_op("mine::hinge", mutates_args=())\ndef hinge(): ...', "torch.library"),
        ("torch.ops.mine.hinge(S)", "torch.ops"),
        ("class Mode(TorchFunctionMode): ...", "TorchFunctionMode"),
        ("class Mode(TorchDispatchMode): ...", "TorchDispatchMode"),
        ("def __torch_function__(self, *given): ...", "__torch_function__"),
        ("warnings.showwarning = show", "showwarning"),
        ('globals()["losses"]', "globals("),
    ],
)
def test_a_cell_that_has_another_place_compute_is_pointed_out(source: str, named: str) -> None:
    (remark,) = suspicions([Cell(3, source)])
    assert f"{named!r}. Read it." in remark


def published(key: str) -> Cell:
    """The cell of an exercise, with the published solution in it."""
    sources = [cell.source for path in notebooks() for cell in nbformat.read(path, as_version=4).cells]
    return Cell(3, next(without_marks(source) for source in sources if f'("{key}"' in source))


def test_a_solution_is_told_as_surely_as_it_was_copied() -> None:
    assert suspicions([published("04.predict"), published("04.read")], OF_04) == [], "many write just this"
    (copied,) = suspicions([published("04.all")], OF_04)
    assert copied == "Word for word the published solution: 04.all."
    (sentences,) = suspicions([published("04.ablation")], OF_04)
    assert "chance" not in sentences
    (short,) = suspicions([published("04.break")], OF_04)
    assert short.endswith("04.break. In so short an answer that may be chance.")
    assert len(suspicions([published("04.all"), published("04.break")], OF_04)) == 2


def test_the_lines_of_a_solution_are_those_that_the_learner_writes() -> None:
    lines = {found.exercise: found.lines for found in remarks._published_solutions().values()}
    assert (lines["04.predict"], lines["04.ablation"], lines["04.all"]) == (1, 2, 5)
