"""Experiments: systems side by side on the same data, from several seeds, and what they say about a claim.

An experiment is a recipe and some variants of it, its arms. `run` trains what is not recorded yet; `studied`
and `verdicts` read the records. The claims that the arms test are in `assets/claims.yml`; what must be so
before one is judged is in `gates`, and `missing` says what is still to be trained for it. Each paper's
experiments have a file of their own.
"""

from vsecore.experiments.catalogue import EXPERIMENTS, get_experiment
from vsecore.experiments.claims import Claim, claims
from vsecore.experiments.departures import Departure, departures
from vsecore.experiments.experiment import Arm, Candidates, Experiment, Member, PlannedTraining
from vsecore.experiments.gates import Shut, Studied
from vsecore.experiments.ledger import measured, side_by_side, studied
from vsecore.experiments.missing import missing, summary, train_missing
from vsecore.experiments.pairs import pair_accuracy, pair_scores, relation_pairs, told_by_left_right
from vsecore.experiments.passing import epochs_to_pass
from vsecore.experiments.running import RESULTS, run
from vsecore.experiments.scales import FAIR_SCALE, LESSON_SCALE, Scale
from vsecore.experiments.verdicts import Outcome, outcomes, verdicts
from vsecore.experiments.worlds import WORLDS, collection_of

__all__ = [
    "EXPERIMENTS",
    "FAIR_SCALE",
    "LESSON_SCALE",
    "RESULTS",
    "WORLDS",
    "Arm",
    "Candidates",
    "Claim",
    "Departure",
    "Experiment",
    "Member",
    "Outcome",
    "PlannedTraining",
    "Scale",
    "Shut",
    "Studied",
    "claims",
    "collection_of",
    "departures",
    "epochs_to_pass",
    "get_experiment",
    "measured",
    "missing",
    "outcomes",
    "pair_accuracy",
    "pair_scores",
    "relation_pairs",
    "run",
    "side_by_side",
    "studied",
    "summary",
    "told_by_left_right",
    "train_missing",
    "verdicts",
]
