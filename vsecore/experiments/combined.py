"""An experiment on the papers' ideas together: what those of others add to 2AD.

Each idea is about another stage or another loss, so that none takes the place of another: Transformers over
regions and words (thesis), a latent target (LTD), negatives from the whole training set (AOQ). The sets of
DivE stay outside: a latent target is decoded from one vector, and a set has several.
"""

from __future__ import annotations

from vsecore.experiments.experiment import Arm, Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "combined": Experiment(
        "Do ideas of other papers add to 2AD?",
        "this course's addition; the ideas of Yan 2019 (thesis), Chen et al. 2020 (AOQ) and Bleeker et al. "
        "2023 (LTD)",
        "2ad_{features}_gru",
        {
            "2AD": Arm(),
            "2AD + relations": Arm("+relations"),
            "2AD + latent target": Arm("+latent"),
            "2AD + offline negatives": Arm("+offline+lists", mined_by="2AD"),
            "2AD + all three": Arm("+relations+latent_and_offline+lists", mined_by="2AD"),
        },
        features="region",
    ),
}
"""The experiments on several papers by name."""
