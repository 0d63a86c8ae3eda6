"""Experiments: each arm trained once from each seed, and compared."""

import gc
import math
import os
import signal
import statistics
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from small import make_bert, start
from studies import SMALL, study
from vsecore import records, scenes
from vsecore.baselines import ridge_scores
from vsecore.data.splits import Dataset, Split
from vsecore.evaluation import cross_retrieval_ranks, ensemble, evaluate, map_at_r
from vsecore.experiments import (
    EXPERIMENTS,
    FAIR_SCALE,
    LESSON_SCALE,
    RESULTS,
    Arm,
    Experiment,
    claims,
    recording,
    run,
    running,
    studied,
    tuning,
)
from vsecore.experiments.claims import FIRST_PLACE
from vsecore.experiments.experiment import System, only_recipe, title_of
from vsecore.experiments.measures import PAIRS, pair_accuracy, pair_scores
from vsecore.experiments.printed import printed_difference, printed_metrics, printed_rows, printed_sets
from vsecore.experiments.references import BASELINE, ORACLE, alike, on_truth, record_references, truth_of
from vsecore.experiments.running import Settings
from vsecore.experiments.scales import FOR_COLLECTION, FOR_SMALL, changes_of
from vsecore.experiments.tables import FIVE_FOLDS, Comparison
from vsecore.losses import adopt_k
from vsecore.recipes import RECIPES, Training, get
from vsecore.training import fit, score_split

KINDS = ("grid", "region", "patch")


def measured(name, data, features=None, metric="rsum", **options):
    """One metric of each arm by seed, without arms that lack it."""
    found = studied(name, data, features, **options)
    return {arm: dict(one.results[metric]) for arm, one in found.items() if metric in one.results}


def base_of(recipe, kind):
    """The name of a recipe without its variants."""
    return recipe.format(features=kind).partition("+")[0]


def kinds_of(experiment):
    """The kinds of features for which there are recipes."""
    return [kind for kind in KINDS if base_of(experiment.recipe, kind) in RECIPES]


@pytest.fixture
def cache(tmp_path_factory):
    """Where runs are kept while they are trained."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def a_small_scale(monkeypatch, cache):
    """Data of the name "small" have a scale of their own."""
    monkeypatch.setattr(running, "cache_folder", lambda name: cache / name)
    monkeypatch.setitem(LESSON_SCALE, "small", SMALL)


@pytest.fixture
def trainings(monkeypatch):
    """What was trained: a recipe's name, the features, and the seed of each training."""
    seen = []

    def counted(recipe, data, **options):
        seen.append((recipe.name, data.feature_kind, options["seed"]))
        return fit(recipe, data, **options)

    monkeypatch.setattr(running, "fit_in_rounds", counted)
    return seen


def planned(experiment, arm, features, changes):
    """What an arm trains with these changes to its recipes."""
    if experiment.recipe.endswith("_bert"):  # it counts no words
        changes = {field: value for field, value in changes.items() if field != "text.encoder.minimum_count"}
    return experiment.trainings(arm, features, lambda system: only_recipe(system, changes))


def in_a_lesson(name, open_data, seeds=range(3), log=lambda line: None, **options):
    """Run an experiment at the scale of a lesson."""
    run(name, open_data, seeds=seeds, scale="lesson", log=log, **options)


def trained_in(folder):
    """The records of trainings; what they are compared with is left out."""
    return [entry for entry in records.find(folder) if entry.name != BASELINE]


def small_data(kind="grid", seed=0, count=20):
    """Some pictures of random elements; a caption says the number of its picture."""
    dice, rows = np.random.default_rng([seed, KINDS.index(kind)]), range(count)
    captions = [f"thing{picture} word{word}" for picture in rows for word in range(2)]
    pixels = dice.standard_normal((count, 5, 7)).astype(np.float16)
    split = Split("train", pixels, captions, np.repeat(np.arange(count), 2), [*map(str, rows)])
    return Dataset("small", split, split.subset(count - 4), split, kind)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_arms_are_systems_that_differ_in_nothing_but_what_the_experiment_is_about(name):
    experiment = EXPERIMENTS[name]
    apart = [arm for arm, chosen in experiment.arms.items() if not (chosen.best_of or chosen.at_rate_of)]
    for data, scale in (LESSON_SCALE | FAIR_SCALE).items():
        titles = {title_of(planned(experiment, arm, experiment.features_on(data), scale)) for arm in apart}
        assert len(titles) == len({digest for _, digest in titles}) == len(apart), data
    for features in kinds_of(experiment):
        by_recipe = {}
        for arm, of_arm in experiment.arms.items():
            for system in planned(experiment, arm, features, SMALL):
                base = base_of(of_arm.recipe or experiment.recipe, features)
                changed, first = {}, by_recipe.setdefault(base, system.recipe)
                if name == "latent_bounds":  # asks what the averaged snapshots change
                    changed = {"snapshots": 0 if "without averages" in arm else 5}
                elif arm in ("the paper's rate for sets", "all as in the paper"):  # asks what it changes
                    changed = {"set_factor": RECIPES[base].training.set_factor}
                    assert changed["set_factor"] < first.training.set_factor
                elif arm == "VSE∞, DivE's batches":
                    changed = {"batches": "pictures", "batch_size": 32}
                changed["epochs"] = of_arm.times_as_long * SMALL["training.epochs"]
                assert system.recipe.training == replace(first.training, **changed)
                assert system.recipe.dim == of_arm.times_as_wide * SMALL["dim"]
                states = SMALL["dim"] if of_arm.times_as_wide > 1 else None
                assert system.recipe.text.encoder.options.get("states") == states
                assert system.recipe.training.learning_rate == SMALL["training.learning_rate"]
                assert system.recipe.image.encoder.name == system.system.features
                if not of_arm.members:
                    assert (system.system.features, system.system.again) == (features, 0)


def test_a_difference_that_a_paper_prints_is_of_the_same_pictures_and_the_closest_features():
    printed = {(x.experiment, x.system, x.against, x.about): printed_difference(x) for x in claims()}
    both_ways = {names[1:3]: found for names, found in printed.items() if names[0].startswith("set_")}
    assert both_ways["DivE", "PVSE"] == (pytest.approx(377.7 - 374.4), "COCO 5K")
    assert both_ways["DivE", "PCME"] == (pytest.approx(442.6 - 428.1), "Flickr30K")
    assert both_ways["all", "without global feature, longer"] == (pytest.approx(430.7 - 342.0), "COCO 5K")
    assert not any(found for names, found in printed.items() if names[3] == "early in training")
    backbones = {row.system: row.backbone for row in records.published()}
    for claim in claims():
        if claim.printed:  # a row that is there, and with other features than the arm's own
            own = EXPERIMENTS[claim.experiment].arms[claim.system].published
            assert backbones[claim.printed] != backbones[own]


def test_the_papers_sums_of_an_experiment_are_of_the_same_pictures():
    for name, experiment in EXPERIMENTS.items():
        named = {arm for arm, entry in experiment.arms.items() if entry.published}
        assert printed_rows(experiment)[0].keys() == named, name
    systems = printed_rows(EXPERIMENTS["2ad_systems"])[0]
    assert systems == {"VSE+2AD": 527.8, "VSE∞": 520.5} | dict.fromkeys(("VSE++", "VSE++, longer"), 490.5)
    assert printed_rows(EXPERIMENTS["2ad_systems"], "coco", 5000) == (systems, "COCO 1K")
    assert printed_rows(EXPERIMENTS["2ad_parts"])[0]["all"] == 426.9  # all 5,000, which every part has
    one = Experiment("?", "nobody", "2ad_{features}_gru", {"one": Arm("", "VSE+2AD (R, BiGRU)")})
    assert printed_rows(one)[0] == {"one": 426.9}  # of both, all pictures before folds
    assert printed_rows(one, "f30k_precomp", 1000)[1] == "Flickr30K"
    assert printed_rows(one, "coco", 5000) == ({"one": 426.9}, "COCO 5K")


def test_each_arm_is_trained_from_each_seed_and_recorded_with_what_it_went_through(tmp_path):
    said, arms = [], ("all", "without AdOpt")
    in_a_lesson("2ad_parts", small_data, seeds=(0, 1), arms=arms, folder=tmp_path, log=said.append)
    expected = ["ridge, grid features", *(f"{arm}, seed {seed}" for seed in (0, 1) for arm in arms)]
    assert [line.split(": rsum")[0] for line in said] == expected
    found = measured("2ad_parts", "small", scale="lesson", folder=tmp_path)
    assert {arm: set(by_seed) for arm, by_seed in found.items()} == {arm: {0, 1} for arm in arms}
    (baseline,), data = records.find(tmp_path, name=BASELINE), small_data()
    assert baseline.metrics["rsum"] == evaluate(ridge_scores(data.train, data.test), data.test.owner)["rsum"]
    arm = studied("2ad_parts", "small", scale="lesson", folder=tmp_path)["all"]
    assert arm.baseline == {"rsum": baseline.metrics["rsum"]}
    for entry in trained_in(tmp_path):
        assert entry.config["training"]["epochs"] == 2
        assert entry.data["fingerprint"] == baseline.data["fingerprint"]
        assert {f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)} < entry.metrics.keys()
        assert "dev_rsum_2" in entry.metrics and "dev_rsum_3" not in entry.metrics
        for rule in ("released", "printed"):
            assert all(1 <= entry.metrics[f"negatives_{rule}_{epoch}"] <= 9 for epoch in (1, 2))
    # What a hand would measure.
    kept = {"released": [], "printed": []}

    def count_negatives(event):
        if event.kind == "step" and event.epoch == 1:
            for rule, counts in kept.items():
                counts.append(adopt_k(event.scores, rule, event.positives))

    system = planned(EXPERIMENTS["2ad_parts"], "all", "grid", SMALL)[0]
    trained = fit(system.recipe, data, callback=count_negatives, seed=1)
    recalls = evaluate(score_split(trained.model, data.test, trained.tokenizer), data.test.owner)
    expected = recalls | {f"negatives_{rule}_2": statistics.mean(counts) for rule, counts in kept.items()}
    expected["dev_rsum_1"] = trained.history[0]["rsum"]
    for metric in ("rsum", "t2i_r1", "dev_rsum_1", "negatives_released_2", "negatives_printed_2"):
        by_seed = measured("2ad_parts", "small", metric=metric, scale="lesson", folder=tmp_path)["all"]
        assert by_seed[1] == expected[metric], metric


def test_only_other_seeds_data_words_or_settings_are_another_training(tmp_path, trainings, monkeypatch):
    def again(open_data=small_data, name="2ad_parts", arm="all", seeds=(0,), **options):
        in_a_lesson(name, open_data, seeds=seeds, arms=[arm], folder=tmp_path, **options)

    for seeds in ((0,), (0, 1), (0, 1)):
        again(seeds=seeds)
    again(name="2ad_pooling", arm="AdPool")  # the same system in another experiment
    assert trainings == [("2ad_grid_gru", "grid", 0), ("2ad_grid_gru", "grid", 1)]
    again(lambda kind: small_data(kind, seed=1))
    read, width = [], SMALL["text.encoder.word_dim"]
    again(vectors=lambda tokenizer: read.append(tokenizer) or torch.ones(len(tokenizer), width))
    bert = get("2ad_grid_bert").override({"text.encoder.weights": str(make_bert(tmp_path / "bert", ["one"]))})
    runner = running._Runner(EXPERIMENTS["2ad_parts"], small_data, Settings(vectors=read.append))
    runner._words(SimpleNamespace(recipe=bert, system=System((), "grid")))
    assert len(read) == 1, "word pieces begin with none"
    again(changes=SMALL | {"dim": 12})
    again(features="region")
    assert len(trainings) == len(trained_in(tmp_path)) == 6

    def fit_other(recipe, *given, **options):  # another process trains the first arm, and then records it
        if recipe.name == "2ad_grid_gru":
            raise BlockingIOError
        return fit(recipe, *given, **options)

    def recorded(seconds):  # this one has trained the second, and waits last
        assert [records.write(entry, ours) for entry in trained_in(ours) and trained_in(tmp_path)]

    def recorded_once(*given, record_of=running.record_of):  # another process may not measure it meanwhile
        with pytest.raises(BlockingIOError):
            other.record("", given[0], 0)
        return record_of(*given)

    ours, said = tmp_path / "ours", []
    other = running._Runner(EXPERIMENTS["2ad_parts"], small_data, Settings(folder=ours))
    monkeypatch.setattr(running, "record_of", recorded_once)
    monkeypatch.setattr(running, "fit_in_rounds", fit_other)
    monkeypatch.setattr(running.time, "sleep", recorded)
    arms = ["all", "without AdPool"]
    in_a_lesson("2ad_parts", small_data, seeds=(0,), arms=arms, folder=ours, log=said.append)
    assert "waiting" in said[-2]
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES"):
        in_a_lesson("2ad_parts", small_data, folder=ours)


def killed_worker(cache, folder):
    """What the process that is killed runs: it dies in the middle of its second epoch and cannot tidy up."""

    def observe(event):
        if event.step == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return observe_negatives(event)

    observe_negatives = running.observe_negatives
    running.observe_negatives, running.cache_folder = observe, lambda name: Path(cache) / name
    LESSON_SCALE["small"] = SMALL
    in_a_lesson("2ad_parts", small_data, seeds=[3], arms=["all"], folder=Path(folder))


def test_a_training_that_was_killed_goes_on_and_gives_the_same_record(tmp_path, monkeypatch, cache):
    def record(name):
        in_a_lesson("2ad_parts", small_data, seeds=[3], arms=["all"], folder=tmp_path / name)
        (entry,) = trained_in(tmp_path / name)
        return replace(entry, seconds=0.0, peak_memory_gb=0.0)

    steps, observe = [], running.observe_negatives

    def noted(event):
        steps.append(event.step)
        return observe(event)

    monkeypatch.setattr(running, "observe_negatives", noted)
    assert start("test_experiments", "killed_worker", cache, tmp_path / "resumed").wait() == -signal.SIGKILL
    again = record("resumed")
    assert steps == [5, 6, 7, 8], "what the first epoch learned is kept"
    assert again == record("whole")
    assert not any((cache / "experiments").iterdir()), "what is recorded is not kept any longer"


def test_an_ensemble_averages_its_members_each_of_which_is_trained_once(tmp_path, trainings):
    arms, few = ["R", "RG", "RR"], partial(small_data, seed=4, count=7)
    in_a_lesson("2ad_ensembles", few, seeds=(3,), arms=arms, folder=tmp_path)
    again = planned(EXPERIMENTS["2ad_ensembles"], "RR", "grid", SMALL)[1].seed(3)
    region = "2ad_region_gru", "region"
    assert sorted(trainings) == sorted([(*region, 3), ("2ad_grid_gru", "grid", 3), (*region, again)])
    scores, owner = [], few().test.owner
    for system in planned(EXPERIMENTS["2ad_ensembles"], "RG", "grid", SMALL):
        data = few(system.system.features)
        member = fit(system.recipe, data, seed=3)
        scores.append(score_split(member.model, data.test, member.tokenizer))
    found = measured("2ad_ensembles", "small", scale="lesson", folder=tmp_path)
    assert found["R"][3] == evaluate(scores[0], owner)["rsum"]
    assert found["RG"][3] == evaluate(ensemble(*scores), owner)["rsum"]
    first = 100 * float((cross_retrieval_ranks(ensemble(*scores), owner) == 0).double().mean())
    by_seed = measured("2ad_ensembles", "small", metric=FIRST_PLACE, scale="lesson", folder=tmp_path)
    assert by_seed["RG"][3] == first != by_seed["R"][3]
    (entry,) = [entry for entry in trained_in(tmp_path) if "2ad_grid_gru" in entry.name]
    assert [member["image"]["encoder"]["name"] for member in entry.config["members"]] == ["region", "grid"]
    in_a_lesson("2ad_ensembles", few, seeds=(3,), arms=arms, folder=tmp_path)
    with pytest.raises(ValueError, match="the same test captions"):
        in_a_lesson("2ad_ensembles", lambda kind: small_data(kind, count=24 - len(kind)), folder=tmp_path)
    assert len(trainings) == 3


def test_a_system_that_no_other_arm_needs_does_not_stay_in_memory(tmp_path, monkeypatch):
    models, fit_ = [], running.fit_in_rounds

    def train(*given, **options):
        gc.collect()
        assert not any(model() for model in models)
        trained = fit_(*given, **options)
        models.append(weakref.ref(trained.model))
        return trained

    monkeypatch.setattr(running, "fit_in_rounds", train)
    in_a_lesson("2ad_parts", small_data, seeds=(0,), arms=["all", "without AdOpt"], folder=tmp_path)
    assert len(models) == 2


def test_what_is_unknown_is_answered_with_what_there_is(tmp_path):
    for options, named in (
        ({"name": "2ad_poolings"}, "2ad_pooling"),
        ({"arms": ["GPOO"]}, " GPO"),
        ({"scale": "fair", "changes": SMALL}, "learning_rate"),
        ({"scale": "large"}, "paper"),
    ):
        with pytest.raises(ValueError, match=named):
            run(**({"name": "2ad_pooling", "open_data": small_data, "folder": tmp_path} | options))
    assert not list(tmp_path.iterdir())


def test_relations_are_recorded_of_systems_and_of_ensembles(tmp_path, monkeypatch, trainings):
    pairs, left_right = small_data(seed=6).test, torch.tensor([[[True, False]] * 2] * 10)
    monkeypatch.setattr(recording, "relation_pairs", lambda kind: pairs)
    monkeypatch.setattr(recording, "sideways_captions", lambda: left_right)
    monkeypatch.setattr(recording, "on_truth", lambda scores, test, name: {})
    monkeypatch.setattr(running, "record_references", lambda *given: None)
    monkeypatch.setitem(LESSON_SCALE, "scenes", SMALL)
    arms = {"one": Arm(), "other": Arm("+mean"), "both": Arm(mean_of=("", "+mean"))}
    with_pairs = replace(EXPERIMENTS["2ad_parts"], arms=arms, features="region", pairs=True)
    monkeypatch.setitem(EXPERIMENTS, "pairs", with_pairs)

    def open_data(kind):
        return replace(small_data(kind), name="scenes")

    in_a_lesson("pairs", open_data, seeds=(0,), folder=tmp_path)
    assert [name for name, *_ in trainings] == ["2ad_region_gru", "2ad_region_gru+mean"]
    data, scores = open_data("region"), []
    for arm in ("one", "other"):
        (system,) = planned(EXPERIMENTS["pairs"], arm, "region", SMALL)
        trained = fit(system.recipe, data, seed=0)
        scores.append(pair_scores(trained.model, pairs, trained.tokenizer))
    expected = [pair_accuracy(one, left_right) for one in (*scores, (scores[0] + scores[1]) / 2)]
    assert expected[2] not in expected[:2]
    for metric in PAIRS:
        found = measured("pairs", "scenes", metric=metric, scale="lesson", folder=tmp_path)
        values = [found[arm][0] for arm in ("one", "other", "both")]
        assert values == pytest.approx([each[metric] for each in expected]), metric


def test_only_records_of_the_arms_own_settings_data_and_features_count(tmp_path):
    in_a_lesson("2ad_pooling", small_data, seeds=(0,), arms=["GPO"], folder=tmp_path)
    options = {"scale": "lesson", "folder": tmp_path}
    assert set(measured("2ad_pooling", "small", **options)) == {"GPO"}
    for other in ({"data": "scenes"}, {"features": "region"}, {"metric": "dev_rsum_9"}, {"scale": "fair"}):
        assert measured("2ad_pooling", **({"data": "small"} | options | other)) == {}, other
    assert measured("2ad_pooling", "small", scale="lesson", folder=tmp_path / "nowhere") == {}


def test_every_stored_record_is_of_an_arm_or_of_what_arms_are_compared_with():
    stored = records.find(RESULTS)
    assert {entry.file_name for entry in stored} == {path.name for path in RESULTS.glob("*.json")}
    for data in {entry.data["name"] for entry in stored}:
        changes, lesson = (changes_of(scale, data) for scale in ("fair", "lesson"))
        entries = [entry for entry in stored if entry.data["name"] == data]
        titles = {(BASELINE, ""), (ORACLE, "")}

        def fair(system, changes=changes, entries=entries, titles=titles):
            for entry in entries:  # at the rates that were tried and not taken, too
                rate = entry.config.get("training", {}).get("learning_rate", Training().learning_rate)
                if entry.name in system.recipes and rate in tuning.LADDER:
                    titles.add((entry.name, tuning.digest_at(system, entry.name, changes, rate)))
            return tuning.tuned(
                system, changes, lambda name: tuning.tried(tuning.recorded(system, name, changes, entries))
            )

        for experiment in [one for one in EXPERIMENTS.values() if one.data_named(data) == data]:
            for arm in experiment.arms:
                for kind in kinds_of(experiment):
                    for recipe_of in (fair, lambda system, lesson=lesson: only_recipe(system, lesson)):
                        if found := experiment.trainings(arm, kind, recipe_of):
                            titles.add(title_of(found))
        for entry in entries:
            assert (entry.name, entry.config_hash) in titles, f"no arm is {entry.file_name}: take it away"


def test_each_system_is_tuned_until_the_best_rate_lies_between_others(tmp_path, monkeypatch, trainings):
    monkeypatch.setitem(FAIR_SCALE, "small", SMALL)
    best_on_dev = {"2ad_grid_gru": 2e-3, "2ad_grid_gru+mean": 8e-3}  # what dev will say, whatever is trained

    def curve(entry, real=tuning.development_curve):
        rate = entry.config["training"]["learning_rate"]
        said = [100 - 9 * entry.seed - abs(math.log2(rate / best_on_dev[entry.name])), 50.0]
        return said if rate < 16e-3 else real(entry)

    def train(recipe, *given, fit_=running.fit_in_rounds, **options):
        run = fit_(recipe, *given, **options)
        if recipe.training.learning_rate == 16e-3:
            raise FloatingPointError
        return run

    monkeypatch.setattr(running, "fit_in_rounds", train)

    monkeypatch.setattr(tuning, "development_curve", curve)
    arms, lines = ["all", "without AdPool"], []
    monkeypatch.setattr(running, "plan", lambda *given, **options: SimpleNamespace(seconds=60.0))
    run("2ad_parts", small_data, seeds=(0, 1), arms=arms, folder=tmp_path, log=lines.append, dry_run=True)
    assert [line.split(",")[0] for line in lines[:2]] == [f"{arm}: 4 trainings" for arm in arms]
    for _ in range(2):
        run("2ad_parts", small_data, seeds=(0, 1), arms=arms, folder=tmp_path, log=lines.append)
        assert len(trainings) == 3 + 5 + 2, "what tuning trained is the run of its seed"
    tried = {(name, seed): set() for name in best_on_dev for seed in (0, 1)}
    for entry in trained_in(tmp_path):
        tried[entry.name, entry.seed].add(entry.config["training"]["learning_rate"])
    assert list(tried.values()) == [{1e-3, 2e-3, 4e-3}, {2e-3}, {1e-3, 2e-3, 4e-3, 8e-3}, {8e-3}]
    assert "2ad_grid_gru+mean: learning rate 0.008, of 0.001, 0.002, 0.004, 0.008, 0.016 (diverged)" in lines
    assert studied("2ad_parts", "small", folder=tmp_path)["without AdPool"].trainings[0].tried[16e-3] < 0
    found = measured("2ad_parts", "small", folder=tmp_path)
    assert {arm: set(by_seed) for arm, by_seed in found.items()} == {arm: {0, 1} for arm in arms}


@pytest.mark.parametrize("kind", ["grid", "pixels", "region"])
def test_half_a_margin_is_half_of_what_the_recipe_has_on_these_features(kind):
    margins = [
        get(EXPERIMENTS["set_similarities"].systems(arm, kind)[0].recipes[0]).losses[0].options["margin"]
        for arm in ("DivE", "DivE, half the margin")
    ]
    assert margins[1] == margins[0] / 2


def test_an_arm_may_take_the_rate_of_another():
    targets, borrows = EXPERIMENTS["latent_targets"], "BL + LTD, dual, at BL's rate"
    rates = {"ltd_region_gru": 4e-3, "ltd_region_gru+ltd": 1e-3}

    def tuned(system):
        return get(system.recipes[0], {"training.learning_rate": rates[system.recipes[0]]})

    for arm, rate in (("BL + LTD, dual", 1e-3), (borrows, 4e-3)):
        assert targets.trainings(arm, "region", tuned)[0].recipe.training.learning_rate == rate
    data = replace(small_data("region"), name="coco")
    for scale in ("fair", "paper"):
        runner = running._Runner(targets, lambda kind: data, Settings(scale=scale))
        assert (borrows in runner.arms()) == (scale == "fair")


def test_a_rate_that_diverges_is_worse_than_all_others():
    def train(rate, highest=2e-3):
        if rate > highest:
            raise FloatingPointError
        return rate

    assert tuning.search(train) == {1e-3: 1e-3, 2e-3: 2e-3, 4e-3: -math.inf}
    with pytest.raises(FloatingPointError, match="every learning rate"):
        tuning.search(lambda rate: train(rate, 0))
    tried = {}
    with pytest.raises(TypeError):  # whatever ends it, what diverged is not tried again
        tuning.search(lambda rate: train(rate, 0 if rate < 2e-3 else None), results=tried)
    assert tried == {1e-3: -math.inf}


def test_a_rate_at_which_another_seed_diverges_is_given_up_for_all(tmp_path, monkeypatch):
    monkeypatch.setitem(FAIR_SCALE, "small", SMALL)

    def curve(entry, real=tuning.development_curve):
        said = 100 - abs(math.log2(entry.config["training"]["learning_rate"] / 3e-3))
        return real(entry) if tuning.DIVERGED in entry.metrics else [said]

    def train(recipe, *given, fit_=running.fit_in_rounds, **options):
        gone = {"2ad_grid_gru": 1, "2ad_region_gru": 1001}[recipe.name]  # the ensemble's second member
        if recipe.training.learning_rate == 4e-3 and options["seed"] == gone:
            raise FloatingPointError("it diverged")
        return fit_(recipe, *given, **options)

    monkeypatch.setattr(running, "fit_in_rounds", train)
    monkeypatch.setattr(tuning, "development_curve", curve)
    for _ in range(2):
        found = run("2ad_parts", small_data, seeds=(0, 1), arms=["all"], folder=tmp_path)["all"]
        assert [one.config["training"]["learning_rate"] for one in found] == [2e-3, 2e-3]
    (arm,) = studied("2ad_parts", "small", folder=tmp_path).values()
    assert arm.seeds == {0, 1} and arm.trainings[0].tried[4e-3] == -math.inf
    (fewer,) = run("2ad_parts", small_data, seeds=(0,), arms=["all"], folder=tmp_path)["all"]
    assert fewer.config["training"]["learning_rate"] == 2e-3, "as the table has it"
    (both,) = run("2ad_ensembles", small_data, seeds=(1,), arms=["RR"], folder=tmp_path)["RR"]
    assert [one["training"]["learning_rate"] for one in both.config["members"]] == [2e-3, 2e-3]


def test_the_best_of_several_is_the_one_that_does_best_on_dev(tmp_path, monkeypatch):
    monkeypatch.setitem(FAIR_SCALE, "small", SMALL)
    for number, best in enumerate(("mean", "5-max")):
        folder = tmp_path / str(number)
        for arm in ("mean", "max", "5-max", "Manual"):
            rates = {1e-3: 90.0, 2e-3: 100.0 + (arm == best), 4e-3: 95.0}
            study(folder, "2ad_pooling", arm, {0: 300.0 + number, 1: 310.0 - number}, rates=rates)
        found = measured("2ad_pooling", "small", folder=folder)
        assert found["simple, chosen on dev"] == found[best]
    some = sorted((tmp_path / "1").glob("*manual*"))
    for lacks, paths in ("one is not tuned", some[:1]), ("one is not tried", some[1:]):
        assert not any(path.unlink() for path in paths)
        assert "simple, chosen on dev" not in measured("2ad_pooling", "small", folder=folder), lacks
    with pytest.raises(ValueError, match="chosen on dev"):
        in_a_lesson("2ad_pooling", small_data, arms=["simple, chosen on dev"], folder=tmp_path)


def test_features_made_on_another_processor_need_no_second_training(tmp_path, monkeypatch, trainings):
    for last_digits in ("here", "there"):
        monkeypatch.setattr(Dataset, "fingerprint", lambda data, own=last_digits: own)
        in_a_lesson("2ad_parts", small_data, seeds=[0], arms=["all"], folder=tmp_path)
    assert len(trainings) == 1 and len(records.find(tmp_path, name=BASELINE)) == 2
    first, other = records.find(tmp_path, name=BASELINE)
    assert alike([first, other]) == {"there": "here"}
    for unlike in ({"layout": "of other captions"}, {"network": "another"}, {"feature_dim": 9}):
        assert not alike([first, replace(other, data=other.data | unlike)])
    unlike = {"metrics": first.metrics | {"i2t_r1": 5.0}, "data": first.data | {"fingerprint": "unlike"}}
    records.write(replace(first, **unlike), tmp_path)
    monkeypatch.setattr(Dataset, "fingerprint", lambda data: "unlike")
    in_a_lesson("2ad_parts", small_data, seeds=[0], arms=["all"], folder=tmp_path)
    assert len(trainings) == 2


def test_on_the_scenes_the_truth_counts_and_the_oracle_is_recorded_too(tmp_path, monkeypatch):
    photographs = replace(small_data().test, pictures=np.zeros((20, 3, 8, 8), np.uint8))
    record_references(Dataset("album", *[photographs] * 3, "pixels"), tmp_path, lambda line: None)
    assert not list(tmp_path.iterdir()), "photographs have no linear baseline"
    data = scenes.load(train=20, dev=20, test=40)
    for digits in ("this", "another"):  # processor's
        monkeypatch.setattr(Dataset, "fingerprint", lambda data, own=digits: own)
        record_references(data, tmp_path, lambda line: None)
    oracle, ridge = (entry.metrics for entry in records.find(tmp_path))
    assert 0 < ridge["i2t_map_at_r"] < 100 and 0 < ridge["t2i_map_at_r"] < 100
    truth = truth_of(data.test, "scenes")
    assert on_truth(truth.T.float(), data.test, "scenes") == {"i2t_map_at_r": 100.0, "t2i_map_at_r": 100.0}
    # With m true captions of a picture, of which five are its own, the first is its own once in m / 5 times.
    own = [min(1.0, 5 / int(true)) for true in truth.sum(0)]
    assert oracle["i2t_r1"] == pytest.approx(100 * statistics.mean(own), abs=5)
    assert ridge["rsum"] < oracle["rsum"] < 600
    of_captions = [1 / int(true) for true in truth.sum(1)]
    assert oracle["t2i_r1"] == pytest.approx(100 * statistics.mean(of_captions), abs=5)
    scores = ridge_scores(data.train, data.test)
    found = on_truth(scores, data.test, "scenes")["i2t_map_at_r"]
    assert found == 100 * map_at_r(scores, truth.T) == ridge["i2t_map_at_r"]
    # The truth of another test split is not known.
    assert on_truth(truth.T.float(), small_data().test, "small") == {}
    other = replace(data.test, captions=list(reversed(data.test.captions)))
    assert on_truth(truth.T.float(), other, "scenes") == {}


def test_at_the_papers_scale_recipes_are_as_they_are_and_any_data_will_do(tmp_path, monkeypatch, trainings):
    data, said = small_data(), []
    anybodys = Dataset("coco", data.train, data.dev, data.test, "grid")
    arms = {"one": Arm(), "best": Arm(best_of=("+mean", "+gpo")), "region": Arm(members=("region",))}
    monkeypatch.setitem(EXPERIMENTS, "own", Experiment("?", "nobody", "2ad_{features}_gru", arms))
    cost = [SimpleNamespace(seconds=60.0)]  # of a training without a first round
    monkeypatch.setattr(running, "plan", lambda recipe, *_, **__: cost[recipe.first_round is not None])
    monkeypatch.setattr(recording, "COCO_5K", 20)
    changes = SMALL | {"training.epochs": 1}
    options = {"scale": "paper", "changes": changes, "folder": tmp_path, "log": said.append}
    assert run("own", lambda kind: anybodys, seeds=[0, 1], dry_run=True, **options) == {} and not trainings
    assert said[0].startswith("one: 2 trainings, 2.0 minutes") and not list(tmp_path.iterdir())
    found = run("own", lambda kind: anybodys, seeds=[0, 1], **options)
    assert list(found) == ["one", "best"], "the data have no regions"
    assert [name for name, *_ in trainings][:2] == ["2ad_grid_gru+mean", "2ad_grid_gru+gpo"], "tried on dev"
    assert all(entry.data["name"] == "coco" for entries in found.values() for entry in entries)
    run("own", lambda kind: anybodys, seeds=[0, 1, 2], arms=["one"], dry_run=True, **options)
    run("own", lambda kind: anybodys, seeds=[0, 1], arms=["one"], dry_run=True, **options)
    assert said[-4].startswith("one: 1 training,") and said[-2] == "one: recorded already"
    said.clear()
    run("own", lambda kind: anybodys, seeds=[1], arms=["one"], **options)
    assert Path(said[-1].removeprefix("run: ")).is_dir(), "more may be asked of it"
    run("own", small_data, seeds=[1], arms=["one"], dry_run=True, **options)
    assert any(line.startswith("small is neither coco nor flickr30k") for line in said)
    arms["offline"] = Arm("+offline+lists", mined_by="one")
    run("own", lambda kind: anybodys, seeds=[0], arms=["offline"], dry_run=True, **options)
    assert said[-2] == "offline: 2 trainings, 2.0 minutes", "what mines for it, and no first round"
    arms["twice"] = Arm(members=("grid", "grid"))
    run("own", lambda kind: anybodys, seeds=[3], arms=["twice"], dry_run=True, **options)
    assert said[-1].endswith(": 2.0 minutes"), "the second member has a seed of its own"

    comparison = Comparison(found, {"one": 400.0}, "COCO 1K")
    assert comparison.figure().axes[0].get_xlabel() == "rsum of five folds"
    sums = [statistics.mean(one.metrics["rsum"] for one in own) for own in comparison.ranked.values()]
    assert set(comparison.ranked) == set(found) and sums == sorted(sums, reverse=True)
    markdown, csv, drawn = (path.read_text() for path in comparison.write(tmp_path, "own"))
    assert "| rsum of five folds | rsum in the paper, COCO 1K |" in markdown and "| 400.0 |" in markdown
    assert all(one.metrics[FIVE_FOLDS] > one.metrics["rsum"] for one in found["one"]), "of fewer pictures"
    assert len(csv.splitlines()) == 1 + 2 * 2 and FIVE_FOLDS in csv and "<svg" in drawn
    assert found["one"][0].metrics["parameters"] > found["one"][0].config["dim"]


def test_at_the_papers_scale_nothing_is_fitted_to_small_trainings():
    """Arms that a paper has as a recipe is have that recipe, and equal arms are trained once."""
    sets, parts = (EXPERIMENTS[name].as_printed() for name in ("set_similarities", "set_parts"))
    [dive] = sets.systems("DivE", "region")
    assert dive.recipes == ("dive_region_gru",) == parts.systems("all as in the paper", "region")[0].recipes
    [vsrn] = EXPERIMENTS["offline_losses"].as_printed().systems("VSRN + OffTri", "region")
    assert vsrn.recipes == ("aoq_vsrn_region+offline_triplet",)
    sgraf = EXPERIMENTS["cross_attention"].as_printed("f30k_precomp").systems("SGRAF", "region")
    assert sgraf[1].recipes == ("sgraf_region_gru+sgr_flickr30k+filtration+saf_flickr30k",)
    for experiment in map(Experiment.as_printed, EXPERIMENTS.values()):
        for arm in experiment.arms:
            for system in experiment.systems(arm, "grid"):
                assert not {*FOR_SMALL} & {*"+".join(system.recipes).split("+")}
    for data, own in FOR_COLLECTION.items():  # what each follows is there
        printed = [one.as_printed(data) for one in EXPERIMENTS.values()]
        systems = [system for one in printed for arm in one.arms for system in one.systems(arm, "region")]
        assert {*own.values()} <= {x for one in systems for name in one.recipes for x in name.split("+")}
    for name in [x for x in RECIPES if x.startswith(("dive", "ltd", "pvse", "pcme", "thesis"))]:
        assert (
            name.endswith("_bert") or "_tern_" in name or "give their file as vectors" in get(name).source
        ), name
    data = replace(small_data("region"), name="coco")
    runner = running._Runner(parts, lambda kind: data, Settings(scale="paper"))
    assert [*runner.arms()][:3] == ["all", "without global feature", "random slots"]
    assert not {"hardest at once", "all as in the paper"} & {*runner.arms()}


def test_what_the_paper_prints_of_single_vectors_is_of_its_recipe_data_and_features():
    paper = printed_sets(EXPERIMENTS["set_similarities"])
    assert paper.keys() == {"DivE"} and paper["DivE"]["rsum_pictures_only_2"] == 309.6
    recipe = get("dive_region_gru")
    assert printed_metrics(recipe, "f30k_precomp", 1000) == paper["DivE"]
    assert printed_metrics(get("dive_region_gru+dive_coco"), "coco", 5000)["rsum"] == pytest.approx(430.7)
    assert not printed_metrics(recipe.override({"training.epochs": 1}), "flickr30k", 1000)
    assert not printed_metrics(recipe, "flickr30k", 10) and not printed_metrics(recipe, "coco", 5000)
    assert not printed_metrics(get("dive_grid_gru"), "flickr30k", 1000), "the paper trains the network too"
    assert printed_metrics(get("dive_pixels_gru"), "flickr30k", 1000)["rsum"] == pytest.approx(442.6)
