"""What the records say about the arms of experiments."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vsecore import records
from vsecore.data.splits import FeatureKind
from vsecore.experiments import tuning
from vsecore.experiments.claims import EARLY, PASSED, RETRIEVAL, SUBJECTS
from vsecore.experiments.experiment import Experiment, System, get_experiment, only_recipe, title_of
from vsecore.experiments.measures import lost
from vsecore.experiments.references import BASELINE, ORACLE, alike
from vsecore.experiments.running import RESULTS
from vsecore.experiments.scales import Scale, changes_of, collection_of, on_every_processor
from vsecore.recipes import Recipe, get
from vsecore.records import Record

WORDS = "words and precision"


@dataclass(frozen=True)
class Trained:
    """What is recorded about one system of an arm."""

    name: str
    """The recipe's name."""
    tried: Mapping[float, float]
    """The best rsum on dev at each learning rate."""
    curves: Sequence[Sequence[float]]
    """The rsum on dev after each epoch, from each seed."""
    full_length: bool
    """Whether it took as many epochs as its recipe asks for."""
    rate: float
    """The learning rate of these trainings."""


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
        epochs = tuning.of_each_epoch(self.results, begins)
        seeds = epochs[0] if epochs else {}
        return {seed: [epoch[seed] for epoch in epochs if seed in epoch] for seed in seeds}


Arms = str | Mapping[str, tuple[str, str]]
"""All arms of an experiment, by its name; or experiments and their arms, by the name that each has here."""
Study = tuple[dict[str, Studied], list[Record]]
"""What is recorded about arms, and the records: theirs, and those of all learning rates that were tried."""


def studied(
    arms: Arms, data: str, features: FeatureKind | None = None, scale: Scale = "fair", folder: Path = RESULTS
) -> dict[str, Studied]:
    """Collect what is recorded about each arm. Arms without a record are left out.

    Records are set side by side only if they come from the same features (but for their last digits, see
    `references.alike`), captions and word vectors, in the same precision: those that most records have. The
    data "scenes" are those of the experiments' world, and arms in other worlds are left out; the kind of
    features is the experiment's unless another is named.
    """
    return study(arms, data, features, scale, folder)[0]


def study(arms: Arms, data: str, features: FeatureKind | None, scale: Scale, folder: Path) -> Study:
    """Return what `studied` does, and the records that it comes from."""
    if isinstance(arms, str):
        arms = {arm: (arms, arm) for arm in get_experiment(arms).arms}
    placed = {called: (get_experiment(name), arm) for called, (name, arm) in arms.items()}
    worlds = Counter(experiment.data_named(data) for experiment, _ in placed.values())
    world = worlds.most_common(1)[0][0]
    wanted = {called: one for called, one in placed.items() if one[0].data_named(data) == world}
    places = [place for place in (folder, folder / tuning.DIVERGED) if place.is_dir()]
    entries = [entry for place in places for entry in records.find(place, data=world)]
    if same := alike(entries):
        entries = [replace(entry, data=on_every_processor(entry.data, same)) for entry in entries]
        # Of a training that two processors recorded the first counts, as for the one that runs experiments.
        firsts = {
            (one.name, one.config_hash, one.seed, tuning.DIVERGED in one.metrics, repr(_origin(one))): one
            for one in reversed(entries)
        }
        entries = [*reversed(firsts.values())]
    found = _read(wanted, world, features, scale, entries)
    shared = _shared(found[1])
    if all(_has(entry, shared) for entry in found[1]):
        return found
    entries = [entry for entry in entries if entry.name == BASELINE or _has(entry, shared)]
    return _read(wanted, world, features, scale, entries)


def epochs_to_pass(system: Studied, baseline: Studied, measure: str = "rsum") -> dict[int, int | None]:
    """Return the first epoch in which a system is above the best epoch of a baseline on dev; None: never.

    Epochs count from 1, in the second of two rounds, for each seed that both have. The measure is "rsum", or
    "i2t_r1" or "t2i_r1", which are recorded only where negatives are mined.

    Source: Chen, Deng and Luo 2020 (AOQ), section 4.3 and figure 4, by the recall at 1.
    """
    curves, other = (arm.epochs(f"dev_{measure}_") for arm in (system, baseline))
    return {
        seed: next((epoch for epoch, value in enumerate(curves[seed], 1) if value > max(other[seed])), None)
        for seed in sorted(curves.keys() & other.keys())
    }


def race(system: Studied, baseline: Studied) -> tuple[Studied, Studied]:
    """Return both with the measures `claims.PASSED`, for a claim about the epochs that it takes to pass.

    That of the system is minus the epochs of `epochs_to_pass`, one more than it has where it never passes. It
    is held against minus half of its epochs: Chen, Deng and Luo 2020 (AOQ) say ten, of twenty.
    """
    ours, theirs = dict(system.results), dict(baseline.results)
    for measure, name in PASSED.items():
        curves = system.epochs(f"dev_{measure}_")
        passed = epochs_to_pass(system, baseline, measure)
        ours[name] = {seed: -float(epoch or len(curves[seed]) + 1) for seed, epoch in passed.items()}
        theirs[name] = {seed: -len(curves[seed]) / 2 for seed in passed}
    return replace(system, results=ours), replace(baseline, results=theirs)


def _read(
    arms: Mapping[str, tuple[Experiment, str]],
    data: str,
    features: FeatureKind | None,
    scale: Scale,
    entries: Sequence[Record],
) -> Study:
    """Collect what records say about each arm."""
    changes, used = changes_of(scale, data), dict[int, Record]()
    trained: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for entry in entries:
        if entry.name not in (BASELINE, ORACLE) and tuning.DIVERGED not in entry.metrics:
            trained[entry.name, entry.config_hash].append(entry)
    known: dict[tuple[str, str], dict[float, float]] = {}

    def tried(system: System, name: str) -> dict[float, float]:
        key = name, tuning.digest_at(system, name, changes, tuning.FIRST[0])
        if key not in known:
            by_rate = tuning.recorded(system, name, changes, entries)
            used.update({id(entry): entry for several in by_rate.values() for entry in several})
            known[key] = tuning.tried(by_rate)
        return known[key]

    def recipe_of(system: System) -> Recipe | None:
        if scale == "lesson":
            return only_recipe(system, changes)
        return tuning.tuned(system, changes, lambda name: tried(system, name))

    found: dict[str, Studied] = {}
    for called, (experiment, arm) in arms.items():
        planned = experiment.trainings(arm, features or experiment.features_on(data), recipe_of)
        title = title_of(planned) if planned else ("", "")
        if own := trained.get(title, []):
            used.update({id(entry): entry for entry in own})
            trainings = [
                Trained(
                    one.recipe.name,
                    tried(one.system, one.recipe.name),
                    [*filter(None, map(tuning.development_curve, trained[title_of([one])]))],
                    one.recipe.training.epochs >= get(one.recipe.name).training.epochs,
                    one.recipe.training.learning_rate,
                )
                for one in planned
            ]
            baseline = _baseline(own, entries, RETRIEVAL.measures_on(collection_of(data)))
            found[called] = Studied(arm, trainings, _by_seed(own), baseline, title)
    return found, list(used.values())


def _sources(entry: Record) -> Sequence[dict[str, Any]]:
    """Return the data of each of a record's systems."""
    data = on_every_processor(entry.data)
    return [*data.get("members", [data])]


def _origin(entry: Record) -> dict[str, Any]:
    """Return what records must share to be set side by side: words, precision, and each kind's features."""
    sources = _sources(entry)
    fingerprints = {source.get("feature_kind", ""): source.get("fingerprint") for source in sources}
    return fingerprints | {WORDS: (sources[0].get("vectors"), entry.precision)}


def _has(entry: Record, shared: Mapping[str, Any]) -> bool:
    return all(shared.get(what, own) == own for what, own in _origin(entry).items())


def _shared(entries: Sequence[Record]) -> dict[str, Any]:
    """Return what most records have of that which they must share."""
    shared: dict[str, Any] = {}
    for what in (WORDS, *sorted({kind for entry in entries for kind in _origin(entry)} - {WORDS})):
        origins = [_origin(entry) for entry in entries if _has(entry, shared)]
        counts = Counter(origin[what] for origin in origins if what in origin)
        if counts:
            shared[what] = counts.most_common(1)[0][0]
    return shared


def _baseline(own: Iterable[Record], entries: Iterable[Record], measures: Iterable[str]) -> dict[str, float]:
    """Return the linear baseline's measures on an arm's features, the best of several; {}: unknown."""

    def features(entry: Record) -> list[tuple[Any, Any]]:
        return [(source.get("fingerprint"), source["feature_kind"]) for source in _sources(entry)]

    baselines = [entry for entry in entries if entry.name == BASELINE]
    known = {one: entry.metrics for entry in baselines for one in features(entry)}
    found = [known.get(one, {}) for entry in own for one in features(entry)]
    return {
        measure: max(metrics[measure] for metrics in found)
        for measure in measures
        if all(measure in metrics for metrics in found)
    }


def _by_seed(entries: Iterable[Record]) -> dict[str, dict[int, float]]:
    """Return each metric of an arm's records by seed, and what several metrics say together."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for entry in entries:
        metrics = entry.metrics | lost(entry.metrics)
        for subject in (SUBJECTS["caption retrieval"], SUBJECTS["image retrieval"]):
            if metrics.keys() >= {*subject.recalls}:
                metrics[subject.measures[0]] = sum(metrics[recall] for recall in subject.recalls)
        if curve := tuning.development_curve(entry):
            metrics[EARLY] = statistics.mean(curve[: max(len(curve) // 3, 1)])
        for metric, value in metrics.items():
            found[metric][entry.seed] = value
    return found
