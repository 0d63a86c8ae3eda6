"""What was measured in each experiment of a paper, and how it looked after a few epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from course import dots
from course.plots import house_style
from coursebook.findings import DATA, Findings
from coursebook.wording import FEATURES, seeds, spread, table
from vsecore.experiments import EXPERIMENTS, Studied, get_experiment
from vsecore.experiments.ledger import printed_sums


def experiments(found: Findings, figures: Path) -> str:
    """Each experiment: a figure and tables for each data, and what has no fair training yet."""
    lines = [
        "## The experiments",
        "In the figures each row is a system, the best on top: a dot for each seed, and their mean with its "
        "95 % interval. One seed has no interval, and with two it is very wide. The dashed line is the ridge "
        "regression on the same features.",
    ]
    if oracle := found.oracles.get("scenes"):
        lines.append(
            f"The dotted line at {oracle:.1f} is the rsum of an *oracle*: it knows which captions are true "
            "of which scene, and breaks ties at random. Recall counts only the five captions that were "
            "written for a picture and calls all other true ones wrong. So a system gets above this line "
            "only by guessing which caption was written, not by knowing better what is true. mAP@R on the "
            "exact truth does not reward such guesses."
        )
    else:
        lines.append("The oracle, whose line belongs in each figure for the scenes, is not recorded yet.")
    for name in found.experiments:
        experiment = EXPERIMENTS[name]
        lines += [f"### {experiment.question}", f"{experiment.source}."]
        seen = {called: FEATURES[experiment.features_on(data)] for data, called in DATA.items()}
        if len(set(seen.values())) > 1:
            listed = " and ".join(f"{features} on {called}" for called, features in seen.items())
            lines.append(f"The systems see {listed}.")
        for data, called in DATA.items():
            arms = found.fair[data][name]
            if arms:
                picture, oracle = f"{name}-{data}.svg", found.oracles.get(data)
                with plt.rc_context():
                    house_style()
                    figure = dots.compared(arms, data, oracle)
                    figure.savefig(figures / picture)
                    plt.close(figure)
                lines += [
                    _figure(picture, dots.words_for(arms, called, oracle)),
                    f"On {called}, beside the paper's sums on COCO; places are counted among the systems in "
                    "this table:",
                    found.tables[data][name],
                ]
            for kind, rows in found.elsewhere[data][name].items():
                lines += [
                    f"On {called} again, now with {FEATURES[kind]}. The verdicts rest on "
                    f"{'the grid' if experiment.features_on(data) == 'grid' else 'the first'} alone.",
                    rows,
                ]
            lines += _unfinished(found, name, data)
    return "\n\n".join(lines)


def _figure(picture: str, words: str) -> str:
    return f":::{{div}} wide-frame\n```{{image}} {picture}\n:alt: {words}\n:class: figure\n```\n:::"


def _unfinished(found: Findings, name: str, data: str) -> list[str]:
    """Which arms have no fair training yet: those with lesson trainings, without any, and not yet chosen."""
    fair, early, every = found.fair[data][name], found.lesson[data][name], EXPERIMENTS[name].arms
    rest = [arm for arm in every if arm not in fair]
    new = [arm for arm in rest if arm not in early]
    paper, called = printed_sums(EXPERIMENTS[name]), DATA[data]
    return [
        words + _named(arms, paper)
        for words, arms in (
            (
                f"No fair training on {called} yet, only at the lesson scale",
                [arm for arm in rest if arm in early],
            ),
            (f"No training on {called} yet", [arm for arm in new if not every[arm].best_of]),
            (f"Not yet chosen on {called}", [arm for arm in new if every[arm].best_of]),
        )
        if arms
    ]


def _named(arms: Sequence[str], paper: Mapping[str, float]) -> str:
    """Arms by name, with the paper's sums where it has them."""
    sums = " (with the paper's sum, where it has one)" if set(arms) & paper.keys() else ""
    named = [f"{arm} {paper[arm]:.1f}" if arm in paper else arm for arm in arms]
    return f"{sums}: {'; '.join(named)}."


def judged_too_early(found: Findings) -> str:
    """What a few epochs say, beside what complete trainings say; then all that a few epochs said."""
    lines = [
        "## Judged too early",
        "At the lesson scale, systems train for a few minutes, all at one learning rate. Such a training "
        "ranks systems by how fast they learn, not by how good they become. Here are both, for the systems "
        "that have both; places are counted among these systems only.",
    ]
    before = len(lines)
    for data, called in DATA.items():
        for name, fair in found.fair[data].items():
            early = found.lesson[data][name]
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
            lines += [f"**{get_experiment(name).question}** On {called}:", table(heads, rows)]
    if len(lines) == before:
        lines.append("No two systems of an experiment have both yet.")
    if any(found.lesson[data][name] for data in DATA for name in found.experiments):
        lines.append(_all_lessons(found))
    return "\n\n".join(lines)


def _all_lessons(found: Findings) -> str:
    """The sums of every system at the lesson scale, on all data, folded."""
    lines = [
        "::::{dropdown} All sums at the lesson scale",
        "Each cell has the mean rsum on the test split ± its standard deviation over the seeds. No verdict "
        "rests on these numbers. A system that takes part in several experiments is in each of their "
        "tables.",
    ]
    for name in found.experiments:
        studied = {data: found.lesson[data][name] for data in DATA}
        arms = list(dict.fromkeys(arm for data in DATA for arm in dots.by_rsum(studied[data])))
        if arms:
            rows = [[arm, *(_lesson(studied[data].get(arm)) for data in DATA)] for arm in arms]
            lines += [f"**{get_experiment(name).question}**", table(["system", *DATA.values()], rows)]
    return "\n\n".join([*lines, "::::"])


def _lesson(arm: Studied | None) -> str:
    if arm is None:
        return "–"
    return f"{arm.rsum:.1f}{spread(arm.results['rsum'].values())}<br>{seeds(len(arm.seeds))}"
