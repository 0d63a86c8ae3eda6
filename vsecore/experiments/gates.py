"""The conditions for judging a claim: an unfinished training says nothing about a method.

If the weaker of two arms stays below the linear baseline although its learning rate is tuned and its
training complete, the claim is judged all the same, and the verdict says that this arm failed.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from vsecore.experiments import tuning
from vsecore.experiments.claims import LOSS_MARGIN, MARGIN, RETRIEVAL, SUBJECTS, Claim
from vsecore.experiments.experiment import get_experiment
from vsecore.experiments.ledger import Studied, Trained
from vsecore.experiments.scales import SCENES
from vsecore.experiments.watching import ABOVE_BOUND, BOUND_MET, MULTIPLIERS, RECONSTRUCTIONS, RETURNS

LEVELLED = 0.01
"""A training has levelled off if the last third of its epochs added less than this share of its rsum."""
SEEDS = {SCENES: 5}
"""How many seeds both arms need, by data; three where none are named."""
SEEDS_ELSEWHERE = 3
WATCHED = ("bound", "reach of the bound", "fall of the multiplier")
"""What a claim about one system may be about that can be judged only once the training has settled."""


@dataclass(frozen=True)
class Shut:
    """A gate that keeps a claim from being judged."""

    gate: str
    """Its name, in a word or two."""
    why: str


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
    return None


def shut(first: Studied, second: Studied | None, data: str, about: str = "both ways") -> Iterator[Shut]:
    """Yield the gates that are shut for a claim about two arms, or about one alone, in order; none: judge it.

    The linear baseline is a matter of retrieval in both directions, whatever the claim is about.
    """
    arms = [first] if second is None else [first, second]
    if second is not None and first.title == second.title:  # one chosen on dev may turn out to be the other
        yield Shut("one system", f"{first.arm} and {second.arm} are the same trainings")
    for arm in arms:
        unfinished = list(_unfinished(arm))
        yield from unfinished
        if not (arm is weaker(arms) and not unfinished and _has_baseline(arm, data)):
            yield from below_baseline(arm, data)  # else the verdict says so
    rates = {training.rate for arm in arms for training in arm.trainings}
    if about == "contrastive loss" and len(rates) > 1:
        yield Shut("two learning rates", "their learning rates differ, which changes this loss too")
    yield from _unpaired(arms, data, about)
    yield from still_moving(first, about)


def weaker(arms: Sequence[Studied]) -> Studied:
    """Return the arm with the lowest mean rsum."""
    return min(arms, key=lambda arm: arm.rsum)


def _unfinished(arm: Studied) -> Iterator[Shut]:
    """Check each learning rate, and then that the trainings are complete; the first of either is told.

    A rate must be the best of at least three on dev, and not the lowest or highest.
    """
    for training in arm.trainings:
        if not tuning.is_settled(training.tried):
            rates = ", ".join(f"{rate:g}" for rate in training.tried) or "none"
            why = f"tried for {training.name}: {rates}; the best must lie between two others"
            yield Shut(f"learning rate of {arm.arm}", why)
            break
    for why in filter(None, map(_still_rising, arm.trainings)):
        yield Shut(f"length of {arm.arm}", why)
        break


def _still_rising(training: Trained) -> str:
    """Say why a training is not complete; "": it is as long as its recipe asks for, or has levelled off.

    Then the last third of its epochs added under 1 % of its rsum. This is the mean over the seeds, so that
    one noisy seed does not decide.
    """
    curve = _mean_curve(training.curves)
    if training.full_length:
        return ""
    if not curve:
        return f"no epochs of {training.name} are recorded"
    gain = 1 - max(curve[: _before_last_third(curve)], default=0.0) / max(curve) if any(curve) else 0.0
    still = f"the last third of {len(curve)} epochs still brought {100 * gain:.1f} % of its rsum"
    return still if gain >= LEVELLED else ""


def below_baseline(arm: Studied, data: str) -> Iterator[Shut]:
    """Check that every seed is clearly above a ridge regression on the same features, by each measure."""
    if not _has_baseline(arm, data):
        yield Shut(f"baseline of {arm.arm}", "no ridge regression is recorded on its features")
        return
    if below := measures_below(arm, data):
        worst, ridge = _of_seeds(arm, below[0]), arm.baseline[below[0]]
        why = f"its {below[0]}, {worst:.1f}, is not clearly above that of a ridge regression, {ridge:.1f}"
        yield Shut(f"baseline of {arm.arm}", why)


def measures_below(arm: Studied, data: str, seed: Callable[[Iterable[float]], float] = min) -> list[str]:
    """Return the measures by which the worst seed (`max`: even the best) is not clearly above the ridge."""
    measures = RETRIEVAL.measures_on(data)
    return [one for one in measures if _of_seeds(arm, one, seed) <= (1 + MARGIN) * arm.baseline[one]]


def _of_seeds(arm: Studied, measure: str, seed: Callable[[Iterable[float]], float] = min) -> float:
    return seed(arm.results.get(measure, {0: math.inf}).values())  # what is missing is not below


def _has_baseline(arm: Studied, data: str) -> bool:
    return {*RETRIEVAL.measures_on(data)} <= arm.baseline.keys()


def _unpaired(arms: Sequence[Studied], data: str, about: str) -> Iterator[Shut]:
    """Check that all arms were trained from the same seeds, enough of them, and have every measure."""
    shared, wanted = set.intersection(*(arm.seeds for arm in arms)), seeds_wanted(data)
    if len(shared) < wanted:
        yield Shut("seeds", f"{len(shared)} in common, {wanted} needed")
    for measure in SUBJECTS[about].measures_on(data):
        for arm in arms:
            if missing := shared - arm.results.get(measure, {}).keys():
                lacking = ", ".join(map(str, sorted(missing)))
                yield Shut("measures", f"{measure} of {arm.arm} is not recorded for seeds {lacking}")
                return


def still_moving(arm: Studied, about: str) -> Iterator[Shut]:
    """Check that an arm has reached what a claim about it alone is about, and has levelled off there.

    A multiplier can settle only once the bound is met, and return only if the loss rises above the bound
    after it was at 0. The paper's trainings have many times more steps than ours, so a multiplier or a loss
    that still moves says nothing yet: in the last third of the epochs, the mean over the seeds must change by
    less than a share of the multiplier's highest value, or of the bound. Where the bound is met from every
    seed, it can be reached, however the loss goes on.
    """
    losses, multipliers = arm.epochs(RECONSTRUCTIONS), arm.epochs(MULTIPLIERS)
    met, above = arm.results.get(BOUND_MET, {}), arm.results.get(ABOVE_BOUND, {})
    bounds = {seed: losses[seed][-1] / (1 + above[seed] / 100) for seed in losses.keys() & above.keys()}
    if about == "return of the multiplier":
        returned = any(arm.results.get(RETURNS, {}).values())  # perhaps within an epoch
        if not returned and not any(
            _above_again(losses[one], multipliers[one], bounds[one]) for one in bounds
        ):
            yield Shut(f"multiplier of {arm.arm}", "the loss did not rise above its bound after λ was 0")
    elif about == "fall of the multiplier" and not all(met.values()):
        yield Shut(f"bound of {arm.arm}", f"it was not met from seed {min(met, key=met.__getitem__)}")
    elif about == "reach of the bound" and met and all(met.values()):
        return
    elif about in WATCHED and not all(one.full_length for one in arm.trainings):
        settled = SUBJECTS["fall of the multiplier"].margin / 100
        watched = [("multiplier", multipliers, settled, "its peak")] if any(met.values()) else []
        if about != "fall of the multiplier":
            watched.append(("reconstruction loss", losses, LOSS_MARGIN, "the bound"))
        for what, curves, allowed, whole in watched:
            if not bounds or not (curve := _mean_curve([*curves.values()])):
                continue
            size = max(curve) if whole == "its peak" else statistics.mean(bounds.values())
            changed = abs(curve[-1] - curve[_before_last_third(curve) - 1]) / (size or 1.0)
            if changed >= allowed:
                why = f"the last third of {len(curve)} epochs still changed it by {100 * changed:.0f} %"
                yield Shut(f"{what} of {arm.arm}", f"{why} of {whole}")
                return


def _above_again(losses: Sequence[float], multipliers: Sequence[float], bound: float) -> bool:
    """Whether the mean loss of an epoch is above the bound after the multiplier was at 0."""
    at_0 = multipliers.index(0.0) if 0.0 in multipliers else len(multipliers)
    return max(losses[at_0 + 1 :], default=-math.inf) > bound


def _mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.mean(epoch) for epoch in zip(*curves, strict=False)]  # as far as all go


def _before_last_third(curve: Sequence[float]) -> int:
    """Return how many epochs come before the last third."""
    return len(curve) - max(len(curve) // 3, 1)
