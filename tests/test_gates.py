"""Claims and their verdicts: each gate keeps an unfinished comparison from being judged."""

from dataclasses import replace

import pytest

from studies import LEVEL, RATES, RIDGE, ridge, study
from vsecore import records
from vsecore.experiments import (
    EXPERIMENTS,
    FAIR_SCALE,
    claims,
    gates,
    ledger,
    missing,
    outcomes,
    verdicts,
)
from vsecore.experiments.gates import Studied, Training, late_gain
from vsecore.experiments.ledger import printed_sums
from vsecore.experiments.set_variance import LOG_VARIANCES
from vsecore.experiments.verdicts import differences

SMALL = {"dim": 8, "text.encoder.word_dim": 4, "training.epochs": 6}
BETTER = {0: 310.0, 1: 320.0, 2: 330.0, 3: 315.0, 4: 325.0}
WORSE = {0: 300.0, 1: 311.0, 2: 319.0, 3: 305.0, 4: 314.0}
BARELY_BETTER = {seed: rsum + (8.0, 16.0, 1.0, 18.0, 5.0)[seed] for seed, rsum in WORSE.items()}


@pytest.fixture(autouse=True)
def a_small_scale(monkeypatch):
    """Data of the name "small" have a scale of their own, and five epochs are not a recipe's full length."""
    monkeypatch.setitem(FAIR_SCALE, "small", SMALL)


def judged(tmp_path, better=BETTER, worse=WORSE, data="small", **options):
    """The one outcome of two arms that were studied; options are of the better one."""
    folder = tmp_path / "records"
    ridge(folder, data)
    study(folder, "2ad_parts", "all", better, data, **options)
    study(folder, "2ad_parts", "without AdOpt", worse, data)
    (outcome,) = outcomes("2ad", data, folder=folder)
    return outcome


# ---------------------------------------------------------------- gates


def test_with_every_gate_open_a_claim_is_judged(tmp_path, claimed):
    outcome = judged(tmp_path)
    assert (outcome.judgement, outcome.told, list(outcome.shut)) == ("reproduced", "reproduced", [])
    assert outcome.differences == {"rsum": [10.0, 9.0, 11.0, 10.0, 11.0]}


@pytest.mark.parametrize(
    ("rates", "missing"),
    [
        ({2e-3: 100.0}, 2),
        ({2e-3: 100.0, 4e-3: 95.0}, 1),
        ({1e-3: 90.0, 2e-3: 95.0, 4e-3: 100.0}, 1),  # at the upper edge
        ({1e-3: 100.0, 2e-3: 95.0, 4e-3: 90.0}, 1),  # at the lower edge
    ],
)
def test_a_learning_rate_that_is_not_chosen_from_three_shuts_a_gate(tmp_path, claimed, rates, missing):
    outcome = judged(tmp_path, rates=rates)
    (gate,) = outcome.shut
    assert outcome.told == "too small to say: learning rate of all"
    assert (gate.trainings, gate.seconds) == (missing, missing * 60.0)


def test_a_training_that_still_rises_shuts_a_gate(tmp_path, claimed):
    outcome = judged(tmp_path, curve=(60.0, 80.0, 90.0, 98.9, 99.0, 100.0))
    assert outcome.told == "too small to say: length of all"
    assert "the last third of 6 epochs still brought 1.1 % of its rsum" in outcome.shut[0].why


def test_the_seeds_level_off_together():
    def shut(*curves):
        return gates.levelled(studied(BETTER, curves=curves))

    rising, falling = (90.0, 96.0, 98.0), (90.0, 100.0, 99.0)  # gains of 2 % and of nothing
    assert shut(rising) and not shut(falling)
    assert not shut(rising, falling, falling)
    assert shut(rising, rising, falling)
    assert "no epochs of recipe are recorded" in shut().why


def test_a_training_as_long_as_its_recipe_asks_for_may_rise(tmp_path, claimed, monkeypatch):
    monkeypatch.setitem(FAIR_SCALE["small"], "training.epochs", 30)
    assert judged(tmp_path, curve=(60.0, 80.0, 90.0, 91.0, 95.0, 100.0)).judgement == "reproduced"


def test_the_gain_of_the_last_third():
    assert late_gain([50.0, 90.0, 100.0]) == pytest.approx(0.1)
    assert late_gain([50.0, 100.0, 90.0]) == 0
    assert late_gain([100.0]) == 1  # nothing came before
    assert late_gain([1.0, 2.0, 90.0, 99.0, 100.0, 80.0, 70.0]) == 0


def test_a_better_arm_below_the_linear_baseline_shuts_a_gate(tmp_path, claimed):
    low = {seed: rsum - 300 for seed, rsum in BETTER.items()}
    lower = {seed: rsum - 300 for seed, rsum in WORSE.items()}
    outcome = judged(tmp_path, low, lower)
    assert outcome.told == "too small to say: baseline of all"
    # Above, but by less than the margin, from one seed: not clearly.
    nearly = {seed: RIDGE * 1.02 for seed in BETTER} | {3: RIDGE * 1.009}
    assert gates.is_below_baseline(studied(nearly), "small")
    assert not gates.is_below_baseline(studied(BETTER), "small")


def test_on_the_scenes_the_linear_baseline_counts_by_each_measure(tmp_path, claimed, monkeypatch):
    monkeypatch.setitem(FAIR_SCALE, "scenes", SMALL)
    for truth, told in ((29.0, "reproduced"), (29.8, "reproduced, against a baseline that failed")):
        folder = tmp_path / str(truth)
        ridge(folder, "scenes", truth)
        study(folder, "2ad_parts", "all", with_truth(BETTER, 40.0), "scenes")
        study(folder, "2ad_parts", "without AdOpt", with_truth(WORSE, 30.0), "scenes")
        assert [outcome.told for outcome in outcomes("2ad", "scenes", folder=folder)] == [told]
    ridge(folder, "scenes", 45.0)
    (outcome,) = outcomes("2ad", "scenes", folder=folder)
    assert outcome.told == "too small to say: baseline of all"
    assert (
        "its i2t_map_at_r, 40.0, is not clearly above that of a ridge regression, 45.0" in outcome.shut[0].why
    )


def test_the_linear_baseline_is_of_the_same_features(tmp_path, claimed):
    """One on other features, however low, opens no gate."""
    judged(tmp_path)
    folder = tmp_path / "records"
    (entry,) = records.find(folder, name="ridge")
    for path in folder.glob("ridge-*.json"):
        path.unlink()
    for change in ({"fingerprint": "other"}, {"feature_kind": "patch"}):
        records.write(replace(entry, data=entry.data | change), folder)
    (outcome,) = outcomes("2ad", "small", folder=folder)
    assert outcome.told == "too small to say: baseline of all, baseline of without AdOpt"


def test_a_weaker_arm_below_the_linear_baseline_is_named_in_the_verdict(tmp_path, claimed):
    lower = {seed: rsum - 250 for seed, rsum in WORSE.items()}
    assert judged(tmp_path, worse=lower).told == "reproduced, against a baseline that failed"


def test_but_only_if_it_was_tuned_and_trained_to_the_end(tmp_path, claimed):
    lower = {seed: rsum - 250 for seed, rsum in WORSE.items()}
    claimed({"system": "without AdOpt", "against": "all"})
    outcome = judged(tmp_path, lower, WORSE, rates={2e-3: 100.0})
    assert outcome.told == "too small to say: learning rate of all, baseline of all"


def test_without_a_linear_baseline_nothing_is_judged(tmp_path, claimed):
    study(tmp_path / "records", "2ad_parts", "all", BETTER)
    study(tmp_path / "records", "2ad_parts", "without AdOpt", WORSE)
    (outcome,) = outcomes("2ad", "small", folder=tmp_path / "records")
    assert outcome.told == "too small to say: baseline of all, baseline of without AdOpt"


def test_an_ensemble_is_as_finished_as_its_least_finished_member():
    done = studied(BETTER).trainings[0]
    for change in ({"tried": {2e-3: 100.0}}, {"curves": [(60.0, 70.0, 80.0, 85.0, 90.0, 100.0)]}):
        less = replace(done, name="the other", **change)
        for members in ((less, done), (done, less)):
            arm = replace(studied(BETTER), trainings=members)
            assert not gates.is_finished(arm)
    assert gates.is_finished(replace(studied(BETTER), trainings=[done, done]))


def test_two_arms_that_are_one_system_are_not_compared():
    one, other = studied(BETTER), studied(BETTER, title=("another", "system"))
    assert gates.shut(one, other, "small") == []
    (gate,) = gates.shut(one, one, "small")
    assert gate.gate == "one system"


def test_what_completes_the_common_seeds_is_the_least_that_does():
    def trainings(first, second):
        one, other = ({seed: 300.0 for seed in seeds} for seeds in (first, second))
        gate = gates.seeds(studied(one), studied(other), "scenes")
        return gate and gate.trainings

    assert trainings(range(5), range(5)) is None
    assert trainings(range(5), range(3)) == 2
    assert trainings(range(3), range(3)) == 4
    assert trainings(range(5), range(5, 10)) == 5
    assert trainings(range(4), [0, 1, 7]) == 3  # of the second 2 and 3, of the first 7


ELSEWHERE = ({"vectors": "glove"}, {"fingerprint": "other"}, {"precision": "bfloat16"})


def moved(folder, change, seeds, recipe=None):
    """Let the records from some seeds, perhaps of one recipe only, be of other features or words."""
    for entry in records.find(folder):
        if entry.seed in seeds and recipe in (None, entry.name) and entry.name != "ridge":
            data = entry.data | {key: value for key, value in change.items() if key != "precision"}
            precision = change.get("precision", entry.precision)
            (folder / entry.file_name).unlink()
            records.write(replace(entry, data=data, precision=precision), folder)


@pytest.mark.parametrize("change", ELSEWHERE, ids=str)
def test_records_of_other_words_or_precision_are_not_set_side_by_side(tmp_path, claimed, change):
    ridge(tmp_path, "small")
    study(tmp_path, "2ad_parts", "all", BETTER)
    study(tmp_path, "2ad_parts", "without AdOpt", WORSE)
    moved(tmp_path, change, [3, 4], "2ad_grid_gru")
    one = records.find(tmp_path)[0]  # beside it a record that names no features, as that of a benchmark
    records.write(replace(one, name="search", config_hash="", data={"name": "small"}), tmp_path)
    found = ledger.studied("2ad_parts", "small", folder=tmp_path)
    assert {arm: set(one.seeds) for arm, one in found.items()} == {
        "all": {0, 1, 2},
        "without AdOpt": {0, 1, 2, 3, 4},
    }
    (outcome,) = outcomes("2ad", "small", folder=tmp_path)
    assert outcome.differences == {"rsum": [10.0, 9.0, 11.0]}


def test_of_two_studies_with_as_many_arms_the_one_with_more_trainings_is_taken(tmp_path):
    study(tmp_path, "2ad_parts", "all", {0: 300.0, 1: 300.0})
    other = tmp_path / "other"
    study(other, "2ad_parts", "all", BETTER)
    moved(other, {"fingerprint": "other"}, range(5))
    for entry in records.find(other):
        records.write(entry, tmp_path)
    found = ledger.studied("2ad_parts", "small", folder=tmp_path)
    assert set(found["all"].seeds) == set(BETTER)


def test_a_difference_is_of_two_trainings_from_the_same_seed():
    first = studied({seed: float(10**seed) for seed in range(5)})
    second = studied({seed: 2.0 * 10**seed for seed in range(1, 6)})
    assert differences(first, second, "rsum") == [-float(10**seed) for seed in range(1, 5)]


def test_too_few_common_seeds_shut_a_gate(tmp_path, claimed):
    two = {seed: BETTER[seed] for seed in (0, 1)}
    apart = two | {7: 300.0, 8: 300.0}
    for number, better in enumerate((two, apart)):
        assert judged(tmp_path / str(number), better).told == "too small to say: seeds"
    assert judged(tmp_path / "enough", two | {2: 330.0}).judgement == "reproduced"


def test_scenes_take_five_seeds_and_the_exact_truth(tmp_path, claimed, monkeypatch):
    monkeypatch.setitem(FAIR_SCALE, "scenes", SMALL)
    for number, (better, worse, told) in enumerate(
        (
            (BETTER, WORSE, "too small to say: measures"),
            (with_truth(BETTER, 40.0), with_truth(WORSE, 30.0), "reproduced"),
            (with_truth(BETTER, 30.0), with_truth(WORSE, 40.0), "mixed"),
            (
                with_truth({s: BETTER[s] for s in range(4)}, 40.0),
                with_truth(WORSE, 30.0),
                "too small to say: seeds",
            ),
        )
    ):
        assert judged(tmp_path / str(number), better, worse, data="scenes").told == told


def test_an_arm_whose_truth_is_not_measured_shuts_a_gate(tmp_path, claimed, monkeypatch):
    monkeypatch.setitem(FAIR_SCALE, "scenes", SMALL)
    whole, part = with_truth(BETTER, 40.0), with_truth(WORSE, 30.0)
    del part[3]["t2i_map_at_r"]
    for number, (better, worse) in enumerate(((whole, part), (part, whole))):
        outcome = judged(tmp_path / str(number), better, worse, data="scenes")
        assert outcome.told == "too small to say: measures"
        assert "t2i_map_at_r of" in outcome.shut[0].why and "seeds 3" in outcome.shut[0].why


def with_truth(values, by):
    """The metrics of each seed, with mAP@R in both directions."""
    return {
        seed: {"rsum": rsum, "i2t_map_at_r": by + seed, "t2i_map_at_r": by + seed}
        for seed, rsum in values.items()
    }


# ---------------------------------------------------------------- verdicts


def studied(values, curves=(LEVEL,), title=("one", "system")):
    training = Training("recipe", RATES, curves, False, 60.0)
    return Studied("arm", [training], {"rsum": values}, {"rsum": RIDGE}, "a processor", title)


def test_an_arm_without_records_is_not_tried(tmp_path, claimed):
    claimed({}, {"against": "without AdPool", "statement": "AdPool helps"})
    folder = tmp_path / "records"
    assert [outcome.told for outcome in outcomes("2ad", "small", folder=folder)] == ["not tried"] * 2
    assert outcomes("2ad", "small", experiment="2ad_pooling", folder=folder) == []
    assert outcomes("aoq", "small", folder=folder) == []


def test_the_same_within_a_hundredth_is_no_difference(tmp_path, claimed):
    near = {seed: rsum + (0.5, 1.0, 1.5, 1.0, 1.2)[seed] for seed, rsum in WORSE.items()}
    assert judged(tmp_path, near).judgement == "no difference"  # surely above, and surely by less than 3


@pytest.mark.parametrize(("share", "verdict"), [(0.008, "no difference"), (0.012, "reproduced")])
def test_a_tie_is_a_difference_of_less_than_a_hundredth(tmp_path, claimed, share, verdict):
    near = {seed: rsum + share * 310 + 0.01 * seed for seed, rsum in WORSE.items()}  # a steady difference
    assert judged(tmp_path, near).judgement == verdict


def test_what_is_claimed_the_other_way_round_is_contradicted(tmp_path, claimed):
    claimed({"system": "without AdOpt", "against": "all"})
    assert judged(tmp_path).told == "contradicted"


def test_a_question_of_ours_is_answered_by_yes_or_no(tmp_path, claimed):
    claimed({"kind": "our question", "words": ""})
    assert judged(tmp_path).told == "yes"
    claimed({"kind": "our question", "words": "", "system": "without AdOpt", "against": "all"})
    assert judged(tmp_path / "other").told == "no"


def test_a_claim_about_early_training_is_judged_by_the_first_third_of_the_epochs(tmp_path, claimed):
    claimed({"when": "early in training"})
    faster = (80.0, 90.0, 95.0, 99.5, 100.0, 100.0)  # LEVEL has 60 and 80 in its first third
    outcome = judged(tmp_path, WORSE, curve=faster)
    assert outcome.told == "reproduced"
    assert outcome.differences == {"early_rsum": [15.0] * 5}
    claimed({})
    assert [one.told for one in outcomes("2ad", "small", folder=tmp_path / "records")] == ["no difference"]


def test_a_claim_about_early_training_shares_no_doubt_with_one_about_the_end(tmp_path, claimed):
    claimed({}, {"when": "early in training", "statement": "AdOpt is ahead"})
    folder = tmp_path / "records"
    ridge(folder)
    study(folder, "2ad_parts", "all", BARELY_BETTER)
    study(folder, "2ad_parts", "without AdOpt", WORSE)
    at_the_end, early = outcomes("2ad", "small", folder=folder)
    assert (at_the_end.told, early.told) == ("reproduced", "no difference")


def test_several_claims_share_the_doubt(tmp_path, claimed):
    """The mean is 9.6 and its t is 2.97 with 4 degrees of freedom: p = 0.041, and 0.082 for two claims."""
    folder = tmp_path / "records"
    ridge(folder)
    study(folder, "2ad_parts", "all", BARELY_BETTER)
    study(folder, "2ad_parts", "without AdOpt", WORSE)
    study(folder, "2ad_parts", "without AdPool", WORSE)
    assert [outcome.told for outcome in outcomes("2ad", "small", folder=folder)] == ["reproduced"]
    claimed({}, {"against": "without AdPool", "statement": "AdPool helps"})
    assert [outcome.told for outcome in outcomes("2ad", "small", folder=folder)] == ["undecided"] * 2


def test_verdicts_as_a_table(tmp_path, claimed):
    token = {"against": "without token level", "statement": "the token level helps"}
    claimed({}, token, {"against": "without AdPool", "statement": "AdPool helps"})
    folder = tmp_path / "records"
    everything = "Not tried: AdOpt helps; the token level helps; AdPool helps."
    assert verdicts("2ad", "small", folder=folder) == everything
    ridge(folder)
    study(folder, "2ad_parts", "all", BETTER)
    study(folder, "2ad_parts", "without AdOpt", WORSE)
    study(folder, "2ad_parts", "without AdPool", {0: 310.0, 1: 319.0})
    rows = verdicts("2ad", "small", folder=folder).splitlines()[2:]
    assert rows == [
        "| AdOpt helps (table 3) | +9.0 (COCO 5K) | +10.2 | 0.8 | 5 | reproduced |",
        "| AdPool helps (table 3) | +7.8 (COCO 5K) | +0.5 | 0.7 | 2 | too small to say: seeds |",
        "",
        "Not tried: the token level helps.",
    ]


# ---------------------------------------------------------------- one direction, and relations


def with_directions(values, way, by):
    """The metrics of each seed: its rsum lies in one direction, whose mAP@R is `by`; the other has none."""
    other = {"i2t": "t2i", "t2i": "i2t"}[way]
    return {
        seed: {"rsum": rsum, f"{way}_map_at_r": by + seed / 10, f"{other}_map_at_r": 30.0}
        | {f"{way}_r{k}": rsum / 3 for k in (1, 5, 10)}
        | {f"{other}_r{k}": 1.0 for k in (1, 5, 10)}
        for seed, rsum in values.items()
    }


@pytest.mark.parametrize(("about", "way"), [("caption retrieval", "i2t"), ("image retrieval", "t2i")])
def test_a_claim_about_one_direction_is_judged_by_its_recalls_and_its_truth(
    tmp_path, claimed, monkeypatch, about, way
):
    monkeypatch.setitem(FAIR_SCALE, "scenes", SMALL)
    claimed({"about": about})
    better, worse = with_directions(BETTER, way, 40.0), with_directions(WORSE, way, 35.0)
    outcome = judged(tmp_path / "this", better, worse, data="scenes")
    assert outcome.told == "reproduced"
    assert outcome.differences.keys() == {f"{way}_rsum", f"{way}_map_at_r"}
    assert outcome.differences[f"{way}_rsum"] == pytest.approx([10.0, 9.0, 11.0, 10.0, 11.0])
    other = {"i2t": "t2i", "t2i": "i2t"}[way]
    better, worse = with_directions(BETTER, other, 40.0), with_directions(WORSE, other, 35.0)
    assert judged(tmp_path / "other", better, worse, data="scenes").told == "no difference"


def test_claims_share_the_doubt_by_each_measure_that_judges_both(tmp_path, claimed, monkeypatch):
    """Of a claim about both directions and one about captions, mAP@R of captions has two, the rest one."""
    monkeypatch.setitem(FAIR_SCALE, "scenes", SMALL)
    found = with_directions(BARELY_BETTER, "i2t", 40.0)
    for seed, metrics in found.items():
        metrics["i2t_map_at_r"] = BARELY_BETTER[seed] / 10
    before = with_directions(WORSE, "i2t", 40.0)
    for seed, metrics in before.items():
        metrics["i2t_map_at_r"] = WORSE[seed] / 10
    claimed({"about": "caption retrieval"})
    assert judged(tmp_path / "one", found, before, data="scenes").told == "reproduced"
    claimed({"about": "caption retrieval"}, {"statement": "AdOpt helps in both"})
    folder = tmp_path / "one" / "records"
    captions, _ = outcomes("2ad", "scenes", folder=folder)
    assert captions.by_measure == {"i2t_rsum": "reproduced", "i2t_map_at_r": "undecided"}


def test_a_claim_about_the_first_place_is_judged_by_the_pairs_that_are_first_both_ways(
    tmp_path, claimed, monkeypatch
):
    monkeypatch.setitem(FAIR_SCALE, "scenes", SMALL)
    claimed({"about": "first place"})
    arms = [
        {seed: metrics | {gates.FIRST_PLACE: first + seed / 5} for seed, metrics in values.items()}
        for first, values in ((30.0, with_truth(WORSE, 40.0)), (20.0, with_truth(BETTER, 40.0)))
    ]
    outcome = judged(tmp_path, *arms, data="scenes")
    assert outcome.told == "reproduced"
    assert outcome.differences == {gates.FIRST_PLACE: pytest.approx([10.0] * 5)}


@pytest.mark.parametrize(
    ("wider", "told"),
    [(0.5, "reproduced"), (0.02, "reproduced"), (0.004, "no difference"), (-0.5, "contradicted")],
)
def test_a_claim_about_spread_is_judged_by_the_log_variances_of_the_sets(tmp_path, claimed, wider, told):
    """One percent of the variance is the margin, however far below 0 its logarithm is."""
    claimed({"about": "spread"})
    noise = (0.0, 0.001, -0.001, 0.0005, -0.0005)
    arms = [
        {
            seed: {
                "rsum": rsum,
                "log_variance_pictures": -4.0 + seed / 5 + more,
                "log_variance_texts": -6.0 - seed / 5 + more,
            }
            for (seed, rsum), more in zip(WORSE.items(), extra, strict=True)
        }
        for extra in ([wider + one for one in noise], [0.0] * 5)
    ]
    outcome = judged(tmp_path, *arms)
    assert outcome.told == told
    assert outcome.differences == {
        measure: pytest.approx([wider + one for one in noise]) for measure in LOG_VARIANCES
    }


def test_a_claim_about_spread_waits_where_an_arm_makes_no_sets(tmp_path, claimed):
    claimed({"about": "spread"})
    assert "measures" in [gate.gate for gate in judged(tmp_path).shut]


ABOUT_RELATIONS = {
    "about": "relations",
    "experiment": "relational_losses",
    "system": "basic",
    "against": "without positions",
}


def test_a_claim_about_relations_is_judged_by_the_pairs_of_the_scenes(tmp_path, claimed, monkeypatch):
    monkeypatch.setitem(FAIR_SCALE, "scenes", SMALL)
    claimed(ABOUT_RELATIONS)
    ridge(tmp_path, "scenes", features="region")
    for arm, pairs in (("basic", 70.0), ("without positions", 52.0)):
        values = {
            seed: metrics | {"pairs_t2i": pairs + seed % 2, "pairs_i2t": pairs + seed / 5}
            for seed, metrics in with_truth(WORSE, 40.0).items()
        }
        study(tmp_path, "relational_losses", arm, values, "scenes")
    (outcome,) = outcomes("2ad", "scenes", folder=tmp_path)
    assert outcome.told == "reproduced"
    assert outcome.differences == {
        "pairs_t2i": pytest.approx([18.0] * 5),
        "pairs_i2t": pytest.approx([18.0] * 5),
    }


def test_where_no_pairs_are_known_no_training_would_help_a_claim_about_relations(tmp_path, claimed):
    claimed(ABOUT_RELATIONS)
    (outcome,) = outcomes("2ad", "small", folder=tmp_path)
    assert outcome.told == "too small to say: no known truth"
    assert [(gate.trainings, gate.seconds) for gate in outcome.shut] == [(0, 0.0)]
    assert missing(outcome, {}, "small", 60.0) == list(outcome.shut)
    assert verdicts("2ad", "small", folder=tmp_path).splitlines()[-1] == (
        "| AdOpt helps (table 3) | – | – | – | 0 | too small to say: no known truth |"
    )


def test_the_papers_sums_of_one_direction_are_those_of_its_recalls():
    experiment = EXPERIMENTS["relational_losses"]
    assert printed_sums(experiment, "caption retrieval")["basic"] == pytest.approx(53.1 + 84.7 + 92.5)
    assert printed_sums(experiment, "image retrieval")["VSE++ towers"] == pytest.approx(43.6 + 77.6 + 87.8)
    assert printed_sums(experiment, "relations") == printed_sums(experiment, "spread") == {}


# ---------------------------------------------------------------- losses in training, and one system alone

ON_LOSSES = {"kind": "the same", "about": "contrastive loss"}
ON_LOSSES |= {"experiment": "latent_targets", "system": "BL + LTD, dual", "against": "BL"}
ON_BOUND = {"experiment": "latent_bounds", "system": "η = 0.2", "against": ""}
NOISE = (0.3, -0.2, 0.1, -0.3, 0.1)
FLAT = (4.0, 2.0, 0.2, 0.2, 0.2, 0.2)


def of_one(tmp_path, claimed, change, measure, values, recorded=()):
    """The outcome of a claim about one system alone, by its measure from each seed, with more of each."""
    claimed(ON_BOUND | change)
    folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
    ridge(folder, features="region")
    metrics = {
        seed: {"rsum": rsum, measure: value} | dict(recorded)
        for (seed, rsum), value in zip(WORSE.items(), values, strict=True)
    }
    study(folder, "latent_bounds", "η = 0.2", metrics)
    (outcome,) = outcomes("2ad", "small", folder=folder)
    return outcome


def epochs(begins, values=FLAT):
    """What is recorded of each epoch."""
    return {f"{begins}{epoch}": value for epoch, value in enumerate(values, start=1)}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ((0.0, 0.0), "reproduced"),
        ((0.04, 0.04), "reproduced"),
        ((0.06, 0.06), "contradicted"),
        ((-0.06, -0.06), "contradicted"),
        ((0.0, 0.06), "mixed"),
    ],
)
def test_a_claim_that_two_losses_are_the_same_is_refuted_by_one_twentieth_more_or_less(
    tmp_path, claimed, more, told
):
    claimed(ON_LOSSES)
    ridge(tmp_path, features="region")
    for arm, shares in (("BL + LTD, dual", more), ("BL", (0.0, 0.0))):
        values = {
            seed: {"rsum": rsum, "contrast_mean": 2 * (1 + shares[0]), "contrast_end": 1 + shares[1]}
            for seed, rsum in WORSE.items()
        }
        for seed, noise in enumerate(NOISE):
            values[seed]["contrast_mean"] += noise / 100 * bool(sum(shares))
        study(tmp_path, "latent_targets", arm, values)
    (outcome,) = outcomes("2ad", "small", folder=tmp_path)
    assert outcome.told == told
    assert outcome.differences.keys() == {"contrast_mean", "contrast_end"}


@pytest.mark.parametrize(
    ("above", "kind", "told"),
    [
        (1.0, "the same", "reproduced"),
        (-4.0, "the same", "reproduced"),
        (7.0, "the same", "contradicted"),
        (-7.0, "the same", "contradicted"),
        (7.0, "better", "reproduced"),
        (-7.0, "better", "contradicted"),
        (1.0, "better", "no difference"),
    ],
)
def test_a_loss_comes_to_its_bound_if_it_ends_within_a_twentieth_of_it(tmp_path, claimed, above, kind, told):
    values = [above + noise for noise in NOISE]
    change = {"about": "bound", "kind": kind}
    outcome = of_one(tmp_path, claimed, change, "reconstruction_above_bound", values)
    assert outcome.told == told
    assert outcome.differences == {"reconstruction_above_bound": pytest.approx(values)}


def test_a_loss_that_still_falls_says_nothing_of_its_bound(tmp_path, claimed):
    change = {"about": "bound", "kind": "the same"}
    for last, told in ((0.45, "too small to say: reconstruction loss of η = 0.2"), (0.49, "contradicted")):
        curve = epochs("reconstruction_in_", (0.8, 0.7, 0.6, 0.5, 0.47, last))
        above = [20.0 + noise for noise in NOISE]
        outcome = of_one(tmp_path, claimed, change, "reconstruction_above_bound", above, curve)
        assert outcome.told == told
    assert outcome.shut == []


def test_a_multiplier_falls_if_nothing_is_left_once_its_bound_is_met_and_it_rests(tmp_path, claimed):
    change, met = {"about": "fall of the multiplier", "kind": "the same"}, {"bound_met": 3.0}
    rests = met | epochs("multiplier_after_")
    moves = met | epochs("multiplier_after_", (4.0, 2.0, 1.0, 0.5, 0.4, 0.3))
    for left, recorded, told in (
        ([0.0] * 5, rests, "reproduced"),
        ([30.0 + noise for noise in NOISE], rests, "contradicted"),
        ([30.0] * 5, moves, "too small to say: multiplier of η = 0.2"),
        ([0.0] * 5, rests | {"bound_met": 0.0}, "too small to say: bound of η = 0.2"),
    ):
        outcome = of_one(tmp_path, claimed, change, "multiplier_left", left, recorded)
        assert outcome.told == told
    assert outcome.shut[0].why == "it was not met with seeds 0, 1, 2, 3, 4"


def test_a_multiplier_can_return_only_from_0(tmp_path, claimed):
    change = {"about": "return of the multiplier"}
    for returns, lowest, told in (
        ([3.0, 2.0, 3.0, 4.0, 2.0], 0.0, "reproduced"),
        ([0.0] * 5, 0.0, "no difference"),
        ([0.0] * 5, 0.1, "too small to say: multiplier of η = 0.2"),
    ):
        outcome = of_one(
            tmp_path, claimed, change, "multiplier_returns", returns, {"multiplier_lowest": lowest}
        )
        assert outcome.told == told


def test_a_claim_about_one_system_asks_for_its_trainings_alone(tmp_path, claimed):
    change = {"about": "bound", "kind": "the same"}
    claimed(ON_BOUND | change)
    (outcome,) = outcomes("2ad", "small", folder=tmp_path)
    assert outcome.told == "not tried"
    (gate,) = missing(outcome, {}, "small", 60.0)
    assert (gate.gate, gate.trainings) == ("fair trainings of η = 0.2", 5)
    ridge(tmp_path, features="region")
    two = {seed: {"rsum": 300.0, "reconstruction_above_bound": 0.0} for seed in (0, 1)}
    study(tmp_path, "latent_bounds", "η = 0.2", two)
    (outcome,) = outcomes("2ad", "small", folder=tmp_path)
    (gate,) = outcome.shut
    assert (gate.gate, gate.trainings, gate.seconds) == ("seeds", 1, 60.0)
    lower = tmp_path / "lower"
    ridge(lower, features="region")
    study(lower, "latent_bounds", "η = 0.2", {seed: RIDGE / 2 for seed in range(5)}, rates={2e-3: 9.0})
    (outcome,) = outcomes("2ad", "small", folder=lower)
    assert [gate.gate for gate in outcome.shut] == [
        "learning rate of η = 0.2",
        "baseline of η = 0.2",
        "measures",
    ]


# ---------------------------------------------------------------- claims


def test_every_claim_is_told_once_and_borne_out_by_the_papers_own_numbers():
    held = claims()
    assert held
    assert {claim.work for claim in held} <= {"relational", "aoq", "2ad", "dive", "ltd"}
    assert claims("2ad") == [claim for claim in held if claim.work == "2ad"]
    for field in ("statement", "place", "refuted_by"):
        assert all(getattr(claim, field).strip() for claim in held)
    assert len({(claim.statement, claim.experiment) for claim in held}) == len(held)
    compared = {
        (claim.experiment, claim.system, claim.against, claim.when, claim.about, claim.kind) for claim in held
    }
    assert len(compared) == len(held)
    told = 0
    for claim in held:
        assert claim.system != claim.against
        printed = printed_sums(EXPERIMENTS[claim.experiment], claim.about)
        if claim.kind != "our question" and {claim.system, claim.against} <= printed.keys():
            margin = gates.MARGIN * printed[claim.against] if claim.kind == "no worse" else 0.0
            if claim.statement == "a latent target as a second loss does not help":
                margin += 0.1  # LTD's table 1 has 3.3 more with it, a hair above our margin: its text says no
            assert printed[claim.system] > printed[claim.against] - margin, claim.statement
            told += 1
    assert told > len([claim for claim in held if claim.kind != "our question"]) / 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "red"}, r'claims.yml: \[1\] has the unknown field "colour"'),
        ({"system": None}, r'claims.yml: \[1\] lacks the field "system"'),
        ({"kind": "best"}, r"claims.yml: \[1\].kind is 'best': wanted one of"),
        ({"experiment": "2ad_party"}, "experiment '2ad_party' is unknown: there are 2ad_pooling"),
        ({"against": "without AdSpot"}, "experiment '2ad_parts' has no arm 'without AdSpot'"),
        ({"about": "relations"}, "experiment '2ad_parts' does not look at relations"),
        ({"about": "cats"}, r"claims.yml: \[1\].about is 'cats': wanted one of"),
        ({"about": "bound"}, "'AdOpt helps' is about bound and against 'without AdOpt': wanted another arm"),
        ({"against": ""}, "'AdOpt helps' is about both ways and against '': wanted another arm, or none"),
        ({"about": "contrastive loss"}, "experiment '2ad_parts' does not follow the losses"),
        (
            {"about": "image retrieval", "when": "early in training"},
            "'AdOpt helps' is about image retrieval early in training: wanted one or the other",
        ),
        ({"words": ""}, "'AdOpt helps' is of the kind 'better': wanted the paper's words"),
        (
            {"kind": "our question"},
            "'AdOpt helps' is of the kind 'our question': wanted .* none for a question",
        ),
    ],
)
def test_a_damaged_claim_is_told(claimed, change, message):
    claimed({}, change)
    with pytest.raises(ValueError, match=message):
        claims()
