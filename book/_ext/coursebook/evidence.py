"""The pages of evidence in the book: for each paper what came out, figure by figure, all from the records."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import matplotlib.pyplot as plt
from jinja2 import StrictUndefined, Template

from course import dots
from course.plots import house_style
from course.verdicts import DATA, WORKS, is_judged, ours, printed, side_by_side
from course.wording import counted, mean, table, typeset
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
from vsecore.experiments.gates import LEVELLED, SEEDS, SEEDS_ELSEWHERE
from vsecore.experiments.measures import GRADED, LOG_VARIANCES, PAIRS, PROBES, SIDES, alone, without
from vsecore.experiments.references import ORACLE, SHARES
from vsecore.experiments.tuning import FIRST
from vsecore.experiments.verdicts import Judgement
from vsecore.experiments.watching import ABOVE_BOUND, CONTRAST, HIGHEST, LEFT, RETURNS
from vsecore.paths import ROOT


def lay_evidence(folder: Path, kept: Path = RESULTS) -> None:
    """Write the page of each paper with its figures, how a verdict comes about, and what papers report.

    All comes from the folder of records that are kept; without records, a page says that all is open.
    """
    folder.mkdir(parents=True, exist_ok=True)
    numbers = {"rates": len(FIRST), "seeds": SEEDS["scenes"], "seeds_of_photographs": SEEDS_ELSEWHERE}
    shares = {"levelled": LEVELLED, "margin": MARGIN, "loss_margin": LOSS_MARGIN}
    numbers |= {name: round(100 * share) for name, share in shares.items()}
    (folder / "verdicts.md").write_text(_template("verdicts.md").render(numbers) + "\n", encoding="utf-8")
    (folder / "published.md").write_text(typeset(comparators()) + "\n", encoding="utf-8")
    for work in WORKS:
        (folder / f"{work}.md").write_text(page(work, kept, folder), encoding="utf-8")


class Findings:
    """What the records say of a paper, by data, then by experiment; these share one world of scenes."""

    def __init__(self, work: str, kept: Path) -> None:
        self.outcomes = {data: outcomes(work, data, folder=kept) for data in DATA}
        self.fair = {on: {name: studied(name, on, folder=kept) for name in BY_WORK[work]} for on in DATA}
        worlds = {get_experiment(name).world for name in BY_WORK[work]}
        found = records.find(kept, name=ORACLE) if kept.is_dir() else []
        sums = [entry.metrics["rsum"] for entry in found if entry.data["name"] in worlds]
        self.oracle = {"scenes": sums[-1]} if sums else {}  # where the truth is known

    def trained(self, data: str) -> bool:
        """Whether anything is trained on some data."""
        return any(self.fair[data].values())


def page(work: str, kept: Path, figures: Path) -> str:
    """Return a paper's page in MyST Markdown, from a folder of records, and draw its figures into another."""
    paper, found = WORKS[work], Findings(work, kept)
    differences = [
        statistics.mean(outcome.differences.get("rsum") or [math.nan])
        for data, rests_on in (("scenes", paper.rests_on), ("flickr8k", paper.on_photographs))
        for statement in rests_on
        for outcome in found.outcomes[data]
        if outcome.claim.statement == statement
    ]
    differ = [[one.place, one.printed, one.released, one.here] for one in departures(work)]
    misprints = [
        [row.system, row.data, row.misprint, row.read_in]
        for row in records.published()
        if row.misprint and paper.source in row.read_in
    ]
    told = {"": paper.summary, **paper.findings} if any(map(found.trained, DATA)) else {}
    told = {name: words.format(*differences) for name, words in told.items()}
    asked = {name: _asked(name, found, figures) for name in BY_WORK[work]}
    text = _template("paper.md.jinja").render(
        paper=paper,
        summary=told.get(""),
        counts=verdict_counts(found.outcomes),
        taught=", ".join(f"[](../notebooks/{notebook}.ipynb)" for notebook in paper.notebooks),
        asked=[
            one | {"said": told.get(name, "")}
            for name, one in asked.items()
            if any(part for title, part in one.items() if title != "experiment")
        ],
        departures=table(["where", "the paper", "its code", "here"], differ),
        misprints=table(["system", "data", "what does not fit", "where"], misprints),
        open=still_open(found),
    )
    return typeset(re.sub(r"\n{3,}", "\n\n", text).strip()) + "\n"


def _template(name: str) -> Template:
    text = (ROOT / "book" / "evidence" / name).read_text(encoding="utf-8")
    return Template(text, undefined=StrictUndefined)


def verdict_counts(outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """Return how often each verdict came out, by data."""
    counts = {data: Counter(outcome.judgement for outcome in outcomes[data]) for data in DATA}
    said = [verdict for verdict in get_args(Judgement) if any(counts[data][verdict] for data in DATA)]
    rows = [[verdict, *(str(counts[data][verdict]) for data in DATA)] for verdict in said]
    return table(["verdict", *(f"claims, on {name}" for name in DATA.values())], rows)


def _asked(name: str, found: Findings, figures: Path) -> dict[str, Any]:
    """Return an experiment with its figures, its judged claims and what else was measured, as tables."""
    experiment, drawn = EXPERIMENTS[name], []
    for data, called in DATA.items():
        arms, oracle = found.fair[data][name], found.oracle.get(data)
        if len(arms) > 1:  # a single dot compares nothing
            drawn.append((f"{name}-{data}.svg", dots.words_for(arms, called, oracle)))
            with plt.rc_context():
                house_style()
                figure = dots.compared(arms, data, oracle)
                figure.savefig(figures / drawn[-1][0])
                plt.close(figure)
    asked = (one for one in side_by_side(found.outcomes) if one[0].claim.experiment == name)
    judged = [one for one in asked if any(map(is_judged, one))]
    measured = {
        key: table([*heads.split(" | "), "trained from"], rows(experiment, found.fair["scenes"][name]))
        for key, (heads, rows) in MEASURED.items()
    }
    return {"experiment": experiment, "figures": drawn, "claims": _claims_table(judged)} | measured


def _claims_table(judged: Sequence[tuple[Outcome, Outcome | None]]) -> str:
    """Return claims, each with the paper's words, its difference, and ours on each data that has one."""
    names = dict(enumerate(DATA.values()))
    seen = {place: name for place, name in names.items() if any(is_judged(one[place]) for one in judged)}
    rows, quoted = [], ("", "")
    for one in judged:
        claim = one[0].claim
        same = (claim.words, claim.place) == quoted
        quoted = claim.words, claim.place
        words = f"“{claim.words}”<br>{claim.place}" if claim.words else f"our question: {claim.place}"
        judgements = [ours(one[place]) if is_judged(one[place]) else "–" for place in seen]
        words = "as above" if same and claim.words else words
        rows.append([claim.statement, words, printed(claim), *judgements])
    return table(["claim", "in the paper's words", "printed", *seen.values()], rows, "verdicts")


def still_open(found: Findings) -> list[tuple[str, str, str]]:
    """Return, for each data where claims are not judged yet: its name, how many, and their shut gates.

    Where nothing is trained, the name stands alone.
    """
    told = []
    for data, called in DATA.items():
        rows = []
        for one in (one for one in found.outcomes[data] if one.shut):
            why = "<br>".join(f"*{gate.gate}*: {gate.why}" for gate in one.shut)
            rows.append([one.claim.statement, one.claim.refuted_by, why])
        if not found.trained(data):
            told.append((called, "", ""))
        elif rows:
            shut = table(["claim", "what would refute it", "shut, and why"], rows)
            told.append((called, counted(len(rows), "claim"), shut))
    return told


# ---- what else was measured --------------------------------------------------------------------------------

Rows = Callable[[Experiment, Mapping[str, Studied]], list[list[str]]]
"""Makes the rows of a table from an experiment and its systems by arm; none if none has been measured so."""


def _means(metrics: Sequence[str], digits: int = 1) -> Rows:
    """Return what makes rows of means with their intervals, for the systems that have all of some metrics."""
    return lambda _, arms: [
        [
            one.arm,
            *(mean(list(one.results[metric].values()), digits) for metric in metrics),
            counted(len(one.seeds), "seed"),
        ]
        for one in arms.values()
        if {*metrics} <= one.results.keys()
    ]


def _elements(_: Experiment, arms: Mapping[str, Studied]) -> list[list[str]]:
    """For each side of each system of sets: whole, its best and worst vector alone, and without one."""
    rows = []
    for one in arms.values():
        for side, called in zip(SIDES, ("pictures", "captions"), strict=True):
            kept, lost = (
                [one.results[name] for k in range(1, 7) if (name := metric(side, k)) in one.results]
                for metric in (alone, without)
            )
            if kept:
                shared = sorted(kept[0])
                cells = [
                    mean([end(sums[seed] for sums in each) for seed in shared])
                    for each in (kept, lost)
                    for end in (max, min)
                ]
                whole = mean([one.results["rsum"][seed] for seed in shared])
                rows.append([one.arm, called, whole, *cells, counted(len(shared), "seed")])
    return rows


def _passing(experiment: Experiment, arms: Mapping[str, Studied]) -> list[list[str]]:
    """For each system that learns from mined negatives: the epochs in which it passes the one that mined."""
    rows = []
    for arm, one in experiment.arms.items():
        if arm in arms and (miner := one.mined_by) in arms:
            passed = epochs_to_pass(arms[arm], arms[miner], "rsum").values()
            epochs = ", ".join("never" if one is None else str(one) for one in passed)
            rows.append([arm, miner, epochs or "–", counted(len(arms[arm].seeds), "seed")])
    return rows


MEASURED: dict[str, tuple[str, Rows]] = {
    "relations": (
        "system | correct picture of two | correct caption of two | captions that left or right decides | "
        "other captions",
        _means(PAIRS),
    ),
    "mined": ("system | captions true of the picture | pictures the caption is true of", _means(SHARES)),
    "passed": ("system | mined by | epochs", _passing),
    "spread": ("system | pictures | captions", _means(LOG_VARIANCES, 2)),
    "elements": (
        "system | vectors of | whole sets | the best alone | the worst alone | without the least needed | "
        "without the most needed",
        _elements,
    ),
    "probes": (
        "system | things | colours | sizes | relations | places | R-precision | nDCG",
        _means((*PROBES, *GRADED)),
    ),
    "multiplier": (
        "system | contrastive loss | above the bound | highest λ | λ left | returns from 0",
        _means((CONTRAST[-1], ABOVE_BOUND, HIGHEST, LEFT, RETURNS), 2),
    ),
}
"""Measures beside retrieval, by their names in the template: a table's heads, and what makes its rows."""

# ---- beside our own numbers --------------------------------------------------------------------------------

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
        heads = ["system", "pictures and captions", "models", "pre-training pairs", "rsum", "read in"]
        lines += [f"## {title}", table(heads, cells)]
    lines.append("## Other measures")
    others = defaultdict(list)
    for row in records.published():
        more = [name for name in row.metrics if name not in records.RECALLS]
        for is_rsum in (False, True):  # of parts of sets
            if names := [name for name in more if name.startswith("rsum_") == is_rsum]:
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
    "rsum_pictures_only_": "picture vector alone: ",
    "rsum_pictures_without_": "without picture vector ",
    "rsum_texts_only_": "caption vector alone: ",
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
