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
from vsecore.experiments.catalogue import get_experiment
from vsecore.experiments.claims import ALONE, About, Claim, When
from vsecore.experiments.constraint import (
    ABOVE_BOUND,
    BOUND_MET,
    CONTRAST,
    LEFT,
    LOWEST,
    MULTIPLIERS,
    RECONSTRUCTIONS,
    RETURNS,
)
from vsecore.experiments.set_variance import LOG_VARIANCES

LEVELLED = 0.01
"""A training has levelled off if the last third of its epochs added less than this share of its rsum."""
MARGIN = 0.01
"""Differences below this share of a measure are too small to matter; set before any verdict. Of a variance
whose logarithm is measured, it is this share of the variance."""
LOSS_MARGIN = 0.05
"""The same for losses in training, which vary more from batch to batch."""
SEEDS = {"scenes": 5}
"""How many seeds both arms need, by data; three where none are named."""
SEEDS_ELSEWHERE = 3
MEASURES = {"scenes": ("rsum", "i2t_map_at_r", "t2i_map_at_r")}
"""The measures that count, by data: on the scenes, whose truth is known, also mAP@R on it, both ways."""
MEASURES_ELSEWHERE = ("rsum",)
ONE_WAY: dict[About, str] = {"caption retrieval": "i2t", "image retrieval": "t2i"}
"""The prefix of its measures, where a claim is about one direction."""
PAIRS = {"scenes": ("pairs_t2i", "pairs_i2t")}
"""The measures of a claim about relations; only the scenes have pictures that differ in one alone."""
FIRST_PLACE = "both_r1"
"""Judges claims about the first place: the percentage of pairs whose cross-retrieval rank is 0."""
OF_LOSSES: dict[About, tuple[str, ...]] = {
    "contrastive loss": CONTRAST,
    "bound": (ABOVE_BOUND,),
    "fall of the multiplier": (LEFT,),
    "return of the multiplier": (RETURNS,),
}
"""The measures of what is followed in training."""
EARLY = "early_rsum"
"""Judges claims about early training: the mean rsum on dev over the first third of the epochs."""


@dataclass(frozen=True)
class Training:
    """What is recorded about one system of an arm."""

    name: str  # the recipe's name
    tried: Mapping[float, float]  # the best rsum on dev at each learning rate
    curves: Sequence[Sequence[float]]  # rsum on dev after each epoch at the best rate, from each seed
    full_length: bool  # whether it took as many epochs as its recipe asks for
    seconds: float  # wall time of one training; the median, since one may have been paused


@dataclass(frozen=True)
class Studied:
    """What is recorded about one arm."""

    arm: str
    trainings: Sequence[Training]  # one for its system, or one for each member of an ensemble
    results: Mapping[str, Mapping[int, float]]  # each measure by seed, of the test split except for `EARLY`;
    # `i2t_rsum` and `t2i_rsum` are the sums of the three recalls of a direction
    baseline: Mapping[str, float]  # of a ridge regression on its features, the best of its members'
    device: str  # what it was trained on
    title: tuple[str, str]  # name and digest of its records: the same if two arms are the same system

    @property
    def seeds(self) -> set[int]:
        """The seeds that it was trained from."""
        return set(self.results.get("rsum", ()))

    @property
    def rsum(self) -> float:
        """The mean over its seeds."""
        return statistics.mean(self.results["rsum"].values())

    def epochs(self, begins: str) -> dict[int, list[float]]:
        """Return what is recorded for each epoch, by seed: its names begin so and end with the epoch."""
        found: dict[int, dict[int, float]] = {}
        for metric, by_seed in self.results.items():
            if metric.startswith(begins):
                for seed, value in by_seed.items():
                    found.setdefault(seed, {})[int(metric.removeprefix(begins))] = value
        return {seed: [values[epoch] for epoch in sorted(values)] for seed, values in found.items()}


@dataclass(frozen=True)
class Shut:
    """A gate that keeps a claim from being judged."""

    gate: str  # its name, in a word or two
    why: str
    trainings: int  # how many would open it, if they go well
    seconds: float  # how long those take


def measures_of(data: str, when: When = "at the end", about: About = "both ways") -> tuple[str, ...]:
    """Return the measures that count on some data; none for a claim about relations where there are no pairs.

    In one direction, these are the sum of its three recalls and its mAP@R; of spread, the logarithms of the
    circular variance of pictures' sets and of captions' sets; for what happens in training, see `constraint`.
    """
    if when == "early in training":
        return (EARLY,)
    if about == "first place":
        return (FIRST_PLACE,)
    if about == "spread":
        return LOG_VARIANCES
    if about in OF_LOSSES:
        return OF_LOSSES[about]
    if about == "relations":
        return PAIRS.get(data, ())
    measures = MEASURES.get(data, MEASURES_ELSEWHERE)
    if about == "both ways":
        return measures
    way = ONE_WAY[about]
    return (f"{way}_rsum", *(measure for measure in measures if measure.startswith(way)))


def seeds_wanted(data: str) -> int:
    """Return how many seeds both arms of a claim need on some data."""
    return SEEDS.get(data, SEEDS_ELSEWHERE)


def no_measures(data: str, about: About) -> Shut | None:
    """Check that the data have what a claim is about; no training helps where they do not."""
    if measures_of(data, about=about):
        return None
    return Shut(
        "no known truth", "no two of these pictures are known to differ in one relation alone", 0, 0.0
    )


def never(claim: Claim, data: str) -> Shut | None:
    """Check that a claim can be judged on some data at all, however much is trained."""
    experiment = get_experiment(claim.experiment)
    for arm in claim.arms:
        if not experiment.trains_on(arm, data):
            if experiment.arms[arm].only_false:
                return Shut(
                    "no known truth", "which captions are true of which pictures is not known", 0, 0.0
                )
            return Shut("one kind of features", f"{arm} has features that these data lack", 0, 0.0)
    return no_measures(data, claim.about)


def shut(
    first: Studied, second: Studied, data: str, when: When = "at the end", about: About = "both ways"
) -> list[Shut]:
    """Return the gates that are shut for a comparison of two arms, in order; none if it may be judged.

    The linear baseline is a matter of retrieval in both directions, whatever the claim is about.
    """
    found: list[Shut | None] = [same_system(first, second)]
    for arm in (first, second):
        found += [learning_rate(arm), levelled(arm)]
        if not _compared(arm, data) or not (arm is weaker(first, second) and is_finished(arm)):
            found.append(above_baseline(arm, data))
    found += [seeds(first, second, data), measured(first, second, data, when, about)]
    found.append(comes_to_it(first, about))
    return [gate for gate in found if gate is not None]


def zero(arm: Studied, data: str, about: About) -> Studied:
    """Return what an arm is compared with where a claim is about it alone: 0, from the same seeds.

    No gate is shut for it, and it never is the weaker of the two.
    """
    measures = {measure: dict.fromkeys(arm.seeds, 0.0) for measure in measures_of(data, about=about)}
    above = {"rsum": dict.fromkeys(arm.seeds, math.inf)}
    return Studied("0", [], above | measures, dict.fromkeys(measures_of(data), 0.0), arm.device, ("", ""))


def same_system(first: Studied, second: Studied) -> Shut | None:
    """Check that the arms are two systems: one that is chosen on dev may turn out to be the other."""
    if first.title != second.title:
        return None
    return Shut("one system", f"{first.arm} and {second.arm} are the same trainings", 0, 0.0)


def weaker(first: Studied, second: Studied) -> Studied:
    """Return the arm with the lower mean rsum."""
    return min(first, second, key=lambda arm: arm.rsum)


def learning_rate(arm: Studied) -> Shut | None:
    """Check that each learning rate is the best of at least three on dev, and not the lowest or highest."""
    for training in arm.trainings:
        if not tuning.is_settled(training.tried):
            missing = tuning.still_to_try(training.tried)
            rates = ", ".join(f"{rate:g}" for rate in training.tried) or "none"
            return Shut(
                f"learning rate of {arm.arm}",
                f"tried for {training.name}: {rates}; the best must lie between two others",
                len(missing),
                len(missing) * training.seconds,
            )
    return None


def levelled(arm: Studied) -> Shut | None:
    """Check that the last third of the epochs added under 1 % of the rsum, or that the recipe wants no more.

    The rsum is the mean over the arm's seeds, so that one noisy seed does not decide.
    """
    for training in arm.trainings:
        if training.full_length:
            continue
        if not training.curves:
            return Shut(f"length of {arm.arm}", f"no epochs of {training.name} are recorded", 0, 0.0)
        curve = [statistics.mean(epoch) for epoch in zip(*training.curves, strict=True)]
        gain = late_gain(curve)
        if gain >= LEVELLED:
            return _twice_as_long(
                arm,
                [training],
                f"length of {arm.arm}",
                f"the last third of {len(curve)} epochs still brought {100 * gain:.1f} % of its rsum",
            )
    return None


def late_gain(curve: Sequence[float]) -> float:
    """Return the share of its best rsum that a training gained in the last third of its epochs.

    Args:
        curve: rsum on dev after each epoch, the mean over the seeds.
    """
    return 1 - max(curve[: _before(curve)], default=0.0) / max(curve)


def above_baseline(arm: Studied, data: str) -> Shut | None:
    """Check that every seed is clearly above a ridge regression on the same features, by each measure."""
    if not _compared(arm, data):
        return Shut(f"baseline of {arm.arm}", "no ridge regression is recorded on its features", 0, 0.0)
    for measure in _below_baseline(arm, data):
        lowest, baseline = min(arm.results[measure].values()), arm.baseline[measure]
        return Shut(
            f"baseline of {arm.arm}",
            f"its {measure}, {lowest:.1f}, is not clearly above that of a ridge regression, {baseline:.1f}",
            0,
            0.0,
        )
    return None


def is_below_baseline(arm: Studied, data: str) -> bool:
    """Whether some seed is not above the linear baseline by more than the margin, by some measure."""
    return bool(_below_baseline(arm, data))


def _compared(arm: Studied, data: str) -> bool:
    """Whether the linear baseline's result is known for each measure."""
    return set(measures_of(data)) <= arm.baseline.keys()


def _below_baseline(arm: Studied, data: str) -> list[str]:
    """Return the measures by which some seed is not clearly above the linear baseline."""
    return [
        measure
        for measure in measures_of(data)
        if measure in arm.baseline
        and min(arm.results.get(measure, {0: math.inf}).values()) <= (1 + MARGIN) * arm.baseline[measure]
    ]


def is_finished(arm: Studied) -> bool:
    """Whether an arm's learning rates are chosen and its trainings complete."""
    return learning_rate(arm) is None and levelled(arm) is None


def seeds(first: Studied, second: Studied, data: str) -> Shut | None:
    """Check that both arms were trained from the same seeds, five on the scenes, three on photographs."""
    wanted, shared = seeds_wanted(data), first.seeds & second.seeds
    if len(shared) >= wanted:
        return None
    # A seed that one arm already has costs one training, a new one two.
    lacking = wanted - len(shared)
    of_first = min(lacking, len(first.seeds - shared))
    of_second = min(lacking - of_first, len(second.seeds - shared))
    counts = (lacking - of_first, lacking - of_second)
    trainings, seconds = 0, 0.0
    for count, arm in zip(counts, (first, second), strict=True):
        trainings += count * len(arm.trainings)
        seconds += count * sum(training.seconds for training in arm.trainings)
    return Shut("seeds", f"{len(shared)} in common, {wanted} needed", trainings, seconds)


def measured(
    first: Studied, second: Studied, data: str, when: When = "at the end", about: About = "both ways"
) -> Shut | None:
    """Check that both arms have every measure that counts on the data, from the same seeds."""
    shared = first.seeds & second.seeds
    for measure in measures_of(data, when, about):
        for arm in (first, second):
            if missing := shared - arm.results.get(measure, {}).keys():
                seconds = sum(training.seconds for training in arm.trainings)
                lacking = ", ".join(str(seed) for seed in sorted(missing))
                return Shut(
                    "measures",
                    f"{measure} of {arm.arm} is not recorded for seeds {lacking}",
                    len(missing) * len(arm.trainings),
                    len(missing) * seconds,
                )
    return None


def comes_to_it(arm: Studied, about: About) -> Shut | None:
    """Check that an arm has reached what a claim about it alone is about, and has levelled off there.

    A multiplier can settle only once the bound is met, and return from 0 only if it was there. The paper's
    trainings have many times more steps than ours, so a multiplier or a loss that still moves says nothing
    yet.
    """
    if about == "fall of the multiplier":
        unmet = [seed for seed, epoch in arm.results.get(BOUND_MET, {}).items() if not epoch]
        if unmet:
            return _never(arm, f"bound of {arm.arm}", "it was not met", unmet)
        return _on_its_way(arm, MULTIPLIERS, "multiplier", ALONE[about] / 100)
    if about == "return of the multiplier":
        above = [seed for seed, lowest in arm.results.get(LOWEST, {}).items() if lowest > 0]
        return _never(arm, f"multiplier of {arm.arm}", "it was never at 0", above) if above else None
    if about == "bound":
        return _on_its_way(arm, RECONSTRUCTIONS, "reconstruction loss", LOSS_MARGIN)
    return None


def _never(arm: Studied, gate: str, what: str, seeds: Sequence[int]) -> Shut:
    told = ", ".join(str(seed) for seed in sorted(seeds))
    why = f"{what} with seed{'s' if len(seeds) > 1 else ''} {told}"
    return _twice_as_long(arm, arm.trainings, gate, why)


def _on_its_way(arm: Studied, begins: str, what: str, allowed: float) -> Shut | None:
    """Check that the last third of the epochs changed something by less than a share of its highest value.

    It looks at the mean over the seeds.
    """
    curves = list(arm.epochs(begins).values())
    if not curves or all(training.full_length for training in arm.trainings):
        return None
    curve = [statistics.mean(epoch) for epoch in zip(*curves, strict=True)]
    changed = abs(curve[-1] - curve[_before(curve) - 1]) / (max(curve) or 1.0)
    if changed < allowed:
        return None
    return _twice_as_long(
        arm,
        arm.trainings,
        f"{what} of {arm.arm}",
        f"the last third of {len(curve)} epochs still changed it by {100 * changed:.0f} % of its peak",
    )


def _twice_as_long(arm: Studied, systems: Sequence[Training], gate: str, why: str) -> Shut:
    """What it takes to train systems of an arm again, at all rates and from all seeds, twice as long."""
    each = len(tuning.FIRST) + len(arm.seeds) - 1
    seconds = sum(system.seconds for system in systems)
    return Shut(gate, why, each * len(systems), 2 * each * seconds)


def _before(curve: Sequence[float]) -> int:
    """Return how many epochs come before the last third."""
    return len(curve) - max(len(curve) // 3, 1)
