"""Training what the claims lack: each training once, the cheapest claim first."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from studies import SIX, ridge, study
from vsecore.cli import app
from vsecore.experiments import FAIR_SCALE, get_experiment
from vsecore.experiments.missing import survey, train_missing, union

missing = sys.modules[train_missing.__module__]  # the package has a function of this name
SEEDS = {seed: {"rsum": 300.0, "i2t_map_at_r": 50.0, "t2i_map_at_r": 50.0} for seed in range(5)}
OTHER = {"against": "without token level", "statement": "the token level helps"}


@pytest.fixture(autouse=True)
def a_small_scale(monkeypatch):
    monkeypatch.setitem(FAIR_SCALE, "scenes", SIX)
    monkeypatch.setitem(FAIR_SCALE, "flickr8k", SIX)
    monkeypatch.setattr(missing, "BY_WORK", {"2ad": ["2ad_parts"]})


def test_arms_that_claims_share_are_counted_once(tmp_path, claimed):
    def lacking():
        return [union(arms.values()) for arms in survey("2ad", "scenes", tmp_path)[1]]

    claimed({}, OTHER)
    assert len(union(lacking())) == 21, "three arms, at three rates and from four more seeds"
    study(tmp_path, "2ad_parts", "all", SEEDS, "scenes")
    assert len(union(lacking())) == 14
    assert [len(each) for each in lacking()] == [7, 7]
    some = {seed: SEEDS[seed] for seed in range(3)}
    study(tmp_path, "2ad_parts", "without AdOpt", some, "scenes", rates={1e-3: 90.0, 2e-3: 80.0})
    assert len(lacking()[0]) == 1 + 2, "the third rate, and two seeds of the best so far"


def test_an_arm_lacks_its_miner():
    mined = missing.lacking(get_experiment("offline_parts"), "whole", "scenes", [])
    assert {seed for (*_, seed), name in mined.items() if name.endswith("+online")} == {0, 1, 2, 3, 4}


def test_a_record_without_a_measure_that_the_experiment_asks_for_is_lacking(tmp_path):
    name, arm = "relational_losses", next(iter(get_experiment("relational_losses").arms))
    study(tmp_path, name, arm, SEEDS, "scenes")
    entries = missing.ledger.study(name, "scenes", None, "fair", tmp_path)[1]
    lacks = missing.lacking(get_experiment(name), arm, "scenes", entries)
    assert {seed for *_, seed in lacks} == {0, 1, 2, 3, 4}
    asked = dict.fromkeys(("pairs_i2t", "pairs_t2i", "pairs_left_right", "pairs_other"), 1.0)
    study(tmp_path / "all", name, arm, {seed: one | asked for seed, one in SEEDS.items()}, "scenes")
    entries = missing.ledger.study(name, "scenes", None, "fair", tmp_path / "all")[1]
    assert not missing.lacking(get_experiment(name), arm, "scenes", entries)


def test_of_several_recipes_the_best_so_far_is_taken(tmp_path):
    for arm in ("mean", "max", "5-max", "Manual"):
        rates = {1e-3: 90.0, 2e-3: 100.0 + (arm == "max"), 4e-3: 95.0}
        study(tmp_path, "2ad_pooling", arm, {0: {"rsum": 1.0}}, "scenes", rates=rates)
    entries = missing.ledger.study("2ad_pooling", "scenes", None, "fair", tmp_path)[1]
    found = missing.lacking(get_experiment("2ad_pooling"), "simple, chosen on dev", "scenes", entries)
    assert {name.partition("+")[2] for name in found.values()} == {"max"}, found


def test_the_command_counts_the_claims_that_are_judged(tmp_path, claimed):
    ridge(tmp_path, "scenes")
    for arm in ("all", "without AdOpt"):
        study(tmp_path, "2ad_parts", arm, SEEDS, "scenes")
    command = ["experiment", "--missing", "--dry-run", "--record", str(tmp_path)]
    lines = CliRunner().invoke(app, command).output.splitlines()
    assert lines[-1] == "1 of 2 claims judged"
    assert lines[2].startswith("| 2ad | scenes | 1 | 1 | 0 | 0 | 0 |")
    assert lines[3].startswith("| 2ad | flickr8k | 1 | 0 | 1 | 0 | 10 |")


def test_a_process_of_the_pool_sees_no_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    for name in ("os.nice", "torch.set_num_threads", "signal.signal"):
        monkeypatch.setattr(name, lambda *given: None)
    missing._stand_back()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_the_cheapest_claim_is_trained_first(tmp_path, claimed, monkeypatch):
    claimed({}, OTHER, {"against": "without AdPool", "statement": "AdPool helps"})
    study(tmp_path, "2ad_parts", "all", SEEDS, "scenes")
    study(tmp_path, "2ad_parts", "without AdPool", {0: SEEDS[0]}, "scenes")
    trained = []

    def run(name, open_data, *, arms, seeds, folder, log):
        trained.extend(arms)
        assert open_data("grid") == (get_experiment(name).world, "grid")
        if arms == ["without AdPool"]:
            raise FloatingPointError("the loss is not finite")
        study(folder, name, *arms, SEEDS, "scenes")

    said = []
    monkeypatch.setattr(missing, "run", run)
    monkeypatch.setattr(missing, "executor", ThreadPoolExecutor)
    train_missing("scenes", lambda *named: named, folder=tmp_path, log=said.append)
    assert trained == ["without AdPool", "without AdOpt", "without token level"]
    assert [line.split()[0] for line in said] == ["next:", "without", "next:", "next:"], "others go on"
