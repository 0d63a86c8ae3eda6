"""The page of a paper in the book: its claims, our measurements and the verdicts, all from the records."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from coursebook.comparators import comparators
from coursebook.findings import DATA, Findings, is_fair, printed_kinds
from coursebook.measurements import experiments, judged_too_early
from coursebook.multipliers import multipliers
from coursebook.negatives import negatives
from coursebook.probes import probes
from coursebook.relations import relations
from coursebook.sets import sets
from coursebook.verdict_tables import shut_gates, verdicts
from coursebook.wording import CAPTIONS, table, trainings
from vsecore import records
from vsecore.experiments import RESULTS, departures, get_experiment
from vsecore.experiments.gates import LEVELLED, LOSS_MARGIN, MARGIN, SEEDS, SEEDS_ELSEWHERE
from vsecore.experiments.tuning import FIRST
from vsecore.experiments.worlds import AMBIGUOUS, NEAR_DUPLICATES, SCENES, WORLDS
from vsecore.recipes import get
from vsecore.records import Record


@dataclass(frozen=True)
class Work:
    """A paper that has a page."""

    title: str
    cited: str  # entries in the book's references, with commas between them
    source: str  # how `assets/published.json` names the paper whose tables are looked at for misprints
    notebooks: tuple[str, ...]  # that teach it
    recipe: str  # of its own system at full size
    setting: str  # where the papers train; "{dim}" and "{epochs}" stand for the recipe's
    code: str  # on released code


WORKS = {
    "2ad": Work(
        "2AD: what the paper claims, and what we measured",
        "zhang2022adpool",
        "Zhang et al. 2022",
        ("10_pooling", "11_how_many_negatives", "12_ensembles_and_speed"),
        "2ad_region_gru",
        "The paper trains on COCO and Flickr30K, at width {dim} and for {epochs} epochs.",
        "The authors released their code, and it answers much that a paper has no room for. Here are the "
        "places where the two differ, or where we chose something else. The README of the code carries "
        "another title than the paper, *Adaptive Context-aware Pooling and "
        "Adaptive Clustering Objective*, so some differences may come from another version of the work.",
    ),
    "relational": Work(
        "Relations and cross-attention: what the papers claim, and what we measured",
        "yan2019relational,lee2018scan,li2019vsrn",
        "Yan 2019",
        ("05_relations", "06_structural_alignment", "07_cross_attention"),
        "thesis_grid",
        "The thesis trains on COCO, at width {dim} and for {epochs} epochs; the other papers train on COCO "
        "and Flickr30K, at a width of 1,024 or 2,048.",
        "We know of no released code for the thesis. The authors of SCAN, BFAN, VSRN and TERN released "
        "theirs. Here are the places where a paper and its code differ, or where we had to choose.",
    ),
    "aoq": Work(
        "Offline quintuplets: what the paper claims, and what we measured",
        "chen2020aoq",
        "Chen et al. 2020 (AOQ)",
        ("08_offline_negatives", "09_quintuplet"),
        "aoq_vsrn_region",
        "The paper trains on COCO and Flickr30K; its VSRN has width {dim} and takes {epochs} epochs in the "
        "second round.",
        "The authors released their code, built on that of VSRN and BFAN. Here are the places where paper "
        "and code differ, or where we chose something else.",
    ),
    "dive": Work(
        "Sets of embeddings: what the paper claims, and what we measured",
        "kim2023dive",
        "Kim et al. 2023",
        ("13_sets", "14_slots"),
        "dive_region_gru",
        "The paper trains on COCO and Flickr30K; on regions, at width {dim} and for {epochs} epochs.",
        "The authors released their code. Here are the places where paper and code differ, where the paper "
        "leaves something open, or where we chose something else.",
    ),
    "ltd": Work(
        "Latent targets: what the paper claims, and what we measured",
        "bleeker2023ltd",
        "Bleeker et al. 2023 (LTD)",
        ("15_feature_suppression", "16_latent_targets"),
        "ltd_region_gru",
        "The paper trains on COCO and Flickr30K, at width {dim} and for {epochs} epochs.",
        "The authors released their code. Here are the places where paper and code differ, or where we chose "
        "something else.",
    ),
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
        verdicts(found),
        experiments(found, figures),
        relations(found),
        negatives(found),
        sets(found),
        probes(found),
        multipliers(found),
        judged_too_early(found),
        shut_gates(found),
        _departures(work),
        _misprints(work),
        comparators(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _introduction(work: str, found: Findings) -> str:
    paper = WORKS[work]
    taught = ", ".join(f"[](../notebooks/{notebook}.ipynb)" for notebook in paper.notebooks)
    lines = [
        f"# {paper.title}",
        f"This page sets the claims of {{cite:t}}`{paper.cited}` beside our own measurements. Building the "
        "book makes it from the records of the trainings, so none of our numbers was typed by hand. "
        f"The methods themselves are taught in {taught}.",
        "## What was trained",
    ]
    if not found.trained:
        return "\n\n".join(
            [*lines, "No training is recorded yet. `vse experiment` trains and records.", _RULES]
        )
    hours, printed = sum(entry.seconds for entry in found.trained) / 3600, get(paper.recipe)
    lines += [
        f"{paper.setting.format(dim=printed.dim, epochs=printed.training.epochs)} We train smaller systems "
        "on less data, and so our sums cannot be compared with the paper's. What can be compared is which of "
        "two systems is better. In all, "
        f"{trainings(len(found.trained))} took {hours:.1f} hours by the clock, pauses included. At the "
        "*fair* scale, each system has a learning rate of its own and trains long enough for most systems to "
        "level off; only these trainings are judged."
        + (
            " Trainings at the *lesson* scale take a few minutes each. The notebooks show some of them; the "
            "sums of all are at the end of the section *Judged too early*."
            if any(early for of_data in found.lesson.values() for early in of_data.values())
            else ""
        ),
        *_other_world(found),
        _trained_table(found),
        *_left_out(found),
        *_other_features(found),
        _RULES,
    ]
    return "\n\n".join(lines)


def _left_out(found: Findings) -> list[str]:
    """How many trainings cannot be compared with the others."""
    if not found.left_out:
        return []
    return [
        f"Of these, {trainings(len(found.left_out))} used other extracted features, other word vectors "
        "or another precision than most of their experiment. The tables and verdicts below leave them out."
    ]


def _other_features(found: Findings) -> list[str]:
    """In which experiments the paper's systems see regions, and ours, so far, the cells of a grid."""
    unlike = [
        experiment
        for name in found.experiments
        if printed_kinds(experiment := get_experiment(name)) == {"region"}
        and experiment.features == "grid"
        and any(len(found.fair[data][name]) > 1 for data in DATA)
        and not any("region" in found.elsewhere[data][name] for data in DATA)
    ]
    if not unlike:
        return []
    listed = "\n".join(
        f"- {experiment.question} ({experiment.source.partition('), ')[2]})" for experiment in unlike
    )
    return [
        "The features differ too. In these experiments of the paper, the systems see detected regions; in "
        "the trainings of ours that are judged so far, they see the cells of a grid:",
        listed,
        "Some cells show only background, and the mean counts them like all others. So a pooler that can "
        "leave them out may be worth more on a grid than on regions, and beside it a loss may seem to matter "
        "less.",
    ]


def _other_world(found: Findings) -> list[str]:
    """What is unusual about the drawn scenes of a page."""
    share = 100 * WORLDS[NEAR_DUPLICATES]["near_duplicates"]
    unlike = {
        NEAR_DUPLICATES: f"{share:.0f} % of the pictures differ from an earlier one in exactly one fact, so "
        "that there are hard negatives to find",
        AMBIGUOUS: "the captions say less, so that most of them fit several pictures",
    }
    if found.named[SCENES] not in unlike:
        return []
    return [
        f"The drawn scenes of this page are not those of the other pages: {unlike[found.named[SCENES]]}. The "
        "ridge regression and the oracle below belong to the same scenes."
    ]


def _trained_table(found: Findings) -> str:
    """What was trained, by data, encoders, scale and device."""
    groups: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    slots = {name: data for data, name in found.named.items()}
    for entry in found.trained:
        training, data = entry.config["training"], slots[entry.data["name"]]
        groups[
            DATA[data],
            entry.data["feature_kind"],
            CAPTIONS[entry.config["text"]["encoder"]["name"]],
            "fair" if is_fair(entry.config, data) else "lesson",
            str(training["epochs"]),
            str(entry.config["dim"]),
            str(training["batch_size"]),
            f"{entry.device}, {entry.cpus} cores",
        ].append(entry)
    rows = [
        [*group, str(len(entries)), f"{sum(entry.seconds for entry in entries) / 3600:.1f}", device]
        for (*group, device), entries in sorted(groups.items())
    ]
    heads = ["data", "features", "captions", "scale", "epochs", "width", "batch"]
    return table([*heads, "trainings", "hours", "device"], rows)


_RULES = f"""## How a verdict comes about

An unfinished training tells us nothing about a method. So a claim is judged only when these gates are open:

1. **Learning rate.** Each system has a learning rate of its own, the best of at least {len(FIRST)} on the
   development split. The best must lie between two others that were tried.
2. **Length.** The last third of the epochs brought less than {100 * LEVELLED:.0f} % of the rsum, or the
   training is as long as the paper's.
3. **Baseline.** By every measure that counts, each system is clearly better than a simple linear model on
   the same features: a ridge regression that predicts which words a caption has. If the weaker of the two
   systems is not, although its learning rate is chosen and its training complete, the verdict adds "against
   a baseline that failed".
4. **Seeds.** Both systems were trained from the same seeds, at least {SEEDS["scenes"]} on the scenes and
   {SEEDS_ELSEWHERE} on photographs. The same seed means the same batches, so the difference is taken seed
   by seed.
5. **Measures.** On the scenes, whose truth is known, mAP@R counts as much as rsum, in both directions.
   Claims about early training are judged by the rsum on the development split, averaged over the first
   third of the epochs, claims about the first place by the share of pairs that rank first both ways,
   and claims about spread by the logarithm of the circular variance of the embedding sets. Claims about
   losses in training have measures of their own, which their tables name.

Then a t-test asks whether the mean difference could be chance. Among many such answers, some
are wrong by chance; Holm's correction allows for that, over all claims of one experiment, judged or not
yet. Differences below {100 * MARGIN:.0f} % of a measure are too small to matter; where the measure is a
logarithm, it is {100 * MARGIN:.0f} % of what the logarithm was taken of. This margin was set before any
verdict; for losses in training it is {100 * LOSS_MARGIN:.0f} %.

What comes out is one of these: *reproduced*; *contradicted*; *no difference* (surely within the margin:
a tie, which refutes a claim of "better" too; a claim that two are the same is then *reproduced*); *mixed*
(two measures disagree); *undecided* (these seeds leave it open); *too small to say* (a gate is shut); *not
tried* (at least one of the two systems has no training at the fair scale yet, though it may have some at the
lesson scale). To a question that is ours and not the paper's, the answer is *yes* or *no* in place of
*reproduced* or *contradicted*."""


def _departures(work: str) -> str:
    rows = [[one.place, one.printed, one.released, one.here] for one in departures(work)]
    return "\n\n".join(
        [
            "## Where the paper, its code and this course differ",
            WORKS[work].code,
            table(["where", "the paper", "its code", "here"], rows) if rows else "We know of no such place.",
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
            "## Numbers that do not fit together",
            "Few papers with hundreds of numbers are free of misprints. Here are those that we noticed, and "
            "places where a sentence and a table, or two papers, say different things. Some of these may "
            "have a reason that we do not see.",
            table(["system", "data", "what does not fit", "where"], rows) if rows else "We know of none.",
        ]
    )
