"""Experiments: each arm trained once from each seed, held side by side, and a verdict on each claim."""

import math
import statistics
import sys

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from vsecore import records
from vsecore.data.splits import Dataset, Split
from vsecore.evaluation import ensemble, evaluate
from vsecore.experiments import (
    EXPERIMENTS,
    LESSON_SCALE,
    RESULTS,
    Arm,
    Experiment,
    Member,
    claims,
    measured,
    outcomes,
    run,
    running,
    table,
    verdict,
    verdicts,
)
from vsecore.experiments.experiment import title_of
from vsecore.experiments.ledger import printed_sums
from vsecore.losses import adopt_k
from vsecore.training import fit, score_split

SMALL = {
    "dim": 8,
    "text.encoder.word_dim": 4,
    "text.encoder.minimum_count": 1,
    "training.batch_size": 10,
    "training.epochs": 2,
    "training.learning_rate": 0.01,
}
KINDS = ("grid", "region", "patch")


@pytest.fixture(autouse=True)
def a_small_scale(monkeypatch):
    """Data of the name "small" have a scale of their own; small products are fastest on one thread."""
    monkeypatch.setitem(LESSON_SCALE, "small", SMALL)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def trainings(monkeypatch):
    """What was trained: a recipe's name, the features, and the seed of each training."""
    seen = []

    def counted(recipe, data, **options):
        seen.append((recipe.name, data.feature_kind, options["seed"]))
        return fit(recipe, data, **options)

    monkeypatch.setattr(running, "fit", counted)
    return seen


def small_data(kind="grid", seed=0):
    """Twenty pictures of random elements; a caption says the number of its picture."""
    dice = np.random.default_rng([seed, KINDS.index(kind)])
    captions = [f"thing{picture} word{word}" for picture in range(20) for word in range(2)]
    pixels = dice.standard_normal((20, 5, 7)).astype(np.float16)
    split = Split("train", pixels, captions, np.repeat(np.arange(20), 2), [str(row) for row in range(20)])
    return Dataset("small", split, split, split, kind)


def silent(line):
    pass


def hand_made(folder, experiment, values, metric="rsum", data="small"):
    """Records of arms as if they had been trained: {arm: {seed: value}}."""
    for arm, by_seed in values.items():
        name, digest = title_of(EXPERIMENTS[experiment].trainings(arm, "grid", LESSON_SCALE[data]))
        for seed, value in by_seed.items():
            entry = records.record(
                name,
                config={},
                config_hash=digest,
                data={"name": data},
                seed=seed,
                metrics={metric: value},
                seconds=1.0,
            )
            records.write(entry, folder)


def cells(markdown):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines()[2:]]


# ---------------------------------------------------------------- the catalogue


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_arm_is_another_system_that_can_be_built(name):
    experiment = EXPERIMENTS[name]
    for data, scale in LESSON_SCALE.items():
        titles = set()
        for arm in experiment.arms:
            systems = experiment.trainings(arm, "grid", scale)
            assert systems
            titles.add(title_of(systems))
        assert len(titles) == len(experiment.arms), data
        assert len({digest for _, digest in titles}) == len(experiment.arms), data


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_arms_differ_in_nothing_but_what_the_experiment_is_about(name):
    experiment = EXPERIMENTS[name]
    for features in KINDS:
        first = experiment.trainings(next(iter(experiment.arms)), features, SMALL)[0].recipe
        for arm in experiment.arms:
            for system in experiment.trainings(arm, features, SMALL):
                # What an arm changes besides, its name says; nothing else may differ.
                rate = (
                    5e-4 if "paper_rate" in experiment.arms[arm].variants else SMALL["training.learning_rate"]
                )
                assert system.recipe.training == first.override({"training.learning_rate": rate}).training
                assert system.recipe.dim == first.dim == SMALL["dim"]
                assert system.recipe.image.encoder.name == system.member.features
                if not experiment.arms[arm].members:
                    assert system.member == Member(features)


def test_the_two_systems_of_a_claim_are_trained_alike():
    for claim in claims():
        arms = EXPERIMENTS[claim.experiment].arms
        slow = ["paper_rate" in arms[arm].variants for arm in (claim.better, claim.worse)]
        assert slow[0] == slow[1], claim


def test_an_arm_reads_the_features_asked_for_unless_it_says_so_itself():
    experiment = EXPERIMENTS["2ad_pooling"]
    assert experiment.trainings("GPO", "patch", {})[0].recipe.name == "2ad_patch_gru+gpo"
    members = EXPERIMENTS["2ad_ensembles"].trainings("RG", "patch", {})
    assert [system.recipe.image.encoder.name for system in members] == ["region", "grid"]


def test_a_system_that_is_trained_again_has_another_seed_and_its_arm_another_title():
    experiment = EXPERIMENTS["2ad_ensembles"]
    seeds = [system.seed(2) for system in experiment.trainings("RRR", "grid", {})]
    assert seeds[0] == 2
    assert len(set(seeds)) == 3
    titles = {arm: title_of(experiment.trainings(arm, "grid", {})) for arm in ("R", "RR", "RRR", "RG")}
    assert len(set(titles.values())) == 4
    recipe = experiment.trainings("R", "grid", {})[0].recipe
    assert titles["R"] == (recipe.name, recipe.hash())


def printed_of(arm):
    return printed_sums(Experiment("?", "nobody", "2ad_{features}_gru", {"one": arm}))


def test_the_papers_sums_of_an_experiment_are_of_the_same_pictures():
    for name, experiment in EXPERIMENTS.items():
        printed = printed_sums(experiment)
        named = {arm for arm, entry in experiment.arms.items() if entry.published}
        assert printed.keys() == named, name
    systems = printed_sums(EXPERIMENTS["2ad_systems"])
    assert systems == {"VSE+2AD": 527.8, "VSE∞": 520.5, "VSE++": 490.5}  # folds, for all three
    assert printed_sums(EXPERIMENTS["2ad_parts"])["all"] == 426.9  # all 5,000, which every part has
    assert printed_of(Arm()) == {}
    assert printed_of(Arm("", "VSE+2AD (R, BiGRU)")) == {"one": 426.9}  # of both, all pictures before folds


# ---------------------------------------------------------------- running


def test_each_arm_is_trained_from_each_seed_and_recorded_with_what_it_went_through(tmp_path):
    said = []
    arms = ("all", "without AdOpt")
    run("2ad_parts", small_data, seeds=(0, 1), arms=arms, folder=tmp_path, tell=said.append)
    assert [line.split(": rsum")[0] for line in said] == [f"{arm}, seed {s}" for s in (0, 1) for arm in arms]
    found = measured("2ad_parts", "small", folder=tmp_path)
    assert {arm: set(by_seed) for arm, by_seed in found.items()} == {arm: {0, 1} for arm in arms}
    for entry in records.find(tmp_path):
        assert entry.config["training"]["epochs"] == 2
        assert {f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)} < entry.metrics.keys()
        assert "dev_rsum_2" in entry.metrics and "dev_rsum_3" not in entry.metrics
        for rule in ("released", "printed"):
            assert all(1 <= entry.metrics[f"negatives_{rule}_{epoch}"] <= 9 for epoch in (1, 2))
    # What a hand would measure.
    data, kept = small_data(), {"released": [], "printed": []}

    def count_negatives(event):
        if event.kind == "step" and event.epoch == 1:
            for rule, counts in kept.items():
                counts.append(adopt_k(event.scores, rule, event.positives))

    system = EXPERIMENTS["2ad_parts"].trainings("all", "grid", SMALL)[0]
    trained = fit(system.recipe, data, callback=count_negatives, seed=1)
    recalls = evaluate(score_split(trained.model, data.test, trained.tokenizer), data.test.owner)
    expected = recalls | {f"negatives_{rule}_2": statistics.mean(counts) for rule, counts in kept.items()}
    expected["dev_rsum_1"] = trained.history[0]["rsum"]
    for metric in ("rsum", "t2i_r1", "dev_rsum_1", "negatives_released_2", "negatives_printed_2"):
        by_seed = measured("2ad_parts", "small", metric=metric, folder=tmp_path)["all"]
        assert by_seed[1] == expected[metric], metric


def test_batches_of_pictures_with_all_their_captions_are_followed_too(tmp_path):
    scale = SMALL | {"training.batches": "pictures"}
    run("2ad_parts", small_data, seeds=(0,), arms=["all"], scale=scale, folder=tmp_path, tell=silent)
    (entry,) = records.find(tmp_path)
    assert 1 <= entry.metrics["negatives_released_1"] <= 9


def test_what_is_recorded_is_not_trained_again(tmp_path, trainings):
    for seeds in ((0,), (0, 1), (0, 1)):
        run("2ad_parts", small_data, seeds=seeds, arms=["all"], folder=tmp_path, tell=silent)
    assert trainings == [("2ad_grid_gru", "grid", 0), ("2ad_grid_gru", "grid", 1)]
    # An arm of another experiment that is the same system is the same training.
    run("2ad_pooling", small_data, seeds=(0, 1), arms=["AdPool"], folder=tmp_path, tell=silent)
    assert len(trainings) == 2


def test_other_data_words_or_settings_are_another_training(tmp_path, trainings):
    def again(open_data=small_data, **options):
        run("2ad_parts", open_data, seeds=(0,), arms=["all"], folder=tmp_path, tell=silent, **options)

    again()
    again(lambda kind: small_data(kind, seed=1))
    again(vectors=lambda tokenizer: torch.ones(len(tokenizer), SMALL["text.encoder.word_dim"]))
    again(scale=SMALL | {"dim": 12})
    again(features="region")
    assert len(trainings) == len(records.find(tmp_path)) == 5


def test_an_interrupted_experiment_has_whole_comparisons_and_goes_on(tmp_path, monkeypatch, trainings):
    arms, counted = ["all", "without AdPool"], running.fit

    def stops_at_the_fourth(recipe, data, **options):
        if len(trainings) == 3:
            raise KeyboardInterrupt
        return counted(recipe, data, **options)

    monkeypatch.setattr(running, "fit", stops_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        run("2ad_parts", small_data, arms=arms, folder=tmp_path, tell=silent)
    before = measured("2ad_parts", "small", folder=tmp_path)
    assert [set(before[arm]) for arm in arms] == [{0, 1}, {0}]
    monkeypatch.setattr(running, "fit", counted)
    run("2ad_parts", small_data, arms=arms, folder=tmp_path, tell=silent)
    assert len(trainings) == 6
    after = measured("2ad_parts", "small", folder=tmp_path)
    assert [set(after[arm]) for arm in arms] == [{0, 1, 2}] * 2
    assert all(before[arm].items() <= after[arm].items() for arm in arms)


def test_an_ensemble_averages_its_members_each_of_which_is_trained_once(tmp_path, trainings):
    arms = ["R", "RG", "RR"]
    run("2ad_ensembles", small_data, seeds=(3,), arms=arms, folder=tmp_path, tell=silent)
    again = EXPERIMENTS["2ad_ensembles"].trainings("RR", "grid", SMALL)[1].seed(3)
    assert sorted(trainings) == sorted(
        [("2ad_region_gru", "region", 3), ("2ad_grid_gru", "grid", 3), ("2ad_region_gru", "region", again)]
    )
    scores, owner = [], small_data().test.owner
    for system in EXPERIMENTS["2ad_ensembles"].trainings("RG", "grid", SMALL):
        data = small_data(system.member.features)
        member = fit(system.recipe, data, seed=3)
        scores.append(score_split(member.model, data.test, member.tokenizer))
    found = measured("2ad_ensembles", "small", folder=tmp_path)
    assert found["R"][3] == evaluate(scores[0], owner)["rsum"]
    assert found["RG"][3] == evaluate(ensemble(*scores), owner)["rsum"]
    (entry,) = [entry for entry in records.find(tmp_path) if "2ad_grid_gru" in entry.name]
    assert [member["image"]["encoder"]["name"] for member in entry.config["members"]] == ["region", "grid"]
    assert entry.seconds > 0
    run("2ad_ensembles", small_data, seeds=(3,), arms=arms, folder=tmp_path, tell=silent)
    assert len(trainings) == 3


def test_what_is_unknown_is_answered_with_what_there_is(tmp_path):
    with pytest.raises(ValueError, match=r"experiment '2ad_poolings' is unknown: there are 2ad_pooling, "):
        run("2ad_poolings", small_data, folder=tmp_path)
    with pytest.raises(ValueError, match=r"arm 'GPOO' is unknown: there are AdPool, GPO, "):
        run("2ad_pooling", small_data, arms=["GPOO"], folder=tmp_path)
    assert not list(tmp_path.iterdir())
    for reads in (measured, table):
        with pytest.raises(ValueError, match="experiment '2ad_poolings' is unknown"):
            reads("2ad_poolings", "small")
        with pytest.raises(ValueError, match=r"no scale is known for data 'large': there are scenes, "):
            reads("2ad_pooling", "large")
    data = small_data()
    large = Dataset("large", data.train, data.dev, data.test, "grid")
    with pytest.raises(ValueError, match="no scale is known for data 'large'"):
        run("2ad_pooling", lambda kind: large, folder=tmp_path)


# ---------------------------------------------------------------- tables


def test_a_table_has_the_best_first_beside_the_papers_numbers_and_places(tmp_path):
    values = {
        "AdPool": {0: 300.0, 1: 310.0, 2: 305.0},
        "GPO": {0: 320.0},
        "LIP": {0: 100.0, 1: 104.0},
        "max": {1: 310.0, 2: 300.0},  # the paper has no number
    }
    hand_made(tmp_path, "2ad_pooling", values)
    assert cells(table("2ad_pooling", "small", folder=tmp_path)) == [
        ["GPO", "422.9", "2", "320.0", "–", "1", "1"],
        ["AdPool", "426.9", "1", "305.0", "5.0", "2", "3"],
        ["max", "–", "–", "305.0", "7.1", "–", "2"],  # no place there, so none here
        ["LIP", "414.8", "3", "102.0", "2.8", "3", "2"],
    ]


def test_where_nothing_is_recorded_a_table_is_empty(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert measured("2ad_pooling", "small", folder=folder) == {}
        assert len(table("2ad_pooling", "small", folder=folder).splitlines()) == 2


def test_only_records_of_the_arms_own_settings_data_and_features_count(tmp_path):
    hand_made(tmp_path, "2ad_pooling", {"GPO": {0: 1.0}}, data="scenes")
    run("2ad_pooling", small_data, seeds=(0,), arms=["GPO"], scale=SMALL | {"dim": 12}, folder=tmp_path)
    assert len(records.find(tmp_path)) == 2
    assert measured("2ad_pooling", "small", folder=tmp_path) == {}
    assert measured("2ad_pooling", "scenes", folder=tmp_path) == {"GPO": {0: 1.0}}
    assert measured("2ad_pooling", "scenes", features="region", folder=tmp_path) == {}
    assert measured("2ad_pooling", "scenes", metric="dev_rsum_1", folder=tmp_path) == {}


def test_every_stored_record_is_of_an_arm_at_the_scale_of_a_lesson():
    titles = {
        (data, *title_of(experiment.trainings(arm, features, scale)))
        for data, scale in LESSON_SCALE.items()
        for experiment in EXPERIMENTS.values()
        for arm in experiment.arms
        for features in KINDS
    }
    for entry in records.find(RESULTS):
        known = (entry.data["name"], entry.name, entry.config_hash) in titles
        assert known, f"no arm is {entry.file_name}: take it away"


# ---------------------------------------------------------------- verdicts


def test_verdicts_by_hand():
    # t is the mean over the spread by the root of the number; 3 differences are significant above 2.92.
    assert verdict([1.0, 2.0, 3.0]) == "reproduced"  # t = 2 / (1 / √3) = 3.46
    assert verdict([-1.0, -2.0, -3.0]) == "contradicted"
    assert verdict([1.0, 2.0, 4.5]) == "not on this data"  # t = 2.5 / (1.80 / √3) = 2.40
    assert verdict([-1.0, 3.0, 1.0]) == "not on this data"
    assert verdict([1.0, 1.3]) == "reproduced"  # t = 1.15 / (0.212 / √2) = 7.67, and 6.31 is needed
    assert verdict([1.0, 1.4]) == "not on this data"  # t = 6.00
    assert verdict([]) == verdict([100.0]) == "not tried"  # one difference has no spread
    assert verdict([2.0, 2.0]) == "reproduced"  # no spread, no doubt
    assert verdict([-2.0, -2.0]) == "contradicted"
    assert verdict([0.0, 0.0, 0.0]) == "not on this data"


@given(st.lists(st.integers(-300, 300), min_size=2, max_size=5))
@settings(max_examples=100, deadline=None)
def test_a_verdict_is_that_of_a_paired_one_sided_t_test(tenths):
    critical = {2: 6.3138, 3: 2.9200, 4: 2.3534, 5: 2.1318}[len(tenths)]  # one-sided, 5 %
    differences = [tenth / 10 for tenth in tenths]
    spread = statistics.stdev(differences)
    if spread == 0:
        t = math.copysign(math.inf, tenths[0]) if tenths[0] else 0.0
    else:
        t = statistics.mean(differences) / (spread / math.sqrt(len(tenths)))
    if abs(abs(t) - critical) < 1e-3:
        return
    expected = "reproduced" if t > critical else "contradicted" if t < -critical else "not on this data"
    assert verdict(differences) == expected
    opposite = {"reproduced": "contradicted", "contradicted": "reproduced"}
    assert verdict([-d for d in differences]) == opposite.get(expected, expected)


def test_claims_are_judged_seed_by_seed(tmp_path, monkeypatch):
    written = [
        {"better": "all", "worse": "without AdOpt", "statement": "AdOpt helps"},
        {"better": "all", "worse": "without AdPool", "statement": "AdPool helps"},
        {"better": "all", "worse": "without token level", "statement": "the token level helps"},
        {"better": "all", "worse": "without AdOpt", "statement": "it is faster", "metric": "dev_rsum_1"},
    ]
    write_claims(tmp_path, monkeypatch, [CLAIM | entry for entry in written])
    folder = tmp_path / "records"
    values = {
        "all": {0: 300.0, 1: 320.0, 2: 310.0, 7: 900.0},
        "without AdOpt": {0: 297.0, 1: 316.0, 2: 305.0, 8: 0.0},  # 7 and 8 have no partner
        "without AdPool": {0: 301.0, 1: 322.0, 2: 313.0},
        "without token level": {2: 1.0},
    }
    hand_made(folder, "2ad_parts", values)
    held = outcomes("2ad", "small", folder=folder)
    assert [outcome.differences for outcome in held] == [[3.0, 4.0, 5.0], [-1.0, -2.0, -3.0], [309.0], []]
    assert [outcome.verdict for outcome in held] == ["reproduced", "contradicted", "not tried", "not tried"]
    assert cells(verdicts("2ad", "small", folder=folder)) == [
        ["AdOpt helps (table 3)", "+9.0", "+4.0", "1.0", "3", "reproduced"],
        ["AdPool helps (table 3)", "+7.8", "-2.0", "1.0", "3", "contradicted"],
        ["the token level helps (table 3)", "+6.8", "+309.0", "–", "1", "not tried"],
        ["it is faster (table 3)", "–", "–", "–", "0", "not tried"],  # the paper prints no such number
    ]
    assert outcomes("2ad", "small", experiment="2ad_pooling", folder=folder) == []
    assert len(outcomes("2ad", "small", experiment="2ad_parts", folder=folder)) == 4
    assert outcomes("aoq", "small", folder=folder) == []


# ---------------------------------------------------------------- claims

CLAIM = {
    "work": "2ad",
    "place": "table 3",
    "statement": "AdOpt helps",
    "experiment": "2ad_parts",
    "better": "all",
    "worse": "without AdOpt",
}


def write_claims(folder, monkeypatch, entries):
    path = folder / "claims.yml"
    path.write_text(yaml.safe_dump(entries), encoding="utf-8")
    monkeypatch.setattr(sys.modules["vsecore.experiments.ledger"], "CLAIMS", path)


def test_every_claim_is_told_once_and_borne_out_by_the_papers_own_numbers():
    held = claims()
    assert held
    assert {claim.work for claim in held} <= {"relational", "aoq", "2ad", "dive", "ltd"}
    assert claims("2ad") == [claim for claim in held if claim.work == "2ad"]
    for field in ("statement", "place"):
        assert all(getattr(claim, field).strip() for claim in held)
    assert len({(claim.statement, claim.experiment) for claim in held}) == len(held)
    assert len({(c.experiment, c.better, c.worse, c.metric) for c in held}) == len(held)
    told = 0
    for claim in held:
        assert claim.better != claim.worse
        printed = printed_sums(EXPERIMENTS[claim.experiment])
        if claim.metric == "rsum" and {claim.better, claim.worse} <= printed.keys():
            assert printed[claim.better] > printed[claim.worse], claim.statement
            told += 1
    assert told > len(held) / 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "red"}, "missing or unknown fields: colour"),
        ({"better": None}, "missing or unknown fields: better"),
        ({"experiment": "2ad_party"}, "experiment '2ad_party' is unknown: there are 2ad_pooling"),
        ({"worse": "without AdSpot"}, "experiment '2ad_parts' has no arm 'without AdSpot'"),
    ],
)
def test_a_damaged_claim_is_told(tmp_path, monkeypatch, change, message):
    entry = {key: value for key, value in (CLAIM | change).items() if value is not None}
    write_claims(tmp_path, monkeypatch, [CLAIM, entry])
    with pytest.raises(ValueError, match=message):
        claims()


def test_a_claim_may_name_another_metric(tmp_path, monkeypatch):
    write_claims(tmp_path, monkeypatch, [CLAIM, CLAIM | {"metric": "dev_rsum_1"}])
    assert [claim.metric for claim in claims("2ad")] == ["rsum", "dev_rsum_1"]


def test_records_of_different_data_are_not_set_side_by_side(tmp_path):
    for arm, seed in (("AdPool", 0), ("mean", 1)):
        run(
            "2ad_pooling",
            lambda kind, s=seed: small_data(kind, s),
            seeds=[0],
            arms=[arm],
            folder=tmp_path,
            tell=silent,
        )
    with pytest.raises(ValueError, match="2 different sets of grid"):
        measured("2ad_pooling", "small", folder=tmp_path)
