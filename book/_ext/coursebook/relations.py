"""The table of relations: how often a system prefers the right one of two pictures, or of two captions."""

from __future__ import annotations

from coursebook.findings import DATA, Findings
from coursebook.wording import FEATURES, mean, seeds, table
from vsecore.experiments import Studied, get_experiment
from vsecore.experiments.pairs import METRICS, PICTURES

HEADS = ("right picture of two", "right caption of two", "told by left or right", "told by another relation")
"""What a reader calls `pairs.METRICS`."""


def relations(found: Findings) -> str:
    """All systems of the experiments that look at relations, the best first; empty if there are none."""
    asked = [name for name in found.experiments if get_experiment(name).pairs]
    if not asked:
        return ""
    lines = [
        "## Who sees relations?",
        f"{PICTURES:,} scenes stand in pairs that hold the same things and differ in one relation alone, so "
        "that the captions of either are false of the other. For each caption we ask which picture of the "
        "pair a system prefers, and for each picture whether it prefers one of its captions to one of the "
        "other's. A tie counts half, and whoever knows only which things there are is right in 50 % of the "
        "cases. The last two columns are parts of the first: captions that *left of* or *right of* alone "
        "makes false of the other picture, and all other captions. Each cell has the mean in percent over "
        "the seeds, with its 95 % interval.",
    ]
    rows = []
    for name in asked:
        for data, called in DATA.items():
            kind = get_experiment(name).features_on(data)
            for arm, studied in found.fair[data][name].items():
                if METRICS[0] in studied.results:
                    rows.append(_row(arm, f"{called}, {FEATURES[kind]}", studied))
    if not rows:
        return "\n\n".join([*lines, "No system with fair trainings has this measure yet."])
    rows.sort(key=lambda row: -row[0])
    heads = ["system", "on", *HEADS, "trained from"]
    return "\n\n".join([*lines, table(heads, [cells for _, cells in rows])])


def _row(arm: str, where: str, studied: Studied) -> tuple[float, list[str]]:
    """A system's row, behind the mean that rows are sorted by."""
    found = [studied.results.get(metric, {}).values() for metric in METRICS]
    first = sum(found[0]) / len(found[0])
    return first, [arm, where, *map(mean, found), seeds(len(found[0]))]
