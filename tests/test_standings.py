"""The scoreboard of the course."""

import pytest

from course import queries
from course.standings import BASELINE, ROWS, found, scoreboard
from vsecore import records
from vsecore.data.files import read_json
from vsecore.experiments import RESULTS, get_experiment


@pytest.mark.parametrize("number, row", [(number, row) for number, rows in ROWS.items() for row in rows])
def test_a_row_is_an_arm_of_the_plain_world(number, row):
    name, arm = ROWS[number][row]
    experiment = get_experiment(name)
    assert arm in experiment.arms and experiment.data_named("scenes") == "scenes"


def test_the_best_stands_first_and_what_a_notebook_adds_is_bold():
    rows = [line.split(" | ") for line in scoreboard("07").data.splitlines()[2:]]
    sums = [float(row[1].split()[0]) for row in rows]
    assert sums == sorted(sums, reverse=True)
    names = [row[0].removeprefix("| ") for row in rows]
    assert {name.strip("*") for name in names if name.startswith("**")} == {*ROWS["07"]} & {*found("07")}
    assert {name.strip("*") for name in names} == {*found("07"), BASELINE}


@pytest.mark.parametrize("name", queries.SYSTEMS)
def test_first_pictures_are_those_of_a_recorded_training(name):
    stored = read_json(queries.stored(name))
    wanted = {field: stored[field] for field in ("name", "config_hash", "seed")}
    (record,) = records.find(RESULTS, data="scenes", **wanted)
    assert stored["fingerprint"] == record.data["fingerprint"]  # features differ by processor
    own = [picture == caption // 5 for caption, picture in enumerate(queries.first_pictures()[name].tolist())]
    assert len(own) == 5000
    assert 100 * sum(own) / len(own) == pytest.approx(record.metrics["t2i_r1"], abs=1)  # another processor
