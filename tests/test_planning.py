"""What a training will cost: its arithmetic, on a clock that the test sets, and what fit then really does."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from small import recipe, small_data, small_split, train
from vsecore.cli import app
from vsecore.data.splits import Dataset
from vsecore.training import planning
from vsecore.training.distributed import best_device, hardware
from vsecore.training.planning import Cost, plan


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still, except that each step takes two seconds."""
    clock = type("Clock", (), {"now": 0.0})()
    monkeypatch.setattr(planning.time, "perf_counter", lambda: clock.now)
    step = torch.optim.Adam.step

    def slow(self, *rest, **options):
        clock.now += 2.0
        return step(self, *rest, **options)

    monkeypatch.setattr(torch.optim.Adam, "step", slow)
    return clock


def test_steps_evaluations_and_rounds_add_up():
    sizes = dict.fromkeys(("memory_bytes", "gpu_memory_bytes", "feature_bytes", "run_bytes"), 10**9)
    cost = Cost("a processor", steps=10, epochs=3, step_seconds=2.0, evaluation_seconds=5.0, **sizes)
    assert cost.seconds == 3 * (10 * 2 + 5)
    rounds = replace(cost, steps=100_000, first_round=cost, mining_seconds=7.0)
    assert rounds.seconds == 75 + 7 + 3 * (100_000 * 2 + 5)
    assert rounds.rows()["in all"] == "6.9 days"


@pytest.mark.parametrize("batches", ["pairs", "pictures"])
def test_the_steps_are_those_of_the_training(batches, clock):
    """Also where the training ends before the seconds are over; and all train the pretrained weights."""
    learner = recipe(training__batches=batches, training__batch_size=7, training__epochs=1)
    planned = plan(learner.override({"training.frozen_epochs": 1}), small_data(), seconds=1e6)
    assert planned.step_seconds == 2.0 and planned.device == hardware(best_device())
    assert planned.steps * planned.epochs == train(learner).history[-1]["step"]


@pytest.mark.parametrize("epochs", [1, 1000])
def test_a_single_step_an_epoch_is_timed_too(epochs, clock):
    learner = recipe(training__batches="pictures", training__batch_size=20, training__epochs=epochs)
    planned = plan(learner, small_data(), seconds=10.0, device="cpu")
    assert (planned.steps, planned.step_seconds) == (1, 2.0) and clock.now <= 12


def test_evaluation_grows_with_the_pictures_and_with_the_pairs(clock, monkeypatch):
    """What one comparison takes by itself counts once, and not again for all that could be so many pairs."""
    monkeypatch.setattr(planning, "PROBED", 7)
    embed, score = planning.encode, planning.score_embedded

    def slow_embed(model, split, *rest):
        clock.now += len(split)
        return embed(model, split, *rest)

    def slow_score(model, v, t):
        clock.now += 0.01 + 0.001 * len(v) * len(t)
        return score(model, v, t)

    monkeypatch.setattr(planning, "encode", slow_embed)
    monkeypatch.setattr(planning, "score_embedded", slow_score)
    planned = plan(recipe(), small_data(), seconds=1.0, device="cpu")
    assert planned.evaluation_seconds == pytest.approx(20 + 0.01 / 1.05**2 + 0.001 * 20 * 40)  # three times 7


def test_two_rounds_and_mining_are_counted(clock):
    learner = recipe("aoq_vsepp_grid_gru", first_round__texts=3, first_round__pictures=3)
    planned = plan(learner, small_data(), seconds=1.0, device="cpu")
    assert planned.first_round is not None and planned.first_round.first_round is None
    steps = 2 * planned.epochs * planned.steps
    assert planned.seconds == pytest.approx(steps * planned.step_seconds)  # the clock knows of steps alone


def test_stand_ins_for_negatives_are_never_own():
    for split in (small_split("train", 6, captions_of=lambda row: 1 + row % 3), small_split("train", 2)):
        planning._some_negatives(split).check(split)


def test_bytes_are_counted_and_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    split = small_split("train", 20)
    planned = plan(recipe(), Dataset("small", split, split, split, "grid"), seconds=0.01, device="cpu")
    assert planned.feature_bytes == 3 * np.asarray(split.pictures).nbytes
    weights = sum(weight.numel() for weight in train(recipe(training__epochs=1)).model.parameters())
    assert planned.run_bytes == 16 * weights
    assert planned.memory_bytes > 10**7 and planned.gpu_memory_bytes >= 0
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="seconds"):
        plan(recipe(), small_data(), seconds=0)


def test_the_command_plans_what_is_not_there(monkeypatch):
    from vsecore.data import rehearsal

    monkeypatch.setitem(rehearsal.PICTURES, "flickr8k", {"train": 60, "dev": 10, "test": 10})
    asked = ["plan", "vsepp_region_gru", "--data", "flickr8k", "--seconds", "0.01", "--device", "cpu"]
    small = ["--set=dim=16", "--set=training.batch_size=20", "--set=text.encoder.word_dim=8"]
    told = CliRunner().invoke(app, [*asked, *small], catch_exceptions=False)
    assert told.exit_code == 0 and "60 pictures of (36, 2048), 300 captions" in told.output
    assert "15 an epoch, 30 epochs" in told.output and "a step" in told.output
    with pytest.raises(FileNotFoundError, match="no folder coco: name the one with the pictures"):
        CliRunner().invoke(app, ["plan", "vsepp_pixels_gru", "--data", "coco"], catch_exceptions=False)
