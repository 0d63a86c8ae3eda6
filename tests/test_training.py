"""Training: it learns, repeats itself bit for bit, survives being killed; many processes are one."""

import io
import json
import math
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import accelerate.utils
import numpy as np
import pytest
import safetensors.torch
import torch

from small import make_bert, recipe, small_data, small_split, train
from vsecore import processes
from vsecore.data.batches import make_loader
from vsecore.data.features import MappedPictures
from vsecore.data.files import locked
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.splits import Split
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.word_pieces import BERTTokenizer
from vsecore.encoders import TEXT_ENCODERS
from vsecore.encoders.words import BiGRUEncoder
from vsecore.evaluation import evaluate
from vsecore.losses import LOSSES
from vsecore.model import VSE
from vsecore.training import checkpoints, distributed, encode, evaluate_split, fit, load_run, loop
from vsecore.training.identity import read_identity, tokenizer_digest
from vsecore.training.optimization import LossMeter, make_optimizer, make_schedule
from vsecore.training.system import System


@pytest.fixture(autouse=True)
def one_quiet_thread(monkeypatch):
    """Small products are fastest on one thread, and the same bits need the same number of them."""
    monkeypatch.setenv("VSECORE_BATCH", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights(run):
    return dict(run.model.state_dict())


def assert_same_run(one, other):
    """The same bits: history and weights."""
    assert one.history == other.history
    assert weights(one).keys() == weights(other).keys()
    for name, weight in weights(one).items():
        assert torch.equal(weight, weights(other)[name]), name


class StopError(Exception):
    """Raised by a callback to end a run."""


def stop_at(step):
    def callback(event):
        if event.kind == "step" and event.step == step:
            raise StopError

    return callback


@pytest.fixture(scope="module")
def uninterrupted():
    """The run of the small recipe that nothing stops; it is only looked at."""
    return train()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run of one epoch, to be copied and damaged."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(recipe(training__epochs=1), folder=folder)
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "copy"))


# It learns.


@pytest.mark.parametrize("loss", ["triplet", "info_nce"])
@pytest.mark.parametrize("batches", ["pairs", "pictures"])
def test_a_small_set_is_learned_by_heart(loss, batches):
    part = {"name": loss, "options": {"warmup_epochs": 10} if loss == "triplet" else {}}
    changes = {
        "training__schedule": "constant",
        "training__epochs": 30,
        "training__learning_rate": 0.02,
        "dim": 32,
    }
    run = train(recipe(losses=[part], training__batches=batches, **changes))
    assert run.best["rsum"] == 600
    assert run.history[-1]["loss"] < run.history[0]["loss"]


def test_the_returned_model_is_that_of_the_best_epoch():
    run = train(recipe(training__epochs=4))
    assert run.best == max(run.history, key=lambda entry: entry["rsum"])
    data = small_data()
    assert evaluate_split(run.model, data.dev, run.tokenizer)["rsum"] == run.best["rsum"]
    assert not run.model.training


def test_the_returned_model_is_brought_to_the_cpu(monkeypatch):
    """Here it is there already, so that only the asking can be seen; the next test sees more."""
    asked = []
    monkeypatch.setattr(VSE, "cpu", lambda model: asked.append(model) or model)
    assert train(recipe(training__epochs=1)).model is asked[0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_run_on_a_gpu_returns_its_model_on_the_cpu_and_names_the_gpu():
    run = fit(recipe(training__epochs=1), small_data())
    assert {weight.device.type for weight in weights(run).values()} == {"cpu"}
    assert run.device == torch.cuda.get_device_name()
    assert train(recipe(training__epochs=1)).device != run.device


def test_gradients_reach_every_parameter():
    silent = set()

    def callback(event):
        if event.kind == "step":
            silent.update(name for name, p in event.model.named_parameters() if p.grad is None)

    train(recipe("vsepp_region_gru", training__epochs=1), small_data("region"), callback=callback)
    assert not silent


def test_history_and_timings_tell_what_happened():
    run = train()
    assert [entry["epoch"] for entry in run.history] == [0, 1, 2]
    assert [entry["step"] for entry in run.history] == [4, 8, 12]
    assert run.history[0].keys() >= {"learning_rate", "loss", "rsum", "i2t_r1", "t2i_medr"}
    assert 0 < run.timings["step_seconds"] < run.timings["seconds"]
    assert 0 < run.timings["data_wait"] < 1
    assert run.data["name"] == "small"
    assert (run.device, run.processes) == (distributed.hardware(torch.device("cpu")), 1)


def test_the_callback_sees_every_step_and_every_evaluation():
    events = []
    run = train(callback=events.append)
    assert [event.kind for event in events] == (["step"] * 4 + ["evaluated"]) * 3
    steps = [event for event in events if event.kind == "step"]
    assert [event.step for event in steps] == list(range(1, 13))
    assert all(event.scores.shape == (10, 10) and not event.scores.requires_grad for event in steps)
    assert all(event.metrics is None for event in steps)
    assert all(event.positives.diagonal().all() for event in steps)
    assert all(event.terms.keys() == {"triplet"} for event in steps)
    for entry, event in zip(run.history, [e for e in events if e.kind == "evaluated"], strict=True):
        assert event.metrics["rsum"] == entry["rsum"]
        losses = [float(e.loss) for e in steps if e.epoch == event.epoch]
        assert entry["loss"] == pytest.approx(np.mean(losses), rel=1e-5)


# It repeats itself.


def test_the_same_seed_gives_the_same_bits_and_another_gives_others():
    a_recipe = recipe(image__element_drop=0.3, text__word_drop=0.3)
    one, other = train(a_recipe), train(a_recipe)
    assert_same_run(one, other)
    assert train(a_recipe, seed=1).history != one.history


def test_neither_workers_nor_the_generator_change_a_run():
    a_recipe = recipe(image__element_drop=0.3, text__word_drop=0.3, training__epochs=1)
    one = train(a_recipe)
    torch.manual_seed(99)
    assert_same_run(one, train(a_recipe, workers=1))


def test_a_seed_may_be_huge():
    one, other = (train(recipe(training__epochs=1), seed=seed) for seed in (20_000_000_000, 20_000_000_001))
    assert one.history != other.history


# It survives.


@cache
def with_dropout():
    """A recipe that draws in every step, under a schedule, and its run that nothing stops."""
    a_recipe = recipe(image__element_drop=0.2, training__schedule="cosine", training__warmup_steps=3)
    return a_recipe, train(a_recipe)


@pytest.mark.parametrize(("stop", "save_every"), [(6, None), (6, 1), (7, 2), (2, None), (12, 5)])
def test_a_run_stopped_anywhere_and_resumed_ends_with_the_same_bits(tmp_path, stop, save_every):
    a_recipe, whole = with_dropout()
    with pytest.raises(StopError):
        train(a_recipe, folder=tmp_path, save_every=save_every, callback=stop_at(stop))
    steps = []
    resumed = train(a_recipe, folder=tmp_path, resume=True, callback=lambda e: steps.append(e.step))
    assert_same_run(whole, resumed)
    expected = (stop - 1) // save_every * save_every if save_every else (stop - 1) // 4 * 4
    assert steps[0] == max(expected, (stop - 1) // 4 * 4) + 1, "no step is taken twice that was saved"


def killed_worker(folder):
    """What the process that is killed runs: it dies in the middle of an epoch and cannot tidy up."""

    def callback(event):
        if event.step == 7:
            os.kill(os.getpid(), signal.SIGKILL)

    torch.set_num_threads(1)
    train(folder=folder, callback=callback, save_every=3)


def start(function, *arguments, **environment):
    """Run a function of this file in another process."""
    command = f"import {Path(__file__).stem} as here; here.{function}(*{arguments!r})"
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment |= {"PYTHONPATH": paths}
    return subprocess.Popen([sys.executable, "-c", command], env=os.environ | environment)


def test_a_run_killed_by_the_system_and_resumed_ends_with_the_same_bits(tmp_path, uninterrupted):
    assert start("killed_worker", str(tmp_path)).wait() == -signal.SIGKILL
    state = checkpoints.load(tmp_path / checkpoints.CHECKPOINT)[1]["state"]
    assert (state["epoch"], state["batch"], state["step"]) == (1, 2, 6)
    old, young = (tmp_path / f".checkpoint.safetensors.000{number}.part" for number in (0, 1))
    for partial in (old, young):
        partial.write_bytes(b"half a checkpoint")
    os.utime(old, (time.time() - 90_000,) * 2)
    assert_same_run(uninterrupted, train(folder=tmp_path, resume=True))
    assert not old.exists(), "what a kill left behind is cleared away"
    assert young.exists(), "what another process may be writing is not"


def test_only_the_writing_process_clears_a_folder(tmp_path):
    left = tmp_path / ".checkpoint.safetensors.0000.part"
    with pytest.raises(StopError):
        train(folder=tmp_path, save_every=1, callback=stop_at(2))
    left.write_bytes(b"half a checkpoint")
    os.utime(left, (0, 0))
    data = small_data()
    system = System.build(recipe(), data, recipe().tokenizer(data.train.captions))
    optimizer = make_optimizer(system, recipe().training)
    identity = read_identity(tmp_path)
    tokenizer = recipe().tokenizer(data.train.captions)
    checkpoints.RunFolder(tmp_path, identity, writes=False).open(True, system, optimizer, tokenizer)
    assert left.exists()
    checkpoints.RunFolder(tmp_path, identity).open(True, system, optimizer, tokenizer)
    assert not left.exists()


@pytest.mark.parametrize("write", range(1, 5))
def test_a_kill_before_any_save_leaves_the_weights_of_the_entry_that_is_called_best(
    tmp_path, monkeypatch, write
):
    """Also where the same epoch run again would end elsewhere, as it may on a GPU."""
    a_recipe, data, whole = recipe(training__epochs=4), small_data(), checkpoints.save
    written = []

    def save(path, tensors, facts):
        written.append(path)
        if len(written) == write:
            raise StopError
        whole(path, tensors, facts)

    def disturb(event):
        event.model.image_encoder.project.weight.data.mul_(0.9)

    def assert_consistent(run):
        assert run.best == max(run.history, key=lambda entry: entry["rsum"])
        metrics = evaluate_split(run.model, data.dev, run.tokenizer)
        assert metrics == {name: run.best[name] for name in metrics}

    monkeypatch.setattr(checkpoints, "save", save)
    with pytest.raises(StopError):
        train(a_recipe, data, folder=tmp_path)
    monkeypatch.setattr(checkpoints, "save", whole)
    shutil.copytree(tmp_path, tmp_path / "copy")
    if write > 1:
        assert_consistent(load_run(tmp_path))
    assert_same_run(train(a_recipe, data), train(a_recipe, data, folder=tmp_path, resume=True))
    with pytest.raises(StopError):  # a second interruption, after which the first must not be felt
        train(a_recipe, data, folder=tmp_path / "copy", resume=True, save_every=1, callback=stop_at(15))
    assert_consistent(load_run(tmp_path / "copy"))
    assert_consistent(train(a_recipe, data, folder=tmp_path / "copy", resume=True, callback=disturb))


def test_resume_begins_where_there_is_nothing_and_ends_where_all_is_done(tmp_path):
    first = train(folder=tmp_path, resume=True)
    steps = []
    second = train(folder=tmp_path, resume=True, callback=lambda event: steps.append(event.step))
    assert not steps
    assert_same_run(first, second)


def test_a_run_is_never_overwritten_by_accident(copied):
    with pytest.raises(ValueError, match="holds a run already: resume it"):
        train(recipe(training__epochs=1), folder=copied)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (
            {"a_recipe": recipe(losses__triplet__margin=0.3)},
            r"\(losses\.triplet\.margin: not set in the run, 0\.3 now\)",
        ),
        ({"data": small_data(seed=1)}, r"\(the data's pictures, features or captions: not the same"),
        ({"seed": 5}, r"\(seed: 0 in the run, 5 now\)"),
        (
            {"seed": 5, "a_recipe": recipe(training__batch_size=5, image__pool="max")},
            r"\(image\.pool\.name: 'mean' in the run, 'max' now; "
            r"training\.batch_size: 10 in the run, 5 now; seed: 0",
        ),
        ({"vectors": torch.zeros(33, 8)}, r"\(word vectors: none in the run, some now\)"),
        (
            {"tokenizer": Vocabulary([f"other{number}" for number in range(29)])},
            r"\(the tokenizer's words: not the same\)",
        ),
    ],
)
def test_a_run_goes_on_only_as_what_it_was(tmp_path, change, field):
    with pytest.raises(StopError):
        train(folder=tmp_path, save_every=1, callback=stop_at(2))
    before = (tmp_path / checkpoints.CHECKPOINT).read_bytes()
    with pytest.raises(ValueError, match=field):
        train(**change, folder=tmp_path, resume=True)
    assert (tmp_path / checkpoints.CHECKPOINT).read_bytes() == before


@pytest.mark.parametrize("where", ["features", "vectors"])
def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(
    tmp_path, where, uninterrupted
):
    def poison(event):
        if event.step == 6:
            parameter = (
                event.model.image_encoder.project.weight
                if where == "features"
                else event.model.text_encoder.embedding.weight
            )
            parameter.data.fill_(math.nan)

    with pytest.raises(FloatingPointError, match=r"not finite at step 7 .*training\.learning_rate"):
        train(folder=tmp_path, callback=poison)
    tensors, facts = checkpoints.load(tmp_path / checkpoints.CHECKPOINT)
    assert facts["state"]["step"] == 4
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    assert_same_run(uninterrupted, train(folder=tmp_path, resume=True))


def test_the_meter_names_the_first_bad_step_however_late_it_looks():
    meter = LossMeter({}, torch.device("cpu"))
    meter.patience = 50
    for step in range(1, 50):
        terms = {"one": torch.tensor(1.0), "other": torch.tensor(math.inf if step in (17, 30) else 1.0)}
        meter.add(terms, torch.tensor(1.0), step, learning_rate=0.1)
    with pytest.raises(FloatingPointError, match="step 17"):
        meter.read()


def test_a_gradient_that_is_not_finite_is_seen_too():
    with pytest.raises(FloatingPointError, match="step 1"):
        meter = LossMeter({}, torch.device("cpu"))
        meter.add({"triplet": torch.tensor(1.0)}, torch.tensor(math.nan), 1, 0.1)


def test_the_meter_adds_up_each_term_and_goes_on_from_what_was_there():
    meter = LossMeter({"one": 5.0}, torch.device("cpu"))
    for step in (1, 2):
        meter.add({"one": torch.tensor(1.0), "other": torch.tensor(0.5)}, torch.tensor(1.0), step, 0.1)
    assert meter.read() == {"one": 7.0, "other": 1.0}


# It is kept.


def test_a_run_is_rebuilt_from_its_folder_alone(tmp_path):
    run = train(folder=tmp_path / "run")
    moved = shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    loaded = load_run(moved)
    assert_same_run(run, loaded)
    assert loaded.best == run.best
    assert loaded.recipe == run.recipe
    assert loaded.tokenizer.words == run.tokenizer.words
    assert loaded.data == run.data
    assert not loaded.model.training


def test_other_vectors_make_another_run(tmp_path):
    size = len(recipe().tokenizer(small_data().train.captions))
    vectors = torch.randn(size, 8, generator=torch.Generator().manual_seed(0))
    one = train(recipe(training__epochs=1), folder=tmp_path, vectors=vectors)
    for other, how in ((None, "some in the run, none now"), (vectors + 1, "not the same")):
        with pytest.raises(ValueError, match=rf"\(word vectors: {how}\)"):
            train(recipe(training__epochs=1), folder=tmp_path, vectors=other, resume=True)
    again = train(recipe(training__epochs=1), folder=tmp_path, vectors=vectors.clone(), resume=True)
    assert_same_run(one, again)


def test_no_file_of_a_run_is_a_pickle(copied):
    for path in copied.iterdir():
        if path.suffix == ".json":
            json.loads(path.read_text())
        else:
            assert path.suffix == ".safetensors"
            assert safetensors.torch.load_file(path)


def test_damaged_runs_are_told_by_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no run \(it has no run\.json\)"):
        load_run(tmp_path)
    path = tmp_path / checkpoints.CHECKPOINT
    with pytest.raises(StopError):
        train(folder=tmp_path, save_every=1, callback=stop_at(3))
    with pytest.raises(FileNotFoundError, match="no finished epoch"):
        load_run(tmp_path)
    with pytest.raises(StopError):
        train(folder=tmp_path, save_every=1, callback=stop_at(7), resume=True)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors is damaged"):
        load_run(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"checkpoint\.safetensors"):
        load_run(tmp_path)
    path.write_bytes(whole)
    tensors, facts = checkpoints.load(path)
    for kind, told in (
        ({}, r'lacks the field "state"'),
        (
            facts | {"state": facts["state"] | {"step": "many"}},
            r"state\.step is 'many': wanted a whole number",
        ),
        (facts | {"state": facts["state"] | {"step": 3}}, r"step 3, which no run reaches: put the run's own"),
    ):
        checkpoints.save(path, tensors, kind)
        with pytest.raises(ValueError, match=rf"checkpoint\.safetensors: .*{told}"):
            load_run(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json is not JSON"):
        load_run(tmp_path)
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(ValueError, match=r"run\.json is \[\]: wanted named values"):
        load_run(tmp_path)


def test_settings_that_a_run_does_not_know_yet_have_their_defaults(tmp_path, uninterrupted):
    """A version that adds a setting reads, and goes on with, the runs of the one before."""
    with pytest.raises(StopError):
        train(folder=tmp_path, save_every=1, callback=stop_at(6))
    path = tmp_path / "run.json"
    content = json.loads(path.read_text())
    del content["precision"], content["recipe"]["training"]["clip_norm"], content["recipe"]["similarity"]
    path.write_text(json.dumps(content))
    assert load_run(tmp_path).precision == "float32"
    assert_same_run(uninterrupted, train(folder=tmp_path, resume=True))


def test_another_precision_is_another_run(copied, uninterrupted):
    assert uninterrupted.precision == load_run(copied).precision == "float32"
    with pytest.raises(ValueError, match="precision: 'float32' in the run, 'bfloat16' now"):
        train(recipe(training__epochs=1), folder=copied, resume=True, precision="bfloat16")


def test_weights_that_are_tied_are_saved_and_stay_tied(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    module[1].weight = module[0].weight
    checkpoints.save(tmp_path / "tied.safetensors", module.state_dict(), {})
    tensors, _ = checkpoints.load(tmp_path / "tied.safetensors")
    other = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    other[1].weight = other[0].weight
    other.load_state_dict(tensors)
    assert torch.equal(other[1].weight, module[0].weight)
    assert other[1].weight is other[0].weight


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("recipe.name", None, "recipe: name is None: wanted text"),
        ("recipe", [], "recipe is .*: wanted named values"),
        ("data", {}, 'data lacks the field "name"'),
        ("data.feature_dim", "7", "data.feature_dim is '7': wanted a whole number"),
        ("data.vectors", 3, "data.vectors is 3: wanted text"),
        ("precision", 16, "precision is 16: wanted one of 'float32' or 'bfloat16'"),
        ("seed", None, "seed is None: wanted a whole number"),
    ],
)
def test_a_damaged_field_of_a_run_is_told_by_name(copied, field, value, wanted):
    path = copied / "run.json"
    content = json.loads(path.read_text())
    *outer, last = field.split(".")
    (content[outer[0]] if outer else content)[last] = value
    path.write_text(json.dumps(content))
    for step in (lambda: load_run(copied), lambda: train(folder=copied, resume=True)):
        with pytest.raises(ValueError, match=rf"run\.json: {wanted}"):
            step()


def test_a_recipe_in_a_run_that_is_damaged_is_told_by_file_and_field(copied):
    content = json.loads((copied / "run.json").read_text())
    content["recipe"]["losses"][0]["options"]["margin"] = -1
    (copied / "run.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"run\.json: recipe: losses: margin must be a number >= 0"):
        load_run(copied)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("system.model.image_encoder.project.bias", None, r"missing, the model's is \(16,\)"),
        ("system.model.image_encoder.project.bias", torch.zeros(3), r"\(3,\), the model's is \(16,\)"),
        ("best.image_encoder.project.bias", torch.zeros(3), r"\(3,\), the model's is \(16,\)"),
        ("best.text_encoder.forwards.bias_hh_l0", None, r"missing, the model's is \(48,\)"),
        ("system.model.colour", torch.zeros(3), r"\(3,\), the model's is missing"),
        ("optimizer.0.exp_avg", torch.zeros(3), r"\(3,\), the model's is"),
        ("optimizer.0.step", None, r"missing, the model's is \(\)"),
        ("optimizer.99.exp_avg", torch.zeros(3), r"\(3,\), the model's is missing"),
    ],
)
def test_a_checkpoint_of_another_model_is_told_by_file_and_tensor(copied, name, change, message):
    path = copied / checkpoints.CHECKPOINT
    tensors, facts = checkpoints.load(path)
    tensors.pop(name, None)
    checkpoints.save(path, tensors | ({} if change is None else {name: change}), facts)
    wanted = rf"checkpoint\.safetensors: tensor {name.partition('.')[2]} is {message}.*: put the run's own"
    with pytest.raises(ValueError, match=wanted) as told:
        train(recipe(training__epochs=1), folder=copied, resume=True)
    assert "\n" not in str(told.value)
    if name.startswith("best."):
        with pytest.raises(ValueError, match=wanted):
            load_run(copied)


def small_bert(folder, data):
    """A small BERT in a folder, and a recipe that reads with it."""
    make_bert(folder, data.train.captions)
    return recipe("vsepp_grid_bert", text__encoder__weights=str(folder), training__epochs=1)


def small_bert_run(folder):
    train(small_bert(folder / "bert", small_data()), folder=folder / "run")
    return folder / "run"


def test_bert_is_trained_kept_and_rebuilt_without_its_source(tmp_path):
    source = tmp_path / "bert"
    a_recipe = small_bert(source, small_data())

    rates = []

    def callback(event):
        rates.append({p.grad is not None for p in event.model.parameters()})

    whole = train(a_recipe)
    with pytest.raises(StopError):
        train(a_recipe, folder=tmp_path / "run", save_every=1, callback=stop_at(3))
    run = train(a_recipe, folder=tmp_path / "run", resume=True, callback=callback)
    assert_same_run(whole, run)  # dropout too
    assert rates[0] == {True}
    shutil.rmtree(source)
    loaded = load_run(tmp_path / "run")
    assert_same_run(run, loaded)
    assert isinstance(loaded.tokenizer, BERTTokenizer)
    assert tokenizer_digest(loaded.tokenizer) == run.data["tokenizer"]
    assert str(tmp_path) not in (tmp_path / "run" / "run.json").read_text()


# It refuses.


def test_a_recipe_for_other_features_is_refused():
    with pytest.raises(ValueError, match="reads region features and data 'small' holds grid features"):
        train(recipe("vsepp_region_gru"))


@pytest.mark.parametrize("options", [{"device": "tpu"}, {"device": "cpu", "precision": "float8"}])
def test_an_unknown_device_or_precision_is_refused(options):
    with pytest.raises(ValueError, match='wanted "auto"'):
        fit(recipe(), small_data(), **options)


def test_bfloat16_learns_too():
    run = train(recipe(training__epochs=25), precision="bfloat16")
    assert run.best["rsum"] > 500
    assert all(weight.dtype != torch.bfloat16 for weight in weights(run).values())
    v, _ = encode(run.model, small_data().dev, run.tokenizer)
    assert v.vectors.dtype == torch.float32
    assert train(recipe(training__epochs=1)).history, "float32 again, in the same process"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    "name", ["2ad_region_gru", "2ad_grid_gru+gpo", "2ad_patch_gru+seq2seq", "vsepp_grid_gru"]
)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_no_step_waits_for_a_gpu(name, precision):
    """From the second step on; the meter looks at the losses once in fifty, and evaluation after the last."""

    def callback(event):
        torch.cuda.set_sync_debug_mode("error" if event.step < 4 else "default")

    data = small_data(name.split("_")[1])
    try:
        fit(recipe(name, training__epochs=1), data, callback=callback, precision=precision)
    finally:
        torch.cuda.set_sync_debug_mode("default")


# How weights move.


def rates_of(steps=40, **changes):
    settings = recipe(training__epochs=4, training__learning_rate=0.1, **changes).training
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule = make_schedule(optimizer, settings, steps_an_epoch=10)
    found = []
    for _ in range(steps):
        found.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("constant", lambda s: 0.1),
        ("step", lambda s: 0.1 * 0.5 ** (s // 20)),
        ("cosine", lambda s: 0.05 * (1 + math.cos(math.pi * s / 40))),
        ("linear", lambda s: 0.1 * (1 - s / 40)),
        ("exponential", lambda s: 0.1 * 0.5 ** (s / 20)),
    ],
)
@pytest.mark.parametrize("warmup", [0, 4])
def test_a_schedule_is_a_warm_up_times_its_closed_form(name, wanted, warmup):
    found = rates_of(
        training__schedule=name,
        training__decay_epochs=2,
        training__decay_factor=0.5,
        training__warmup_steps=warmup,
    )
    closed = [wanted(step) * min(1, (step + 1) / (warmup + 1)) for step in range(40)]
    assert found == pytest.approx(closed, rel=1e-6, abs=1e-9)


def test_pretrained_weights_take_smaller_steps_and_frozen_ones_none():
    a_recipe, data = recipe(training__optimizer="AdamW", training__weight_decay=0.1), small_data()
    system = System.build(a_recipe, data, a_recipe.tokenizer(data.train.captions))
    system.model.text_encoder.backbone = torch.nn.Linear(3, 3)
    optimizer = make_optimizer(system, a_recipe.training)
    assert isinstance(optimizer, torch.optim.AdamW)
    fresh, pretrained = optimizer.param_groups
    assert (fresh["lr"], pretrained["lr"]) == (0.01, pytest.approx(0.001))
    assert fresh["weight_decay"] == 0.1
    counted = len(fresh["params"]) + len(pretrained["params"])
    assert counted == len(list(system.parameters()))
    assert len(pretrained["params"]) == 2
    system.model.text_encoder.backbone.requires_grad_(False)
    (only,) = make_optimizer(system, a_recipe.training).param_groups
    assert len(only["params"]) == len(fresh["params"])


def test_gradients_are_clipped():
    norms = []

    def callback(event):
        if event.kind == "step":
            norms.append(float(torch.stack([p.grad.norm() for p in event.model.parameters()]).norm()))

    train(recipe(training__clip_norm=0.01, training__epochs=1), callback=callback)
    assert norms == pytest.approx([0.01] * 4, rel=1e-4)


# Embedding a split.


def test_embeddings_do_not_depend_on_the_batch_size_and_keep_the_order():
    run, split = train(recipe(training__epochs=1)), small_split("dev", 13, seed=3)
    run.model.train()
    v, t = encode(run.model, split, run.tokenizer)
    assert run.model.training
    run.model.eval()
    for batch_size in (1, 4, 26):
        again_v, again_t = encode(run.model, split, run.tokenizer, batch_size)
        torch.testing.assert_close(again_v.vectors, v.vectors, rtol=0, atol=1e-6)
        torch.testing.assert_close(again_t.vectors, t.vectors, rtol=0, atol=1e-6)
    for row in (0, 7, 25):
        tokens, mask = run.tokenizer.encode([split.captions[row]])
        alone = run.model.encode_captions(tokens, mask).vectors[0]
        torch.testing.assert_close(alone, t.vectors[row], rtol=0, atol=1e-6)
    count = split.picture_counts[5]
    alone = torch.from_numpy(split.pictures[5:6, :count]).float()
    torch.testing.assert_close(run.model.encode_pictures(alone).vectors[0], v.vectors[5], rtol=0, atol=1e-6)


def test_a_split_is_evaluated_by_its_scores():
    run, split = train(recipe(training__epochs=1)), small_split("dev", 12, seed=3, counts=False)
    v, t = encode(run.model, split, run.tokenizer)
    assert evaluate_split(run.model, split, run.tokenizer, folds=3) == evaluate(
        v.vectors @ t.vectors.T, split.owner, 3
    )


def test_features_on_disk_are_embedded_without_a_warning(tmp_path):
    """Torch warns of memory that it must not write to, as a file's own pages are."""
    features = np.random.default_rng(0).standard_normal((20, 5, 7)).astype(np.float32)
    np.save(tmp_path / "train_ims.npy", features)
    pictures, split = MappedPictures(tmp_path / "train_ims.npy"), small_split("train", 20, counts=False)
    copy = np.array(pictures)
    assert copy.flags.writeable
    copy[:] = 0
    assert np.array_equal(np.asarray(pictures), features)
    mapped, within = (
        Split("train", source, split.captions, split.owner, split.picture_ids)
        for source in (pictures, features)
    )
    model, tokenizer = (
        recipe().build(7, recipe().tokenizer(split.captions)),
        recipe().tokenizer(split.captions),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        v, t = encode(model, mapped, tokenizer)
    wanted_v, wanted_t = encode(model, within, tokenizer)
    assert torch.equal(v.vectors, wanted_v.vectors)
    assert torch.equal(t.vectors, wanted_t.vectors)


# Many processes are one.


def uneven(picture):
    return 1 + picture % 3


class ReadsEverything(torch.nn.Module):
    """A loss that looks at all that a step has, wherever it was computed."""

    reads = ("elements", "tokens")

    def __init__(self, dim: int, target_dim: int) -> None:
        super().__init__()
        self.decode = torch.nn.Linear(dim, target_dim)

    def forward(self, step):
        decoded = (self.decode(step.t.vectors) - step.targets).square().mean()
        cells = (step.v.elements * step.v.mask[..., None]).sum((1, 2))  # (B,)
        words = (step.t.elements * step.t.mask[..., None]).sum((1, 2))  # (C,)
        pairs = (step.positives * cells[:, None].sin() * words[None].cos()).mean()
        hard = sum(step.similarity.pairs(v, t).square().mean() for v, t in step.offline)
        written = step.tokens.sin() * step.token_mask  # (C, L)
        said = (step.t.elements[:, :, 0] * written).sum(1).mean()  # however long the padding
        return decoded + pairs + hard + said


def distributed_worker(out):
    """What each process runs: two kinds of batches; the first leaves what it learned in a file."""
    torch.set_num_threads(1)
    LOSSES.register("reads_everything", ReadsEverything)
    targets = np.random.default_rng(0).standard_normal((39, 4)).astype(np.float32)
    data = small_data(captions_of=uneven, targets=targets)
    owner = data.train.owner
    negatives = OfflineNegatives(
        np.array([np.flatnonzero(owner != picture)[:9] for picture in range(20)]),
        np.array([np.delete(np.arange(20), picture)[:7] for picture in owner]),
    )
    for batches in ("pairs", "pictures"):
        gradients = {}

        def callback(event, gradients=gradients):
            if event.kind == "step" and event.step == 1:
                named = event.system.named_parameters()
                gradients.update({f"gradient.{name}": p.grad.clone() for name, p in named})

        hard = negatives if batches == "pairs" else None
        run = train(distributed_recipe(batches), data, callback=callback, negatives=hard)
        gradients |= {f"weight.{name}": weight for name, weight in weights(run).items()}
        gradients["loss"] = torch.tensor(run.history[-1]["loss"])
        rank = os.environ.get("RANK", "alone")
        safetensors.torch.save_file(gradients, Path(out) / f"{batches}-{rank}.safetensors")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def distributed_recipe(batches):
    # A step so small and clipping so far away that the gradient itself can be compared.
    return recipe(
        training__batches=batches,
        training__epochs=2,
        training__clip_norm=1e6,
        training__learning_rate=1e-3,
        image__element_drop=0.2,
        text__word_drop=0.2,
        losses=["triplet", "reads_everything"],
        # In parts, where several processes share the batch: together they still give one gradient.
        training__embed_at_a_time=2 if "RANK" in os.environ else None,
    )


def test_two_processes_get_the_gradient_of_one_with_the_joint_batch(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    together = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    workers = [
        start("distributed_worker", str(tmp_path), RANK=rank, LOCAL_RANK=rank, **together) for rank in "01"
    ]
    distributed_worker(tmp_path)
    assert [worker.wait(timeout=300) for worker in workers] == [0, 0]
    for batches in ("pairs", "pictures"):
        alone = safetensors.torch.load_file(tmp_path / f"{batches}-alone.safetensors")
        for rank in "01":
            shared = safetensors.torch.load_file(tmp_path / f"{batches}-{rank}.safetensors")
            assert shared.keys() == alone.keys()
            for name, wanted in alone.items():
                error = float((shared[name] - wanted).abs().max())
                assert error <= 1e-6 * max(1.0, float(wanted.abs().max())), name  # a few roundings of float32


def test_the_share_of_each_process_is_a_slice_of_the_joint_batch():
    split, tokenizer = small_split("train", 20), recipe().tokenizer(small_split("train", 20).captions)
    joint = next(iter(make_loader(split, tokenizer, 10)))
    shares = [next(iter(make_loader(split, tokenizer, 10, rank=rank, world=2))) for rank in (0, 1)]
    rows = [set(share.caption_rows.tolist()) for share in shares]
    assert [len(share) for share in rows] == [5, 5]
    assert rows[0] | rows[1] == set(joint.caption_rows.tolist())


def test_what_others_say_of_a_gradient_leaves_autograds_own_alone(monkeypatch):
    """As two processes see it that say the same: the sum is twice what each says."""
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda gradient: gradient.mul_(2))
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    gradient = torch.ones(5, 3)
    share, _ = distributed._Gather.backward(SimpleNamespace(sizes=[3, 2]), gradient)
    assert torch.equal(share, torch.full((2, 3), 2.0))
    assert torch.equal(gradient, torch.ones(5, 3))


def test_one_process_speaks_for_all(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert distributed.is_main_process()
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        assert distributed.is_main_process() is (rank == 0)


# What is loaded is what was saved.


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder, message, kind=ValueError, loads=True):
    """Neither loaded nor gone on with, and nothing in the folder changes."""
    before = bytes_of(folder)
    steps = [lambda: train(recipe(training__epochs=1), folder=folder, resume=True)]
    for step in [lambda: load_run(folder)] * loads + steps:
        with pytest.raises(kind, match=message) as told:
            step()
        assert "\n" not in str(told.value)
    assert bytes_of(folder) == before


def test_another_vocabulary_of_the_same_size_is_not_taken(copied):
    path = copied / "vocabulary.json"
    words = json.loads(path.read_text())["words"]
    path.write_text(json.dumps({"words": words[::-1]}))
    refused(copied, r"copy holds another tokenizer than its run\.json names")


def test_a_checkpoint_of_another_run_of_the_same_shapes_is_not_taken(copied, tmp_path):
    train(recipe(training__epochs=1), folder=tmp_path / "other", seed=1)
    shutil.copy(tmp_path / "other" / checkpoints.CHECKPOINT, copied)
    refused(copied, r"checkpoint\.safetensors belongs to another run than the run\.json")


def test_a_flipped_bit_of_a_weight_is_seen(copied):
    path = copied / checkpoints.CHECKPOINT
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    refused(copied, "is damaged .it has changed since it was saved")


@pytest.mark.parametrize("part", ["best", "system.model"])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda weight: weight.to(torch.int8), "is int8, the model's is float32"),
        (lambda weight: weight > 0, "is bool, the model's is float32"),
        (lambda weight: weight.double(), "is float64, the model's is float32"),
        (lambda weight: weight * math.nan, "holds NaN or infinity"),
        (lambda weight: weight / 0, "holds NaN or infinity"),
    ],
)
def test_weights_of_another_type_or_not_finite_are_told_by_name(copied, part, change, told):
    path, name = copied / checkpoints.CHECKPOINT, f"{part}.image_encoder.project.weight"
    tensors, facts = checkpoints.load(path)
    checkpoints.save(path, tensors | {name: change(tensors[name])}, facts)
    wanted = rf"checkpoint\.safetensors: tensor .*image_encoder\.project\.weight {told}"
    refused(copied, wanted, loads=part == "best")


def test_the_checkpoints_of_the_version_before_are_read(copied):
    path = copied / checkpoints.CHECKPOINT
    with safetensors.safe_open(path, "pt") as file:
        facts = json.loads(file.metadata()["facts"])
    tensors = safetensors.torch.load_file(path)
    del facts["beside"]
    facts |= {"schedule": {"_last_lr": [0.01]}, "optimizer": [{"lr": 0.01}]}
    facts["state"]["best"] = facts["state"]["history"][0]
    safetensors.torch.save_file(tensors, path, {"facts": json.dumps(facts)})
    assert_same_run(load_run(copied), train(recipe(training__epochs=1), folder=copied, resume=True))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("run.json", "holds (no run|a checkpoint without its run.json)"),
        ("vocabulary.json", r"vocabulary\.json"),
    ],
)
def test_a_file_that_is_missing_is_told_and_nothing_takes_its_place(copied, file, message):
    (copied / file).unlink()
    refused(copied, message, (ValueError, OSError))


def test_a_run_without_its_checkpoint_is_not_overwritten_by_another(copied):
    (copied / checkpoints.CHECKPOINT).unlink()
    before = bytes_of(copied)
    for resume in (True, False):
        with pytest.raises(ValueError, match=r"holds another run \(seed: 0 in the run, 1 now\)"):
            train(recipe(training__epochs=1), folder=copied, resume=resume, seed=1)
    assert bytes_of(copied) == before
    train(recipe(training__epochs=1), folder=copied)  # the same one may begin again


@pytest.mark.parametrize("resume", [False, True])
def test_a_file_that_is_not_from_a_run_is_not_overwritten(tmp_path, resume):
    (tmp_path / "vocabulary.json").write_text("mine")
    with pytest.raises(ValueError, match=r"vocabulary\.json is there already, and not from a run"):
        train(folder=tmp_path, resume=resume)
    assert bytes_of(tmp_path) == {"vocabulary.json": b"mine"}


def test_a_run_that_was_stopped_in_its_first_epoch_says_how_to_go_on(tmp_path):
    for step in (1, 2):  # before and after the first time that it was saved
        with pytest.raises(StopError):
            train(folder=tmp_path, callback=stop_at(step), save_every=1, resume=True)
        wanted = r"stopped before its first epoch ended.*vse train vsepp_grid_gru --out .* --resume"
        with pytest.raises(FileNotFoundError, match=wanted):
            load_run(tmp_path)


def test_who_only_asks_whether_a_folder_is_free_refuses_nobody(tmp_path):
    other = ExitStack()
    other.enter_context(locked(tmp_path, "is asking about"))
    threading.Timer(0.1, other.close).start()
    checkpoints.refuse_to_overwrite(tmp_path, resume=False)
    with checkpoints.held(tmp_path):
        pass


def test_a_folder_where_a_file_belongs_is_told(copied):
    (copied / checkpoints.CHECKPOINT).unlink()
    (copied / checkpoints.CHECKPOINT).mkdir()
    refused(copied, r"checkpoint\.safetensors", (ValueError, OSError))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_a_runs_folder_is_not_waited_for(copied):
    (copied / "vocabulary.json").unlink()
    os.mkfifo(copied / "vocabulary.json")
    with pytest.raises(FileNotFoundError, match=r"vocabulary\.json: copy the run's whole folder"):
        train(recipe(training__epochs=1), folder=copied, resume=True)


def test_a_bert_of_a_runs_folder_runs_no_code(tmp_path, monkeypatch):
    """Not even for someone who answers yes to every question."""
    folder, ran = small_bert_run(tmp_path), tmp_path / "ran"
    path = folder / "text_encoder" / "config.json"
    config = json.loads(path.read_text())
    config |= {"auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}}
    code = f"open({str(ran)!r}, 'w')\nfrom transformers import BertConfig as Config, BertModel as Model\n"
    (path.parent / "code.py").write_text(code)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 9))
    # Whoever hands over such a folder also makes its digests fit.
    tensors, facts = checkpoints.load(folder / checkpoints.CHECKPOINT)
    checkpoints.save(folder / checkpoints.CHECKPOINT, tensors, facts | {"beside": ""})
    path.write_text(json.dumps(config))
    load_run(folder)  # works, by transformers' own code
    path.write_text(json.dumps(config | {"model_type": "a kind of its own"}))
    with pytest.raises(ValueError, match="model_type is 'a kind of its own'"):
        load_run(folder)
    assert not ran.exists()


# It is alone, and says so at once.


def test_a_second_training_in_the_same_folder_is_refused_at_once(tmp_path, uninterrupted):
    def second(event):
        before = bytes_of(tmp_path)
        for options in ({"resume": True}, {"seed": 1}, {}):
            with pytest.raises(BlockingIOError, match="another process is training in"):
                train(folder=tmp_path, **options)
        assert bytes_of(tmp_path) == before
        raise StopError

    with pytest.raises(StopError):
        train(folder=tmp_path, callback=second)
    assert_same_run(uninterrupted, train(folder=tmp_path, resume=True))
    assert not (tmp_path / ".lock").exists()


def test_a_run_is_refused_before_anything_is_read(copied, monkeypatch):
    monkeypatch.setattr(Vocabulary, "build", lambda *_: pytest.fail("the captions are read"))
    with pytest.raises(ValueError, match=r"holds a run already: resume it \(--resume.*--out"):
        train(recipe(training__epochs=1), folder=copied)


def test_a_long_epoch_is_saved_every_ten_minutes(tmp_path, monkeypatch, uninterrupted):
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0)
    with pytest.raises(StopError):
        train(folder=tmp_path, callback=stop_at(4))
    assert checkpoints.load(tmp_path / checkpoints.CHECKPOINT)[1]["state"]["step"] == 3
    assert_same_run(uninterrupted, train(folder=tmp_path, resume=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed is -1: wanted a whole number"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"save_every": 0}, "save_every is 0: wanted at least 1 step"),
        (
            {"a_recipe": recipe(training__batch_size=41)},
            r"training\.batch_size is 41: data 'small' has 40 captions",
        ),
    ],
)
def test_arguments_out_of_range_are_told(options, message):
    with pytest.raises(ValueError, match=message):
        train(**options)


def test_weights_that_overflow_end_a_run_whose_loss_stays_finite(tmp_path):
    with pytest.raises(FloatingPointError, match=r"weight .* not finite.*lower training\.learning_rate"):
        train(recipe(training__learning_rate=1e30), folder=tmp_path)
    assert not (tmp_path / checkpoints.CHECKPOINT).exists()


@pytest.mark.parametrize(
    ("mistake", "kind"),
    [
        (lambda step: step.v.elements.mean(), AttributeError),  # which nothing reads
        (lambda step: step.v.extra["slots"].mean(), KeyError),
        (lambda step: {"a": step.scores.mean()}["b"], KeyError),
        (lambda step: None.mean(), AttributeError),  # nothing to do with what is read
        (lambda step: step.scores.mean() + None, TypeError),
    ],
)
def test_a_mistake_in_a_loss_is_the_losses_own_error_with_a_note_on_what_it_reads(monkeypatch, mistake, kind):
    class Mistaken(torch.nn.Module):
        def forward(self, step):
            return mistake(step)

    monkeypatch.setitem(LOSSES._entries, "mistaken", Mistaken)
    with pytest.raises(kind) as caught:
        train(recipe(losses=["triplet", "mistaken"]))
    assert "'mistaken'" in caught.value.__notes__[0] and "reads" in caught.value.__notes__[0]
    assert caught.traceback[-1].name == "<lambda>"


def test_a_caption_encoder_gives_losses_its_scale_and_nothing_else(monkeypatch):
    class Trained(BiGRUEncoder):
        pretrained_scale, calibration = 33.0, MappingProxyType({"margin": 0.9})

    monkeypatch.setitem(TEXT_ENCODERS._entries, "gru", Trained)
    data, a_recipe = small_data(), recipe(losses=["triplet", "sigmoid"])
    losses = System.build(a_recipe, data, a_recipe.tokenizer(data.train.captions)).losses
    assert losses["triplet"].margin == 0.2
    assert losses["sigmoid"].log_scale.item() == pytest.approx(math.log(33))
    assert losses["sigmoid"].bias.item() == -10


def test_a_run_with_a_loss_of_ones_own_says_what_it_needs(copied):
    path = copied / "run.json"
    content = json.loads(path.read_text())
    content["recipe"]["losses"][0]["name"] = "mine"
    path.write_text(json.dumps(content))
    refused(copied, "recipe: losses: loss 'mine' is unknown.*must be registered first")


class Unsendable(Exception):
    def __init__(self, one, other):
        super().__init__(f"{one} {other}")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BlockingIOError("taken"), BlockingIOError),
        (KeyboardInterrupt("taken"), KeyboardInterrupt),
        (SystemExit("taken"), SystemExit),
        (Unsendable("taken", "twice"), RuntimeError),
    ],
)
def test_an_error_of_the_main_process_ends_all(monkeypatch, error, kind):
    sent = []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(
        accelerate.utils, "broadcast_object_list", lambda shared: sent.append(pickle.dumps(shared))
    )
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)

    def work():
        raise error

    with pytest.raises(kind, match="taken"):
        processes.from_main_process(work)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(
        accelerate.utils,
        "broadcast_object_list",
        lambda shared: shared.__setitem__(slice(None), pickle.loads(sent[0])),
    )
    with pytest.raises(kind, match="taken"):
        processes.from_main_process(work)


def test_saving_copies_no_weight_that_is_in_memory_already(tmp_path, monkeypatch):
    given = {"one": torch.zeros(3), "tied": None, "other": torch.ones(2)}
    given["tied"] = given["one"]
    seen = {}
    whole = safetensors.torch.save_file
    monkeypatch.setattr(
        safetensors.torch, "save_file", lambda named, *rest: (seen.update(named), whole(named, *rest))
    )
    checkpoints.save(tmp_path / "a.safetensors", given, {})
    same = {name: seen[name].data_ptr() == given[name].data_ptr() for name in given}
    assert same == {"one": True, "tied": False, "other": True}
    assert checkpoints.load(tmp_path / "a.safetensors")[0].keys() == given.keys()
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]
