"""Experiments: systems side by side on the same data, from several seeds, and what they say about a claim.

An experiment is a recipe and some variants of it, its arms; all are in `assets/experiments.yml`. `run` trains
what is not recorded yet; `studied` and `outcomes` read the records. The claims that the arms test are in
`assets/claims.yml`; what must be so before one is judged is in `gates`, and `missing` says what is still to
be trained for it. `compare` holds any runs side by side.
"""

from vsecore.experiments.claims import Claim, claims, departures
from vsecore.experiments.experiment import EXPERIMENTS, Arm, Experiment, get_experiment
from vsecore.experiments.ledger import Studied, epochs_to_pass, studied
from vsecore.experiments.measures import pair_accuracy, pair_scores
from vsecore.experiments.missing import summary, train_missing
from vsecore.experiments.running import RESULTS, Settings, run
from vsecore.experiments.scales import FAIR_SCALE, LESSON_SCALE, WORLDS, collection_of
from vsecore.experiments.verdicts import Outcome, outcomes

__all__ = [
    "EXPERIMENTS",
    "FAIR_SCALE",
    "LESSON_SCALE",
    "RESULTS",
    "WORLDS",
    "Arm",
    "Claim",
    "Experiment",
    "Outcome",
    "Settings",
    "Studied",
    "claims",
    "collection_of",
    "departures",
    "epochs_to_pass",
    "get_experiment",
    "outcomes",
    "pair_accuracy",
    "pair_scores",
    "run",
    "studied",
    "summary",
    "train_missing",
]
