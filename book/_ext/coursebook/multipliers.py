"""The table of constraints: how each multiplier moved, and the losses beside it."""

from __future__ import annotations

from coursebook.findings import Findings
from coursebook.wording import mean, seeds, table
from vsecore.experiments import Studied, get_experiment
from vsecore.experiments.constraint import (
    ABOVE_BOUND,
    BOUND_MET,
    CONTRAST,
    HIGHEST,
    LEFT,
    RETURNS,
)


def multipliers(found: Findings) -> str:
    """The systems whose losses were followed, each once; empty for a paper without such experiments."""
    followed = [name for name in found.experiments if get_experiment(name).follows_losses]
    if not followed:
        return ""
    lines = [
        "## What the multiplier did",
        "The paper reads five observations from the paths of λ and of the losses (its figure 3). λ rises "
        "while the reconstruction loss is above its bound, and the further above, the faster. Apart from a "
        "short memory, this follows from the rule that moves λ, and a test compares its path with that rule. "
        "The rest depends on the training. Each cell is the mean over the seeds, with its 95 % interval: the "
        "contrastive loss of the last epoch; how far the reconstruction loss of the last epoch is above its "
        "bound, in percent of the bound; the first epoch whose mean loss met the bound; the highest λ, what "
        "is left of it at the end in percent, and how often it rose again from 0.",
    ]
    systems: dict[tuple[str, str], Studied] = {}
    for name in followed:
        for one in found.fair["scenes"][name].values():
            if {*CONTRAST} <= one.results.keys():
                systems.setdefault(one.title, one)
    if not systems:
        return "\n\n".join([*lines, "No system with fair trainings has these measures yet."])
    heads = [
        "system",
        "contrastive loss",
        "above the bound, %",
        "bound met in epoch",
        "highest λ",
        "λ left, %",
        "returns from 0",
        "trained from",
    ]
    rows = [
        [
            one.arm,
            mean(_values(one, CONTRAST[-1]), 3),
            mean(_values(one, ABOVE_BOUND)),
            _met(_values(one, BOUND_MET)),
            *(mean(_values(one, measure)) for measure in (HIGHEST, LEFT, RETURNS)),
            seeds(len(one.seeds)),
        ]
        for one in systems.values()
    ]
    return "\n\n".join([*lines, table(heads, rows)])


def _values(arm: Studied, measure: str) -> list[float]:
    return list(arm.results.get(measure, {}).values())


def _met(epochs: list[float]) -> str:
    """The epoch in which the bound was met, if it was from all seeds; else from how many."""
    if 0 not in epochs:
        return mean(epochs)
    return f"from {sum(epoch > 0 for epoch in epochs)} of {seeds(len(epochs))}"
