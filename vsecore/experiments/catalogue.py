"""Every experiment of the course by name."""

from __future__ import annotations

from vsecore.experiments import relational, two_ad
from vsecore.experiments.experiment import Experiment

BY_WORK: dict[str, dict[str, Experiment]] = {
    "2ad": two_ad.EXPERIMENTS,
    "relational": relational.EXPERIMENTS,
}
"""The experiments on each work, by its key."""
EXPERIMENTS: dict[str, Experiment] = {**two_ad.EXPERIMENTS, **relational.EXPERIMENTS}
"""The experiments of all papers."""


def get_experiment(name: str) -> Experiment:
    """Return the experiment with this name; raise ValueError if there is none."""
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment {name!r} is unknown: there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
