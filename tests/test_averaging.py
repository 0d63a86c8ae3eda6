"""Averaged snapshots: which steps, which weights, and a run that is stopped anywhere ends the same."""

import pytest
import torch
from torch import nn

from small import StopError, assert_same_run, recipe, stop_at, train
from vsecore.normalisation import ElementNorm
from vsecore.training import load_run
from vsecore.training.averaging import Averaging


class Counter(nn.Module):
    """A model whose one weight is the number of steps."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))


@pytest.mark.parametrize(
    "snapshots, steps, due",
    [(5, 100, [92, 94, 96, 98, 100]), (5, 18, [17, 18]), (1, 100, [100]), (3, 5, [5]), (5, 1, [1])],
)
def test_the_average_is_that_of_the_snapshots_of_each_epoch(snapshots, steps, due):
    model = Counter()
    averaging = Averaging(model, snapshots, steps)
    assert averaging.begins == due[0]
    for epoch in range(2):
        for done in range(1, steps + 1):
            with torch.no_grad():
                model.weight.fill_(100 * epoch + done)
            averaging.after_step(done)
        average = averaging.finish([], torch.device("cpu"))
        assert average.weight.item() == pytest.approx(100 * epoch + sum(due) / len(due))
        assert model.weight.item() == 100 * epoch + steps  # training goes on from its own weights


def test_without_snapshots_the_model_itself_is_evaluated():
    model = Counter()
    averaging = Averaging(model, 0, 10)
    averaging.after_step(10)
    assert averaging.begins == 10 and averaging.finish([], torch.device("cpu")) is model


def test_statistics_of_a_batch_normalisation_are_counted_anew():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = ElementNorm(2)

        def forward(self, x):
            return (x,)

        def scores(self, x):
            return self.norm(x)

    model = Model()
    averaging = Averaging(model, 1, 1)
    averaging.after_step(1)
    batches = [torch.randn(4, 3, 2) * 5 + 7 for _ in range(3)]
    average = averaging.finish(batches, torch.device("cpu"))
    rows = torch.stack([batch.flatten(0, 1) for batch in batches])  # (3, 12, 2)
    assert torch.allclose(average.norm.running_mean, rows.mean((0, 1)), atol=1e-5)
    assert torch.allclose(average.norm.running_var, rows.var(1).mean(0), rtol=1e-4)
    assert torch.equal(model.norm.running_mean, torch.zeros(2))  # the trained model keeps its own


@pytest.mark.parametrize("stop", [19, 20, 21, 40])  # snapshots are taken after 19 and 20, 39 and 40
def test_a_run_that_averages_and_is_stopped_anywhere_ends_with_the_same_bits(tmp_path, stop):
    wanted = recipe(training__snapshots=2, training__batch_size=2, training__epochs=2)
    whole = train(wanted)
    with pytest.raises(StopError):
        train(wanted, folder=tmp_path, callback=stop_at(stop), save_every=1)
    assert_same_run(train(wanted, folder=tmp_path, resume=True, save_every=1), whole)
    assert_same_run(load_run(tmp_path), whole)
    plain = train(wanted.override({"training.snapshots": 0}))
    assert plain.history[0]["loss"] == whole.history[0]["loss"]  # the same training
    assert plain.history != whole.history
