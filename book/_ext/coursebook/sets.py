"""The tables of embedding sets: how widely their vectors point, and what each vector is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coursebook.findings import Findings
from coursebook.wording import mean, seeds, table
from vsecore.experiments import Studied
from vsecore.experiments.set_elements import SIDES, alone, without
from vsecore.experiments.set_variance import LOG_VARIANCES

_MOST = 6  # vectors in a set, as in table 4 of the paper
_RETRIEVAL = ("rsum", "i2t_map_at_r", "t2i_map_at_r")


def sets(found: Findings) -> str:
    """The systems whose embeddings are sets, each once; empty for a paper without experiments on sets."""
    if not any(name.startswith("set_") for name in found.experiments):
        return ""
    lines = [
        "## Do the sets collapse?",
        "The paper measures how widely the vectors of a set point by its circular variance: 0 if all point "
        "the same way, 1 if their directions cancel out. Here are the natural logarithms, averaged over the "
        "sets of the test split, beside the two measures of retrieval: rsum, and mAP@R on exact truth in "
        "percent. Each cell is the mean over the seeds, with its 95 % interval.",
    ]
    systems: dict[tuple[str, str], Studied] = {}
    for name in found.experiments:
        for one in found.fair["scenes"][name].values():
            if {*LOG_VARIANCES, *_RETRIEVAL} <= one.results.keys():
                systems.setdefault(one.title, one)
    if not systems:
        return "\n\n".join([*lines, "No system with fair trainings has this measure yet."])
    heads = [
        "system",
        "log variance, pictures",
        "log variance, captions",
        "rsum",
        "mAP@R, picture to text",
        "mAP@R, text to picture",
        "trained from",
    ]
    rows = [
        [
            one.arm,
            *(mean(list(one.results[measure].values()), 2) for measure in LOG_VARIANCES),
            *(mean(list(one.results[measure].values())) for measure in _RETRIEVAL),
            seeds(len(one.seeds)),
        ]
        for one in systems.values()
    ]
    return "\n\n".join([*lines, table(heads, rows), *_elements(list(systems.values()))])


def _elements(systems: Sequence[Studied]) -> list[str]:
    """What single vectors are worth."""
    rows = []
    for one in systems:
        for side, name in zip(SIDES, ("pictures", "captions"), strict=True):
            only, less = (_by_seed(one, side, metric) for metric in (alone, without))
            if not only:
                continue
            cells = [mean([end(sums) for sums in each]) for each in (only, less) for end in (max, min)]
            whole = [one.results["rsum"][seed] for seed in one.results[alone(side, 1)]]
            rows.append([one.arm, name, mean(whole), *cells, seeds(len(whole))])
    heads = ["system", "vectors of", "whole sets", "the best one alone", "the worst one alone"]
    return [
        "## One vector at a time",
        "Table 5 of the paper keeps one vector of each set of one side, or leaves one out, and compares with "
        "the whole sets of the other side. Here are the sums of the recalls. Each seed numbers its slots "
        "in its own order, so we take the best and the worst vector of each seed. Each cell is the mean over "
        "the seeds, with its 95 % interval.",
        table([*heads, "without the least needed", "without the most needed", "trained from"], rows)
        if rows
        else "No system with fair trainings has this measure yet.",
    ]


def _by_seed(one: Studied, side: str, metric: Callable[[str, int], str]) -> list[list[float]]:
    """For each seed, a measure of all vectors of a side."""
    found = [values for number in range(1, _MOST + 1) if (values := one.results.get(metric(side, number)))]
    return [[values[seed] for values in found if seed in values] for seed in (found[0] if found else ())]
