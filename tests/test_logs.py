"""What a training writes for TensorBoard is what happened, also when it was killed and resumed."""

import pytest

from small import StopError, recipe, train

pytest.importorskip("tensorboard", reason="needs the extra logs")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from vsecore.training import logs as written
from vsecore.training.logs import TensorBoardLog


def read(folder):
    """Every curve as TensorBoard shows it: its steps and values."""
    shown = EventAccumulator(str(folder)).Reload()
    return {tag: [(one.step, one.value) for one in shown.Scalars(tag)] for tag in shown.Tags()["scalars"]}


def test_the_curves_are_the_losses_the_rates_and_the_history(tmp_path, monkeypatch):
    monkeypatch.setattr(written, "EVERY", 3)
    terms, rates = {}, {}

    def both(event):
        log(event)
        if event.kind == "step":
            terms[event.step] = {name: float(term) for name, term in event.terms.items()}
            rates[event.step] = event.learning_rate

    log = TensorBoardLog(tmp_path)
    run = train(recipe(), callback=both)
    shown = read(tmp_path)
    wanted = [1, *range(3, max(terms) + 1, 3)]
    (loss,) = terms[1]
    for tag, numbers in (
        (f"loss/{loss}", {step: terms[step][loss] for step in wanted}),
        ("learning_rate", rates),
    ):
        assert [step for step, _ in shown[tag]] == wanted
        assert [value for _, value in shown[tag]] == pytest.approx([numbers[step] for step in wanted])
    assert len(run.history) == 3
    for metric in ("rsum", "i2t_r1"):
        assert [step for step, _ in shown[f"dev/{metric}"]] == [entry["step"] for entry in run.history]
        assert [value for _, value in shown[f"dev/{metric}"]] == pytest.approx(
            [entry[metric] for entry in run.history]
        )


def test_what_a_killed_run_logged_beyond_its_checkpoint_is_hidden(tmp_path, monkeypatch):
    monkeypatch.setattr(written, "EVERY", 1)
    run, logs = tmp_path / "run", tmp_path / "logs"
    log = TensorBoardLog(logs)

    def kill(event):
        log(event)
        if event.step == 7:
            raise StopError

    with pytest.raises(StopError):
        train(folder=run, save_every=5, callback=kill)  # at step 5, so that two logged steps are lost
    log._writer.close()
    resumed = train(folder=run, resume=True, callback=TensorBoardLog(logs))
    steps = [step for step, _ in read(logs)["learning_rate"]]
    assert steps == list(range(1, resumed.history[-1]["step"] + 1))  # each once, in order
