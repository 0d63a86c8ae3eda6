"""Runs side by side: differences by seed, intervals over seeds and over pictures, the queries that differ."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from small import recipe, small_split, train
from vsecore.cli import app, experiments
from vsecore.data.splits import Dataset
from vsecore.evaluation import evaluate
from vsecore.experiments.compare import Retrieved, Systems, resampled
from vsecore.training import score_split

SPLIT = small_split("test", 12)
DATA = Dataset("small", small_split("train", 20), SPLIT, SPLIT, "grid", network="one")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Runs of two recipes from two seeds each."""
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
    low, high = resampled(found.paired("2ad_grid_gru", "vsepp_grid_gru"), SPLIT.owner)
    assert low <= difference <= high
    with pytest.raises(ValueError, match="two recipes"):
        Systems.read(list(folders)[:2], lambda recipe: DATA)
    with pytest.raises(ValueError, match="seed 0"):
        Systems.read([next(iter(folders))] * 2, lambda recipe: DATA)
    with pytest.raises(ValueError, match="reads features of one, and small has features of another"):
        Systems.read(list(folders), lambda recipe: replace(DATA, network="another"))


def test_the_interval_over_pictures_is_that_of_drawing_them_one_by_one():
    dice, owner = np.random.default_rng(0), np.repeat(np.arange(40), 3)

    def retrieved(rank):
        return Retrieved(recipe(), 0, {}, dice.integers(0, rank, 40), dice.integers(0, rank, 120))

    pairs = [(retrieved(8), retrieved(20))]

    def rsum(one, pictures):
        captions = np.concatenate([np.flatnonzero(owner == picture) for picture in pictures])
        return 100 * sum(np.mean(one.i2t[pictures] < k) + np.mean(one.t2i[captions] < k) for k in (1, 5, 10))

    drawn = [dice.integers(0, 40, 40) for _ in range(400)]
    differences = [rsum(pairs[0][0], pictures) - rsum(pairs[0][1], pictures) for pictures in drawn]
    assert resampled(pairs, owner) == pytest.approx(np.quantile(differences, (0.025, 0.975)), rel=0.15)


def test_the_command_trains_recipes_takes_runs_and_shows_the_queries_that_differ_most(
    folders, tmp_path, monkeypatch
):
    monkeypatch.setattr(experiments, "open_dataset", lambda *given: DATA)
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
