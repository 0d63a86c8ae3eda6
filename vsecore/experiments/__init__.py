"""Experiments: systems side by side on the same data, from several seeds, and what they say about a claim.

An experiment is a recipe and some variants of it, its arms. `run` trains what is not recorded yet; `table`
and `verdicts` read the records. The claims that the arms test are in `assets/claims.yml`. Each paper's
experiments have a file of their own.
"""

from vsecore.experiments.catalogue import EXPERIMENTS, get_experiment
from vsecore.experiments.experiment import LESSON_SCALE, Arm, Experiment, Member, PlannedTraining
from vsecore.experiments.ledger import Claim, Outcome, claims, measured, outcomes, table, verdict, verdicts
from vsecore.experiments.running import RESULTS, run

__all__ = [
    "EXPERIMENTS",
    "LESSON_SCALE",
    "RESULTS",
    "Arm",
    "Claim",
    "Experiment",
    "Member",
    "Outcome",
    "PlannedTraining",
    "claims",
    "get_experiment",
    "measured",
    "outcomes",
    "run",
    "table",
    "verdict",
    "verdicts",
]
