"""What is missing before a claim can be judged: the trainings, and how long they take."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping

from vsecore.experiments import gates, tuning
from vsecore.experiments.catalogue import get_experiment
from vsecore.experiments.experiment import Experiment
from vsecore.experiments.gates import Shut, Studied
from vsecore.experiments.verdicts import Outcome


def missing(outcome: Outcome, found: Mapping[str, Studied], data: str, seconds: float) -> list[Shut]:
    """Return the gates that keep a claim from being judged; an arm that was never trained is one too.

    Args:
        outcome: the claim's outcome.
        found: what is recorded about the experiment's arms.
        data: the name of the data.
        seconds: how long a training takes, for arms that have none. `nan`: nobody knows yet.

    Returns:
        An empty list if the claim is judged.
    """
    if outcome.judgement != "not tried":
        return list(outcome.shut)
    experiment = get_experiment(outcome.claim.experiment)
    arms = outcome.claim.arms
    untried = [arm for arm in arms if arm not in found]
    count = len(set[tuple[str, float]]().union(*(needed(experiment, arm, data) for arm in untried)))
    held: list[Shut | None] = [
        Shut(f"fair trainings of {' and '.join(untried)}", "none yet", count, count * seconds)
    ]
    for arm in (found[arm] for arm in arms if arm in found):
        held += [gates.learning_rate(arm), gates.levelled(arm), _seeds(arm, data)]
    return [shut for shut in held if shut is not None]


def needed(experiment: Experiment, arm: str, data: str) -> set[tuple[str, float]]:
    """List the trainings that a new arm needs, if the best of the first three rates is the middle one.

    Each recipe is tried at three rates from one seed. The other seeds follow; a repeated member of an
    ensemble needs all seeds of its own.

    Returns:
        For each training a recipe's name, and the rate or seed that sets it apart from the recipe's others.
    """
    wanted = set()
    for system in experiment.systems(arm, experiment.features_on(data)):
        left_out = " without true negatives" if experiment.arms[arm].only_false else ""
        wanted |= {(name + left_out, rate) for name in system.recipes for rate in tuning.FIRST}
        best = " or ".join(system.recipes) + left_out
        for seed in range(gates.seeds_wanted(data)):
            if seed != tuning.SEED or system.member.again:
                wanted.add((best, seed + 1000.0 * system.member.again))
    return wanted


def usual_seconds(arms: Iterable[Studied]) -> float:
    """Return how many seconds a training of some arms takes, the median; `nan` if there is none."""
    seconds = [training.seconds for arm in arms for training in arm.trainings if training.seconds]
    return statistics.median(seconds) if seconds else math.nan


def _seeds(arm: Studied, data: str) -> Shut | None:
    """Check that an arm has as many seeds as a claim about it will need."""
    wanted = gates.seeds_wanted(data)
    if (lacking := wanted - len(arm.seeds)) <= 0:
        return None
    each = sum(training.seconds for training in arm.trainings)
    return Shut(
        f"seeds of {arm.arm}",
        f"{len(arm.seeds)} so far, {wanted} needed",
        lacking * len(arm.trainings),
        lacking * each,
    )
