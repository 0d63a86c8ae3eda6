"""What there is, by name; and recipes as files."""

import pytest

from test_cli import complaint, run  # noqa: F401
from vsecore.experiments.experiment import EXPERIMENTS
from vsecore.pooling import POOLS
from vsecore.recipes import RECIPES, get
from vsecore.recipes.written import written


def test_a_written_recipe_is_read_as_the_same(tmp_path):
    path = tmp_path / "own.yaml"
    for name in (*RECIPES, "2ad_grid_gru+gpo+as_printed"):
        path.write_text(written(get(name)), "utf-8")
        read = get(str(path))
        assert (read.hash(), read.name, read.source) == (get(name).hash(), name, get(name).source)
        assert written(read) == written(get(name))


def test_a_file_may_say_only_what_differs(tmp_path):
    path = tmp_path / "mine.yml"
    path.write_text(
        "recipe: vsepp_grid_gru+laptop\n"
        "image: {pool: {name: kmax, options: {k: 5}}, element_drop: 0.1}\n"
        "losses: [triplet, {name: mmd, weight: 0.01}]\n"
        "training: {epochs: 9}\n"
    )
    wanted = {
        "image.pool": {"name": "kmax", "options": {"k": 5}},
        "image.element_drop": 0.1,
        "training.epochs": 9,
    }
    wanted["losses"] = ["triplet", {"name": "mmd", "weight": 0.01}]
    assert get(str(path)).hash() == get("vsepp_grid_gru+laptop").override(wanted).hash()
    assert get(str(path)).name == "mine"
    assert (
        get(f"{path}+gpo").hash()
        == get("vsepp_grid_gru+laptop+gpo").override({**wanted, "image.pool": "gpo"}).hash()
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no settings"),
        ("a: [", "YAML"),
        ("a: &x 1\nb: *x", "aliases"),
        ("training: {epoch: 3}", "training.epochs"),
        ("recipe: vsepp_grid_gr", "vsepp_grid_gru"),
        ("recipe: other.yaml", "another file"),
        ("dim: 2020-01-01", "JSON|dim"),
        ("[" * 100_000, "YAML"),
    ],
)
def test_a_wrong_file_is_told_in_a_sentence(content, words, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(content)
    with pytest.raises(ValueError, match=words):
        get(str(path))


def test_everything_is_listed_and_a_typo_is_answered_by_what_is_near(complaint):  # noqa: F811
    assert all(f"\n  {name}(" in run("parts", "pool") for name in POOLS)
    assert "Source: Chen" in run("parts", "offline_triplet") and "Source:" not in run("parts", "loss")
    assert all(f"{name}: " in run("experiments") for name in EXPERIMENTS)
    for arguments, near in (
        (["recipes", "dive_grid_gruu"], "dive_grid_gru"),
        (["parts", "gppo"], "gpo"),
        (["experiment", "2ad_poolin"], "2ad_pooling"),
        (["train", "vsepp_grid_gru", "--set", "image.pool=kmx"], "kmax"),
    ):
        assert f"did you mean {near}" in complaint(*arguments)
