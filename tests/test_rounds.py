"""Training in rounds: a first model mines for the second, and a kill anywhere changes nothing."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from small import (
    SMALL,
    StopError,
    assert_same_run,
    recipe,
    small_data,
    some_negatives,
    start,
    start_two,
    stop_at,
    train,
)
from vsecore import mining
from vsecore.experiments.recording import known_beforehand
from vsecore.mining.folder import MiningState
from vsecore.recipes import get
from vsecore.similarity import Cosine
from vsecore.training import fit_in_rounds, load_run, rounds
from vsecore.training.checkpoints import CHECKPOINT
from vsecore.training.identity import read_identity

SYSTEM = "aoq_vsepp_grid_gru"
LAST = 12  # steps of a round of three epochs, four batches each


def in_rounds(name=SYSTEM, data=None, changes=None, **options):
    """Train both rounds on the CPU."""
    few = {"first_round.texts": 6, "first_round.pictures": 4}
    chosen = get(name).override(SMALL | (few if get(name).first_round else {}) | (changes or {}))
    return fit_in_rounds(chosen, data or small_data(), device="cpu", **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    return in_rounds(folder=folder), folder


def test_the_second_round_learns_from_what_the_first_has_mined(whole):
    """Each part as its own function gives it."""
    run, folder = whole
    chosen, data = run.recipe, small_data()
    first = train(chosen.of_first_round(), data)
    assert_same_run(first, load_run(folder / "first_round"))
    negatives = mining.mine(first.model, data.train, first.tokenizer, 6, 4)
    told = f"{first.recipe.name} {first.recipe.hash()}"
    expected = mining.negatives_identity(first.model, data.train, first.tokenizer, 6, 4, told)
    kept = mining.load_negatives(folder / "negatives", data.train, expected=expected)
    assert negatives.texts.shape == (20, 6) and negatives.pictures.shape == (40, 4)
    assert np.array_equal(kept.texts, negatives.texts)
    assert np.array_equal(kept.pictures, negatives.pictures)
    second = train(chosen, data, negatives=negatives)
    assert_same_run(second, run)
    assert_same_run(load_run(folder), run)
    assert first.history != second.history
    assert run.data["negatives"] == second.data["negatives"]
    assert load_run(folder).recipe == chosen


@pytest.mark.parametrize(
    "stop",
    [
        {"first_callback": stop_at(LAST, "evaluated")},
        {"callback": stop_at(6)},
        {"callback": stop_at(LAST, "evaluated")},
    ],
    ids=["end of the first round", "second round", "end"],
)
def test_a_training_stopped_in_either_round_and_resumed_ends_with_the_same_bits(tmp_path, whole, stop):
    with pytest.raises(StopError):
        in_rounds(folder=tmp_path, save_every=1, **stop)
    with pytest.raises(ValueError, match="holds a run already: resume it"):
        in_rounds(folder=tmp_path)
    assert_same_run(in_rounds(folder=tmp_path, resume=True), whole[0])
    assert_same_run(load_run(tmp_path), whole[0])


def test_a_training_stopped_while_it_mines_goes_on_with_the_same_bits(tmp_path, whole, monkeypatch):
    steps = []
    with monkeypatch.context() as patched:
        patched.setattr(rounds, "mine", lambda *_, **__: (_ for _ in ()).throw(StopError))
        with pytest.raises(StopError):
            in_rounds(folder=tmp_path)
    note = {"first_callback": steps.append}
    assert_same_run(in_rounds(folder=tmp_path, resume=True, **note), whole[0])
    assert_same_run(in_rounds(folder=tmp_path, resume=True, callback=steps.append, **note), whole[0])
    assert not steps, "neither the first round nor a finished second one is trained again"


HALF_MINED = 3  # pictures, fewer than each caption gets


def killed_worker(place, folder):

    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    def save_and_die(self, *found):
        mining.folder.SAVE_SECONDS = 0
        save(self, *found)
        die()

    def mine_few_at_a_time(*arguments, **options):
        Cosine.block = (HALF_MINED, 8)
        return mining.mine(*arguments, **options)

    if place == "half mined":
        save, MiningState.keep = MiningState.keep, save_and_die
        rounds.mine = mine_few_at_a_time
        in_rounds(folder=folder)
    mining.models.save_negatives = die  # all is found, and nothing is written
    in_rounds(folder=folder)


@pytest.mark.parametrize("place", ["half mined", "mining"])
def test_a_training_killed_by_the_system_and_resumed_ends_with_the_same_bits(
    tmp_path, whole, place, monkeypatch
):
    done, resume = [], MiningState.resume

    def note(state, search):
        resume(state, search)
        done.append(search.done)

    monkeypatch.setattr(MiningState, "resume", note)
    if place == "half mined":
        monkeypatch.setattr(Cosine, "block", (HALF_MINED, 8))  # as in the other process
    assert start("test_rounds", "killed_worker", place, tmp_path).wait() == -signal.SIGKILL
    assert (tmp_path / "first_round" / CHECKPOINT).is_file()
    assert not (tmp_path / CHECKPOINT).exists()
    assert_same_run(in_rounds(folder=tmp_path, resume=True), whole[0])
    assert done == [HALF_MINED if place == "half mined" else 0]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"first_round.texts": 5}, r"first_round\.texts: 6 in the run, 5 now"),
        ({"losses.adaptive_offline_quintuplet.beta": 2.0}, r"adaptive_offline_quintuplet\.beta"),
        ({"first_round.losses.triplet.margin": 0.1}, r"first_round\.losses\.triplet\.margin: .* 0\.1 now"),
    ],
)
def test_a_training_goes_on_only_as_what_it_was(whole, changes, field):
    with pytest.raises(ValueError, match=f"holds another run.*{field}"):
        in_rounds(folder=whole[1], resume=True, changes=changes)


def test_the_seconds_are_those_of_both_rounds(monkeypatch):
    fit = rounds.fit

    def slow(*given, **options):
        run = fit(*given, **options)
        run.timings["seconds"] += 1000
        return run

    monkeypatch.setattr(rounds, "fit", slow)
    assert in_rounds().timings["seconds"] > 2000


def test_a_recipe_without_a_first_round_is_trained_once(tmp_path):
    assert_same_run(fit_in_rounds(recipe(), small_data(), device="cpu", folder=tmp_path), train())
    assert not (tmp_path / "first_round").exists()
    assert load_run(tmp_path).data == read_identity(tmp_path)["data"]


def test_a_teachers_negatives_take_the_place_of_the_first_round(tmp_path):
    data, steps = small_data(), []
    negatives = some_negatives(data)
    taught = {"negatives": negatives, "first_callback": lambda event: steps.append(event)}
    run = in_rounds(folder=tmp_path, **taught)
    assert not steps and not (tmp_path / "first_round").exists()
    assert_same_run(run, train(run.recipe, data, negatives=negatives))


def test_fine_tuning_goes_on_with_the_weights_of_the_first_round(tmp_path):
    tuned = {"first_round.keeps_weights": True, "training.learning_rate": 1e-9}
    run = in_rounds(changes=tuned | {"training.epochs": 1}, folder=tmp_path)
    first = load_run(tmp_path / "first_round")
    for name, weight in run.model.state_dict().items():
        torch.testing.assert_close(weight, first.model.state_dict()[name], atol=1e-6, rtol=0)
    assert run.data["weights"] and "weights" not in in_rounds(changes={"training.epochs": 1}).data
    assert_same_run(in_rounds(changes=tuned | {"training.epochs": 1}, folder=tmp_path, resume=True), run)
    with pytest.raises(ValueError, match=r"keeps_weights of recipe .* there are no weights to go on"):
        in_rounds(changes=tuned, negatives=some_negatives(small_data()))


@pytest.mark.parametrize("name", ["aoq_vsepp_grid_gru", "aoq_vsrn_grid+small_decoder", "aoq_scan_grid_gru"])
def test_each_system_learns_in_the_second_round(name):
    options = {"negatives": some_negatives(small_data())} if "scan" in name else {}
    run = in_rounds(name, changes={"training.batch_size": 5}, **options)
    assert run.history[-1]["loss"] < run.history[1]["loss"]


def distributed_worker(out):
    run = in_rounds(folder=Path(out) / "run" if "RANK" in os.environ else None)
    told = {"losses": [entry["loss"] for entry in run.history], "negatives": run.data["negatives"]}
    (Path(out) / f"{os.environ.get('RANK', 'alone')}.json").write_text(json.dumps(told))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def test_two_processes_train_in_rounds_as_one_does(tmp_path):
    start_two("test_rounds", "distributed_worker", tmp_path)
    distributed_worker(tmp_path)
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in ("alone", "0", "1")]
    assert told[1] == told[2]
    np.testing.assert_allclose(told[0]["losses"], told[1]["losses"], rtol=1e-4)


def test_what_a_training_mines_is_not_asked_of_a_record(whole):
    data = whole[0].data
    known = {name: value for name, value in data.items() if name != "negatives"}
    assert known_beforehand(data) == known_beforehand(known) == known != data
    assert known_beforehand({"name": "small", "members": [data]})["members"] == [known]
    assert known_beforehand({"name": "scenes", "fingerprint": "of a processor"}) == {"name": "scenes"}
    members = {"members": [{"fingerprint": "of another"}, {"fingerprint": "unlike"}]}
    first = {"members": [{"fingerprint": "first"}, {"fingerprint": "unlike"}]}
    assert known_beforehand(members, {"of another": "first"}) == first
