"""Training: one loop for every recipe (`fit`), its result (`Run`), and the evaluation of a model."""

from vsecore.encoding import encode
from vsecore.training.embedding import evaluate_split, score_split
from vsecore.training.loop import Event, Run, describe_data, fit, load_run
from vsecore.training.system import System

__all__ = [
    "Event",
    "Run",
    "System",
    "describe_data",
    "encode",
    "evaluate_split",
    "fit",
    "load_run",
    "score_split",
]
