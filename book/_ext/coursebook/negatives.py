"""The tables of mined negatives: how many of them are true, and how soon they help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from coursebook.findings import DATA, Findings
from coursebook.wording import mean, seeds, table
from vsecore.experiments import Studied, epochs_to_pass, get_experiment
from vsecore.experiments.first_round import SHARES
from vsecore.experiments.passing import Followed


def negatives(found: Findings) -> str:
    """Both tables, of the experiments whose arms mine; empty if there are none."""
    asked = [name for name in found.experiments if _miners(name)]
    if not asked:
        return ""
    return "\n\n".join([*_false_negatives(found, asked), *_passing(found, asked)])


def _miners(name: str) -> dict[str, str]:
    """The arms of an experiment that learn from mined negatives, each with the arm that mines them."""
    return {arm: one.mined_by for arm, one in get_experiment(name).arms.items() if one.mined_by}


def _false_negatives(found: Findings, asked: list[str]) -> list[str]:
    lines = [
        "## How many mined negatives are true?",
        "The first round mines captions that are hard for a picture, and pictures that are hard for a "
        "caption; all but the anchor's own count as negatives. Some of them are true of their anchor, and "
        "the second round learns to push them away. On photographs nobody knows which. On the drawn scenes "
        "the truth is known: each cell has the share of true ones among all that were mined, the mean in "
        "percent over the seeds, with its 95 % interval. One system leaves them out.",
    ]
    rows = [
        [arm, miner, *(mean(list(one.results[share].values())) for share in SHARES), seeds(len(one.seeds))]
        for name in asked
        for arms in (found.fair["scenes"][name],)
        for arm, miner in _miners(name).items()
        if (one := arms.get(arm)) is not None and set(SHARES) <= one.results.keys()
    ]
    if not rows:
        return [*lines, "No system with fair trainings has this measure yet."]
    heads = [
        "system",
        "mined by",
        "captions true of the picture",
        "pictures the caption is true of",
        "trained from",
    ]
    return [*lines, table(heads, rows)]


def _passing(found: Findings, asked: list[str]) -> list[str]:
    lines = [
        "## How soon is the baseline's best passed?",
        "The paper plots recall at 1 on the validation split after each epoch of the second round (figure "
        "4). Here is, for each seed, the first epoch in which a system is above the best epoch of the system "
        "that mined for it, on the development split. The epochs of the first round are not counted.",
    ]
    rows = []
    for name in asked:
        for data, called in DATA.items():
            arms = found.fair[data][name]
            for arm, miner in _miners(name).items():
                if arm in arms and miner in arms:
                    rows.append([arm, miner, called, *_epochs(arms, arm, miner)])
    if not rows:
        return [*lines, "No system and its baseline have fair trainings yet."]
    heads = ["system", "baseline", "on", "rsum", "R@1, picture to text", "R@1, text to picture"]
    return [*lines, table(heads, rows)]


def _epochs(arms: Mapping[str, Studied], arm: str, miner: str) -> list[str]:
    """The first epochs above the baseline's best, seed by seed, by each measure."""
    measures: tuple[Followed, ...] = get_args(Followed)
    every = [epochs_to_pass(arms[arm], arms[miner], measure).values() for measure in measures]
    return [", ".join("never" if one is None else str(one) for one in epochs) or "–" for epochs in every]
