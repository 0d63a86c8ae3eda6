"""Notebooks and their text sources: one thing in two forms."""

import json
import re
from pathlib import Path

import jupytext
import pytest

from course.checks import EXERCISES
from course.grading.parts import BEGINS, key_of
from vsecore import records

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PARAMETERS = 'tier = "lesson"\ndata = "scenes"\ndata_root = ""\nseed = 0'
MINUTES = {
    "a quarter of an hour": 15,
    "half an hour": 30,
    "three quarters of an hour": 45,
    "an hour": 60,
    "an hour and a quarter": 75,
    "an hour and a half": 90,
    "an hour and three quarters": 105,
    "two hours": 120,
}
"""The times that a card may name."""
FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}

pytestmark = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path, kind):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def source(cell):
    return "".join(cell["source"])


def test_notebook_and_text_say_the_same(path):
    # To the letter: JupyterLab refuses to open a pair in which the notebook is newer and says anything else.
    text = (ROOT / "notebooks" / "text" / f"{path.stem}.py").read_text()
    stored = jupytext.writes(jupytext.read(path), "py:percent")
    pair = [source[source.index("# %%") :] for source in (text, stored)]
    assert pair[0] == pair[1], f"run: python -m course refresh {path.stem[:2]}"


def test_parameters_are_the_same_everywhere_and_nothing_more(path):
    tagged = [
        source(cell) for cell in cells(path, "code") if "parameters" in cell["metadata"].get("tags", [])
    ]
    assert tagged == [PARAMETERS]


def test_outputs_are_stored_without_errors_or_paths(path):
    code = [cell for cell in cells(path, "code") if source(cell).strip()]
    assert all(cell["execution_count"] for cell in code), "a cell was never run"
    assert sum(bool(cell["outputs"]) for cell in code) >= len(code) / 3
    for cell in code:
        for output in cell["outputs"]:
            assert output["output_type"] != "error"
            assert output.get("name") != "stderr", (
                "progress bars and warnings do not belong into a stored notebook"
            )
            text = json.dumps(
                {key: value for key, value in output.get("data", {}).items() if "image" not in key}
            )
            assert not re.search(
                r"(?<![\w.])/(home|root|tmp|work|Users)/", text + "".join(output.get("text", ""))
            )


def test_every_figure_has_words(path):
    for cell in cells(path, "code"):
        for output in cell["outputs"]:
            if "image/png" in output.get("data", {}):
                words = "".join(output["data"].get("text/plain", ""))
                assert len(words.split()) >= 8 and "<Figure" not in words, source(cell)


def test_the_card_says_how_long_its_exercises_take(path):
    card = " ".join(source(cells(path, "markdown")[0]).split())
    said = re.search(r"[Tt]he exercises take (?:about )?([a-z ]+?)[.,;:]", card)
    assert said, "the card does not say how long the exercises take"
    assert said[1] in MINUTES, f"{said[1]!r} must be one of {', '.join(MINUTES)}"
    minutes = sum(task.minutes for key, task in EXERCISES.items() if key.startswith(path.stem[:2]))
    assert abs(MINUTES[said[1]] - minutes) <= 10, f"the exercises take {minutes} minutes"


def test_it_is_short(path):
    text = "\n".join(source(cell) for cell in cells(path, "markdown"))
    assert len(text.split()) <= 3000, "words, with folded boxes, solutions, tables and markup"
    outputs = [output for cell in cells(path, "code") for output in cell["outputs"]]
    assert sum("image/png" in output.get("data", {}) for output in outputs) <= 8, "figures"
    for cell in cells(path, "code"):
        if not FOLDED & set(cell["metadata"].get("tags", [])):
            assert len(source(cell).splitlines()) <= 15, source(cell)


def test_it_keeps_to_what_its_card_promises(path):
    card = source(cells(path, "markdown")[0])
    found = re.search(r"\*\*It takes\*\* about (half a|\d+) minutes? and (\d+) GB of memory on two", card)
    assert found, "the card does not say what the notebook takes"
    (cost,) = records.find(ROOT / "assets" / "results" / "lesson", name=path.stem)
    for promised, unit in ((found[1].replace("half a", "0.5"), "minutes"), (found[2], "gigabytes")):
        assert 0.5 <= cost.metrics[unit] / float(promised) <= 2, cost.metrics


def test_its_exercises_stand_where_their_ideas_are(path):
    keys = {key for key in EXERCISES if key.startswith(path.stem[:2])}
    solved = [(key_of(source(cell)), cell) for cell in cells(path, "code") if BEGINS in source(cell)]
    assert sorted(key for key, _ in solved) == sorted(keys)
    for key, cell in solved:
        said = "".join(
            "".join(output.get("text", output.get("data", {}).get("text/plain", "")))
            for output in cell["outputs"]
        )
        assert f"✓ {EXERCISES[key].title}" in said, key
    words = "\n".join(source(cell) for cell in cells(path, "markdown"))
    for key in keys:
        label = f"ex-{key.replace('.', '-')}"
        assert f"{{exercise}} {EXERCISES[key].title}\n:label: {label}\n" in words
        assert f"{{solution}} {label}\n:class: dropdown\n" in words
