"""The ladder: a table of records, and the README's copy of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from vsecore import records
from vsecore.experiments import ladder

METRICS = {f"{way}_r{k}": float(k) for way in ("i2t", "t2i") for k in (1, 5, 10)}


def entry(name, rsum, **changes):
    made = records.record(
        name,
        config={},
        config_hash=f"{rsum}",
        data={"name": "flickr8k"},
        seed=0,
        metrics=METRICS | {"rsum": rsum},
        seconds=1.0,
    )
    return replace(made, **changes)


def test_a_rung_is_the_mean_of_its_seeds_with_their_spread(tmp_path):
    for seed, rsum in enumerate((290.0, 300.0, 310.0)):
        records.write(entry("window_grid", rsum, seed=seed), tmp_path)
    *_, row = ladder.table(tmp_path).splitlines()
    assert "| 3 | 1.0 / 5.0 / 10.0 | 1.0 / 5.0 / 10.0 | 300.0 ± 10.0 |" in row


def test_ensembles_are_told_apart_by_their_members_and_other_splits_left_out(tmp_path):
    for count, split, rsum in ((2, "test", 330.0), (2, "dev", 999.0), (4, "test", 340.0)):
        config = {"members": [{}] * count, "split": split}
        records.write(entry("ensemble", rsum, config=config), tmp_path)
    rows = ladder.table(tmp_path).splitlines()[2:]
    assert [row.split(" | ")[-1] for row in rows] == ["330.0 |", "340.0 |"]


@pytest.mark.skipif(not ladder.FOLDER.is_dir(), reason="needs the records of a checkout")
def test_the_readme_shows_the_records():
    readme = Path(__file__).parents[1] / "README.md"
    assert ladder.table() in readme.read_text(encoding="utf-8")
