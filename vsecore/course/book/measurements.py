"""What was measured in each experiment of a paper, and how it looked after a few epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from vsecore.course.book import dots
from vsecore.course.book.findings import DATA, Findings
from vsecore.course.book.wording import table
from vsecore.course.plots import house_style
from vsecore.experiments import EXPERIMENTS, get_experiment
from vsecore.experiments.ledger import printed_sums


def experiments(found: Findings, figures: Path) -> str:
    """Each experiment: a figure and a table for each data, and what was not tried."""
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
        for data, called in DATA.items():
            arms = found.fair[data][name]
            untried = [arm for arm in experiment.arms if arm not in arms]
            if arms:
                picture, oracle = f"{name}-{data}.svg", found.oracles.get(data)
                with plt.rc_context():
                    house_style()
                    figure = dots.compared(arms, data, oracle)
                    figure.savefig(figures / picture)
                    plt.close(figure)
                lines += [
                    _figure(picture, dots.words_for(arms, called, oracle)),
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


def judged_too_early(found: Findings) -> str:
    """What a few epochs say, beside what complete trainings say."""
    lines = [
        "## Judged too early",
        "At the lesson scale, systems train for a few minutes, all at one learning rate. Such a training "
        "ranks systems by how fast they learn, not by how good they become. Here are both, for the systems "
        "that have both; places are counted among these systems only.",
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
            lines += [f"**{get_experiment(name).question}** On {called}:", table(heads, rows)]
    if len(lines) == before:
        lines.append("No two systems of an experiment have both yet.")
    return "\n\n".join(lines)
