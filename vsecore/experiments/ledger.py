"""What the records say about the arms of experiments."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from vsecore import records
from vsecore.data.splits import FeatureKind
from vsecore.experiments import tuning
from vsecore.experiments.claims import EARLY, SUBJECTS
from vsecore.experiments.experiment import Experiment, System, Training, get_experiment, only_recipe, title_of
from vsecore.experiments.gates import Studied, Trained, measures_of
from vsecore.experiments.references import BASELINE, ORACLE
from vsecore.experiments.running import RESULTS
from vsecore.experiments.scales import Scale, changes_of
from vsecore.experiments.set_vectors import lost
from vsecore.recipes import Recipe, get
from vsecore.records import Record

Study = tuple[dict[str, Studied], list[Record]]
"""What is recorded about arms, and the records: theirs, and those of all learning rates that were tried."""
WORDS = "words and precision"


def studied(
    name: str,
    data: str,
    features: FeatureKind | None = None,
    scale: Scale = "fair",
    folder: Path = RESULTS,
) -> dict[str, Studied]:
    """Collect what is recorded about each arm of an experiment. Arms without a record are left out.

    Records are set side by side only if they come from the same features, captions and word vectors, in the
    same precision: those that most records have.

    Args:
        name: the experiment's name.
        data: the name of the data, such as "flickr8k"; "scenes" are those of the experiment's world.
        features: the kind of features; None: the experiment's.
        scale: "fair" or "lesson".
        folder: the folder of records.
    """
    return side_by_side(_arms(name), data, features, scale, folder)


def side_by_side(
    arms: Mapping[str, tuple[str, str]],
    data: str,
    features: FeatureKind | None = None,
    scale: Scale = "fair",
    folder: Path = RESULTS,
) -> dict[str, Studied]:
    """Collect arms of several experiments, all from the same features, captions and so on; see `studied`.

    Arms are given as an experiment and one of its arms, by the name that each has here. Trainings in other
    worlds, or on other features, are left out.
    """
    return _study(arms, data, features, scale, folder)[0]


def used(name: str, data: str, folder: Path = RESULTS) -> list[Record]:
    """Return the records of fair trainings that `studied` takes, those at other learning rates too."""
    return _study(_arms(name), data, None, "fair", folder)[1]


def epochs_to_pass(
    system: Studied, baseline: Studied, measure: Literal["rsum", "i2t_r1", "t2i_r1"] = "rsum"
) -> dict[int, int | None]:
    """Return the first epoch in which a system is above the best epoch of a baseline, on the dev split.

    Args:
        system: whose epochs are counted, from 1; for one that is trained in two rounds, in the second.
        baseline: trained from the same seeds.
        measure: a measure on the development split; recalls are recorded only where negatives are mined.

    Returns:
        For each seed that both have, the epoch; None if none is above the baseline's best.

    Source: Chen, Deng and Luo 2020 (AOQ), section 4.3 and figure 4, by the recall at 1.
    """
    curves, other = (arm.epochs(f"dev_{measure}_") for arm in (system, baseline))
    return {
        seed: next((epoch for epoch, value in enumerate(curves[seed], 1) if value > max(other[seed])), None)
        for seed in sorted(curves.keys() & other.keys())
    }


def _arms(name: str) -> dict[str, tuple[str, str]]:
    return {arm: (name, arm) for arm in get_experiment(name).arms}


def _study(
    arms: Mapping[str, tuple[str, str]], data: str, features: FeatureKind | None, scale: Scale, folder: Path
) -> Study:
    """Return what is recorded about arms, those of the world that most of them have."""
    placed = {called: (get_experiment(name), arm) for called, (name, arm) in arms.items()}
    worlds = Counter(experiment.data_named(data) for experiment, _ in placed.values())
    world = worlds.most_common(1)[0][0]
    wanted = {called: one for called, one in placed.items() if one[0].data_named(data) == world}
    entries = records.find(folder, data=world) if folder.is_dir() else []
    study = _read(wanted, data, features, scale, entries)
    shared = _shared(study[1])
    if all(_has(entry, shared) for entry in study[1]):
        return study
    baselines = [entry for entry in entries if entry.name == BASELINE]
    return _read(
        wanted, data, features, scale, [*baselines, *(entry for entry in entries if _has(entry, shared))]
    )


def _read(
    arms: Mapping[str, tuple[Experiment, str]],
    data: str,
    features: FeatureKind | None,
    scale: Scale,
    entries: Sequence[Record],
) -> Study:
    """Collect what records say about each arm."""
    changes, used = changes_of(scale, data), dict[int, Record]()
    trained = [entry for entry in entries if entry.name not in (BASELINE, ORACLE)]
    known: dict[tuple[str, str, int], dict[float, float]] = {}

    def tried(system: System, name: str) -> dict[float, float]:
        key = name, system.negatives, system.times_as_wide
        if key not in known:
            by_rate = tuning.recorded(system, name, changes, trained)
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
        own = [entry for entry in trained if (entry.name, entry.config_hash) == title]
        if own:
            used.update({id(entry): entry for entry in own})
            trainings = [_trained(one, trained, tried(one.system, one.recipe.name)) for one in planned]
            baseline = _baseline(own, entries, measures_of(data))
            found[called] = Studied(arm, trainings, _by_seed(own), baseline, title)
    return found, list(used.values())


def _sources(entry: Record) -> Sequence[dict[str, Any]]:
    """Return the data of each of a record's systems."""
    sources: Sequence[dict[str, Any]] = entry.data.get("members", [entry.data])
    return sources


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
    known = {
        (entry.data["fingerprint"], entry.data["feature_kind"]): entry.metrics
        for entry in entries
        if entry.name == BASELINE
    }
    wanted = {(source["fingerprint"], source["feature_kind"]) for entry in own for source in _sources(entry)}
    if not wanted <= known.keys():
        return {}
    return {
        measure: max(known[features][measure] for features in wanted)
        for measure in measures
        if all(measure in known[features] for features in wanted)
    }


def _by_seed(entries: Iterable[Record]) -> dict[str, dict[int, float]]:
    """Return each metric of an arm's records by seed, and what several metrics say together."""
    metrics: dict[str, dict[int, float]] = defaultdict(dict)
    for entry in entries:
        for metric, value in (entry.metrics | lost(entry.metrics)).items():
            metrics[metric][entry.seed] = value
        for subject in (SUBJECTS["caption retrieval"], SUBJECTS["image retrieval"]):
            if entry.metrics.keys() >= {*subject.recalls}:
                total = sum(entry.metrics[recall] for recall in subject.recalls)
                metrics[subject.measures[0]][entry.seed] = total
        if curve := tuning.development_curve(entry):
            metrics[EARLY][entry.seed] = statistics.mean(curve[: max(len(curve) // 3, 1)])
    return metrics


def _trained(planned: Training, entries: Iterable[Record], tried: Mapping[float, float]) -> Trained:
    """Collect what is recorded about one system."""
    recipe, digest = planned.recipe, planned.digest
    own = [entry for entry in entries if (entry.name, entry.config_hash) == (recipe.name, digest)]
    return Trained(
        recipe.name,
        tried,
        [curve for entry in own if (curve := tuning.development_curve(entry))],
        recipe.training.epochs >= get(recipe.name).training.epochs,
    )
