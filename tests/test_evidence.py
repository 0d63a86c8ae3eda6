"""The page of a paper: what it says is what the records say, and it says what is missing."""

import re
import shutil
import statistics
import sys
from dataclasses import replace

import pytest
import yaml
from matplotlib import pyplot as plt

from course import dots
from coursebook import evidence, findings
from studies import CLAIM, RATES, ridge, study, write
from vsecore import records
from vsecore.experiments import (
    EXPERIMENTS,
    LESSON_SCALE,
    departures,
    get_experiment,
    outcomes,
    studied,
    table,
)
from vsecore.experiments.catalogue import BY_WORK
from vsecore.experiments.departures import DEPARTURES
from vsecore.experiments.experiment import title_of
from vsecore.experiments.missing import lacking
from vsecore.experiments.references import ORACLE
from vsecore.experiments.scales import recipe_at
from vsecore.experiments.statistics import interval
from vsecore.recipes import RECIPES

pytestmark = pytest.mark.usefixtures("claimed")

BOTH_WORKS = evidence.WORKS
HIGH, LOW = (310.0, 320.0, 330.0, 315.0, 325.0), (300.0, 311.0, 319.0, 305.0, 314.0)
WIDE = (250.0, 390.0, 300.0, 370.0, 290.0)
SLOW = (20.0, 40.0, 60.0, 80.0, 90.0, 100.0)  # rsum on dev after each epoch, far from level


@pytest.fixture(autouse=True)
def few_experiments(monkeypatch):
    """The page is of one experiment, so that it is soon written."""
    few = {"2ad_parts": EXPERIMENTS["2ad_parts"]}
    monkeypatch.setattr(findings, "BY_WORK", {"2ad": few})
    monkeypatch.setattr(evidence, "WORKS", {"2ad": evidence.WORKS["2ad"]})
    return few


@pytest.fixture
def kept(tmp_path):
    """A folder of records with what every figure of the scenes is held against."""
    folder = tmp_path / "records"
    ridge(folder, "scenes")
    write(folder, ORACLE, "", "scenes", 0, {"rsum": 413.25}, 1.0)
    return folder


@pytest.fixture
def page_of(tmp_path):
    """The page of some records."""

    def lay(folder):
        evidence.lay_evidence(tmp_path / "pages", folder)
        return (tmp_path / "pages" / "2ad.md").read_text(encoding="utf-8")

    return lay


def measured(sums, truths=None):
    """The metrics of each seed; mAP@R goes with rsum unless it is given."""
    return {
        seed: {"rsum": rsum, "i2t_map_at_r": truth / 10, "t2i_map_at_r": truth / 5}
        for seed, (rsum, truth) in enumerate(zip(sums, truths or sums, strict=True))
    }


def both(folder, first=HIGH, second=LOW, truths=(None, None), **options):
    """The two arms of the claim; options are of the first."""
    study(folder, "2ad_parts", "all", measured(first, truths[0]), "scenes", **options)
    study(folder, "2ad_parts", "without AdOpt", measured(second, truths[1]), "scenes")


def section(page, title):
    """The part of a page below a heading of the second level."""
    return page.split(f"\n## {title}\n")[1].split("\n## ")[0]


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("arms", "kind", "verdict"),
    [
        ({}, "better", "reproduced"),
        ({}, "our question", "yes"),
        ({"first": LOW, "second": HIGH}, "better", "contradicted"),
        ({"first": LOW, "second": HIGH}, "no worse", "contradicted"),
        ({"first": HIGH, "second": HIGH}, "better", "no difference"),
        ({"first": WIDE, "second": LOW}, "better", "undecided"),
        ({"truths": (LOW, HIGH)}, "better", "mixed"),
        ({"second": (90.0, 95.0, 92.0, 91.0, 94.0)}, "better", "reproduced, against a baseline that failed"),
        ({"rates": {2e-3: 100.0}}, "better", "too small to say: learning rate of all"),
    ],
)
def test_each_verdict_stands_beside_its_claim(kept, page_of, claimed, arms, kind, verdict):
    claimed({"kind": kind} | ({"words": ""} if kind == "our question" else {}))
    both(kept, **arms)
    (outcome,) = outcomes("2ad", "scenes", folder=kept)
    assert outcome.told == verdict
    (row,) = [line for line in section(page_of(kept), "The verdicts").splitlines() if "AdOpt helps" in line]
    here, elsewhere = row.strip("| ").split(" | ")[-2:]
    assert here.startswith(f"**{verdict}**<br>") and elsewhere == "**not tried**<br>at the fair scale"


def test_the_numbers_of_a_verdict_are_those_of_the_records(kept, page_of):
    both(kept)
    page = page_of(kept)
    found = [high - low for high, low in zip(HIGH, LOW, strict=True)]
    page = page.replace("\N{NO-BREAK SPACE}", " ")
    assert f"rsum {statistics.mean(found):+.1f} ± {statistics.stdev(found):.1f}: reproduced<br>" in page
    truths = [one / 10 for one in found]
    assert f"mAP@R to text {statistics.mean(truths):+.1f} ± {statistics.stdev(truths):.1f}" in page
    assert "5 seeds" in page and "| equal sums |" in page
    assert "| reproduced | 1 | 0 |\n| not tried | 0 | 1 |" in page
    assert table("2ad_parts", "scenes", folder=kept) in section(page, "The experiments")


def test_a_long_quote_stands_once_above_all_that_it_claims(kept, page_of, claimed):
    other = {"against": "without AdPool", "statement": "AdPool helps"}
    claimed(
        {}, other, other | {"words": "", "kind": "our question", "statement": "is it so", "place": "none"}
    )
    page = page_of(kept)
    assert page.count(f"> {CLAIM['words']}") == 1 and "— table 3." in page
    lines = page.splitlines()
    helps = [lines.index(line) for line in lines if line.startswith(("| AdOpt helps", "| AdPool helps"))][:2]
    assert helps[1] == helps[0] + 1
    assert "| is it so?<br>*none* |" in page


# ---------------------------------------------------------------- what is missing


@pytest.mark.parametrize(
    "arms",
    [
        {"rates": {2e-3: 100.0}},
        {"curve": SLOW},
        {"first": HIGH[:3]},
        {"first": (90.0, *HIGH[1:]), "rates": {1e-3: 90.0, 2e-3: 95.0, 4e-3: 100.0}},
    ],
)
def test_each_shut_gate_is_told_with_what_would_open_it(kept, page_of, arms):
    if "first" in arms and len(arms["first"]) == 3:
        study(kept, "2ad_parts", "all", measured(HIGH[:3]), "scenes")
        study(kept, "2ad_parts", "without AdOpt", measured(LOW), "scenes")
    else:
        both(kept, **arms, seconds=1800.0)
    (outcome,) = outcomes("2ad", "scenes", folder=kept)
    assert outcome.shut
    told = section(page_of(kept), "What is still missing").split("### On Flickr8k")[0]
    for gate in outcome.shut:
        assert f"*{gate.gate}*: {gate.why}" in told
    trainings = sum(gate.trainings for gate in outcome.shut)
    hours = sum(gate.seconds for gate in outcome.shut) / 3600
    assert f"| {trainings} | {hours:.1f} |" in told


def test_missing_measures_and_baselines_are_told(tmp_path, page_of):
    folder = tmp_path / "records"
    study(folder, "2ad_parts", "all", dict(enumerate(HIGH)), "scenes")
    study(folder, "2ad_parts", "without AdOpt", dict(enumerate(LOW)), "scenes")
    told = section(page_of(folder), "What is still missing")
    assert "no ridge regression is recorded" in told and "i2t_map_at_r of all is not recorded" in told


def test_an_arm_that_is_not_tried_is_reckoned_from_those_that_are(kept, page_of):
    study(kept, "2ad_parts", "all", measured(HIGH[:2]), "scenes", seconds=3600.0)
    told = section(page_of(kept), "What is still missing")
    here, elsewhere = told.split("### On Flickr8k")
    assert "*fair trainings of without AdOpt*: none yet<br>*seeds of all*: 2 so far, 5 needed" in here
    assert "| 10 | 10.0 |" in here  # three rates and four more seeds; three seeds more
    assert (
        "*fair trainings of all and without AdOpt*: none yet" in elsewhere and "| 10 | unknown |" in elsewhere
    )
    assert "lack 10 trainings at the fair scale; 0 are recorded" in here  # they have no recipe here


def test_one_training_that_was_paused_does_not_change_what_one_takes(kept, page_of):
    study(kept, "2ad_parts", "all", measured(HIGH[:3]), "scenes", seconds=3600.0)
    paused = records.find(kept, name="2ad_grid_gru", seed=2)[0]
    records.write(replace(paused, seconds=100 * 3600.0), kept)
    told = section(page_of(kept), "What is still missing").split("### On Flickr8k")[0]
    assert "took less than 60.0 minutes" in told and "| 9 | 9.0 |" in told  # 2 seeds, and 7 of the other arm


@pytest.mark.parametrize(
    ("experiment", "arm", "trainings"),
    [
        ("2ad_parts", "all", 7),
        ("2ad_pooling", "simple, chosen on dev", 16),
        ("2ad_ensembles", "RGP", 21),
        ("2ad_ensembles", "RRR", 17),
    ],
)
def test_an_arm_needs_three_rates_of_each_recipe_and_the_other_seeds(experiment, arm, trainings):
    assert len(lacking(get_experiment(experiment), arm, "scenes", [])) == trainings


def test_a_member_that_was_trained_again_is_counted_once(kept):
    recipe = {"name": "2ad_grid_gru", "training": {"epochs": 15, "batch_size": 128}}
    short = recipe | {"training": {"epochs": 3, "batch_size": 128}}
    blank = records.find(kept)[0]
    for number, (seed, members) in enumerate(
        [(0, [recipe] * 2), (0, [recipe] * 3), (1, [recipe] * 3), (1, [short] * 3), (1, [recipe, short])]
    ):
        several = " and ".join(member["name"] for member in members)
        entry = replace(blank, name=several, config={"members": members}, config_hash=f"{number}")
        records.write(replace(entry, seed=seed, data={"name": "scenes"}), kept)
    alone = replace(blank, name="2ad_grid_gru", config=recipe, config_hash="alone", data={"name": "scenes"})
    records.write(alone, kept)
    # By itself from seed 0; again and once more from each of two seeds.
    assert findings.Findings.read("2ad", kept).fair_trainings("scenes") == 1 + 2 + 2


def test_once_all_is_judged_nothing_is_missing(kept, page_of):
    both(kept)
    told = section(page_of(kept), "What is still missing")
    assert "Nothing: every claim is judged." in told.split("### On Flickr8k")[0]


# ---------------------------------------------------------------- figures


def test_every_experiment_with_records_has_a_figure_with_words(kept, page_of, tmp_path, few_experiments):
    few_experiments["2ad_systems"] = EXPERIMENTS["2ad_systems"]
    both(kept)
    page = page_of(kept)
    pictures = re.findall(r"```\{image\} (\S+)\n:alt: (.+)\n", page)
    assert [picture for picture, _ in pictures] == [f"{name}-scenes.svg" for name in few_experiments]
    for picture, words in pictures:
        assert (tmp_path / "pages" / picture).stat().st_size > 1000
        assert "413.2" in words and "ridge regression stands at 100.0" in words
    parts = dict(pictures)["2ad_parts-scenes.svg"]
    assert f"all {statistics.mean(HIGH):.1f} (5 seeds), without AdOpt {statistics.mean(LOW):.1f}" in parts


def test_every_figure_of_the_scenes_has_the_oracles_line_and_that_of_ridge(kept):
    both(kept)
    found = studied("2ad_parts", "scenes", folder=kept)
    figure = dots.compared(found, "scenes", 413.25)
    sums, *truths = figure.axes
    assert [line.get_xdata()[0] for line in sums.lines if line.get_linestyle() == ":"] == [413.25]
    (baseline,) = [lines for lines in sums.collections if "ridge" in str(lines.get_label())]
    assert {x for segment in baseline.get_segments() for x in segment[:, 0]} == {100.0}
    assert [label.get_text() for label in sums.get_yticklabels()] == ["all", "without AdOpt"]
    assert len(truths) == 2
    plt.close(figure)


def test_the_dots_of_a_figure_are_the_seeds(kept):
    both(kept)
    figure = dots.compared(studied("2ad_parts", "scenes", folder=kept), "scenes", None)
    drawn = [tuple(point) for dots_of in figure.axes[0].collections[:2] for point in dots_of.get_offsets()]
    assert sorted(drawn) == sorted([(value, 0.0) for value in HIGH] + [(value, 1.0) for value in LOW])
    plt.close(figure)


def test_the_interval_of_a_mean_is_students():
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-4)
    assert interval([7.0, 7.0]) == (7.0, 7.0)
    assert all(bound != bound for bound in interval([7.0]))


# ---------------------------------------------------------------- the rest of the page


@pytest.mark.parametrize("exists", [True, False])
def test_without_records_the_page_is_empty_and_says_so(tmp_path, page_of, exists):
    folder = tmp_path / "records"
    if exists:
        folder.mkdir()
    page = page_of(folder)
    assert "No training is recorded yet." in page and "{image}" not in page
    assert page.count("**not tried**") == 2
    for arm in EXPERIMENTS["2ad_parts"].arms:
        assert arm in section(page, "The experiments")
    assert "is not recorded yet" in section(page, "The experiments")


def with_recipes(folder):
    """Write recipes, a device and its cores into the records of a system."""
    config = {"dim": 128, "training": {"epochs": 15, "batch_size": 128}, "text": {"encoder": {"name": "gru"}}}
    for entry in records.find(folder, name="2ad_grid_gru"):
        records.write(replace(entry, config=config, device="A processor", cpus=2), folder)


def test_the_introduction_adds_up_the_hours(kept, page_of):
    study(kept, "2ad_parts", "all", measured(HIGH), "scenes", seconds=1800.0)
    with_recipes(kept)
    page = page_of(kept)
    count = len(RATES) + len(HIGH) - 1
    assert f"{count} trainings took {count / 2:.1f} hours by the clock, pauses included" in page
    assert (
        f"| drawn scenes | grid | BiGRU | fair | 15 | 128 | 128 | {count} | {count / 2:.1f} "
        "| A processor, 2 cores |" in page
    )


def lesson(folder, arm, sums, data="scenes"):
    """Records of an arm at the lesson scale, one for each seed."""
    planned = EXPERIMENTS["2ad_parts"].trainings(
        arm, "grid", lambda candidates: recipe_at(candidates, LESSON_SCALE[data])
    )
    for seed, rsum in enumerate(sums):
        write(folder, *title_of(planned), data, seed, {"rsum": rsum}, 1.0, vectors="")


def test_what_is_judged_too_early_stands_beside_what_is_not(kept, page_of):
    both(kept)
    lesson(kept, "all", [200.0])
    lesson(kept, "without AdOpt", [210.0])
    told = section(page_of(kept), "Judged too early")
    assert "| all | 200.0 | 2 | 1 | 320.0 | 1 | 5 |" in told
    assert "| without AdOpt | 210.0 | 1 | 1 | 309.8 | 2 | 5 |" in told


def test_every_sum_at_the_lesson_scale_is_shown_on_all_data(kept, page_of):
    lesson(kept, "all", [200.0, 202.0])
    lesson(kept, "without AdPool", [190.0])
    lesson(kept, "all", [100.0], "flickr8k")
    lesson(kept, "without AdOpt", [20.0], "flickr8k")
    told = section(page_of(kept), "Judged too early").replace("\N{NO-BREAK SPACE}", " ")
    rows = [
        "| all | 201.0 ± 1.4<br>2 seeds | 100.0<br>1 seed |",
        "| without AdPool | 190.0<br>1 seed | – |",
        "| without AdOpt | – | 20.0<br>1 seed |",
    ]
    assert "\n".join(rows) in told.split("{dropdown} All sums at the lesson scale")[1]


def test_arms_without_a_fair_training_are_named_with_the_papers_sums(kept, page_of):
    both(kept)
    lesson(kept, "without AdPool", [190.0])
    told = section(page_of(kept), "The experiments").split("### What is each part")[1].split("###")[0]
    assert re.search(
        r"No fair training on drawn scenes yet, only at the lesson scale \(.*\): without AdPool 419\.1\.\n",
        told,
    )
    assert re.search(
        r"No training on drawn scenes yet \(.*\): without token .* 420\.1; without emb.* 423\.1\.\n",
        told,
    )
    assert re.search(r"No training on Flickr8k yet \(.*\): all 426\.9; without token level", told)
    assert "Not tried" not in told


def test_an_arm_that_is_chosen_on_dev_is_not_called_untrained(kept, page_of, few_experiments):
    few_experiments["2ad_pooling"] = EXPERIMENTS["2ad_pooling"]
    told = section(page_of(kept), "The experiments")
    assert "Not yet chosen on drawn scenes: simple, chosen on dev.\n" in told
    assert re.search(
        r"No training on drawn scenes yet \(.*\): AdPool 426\.9; .*; 5-max; AdPool, released; GeM;", told
    )


def test_the_page_says_where_the_features_are_not_the_papers_until_there_are_others(kept, page_of, tmp_path):
    both(kept)
    with_recipes(kept)
    page = page_of(kept)
    question = EXPERIMENTS["2ad_parts"].question
    assert f"cells of a grid:\n\n- {question} (table 3)\n" in section(page, "What was trained")
    assert "now with regions" not in page
    for arm in ("all", "without AdOpt"):
        study(kept, "2ad_parts", arm, measured(HIGH), "scenes", features="region")
        shutil.rmtree(tmp_path / "pages")
        page = page_of(kept)
        assert ("cells of a grid:" in page) == (arm == "all"), "one system on regions is no comparison"
    added = page.split("On drawn scenes again, now with regions")[1]
    assert table("2ad_parts", "scenes", "region", folder=kept) in added


def test_paper_and_page_agree_on_which_features_the_systems_see():
    assert findings.printed_kinds(EXPERIMENTS["2ad_pooling"]) == {"region"}
    assert findings.printed_kinds(EXPERIMENTS["2ad_ensembles"]) == {"region", "grid", "patch"}


def test_every_departure_and_every_misprint_of_the_paper_is_on_the_page(kept, page_of):
    page = page_of(kept)
    assert departures("2ad")
    for departure in departures("2ad"):
        for words in (departure.printed, departure.released, departure.here):
            assert f"| {words} |" in section(page, "Where the paper, its code and this course differ")
    told = section(page, "Numbers that do not fit together")
    misprints = [row for row in records.published() if row.misprint]
    assert {row.read_in[:4] for row in misprints} >= {"Zhan", "Yan "}
    for row in misprints:
        assert (f"| {row.misprint} |" in told) == ("Zhang et al. 2022" in row.read_in)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"here": ""}, r"\[0\].here is empty"), ({"hear": "x"}, "hear"), ({"place": 3}, "place is 3")],
)
def test_a_departure_that_is_not_whole_is_refused(tmp_path, monkeypatch, change, said):
    path = tmp_path / "departures.yml"
    path.write_text(yaml.safe_dump([yaml.safe_load(DEPARTURES.read_text())[0] | change]))
    monkeypatch.setattr(sys.modules["vsecore.experiments.departures"], "DEPARTURES", path)
    with pytest.raises(ValueError, match=said):
        departures()


RELATIONAL = "relational_losses"


def with_pairs(seeds, picture, caption, left_right=None):
    """The metrics of each seed, with relations; each seed is one point above the one before."""
    found = measured(HIGH[:seeds])
    for seed, metrics in found.items():
        metrics |= {"pairs_t2i": picture + seed, "pairs_i2t": caption + seed}
        if left_right is not None:
            metrics |= {"pairs_left_right": left_right + seed, "pairs_other": 50.0}
    return found


@pytest.fixture
def relational_page(kept, tmp_path, monkeypatch):
    """The page of the relational work, of one experiment."""

    def lay():
        monkeypatch.setattr(findings, "BY_WORK", {"relational": {RELATIONAL: EXPERIMENTS[RELATIONAL]}})
        monkeypatch.setattr(evidence, "WORKS", {"relational": BOTH_WORKS["relational"]})
        ridge(kept, "scenes", features="region")
        evidence.lay_evidence(tmp_path / "relational", kept)
        return (tmp_path / "relational" / "relational.md").read_text(encoding="utf-8")

    return lay


def test_who_sees_relations_is_a_table_with_intervals_the_best_first(kept, relational_page):
    study(kept, RELATIONAL, "mean of words", with_pairs(5, 49.0, 48.0, 47.0), "scenes")
    study(kept, RELATIONAL, "basic", with_pairs(5, 60.0, 58.0, 62.0), "scenes")
    study(kept, RELATIONAL, "CA", with_pairs(1, 55.0, 54.0), "scenes")
    study(kept, RELATIONAL, "pooling", measured(HIGH), "scenes")  # its relations were never looked at
    told = section(relational_page(), "Who sees relations?")
    rows = [line.strip("| ").split(" | ") for line in told.splitlines() if line.startswith("| ")][2:]
    assert [row[0] for row in rows] == ["basic", "CA", "mean of words"]
    assert rows[0][1:] == [
        "drawn scenes, regions",
        "62.0 (60.0 to 64.0)",  # 60 to 64: a spread of 1.58, so 1.96 by Student's t for five seeds
        "60.0 (58.0 to 62.0)",
        "64.0 (62.0 to 66.0)",
        "50.0 (50.0 to 50.0)",
        "5 seeds",
    ]
    assert rows[1][2:] == ["55.0", "54.0", "–", "–", "1 seed"]


def test_the_table_of_relations_is_there_only_where_an_experiment_looks_at_them(
    kept, page_of, relational_page
):
    page = page_of(kept)
    assert "Who sees relations?" not in page and "mined negatives" not in page
    told = section(relational_page(), "Who sees relations?")
    assert "No system with fair trainings has this measure yet." in told


def test_a_claim_about_one_direction_stands_with_its_own_measures_and_the_papers(
    kept, relational_page, claimed
):
    claim = {"work": "relational", "experiment": RELATIONAL, "system": "pooling", "against": "basic"}
    claimed(
        claim | {"about": "caption retrieval", "statement": "captions are found"},
        claim | {"about": "relations", "statement": "relations are seen"},
    )
    for arm, shift in (("pooling", 3.0), ("basic", 0.0)):
        found = with_pairs(5, 60.0 + shift, 58.0 + shift, 62.0)
        for seed, metrics in found.items():
            metrics |= {f"i2t_r{k}": 50.0 + shift + seed for k in (1, 5, 10)}
            metrics["i2t_map_at_r"] += shift
        study(kept, RELATIONAL, arm, found, "scenes")
    page = relational_page()
    told = section(page, "The verdicts").replace("\N{NO-BREAK SPACE}", " ")
    (captions,) = [line for line in told.splitlines() if line.startswith("| captions are found")]
    (relations,) = [line for line in told.splitlines() if line.startswith("| relations are seen")]
    assert (
        "| +3.5 (1,000 pictures of COCO) | **reproduced**<br>recalls to text +9.0 ± 0.0" in captions
    )  # 233.8 and 230.3 in the paper
    assert "mAP@R to text +3.0" in captions and "to picture" not in captions
    assert "| – | **reproduced**<br>right picture of two +3.0 ± 0.0: reproduced" in relations
    assert relations.endswith("| **too small to say: no known truth** |")
    missing = section(page, "What is still missing").split("### On Flickr8k")[1]
    assert "| relations are seen | *no known truth*: no two of these pictures" in missing
    assert "Where a claim is about one direction of retrieval" in told


NEAR = "scenes_near_duplicates"


@pytest.fixture
def aoq_page(tmp_path, monkeypatch):
    """The page on offline negatives, of some experiments, from records in the world with near duplicates."""

    def lay(folder, *names):
        monkeypatch.setattr(findings, "BY_WORK", {"aoq": {name: EXPERIMENTS[name] for name in names}})
        monkeypatch.setattr(evidence, "WORKS", {"aoq": BOTH_WORKS["aoq"]})
        ridge(folder, NEAR, features="region")
        write(folder, ORACLE, "", NEAR, 0, {"rsum": 374.53}, 1.0, feature_kind="region")
        evidence.lay_evidence(tmp_path / "aoq", folder)
        return (tmp_path / "aoq" / "aoq.md").read_text(encoding="utf-8")

    return lay


def with_curves(sums, *curves, true=None):
    """The metrics of each seed, with recalls at 1 on dev by epoch, and the shares of true negatives."""
    found = measured(sums)
    for (seed, metrics), curve in zip(found.items(), curves, strict=True):
        for way in ("i2t", "t2i"):
            metrics |= {f"dev_{way}_r1_{epoch}": value for epoch, value in enumerate(curve, start=1)}
        if true is not None:
            metrics |= {"mined_true_texts": true + seed, "mined_true_pictures": 2 * true + seed}
    return found


def test_the_page_counts_true_negatives_and_the_epochs_until_the_baseline_is_passed(kept, aoq_page):
    curves = [[30.0, 40.0, 39.0]] * 5
    study(kept, "offline_losses", "VSE++", with_curves(LOW, *curves), "scenes")
    better = [[35.0, 39.0, 41.0], [41.0, 40.0, 42.0], [39.0, 40.0, 40.0], *[[30.0, 41.0, 42.0]] * 2]
    study(kept, "offline_losses", "VSE++ + OffTri", with_curves(HIGH, *better, true=20.0), "scenes")
    # Each is in the records under the name of its world, and only this page reads them.
    assert {entry.data["name"] for entry in records.find(kept, name="aoq_vsepp_region_gru+online")} == {NEAR}
    page = aoq_page(kept, "offline_losses")
    told = section(page, "How many mined negatives are true?")
    row = "| VSE++ + OffTri | VSE++ | 22.0 (20.0 to 24.0) | 42.0 (40.0 to 44.0) | 5 seeds |"
    assert [line for line in told.splitlines() if line.startswith("| VSE++")] == [row]
    told = section(page, "How soon is the baseline's best passed?")
    never = "never, never, never, never, never"  # by rsum both have the same curve
    epochs = "3, 1, never, 2, 2"
    assert f"| VSE++ + OffTri | VSE++ | drawn scenes | {never} | {epochs} | {epochs} |" in told


OFFLINE = {"work": "aoq", "experiment": "offline_losses", "system": "VSE++ + AdapOffQuin", "against": "VSE++"}
WITHOUT = {"work": "aoq", "experiment": "offline_parts", "system": "without true ones", "against": "whole"}


def test_the_scenes_of_a_page_are_those_of_its_world(kept, aoq_page, claimed):
    claimed(OFFLINE)
    for arm, sums in (("VSE++", LOW), ("VSE++ + AdapOffQuin", HIGH)):
        study(kept, "offline_losses", arm, measured(sums), "scenes")
    config = {"dim": 128, "training": {"epochs": 15, "batch_size": 128}, "text": {"encoder": {"name": "gru"}}}
    for entry in records.find(kept, data=NEAR):
        records.write(replace(entry, config=config, device="A processor", cpus=2), kept)
    page = aoq_page(kept, "offline_losses")
    assert "50 % of the pictures differ from an earlier one in exactly one fact" in page
    assert "| drawn scenes | region | BiGRU | fair | 15 | 128 | 128 | 14 |" in page
    assert "line at 374.5 is the rsum of an *oracle*" in page and "413.2" not in page
    told = section(page, "The verdicts")
    (row,) = [line for line in told.splitlines() if line.startswith("| AdOpt helps")]
    assert "| **reproduced**<br>rsum" in row and row.endswith("| **not tried**<br>at the fair scale |")
    assert findings.Findings.read("aoq", kept).fair_trainings("scenes") == 14


def test_a_claim_that_needs_the_truth_is_not_judged_on_photographs_however_much_is_trained(
    kept, aoq_page, claimed
):
    claimed(WITHOUT)
    page = aoq_page(kept, "offline_parts")
    told = section(page, "What is still missing").split("### On Flickr8k")[1]
    (row,) = [line for line in told.splitlines() if "AdOpt helps" in line]
    assert "*no known truth*: which captions are true of which pictures is not known" in row
    assert row.endswith("| 0 | 0.0 |")
    surveys = findings.Findings.read("aoq", kept).surveys
    # Seven of each arm, and of the one that mines for both: three rates from one seed, four more seeds.
    assert [len(surveys[data].trainings) for data in ("scenes", "flickr8k")] == [21, 0]


def test_the_page_without_records_of_offline_negatives_says_so(kept, aoq_page, claimed):
    claimed(OFFLINE)
    page = aoq_page(kept, "offline_losses")
    assert "No system with fair trainings has this measure yet." in page
    assert "No system and its baseline have fair trainings yet." in page


def test_experiments_of_different_worlds_cannot_share_a_page(kept, monkeypatch):
    both = {name: EXPERIMENTS[name] for name in ("offline_losses", "2ad_parts")}
    monkeypatch.setattr(findings, "BY_WORK", {"aoq": both})
    with pytest.raises(ValueError, match=r"the worlds of 'aoq' are \['scenes', 'scenes_near_duplicates'\]"):
        findings.Findings.read("aoq", kept)


def test_every_work_has_a_page_with_experiments_claims_and_notebooks():
    assert BOTH_WORKS.keys() == BY_WORK.keys()
    for work, paper in BOTH_WORKS.items():
        assert paper.setting.format(dim=1, epochs=1) and paper.recipe in RECIPES
        assert departures(work)
        assert any(row.misprint and paper.source in row.read_in for row in records.published())
    assert {name for several in BY_WORK.values() for name in several} == set(EXPERIMENTS)


def test_a_work_owns_the_records_of_its_recipes_and_of_no_others(kept, monkeypatch):
    study(kept, RELATIONAL, "VSE++ towers", measured(HIGH), "scenes")
    both(kept)
    for entry in records.find(kept):
        if entry.name not in ("ridge", ORACLE):
            records.write(replace(entry, config={"training": {}}), kept)
    several = {"name": "scan_region_gru and scan_region_gru+i2t", "config": {"members": []}}
    records.write(replace(records.find(kept)[0], **several), kept)
    for work, names, ensembles in (
        ("2ad", {"2ad_grid_gru", "2ad_grid_gru+without_adopt"}, 0),
        ("relational", {"vsepp_region_gru"}, 1),
    ):
        experiments = {name: EXPERIMENTS[name] for name in list(BY_WORK[work])[:2]}
        monkeypatch.setattr(findings, "BY_WORK", {work: experiments})
        found = findings.Findings.read(work, kept)
        assert {entry.name for entry in found.trained} == names
        assert len(found.ensembles) == ensembles


def test_trainings_on_other_features_are_counted_and_said_to_be_left_out(kept):
    both(kept)
    assert evidence._left_out(findings.Findings.read("2ad", kept)) == []
    for entry in records.find(kept, seed=3):
        records.write(replace(entry, data=entry.data | {"fingerprint": "other"}), kept)
    (said,) = evidence._left_out(findings.Findings.read("2ad", kept))
    assert said.startswith("Of these, 2 trainings used other extracted features")


def test_every_published_sum_of_the_usual_collections_stands_once_the_highest_first():
    from coursebook.comparators import COLLECTIONS, comparators

    _, *folded = comparators().split("::::{dropdown} ")
    assert len(folded) == len(COLLECTIONS)
    for begins, text in zip(COLLECTIONS, folded, strict=True):
        rows = [row for row in records.published() if row.data.startswith(begins) and row.rsum is not None]
        cells = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][2:]
        sums = [float(line[4]) for line in cells]
        assert sums == sorted((round(row.rsum, 1) for row in rows), reverse=True)
        assert sorted(line[0].removeprefix("| ") for line in cells) == sorted(row.system for row in rows)


# ---------------------------------------------------------------- latent targets


def followed(met):
    """The metrics of each seed of a system whose losses were followed."""
    found = {"contrast_mean": 2.0, "contrast_end": 0.125, "bound_met": met, "multiplier_highest": 6.0}
    found |= {"multiplier_left": 25.0, "multiplier_returns": 0.0, "reconstruction_above_bound": 1.5}
    return {seed: metrics | found for seed, metrics in measured(LOW).items()}


@pytest.mark.parametrize(("met", "told"), [(4.0, "4.0 (4.0 to 4.0)"), (0.0, "from 0 of 5 seeds")])
def test_what_a_multiplier_did_is_told_of_each_system_whose_losses_were_followed(
    kept, page_of, few_experiments, met, told
):
    few_experiments.update({name: EXPERIMENTS[name] for name in ("latent_targets", "latent_bounds")})
    said = "No system with fair trainings has these measures yet."
    assert said in section(page_of(kept), "What the multiplier did")
    shutil.rmtree(kept.parent / "pages")
    contrast = {"contrast_mean": 2.0, "contrast_end": 0.1}
    plain = {seed: metrics | contrast for seed, metrics in measured(LOW).items()}
    study(kept, "latent_targets", "BL", plain, "scenes")
    study(kept, "latent_bounds", "η = 0.2", followed(met), "scenes")
    text = section(page_of(kept), "What the multiplier did")
    rows = [line for line in text.splitlines() if line.startswith(("| BL", "| η"))]
    assert rows == [
        "| BL | 0.100 (0.100 to 0.100) | – | – | – | – | – | 5 seeds |",
        # the same trainings are an arm of two experiments, and are listed once
        f"| BL + LTD, constraint | 0.125 (0.125 to 0.125) | 1.5 (1.5 to 1.5) | {told} | 6.0 (6.0 to 6.0) | "
        "25.0 (25.0 to 25.0) | 0.0 (0.0 to 0.0) | 5 seeds |",
    ]


def test_a_claim_about_one_system_says_what_it_holds_against_0(kept, page_of, claimed, few_experiments):
    few_experiments["latent_bounds"] = EXPERIMENTS["latent_bounds"]
    ridge(kept, "scenes", features="region")
    shared = {"experiment": "latent_bounds", "system": "η = 0.2", "against": "", "about": "bound"}
    claimed(shared | {"kind": "the same", "statement": "it comes to its bound"})
    study(kept, "latent_bounds", "η = 0.2", followed(4.0), "scenes")
    told = section(page_of(kept), "The verdicts")
    assert "*The claim: it is 0, within the margin.*" in told
    row = next(line for line in told.splitlines() if line.startswith("| it comes to its bound"))
    assert "**reproduced**<br>above its bound +1.5" in row and "5 seeds" in row
