"""Runs side by side: differences by seed, intervals over seeds and over pictures, the queries that differ."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from small import recipe, small_split, train
from vsecore.cli import app
from vsecore.data.splits import Dataset
from vsecore.evaluation import evaluate, ranks
from vsecore.experiments.compare import Retrieved, Systems, difference_interval
from vsecore.experiments.queries import intervals
from vsecore.training import score_split

SPLIT = small_split("test", 12)
DEV = small_split("dev", 12, seed=1)
DATA = Dataset("small", small_split("train", 20), DEV, SPLIT, "grid", network="one")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    kept = tmp_path_factory.mktemp("runs")
    made = {}
    for name in ("vsepp_grid_gru", "2ad_grid_gru"):
        for seed in (0, 1):
            folder = kept / f"{name}-{seed}"
            made[folder] = train(recipe(name, training__epochs=1), DATA, folder=folder, seed=seed)
    return made


def test_the_numbers_are_those_of_each_run_and_their_differences_by_seed(folders):
    found = Systems.read(list(folders), lambda recipe: DATA)
    assert list(found.runs) == ["vsepp_grid_gru", "2ad_grid_gru"]
    sums = [
        evaluate(score_split(run.model, SPLIT, run.tokenizer), SPLIT.owner)["rsum"]
        for run in folders.values()
    ]
    assert [one.metrics["rsum"] for several in found.runs.values() for one in several] == sums
    difference = np.mean([sums[2] - sums[0], sums[3] - sums[1]])
    assert f"| 2ad_grid_gru − vsepp_grid_gru | 2 | {difference:+.1f} |" in found.differences()
    apart = Systems.read(list(folders)[1:], lambda recipe: DATA)  # seed 1 against both
    assert f"| 2ad_grid_gru − vsepp_grid_gru | 1 | {sums[3] - sums[1]:+.1f} |" in apart.differences()
    low, high = difference_interval(found.paired("2ad_grid_gru", "vsepp_grid_gru"), SPLIT.owner)
    assert low <= difference <= high
    assert found.differences().rstrip().endswith(f"| {low:+.1f} to {high:+.1f} |")
    for name, (one, other) in found.runs.items():
        both = np.stack([one.ranks["captions"], other.ranks["captions"]])
        assert (found.median_ranks(name, "captions") == both.mean(0)).all()  # of two, the median is the mean
    for why, several in ("two recipes", list(folders)[:2]), ("seed 0", [next(iter(folders))] * 2):
        with pytest.raises(ValueError, match=why):
            Systems.read(several, lambda recipe: DATA)
    with pytest.raises(ValueError, match="reads features of one, and small has features of another"):
        Systems.read(list(folders), lambda recipe: replace(DATA, network="another"))


def test_systems_of_one_recipe_are_told_apart_by_their_folders(folders, tmp_path):
    """One has another batch size, one the weights of the first, one word vectors, one saw other data."""
    (folder, run), *_ = folders.items()
    train(recipe(training__epochs=1, training__batch_size=7), DATA, folder=tmp_path / "other", seed=0)
    begun = {"weights": run.model.state_dict(), "tokenizer": run.tokenizer}
    train(run.recipe, DATA, folder=tmp_path / "further", seed=0, **begun)
    words = torch.ones(len(run.tokenizer), 8)
    train(run.recipe, DATA, folder=tmp_path / "words", seed=0, tokenizer=run.tokenizer, vectors=words)
    train(run.recipe, replace(DATA, dev=DATA.train), folder=tmp_path / "data", seed=0)
    all_runs = [folder, *(tmp_path / name for name in ("other", "further", "words", "data"))]
    found = Systems.read(all_runs, lambda recipe: DATA)
    assert list(found.runs) == [f"vsepp_grid_gru ({one})" for one in all_runs]


def test_the_difference_to_a_system_that_finds_nothing_has_the_interval_of_the_other():
    dice, owner = np.random.default_rng(0), np.repeat(np.arange(40), 3)
    scores = torch.from_numpy(dice.standard_normal((40, 120)))
    of_kind = dict(zip(("pictures", "captions"), ranks(scores, owner), strict=True))
    one = Retrieved(recipe(), 0, {}, of_kind, {})
    nothing = Retrieved(recipe(), 0, {}, {kind: 0 * own + 99 for kind, own in of_kind.items()}, {})
    assert difference_interval([(one, nothing)], owner) == intervals(scores, owner)["rsum"]
    assert difference_interval([(one, nothing), (nothing, one)], owner) == (0, 0)


def test_the_command_trains_recipes_takes_runs_and_shows_queries(folders, tmp_path, monkeypatch):
    monkeypatch.setattr("vsecore.cli.options.open_for", lambda *given: DATA)
    small = (
        "training.batch_size=10,dim=8,text.encoder.word_dim=4,text.encoder.minimum_count=1,training.epochs=1"
    )
    asked = ["compare", str(next(iter(folders))), f"vsepp_grid_gru+max_violation,{small}", "--seeds", "2"]
    for _ in range(2):  # the second time nothing is trained
        done = CliRunner().invoke(app, [*asked, "--out", str(tmp_path), "--queries", "1"])
        assert done.exit_code == 0, done.output
    assert len(list(tmp_path.iterdir())) == 2
    *_, heads, _, earlier, later = done.output.strip().splitlines()
    assert heads.startswith("| query |")
    for line, sign in ((earlier, 1), (later, -1)):
        caption, _, rank, base = line.strip("| ").split(" | ")
        assert caption in SPLIT.captions and sign * (float(base) - float(rank)) > 0


@pytest.mark.parametrize("kind", ["captions", "pictures"])
def test_what_is_shown_is_what_each_run_finds_where_they_differ_most(folders, kind):
    two = Systems.read([next(iter(folders)), list(folders)[2]], lambda recipe: DATA)
    chosen = two.choose(kind, count=4)
    first, second = (runs[0].ranks[kind].numpy() for runs in two.runs.values())
    gain = np.log((1 + first) / (1 + second))
    assert gain[chosen[0]] == gain.max() > 0 > gain[chosen[2]] == gain.min() and len(set(chosen)) == 4
    asked = []
    two.figure(kind, chosen, lambda row: asked.append(row) or np.zeros((8, 8, 3), np.uint8))
    run = two.runs["vsepp_grid_gru"][0]
    scores = score_split(folders[next(iter(folders))].model, SPLIT, folders[next(iter(folders))].tokenizer)
    if kind == "captions":
        wanted = scores[:, chosen[0]].argsort(descending=True)[:5].tolist()
        assert asked[:5] == wanted == run.found[kind][chosen[0]].tolist()
    else:
        assert asked[0] == chosen[0]
