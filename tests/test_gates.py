"""Claims and their verdicts: each gate keeps an unfinished comparison from being judged."""

from dataclasses import replace

import pytest

from studies import LEVEL, RATES, RIDGE, SIX, ridge, study
from vsecore import records
from vsecore.experiments import EXPERIMENTS, FAIR_SCALE, claims, gates, ledger, outcomes, verdicts
from vsecore.experiments.claims import MARGIN, RETRIEVAL, SUBJECTS
from vsecore.experiments.ledger import Studied, Trained
from vsecore.experiments.printed import printed_rows
from vsecore.records import RECALLS

BETTER = {0: 310.0, 1: 320.0, 2: 330.0, 3: 315.0, 4: 325.0}
WORSE = {0: 300.0, 1: 311.0, 2: 319.0, 3: 305.0, 4: 314.0}
BARELY_BETTER = {seed: rsum + (8.0, 16.0, 1.0, 18.0, 5.0)[seed] for seed, rsum in WORSE.items()}
NOISE = (0.3, -0.2, 0.1, -0.3, 0.1)
RISING, FALLING = (90.0, 96.0, 98.0), (90.0, 100.0, 99.0)  # gains of 2 % and of nothing
OTHER = {"against": "without AdPool", "statement": "AdPool helps"}


@pytest.fixture(autouse=True)
def a_small_scale(monkeypatch):
    """Data of the name "small" have a scale of their own, and six epochs are not a recipe's full length."""
    monkeypatch.setitem(FAIR_SCALE, "small", SIX)
    monkeypatch.setitem(FAIR_SCALE, "scenes", SIX)


def arm(values=BETTER, baseline=RIDGE, name="first", more=None, **changes):
    """What is recorded of an arm: its rsum by seed; changes are of its training."""
    usual = {"tried": RATES, "curves": [LEVEL], "full_length": False, "rate": 2e-3}
    training = Trained("recipe", **usual | changes)
    measured = {} if baseline is None else {"rsum": baseline}
    return Studied(name, [training], {"rsum": values, **(more or {})}, measured, ("title of", name))


SECOND = arm(WORSE, name="second")


def shut(first, second, data="small", about="both ways"):
    """The names of the gates that are shut."""
    return [one.gate for one in gates.shut(first, second, data, about)]


def test_an_ensemble_is_held_against_the_better_baseline_of_its_members(tmp_path):
    ridge(tmp_path)
    (weaker,) = records.find(tmp_path)
    twice = {measure: 2 * value for measure, value in weaker.metrics.items()}
    better = replace(weaker, data=weaker.data | {"feature_kind": "region"}, metrics=twice)
    own = replace(weaker, data={"name": "small", "members": [weaker.data, better.data]})
    assert ledger._baseline([own], [weaker, better], twice) == twice


def test_systems_are_paired_by_their_seeds():
    first = arm({0: 310.0, 1: 320.0, 2: 330.0})
    second = arm({1: 300.0, 2: 301.0, 3: 900.0}, name="second")
    assert verdicts.differences(first, second, "rsum") == [20.0, 29.0]
    assert verdicts._doubts(claims()[0], first, second, "rsum").margin == pytest.approx(3.005)


@pytest.mark.parametrize(
    ("first", "gate"),
    [
        (arm(), None),
        (arm(tried={2e-3: 100.0}), "learning rate of first"),
        (arm(tried={2e-3: 100.0, 4e-3: 95.0}), "learning rate of first"),
        (arm(tried={1e-3: 90.0, 2e-3: 95.0, 4e-3: 100.0}), "learning rate of first"),  # at the upper edge
        (arm(tried={1e-3: 100.0, 2e-3: 95.0, 4e-3: 90.0}), "learning rate of first"),  # at the lower edge
        (arm(curves=[RISING]), "length of first"),
        (arm(curves=[RISING], full_length=True), None),
        (arm(curves=[RISING, FALLING, FALLING]), None),  # the seeds level off together
        (arm(curves=[RISING, RISING, FALLING]), "length of first"),
        (arm(curves=[]), "length of first"),
        (arm(curves=[(60.0, 80.0, 90.0, 98.0, 99.5, 100.0)]), "length of first"),  # two of six are a third
        (arm(curves=[(100.0, 60.0, 60.0, 60.0, 60.0, 100.0)]), None),  # its best was there before
        (arm(dict.fromkeys(BETTER, 0.0), curves=[[0.0] * 6]), None),  # it collapsed: the verdict says so
        (arm(baseline=None), "baseline of first"),
        (arm(baseline=310.0 / 1.005), "baseline of first"),  # above, but by less than the margin
        (arm({0: 310.0, 1: 320.0, 7: 1000.0}), "seeds"),
        (SECOND, "one system"),
    ],
)
def test_each_gate_is_shut_by_what_it_names(first, gate):
    assert shut(first, SECOND) == ([] if gate is None else [gate])


def test_the_weaker_arm_may_be_below_the_linear_baseline_if_it_is_finished():
    low = {seed: rsum - 250 for seed, rsum in WORSE.items()}
    assert shut(arm(), arm(low, name="second")) == []
    assert shut(arm(), arm(low, name="second", full_length=True, curves=[RISING])) == []
    for change, gate in (({"tried": {2e-3: 100.0}}, "learning rate"), ({"curves": [RISING]}, "length")):
        assert shut(arm(), arm(low, name="second", **change)) == [f"{gate} of second", "baseline of second"]
    below = {seed: rsum - 240 for seed, rsum in BETTER.items()}
    assert shut(arm(below), arm(low, name="second")) == ["baseline of first"]


def test_on_the_scenes_each_measure_counts_against_the_baseline_and_must_be_recorded():
    truths = {way: dict.fromkeys(range(5), 40.0) for way in RETRIEVAL.measures_on("scenes")[1:]}
    above, below = ({"rsum": RIDGE, **dict.fromkeys(truths, truth)} for truth in (39.0, 39.8))
    second = replace(arm(WORSE, name="second", more=truths), baseline=above)
    for baseline, names in ((above, []), (below, ["baseline of first"])):
        assert shut(replace(arm(more=truths), baseline=baseline), second, "scenes") == names
    fewer = {"t2i_map_at_r": dict.fromkeys((0, 1, 2, 4), 40.0)}
    (gate,) = gates.shut(
        replace(arm(more=truths), baseline=above), replace(second, results=second.results | fewer), "scenes"
    )
    assert gate.gate == "measures" and "seeds 3" in gate.why


def test_an_ensemble_is_as_finished_as_its_least_finished_member():
    (done,) = arm().trainings
    for change, gate in (({"tried": {2e-3: 100.0}}, "learning rate"), ({"curves": [RISING]}, "length")):
        less = replace(done, **change)
        for members in ((less, done), (done, less)):
            assert shut(replace(arm(), trainings=members), SECOND) == [f"{gate} of first"]
    assert shut(replace(arm(), trainings=[done, done]), SECOND) == []


def epochs(begins, values):
    """What is recorded of each epoch, from two seeds."""
    return {f"{begins}{epoch}": {0: value, 1: value} for epoch, value in enumerate(values, start=1)}


FALL_OF, RETURN_OF, REACH_OF = "fall of the multiplier", "return of the multiplier", "reach of the bound"


@pytest.mark.parametrize(
    ("about", "losses", "multipliers", "met", "gate"),
    [  # the bound is 0.1
        ("bound", (0.4, 0.3, 0.2, 0.1, 0.1, 0.104), (4.0, 1.0, 0.0, 0.0, 0.0, 0.0), 4.0, ""),
        ("bound", (0.4, 0.3, 0.2, 0.1, 0.1, 0.106), (4.0, 1.0, 0, 0, 0, 0), 4.0, "reconstruction loss"),
        ("bound", (0.4, 0.3, 0.2, 0.1, 0.1, 0.1), (4.0, 3.0, 2.0, 1.0, 0.5, 0.0), 4.0, "multiplier"),
        (REACH_OF, (0.4, 0.3, 0.2, 0.1, 0.09, 0.08), (4.0, 3.0, 2.0, 1.0, 0.5, 0.0), 4.0, ""),
        (REACH_OF, (0.4, 0.3, 0.2, 0.18, 0.17, 0.15), (1.0, 2.0, 3.0, 4, 5, 6), 0.0, "reconstruction loss"),
        ("bound", (0.4, 0.3, 0.2, 0.2, 0.2, 0.2), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0), 0.0, ""),
        (FALL_OF, (0.1,) * 6, (4.0, 2.0, 0.2, 0.2, 0.2, 0.2), 1.0, ""),
        (FALL_OF, (0.1,) * 6, (4.0, 2.0, 1.0, 0.5, 0.4, 0.3), 1.0, "multiplier"),
        (FALL_OF, (0.2,) * 6, (4.0, 2.0, 0.2, 0.2, 0.2, 0.2), 0.0, "bound"),
        (RETURN_OF, (0.2, 0.05, 0.05, 0.12, 0.1, 0.1), (4.0, 0.0, 0.0, 0.5, 0.0, 0.0), 2.0, ""),
        (RETURN_OF, (0.2, 0.05, 0.05, 0.06, 0.1, 0.1), (4.0, 0.0, 0.0, 0.0, 0.0, 0.0), 2.0, "multiplier"),
        (RETURN_OF, (0.2, 0.12, 0.05, 0.12, 0.1, 0.1), (4.0, 3.0, 2.0, 1.0, 1.0, 1.0), 3.0, "multiplier"),
        (RETURN_OF, (0.2, 0.12, 0.05, 0.05, 0.05, 0.05), (4.0, 0.0, 0.0, 0.0, 0.0, 0.0), 2.0, "multiplier"),
        # One of two seeds does not meet the bound.
        (FALL_OF, (0.1,) * 6, (4.0, 2.0, 0.2, 0.2, 0.2, 0.2), (1.0, 0.0), "bound"),
        (
            REACH_OF,
            (0.4, 0.3, 0.2, 0.18, 0.17, 0.15),
            (4.0, 1.0, 0, 0, 0, 0),
            (4.0, 0.0),
            "reconstruction loss",
        ),
    ],
)
def test_what_still_moves_says_nothing_of_where_it_ends(about, losses, multipliers, met, gate):
    above = 100 * (losses[-1] / 0.1 - 1)
    met = dict(enumerate(met if isinstance(met, tuple) else (met, met)))
    more = {"bound_met": met, "reconstruction_above_bound": {0: above, 1: above}}
    more |= epochs("reconstruction_in_", losses) | epochs("multiplier_after_", multipliers)
    found = [one.gate for one in gates.still_moving(arm(more=more), about)]
    assert found == ([f"{gate} of first"] if gate else [])
    assert {*found} <= {*shut(arm(more=more), None, about=about)}
    if about != RETURN_OF:
        longest = gates.still_moving(arm(more=more, full_length=True), about)
        assert not [one for one in longest if one.gate.startswith(("multiplier", "reconstruction"))]


@pytest.mark.parametrize(("data", "wanted"), [("scenes", 5), ("flickr8k", 3)])
def test_scenes_need_five_seeds_and_photographs_three(data, wanted):
    for count in (wanted - 1, wanted):
        first = arm({seed: BETTER[seed] for seed in range(count)})
        assert ("seeds" in shut(first, SECOND, data)) == (count < wanted)


def test_a_loss_in_training_is_compared_at_one_learning_rate():
    other = arm(WORSE, name="second", rate=4e-3)
    assert "two learning rates" in shut(arm(), other, about="contrastive loss")
    assert "two learning rates" not in [*shut(arm(), SECOND, about="contrastive loss"), *shut(arm(), other)]


def judged(
    folder,
    better=BETTER,
    worse=WORSE,
    experiment="2ad_parts",
    arms=("all", "without AdOpt"),
    data="small",
    **options,
):
    """The outcomes of the claims on two arms that were studied; options are of the first one."""
    features = EXPERIMENTS[experiment].features_on(data)
    ridge(folder, data, features=features)
    study(folder, experiment, arms[0], better, data, **options)
    study(folder, experiment, arms[1], worse, data)
    return outcomes("2ad", data, folder=folder)


def moved(folder, change, seeds, recipe=None):
    """Let the records from some seeds, perhaps of one recipe only, be of other features or words."""
    for entry in records.find(folder):
        if entry.seed in seeds and recipe in (None, entry.name) and entry.name != "ridge":
            data = entry.data | {key: value for key, value in change.items() if key != "precision"}
            (folder / entry.file_name).unlink()
            precision = change.get("precision", entry.precision)
            records.write(replace(entry, data=data, precision=precision), folder)


@pytest.mark.parametrize(
    "change", [{"vectors": "glove"}, {"fingerprint": "other"}, {"precision": "bfloat16"}], ids=str
)
def test_records_of_other_words_or_precision_are_not_set_side_by_side(tmp_path, claimed, change):
    judged(tmp_path)
    moved(tmp_path, change, [3, 4], "2ad_grid_gru")
    one = records.find(tmp_path)[0]  # beside it a record that names no features, as that of a benchmark
    records.write(replace(one, name="search", config_hash="", data={"name": "small"}), tmp_path)
    found = ledger.studied("2ad_parts", "small", folder=tmp_path)
    assert [found[arm].seeds for arm in ("all", "without AdOpt")] == [{0, 1, 2}, {0, 1, 2, 3, 4}]
    (outcome,) = outcomes("2ad", "small", folder=tmp_path)
    assert outcome.differences == {"rsum": [10.0, 9.0, 11.0]}


@pytest.mark.parametrize("apart", [0.0, 0.2, 0.3])
def test_features_that_differ_in_last_digits_are_set_side_by_side(tmp_path, claimed, apart):
    """They count as the same if the linear baseline's recalls differ by at most a quarter of a point."""
    judged(tmp_path)
    moved(tmp_path, {"fingerprint": "elsewhere"}, [3, 4], "2ad_grid_gru")
    (entry,) = records.find(tmp_path, name="ridge")
    recalls = dict.fromkeys(RECALLS, 20.0)
    for fingerprint, more in (("f", {}), ("elsewhere", {"t2i_r5": 20.0 + apart})):
        data, metrics = entry.data | {"fingerprint": fingerprint}, entry.metrics | recalls | more
        records.write(replace(entry, data=data, metrics=metrics), tmp_path)
    found = ledger.studied("2ad_parts", "small", folder=tmp_path)
    assert found["all"].seeds == ({0, 1, 2, 3, 4} if apart < 0.25 else {0, 1, 2})
    assert found["all"].baseline, "of either"


def test_of_a_training_that_two_processors_recorded_the_first_counts(tmp_path, claimed):
    judged(tmp_path)
    (entry,) = records.find(tmp_path, name="ridge")
    for fingerprint in ("f", "elsewhere"):
        data, metrics = (
            entry.data | {"fingerprint": fingerprint},
            entry.metrics | dict.fromkeys(RECALLS, 20.0),
        )
        records.write(replace(entry, data=data, metrics=metrics), tmp_path)
    before = ledger.studied("2ad_parts", "small", folder=tmp_path)
    for one in records.find(tmp_path, name="2ad_grid_gru"):
        better = {name: 1.1 * value for name, value in one.metrics.items()}
        records.write(replace(one, data=one.data | {"fingerprint": "z"}, metrics=better), tmp_path)
    data = entry.data | {"fingerprint": "z"}
    records.write(replace(entry, data=data, metrics=entry.metrics | dict.fromkeys(RECALLS, 20.0)), tmp_path)
    assert ledger.studied("2ad_parts", "small", folder=tmp_path) == before


def test_the_linear_baseline_is_of_the_same_features(tmp_path, claimed):
    """One on other features, however low, opens no gate."""
    judged(tmp_path)
    (entry,) = records.find(tmp_path, name="ridge")
    (tmp_path / entry.file_name).unlink()
    for change in ({"fingerprint": "other"}, {"feature_kind": "patch"}):
        records.write(replace(entry, data=entry.data | change), tmp_path)
    (outcome,) = outcomes("2ad", "small", folder=tmp_path)
    assert outcome.in_words == "too small to say: baseline of all, baseline of without AdOpt"


def test_an_arm_without_records_is_not_tried_and_says_what_it_lacks(tmp_path, claimed):
    claimed({}, OTHER)
    assert outcomes("aoq", "small") == []
    for folder in (tmp_path / "none", tmp_path):
        found = outcomes("2ad", "small", folder=folder)
        assert [outcome.in_words for outcome in found] == ["not tried"] * 2
        study(tmp_path, "2ad_parts", "all", {0: 300.0})
    assert [gate.gate for gate in found[0].shut] == ["fair trainings of without AdOpt"]


def several(**measures):
    """The metrics of each seed: a number is the same for all, a sequence has one each."""
    as_lists = {name: [value] * 5 if isinstance(value, float) else value for name, value in measures.items()}
    return {
        seed: {"rsum": 300.0} | {name: values[seed] for name, values in as_lists.items()} for seed in range(5)
    }


def around(value, scale=1.0):
    return [value + scale * noise for noise in NOISE]


FOLLOWED = {"experiment": "latent_targets", "system": "BL + LTD, dual", "against": "BL"}
ALONE = {"experiment": "latent_bounds", "system": "η = 0.2", "against": ""}


@pytest.mark.parametrize(
    ("about", "base", "margin", "arms"),
    [
        ("both ways", 300.0, 3.0, {}),
        ("first place", 20.0, 0.2, {}),
        ("spread", -4.0, 0.01, {}),  # a share of the variance, however far below 0 its logarithm is
        ("whole rankings", 50.0, 0.5, {}),
        ("contrastive loss", 2.0, 0.1, FOLLOWED),
        ("one vector of a set", 0.0, 1.0, ALONE),
        ("bound", 0.0, 5.0, ALONE),
        (FALL_OF, 0.0, 1.0, ALONE),
        (RETURN_OF, 0.0, 0.5, ALONE),
    ],
)
def test_a_claim_is_judged_by_its_own_measures_and_margin(tmp_path, claimed, about, base, margin, arms):
    claimed(arms | {"about": about})
    reached, measures = {"bound_met": 3.0}, SUBJECTS[about].measures
    names = arms.get("system", "all"), arms.get("against", "without AdOpt") or "BL without averages"
    for share, words in ((1.5, "reproduced"), (0.5, "no difference")):
        higher = dict.fromkeys(measures, around(base + share * margin, margin / 10))
        first, second = several(**higher, **reached), several(**dict.fromkeys(measures, base))
        (outcome,) = judged(tmp_path / words, first, second, arms.get("experiment", "2ad_parts"), names)
        assert outcome.in_words == words


def test_a_question_of_ours_is_answered_and_a_measure_that_is_not_recorded_is_named(tmp_path, claimed):
    claimed({"kind": "our question", "words": ""}, {"about": "spread"})
    said = [one.in_words for one in judged(tmp_path, WORSE, BETTER)]
    assert said == ["no", "too small to say: measures"]


def test_a_claim_about_early_training_is_judged_by_the_first_third_of_the_epochs(tmp_path, claimed):
    claimed({}, {"about": "early in training", "statement": "AdOpt is ahead"})
    faster = (80.0, 90.0, 95.0, 99.5, 100.0, 100.0)  # LEVEL has 60 and 80 in its first third
    at_the_end, early = judged(tmp_path, WORSE, curve=faster)
    assert (at_the_end.in_words, early.in_words) == ("no difference", "reproduced")
    assert early.differences == {"early_rsum": [15.0] * 5}


def test_claims_of_one_measure_share_the_doubt(tmp_path, claimed):
    """The mean is 9.6 and its t is 2.97 with 4 degrees of freedom: p = 0.041, and 0.082 for two claims."""
    study(tmp_path, "2ad_parts", "without AdPool", WORSE)
    assert [one.in_words for one in judged(tmp_path, BARELY_BETTER)] == ["reproduced"]
    for other, words in (
        (OTHER, "undecided"),
        (OTHER | {"against": "without token level"}, "undecided"),  # one that is not judged yet counts too
        (OTHER | {"kind": "no worse"}, "undecided"),
        ({"about": "early in training", "statement": "AdOpt is ahead"}, "reproduced"),  # another measure
    ):
        claimed({}, other)
        assert outcomes("2ad", "small", folder=tmp_path)[0].in_words == words, other


def test_what_a_paper_says_does_not_learn_must_stay_below_the_linear_baseline(tmp_path, claimed):
    claimed({"fails": True})
    low = {seed: rsum - 250 for seed, rsum in WORSE.items()}
    one_low = WORSE | {0: low[0]}  # the other seeds learned
    for place, worse in enumerate((WORSE, BETTER, one_low, low)):
        (outcome,) = judged(tmp_path / str(place), worse=worse)
        assert outcome.in_words == ("reproduced" if worse is low else "contradicted")
    learned, no_truths = around(RIDGE + 50), {"i2t_map_at_r": 5.0, "t2i_map_at_r": 5.0}  # the ridge has 10
    worse = several(rsum=learned, **no_truths)
    (outcome,) = judged(
        tmp_path / "mixed", several(i2t_map_at_r=40.0, t2i_map_at_r=40.0), worse, data="scenes"
    )
    assert outcome.in_words == "mixed"


def test_a_claim_about_one_direction_has_the_sum_of_its_recalls(tmp_path, claimed):
    claimed({"about": "image retrieval"})
    first, second = (several(**{f"t2i_r{k}": around(base + k) for k in (1, 5, 10)}) for base in (30.0, 20.0))
    (outcome,) = judged(tmp_path, first, second)
    assert outcome.in_words == "reproduced" and outcome.differences == {"t2i_rsum": pytest.approx([30.0] * 5)}


def test_every_claim_is_told_once_and_borne_out_by_the_papers_own_numbers():
    held = claims()
    assert {claim.work for claim in held} <= {"relational", "aoq", "2ad", "dive", "ltd"}
    for field in ("statement", "place", "refuted_by"):
        assert all(getattr(claim, field).strip() for claim in held)
    assert len({(claim.statement, claim.experiment) for claim in held}) == len(held)
    questions = [claim for claim in held if claim.kind == "our question"]
    assert len(questions) <= 26 and len(claims(data="flickr8k")) <= 16 and claims(data="scenes") == held
    compared = {(one.experiment, one.system, one.against, one.about, one.kind) for one in held}
    assert len(compared) == len(held)
    checked = 0
    for claim in held:
        assert claim.system != claim.against
        printed, _ = printed_rows(EXPERIMENTS[claim.experiment], about=claim.about)
        if claim.kind != "our question" and {claim.system, claim.against} <= printed.keys():
            margin = 0.0 if claim.kind == "better" else MARGIN * printed[claim.against]
            if claim.statement == "a latent target as a second loss does not help":
                margin += 0.1  # LTD's table 1 has 3.3 more with it, a hair above our margin: its text says no
            assert printed[claim.system] > printed[claim.against] - margin, claim.statement
            if claim.kind == "the same":
                assert printed[claim.system] < printed[claim.against] + margin, claim.statement
            checked += 1
    assert checked > len([claim for claim in held if claim.kind != "our question"]) / 2


def test_every_claim_can_be_tested():
    followed = ("bound", FALL_OF, RETURN_OF, REACH_OF)
    alone = (*followed, "one vector of a set", "the weakest vector")
    for claim in claims():
        experiment = EXPERIMENTS[claim.experiment]
        assert {*claim.arms} <= {*experiment.arms} and bool(claim.against) != (claim.about in alone), claim
        assert experiment.follows_losses or claim.about not in (*followed, "contrastive loss"), claim
        assert (claim.kind == "our question") != bool(claim.words), "only a paper's claim has words"


def test_a_damaged_claim_is_refused(claimed):
    claimed({}, {"colour": "red"})
    with pytest.raises(ValueError, match="colour"):
        claims()
