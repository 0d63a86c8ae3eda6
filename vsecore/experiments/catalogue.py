"""Every experiment of the course by name."""

from __future__ import annotations

from vsecore.experiments import aoq, combined, dive, ltd, relational, two_ad
from vsecore.experiments.experiment import Experiment

BY_WORK: dict[str, dict[str, Experiment]] = {
    "2ad": two_ad.EXPERIMENTS | combined.EXPERIMENTS,  # ideas of other papers are added to 2AD
    "relational": relational.EXPERIMENTS,
    "aoq": aoq.EXPERIMENTS,
    "dive": dive.EXPERIMENTS,
    "ltd": ltd.EXPERIMENTS,
}
"""The experiments on each work, by its key."""
EXPERIMENTS: dict[str, Experiment] = {
    name: experiment for several in BY_WORK.values() for name, experiment in several.items()
}
"""The experiments of all papers."""


def get_experiment(name: str) -> Experiment:
    """Return the experiment with this name; raise ValueError if there is none."""
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment {name!r} is unknown: there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
