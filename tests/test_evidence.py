"""The page of a paper: what it says is what the records say, and it says what is still open."""

import re
import statistics
from dataclasses import replace

import pytest
from matplotlib import pyplot as plt

from course import dots
from course.verdicts import CALLED
from coursebook import evidence
from studies import ridge, study, write
from vsecore import records
from vsecore.experiments import EXPERIMENTS, departures, get_experiment, outcomes, studied
from vsecore.experiments.claims import EARLY, SUBJECTS
from vsecore.experiments.experiment import BY_WORK
from vsecore.experiments.first_round import SHARES
from vsecore.experiments.missing import lacking
from vsecore.experiments.references import ORACLE
from vsecore.experiments.statistics import interval

WORKS = evidence.WORKS
HIGH, LOW = (310.0, 320.0, 330.0, 315.0, 325.0), (300.0, 311.0, 319.0, 305.0, 314.0)
SLOW = (20.0, 40.0, 60.0, 80.0, 90.0, 100.0)  # rsum on dev after each epoch, far from level


@pytest.fixture
def kept(tmp_path, claimed):
    """A folder of records with what every figure of the scenes is held against; there is one claim."""
    folder = tmp_path / "records"
    ridge(folder, "scenes")
    write(folder, ORACLE, "", "scenes", 0, {"rsum": 413.25}, 1.0)
    return folder


@pytest.fixture
def page_of(tmp_path, monkeypatch):
    """The page of some records, of a work with these experiments alone."""

    def lay(folder, *names):
        work = next(work for work, own in BY_WORK.items() if (names or ("2ad_parts",))[0] in own)
        few = {name: EXPERIMENTS[name] for name in names or ("2ad_parts",)}
        monkeypatch.setattr(evidence, "BY_WORK", {work: few})
        monkeypatch.setattr(
            evidence,
            "WORKS",
            {work: replace(WORKS[work], summary="In short.", rests_on=(), on_photographs=())},
        )
        evidence.lay_evidence(tmp_path / "pages", folder)
        return (tmp_path / "pages" / f"{work}.md").read_text("utf-8").replace("\N{NO-BREAK SPACE}", " ")

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


@pytest.mark.parametrize(
    ("arms", "kind", "verdict"),
    [
        ({}, "our question", "yes"),
        ({"truths": (LOW, HIGH)}, "better", "mixed"),
        ({"second": (90.0, 95.0, 92.0, 91.0, 94.0)}, "better", "reproduced, against a baseline that failed"),
        ({"curve": SLOW}, "better", "too small to say: length of all"),
    ],
)
def test_each_verdict_stands_beside_its_claim(kept, page_of, claimed, arms, kind, verdict):
    claimed({"kind": kind} | ({"words": ""} if kind == "our question" else {}))
    both(kept, **arms)
    (outcome,) = outcomes("2ad", "scenes", folder=kept)
    assert outcome.in_words == verdict
    page = page_of(kept)
    rows = [line for line in page.splitlines() if line.startswith("| AdOpt helps |")]
    if outcome.shut:
        assert len(rows) == 1 and rows[0] in page.split("## Still open")[1]
        for gate in outcome.shut:
            assert f"*{gate.gate}*: {gate.why}" in rows[0]
    else:
        assert len(rows) == 1 and f"| **{verdict}**<br>" in rows[0]


def test_the_numbers_of_a_verdict_are_those_of_the_records(kept, page_of):
    both(kept)
    page = page_of(kept)
    found = [high - low for high, low in zip(HIGH, LOW, strict=True)]
    assert f"rsum {statistics.mean(found):+.1f} ± {statistics.stdev(found):.1f}: reproduced<br>" in page
    truths = [one / 10 for one in found]
    assert f"mAP@R to text {statistics.mean(truths):+.1f} ± {statistics.stdev(truths):.1f}" in page
    assert "Who sees relations?" not in page, "nobody measured it"
    assert "5 seeds" in page and "| reproduced | 1 | 0 |\n| not tried | 0 | 1 |" in page


def test_an_arm_needs_three_rates_of_each_recipe_and_the_other_seeds():
    for arm, trainings in (("RGP", 21), ("RRR", 17)):
        assert len(lacking(get_experiment("2ad_ensembles"), arm, "scenes", [])) == trainings
    assert len(lacking(get_experiment("2ad_pooling"), "simple, chosen on dev", "scenes", [])) == 16


def test_a_figure_has_the_seeds_the_oracle_and_ridge_and_says_so_in_words(kept, page_of, tmp_path):
    both(kept)
    ((picture, words),) = re.findall(r"```\{image\} (\S+)\n:alt: (.+)\n", page_of(kept))
    assert picture == "2ad_parts-scenes.svg" and (tmp_path / "pages" / picture).stat().st_size > 1000
    assert "413.2" in words and "ridge regression stands at 100.0" in words
    assert f"all {statistics.mean(HIGH):.1f} (5 seeds), without AdOpt {statistics.mean(LOW):.1f}" in words

    figure = dots.compared(studied("2ad_parts", "scenes", folder=kept), "scenes", 413.25)
    sums, *truths = figure.axes
    assert [line.get_xdata()[0] for line in sums.lines if line.get_linestyle() == ":"] == [413.25]
    (baseline,) = [lines for lines in sums.collections if "ridge" in str(lines.get_label())]
    assert {x for segment in baseline.get_segments() for x in segment[:, 0]} == {100.0}
    assert [label.get_text() for label in sums.get_yticklabels()] == ["all", "without AdOpt"]
    drawn = [tuple(point) for row in sums.lines if row.get_marker() == "o" for point in row.get_xydata()]
    assert sorted(drawn) == sorted([(value, 0.0) for value in HIGH] + [(value, 1.0) for value in LOW])
    assert len(truths) == 2
    plt.close(figure)


def test_the_interval_of_a_mean_is_students():
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-4)
    assert interval([7.0, 7.0]) == (7.0, 7.0)
    assert all(bound != bound for bound in interval([7.0]))


def test_without_records_the_page_says_so(claimed, tmp_path, page_of):
    page = page_of(tmp_path / "records")
    assert "No training is recorded yet." in page and "{image}" not in page


@pytest.mark.parametrize(
    ("experiment", "arm", "metrics", "row"),
    [
        (
            "relational_losses",
            "basic",
            {"pairs_t2i": 60.0, "pairs_i2t": 58.0, "pairs_left_right": 62.0, "pairs_other": 50.0},
            "| basic | 62.0 (60.0 to 64.0) | 60.0 (58.0 to 62.0) | 64.0 (62.0 to 66.0) |",
        ),
        (
            "latent_bounds",
            "η = 0.2",
            {"contrast_mean": 2.0, "contrast_end": 1.0, "bound_met": 4.0, "multiplier_highest": 6.0}
            | {"multiplier_left": 25.0, "multiplier_returns": 0.0, "reconstruction_above_bound": 1.5},
            "| η = 0.2 | 3.00 (1.04 to 4.96) | 3.50 (1.54 to 5.46) | 8.00 (6.04 to 9.96) |",
        ),
    ],
)
def test_what_else_was_measured_stands_with_intervals(kept, page_of, experiment, arm, metrics, row):
    found = measured(HIGH)
    for seed, own in found.items():  # each seed is one point above the one before: Student's t reaches 1.96
        own |= {name: value + seed for name, value in metrics.items()}
    study(kept, experiment, arm, found, "scenes")
    assert f"{row} " in page_of(kept, experiment)


def test_the_page_says_what_was_mined_and_in_which_epoch_the_first_round_is_passed(kept, page_of):
    for arm, sums, curve in (
        ("VSE++", LOW, (60.0, 80.0, 90.0, 99.5, 99.7, 99.8)),
        ("VSE++ + OffTri", HIGH, (60.0, 80.0, 99.9, 100.0, 100.0, 100.0)),
    ):
        metrics = {seed: own | dict.fromkeys(SHARES, 20.0 + seed) for seed, own in measured(sums).items()}
        study(kept, "offline_losses", arm, metrics, "scenes", curve=curve)
    page = page_of(kept, "offline_losses")
    assert "| VSE++ + OffTri | 22.0 (20.0 to 24.0) | 22.0 (20.0 to 24.0) | 5 seeds |" in page
    assert "| VSE++ + OffTri | VSE++ | 3, 3, 3, 3, 3 | 5 seeds |" in page


def test_every_departure_and_every_misprint_of_the_paper_is_on_the_page(kept, page_of):
    page = page_of(kept).split("## Where the paper, its code and this course differ")[1]
    for departure in departures("2ad"):
        for words in (departure.printed, departure.released, departure.here):
            assert f"| {words} |" in page
    for row in records.published():
        if row.misprint:
            assert (f"| {row.misprint} |" in page) == ("Zhang et al. 2022" in row.read_in)


def test_experiments_of_different_worlds_cannot_share_a_page(kept, monkeypatch):
    both = {name: EXPERIMENTS[name] for name in ("offline_losses", "2ad_parts")}
    monkeypatch.setattr(evidence, "BY_WORK", {"aoq": both})
    with pytest.raises(ValueError, match=r"\['scenes', 'scenes_near_duplicates'\]"):
        evidence.Findings.read("aoq", kept)


@pytest.mark.parametrize("work", BY_WORK)
def test_the_summary_of_a_paper_rests_on_verdicts_that_the_records_give(work):
    for data, claims in (("flickr8k", WORKS[work].on_photographs), ("scenes", WORKS[work].rests_on)):
        judged = {outcome.claim.statement: outcome.judgement for outcome in outcomes(work, data)}
        assert {statement: judged[statement] for statement, _ in claims} == dict(claims)
    if not WORKS[work].rests_on:
        assert set(judged.values()) <= {"not tried", "too small to say"}, "there is something to tell"


def test_every_work_has_a_page_with_experiments_and_departures():
    assert WORKS.keys() == BY_WORK.keys()
    assert all(departures(work) for work in WORKS)
    assert {name for several in BY_WORK.values() for name in several} == set(EXPERIMENTS)


def test_every_published_sum_of_the_usual_collections_stands_once_the_highest_first():
    _, *tables, _ = evidence.comparators().split("\n## ")
    for begins, text in zip(evidence.COLLECTIONS, tables, strict=True):
        rows = [row for row in records.published() if row.data.startswith(begins) and row.rsum is not None]
        cells = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][2:]
        sums = [float(line[4]) for line in cells]
        assert sums == sorted((round(row.rsum, 1) for row in rows), reverse=True)
        assert sorted(line[0].removeprefix("| ") for line in cells) == sorted(row.system for row in rows)


def test_every_measure_of_a_claim_has_a_name_for_readers():
    measures = {one for subject in SUBJECTS.values() for one in subject.measures + subject.on_scenes}
    assert measures | {EARLY} <= CALLED.keys()
