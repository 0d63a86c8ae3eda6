"""Training: one loop for every recipe (`fit`), in one or two rounds; its result; a model's evaluation."""

from vsecore.scoring import encode, evaluate_split, score_split
from vsecore.training.identity import describe_data
from vsecore.training.loop import fit, load_run
from vsecore.training.rounds import fit_in_rounds
from vsecore.training.run import Event, Run, Settings
from vsecore.training.system import System

RESULTS_VERSION = 2
"""Raised whenever the same recipe, data and seed train to another result than before: what was trained with
another version is then not taken from a cache."""

__all__ = [
    "RESULTS_VERSION",
    "Event",
    "Run",
    "Settings",
    "System",
    "describe_data",
    "encode",
    "evaluate_split",
    "fit",
    "fit_in_rounds",
    "load_run",
    "score_split",
]
