"""The page of a paper in the book: its claims, our measurements and the verdicts, all from the records."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt

from vsecore import records
from vsecore.course.book import dots
from vsecore.course.book.findings import DATA, Findings, is_fair
from vsecore.course.plots import house_style
from vsecore.experiments import (
    EXPERIMENTS,
    RESULTS,
    Claim,
    Outcome,
    Shut,
    departures,
    get_experiment,
    missing,
)
from vsecore.experiments.gates import LEVELLED, MARGIN, SEEDS, SEEDS_ELSEWHERE
from vsecore.experiments.ledger import printed_sums
from vsecore.experiments.tuning import FIRST
from vsecore.records import Record


@dataclass(frozen=True)
class Work:
    """A paper that has a page."""

    title: str
    cited: str  # its entry in the book's references
    source: str  # how `assets/published.json` names it
    notebooks: tuple[str, ...]  # that teach it


WORKS = {
    "2ad": Work(
        "2AD: what the paper claims, and what we measured",
        "zhang2022adpool",
        "Zhang et al. 2022",
        ("10_pooling", "11_how_many_negatives", "12_ensembles_and_speed"),
    )
}
"""The papers that have a page, by key."""


def lay_evidence(folder: Path, kept: Path = RESULTS) -> None:
    """Write the page of each paper, and its figures beside it.

    Args:
        folder: of the pages.
        kept: the folder of records. Where there are none, the page says so.

    Raises:
        ValueError: a record or a claim is damaged, or records do not fit together.
    """
    folder.mkdir(parents=True)
    for work in WORKS:
        text = page(work, kept, folder)
        (folder / f"{work}.md").write_text(text, encoding="utf-8")


def page(work: str, kept: Path, figures: Path) -> str:
    """A paper's page, in MyST Markdown.

    Args:
        work: the paper's key.
        kept: the folder of records.
        figures: where to draw what the page shows.
    """
    found = Findings.read(work, kept)
    parts = [
        _introduction(work, found),
        _verdicts(found),
        _experiments(found, figures),
        _judged_too_early(found),
        _shut_gates(found),
        _departures(work),
        _misprints(work),
    ]
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------- what was done


def _introduction(work: str, found: Findings) -> str:
    paper = WORKS[work]
    taught = ", ".join(f"[](../notebooks/{notebook}.ipynb)" for notebook in paper.notebooks)
    lines = [
        f"# {paper.title}",
        f"This page sets the claims of {{cite:t}}`{paper.cited}` beside our own measurements. It is written "
        "anew from the records of the trainings each time the book is built, so none of our numbers was "
        f"typed by hand. What the methods are, and how they work, is taught in {taught}.",
        "## What was trained",
    ]
    if not found.trained:
        return "\n\n".join(
            [*lines, "No training is recorded yet. `vse experiment` trains and records.", _RULES]
        )
    hours = sum(entry.seconds for entry in found.trained) / 3600
    lines += [
        "The paper trains on COCO and Flickr30K, for days on GPUs. We train smaller systems on less data, "
        "and so our sums cannot be compared with the paper's. What can be compared is which of two systems "
        f"is better. In all, {_trainings(len(found.trained))} took {hours:.1f} hours. At the *fair* scale, "
        "each system has a learning rate of its own and trains long enough for most to level off; only these "
        "trainings are judged. Trainings at the *lesson* scale take a few minutes each; the notebooks show "
        "them too.",
        _trained_table(found.trained),
        _RULES,
    ]
    return "\n\n".join(lines)


def _trained_table(trained: Iterable[Record]) -> str:
    """What was trained, by data, scale and device."""
    groups: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for entry in trained:
        training, data = entry.config["training"], entry.data["name"]
        groups[
            DATA[data],
            "fair" if is_fair(entry) else "lesson",
            str(training["epochs"]),
            str(entry.config["dim"]),
            str(training["batch_size"]),
            f"{entry.device}, {entry.cpus} cores",
        ].append(entry)
    rows = [
        [*group, str(len(entries)), f"{sum(entry.seconds for entry in entries) / 3600:.1f}"]
        for group, entries in sorted(groups.items())
    ]
    return _table(["data", "scale", "epochs", "width", "batch", "device", "trainings", "hours"], rows)


_RULES = f"""## How a verdict comes about

An unfinished training says nothing about a method. So a claim is judged only when these gates are open:

1. **Learning rate.** Each system has a learning rate of its own, the best of at least {len(FIRST)} on the
   development split. The best must lie between two others that were tried.
2. **Length.** The last third of the epochs brought less than {100 * LEVELLED:.0f} % of the rsum, or the
   training is as long as the paper's.
3. **Baseline.** Each system stands clearly above a simple linear model on the same features: a ridge
   regression that predicts which words a caption has. If the weaker of the two does not, although its
   learning rate is chosen and its training complete, the verdict adds "against a baseline that failed".
4. **Seeds.** Both systems were trained from the same seeds, at least {SEEDS["scenes"]} on the scenes and
   {SEEDS_ELSEWHERE} on photographs. The same seed means the same batches, so the difference is taken seed
   by seed.
5. **Measures.** On the scenes, whose truth is known, mAP@R counts as much as rsum, in both directions.

Then a t-test asks whether the mean difference could be chance. Ask many such questions, and some answers
are wrong by luck; Holm's correction takes care of that among all claims of one experiment, judged or not
yet. Differences
below {100 * MARGIN:.0f} % of a measure are too small to matter. This margin was set before any verdict.

What comes out is one of these: *reproduced*; *contradicted*; *no difference* (surely within the margin:
a tie, which refutes a claim of "better" too); *mixed* (two measures contradict each other);
*undecided* (these seeds leave it open); *too small to say* (a gate is shut); *not tried*. To a question
that is ours and not the paper's, the answer is *yes* or *no* in place of *reproduced* or
*contradicted*."""


# ---------------------------------------------------------------- the verdicts


def _verdicts(found: Findings) -> str:
    """All claims, those with the same words of the paper together."""
    everywhere = list(zip(*(found.outcomes[data] for data in DATA), strict=True))  # one entry a claim
    groups: dict[tuple[str, ...], list[tuple[Outcome, ...]]] = defaultdict(list)
    for one in everywhere:
        claim = one[0].claim
        same = (claim.words, claim.place, claim.kind) if claim.words else ("", claim.experiment)
        groups[same].append(one)
    lines = ["## The verdicts", _counted(found)]
    lines.append(
        'The column "the paper" has the difference between the two rsums that it prints for COCO, if it '
        "prints both. The columns of our data have the verdict and, for each measure, the mean difference ± "
        "its standard deviation over the seeds, and what this measure says by itself. "
        '"To text" means searching captions with a picture, "to picture" the reverse.'
    )
    for (words, *rest), several in groups.items():
        claim = several[0][0].claim
        if words:
            lines.append(f"> {words}\n>\n> — {rest[0]}. *The claim: {_KINDS[claim.kind]}*")
        else:
            lines.append(f"**Our own questions.** {get_experiment(claim.experiment).question}")
        rows = [
            [_claimed(one[0].claim), one[0].claim.refuted_by, _paper(one[0].claim), *map(_ours, one)]
            for one in several
        ]
        head = "the paper's claim" if words else "is it true that"
        lines.append(_table([head, "what would refute it", "the paper", *DATA.values()], rows, "verdicts"))
    return "\n\n".join(lines)


_KINDS = {"better": "it is better.", "no worse": "it is no worse."}


def _counted(found: Findings) -> str:
    """How often each verdict came out."""
    counts = {data: Counter(outcome.judgement for outcome in found.outcomes[data]) for data in DATA}
    said = dict.fromkeys(outcome.judgement for data in DATA for outcome in found.outcomes[data])
    rows = [[verdict, *(str(counts[data][verdict]) for data in DATA)] for verdict in said]
    return _table(["verdict", *(f"claims, on {name}" for name in DATA.values())], rows)


def _claimed(claim: Claim) -> str:
    return claim.statement if claim.words else f"{claim.statement}?<br>*{claim.place}*"


def _paper(claim: Claim) -> str:
    """The difference that the paper prints."""
    sums = printed_sums(get_experiment(claim.experiment))
    if not {claim.system, claim.against} <= sums.keys():
        return "–"
    return _signed(sums[claim.system] - sums[claim.against])


def _ours(outcome: Outcome) -> str:
    """The verdict and the differences that it rests on."""
    lines = [f"**{outcome.told}**"]
    for measure, values in outcome.differences.items():
        if values:
            spread = f"{_FIXED}±{_FIXED}{statistics.stdev(values):.1f}" if len(values) > 1 else ""
            said = f": {outcome.by_measure[measure]}" if measure in outcome.by_measure else ""
            lines.append(f"{_MEASURES[measure]} {_signed(statistics.mean(values))}{spread}{said}")
    if counted := len(outcome.differences.get("rsum", ())):
        lines.append(_seeds(counted))
    return "<br>".join(lines)


_MEASURES = {
    "rsum": "rsum",
    "i2t_map_at_r": "mAP@R to text",
    "t2i_map_at_r": "mAP@R to picture",
}
_FIXED = "\N{NO-BREAK SPACE}"


# ---------------------------------------------------------------- the experiments


def _experiments(found: Findings, figures: Path) -> str:
    """Each experiment: a figure and a table for each data, and what was not tried."""
    lines = [
        "## The experiments",
        "In the figures each row is a system, the best on top: a dot for each seed, and their mean with its "
        "95 % interval. One seed has no interval, and with two it is very wide. The dashed line is the ridge "
        "regression on the same features.",
    ]
    if reader := found.readers.get("scenes"):
        lines.append(
            f"The dotted line at {reader:.1f} is the rsum of an *all-knowing reader*, who knows which "
            "captions are true of which scene, and puts what is equally true in random order. Recall "
            "counts only the five captions that were written for a picture, and calls all other true ones "
            "wrong: what a system gains beyond this line, it gains by guessing which caption was written, "
            "not by knowing better what is true. mAP@R on the exact truth does not reward such guesses."
        )
    else:
        lines.append(
            "The all-knowing reader, whose line belongs in each figure of the scenes, is not recorded yet."
        )
    for name in found.experiments:
        experiment = EXPERIMENTS[name]
        lines += [f"### {experiment.question}", f"{experiment.source}."]
        for data, called in DATA.items():
            arms = found.fair[data][name]
            untried = [arm for arm in experiment.arms if arm not in arms]
            if arms:
                picture, reader_here = f"{name}-{data}.svg", found.readers.get(data)
                with plt.rc_context():
                    house_style()
                    figure = dots.compared(arms, data, reader_here)
                    figure.savefig(figures / picture)
                    plt.close(figure)
                lines += [
                    _figure(picture, dots.words_for(arms, called, reader_here)),
                    f"On {called}, beside the paper's sums on COCO:",
                    found.tables[data][name],
                ]
            if untried:
                lines.append(_untried(untried, printed_sums(experiment), called))
    return "\n\n".join(lines)


def _figure(picture: str, words: str) -> str:
    return f":::{{div}} wide-frame\n```{{image}} {picture}\n:alt: {words}\n:class: figure\n```\n:::"


def _untried(arms: Sequence[str], paper: Mapping[str, float], called: str) -> str:
    """Arms by name, with the paper's sums where it has them."""
    sums = " (with the paper's sum, where it has one)" if set(arms) & paper.keys() else ""
    named = [f"{arm} {paper[arm]:.1f}" if arm in paper else arm for arm in arms]
    return f"Not tried on {called}{sums}: {'; '.join(named)}."


def _judged_too_early(found: Findings) -> str:
    """What a few epochs say, beside what complete trainings say."""
    lines = [
        "## Judged too early",
        "At the lesson scale, systems train for a few minutes, all at one learning rate. Such a training "
        "ranks systems by how fast they learn, not by how good they become. Here are both, for the systems "
        "that have both; places count only these.",
    ]
    before = len(lines)
    for data, called in DATA.items():
        for name, fair in found.fair[data].items():
            early = found.lesson[data].get(name, {})
            both = [arm for arm in dots.by_rsum(fair) if arm in early]
            if len(both) < 2:
                continue
            first = dots.by_rsum({arm: early[arm] for arm in both})
            rows = [
                [
                    arm,
                    f"{early[arm].rsum:.1f}",
                    str(first.index(arm) + 1),
                    str(len(early[arm].seeds)),
                    f"{fair[arm].rsum:.1f}",
                    str(place),
                    str(len(fair[arm].seeds)),
                ]
                for place, arm in enumerate(both, start=1)
            ]
            heads = ["system", "rsum early", "place", "seeds", "rsum at the fair scale", "place", "seeds"]
            lines += [f"**{get_experiment(name).question}** On {called}:", _table(heads, rows)]
    if len(lines) == before:
        lines.append("No two systems of an experiment have both yet.")
    return "\n\n".join(lines)


# ---------------------------------------------------------------- what is left open


def _shut_gates(found: Findings) -> str:
    """Which gate keeps a claim from being judged, and what would open it."""
    lines = [
        "## What is still missing",
        "These claims are not judged yet. Beside each are the gates that are shut, the trainings that "
        "would open them and the hours that these take on the same device as before, if all goes well. If "
        "the best learning rate is at the edge of those tried, it takes one more. A training that several "
        "claims need is counted in each of their rows. Where the number is 0, more trainings would not help.",
    ]
    for data, called in DATA.items():
        rows = []
        for outcome in found.outcomes[data]:
            name = outcome.claim.experiment
            if shut := missing(outcome, found.fair[data][name], data, found.seconds(data, name)):
                rows.append(_missing_row(outcome.claim, shut))
        lines.append(f"### On {called}")
        if not rows:
            lines.append("Nothing: every claim is judged.")
            continue
        lines += [_remaining(found, data), _table(["claim", "shut, and why", "trainings", "hours"], rows)]
    return "\n\n".join(lines)


def _remaining(found: Findings, data: str) -> str:
    """What all claims take together, each training counted once."""
    wanted, done, seconds = found.all_trainings(data), found.fair_trainings(data), found.seconds(data)
    lines = [
        f"All claims together ask for about {_trainings(wanted)} at the fair scale; {done} are recorded."
    ]
    if math.isnan(seconds):
        lines.append("How long one takes is not known yet.")
    else:
        hours = max(wanted - done, 0) * seconds / 3600
        lines.append(f"One takes {seconds / 60:.1f} minutes on average, so about {hours:.0f} hours are left.")
    return " ".join(lines)


def _missing_row(claim: Claim, shut: Sequence[Shut]) -> list[str]:
    seconds = sum(gate.seconds for gate in shut)
    return [
        claim.statement,
        "<br>".join(f"*{gate.gate}*: {gate.why}" for gate in shut),
        str(sum(gate.trainings for gate in shut)),
        "unknown" if math.isnan(seconds) else f"{seconds / 3600:.1f}",
    ]


def _departures(work: str) -> str:
    rows = [[one.place, one.printed, one.released, one.here] for one in departures(work)]
    return "\n\n".join(
        [
            "## Where the released code departs from the paper",
            "A paper is read by people and its code is run by machines, so the two part ways here and there.",
            _table(["where", "the paper", "its code", "here"], rows) if rows else "Nowhere that we know of.",
        ]
    )


def _misprints(work: str) -> str:
    rows = [
        [row.system, row.data, row.misprint, row.read_in]
        for row in records.published()
        if row.misprint and WORKS[work].source in row.read_in
    ]
    return "\n\n".join(
        [
            "## Misprints",
            "Few papers with hundreds of numbers are without any. These are the ones that we noticed.",
            _table(["system", "data", "what does not fit", "where"], rows)
            if rows
            else "None that we know of.",
        ]
    )


# ---------------------------------------------------------------- words and tables


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], style: str = "") -> str:
    """A Markdown table, if need be of a class of the stylesheet's; a bar within a cell stays one."""
    lines = [heads, ["---"] * len(heads), *rows]
    text = "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
    return f":::{{table}}\n:class: {style}\n\n{text}\n:::" if style else text


def _signed(value: float) -> str:
    """A difference with its sign; none that is 0 is negative."""
    return f"{round(value, 1) + 0.0:+.1f}"


def _seeds(count: int) -> str:
    return f"{count} seed{'' if count == 1 else 's'}"


def _trainings(count: int) -> str:
    return f"{count} training{'' if count == 1 else 's'}"
