"""The scoreboard of the course."""

from __future__ import annotations

import re

import pytest

from course.standings import BASELINE, ROWS, found, scoreboard
from vsecore.experiments import FAIR_SCALE, get_experiment
from vsecore.recipes import get


@pytest.mark.parametrize("number, row", [(number, row) for number, rows in ROWS.items() for row in rows])
def test_a_row_is_an_arm_of_the_plain_world(number: str, row: str) -> None:
    name, arm = ROWS[number][row]
    experiment = get_experiment(name)
    assert arm in experiment.arms and experiment.data_named("scenes") == "scenes"


def test_the_best_stands_first_and_what_a_notebook_adds_is_bold() -> None:
    rows = [line.split(" | ") for line in scoreboard("07").data.splitlines()[2:]]
    sums = [float(row[1].split()[0]) for row in rows]
    assert sums == sorted(sums, reverse=True)
    names = [row[0].removeprefix("| ") for row in rows]
    assert {name.strip("*") for name in names if name.startswith("**")} == {*ROWS["07"]} & {*found("07")}
    assert {name.strip("*") for name in names} == {*found("07"), BASELINE}


def test_parameters_are_those_of_the_recipe() -> None:
    row = next(line for line in scoreboard("04").data.splitlines() if "VSE++" in line)
    (counted,) = re.findall(r"\d+,\d+", row)
    recipe = get("vsepp_region_gru", {"dim": FAIR_SCALE["scenes"]["dim"], "text.encoder.word_dim": 64})
    tokens = recipe.tokenizer(4 * ["a dog", "a cat"])
    more = recipe.tokenizer(4 * ["a dog", "a cat", "two birds"])
    one, two = (
        sum(weight.numel() for weight in recipe.build(246, words).parameters()) for words in (tokens, more)
    )
    assert two - one == 64 * (len(more) - len(tokens))
    assert (int(counted.replace(",", "")) - one) % 64 == 0
