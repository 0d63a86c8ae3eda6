"""What a first round leaves to the second: mined negatives, and how many of them are true."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from studies import SMALL
from vsecore import records, scenes
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.experiments import (
    EXPERIMENTS,
    LESSON_SCALE,
    WORLDS,
    Arm,
    collection_of,
    epochs_to_pass,
    run,
    running,
    studied,
    tuning,
)
from vsecore.experiments.claims import PASSED
from vsecore.experiments.experiment import Training, only_recipe, title_of
from vsecore.experiments.ledger import Studied, race
from vsecore.experiments.references import ORACLE, SHARES, mine_for, shares_true, truth_of
from vsecore.experiments.verdicts import differences
from vsecore.recipes import get
from vsecore.training import fit, fit_in_rounds, score_split

NEAR = "scenes_near_duplicates"


@pytest.fixture(scope="module")
def world():
    """A small part of the world with near duplicates, under its own name."""
    data = scenes.load(train=20, dev=20, test=20, features="region", **WORLDS[NEAR])
    return replace(data, name=NEAR)


@pytest.fixture(scope="module")
def trained(world):
    """A model that was hardly trained, which is enough to mine."""
    return fit(get("aoq_vsepp_region_gru+online", SMALL), world)


@pytest.fixture(autouse=True)
def a_small_scale(monkeypatch):
    monkeypatch.setitem(LESSON_SCALE, "scenes", SMALL)
    monkeypatch.setitem(LESSON_SCALE, "small", SMALL)


@pytest.fixture
def trainings(monkeypatch, tmp_path):
    """What was trained, by name; the runs of models that mine are kept in a cache of this test."""
    monkeypatch.setattr(running, "cache_folder", lambda name: tmp_path / "cache" / name)
    seen = []

    def counted(recipe, data, **options):
        folder = options["folder"]
        if folder is None or not (folder / "run.json").exists():
            seen.append((recipe.name, options["seed"]))
        return fit_in_rounds(recipe, data, **options)

    monkeypatch.setattr(running, "fit_in_rounds", counted)
    return seen


def in_a_lesson(world, folder, arms, seeds=(0,), name="offline_parts"):
    options = {"arms": arms, "seeds": seeds, "scale": "lesson", "log": lambda line: None, "folder": folder}
    run(name, lambda kind: world, **options)


def test_the_share_of_true_negatives_is_counted_one_by_one():
    dice = np.random.default_rng(0)
    truth = torch.from_numpy(dice.random((12, 5)) < 0.4)  # 12 captions, 5 pictures
    negatives = OfflineNegatives(dice.integers(0, 12, (5, 4)), dice.integers(0, 5, (12, 3)))
    texts = [bool(truth[c, picture]) for picture in range(5) for c in negatives.texts[picture]]
    pictures = [bool(truth[caption, p]) for caption in range(12) for p in negatives.pictures[caption]]
    assert shares_true(negatives, truth) == {
        "mined_true_texts": 100 * np.mean(texts),
        "mined_true_pictures": 100 * np.mean(pictures),
    }


def test_the_truth_of_a_world_is_that_of_its_own_pictures(world):
    for split in (world.train, world.test):
        truth = truth_of(split, NEAR)
        assert truth.shape == (100, 20)
        assert truth[torch.arange(100), torch.as_tensor(split.owner)].all(), "each is true of its own"
        assert truth_of(split, "scenes") is None, "the pictures are not those of the usual world"
    assert truth_of(world.test, "small") is None
    assert collection_of(NEAR) == collection_of("scenes") == "scenes" and collection_of("x") == "x"


def test_only_the_hardest_false_negatives_are_mined_where_true_ones_are_left_out(world, trained):
    truth = truth_of(world.train, NEAR)
    mined = mine_for(trained.model, world.train, trained.tokenizer, 7, 3, truth)
    mined.check(world.train)
    assert shares_true(mined, truth) == dict.fromkeys(SHARES, 0.0)
    scores = score_split(trained.model, world.train, trained.tokenizer)
    for picture in range(20):
        allowed = [c for c in range(100) if not truth[c, picture]]
        best = sorted(allowed, key=lambda c: -scores[picture, c])[:7]
        assert set(mined.texts[picture]) == set(best)
    for caption in range(100):
        allowed = [p for p in range(20) if not truth[caption, p]]
        best = sorted(allowed, key=lambda p: -scores[p, caption])[:3]
        assert set(mined.pictures[caption]) == set(best)


def test_lists_are_as_long_as_the_shortest_and_none_may_be_empty(world, trained):
    truth = truth_of(world.train, NEAR).clone()
    mined = mine_for(trained.model, world.train, trained.tokenizer, 1000, 1000, truth)
    assert mined.texts.shape == (20, int((~truth).sum(0).min()))
    assert mined.pictures.shape == (100, int((~truth).sum(1).min()))
    truth[:, 4] = True
    with pytest.raises(ValueError, match="everything is true"):
        mine_for(trained.model, world.train, trained.tokenizer, 7, 3, truth)


def planned(arm, changes=SMALL):
    (training,) = EXPERIMENTS["offline_parts"].trainings(
        arm, "region", lambda system: only_recipe(system, changes)
    )
    return training


def test_a_training_is_told_by_its_recipe_and_by_what_mines_for_it():
    whole, filtered, miner = planned("whole"), planned("without true ones"), planned("online")
    assert whole.system.miner == miner and miner.system.miner is None
    assert title_of([miner]) == (miner.recipe.name, miner.recipe.hash())
    assert whole.recipe == filtered.recipe and whole.digest != filtered.digest != whole.recipe.hash()
    other = Training(get(miner.recipe.name, SMALL | {"training.epochs": 3}), miner.system)
    assert replace(whole, system=replace(whole.system, miner=other)).digest != whole.digest
    rate = SMALL["training.learning_rate"]
    assert tuning.digest_at(whole.system, "aoq_vsepp_region_gru", SMALL, rate) == whole.digest
    unknown = EXPERIMENTS["offline_parts"].trainings(
        "whole", "region", lambda system: only_recipe(system, SMALL) if system.miner else None
    )
    assert unknown == [], "an arm whose miner is not known yet is not known either"


def test_one_model_mines_for_all_arms_of_a_seed_and_is_trained_once(tmp_path, world, trainings):
    plain, online = "aoq_vsepp_region_gru", "aoq_vsepp_region_gru+online"
    in_a_lesson(world, tmp_path, ["online"])
    in_a_lesson(world, tmp_path, ["whole", "without true ones"])
    assert trainings == [(online, 0), (plain, 0), (plain, 0)], "the run of the miner is kept"
    in_a_lesson(world, tmp_path, ["whole"], seeds=(1,))
    assert trainings[3:] == [(online, 1), (plain, 1)], "another seed has a miner, although not asked for"
    in_a_lesson(world, tmp_path, ["online", "whole"], seeds=(0, 1))
    assert len(trainings) == 5, "all is recorded, or its run is kept"


def test_what_is_trained_further_begins_with_the_weights_that_mined(tmp_path, world, monkeypatch):
    begun, fitted = {}, running.fit_in_rounds

    def watched(recipe, *data, weights, **options):
        return begun.setdefault(recipe.name, (weights, fitted(recipe, *data, weights=weights, **options)))[1]

    monkeypatch.setattr(running, "fit_in_rounds", watched)
    in_a_lesson(world, tmp_path, ["whole", "fine-tuned"])
    weights, _ = begun.pop("aoq_vsepp_region_gru+fine_tuned")
    torch.testing.assert_close(weights, begun["aoq_vsepp_region_gru+online"][1].model.state_dict())
    assert all(weights is None for weights, _ in begun.values())


def test_a_record_says_what_mined_and_how_much_of_it_was_true(tmp_path, world, trained, trainings):
    in_a_lesson(world, tmp_path / "records", ["online", "whole", "without true ones"])
    found = {
        (entry.name, "left_out" in entry.data): entry
        for entry in records.find(tmp_path / "records", data=NEAR)
        if "training" in entry.config
    }
    miner = planned("online")
    whole = found["aoq_vsepp_region_gru", False]
    assert whole.data["mined_by"] == f"aoq_vsepp_region_gru+online {miner.digest}, seed 0"
    assert whole.config_hash == planned("whole").digest
    truth = truth_of(world.train, NEAR)
    mined = mine_for(trained.model, world.train, trained.tokenizer, 300, 60)
    assert {share: whole.metrics[share] for share in SHARES} == pytest.approx(shares_true(mined, truth))
    filtered = found["aoq_vsepp_region_gru", True]
    assert {share: filtered.metrics[share] for share in SHARES} == dict.fromkeys(SHARES, 0.0)
    assert filtered.data["negatives"] != whole.data["negatives"]
    online = found["aoq_vsepp_region_gru+online", False]
    assert "mined_by" not in online.data and SHARES[0] not in online.metrics
    for entry in found.values():
        for measure in ("rsum", "i2t_r1", "t2i_r1"):
            assert f"dev_{measure}_2" in entry.metrics and f"dev_{measure}_3" not in entry.metrics
        assert "i2t_map_at_r" in entry.metrics
    arms = studied("offline_parts", "scenes", scale="lesson", folder=tmp_path / "records")
    assert set(arms) == {"online", "whole", "without true ones"}
    assert arms["whole"].results["rsum"] == {0: whole.metrics["rsum"]}
    assert arms["without true ones"].results["rsum"] == {0: filtered.metrics["rsum"]}
    assert arms["online"].baseline.keys() >= {"rsum", "t2i_map_at_r"}
    assert records.find(tmp_path / "records", name=ORACLE, data=NEAR)


def test_a_teacher_mines_for_a_system_without_a_first_round(tmp_path, world, trainings, monkeypatch):
    arms = {"teacher": Arm("+online"), "taught": Arm(recipe="aoq_bfan_{features}_gru", mined_by="teacher")}
    monkeypatch.setitem(EXPERIMENTS, "odd", replace(EXPERIMENTS["offline_parts"], arms=arms))
    in_a_lesson(world, tmp_path / "records", ["taught"], name="odd")
    assert trainings == [("aoq_vsepp_region_gru+online", 0), ("aoq_bfan_region_gru", 0)]
    (entry,) = records.find(tmp_path / "records", name="aoq_bfan_region_gru")
    assert entry.data["mined_by"].startswith("aoq_vsepp_region_gru+online ")


def test_data_that_an_arm_cannot_be_trained_on_are_refused(tmp_path, world):
    """Scenes of another world; no known truth, where true negatives are to be left out."""
    parts = EXPERIMENTS["offline_parts"]
    for name, data, arms, named in (
        ("offline_parts", "scenes", [], "scenes"),
        ("2ad_parts", NEAR, [], NEAR),
        ("offline_parts", "small", ["without true ones"], "without true ones"),
    ):
        with pytest.raises(ValueError, match=named):
            in_a_lesson(replace(world, name=data), tmp_path, arms, name=name)
    assert [parts.data_named(data) for data in ("scenes", "flickr8k")] == [NEAR, "flickr8k"]
    assert parts.trains_on("whole", "flickr8k") and not parts.trains_on("without true ones", "flickr8k")


def followed(**curves):
    """An arm with these curves: for each seed, a measure after each epoch."""
    results = {}
    for measure, by_seed in curves.items():
        for seed, values in enumerate(by_seed):
            for epoch, value in enumerate(values, start=1):
                results.setdefault(f"dev_{measure}_{epoch}", {})[seed] = value
    return Studied("", [], results, {}, ("", ""))


def test_a_baseline_is_passed_in_the_first_epoch_above_its_best():
    slow = [*range(10, 22)]  # twelve epochs: the tenth is not before the second
    baseline = followed(rsum=[[50.0, 70.0, 60.0], [10.0, 20.0, 19.5], [1.0, 2.0, 3.0]])
    system = followed(rsum=[[60.0, 70.0, 71.0], slow])
    assert epochs_to_pass(system, baseline) == {0: 3, 1: 12}
    assert epochs_to_pass(baseline, system) == {0: None, 1: None}
    assert epochs_to_pass(system, baseline, "i2t_r1") == {}


def test_a_system_that_passes_in_time_has_epochs_to_spare():
    baseline = followed(i2t_r1=[[5.0, 7.0, 6.0, 6.0]] * 3, t2i_r1=[[9.0, 9.0, 9.0, 9.0]] * 3)
    curves = [[8.0, 1.0, 1.0, 1.0], [7.0, 7.0, 8.0, 1.0], [7.0] * 4]
    first, second = race(followed(i2t_r1=curves, t2i_r1=curves), baseline)
    assert differences(first, second, PASSED["i2t_r1"]) == [2 - 1, 2 - 3, 2 - 5]
    assert differences(first, second, PASSED["t2i_r1"]) == [2 - 5] * 3
