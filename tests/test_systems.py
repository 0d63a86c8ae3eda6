"""All systems side by side: their rows, their sums on the same pictures, and what became of every claim."""

from dataclasses import replace

from course import systems
from studies import ridge, study
from vsecore import records
from vsecore.experiments import studied
from vsecore.experiments.experiment import BY_WORK

TWO = {"first": ("2ad_parts", "all"), "second": ("2ad_systems", "VSE++")}
"""Arms of two experiments."""


def test_thirteen_systems_cover_every_paper_and_each_has_a_row_of_its_own():
    assert len(systems.SYSTEMS) == 13
    rows = [tuple(systems.choices(systems.recipe_of(name)).values()) for name in systems.SYSTEMS]
    assert len(set(rows)) == len(rows)
    experiments = {experiment for _, experiment, _ in systems.SYSTEMS.values()}
    assert all(experiments & several.keys() for several in BY_WORK.values())


def test_arms_of_several_experiments_stand_side_by_side_as_each_experiment_has_them(tmp_path):
    assert studied(TWO, "scenes", folder=tmp_path) == {}
    study(tmp_path, *TWO["first"], {0: 300.0, 1: 310.0}, "scenes")
    study(tmp_path, *TWO["second"], {0: 200.0}, "scenes")
    found = studied({**TWO, "third": ("2ad_pooling", "GPO")}, "scenes", folder=tmp_path)
    assert list(found) == ["first", "second"]  # the third has no records
    for called, (name, arm) in TWO.items():
        assert found[called] == studied(name, "scenes", folder=tmp_path)[arm]


def test_systems_are_side_by_side_in_one_world_whatever_a_processor_makes_of_last_digits(tmp_path):
    study(tmp_path, *TWO["second"], {0: 200.0, 1: 201.0}, "scenes")
    study(tmp_path, "offline_losses", "VSE++", {0: 400.0}, "scenes")
    worlds = {"near duplicates": ("offline_losses", "VSE++"), **TWO}
    assert list(studied(worlds, "scenes", folder=tmp_path)) == ["second"]  # it has more trainings
    ridge(tmp_path, "scenes")
    before = {entry.file_name for entry in records.find(tmp_path)}
    study(tmp_path, *TWO["first"], {0: 300.0}, "scenes")
    for entry in records.find(tmp_path):
        if entry.file_name not in before:
            (tmp_path / entry.file_name).unlink()
            records.write(replace(entry, data=entry.data | {"fingerprint": "other"}), tmp_path)
    found = studied(worlds, "scenes", folder=tmp_path)
    assert list(found) == ["first", "second"] and found["first"].baseline == found["second"].baseline != {}
