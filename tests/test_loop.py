"""The loop, tested through `fit`: what the model is shown, how its weights move, which of them are kept."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from small import recipe, small_data, train
from vsecore.encoders import IMAGE_ENCODERS
from vsecore.encoders.pictures import CellEncoder
from vsecore.losses import LOSSES, Loss, triplet
from vsecore.training import encode, evaluate_split, load_run
from vsecore.training.optimization import make_optimizer
from vsecore.training.system import System


@pytest.fixture
def steps(add):
    """The steps that a loss named "witness" receives: it notes them, and is otherwise the triplet loss."""
    seen = []

    class Witness(Loss):
        def forward(self, step):
            seen.append(step)
            return triplet(step.scores, positives=step.positives)

    add(LOSSES, "witness", Witness)
    return seen


def at_each_step(note):
    """A callback that notes something about each step, and the list of its notes."""
    notes = []

    def callback(event):
        if event.kind == "step":
            notes.append(note(event))

    return callback, notes


def weights_of(event):
    return {name: weight.detach().clone() for name, weight in event.system.named_parameters()}


def gradients_of(event):
    return {name: weight.grad.clone() for name, weight in event.system.named_parameters()}


def gradient_of(event):
    """All gradients of a step, as one vector."""
    return torch.cat([gradient.flatten() for gradient in gradients_of(event).values()])


def first_weights(a_recipe):
    """The weights before the first step of a run with seed 0."""
    torch.manual_seed(0)
    model = a_recipe.build(7, a_recipe.tokenizer(small_data().train.captions))
    return {f"model.{name}": weight.detach().clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("batches", ["pairs", "pictures"])
def test_an_epoch_shows_everything_once_and_another_epoch_in_another_order(steps, batches):
    train(recipe(losses="witness", training__batches=batches, training__epochs=4))
    epochs = []
    for epoch in range(4):
        shown = [step.batch for step in steps if step.epoch == epoch]
        rows = torch.cat(
            [batch.caption_rows if batches == "pairs" else batch.picture_rows for batch in shown]
        )
        epochs.append(tuple(rows.tolist()))
        assert sorted(torch.cat([batch.caption_rows for batch in shown]).tolist()) == list(range(40))
    assert len(set(epochs)) == 4
    assert all(step.scores.shape == (10, 10 if batches == "pairs" else 20) for step in steps)
    assert [step.epoch for step in steps] == sorted(step.epoch for step in steps)


def test_steps_are_taken_in_training_mode(steps):
    def callback(event):
        if event.kind == "evaluated":
            event.system.eval()  # a callback that draws a curve may leave it so
        else:
            assert all(module.training for module in event.system.modules())

    train(recipe(losses="witness"), callback=callback)
    assert len(steps) == 12


@pytest.mark.parametrize("training", [True, False])
def test_an_encoded_split_sees_no_dropout_and_the_mode_is_given_back(training):
    drops = {"name": "transformer", "options": {"heads": 2, "drop": 0.5}}
    data, a_recipe = small_data(), recipe(image__reasoner=drops, text__reasoner=drops)
    tokenizer = a_recipe.tokenizer(data.train.captions)
    model = a_recipe.build(7, tokenizer).train(training)
    (v, t), (again_v, again_t) = (encode(model, data.dev, tokenizer) for _ in range(2))
    assert {module.training for module in model.modules()} == {training}
    model.encode_captions = None
    with pytest.raises(TypeError):
        encode(model, data.dev, tokenizer)
    assert {module.training for module in model.modules()} == {training}, "after an error too"
    assert torch.equal(v.vectors, again_v.vectors) and torch.equal(t.vectors, again_t.vectors)


RATES = {
    "constant": lambda s: 1,
    "step": lambda s: 0.5 ** (s // 8),
    "cosine": lambda s: (1 + math.cos(math.pi * s / 16)) / 2,
    "linear": lambda s: 1 - s / 16,
    "exponential": lambda s: 0.5 ** (s / 8),
}


@pytest.mark.parametrize("schedule", RATES)
@pytest.mark.parametrize("warmup", [0, 3])
def test_the_rate_of_each_step_is_the_schedules_closed_form(schedule, warmup):
    callback, rates = at_each_step(lambda event: event.learning_rate)
    a_recipe = recipe(
        training__epochs=4,
        training__schedule=schedule,
        training__decay_epochs=2,
        training__decay_factor=0.5,
        training__warmup_steps=warmup,
    )
    run = train(a_recipe, callback=callback)
    closed = [0.01 * RATES[schedule](s) * min(1, (s + 1) / (warmup + 1)) for s in range(16)]
    assert rates == pytest.approx(closed, rel=1e-6)
    assert [entry["learning_rate"] for entry in run.history] == pytest.approx(closed[3::4], rel=1e-6)


class CellsAfterABackbone(CellEncoder):
    """An encoder with a layer that counts as pretrained."""

    reads = "grid"

    def __init__(self, feature_dim: int, dim: int) -> None:
        super().__init__(feature_dim, dim)
        self.backbone = nn.Linear(feature_dim, feature_dim)

    def forward(self, pictures, mask=None):
        return self.project(self.backbone(pictures)), mask


@pytest.mark.parametrize("warmup", [0, 3])
def test_the_first_step_of_adam_moves_each_weight_by_its_rate(add, warmup):
    """Adam divides the first gradient by its own size. A backbone's rate is a fraction of the others'."""
    add(IMAGE_ENCODERS, "after_a_backbone", CellsAfterABackbone)
    a_recipe = recipe(
        image__encoder="after_a_backbone",
        training__epochs=1,
        training__warmup_steps=warmup,
        training__pretrained_factor=0.05,
    )
    callback, notes = at_each_step(lambda event: (weights_of(event), gradients_of(event)))
    train(a_recipe, callback=callback)
    (after, gradients), before, seen = notes[0], first_weights(a_recipe), 0
    for name, weight in before.items():
        rate = 0.01 / (warmup + 1) * (0.05 if "backbone" in name else 1)
        felt = gradients[name].abs() > 1e-4  # far above the epsilon in Adam's denominator
        seen += int(felt.sum())
        moved = -rate * gradients[name].sign()
        torch.testing.assert_close((after[name] - weight)[felt], moved[felt], rtol=1e-3, atol=1e-7)
    assert seen > 1000


def test_what_predicts_sets_has_a_rate_of_its_own(add):
    add(IMAGE_ENCODERS, "after_a_backbone", CellsAfterABackbone)
    pool = {"name": "pie_net", "options": {"global_pool": "seq2seq"}}
    changes = {"image__pool": pool, "text__pool": pool, "image__encoder": "after_a_backbone"}
    data = small_data()
    for sets, backbone, groups in ((0.05, 0.2, 3), (0.2, 0.2, 2), (1.0, 0.2, 2), (0.0, 1.0, 2)):
        a_recipe = recipe(**changes, training__set_factor=sets, training__pretrained_factor=backbone)
        system = System(a_recipe, data, a_recipe.tokenizer(data.train.captions))
        optimizer = make_optimizer(system, a_recipe.training)
        rates = {id(one): group["lr"] for group in optimizer.param_groups for one in group["params"]}
        assert len(optimizer.param_groups) == groups and optimizer.param_groups[0]["lr"] == 0.01
        assert rates.keys() == {id(one) for one in system.parameters()}
        for name, weight in system.named_parameters():  # the pool inside is no part of the prediction
            factor = sets if ".predict." in name else backbone if ".backbone." in name else 1
            assert rates[id(weight)] == pytest.approx(0.01 * factor), name
        assert sum(".predict." in name for name, _ in system.named_parameters()) > 8


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW"])
def test_a_weight_without_gradient_moves_only_by_weight_decay(optimizer):
    """AdamW shrinks it by a share of itself; Adam takes the decay for a gradient, and moves by the rate."""
    a_recipe = recipe(
        training__optimizer=optimizer,
        training__weight_decay=0.5,
        training__warmup_steps=3,
        training__epochs=1,
    )
    callback, notes = at_each_step(lambda event: (weights_of(event), event.learning_rate))
    run = train(a_recipe, callback=callback)
    table, unused = "model.text_encoder.embedding.weight", run.tokenizer.blank  # no word is dropped here
    before = first_weights(a_recipe)[table][unused]
    rates = [rate for _, rate in notes]
    if optimizer == "AdamW":
        shrunk = before * math.prod(1 - 0.5 * rate for rate in rates)
        torch.testing.assert_close(notes[-1][0][table][unused], shrunk)
    else:
        torch.testing.assert_close(notes[0][0][table][unused], before - rates[0] * before.sign())


def test_a_gradient_is_of_its_own_step_alone():
    """Here every batch is the whole set and weights stand still: each step has the gradient of the first."""
    a_recipe = recipe(
        losses="info_nce", training__batch_size=40, training__learning_rate=1e-12, training__clip_norm=1e9
    )
    callback, gradients = at_each_step(gradient_of)
    train(a_recipe, callback=callback)
    assert len(gradients) == 3
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-3, atol=1e-6)


def first_gradient(**changes):
    callback, gradients = at_each_step(gradient_of)
    train(recipe(training__epochs=1, **changes), callback=callback)
    return gradients[0]


def test_a_gradient_is_shortened_to_the_limit_and_left_alone_below_it():
    whole = first_gradient(training__clip_norm=1e9)
    norm = float(whole.norm())
    assert torch.equal(first_gradient(training__clip_norm=1.1 * norm), whole)
    torch.testing.assert_close(first_gradient(training__clip_norm=norm / 4), whole / 4)


def test_a_loss_counts_as_much_as_its_weight():
    once, thrice, none = (
        first_gradient(losses=["triplet", {"name": "info_nce", "weight": weight}], training__clip_norm=1e9)
        for weight in (1.0, 3.0, 0.0)
    )
    assert torch.equal(none, first_gradient(training__clip_norm=1e9))
    assert (once - none).norm() > 0.01
    torch.testing.assert_close(thrice - none, 3 * (once - none), rtol=1e-3, atol=1e-5)


def test_what_a_step_draws_depends_on_the_seed_and_its_number_alone(add):
    drawn = []

    class Draws(Loss):
        def forward(self, step):
            drawn.append(float(torch.rand(())))
            return triplet(step.scores, positives=step.positives)

    def draws(**options):
        drawn.clear()
        changes = {name: options.pop(name) for name in list(options) if "__" in name}
        train(recipe(losses="draws", **changes), **options)
        return list(drawn)

    add(LOSSES, "draws", Draws)
    once = draws()
    assert len(set(once)) == 12
    assert draws(callback=lambda event: torch.rand(event.step)) == once
    assert draws(training__batch_size=20) == once[:6]
    assert not set(draws(seed=1)) & set(once)


def test_a_run_that_ends_badly_keeps_and_reports_its_best_epoch(tmp_path):
    """After five epochs the learning rate becomes a thousand times as high."""
    a_recipe = recipe(training__epochs=7, training__decay_epochs=5, training__decay_factor=1000)
    data, kept = replace(small_data(), dev=small_data().dev.subset(12)), {}

    def callback(event):
        if event.kind == "evaluated":
            kept[event.epoch] = {name: x.clone() for name, x in event.model.state_dict().items()}

    run = train(a_recipe, data, folder=tmp_path, callback=callback)
    sums = [entry["rsum"] for entry in run.history]
    best = int(np.argmax(sums))
    assert best < 5 and sums[-1] < sums[best]
    assert run.best == run.history[best]
    for again in (run, load_run(tmp_path)):
        assert again.best == run.best
        assert not again.model.training
        for name, weight in again.model.state_dict().items():
            assert torch.equal(weight, kept[best][name]), name
        metrics = evaluate_split(again.model, data.dev, again.tokenizer)
        assert metrics == {name: run.best[name] for name in metrics}


def test_of_equal_epochs_the_first_is_kept():
    run = train(recipe(training__learning_rate=1e-12))
    assert len({entry["rsum"] for entry in run.history}) == 1
    assert run.best == run.history[0]
