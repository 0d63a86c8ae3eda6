"""The pages of evidence in the book: for each paper what came out, figure by figure, all from the records."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import matplotlib.pyplot as plt
from jinja2 import Template

from course import dots
from course.plots import house_style
from course.verdicts import DATA, WORKS, is_judged, ours, printed, side_by_side
from course.wording import counted, mean, seeds, table
from vsecore import records
from vsecore.experiments import (
    EXPERIMENTS,
    RESULTS,
    Experiment,
    Outcome,
    Studied,
    departures,
    epochs_to_pass,
    get_experiment,
    outcomes,
    studied,
)
from vsecore.experiments.claims import LOSS_MARGIN, MARGIN
from vsecore.experiments.experiment import BY_WORK
from vsecore.experiments.first_round import SHARES
from vsecore.experiments.gates import LEVELLED, SEEDS, SEEDS_ELSEWHERE
from vsecore.experiments.graded import GRADED
from vsecore.experiments.pairs import METRICS as PAIRS
from vsecore.experiments.probe import FACTS, probe_metric
from vsecore.experiments.references import ORACLE
from vsecore.experiments.set_vectors import LOG_VARIANCES, SIDES, alone, without
from vsecore.experiments.tuning import FIRST
from vsecore.experiments.verdicts import Judgement
from vsecore.experiments.watching import ABOVE_BOUND, CONTRAST, HIGHEST, LEFT, RETURNS
from vsecore.paths import ROOT


def lay_evidence(folder: Path, kept: Path = RESULTS) -> None:
    """Write the page of each paper with its figures, how a verdict comes about, and what papers report.

    Args:
        folder: of the pages.
        kept: the folder of records; without records, a page says that all is open.

    Raises:
        ValueError: a record or a claim is damaged, or the experiments of a paper have different worlds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rules = Template((ROOT / "book" / "evidence" / "verdicts.md").read_text(encoding="utf-8"))
    numbers = {"rates": len(FIRST), "seeds": SEEDS["scenes"], "seeds_of_photographs": SEEDS_ELSEWHERE}
    shares = {"levelled": LEVELLED, "margin": MARGIN, "loss_margin": LOSS_MARGIN}
    numbers |= {name: round(100 * share) for name, share in shares.items()}
    (folder / "verdicts.md").write_text(rules.render(numbers) + "\n", encoding="utf-8")
    (folder / "published.md").write_text(comparators() + "\n", encoding="utf-8")
    for work in WORKS:
        (folder / f"{work}.md").write_text(page(work, kept, folder), encoding="utf-8")


@dataclass(frozen=True)
class Findings:
    """What the records say of a paper; by data, and then by experiment."""

    outcomes: Mapping[str, Sequence[Outcome]]
    fair: Mapping[str, Mapping[str, Mapping[str, Studied]]]
    oracle: Mapping[str, float]
    """The rsum of the oracle, where the truth is known."""

    @classmethod
    def read(cls, work: str, kept: Path) -> Findings:
        """Read all records of a paper.

        Raises:
            ValueError: a record is damaged, or the paper's experiments have different worlds of scenes.
        """
        names = list(BY_WORK[work])
        worlds = {get_experiment(name).world for name in names}
        if len(worlds) != 1:
            raise ValueError(f"the worlds of {work!r} are {sorted(worlds)}: its experiments must share one")
        found = records.find(kept, name=ORACLE) if kept.is_dir() else []
        return cls(
            {data: outcomes(work, data, folder=kept) for data in DATA},
            {data: {name: studied(name, data, folder=kept) for name in names} for data in DATA},
            dict([("scenes", entry.metrics["rsum"]) for entry in found if entry.data["name"] in worlds]),
        )


def page(work: str, kept: Path, figures: Path) -> str:
    """Return a paper's page in MyST Markdown, and draw its figures.

    Args:
        work: the paper's key.
        kept: the folder of records.
        figures: where the figures go.
    """
    paper, found = WORKS[work], Findings.read(work, kept)
    taught = ", ".join(f"[](../notebooks/{notebook}.ipynb)" for notebook in paper.notebooks)
    differences = [
        statistics.mean(outcome.differences.get("rsum") or [math.nan])
        for data, rests_on in (("scenes", paper.rests_on), ("flickr8k", paper.on_photographs))
        for statement, _ in rests_on
        for outcome in found.outcomes[data]
        if outcome.claim.statement == statement
    ]
    parts = [
        f"# {paper.title}",
        paper.summary.format(*differences) if _any(found.fair) else "No training is recorded yet.",
        verdict_counts(found.outcomes),
        f"The claims are those of {{cite:t}}`{paper.cited}`; {taught} teach the methods. Our systems are "
        "smaller than the papers' and see less data, so that only differences can be compared, not sums. "
        "Building the book makes this page from the records of the trainings: "
        "[how a verdict comes about](verdicts.md). Sums of many systems are on the page "
        "[what papers report](published.md).",
        *(_asked(name, found, figures) for name in BY_WORK[work]),
        _departures(work),
        still_open(found),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _any(fair: Mapping[str, Mapping[str, Mapping[str, Studied]]]) -> bool:
    return any(arms for of_data in fair.values() for arms in of_data.values())


def verdict_counts(outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """Return how often each verdict came out, by data."""
    counts = {data: Counter(outcome.judgement for outcome in outcomes[data]) for data in DATA}
    said = [verdict for verdict in get_args(Judgement) if any(counts[data][verdict] for data in DATA)]
    rows = [[verdict, *(str(counts[data][verdict]) for data in DATA)] for verdict in said]
    return table(["verdict", *(f"claims, on {name}" for name in DATA.values())], rows)


# ---- an experiment -----------------------------------------------------------------------------------------


def _asked(name: str, found: Findings, figures: Path) -> str:
    """Return a question with its figures, its judged claims and what else was measured; "" if untrained."""
    experiment = EXPERIMENTS[name]
    lines = []
    for data, called in DATA.items():
        arms, oracle = found.fair[data][name], found.oracle.get(data)
        if len(arms) > 1:  # a single dot compares nothing
            picture = f"{name}-{data}.svg"
            with plt.rc_context():
                house_style()
                figure = dots.compared(arms, data, oracle)
                figure.savefig(figures / picture)
                plt.close(figure)
            words = dots.words_for(arms, called, oracle)
            lines.append(
                f":::{{div}} wide-frame\n```{{image}} {picture}\n:alt: {words}\n:class: figure\n```\n:::"
            )
    if not any(found.fair[data][name] for data in DATA):
        return ""
    judged = [
        one
        for one in side_by_side(found.outcomes)
        if one[0].claim.experiment == name and any(map(is_judged, one))
    ]
    if judged:
        lines.append(_claims_table(judged))
    for measured in MEASURED:
        if rows := measured.rows(experiment, found.fair["scenes"][name]):
            lines += [measured.words, table([*measured.heads, "trained from"], rows)]
    return "\n\n".join([f"## {experiment.question}", f"{experiment.source}.", *lines])


def _claims_table(judged: Sequence[tuple[Outcome, Outcome | None]]) -> str:
    """Return claims, each with the paper's words, its difference, and ours on each data that has one."""
    seen = [place for place, _ in enumerate(DATA) if any(is_judged(one[place]) for one in judged)]
    rows, quoted = [], ("", "")
    for one in judged:
        claim = one[0].claim
        same = (claim.words, claim.place) == quoted
        quoted = claim.words, claim.place
        words = f"“{claim.words}”<br>{claim.place}" if claim.words else f"our question: {claim.place}"
        judgements = [ours(one[place]) if is_judged(one[place]) else "–" for place in seen]
        rows.append(
            [claim.statement, "as above" if same and claim.words else words, printed(claim), *judgements]
        )
    named = [list(DATA.values())[place] for place in seen]
    return table(["claim", "in the paper's words", "printed", *named], rows, "verdicts")


# ---- what else was measured --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """Measures of some experiments beside retrieval, one row a system that has them."""

    words: str
    heads: Sequence[str]
    rows: Callable[[Experiment, Mapping[str, Studied]], list[list[str]]]
    """Of an experiment and its systems by arm; empty if none has been measured so."""


def _means(
    metrics: Sequence[str], digits: int = 1
) -> Callable[[Experiment, Mapping[str, Studied]], list[list[str]]]:
    """Return what makes rows of means with their intervals, for the systems that have all of some metrics."""

    def rows(_: Experiment, arms: Mapping[str, Studied]) -> list[list[str]]:
        having = [one for one in arms.values() if {*metrics} <= one.results.keys()]
        return [
            [
                one.arm,
                *(mean(list(one.results[metric].values()), digits) for metric in metrics),
                seeds(len(one.seeds)),
            ]
            for one in having
        ]

    return rows


def _elements(_: Experiment, arms: Mapping[str, Studied]) -> list[list[str]]:
    """For each side of each system of sets: whole, its best and worst vector alone, and without one."""
    rows = []
    for one in arms.values():
        for side, called in zip(SIDES, ("pictures", "captions"), strict=True):
            found = [
                [
                    one.results[metric(side, number)]
                    for number in range(1, 7)
                    if metric(side, number) in one.results
                ]
                for metric in (alone, without)
            ]
            if not found[0]:
                continue
            shared = sorted(found[0][0])
            cells = [
                mean([end(sums[seed] for sums in each) for seed in shared])
                for each in found
                for end in (max, min)
            ]
            whole = mean([one.results["rsum"][seed] for seed in shared])
            rows.append([one.arm, called, whole, *cells, seeds(len(shared))])
    return rows


def _passing(experiment: Experiment, arms: Mapping[str, Studied]) -> list[list[str]]:
    """For each system that learns from mined negatives: the epochs in which it passes the one that mined."""
    rows = []
    for arm, one in experiment.arms.items():
        if arm in arms and (miner := one.mined_by) in arms:
            passed = epochs_to_pass(arms[arm], arms[miner], "rsum").values()
            epochs = ", ".join("never" if one is None else str(one) for one in passed)
            rows.append([arm, miner, epochs or "–", seeds(len(arms[arm].seeds))])
    return rows


MEASURED = (
    Measured(
        "**Who sees relations?** Some scenes stand in pairs that hold the same things and differ in one "
        "relation alone, so that the captions of either are false of the other. A system chooses the right "
        "picture of two for a caption, and the right caption of two for a picture: 50 % is chance. The last "
        "two columns split the first by the relation in which the pictures differ. Means in percent, with "
        "95 % intervals.",
        (
            "system",
            "right picture of two",
            "right caption of two",
            "differing in left or right",
            "differing in another relation",
        ),
        _means(PAIRS),
    ),
    Measured(
        "**How many mined negatives are true?** All captions but a picture's own count as negatives, and "
        "some are true of it all the same; on the scenes we know which. Percent of what was mined, with 95 % "
        "intervals.",
        ("system", "captions true of the picture", "pictures the caption is true of"),
        _means(SHARES),
    ),
    Measured(
        "**How soon is the best of the first round passed?** For each seed, the first epoch of the second "
        "round in which the rsum on the development split is above the best of the system that mined (figure "
        "4 of the paper).",
        ("system", "mined by", "epochs"),
        _passing,
    ),
    Measured(
        "**Do the sets collapse?** The logarithm of a set's circular variance: the further below 0, the more "
        "its vectors look the same. With 95 % intervals.",
        ("system", "pictures", "captions"),
        _means(LOG_VARIANCES, 2),
    ),
    Measured(
        "**One vector at a time** (table 5 of the paper). Of one side, each set keeps one vector, or loses "
        "one; the other side stays whole. Each seed numbers its slots in its own order, so the best and the "
        "worst of each seed are taken. Rsum, with 95 % intervals.",
        (
            "system",
            "vectors of",
            "whole sets",
            "the best alone",
            "the worst alone",
            "without the least needed",
            "without the most needed",
        ),
        _elements,
    ),
    Measured(
        "**What captions' vectors still know.** A linear probe reads from a caption's vector whether the "
        "caption names a thing, a colour, a size, a relation, a place: the area under the ROC curve in "
        "percent, 50 is chance. Beside it R-precision to text and nDCG to picture (the first 25, relevance "
        "by ROUGE-L). With 95 % intervals.",
        ("system", "things", "colours", "sizes", "relations", "places", "R-precision", "nDCG"),
        _means((*map(probe_metric, FACTS), *GRADED)),
    ),
    Measured(
        "**What the multiplier did** (figure 3 of the paper). At the end of training: the contrastive loss; "
        "how far the reconstruction loss is above its bound, in percent of it; the highest λ, what is left "
        "of it in percent, and how often it rose again from 0. With 95 % intervals.",
        ("system", "contrastive loss", "above the bound", "highest λ", "λ left", "returns from 0"),
        _means((CONTRAST[-1], ABOVE_BOUND, HIGHEST, LEFT, RETURNS), 2),
    ),
)

# ---- beside our own numbers --------------------------------------------------------------------------------


def _departures(work: str) -> str:
    """Return where paper, released code and course differ, and which printed numbers do not fit together."""
    rows = [[one.place, one.printed, one.released, one.here] for one in departures(work)]
    misprints = [
        [row.system, row.data, row.misprint, row.read_in]
        for row in records.published()
        if row.misprint and WORKS[work].source in row.read_in
    ]
    lines = ["## Where the paper, its code and this course differ"]
    if rows:
        lines.append(table(["where", "the paper", "its code", "here"], rows))
    if misprints:
        heads = ["system", "data", "what does not fit", "where"]
        lines.append(_dropdown("Printed numbers that do not fit together", table(heads, misprints)))
    return "\n\n".join(lines) if lines[1:] else ""


COLLECTIONS = {
    "flickr30k": "Flickr30K, 1,000 test pictures",
    "coco, mean of five": "COCO 1K, the mean of five folds",
    "coco, 5,000": "COCO 5K",
    "coco, 1,000": "COCO, 1,000 test pictures as the thesis chose them",
}
"""How the names of their data in `assets/published.json` begin, and what a reader calls them."""


def comparators() -> str:
    """Return the page of all published sums, a table for each collection, the highest first."""
    lines = [
        "# What papers report",
        "The highest sum stands first. A system that was trained on millions of pairs before, an average of "
        "two models and a single small model cannot be ranked against each other, so each row says what it "
        "is. Where we found all six recalls, we added them up ourselves.",
    ]
    for begins, title in COLLECTIONS.items():
        summed = [(row.rsum, row) for row in records.published() if row.data.startswith(begins)]
        ranked = sorted(((rsum, row) for rsum, row in summed if rsum is not None), key=lambda one: -one[0])
        cells = [
            [row.system, row.backbone, str(row.models), row.pairs_before, f"{rsum:.1f}", row.read_in]
            for rsum, row in ranked
        ]
        heads = ["system", "pictures and captions", "models", "pairs before", "rsum", "read in"]
        lines += [f"## {title}", table(heads, cells)]
    lines.append("## Other measures")
    others = defaultdict(list)
    for row in records.published():
        if names := [name for name in row.metrics if name not in records.RECALLS]:
            values = [str(row.metrics[name]) for name in names]
            others[row.data, *names].append([row.system, *values, row.read_in])
    for (data, *names), rows in others.items():
        lines += [f"On {called(data)}:", table(["system", *map(called, names), "read in"], rows)]
    return "\n\n".join(lines)


def called(name: str) -> str:
    """Return what a reader calls a published measure or its data, such as "CxC, picture to text, R@1"."""
    for part, words in NAMES.items():
        name = name.replace(part, words)
    return name


NAMES = {
    "eccv_": "ECCV Caption, ",
    "cxc_": "CxC, ",
    "i2t_": "picture to text, ",
    "t2i_": "text to picture, ",
    "r_precision": "R-precision",
    "map_at_r": "mAP@R",
    "ndcg_rouge": "nDCG@25 by ROUGE-L",
    "ndcg_spice": "nDCG@25 by SPICE",
    "log_variance": "logarithm of the circular variance",
    "r10": "R@10",
    "r1": "R@1",
    "r5": "R@5",
    "eccv caption": "ECCV Caption",
    "cxc": "CxC",
    "coco": "COCO",
    "flickr30k": "Flickr30K",
}
"""Parts of the names of measures and data in `assets/published.json`, and what a reader calls them."""


def _dropdown(title: str, text: str) -> str:
    return f"::::{{dropdown}} {title}\n\n{text}\n\n::::"


def still_open(found: Findings) -> str:
    """Return the claims that are not judged yet, each with the gates that are shut."""
    lines = [
        "## Still open",
        "These claims are not judged yet. Beside each stand the gates that are shut. "
        "`vse experiment --missing` trains what opens them.",
    ]
    for data, called in DATA.items():
        if not any(found.fair[data].values()):
            lines.append(f"On {called} nothing is trained at the fair scale yet.")
            continue
        rows = [
            [one.claim.statement, "<br>".join(f"*{gate.gate}*: {gate.why}" for gate in one.shut)]
            for one in found.outcomes[data]
            if one.shut
        ]
        if rows:
            title = f"On {called}: {counted(len(rows), 'claim')}"
            lines.append(_dropdown(title, table(["claim", "shut, and why"], rows)))
    return "\n\n".join(lines) if lines[2:] else ""
