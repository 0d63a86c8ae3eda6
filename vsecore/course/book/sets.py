"""The table of embedding sets: how widely their vectors point, beside how well they retrieve."""

from __future__ import annotations

from vsecore.course.book.findings import Findings
from vsecore.course.book.wording import mean, seeds, table
from vsecore.experiments import Studied
from vsecore.experiments.set_variance import LOG_VARIANCES

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
    return "\n\n".join([*lines, table(heads, rows)])
