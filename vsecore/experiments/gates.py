"""The conditions for judging a claim: an unfinished training says nothing about a method.

If the weaker of two arms stays below the linear baseline although its learning rate is tuned and its
training complete, the claim is judged all the same, and the verdict says that this arm failed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vsecore.experiments import tuning
from vsecore.experiments.claims import LOSS_MARGIN, MARGIN, SUBJECTS, About, Claim, When
from vsecore.experiments.experiment import get_experiment
from vsecore.experiments.scales import SCENES
from vsecore.experiments.watching import BOUND_MET, LOWEST, MULTIPLIERS, RECONSTRUCTIONS

LEVELLED = 0.01
"""A training has levelled off if the last third of its epochs added less than this share of its rsum."""
SEEDS = {SCENES: 5}
"""How many seeds both arms need, by data; three where none are named."""
SEEDS_ELSEWHERE = 3


@dataclass(frozen=True)
class Trained:
    """What is recorded about one system of an arm."""

    name: str
    """The recipe's name."""
    tried: Mapping[float, float]
    """The best rsum on dev at each learning rate."""
    curves: Sequence[Sequence[float]]
    """The rsum on dev after each epoch at the best rate, from each seed."""
    full_length: bool
    """Whether it took as many epochs as its recipe asks for."""


@dataclass(frozen=True)
class Studied:
    """What is recorded about one arm."""

    arm: str
    trainings: Sequence[Trained]
    """That of its one system, or one for each member of an ensemble."""
    results: Mapping[str, Mapping[int, float]]
    """Each measure by seed, on the test split except for `claims.EARLY`; `i2t_rsum` and `t2i_rsum` are the
    sums of the three recalls of a direction."""
    baseline: Mapping[str, float]
    """The measures of a ridge regression on its features, the best if its members have several."""
    title: tuple[str, str]
    """Name and digest of its records: the same if two arms are the same system."""

    @property
    def seeds(self) -> set[int]:
        """The seeds that it was trained from."""
        return set(self.results.get("rsum", ()))

    @property
    def rsum(self) -> float:
        """The mean over its seeds."""
        return statistics.mean(self.results["rsum"].values())

    def epochs(self, begins: str) -> dict[int, list[float]]:
        """Return what is recorded for each epoch, by seed, under names that begin like this."""
        found: dict[int, dict[int, float]] = {}
        for metric, by_seed in self.results.items():
            if metric.startswith(begins):
                for seed, value in by_seed.items():
                    found.setdefault(seed, {})[int(metric.removeprefix(begins))] = value
        return {seed: [values[epoch] for epoch in sorted(values)] for seed, values in found.items()}


@dataclass(frozen=True)
class Shut:
    """A gate that keeps a claim from being judged."""

    gate: str
    """Its name, in a word or two."""
    why: str


def measures_of(data: str, when: When = "at the end", about: About = "both ways") -> tuple[str, ...]:
    """Return the measures that judge a claim on some data; (): the data cannot answer."""
    return SUBJECTS[about].of(data, when)


def seeds_wanted(data: str) -> int:
    """Return how many seeds both arms of a claim need on some data."""
    return SEEDS.get(data, SEEDS_ELSEWHERE)


def never(claim: Claim, data: str) -> Shut | None:
    """Check that a claim can be judged on some data at all, however much is trained."""
    experiment = get_experiment(claim.experiment)
    for arm in claim.arms:
        if not experiment.trains_on(arm, data):
            if experiment.arms[arm].only_false:
                return Shut("no known truth", "which captions are true of which pictures is not known")
            return Shut("one kind of features", f"{arm} has features that these data lack")
    if claim.measures_of(data):
        return None
    return Shut("no known truth", "no two of these pictures are known to differ in one relation alone")


def shut(
    first: Studied, second: Studied, data: str, when: When = "at the end", about: About = "both ways"
) -> list[Shut]:
    """Return the gates that are shut for a comparison of two arms, in order; none if it may be judged.

    The linear baseline is a matter of retrieval in both directions, whatever the claim is about.
    """
    found: list[Shut | None] = []
    if first.title == second.title:  # one that is chosen on dev may turn out to be the other
        found.append(Shut("one system", f"{first.arm} and {second.arm} are the same trainings"))
    for arm in (first, second):
        found += [learning_rate(arm), levelled(arm)]
        failed = arm is weaker(first, second) and is_finished(arm) and _has_baseline(arm, data)
        if not failed:  # else the verdict says so
            found.append(above_baseline(arm, data))
    found += [seeds(first, second, data), measured(first, second, measures_of(data, when, about))]
    found.append(far_enough(first, about))
    return [gate for gate in found if gate is not None]


def zero(arm: Studied, data: str, about: About) -> Studied:
    """Return what an arm is compared with where a claim is about it alone: 0, from the same seeds.

    No gate is shut for it, and it never is the weaker of the two.
    """
    measures = {measure: dict.fromkeys(arm.seeds, 0.0) for measure in measures_of(data, about=about)}
    above = {"rsum": dict.fromkeys(arm.seeds, math.inf)}
    return Studied("0", [], above | measures, dict.fromkeys(measures_of(data), 0.0), ("", ""))


def weaker(first: Studied, second: Studied) -> Studied:
    """Return the arm with the lower mean rsum."""
    return min(first, second, key=lambda arm: arm.rsum)


def is_finished(arm: Studied) -> bool:
    """Whether an arm's learning rates are chosen and its trainings complete."""
    return learning_rate(arm) is None and levelled(arm) is None


def learning_rate(arm: Studied) -> Shut | None:
    """Check that each learning rate is the best of at least three on dev, and not the lowest or highest."""
    for training in arm.trainings:
        if not tuning.is_settled(training.tried):
            rates = ", ".join(f"{rate:g}" for rate in training.tried) or "none"
            why = f"tried for {training.name}: {rates}; the best must lie between two others"
            return Shut(f"learning rate of {arm.arm}", why)
    return None


def levelled(arm: Studied) -> Shut | None:
    """Check that the last third of the epochs added under 1 % of the rsum, or that the recipe wants no more.

    The rsum is the mean over the arm's seeds, so that one noisy seed does not decide.
    """
    for training in arm.trainings:
        if training.full_length:
            continue
        if not training.curves:
            return Shut(f"length of {arm.arm}", f"no epochs of {training.name} are recorded")
        curve = _mean_curve(training.curves)
        gain = late_gain(curve)
        if gain >= LEVELLED:
            why = f"the last third of {len(curve)} epochs still brought {100 * gain:.1f} % of its rsum"
            return Shut(f"length of {arm.arm}", why)
    return None


def late_gain(curve: Sequence[float]) -> float:
    """Return the share of its best rsum that a training gained in the last third of its epochs."""
    return 1 - max(curve[: _before_last_third(curve)], default=0.0) / max(curve)


def above_baseline(arm: Studied, data: str) -> Shut | None:
    """Check that every seed is clearly above a ridge regression on the same features, by each measure."""
    if not _has_baseline(arm, data):
        return Shut(f"baseline of {arm.arm}", "no ridge regression is recorded on its features")
    for measure in measures_of(data):
        lowest = min(arm.results.get(measure, {0: math.inf}).values())
        if lowest <= (1 + MARGIN) * arm.baseline[measure]:
            why = f"its {measure}, {lowest:.1f}, is not clearly above that of a ridge regression"
            return Shut(f"baseline of {arm.arm}", f"{why}, {arm.baseline[measure]:.1f}")
    return None


def _has_baseline(arm: Studied, data: str) -> bool:
    return set(measures_of(data)) <= arm.baseline.keys()


def seeds(first: Studied, second: Studied, data: str) -> Shut | None:
    """Check that both arms were trained from the same seeds, five on the scenes, three on photographs."""
    wanted, shared = seeds_wanted(data), first.seeds & second.seeds
    enough = len(shared) >= wanted
    return None if enough else Shut("seeds", f"{len(shared)} in common, {wanted} needed")


def measured(first: Studied, second: Studied, measures: Sequence[str]) -> Shut | None:
    """Check that both arms have every measure, from the seeds that they share."""
    shared = first.seeds & second.seeds
    for measure in measures:
        for arm in (first, second):
            if missing := shared - arm.results.get(measure, {}).keys():
                lacking = ", ".join(str(seed) for seed in sorted(missing))
                return Shut("measures", f"{measure} of {arm.arm} is not recorded for seeds {lacking}")
    return None


def far_enough(arm: Studied, about: About) -> Shut | None:
    """Check that an arm has reached what a claim about it alone is about, and has levelled off there.

    A multiplier can settle only once the bound is met, and return from 0 only if it was there. The paper's
    trainings have many times more steps than ours, so a multiplier or a loss that still moves says nothing
    yet.
    """
    unmet = [seed for seed, epoch in arm.results.get(BOUND_MET, {}).items() if not epoch]
    above = [seed for seed, lowest in arm.results.get(LOWEST, {}).items() if lowest > 0]
    for fails, gate, what, of_seeds in (
        (about == "fall of the multiplier", "bound", "it was not met", unmet),
        (about == "return of the multiplier", "multiplier", "it was never at 0", above),
    ):
        if fails and of_seeds:
            which = f"seed{'s' if len(of_seeds) > 1 else ''} {', '.join(map(str, sorted(of_seeds)))}"
            return Shut(f"{gate} of {arm.arm}", f"{what} with {which}")
    if about == "fall of the multiplier":
        return _settled(arm, MULTIPLIERS, "multiplier", SUBJECTS[about].margin / 100)
    if about == "bound":
        return _settled(arm, RECONSTRUCTIONS, "reconstruction loss", LOSS_MARGIN)
    return None


def _settled(arm: Studied, begins: str, what: str, allowed: float) -> Shut | None:
    """Check that the last third of the epochs changed something by less than a share of its highest value.

    It looks at the mean over the seeds.
    """
    curve = _mean_curve(list(arm.epochs(begins).values()))
    if not curve or all(training.full_length for training in arm.trainings):
        return None
    changed = abs(curve[-1] - curve[_before_last_third(curve) - 1]) / (max(curve) or 1.0)
    if changed < allowed:
        return None
    why = f"the last third of {len(curve)} epochs still changed it by {100 * changed:.0f} % of its peak"
    return Shut(f"{what} of {arm.arm}", why)


def _mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.mean(epoch) for epoch in zip(*curves, strict=True)]


def _before_last_third(curve: Sequence[float]) -> int:
    """Return how many epochs come before the last third."""
    return len(curve) - max(len(curve) // 3, 1)
