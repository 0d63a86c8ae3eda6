"""The command line: the main job from pictures to a trained model, and mistakes told in a sentence."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from coco import make_album
from vsecore import cli, records
from vsecore.baselines import cca_scores
from vsecore.data.features import open_precomp
from vsecore.evaluation import cross_retrieval_ranks, evaluate
from vsecore.experiments import LESSON_SCALE, recording
from vsecore.experiments.measures import graded
from vsecore.recipes import get
from vsecore.recipes.written import written
from vsecore.training import load_run, score_split

SMALL = ["--set", "dim=16", "--set", "text.encoder.word_dim=8", "--set", "text.encoder.minimum_count=1"]
SMALL += ["--set", "training.epochs=1", "--set", "training.batch_size=10"]


def run(*arguments):
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


@pytest.fixture
def complaint(capsys, monkeypatch):
    """What `vse` says on stderr when it refuses; it must be one sentence without a traceback."""

    def complain(*arguments):
        monkeypatch.setattr(sys, "argv", ["vse", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert stopped.value.code == 2
        said = capsys.readouterr().err
        assert "Traceback" not in said
        return " ".join(said.split())

    return complain


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    where = tmp_path_factory.mktemp("features")
    run("data", "extract", make_album(where), where / "features", "--backbone", "scenes-cnn")
    return where / "features"


@pytest.fixture(scope="module")
def trained_once(features, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "run"
    run("train", "vsepp_grid_gru", "--data", features, "--out", out, *SMALL)
    return out


@pytest.fixture
def trained(trained_once, features, tmp_path):
    """A run, and a copy of the features that it was trained on, which a test may change."""
    return trained_once, Path(shutil.copytree(features, tmp_path / "other"))


def test_from_pictures_to_an_evaluated_model_by_commands_alone(album, tmp_path):
    photographs, folder, records = album(), tmp_path / "features", tmp_path / "records"
    assert "ready" in run("data", "check", photographs)
    assert "6 pictures" in run("data", "extract", photographs, folder, "--backbone", "scenes-cnn")
    assert "ready" in run("data", "check", folder)
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("".join(f"{word} {'0.5 ' * 7}0.1\n" for word in ("caption", "picture", "the", "of")))
    out = tmp_path / "run"
    options = ["--data", folder, "--out", out, "--vectors", vectors, "--record", records, "--tensorboard"]
    said = run("train", "vsepp_grid_gru", *options, *SMALL)
    assert "rsum" in said and "words found" in said
    assert [log.stat().st_size > 0 for log in (out / "tensorboard").iterdir()] == [True]
    record = json.loads(next(records.glob("*.json")).read_text())
    assert record["name"] == "vsepp_grid_gru" and "words found" in record["note"]
    again = run("evaluate", out, "--data", folder)
    assert float(again.split("rsum")[1].split()[0]) == pytest.approx(record["metrics"]["rsum"], abs=0.01)
    assert run("evaluate", out, out, "--data", folder) == again  # a run and itself say what it says alone
    drawn = tmp_path / "found.png"
    (photographs / "images" / "train0.jpg").unlink()  # only those that are shown are needed
    run("show", out, "--data", folder, "--pictures", photographs, "--out", drawn)
    assert drawn.stat().st_size > 0


def test_a_library_that_is_missing_is_named_with_the_extra_that_brings_it(monkeypatch, tmp_path, complaint):
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setattr("vsecore.scenes.load", lambda **_: pytest.fail("the data are opened"))
    said = complaint("train", "vsepp_grid_gru", "--out", tmp_path / "run", "--tensorboard")
    assert "tensorboard" in said and "extra 'logs'" in said
    assert not (tmp_path / "run").exists()


def test_runs_and_cca_are_evaluated_as_one(features, trained, tmp_path, complaint, monkeypatch):
    out, records_kept, dataset = trained[0], tmp_path / "records", open_precomp(features)
    run("train", "vsepp_grid_gru", "--data", features, "--out", tmp_path / "1", "--seed", "1", *SMALL)
    runs = ["cca", out, tmp_path / "1"]
    loaded = [load_run(folder) for folder in runs[1:]]
    scores = [cca_scores(dataset.train, dataset.test)]
    scores += [score_split(one.model, dataset.test, one.tokenizer) for one in loaded]
    expected = evaluate((2 * scores[0] + scores[1] + scores[2]) / 4, dataset.test.owner)["rsum"]
    weights = ["--weight", "2", "--weight", "1", "--weight", "1"]
    for data in (["--data", features], ["--data", features] * 3):
        said = run("evaluate", *runs, *data, *weights)
        assert float(said.split("rsum")[1].split()[0]) == pytest.approx(expected, abs=0.01)
    for split in ("dev", "test"):  # two splits of one ensemble are two records
        run("evaluate", *runs, "--data", features, *weights, "--split", split, "--record", records_kept)
    recorded = {entry.config["split"]: entry for entry in records.find(records_kept, name="ensemble")}
    assert recorded["test"].metrics["rsum"] == pytest.approx(expected)
    members = [(one["name"], one["seed"], one["weight"]) for one in recorded["test"].config["members"]]
    assert members == [("cca", 0, 2), ("vsepp_grid_gru", 0, 1), ("vsepp_grid_gru", 1, 1)]
    run("evaluate", *runs, "--data", features, *weights, "--json", tmp_path / "all.json")
    assert [one["weight"] for one in json.loads((tmp_path / "all.json").read_text())["runs"]] == [2, 1, 1]
    assert recorded["test"].seconds > sum(one.timings["seconds"] for one in loaded)
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("caption 0.5 0.1\npicture 0.1 0.5\n")
    np.save(trained[1] / "dev_ims.npy", np.load(trained[1] / "dev_ims.npy")[::-1])
    for more in ([], ["--folds", "2"], ["--vectors", vectors], ["--data", trained[1]] * 2):  # four more
        run("evaluate", *runs, "--data", features, *more, "--record", records_kept)
    assert len(records.find(records_kept)) == 6
    assert "--weight" in complaint("evaluate", *runs, "--data", features, *weights[:2])
    assert "only cca takes them" in complaint("evaluate", out, "--data", features, "--vectors", "glove")
    seen = []  # so few pictures are ranked the same by other weights
    monkeypatch.setattr("vsecore.evaluation.ensemble", lambda *_, weights: seen.append(weights) or scores[0])
    run("evaluate", *runs, "--data", features, *weights)
    assert seen == [[2, 1, 1]]


def test_an_evaluation_says_what_makes_its_numbers_doubtful(features, trained, complaint):
    out, other = trained
    assert "name its features with --data" in complaint("evaluate", out)
    rows = np.load(other / "train_ims.npy")
    np.save(other / "train_ims.npy", rows[::-1])
    said = CliRunner().invoke(cli.app, ["evaluate", str(out), "--data", str(other)])
    assert said.exit_code == 0 and "was trained on other data ('album')" in said.stderr
    assert "note" not in CliRunner().invoke(cli.app, ["evaluate", str(out), "--data", str(features)]).stderr
    meta = json.loads((other / "meta.json").read_text())
    assert out.joinpath("run.json").read_text().count(meta["backbone_sha256"][:12]) == 1
    (other / "meta.json").write_text(json.dumps(meta | {"backbone": "resnet50", "backbone_sha256": "0" * 64}))
    for command in (["evaluate", out], ["mine", out, "--out", other.parent / "mined"]):
        said = complaint(*command, "--data", other)
        assert meta["backbone"] in said and "resnet50 000000000000" in said
    for name in ("train", "dev", "test"):
        np.save(other / f"{name}_ims.npy", np.load(other / f"{name}_ims.npy")[..., :-1])
    (other / "meta.json").write_text(json.dumps({"kind": "grid"}))
    assert "reads features of width" in complaint("evaluate", out, "--data", other)


def test_an_ensemble_is_of_the_same_pictures(features, trained, complaint, monkeypatch):
    out, other = trained
    assert "3 times for 2 runs" in complaint("evaluate", out, out, *["--data", features] * 3)
    captions = other / "test_caps.txt"
    captions.write_text(captions.read_text().replace("\n", " .\n"))  # as the field's folders have them
    (other / "meta.json").unlink()  # which knows its captions
    (other / "test_ids.txt").unlink()
    command = ["evaluate", out, out, "--data", features, "--data", other]
    assert "testall_ims.npy" in complaint(*command, "--split", "testall")
    monkeypatch.setattr(recording, "COCO_5K", len(open_precomp(features).test))
    run(*command, "--split", "testall")  # what the test split has, if that is all of COCO's
    captions.write_text("another " + captions.read_text())
    assert "other pictures or captions" in complaint(*command)


def test_a_run_is_resumed_and_never_overwritten(features, tmp_path, complaint, monkeypatch):
    (own := tmp_path / "own.yaml").write_text(written(get("vsepp_grid_gru")))
    command = ["train", own, "--data", features, "--out", tmp_path / "run", *SMALL]
    first = run(*command, "--resume")
    assert f"note: {tmp_path / 'run'} holds no run to resume" in first
    with monkeypatch.context() as patched:
        patched.setattr("vsecore.data.features.open_precomp", lambda *_, **__: pytest.fail("data are read"))
        said = complaint(*command)
    assert "holds a run already" in said and "--resume" in said and "--out" in said
    again = run(*command, "--resume"), run("train", "--resume", "--out", tmp_path / "run")
    assert len({said.split("test:")[1].split("run:")[0] for said in (first, *again)}) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        *(
            (["train", "vsepp_grid_gru", "--set", change], words)
            for change, words in (
                ("training.epoch=3", ["training.epochs"]),
                ("training.epochs", ["="]),
                (f"dim={'[' * 100_000}", ["dim"]),
            )
        ),
        (["train", "vsepp_grid_gru", "--data", "now\udcffhere"], ["now\\udcffhere"]),
        (["train", "vsepp_grid_gru", "--seed", str(2**63)], ["--seed"]),
        (["train", "vsepp_grid_gru", "--negatives", "."], ["--negatives"]),
        (["train", "vsepp_grid_gru", "--targets", "."], ["--targets"]),
        (["train", "nowhere.yaml"], ["nowhere.yaml"]),
        (["evaluate", "."], [". holds no run"]),
        (["evaluate", "~no-such-user/run"], ["~no-such-user/run holds no run"]),
        (["search", "duplicates", "--index", "~no-such-user/index"], ["~no-such-user/index holds no index"]),
        (["data", "extract", "nowhere", "out"], ["nowhere"]),
        (["data", "extract", "same", "same"], ["is the folder of the photographs"]),
        (["experiment", "2ad_parts", "--arm", "AdPool", "--set", "dim=8"], ["without AdPool"]),
        (["experiment", "2ad_parts", "--missing", "--dry-run"], ["a name is given"]),
    ],
)
def test_bad_input_is_told_in_a_sentence(arguments, words, monkeypatch, tmp_path, complaint):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vsecore.scenes.load", lambda **_: pytest.fail("the data are opened"))
    said = complaint(*arguments)
    assert all(word in said for word in words), said
    assert not list(tmp_path.iterdir()), "something half-written was left"


def test_baselines_are_printed_and_recorded(features, tmp_path):
    said = run("baselines", "--data", features, "--record", tmp_path)
    found = {entry.name: entry.metrics["rsum"] for entry in records.find(tmp_path)}
    for name in ("chance", "ridge", "cca"):
        assert f"{name}: " in said and f"rsum {found[name]:.1f}" in said


def test_features_of_two_networks_are_joined(features, tmp_path):
    said = run("data", "join", features, features, "--out", tmp_path / "both")
    assert f"(1, {2 * open_precomp(features).feature_dim})" in said


def test_an_experiment_is_run_shown_beside_the_paper_and_gone_on_with(features, tmp_path, monkeypatch):
    small = dict(pair.split("=") for pair in SMALL[1::2])
    monkeypatch.setitem(LESSON_SCALE, open_precomp(features).name, small)
    records = tmp_path / "records"
    command = ["experiment", "2ad_parts", "--data", features, "--record", records, "--seeds", 2]
    command += ["--scale", "lesson"]
    said = run(*command, "--arm", "all", "--arm", "without AdOpt")
    for seed in (0, 1):
        assert f"all, seed {seed}: rsum" in said and f"without AdOpt, seed {seed}: rsum" in said
    assert re.search(r"\| all \| 2 \| [\d.]+ ± [\d.]+ \|.*\| 426.9 \|", said) and "| 417.9 |" in said
    again = run(*command, "--arm", "all", "--arm", "without AdOpt")
    assert ": rsum" not in again and "recorded already" in again and "| 426.9 |" in again
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("".join(f"{word} {'0.5 ' * 7}0.1\n" for word in ("caption", "picture", "the", "of")))
    other = ["--record", tmp_path / "other", "--seeds", 1, "--arm", "all", "--vectors", vectors, *SMALL]
    said = run(*command[:4], "--scale", "lesson", *other, "--set", "training.epochs=2")
    assert "all, seed 0: rsum" in said and "| all | 1 |" in said and "426.9" not in said  # another system
    tables = {path.stem for path in tmp_path.glob("*/*.csv")}
    assert tables == {f"2ad_parts-album-lesson-test{more}" for more in ("", "-vectors-set")}
    (record,) = (json.loads(path.read_text()) for path in (tmp_path / "other").glob("2ad*.json"))
    assert record["data"]["vectors"] and record["config"]["training"]["epochs"] == 2


@pytest.mark.parametrize(
    "arguments", [["train", "vsepp_grid_gru", "--record"], ["data", "extract", "nowhere"]]
)
@pytest.mark.parametrize("inside", [False, True])
def test_a_file_where_a_folder_belongs_is_told_first(arguments, inside, monkeypatch, tmp_path, complaint):
    monkeypatch.setattr("vsecore.scenes.load", lambda **_: pytest.fail("the data are opened"))
    file = tmp_path / "file"
    file.write_text("here already")
    said = complaint(*arguments, file / "inner" if inside else file)
    assert "is a file" in said and str(file) in said
    assert file.read_text() == "here already" and list(tmp_path.iterdir()) == [file]


def start(*arguments):
    command = [sys.executable, "-m", "vsecore", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_training_that_is_stopped_says_how_to_go_on(features, tmp_path, number, code):
    options = ["--data", features, *SMALL, "--set", "training.epochs=100000", "--workers", 1]
    training = start("train", "vsepp_grid_gru", "--out", tmp_path / "run", *options)
    while not (tmp_path / "run" / "checkpoint.safetensors").is_file() and training.poll() is None:
        time.sleep(0.05)
    os.killpg(training.pid, number)  # as a terminal does: the worker is stopped too
    _, said = training.communicate(timeout=60)
    assert training.returncode == code
    assert said.splitlines()[-1] == "vse: stopped; continue with --resume"


def test_a_program_that_drops_what_stops_it_ends_all_the_same():
    deaf = """
import os, signal, time
from vsecore import stopping
stopping.PATIENCE = 0.2
stopping.stop_tidily("course")
try:
    os.kill(os.getpid(), signal.SIGINT)
except BaseException:
    pass
time.sleep(60)
"""
    done = subprocess.run([sys.executable, "-c", deaf], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (130, "course: stopped\n")


def test_a_program_is_stopped_quietly_though_nobody_reads_what_it_printed():
    unread = """
import os, signal, sys
from vsecore import stopping
stopping.stop_tidily()
try:
    print("a line")
    os.close(int(sys.argv[1]))
    os.kill(os.getpid(), signal.SIGTERM)
except stopping.Stopped as stopped:
    stopping.end(stopped.code)
"""
    reading, writing = os.pipe()
    command = [sys.executable, "-c", unread, str(reading)]
    program = subprocess.Popen(
        command,
        stdout=writing,
        stderr=subprocess.PIPE,
        pass_fds=[reading],
        env=os.environ | {"PYTHONUNBUFFERED": ""},
    )
    os.close(reading)
    os.close(writing)
    assert program.communicate(timeout=30)[1] == b"vse: stopped\n" and program.returncode == 143


def test_a_reader_that_has_enough_ends_a_command_quietly():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "vsecore", "--help"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.stderr == b"" and done.returncode == 1


def test_negatives_are_mined_and_learned_from_by_commands_alone(trained, tmp_path, complaint):
    teacher, data = trained
    out = tmp_path / "negatives"
    said = run("mine", teacher, "--data", data, "--out", out)
    assert "there are only" in said and "vse train RECIPE --negatives" in said
    assert {path.name for path in out.iterdir()} == {"texts.npy", "pictures.npy", "negatives.json"}
    pupil = tmp_path / "pupil"
    run("train", "aoq_vsepp_grid_gru", "--data", data, "--negatives", out, "--out", pupil, *SMALL)
    assert load_run(pupil).data["negatives"]
    refused = complaint("mine", teacher, "--data", data, "--out", out, "--texts", 3)
    assert "texts: 300 in the folder, 3 now" in refused
    wrong = ("--data", data, "--negatives", teacher, "--out", tmp_path / "x")
    assert "holds no finished mining" in complaint("train", "aoq_vsepp_grid_gru", *wrong)


def test_every_number_of_a_table_comes_from_one_command(trained, tmp_path, complaint):
    (out, data), written = trained, tmp_path / "numbers.json"
    test = open_precomp(data).test
    run("evaluate", out, "--data", data, "--also", "ranking", "--json", written)
    found = json.loads(written.read_text())["metrics"]
    trained_run = load_run(out)
    scores = score_split(trained_run.model, test, trained_run.tokenizer)
    ranks = cross_retrieval_ranks(scores, test.owner)
    expected = evaluate(scores, test.owner) | graded(scores, test)
    expected |= {"both_r1": 100 * float((ranks == 0).double().mean()), "both_medr": float(ranks.median()) + 1}
    assert found == pytest.approx(expected)
    assert "no sets" in complaint("evaluate", out, "--data", data, "--also", "sets")


def test_all_test_pictures_of_a_folder_are_compared_and_shown_and_by_folds(trained, tmp_path):
    (first, data), second = trained, tmp_path / "second"
    run("train", "2ad_grid_gru", "--data", data, "--out", second, *SMALL)
    asked = ["compare", first, second, "--data", data, "--queries", "0"]
    whole = run(*asked)
    for file in data.glob("test_*"):
        file.rename(data / file.name.replace("test_", "testall_"))
    assert run(*asked, "--split", "testall") == whole
    test = open_precomp(data, test="testall").test
    by_folds = run(*asked, "--split", "testall", "--folds", "2")
    for folder in (first, second):
        one = load_run(folder)
        rsum = evaluate(score_split(one.model, test, one.tokenizer), test.owner, 2)["rsum"]
        assert f"| {one.recipe.name} | 1 | {rsum:.1f} |" in by_folds and by_folds != whole
    drawn = tmp_path / "shown.png"
    asked = ["show", first, "--data", data, "--pictures", make_album(tmp_path), "--out", drawn]
    run(*asked, "--split", "testall")
    assert drawn.stat().st_size > 0


def test_sets_are_measured_by_the_same_command(features, tmp_path):
    out = tmp_path / "sets"
    run("train", "pvse_grid", "--data", features, "--out", out, *SMALL)
    said = run("evaluate", out, "--data", features, "--also", "sets")
    assert "log_variance_pictures" in said and "rsum_texts_without_2" in said
