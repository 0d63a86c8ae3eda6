"""Every experiment of the course by its name."""

from __future__ import annotations

from vsecore.experiments import two_ad
from vsecore.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {**two_ad.EXPERIMENTS}
"""The experiments of all works."""


def get_experiment(name: str) -> Experiment:
    """The experiment of a name; raises ValueError where there is none."""
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment {name!r} is unknown: there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
