"""Going on: from a run's folder alone, with other data, and not longer than it helps."""

import json
import math
from pathlib import Path

import pytest
import torch

from small import assert_same_run, recipe, train
from test_cli import SMALL, complaint, features, run  # noqa: F401
from vsecore.experiments.tuning import best, is_settled, search
from vsecore.training import load_run
from vsecore.training.command import Command, remembered


def test_a_folder_knows_how_its_run_goes_on(features, tmp_path, monkeypatch, complaint):  # noqa: F811
    monkeypatch.chdir(features.parent)
    for name in ("vsepp_grid_gru", "auto"):  # folders that are called as what is no folder
        (features.parent / name).mkdir()
    options = ["--data", features.name, *SMALL, "--set", "training.epochs=3", "--seed", 5]
    with monkeypatch.context() as patched:
        patched.setattr("vsecore.cli.options.spoken", lambda metrics: 1 / 0)  # after the first epoch
        with pytest.raises(AssertionError):
            run("train", "vsepp_grid_gru", *options, "--out", tmp_path / "stopped")
    monkeypatch.chdir(tmp_path)
    run("train", "--resume", "stopped")
    run("train", "vsepp_grid_gru", *options[:1], features, *options[2:], "--out", "whole")
    assert_same_run(load_run("stopped"), load_run("whole"))
    assert "another run" in complaint("train", "--resume", "stopped", "--seed", "6")
    longer = complaint("train", "--resume", "stopped", "--set", "training.epochs=4")
    assert "(training.epochs: 3 in the run, 4 now)" in longer  # what else it was set to stays
    assert "no folder runs/none" in complaint("train", "--resume", "runs/none")
    (tmp_path / "stopped" / "command.json").unlink()
    assert "its own command" in complaint("train", "--resume", "stopped")
    for name, history in (("stopped", load_run("stopped").history), ("whole", load_run("whole").history)):
        lines = (tmp_path / name / "history.jsonl").read_text().splitlines()
        assert list(map(json.loads, lines)) == history
    found = json.loads((tmp_path / "whole" / "metrics.json").read_text())
    assert found["dev"] == load_run("whole").best and found["test"]["rsum"] > 0


def test_names_are_kept_as_they_are_and_paths_are_made_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenes").mkdir()
    for worlds, data in ((["scenes"], "scenes"), ([], str(tmp_path / "scenes"))):
        Command("vsepp_grid_gru").keep(tmp_path, worlds)
        assert remembered(tmp_path) == Command("vsepp_grid_gru", data=data)
    (tmp_path / "mine.yaml").touch()
    for name in ("mine.yaml", "mine.yaml+gpo"):
        Command(name).keep(tmp_path, ["scenes"])
        assert remembered(tmp_path) == Command(f"{tmp_path}/{name}")


def test_a_run_begins_where_another_ended_with_its_words(features, tmp_path, complaint):  # noqa: F811
    run("train", "vsepp_grid_gru", "--data", features, "--out", tmp_path / "first", *SMALL)
    rest = ["--set", "training.learning_rate=1e-12", "--out", tmp_path / "second"]
    run("train", "--init", tmp_path / "first", "--data", features, *rest)
    one, other = (load_run(tmp_path / name) for name in ("first", "second"))
    assert other.tokenizer.words == one.tokenizer.words
    for name, weight in one.model.state_dict().items():
        if "running" not in name and "num_batches" not in name:
            torch.testing.assert_close(weight, other.model.state_dict()[name], atol=1e-6, rtol=0)
    wrong = ["--init", tmp_path / "first", "--data", features, "--out", tmp_path / "third"]
    assert "another model" in complaint("train", "vsepp_grid_gru", *wrong, *SMALL, "--set", "dim=8")
    assert "no recipe" in complaint("train")
    assert "leave it out" in complaint("train", *wrong, "--vectors", tmp_path / "vectors.txt")


def test_patience_ends_a_training_that_no_longer_gets_better(tmp_path):
    patient = recipe(training__epochs=9, training__patience=2, training__learning_rate=1e-12)
    ended = train(patient, folder=tmp_path)
    best = [entry["rsum"] for entry in ended.history].index(ended.best["rsum"])
    assert len(ended.history) == best + 3 < 9
    assert patient.training.is_over(ended.history) and not patient.training.is_over(ended.history[:-1])
    assert_same_run(train(patient, folder=tmp_path, resume=True), ended)


def test_a_callback_that_returns_false_ends_the_training_with_its_epoch(tmp_path):
    ended = train(recipe(training__epochs=5), folder=tmp_path, callback=lambda event: event.step != 6)
    assert [entry["epoch"] for entry in ended.history] == [0, 1]  # four steps each
    assert len(train(recipe(training__epochs=5), folder=tmp_path, resume=True).history) == 5


@pytest.mark.parametrize("around", [0.01, 0.64])  # three doublings below the best, and three above it
def test_a_rate_is_sought_until_the_best_is_not_at_the_edge(around):
    tried = []

    def train_at(rate):
        tried.append(rate)
        return -abs(math.log2(rate / 0.08))

    rates = [around * 2.0**step for step in range(-10, 11)]
    results = search(train_at, rates[9:12], rates)
    assert best(results) == pytest.approx(0.08) and is_settled(results)
    assert sorted(tried) == sorted({around, *tried}) and len(tried) == 6, "each once"


def test_a_run_is_tuned_by_one_command(features, tmp_path, complaint):  # noqa: F811
    command = ["train", "vsepp_grid_gru", "--data", features, "--tune", *SMALL]
    assert "--out" in complaint(*command)
    said = run(*command, "--out", tmp_path)
    runs = {load_run(folder).recipe.training.learning_rate: load_run(folder) for folder in tmp_path.iterdir()}
    assert len(runs) >= 3
    chosen = best({rate: one.best["rsum"] for rate, one in sorted(runs.items())})
    assert said.count("test:") == 1, "the test split is looked at once"
    named = Path(said.split("run: ")[1].split(" (")[0])
    assert load_run(named).best["rsum"] == runs[chosen].best["rsum"]
    assert run(*command, "--out", tmp_path, "--resume").splitlines()[-3:-1] == said.splitlines()[-3:-1]
