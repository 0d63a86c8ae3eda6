"""The page of a paper: what it says is what the records say, and it says what is still open."""

import statistics
from dataclasses import replace

import pytest

from course.verdicts import CALLED
from coursebook import evidence
from studies import ridge, study, write
from vsecore import records
from vsecore.experiments import EXPERIMENTS, departures, outcomes
from vsecore.experiments.claims import EARLY, SUBJECTS
from vsecore.experiments.experiment import BY_WORK
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
            {work: replace(WORKS[work], summary="In short.", findings={}, rests_on={}, on_photographs={})},
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
    for name, own, verdict in (
        ("rsum", found, ": reproduced<br>"),
        ("mAP@R to text", [one / 10 for one in found], ""),
    ):
        middle, (_, high) = statistics.mean(own), interval(own)
        assert f"{name} {middle:+.1f} ± {high - middle:.1f}{verdict}" in page
    assert "Who sees relations?" not in page, "nobody measured it"
    assert "5 seeds" in page and "| reproduced | 1 | 0 |\n| not tried | 0 | 1 |" in page


def test_the_interval_of_a_mean_is_students():
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-4)
    assert interval([7.0, 7.0]) == (7.0, 7.0)
    assert all(bound != bound for bound in interval([7.0]))


def test_every_departure_and_every_misprint_of_the_paper_is_on_the_page(kept, page_of):
    page = page_of(kept).split("## Where the paper, its code and this course differ")[1]
    for departure in departures("2ad"):
        for words in (departure.printed, departure.released, departure.here):
            assert f"| {words} |" in page
    for row in records.published():
        if row.misprint:
            assert (f"| {row.misprint} |" in page) == ("Zhang et al. 2022" in row.read_in)


@pytest.mark.parametrize("work", BY_WORK)
def test_the_summary_of_a_paper_rests_on_verdicts_that_the_records_give(work):
    for data, claims in (("flickr8k", WORKS[work].on_photographs), ("scenes", WORKS[work].rests_on)):
        judged = {outcome.claim.statement: outcome.judgement for outcome in outcomes(work, data)}
        assert {statement: judged[statement] for statement in claims} == claims
    if not WORKS[work].rests_on:
        assert set(judged.values()) <= {"not tried", "too small to say"}, "there is something to tell"


def test_every_work_has_a_page_with_experiments_and_departures():
    assert WORKS.keys() == BY_WORK.keys()
    assert all(departures(work) for work in WORKS)
    assert all(WORKS[work].findings.keys() <= set(several) for work, several in BY_WORK.items())
    assert all(len({one.world for one in several.values()}) == 1 for several in BY_WORK.values())
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
