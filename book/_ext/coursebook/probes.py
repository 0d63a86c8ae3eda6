"""The table of latent targets: what captions' vectors still know, beside how good whole rankings are."""

from __future__ import annotations

from coursebook.findings import Findings
from coursebook.wording import mean, seeds, table
from vsecore.experiments import get_experiment
from vsecore.experiments.graded import GRADED
from vsecore.experiments.probe import FACTS, probe_metric

_FACTS = {
    "noun": "things",
    "colour": "colours",
    "size": "sizes",
    "relation": "relations",
    "place": "places",
}


def probes(found: Findings) -> str:
    """The systems whose captions' vectors were probed; empty for a paper without such experiments."""
    probed = [name for name in found.experiments if get_experiment(name).probes]
    if not probed:
        return ""
    lines = [
        "## What the captions' vectors still know",
        "The paper can only look at recalls. On the scenes we know what each caption says, so we ask linear "
        "probes: from a caption's vector, a ridge regression tells whether the caption names a thing, a "
        "colour, a size, a relation or a place. The numbers are areas under the ROC curve in percent: 50 is "
        "chance, 100 means that nothing of this kind is lost. Beside them stand the R-precision of caption "
        "retrieval and the nDCG of picture retrieval (the first 25, relevance by ROUGE-L), in percent. Each "
        "cell is the mean over the seeds, with its 95 % interval.",
    ]
    measures = (*map(probe_metric, FACTS), *GRADED)
    systems = [
        one
        for name in probed
        for one in found.fair["scenes"][name].values()
        if {*measures} <= one.results.keys()
    ]
    if not systems:
        return "\n\n".join([*lines, "No system with fair trainings has these measures yet."])
    heads = ["system", *(_FACTS[fact] for fact in FACTS), "R-precision", "nDCG", "trained from"]
    rows = [
        [
            one.arm,
            *(mean(list(one.results[measure].values())) for measure in measures),
            seeds(len(one.seeds)),
        ]
        for one in systems
    ]
    return "\n\n".join([*lines, table(heads, rows)])
