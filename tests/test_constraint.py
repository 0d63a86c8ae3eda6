"""What is followed of a constraint in training, and how the records of an experiment have it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from small import train
from test_latent_targets import data_with_targets
from vsecore.experiments import EXPERIMENTS, LESSON_SCALE, Arm, running
from vsecore.experiments import run as run_experiment
from vsecore.experiments.watching import (
    ABOVE_BOUND,
    BOUND_MET,
    HIGHEST,
    LEFT,
    LOWEST,
    RETURNS,
    Watch,
    asked_of,
    metrics,
    observe_losses,
)
from vsecore.losses import InfoNCE
from vsecore.losses.lagrange import Constraint
from vsecore.recipes import get
from vsecore.records import find, write
from vsecore.training import fit_in_rounds


def step(epoch, contrast, rec=None, multiplier=None, bound=0.5):
    losses, terms = {"info_nce": InfoNCE()}, {"info_nce": torch.tensor(contrast)}
    if rec is not None:
        constraint = Constraint(None if multiplier is None else bound)
        constraint.reconstruction = torch.tensor(rec)
        if multiplier is not None:
            constraint.multiplier.raw.fill_(multiplier)
        losses["latent_target"] = SimpleNamespace(constraint=constraint)
        terms["latent_target"] = torch.tensor(9.0)
    return SimpleNamespace(epoch=epoch, terms=terms, system=SimpleNamespace(losses=losses))


def followed(*steps):
    return metrics(
        [{"epoch": one.epoch} | {name: float(x) for name, x in observe_losses(one).items()} for one in steps]
    )


def test_the_losses_of_each_epoch_are_means_and_the_multiplier_is_that_of_its_end():
    found = followed(
        step(0, 4.0, 1.0, 2.0), step(0, 2.0, 0.6, 4.0), step(1, 1.0, 0.5, 1.0), step(1, 0.5, 0.25, -1.0)
    )
    assert found == pytest.approx(
        {
            "contrast_mean": 1.875,
            "contrast_end": 0.75,
            "contrast_in_1": 3.0,
            "contrast_in_2": 0.75,
            "reconstruction_in_1": 0.8,
            "reconstruction_in_2": 0.375,
            "multiplier_after_1": 4.0,
            "multiplier_after_2": 0.0,  # as it is used, whatever is behind it
            ABOVE_BOUND: -25.0,
            BOUND_MET: 2.0,
            HIGHEST: 4.0,
            LOWEST: 0.0,
            LEFT: 0.0,
            RETURNS: 0.0,
        }
    )


def test_a_return_is_counted_where_the_multiplier_rises_from_0():
    path = [1.0, 0.0, 0.0, 0.5, 0.0, 0.1, 0.4, 0.1]
    found = followed(*(step(0, 1.0, 1.0, value) for value in path))
    assert (found[RETURNS], found[HIGHEST], found[LOWEST]) == (2, 1.0, 0.0)
    assert found[LEFT] == pytest.approx(10) and found[BOUND_MET] == 0
    assert followed(step(0, 1.0, 1.0, 0.0))[LEFT] == 0
    assert followed(step(0, 1.0, 0.5, 1.0))[BOUND_MET] == 1, "a loss at its bound meets it"


@pytest.mark.parametrize("variant", ["", "+ltd", "+ltd_constraint", "+itd", "+itd_constraint"])
def test_a_training_gives_what_a_record_is_asked_for(variant, tmp_path):
    small = {"dim": 16, "text.encoder.word_dim": 8, "text.encoder.minimum_count": 1}
    small |= {"training.batch_size": 10, "training.epochs": 2}
    wanted, watch = get(f"ltd_grid_gru{variant}", small), Watch(tmp_path, [observe_losses])
    run = train(wanted, data_with_targets(), callback=watch)
    found = metrics(watch.steps())
    assert asked_of(wanted) <= found.keys()
    assert (RETURNS in found) == (RETURNS in asked_of(wanted)) == ("constraint" in variant)
    for entry in run.history:
        contrast = entry.get("loss_info_nce", entry["loss"])
        assert found[f"contrast_in_{entry['epoch'] + 1}"] == pytest.approx(contrast, rel=1e-5)


def test_an_experiment_that_follows_losses_records_them_and_tunes_by_older_records(tmp_path, monkeypatch):
    """A record without them has a curve, which is all that choosing a learning rate needs."""
    lesson = {"dim": 8, "text.encoder.word_dim": 4, "text.encoder.minimum_count": 1}
    lesson |= {"training.epochs": 1, "training.batch_size": 10, "training.learning_rate": 0.01}
    monkeypatch.setitem(LESSON_SCALE, "small", lesson)
    monkeypatch.setattr(running, "record_references", lambda *given: None)
    monkeypatch.setattr(running, "with_targets", lambda opened: opened)
    monkeypatch.setattr(running, "cache_folder", lambda name: tmp_path / "cache" / name)
    trained = []

    def count(*given, **options):
        trained.append(given[0].name)
        return fit_in_rounds(*given, **options)

    monkeypatch.setattr(running, "fit_in_rounds", count)
    arms = {"one": Arm("+ltd_constraint")}
    plain = replace(EXPERIMENTS["latent_bounds"], arms=arms, features="grid", follows_losses=False)
    monkeypatch.setitem(EXPERIMENTS, "plain", plain)
    monkeypatch.setitem(EXPERIMENTS, "followed", replace(plain, follows_losses=True))
    data, keywords = data_with_targets(), {"seeds": (0,), "scale": "lesson", "folder": tmp_path}
    keywords["log"] = lambda line: None
    for name in ("plain", "followed", "followed", "plain"):
        run_experiment(name, lambda kind: data, **keywords)
    assert len(trained) == 2
    (entry,) = find(tmp_path)
    assert asked_of(get("ltd_grid_gru+ltd_constraint")) <= entry.metrics.keys()

    def older():
        (entry,) = find(tmp_path)
        without = {name: entry.metrics[name] for name in entry.metrics if name != RETURNS}
        write(replace(entry, metrics=without), tmp_path)

    def record(data, **options):
        runner = running._Runner(EXPERIMENTS["followed"], lambda kind: data, running.Settings(**keywords))
        trainings = EXPERIMENTS["followed"].trainings("one", "grid", runner.recipe_of)
        return runner.record("one", trainings, 0, **options)

    older()
    record(data, for_tuning=True)
    assert len(trained) == 2
    record(data)
    assert len(trained) == 3
    rounded = replace(data, train=replace(data.train, targets=data.train.targets * np.float32(1 + 1e-6)))
    assert (rounded.train.targets != data.train.targets).any()
    record(rounded)
    assert len(trained) == 3, "another processor's last digits make no other training"
    older()
    record(rounded)
    assert len(trained) == 4
    (entry,) = find(tmp_path)  # the new record has taken the place of the old one
    assert RETURNS in entry.metrics
