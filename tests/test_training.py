"""Training: it learns, repeats itself bit for bit, survives being killed; many processes are one."""

import json
import math
import os
import pickle
import re
import shutil
import signal
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import accelerate.utils
import numpy as np
import pytest
import safetensors.torch
import torch

from small import (
    StopError,
    assert_same_run,
    contents,
    make_bert,
    recipe,
    small_data,
    small_split,
    some_negatives,
    start,
    start_two,
    stop_at,
    train,
)
from vsecore import processes, stopping
from vsecore.data.vocabulary import Vocabulary
from vsecore.evaluation import evaluate
from vsecore.losses import LOSSES, Loss
from vsecore.training import Settings, checkpoints, distributed, encode, evaluate_split, fit, load_run, loop
from vsecore.training.checkpoints import CHECKPOINT
from vsecore.training.identity import tokenizer_digest
from vsecore.training.optimization import LossMeter
from vsecore.training.planning import plan

SHORT = recipe(training__epochs=1)


@pytest.fixture(scope="module")
def uninterrupted():
    return train()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run of one epoch, to be copied and damaged."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(SHORT, folder=folder)
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "copy"))


@pytest.mark.parametrize(("loss", "batches"), [("triplet", "pictures"), ("info_nce", "pairs")])
def test_a_small_set_is_learned_by_heart(loss, batches):
    part = {"name": loss, "options": {"warmup_epochs": 10} if loss == "triplet" else {}}
    scale = {"training__epochs": 30, "training__learning_rate": 0.02, "dim": 32}
    run = train(recipe(losses=[part], training__batches=batches, training__schedule="constant", **scale))
    assert run.best["rsum"] == 600 and run.history[-1]["loss"] < run.history[0]["loss"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_run_on_a_gpu_returns_its_model_on_the_cpu_and_names_the_gpu():
    run = fit(SHORT, small_data())
    assert {weight.device.type for weight in run.model.parameters()} == {"cpu"}
    assert run.device == torch.cuda.get_device_name() != train(SHORT).device


def test_history_timings_and_events_tell_what_happened():
    events, silent = [], set()

    def callback(event):
        events.append(event)
        silent.update(name for name, p in event.model.named_parameters() if p.grad is None)

    run = train(callback=callback)
    assert [entry["epoch"] for entry in run.history] == [0, 1, 2]
    assert [entry["step"] for entry in run.history] == [4, 8, 12]
    assert run.history[0].keys() >= {"learning_rate", "loss", "rsum", "i2t_r1", "t2i_medr"}
    assert 0 < run.timings["step_seconds"] < run.timings["seconds"] and 0 < run.timings["data_wait"] < 1
    assert (run.device, run.processes) == (distributed.hardware(torch.device("cpu")), 1)
    assert [event.kind for event in events] == (["step"] * 4 + ["evaluated"]) * 3
    steps = [event for event in events if event.kind == "step"]
    assert [event.step for event in steps] == list(range(1, 13)) and not silent
    assert [event.saved for event in steps] == [False, False, False, True] * 3
    assert all(event.scores.shape == (10, 10) and not event.scores.requires_grad for event in steps)
    assert all(event.positives.diagonal().all() and event.metrics is None for event in steps)
    for entry, event in zip(run.history, [e for e in events if e.kind == "evaluated"], strict=True):
        assert event.metrics["rsum"] == entry["rsum"] and event.epoch == entry["epoch"]
        losses = [float(e.loss) for e in steps if e.epoch == event.epoch]
        assert entry["loss"] == pytest.approx(np.mean(losses), rel=1e-5)


def test_a_run_is_its_seeds_and_neither_the_workers_nor_the_generators():
    a_recipe = recipe(image__element_drop=0.3, text__word_drop=0.3, training__epochs=1)
    one = train(a_recipe)
    torch.manual_seed(99)
    assert_same_run(one, train(a_recipe, workers=1))
    assert_same_run(one, fit(a_recipe, small_data(), Settings(device="cpu", seed=5), seed=0))
    huge, larger = (train(a_recipe, seed=seed) for seed in (20_000_000_000, 20_000_000_001))
    assert one.history != huge.history != larger.history


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

    train(folder=folder, callback=callback, save_every=3)


def test_a_run_killed_by_the_system_and_resumed_ends_with_the_same_bits(tmp_path, uninterrupted):
    assert start("test_training", "killed_worker", tmp_path).wait() == -signal.SIGKILL
    state = checkpoints.load(tmp_path / CHECKPOINT)[1]["state"]
    assert (state["epoch"], state["batch"], state["step"]) == (1, 2, 6)
    (left := tmp_path / ".checkpoint.safetensors.0001.part").write_bytes(b"half a checkpoint")
    assert_same_run(uninterrupted, train(folder=tmp_path, resume=True))
    assert not left.exists()


@pytest.mark.parametrize("write", range(1, 5))
def test_a_kill_before_any_save_leaves_the_weights_of_the_entry_that_is_called_best(
    tmp_path, monkeypatch, write
):
    """Also where the same epoch run again would end elsewhere, as it may on a GPU."""
    a_recipe, data, whole, written = recipe(training__epochs=4), small_data(), checkpoints.save, []

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

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "save", save)
        with pytest.raises(StopError):
            train(a_recipe, data, folder=tmp_path)
    if write > 1:
        assert_consistent(load_run(tmp_path))
    with pytest.raises(StopError):  # a second interruption, after which the first must not be felt
        train(a_recipe, data, folder=tmp_path, resume=True, save_every=1, callback=stop_at(15))
    assert_consistent(load_run(tmp_path))
    assert_consistent(train(a_recipe, data, folder=tmp_path, resume=True, callback=disturb))


def test_a_run_that_did_not_keep_the_network_of_its_features_resumes_and_another_network_is_refused(tmp_path):
    data = small_data()
    whole = train(SHORT, data, folder=tmp_path / "old", resume=True)
    now = replace(data, network="resnet50 0123456789ab")
    assert_same_run(whole, train(SHORT, now, folder=tmp_path / "old", resume=True))
    train(SHORT, now, folder=tmp_path / "new", resume=True)
    with pytest.raises(ValueError, match=r"data\.network"):
        train(SHORT, replace(data, network="other"), folder=tmp_path / "new", resume=True)


def test_a_source_that_is_said_better_makes_no_other_run(tmp_path):
    with pytest.raises(StopError):
        train(SHORT, folder=tmp_path, save_every=1, callback=stop_at(2))
    train(replace(SHORT, source="another sentence"), folder=tmp_path, resume=True)
    assert load_run(tmp_path).recipe == SHORT


def test_a_long_epoch_is_saved_every_ten_minutes(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0)
    with pytest.raises(StopError):
        train(folder=tmp_path, callback=stop_at(4))
    assert checkpoints.load(tmp_path / CHECKPOINT)[1]["state"]["step"] == 3


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"a_recipe": recipe(losses__triplet__margin=0.3)}, r"losses\.triplet\.margin"),
        ({"data": small_data(seed=1)}, r"data\.fingerprint"),
        ({"seed": 5, "a_recipe": recipe(image__pool="max")}, r"image\.pool.*seed: 0 in the run, 5 now"),
        ({"vectors": torch.zeros(33, 8)}, r"data\.vectors"),
        ({"tokenizer": Vocabulary([f"other{number}" for number in range(29)])}, r"data\.tokenizer"),
        ({"precision": "bfloat16"}, "precision"),
    ],
)
def test_a_run_goes_on_only_as_what_it_was(tmp_path, change, names):
    with pytest.raises(StopError):
        train(folder=tmp_path, save_every=1, callback=stop_at(2))
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"holds another run.*{names}"):
        train(**change, folder=tmp_path, resume=True)
    (tmp_path / CHECKPOINT).unlink()  # nor is one that was never saved overwritten by another
    with pytest.raises(ValueError, match=names):
        train(**change, folder=tmp_path)
    assert contents(tmp_path) == {name: x for name, x in before.items() if name != CHECKPOINT}


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path, uninterrupted):
    def poison(event):
        if event.step == 6:
            event.model.text_encoder.embedding.weight.data.fill_(math.nan)

    with pytest.raises(FloatingPointError, match="step 7"):
        train(folder=tmp_path, callback=poison)
    tensors, facts = checkpoints.load(tmp_path / CHECKPOINT)
    assert facts["state"]["step"] == 4 and all(tensor.isfinite().all() for tensor in tensors.values())
    assert_same_run(uninterrupted, train(folder=tmp_path, resume=True))


def test_weights_that_overflow_end_a_run_whose_loss_stays_finite(tmp_path):
    only_step = recipe(training__learning_rate=1e39, training__batch_size=40, training__epochs=1)
    with pytest.raises(FloatingPointError, match="weight"):
        train(only_step, folder=tmp_path)
    assert not (tmp_path / CHECKPOINT).exists()


def test_the_meter_adds_up_each_term_and_names_the_first_bad_step_however_late_it_looks():
    meter, cpu = LossMeter({"one": 5.0}, torch.device("cpu")), torch.device("cpu")
    for step in (1, 2):
        meter.add({"one": torch.tensor(1.0), "other": torch.tensor(0.5)}, torch.tensor(1.0), step, 0.1)
    assert meter.read() == {"one": 7.0, "other": 1.0}
    meter = LossMeter({}, cpu)
    meter.patience = 50
    for step in range(1, 50):
        meter.add({"one": torch.tensor(math.inf if step in (17, 30) else 1.0)}, torch.tensor(1.0), step, 0.1)
    with pytest.raises(FloatingPointError, match="step 17"):
        meter.read()
    with pytest.raises(FloatingPointError, match="step 1"):  # a gradient
        LossMeter({}, cpu).add({"one": torch.tensor(1.0)}, torch.tensor(math.nan), 1, 0.1)


def test_a_run_is_rebuilt_from_its_folder_alone(tmp_path):
    run = train(folder=tmp_path / "run")
    loaded = load_run(shutil.move(tmp_path / "run", tmp_path / "elsewhere"))
    assert_same_run(run, loaded)
    assert loaded.tokenizer.words == run.tokenizer.words and not loaded.model.training
    for field in ("best", "recipe", "data", "seed", "precision", "device", "timings"):
        assert getattr(loaded, field) == getattr(run, field)
    for path in (tmp_path / "elsewhere").iterdir():  # nothing of it is a pickle
        if path.suffix == ".jsonl":
            assert list(map(json.loads, path.read_text().splitlines())) == run.history
        elif path.name != ".lock":
            json.loads(path.read_text()) if path.suffix == ".json" else safetensors.torch.load_file(path)
    (tmp_path / "elsewhere/text_encoder/.ipynb_checkpoints").mkdir(parents=True)  # as JupyterLab leaves it
    assert_same_run(run, load_run(tmp_path / "elsewhere"))


def replaced(old, new):
    return lambda path: path.write_text(re.sub(old, new, path.read_text(), count=1))


def saved_with(path, tensors=(), **facts):
    """Save a checkpoint again with other tensors or facts, as whoever hands over such a folder could."""
    before, known = checkpoints.load(path)
    checkpoints.save(path, before | dict(tensors), known | facts)


@pytest.mark.parametrize(
    ("file", "damage", "names"),
    [
        ("run.json", replaced('"triplet"', '"mine"'), "'mine' is unknown.*registered first"),
        ("vocabulary.json", replaced("thing0", "other"), "another tokenizer"),
        (CHECKPOINT, partial(saved_with, beside="another's"), f"{CHECKPOINT} belongs to another run"),
        (
            CHECKPOINT,
            partial(saved_with, tensors={"best.image_encoder.project.bias": torch.zeros(3)}),
            CHECKPOINT,
        ),
    ],
)
def test_a_damaged_run_is_told_by_its_file_and_left_as_it_is(copied, file, damage, names):
    damage(copied / file)
    before = contents(copied)
    for step in (lambda: load_run(copied), lambda: train(SHORT, folder=copied, resume=True)):
        with pytest.raises((ValueError, OSError), match=names) as told:
            step()
        assert "\n" not in str(told.value)
    assert contents(copied) == before


def test_the_runs_of_older_versions_are_read_and_gone_on_with(copied):
    """Without digests, without settings that were added since, with facts that nothing reads any more."""
    path = copied / CHECKPOINT
    _, facts = checkpoints.load(path)
    tensors = safetensors.torch.load_file(path)
    del facts["beside"]
    facts |= {"schedule": {"_last_lr": [0.01]}, "optimizer": [{"lr": 0.01}]}
    facts["state"]["best"] = facts["state"]["history"][0]
    safetensors.torch.save_file(tensors, path, {"facts": json.dumps(facts)})
    content = json.loads((copied / "run.json").read_text())
    del content["precision"], content["recipe"]["training"]["clip_norm"], content["recipe"]["similarity"]
    (copied / "run.json").write_text(json.dumps(content))
    assert_same_run(load_run(copied), train(SHORT, folder=copied, resume=True))


def test_saving_copies_only_weights_that_are_tied_and_they_stay_tied(tmp_path, monkeypatch):
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    module[1].weight = module[0].weight
    given, seen, whole = module.state_dict(), {}, safetensors.torch.save_file
    monkeypatch.setattr(
        safetensors.torch, "save_file", lambda named, *rest: (seen.update(named), whole(named, *rest))
    )
    checkpoints.save(tmp_path / "a.safetensors", given, {})
    same = [name for name in given if seen[name].data_ptr() == given[name].data_ptr()]
    assert same == ["0.weight", "0.bias", "1.bias"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]
    wanted = module[0].weight.clone()
    module[0].weight.data.zero_()
    module.load_state_dict(checkpoints.load(tmp_path / "a.safetensors")[0])
    assert module[1].weight is module[0].weight and torch.equal(module[0].weight, wanted)


@pytest.mark.parametrize("resume", [False, True])
def test_what_is_there_already_is_not_overwritten(tmp_path, copied, resume):
    (tmp_path / "vocabulary.json").write_text("mine")
    with pytest.raises(ValueError, match=r"vocabulary\.json is there already"):
        train(folder=tmp_path, resume=resume)
    assert (tmp_path / "vocabulary.json").read_text() == "mine"
    with pytest.raises(ValueError, match="holds a run already"):
        train(SHORT, folder=copied)
    (copied / CHECKPOINT).unlink()
    train(SHORT, folder=copied, resume=resume)  # the same run may begin again


def test_a_second_training_in_the_same_folder_is_refused_at_once(tmp_path, uninterrupted):
    def second(event):
        before = contents(tmp_path)
        for options in ({"resume": True}, {"seed": 1}, {}):
            with pytest.raises(BlockingIOError, match="another process is training in"):
                train(folder=tmp_path, **options)
        assert contents(tmp_path) == before
        raise StopError

    with pytest.raises(StopError):
        train(folder=tmp_path, callback=second)
    checkpoints.refuse_to_overwrite(tmp_path, resume=False)  # who only asks keeps nobody out
    assert_same_run(uninterrupted, train(folder=tmp_path, resume=True))


def test_bert_is_kept_and_rebuilt_without_its_source(tmp_path):
    source, folder = tmp_path / "bert", tmp_path / "run"
    make_bert(source, small_data().train.captions)
    a_recipe = recipe("vsepp_grid_bert", text__encoder__weights=str(source), training__epochs=1)
    whole = train(a_recipe)
    with pytest.raises(StopError):
        train(a_recipe, folder=folder, save_every=1, callback=stop_at(3))
    run = train(a_recipe, folder=folder, resume=True)
    assert_same_run(whole, run)  # dropout too
    shutil.rmtree(source)
    loaded = load_run(folder)
    assert_same_run(run, loaded)
    assert tokenizer_digest(loaded.tokenizer) == run.data["tokenizer"]
    assert str(tmp_path) not in (folder / "run.json").read_text()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"seed": -1}, "seed"),
        ({"sede": 1}, "sede"),
        ({"recipe": recipe(training__batch_size=41)}, "batch_size is 41: wanted at most 40"),
        ({"recipe": recipe("vsepp_region_gru")}, "reads 'region'"),
        ({"recipe": recipe(training__frozen_epochs=3)}, "would never learn"),
        ({"negatives": some_negatives(small_data())}, "no loss of recipe"),
    ],
)
def test_a_bad_setting_is_named(options, names):
    with pytest.raises(ValueError, match=names):
        fit(options.pop("recipe", SHORT), small_data(), **{"device": "cpu"} | options)


def test_bfloat16_learns_too():
    run = train(recipe(training__epochs=25), precision="bfloat16")
    assert run.best["rsum"] > 500 and run.precision == "bfloat16"
    assert all(weight.dtype != torch.bfloat16 for weight in run.model.state_dict().values())
    assert encode(run.model, small_data().dev, run.tokenizer)[0].vectors.dtype == torch.float32
    assert train(SHORT).precision == "float32", "again, in the same process"


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


def test_embeddings_do_not_depend_on_the_batch_size_and_keep_the_order(finished):
    run, split = load_run(finished), small_split("dev", 13, seed=3)
    v, t = encode(run.model, split, run.tokenizer)
    for batch_size in (1, 4, 26):
        again_v, again_t = encode(run.model, split, run.tokenizer, batch_size)
        torch.testing.assert_close(again_v.vectors, v.vectors, rtol=0, atol=1e-6)
        torch.testing.assert_close(again_t.vectors, t.vectors, rtol=0, atol=1e-6)
    for row in (0, 7, 25):
        tokens, mask = run.tokenizer.encode([split.captions[row]])
        alone = run.model.encode_captions(tokens, mask).vectors[0]
        torch.testing.assert_close(alone, t.vectors[row], rtol=0, atol=1e-6)
    alone = torch.from_numpy(split.pictures[5:6, : split.picture_counts[5]]).float()
    torch.testing.assert_close(run.model.encode_pictures(alone).vectors[0], v.vectors[5], rtol=0, atol=1e-6)
    assert evaluate_split(run.model, split, run.tokenizer) == evaluate(v.vectors @ t.vectors.T, split.owner)


class ReadsEverything(Loss):
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
    LOSSES.register("reads_everything", ReadsEverything)
    targets = np.random.default_rng(0).standard_normal((39, 4)).astype(np.float32)
    data = small_data(captions_of=lambda picture: 1 + picture % 3, targets=targets)
    for batches in ("pairs", "pictures"):
        found = {}

        def callback(event, found=found):
            if event.kind == "step" and event.step == 1:
                named = event.system.named_parameters()
                found.update({f"gradient.{name}": p.grad.clone() for name, p in named})

        ReadsEverything.reads_offline = batches == "pairs"
        hard = some_negatives(data) if batches == "pairs" else None
        run = train(distributed_recipe(batches), data, callback=callback, negatives=hard)
        found |= {f"weight.{name}": weight for name, weight in run.model.state_dict().items()}
        found["loss"] = torch.tensor(run.history[-1]["loss"])
        rank = os.environ.get("RANK", "alone")
        safetensors.torch.save_file(found, Path(out) / f"{batches}-{rank}.safetensors")
    seconds = 1e6 if os.environ.get("RANK") == "1" else 0.01  # the main process says when all end
    assert plan(recipe(), small_data(), seconds=seconds, device="cpu").steps
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


def test_two_processes_get_the_gradient_of_one_with_the_joint_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(LOSSES, "_entries", dict(LOSSES._entries))
    start_two("test_training", "distributed_worker", tmp_path)
    distributed_worker(tmp_path)
    for batches in ("pairs", "pictures"):
        alone = safetensors.torch.load_file(tmp_path / f"{batches}-alone.safetensors")
        for rank in "01":
            shared = safetensors.torch.load_file(tmp_path / f"{batches}-{rank}.safetensors")
            assert shared.keys() == alone.keys()
            for name, wanted in alone.items():
                error = float((shared[name] - wanted).abs().max())
                assert error <= 1e-6 * max(1.0, float(wanted.abs().max())), name  # a few roundings of float32


class Unsendable(Exception):
    def __init__(self, one, other):
        super().__init__(f"{one} {other}")


@pytest.mark.parametrize("error", [KeyboardInterrupt("taken"), Unsendable("taken", "twice")])
def test_an_error_of_the_main_process_ends_all(monkeypatch, error):
    def work():
        raise error

    sent = []
    exchanges = (
        lambda shared: sent.append(pickle.dumps(shared)),
        lambda shared: shared.__setitem__(slice(None), pickle.loads(sent[0])),
    )
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    for rank, exchange in enumerate(exchanges):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        monkeypatch.setattr(accelerate.utils, "broadcast_object_list", exchange)
        monkeypatch.setenv("RANK", str(rank))
        assert stopping.is_main_process() is (rank == 0)
        with pytest.raises((KeyboardInterrupt, RuntimeError), match="taken"):
            processes.from_main_process(work)
