"""The code taught in a notebook's cell and the package's code give equal numbers.

The cells themselves are taken from the notebooks' texts and run here, on inputs that the notebooks do not
use, in float64. A notebook's table sets paper, cell and package side by side; each row is held here.
"""

import ast
import importlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jupytext
import pytest
import torch

from vsecore.data import scenes
from vsecore.losses import triplet

TEXTS = {
    path.stem[:2]: path for path in (Path(__file__).parent.parent / "notebooks" / "text").glob("[0-9]*_*.py")
}


@cache
def cells(notebook: str) -> tuple[Any, ...]:
    return tuple(jupytext.read(TEXTS[notebook]).cells)


@cache
def taught(notebook: str) -> dict[str, Any]:
    """Everything that a notebook defines (functions and classes), without running its experiments."""
    space: dict[str, Any] = {}
    for cell in cells(notebook):
        if cell.cell_type != "code" or "solution" in cell.metadata.get("tags", []):
            continue
        kept = [
            node
            for node in ast.parse(cell.source).body
            if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
        ]
        exec(compile(ast.Module(kept, []), str(TEXTS[notebook]), "exec"), space)
    return space


def batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    sizes = (1, 2, 5, 33)
    return [torch.rand(size, size, generator=generator, dtype=torch.float64) * 2 - 1 for size in sizes]


def same_loss(mine: Callable, theirs: Callable) -> None:
    """Equal values and equal gradients, for several batches and margins."""
    for scores in batches():
        for margin in (0.0, 0.2, 1.0):
            pair = [scores.clone().requires_grad_() for _ in range(2)]
            values = [mine(pair[0], margin), theirs(pair[1], margin)]
            torch.testing.assert_close(values[0], values[1])
            for value in values:
                value.backward()
            torch.testing.assert_close(pair[0].grad, pair[1].grad)


def all_negatives() -> None:
    same_loss(taught("04")["all_negatives"], lambda S, margin: triplet(S, margin, hardest=False))


def hardest_negative() -> None:
    same_loss(taught("04")["hardest_negative"], lambda S, margin: triplet(S, margin, hardest=True))


def true_of() -> None:
    """Captions and scenes of another world than the notebook's."""
    made = scenes.generate(40, seed=5, split="taught")
    for caption in (caption for picture in made for caption in picture.captions):
        for picture in made:
            expected = scenes.holds(caption.form, picture.scene)
            assert taught("01")["true_of"](caption.form, picture.scene) == expected, caption.text


COMPARED: dict[tuple[str, str], Callable[[], None]] = {
    ("01", "true_of"): true_of,
    ("04", "all_negatives"): all_negatives,
    ("04", "hardest_negative"): hardest_negative,
}


@pytest.mark.parametrize("notebook, name", COMPARED, ids=".".join)
def test_the_cell_and_the_package_agree(notebook: str, name: str) -> None:
    COMPARED[notebook, name]()


def rows(notebook: str) -> list[tuple[str, str]]:
    """Names of the cell's and of the package's code, from the notebook's table of paper, cell and package."""
    found = []
    for cell in cells(notebook):
        if cell.cell_type == "markdown" and re.search(
            r"^\| .*in this notebook \| in the package", cell.source, re.M
        ):
            for line in cell.source.splitlines():
                parts = [part.strip() for part in line.strip("| ").split(" | ")]
                if len(parts) == 3 and "`" in parts[1] and "`" in parts[2]:
                    found.append((parts[1], parts[2]))
    return found


@pytest.mark.parametrize("notebook", sorted(set(TEXTS) - {"00"}))
def test_the_table_of_paper_and_code_is_true(notebook: str) -> None:
    assert rows(notebook), "the notebook has no table | paper | in this notebook | in the package |"
    for here, there in rows(notebook):
        for name in re.findall(r"`(vsecore[\w.]+)", there):
            module, attribute = name.rsplit(".", 1)
            assert hasattr(importlib.import_module(module), attribute), name
        for name in re.findall(r"`(\w+)`", here):
            defined = taught(notebook).get(name)
            if callable(defined):
                assert (notebook, name) in COMPARED, f"{name} is taught in {notebook} and compared nowhere"
