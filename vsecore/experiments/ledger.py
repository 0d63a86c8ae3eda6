"""What the records say about the arms of experiments."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vsecore import records
from vsecore.data.splits import FeatureKind
from vsecore.experiments import tuning
from vsecore.experiments.catalogue import get_experiment
from vsecore.experiments.experiment import Experiment, System, Training, only_recipe, title_of
from vsecore.experiments.gates import EARLY, ONE_WAY, Studied, Trained, measures_of
from vsecore.experiments.references import BASELINE, ORACLE
from vsecore.experiments.running import RESULTS
from vsecore.experiments.scales import Scale, changes_of
from vsecore.recipes import Recipe, get
from vsecore.records import Record


def studied(
    name: str,
    data: str,
    features: FeatureKind | None = None,
    scale: Scale = "fair",
    folder: Path = RESULTS,
) -> dict[str, Studied]:
    """Collect what is recorded about each arm of an experiment. Arms without a record are left out.

    Records are set side by side only if they come from the same features, captions and word vectors, in the
    same precision. If there are several such groups of records, the one with the most arms is taken; on a
    tie the one with the most trainings, and then the newest.

    Args:
        name: the experiment's name.
        data: the name of the data, such as "flickr8k"; "scenes" are those of the experiment's world.
        features: the kind of features; None: the experiment's.
        scale: "fair" or "lesson".
        folder: the folder of records.

    Raises:
        ValueError: the experiment is unknown.
    """
    arms = {arm: (name, arm) for arm in get_experiment(name).arms}
    return side_by_side(arms, data, features, scale, folder)


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

    Raises:
        ValueError: an experiment is unknown.
    """
    return _fullest_study(arms, data, features, scale, folder).found


def used(name: str, data: str, folder: Path = RESULTS) -> list[Record]:
    """Return the records of fair trainings that `studied` takes, those at other learning rates too."""
    arms = {arm: (name, arm) for arm in get_experiment(name).arms}
    return _fullest_study(arms, data, None, "fair", folder).used


def measured(
    name: str,
    data: str,
    features: FeatureKind | None = None,
    metric: str = "rsum",
    scale: Scale = "fair",
    folder: Path = RESULTS,
) -> dict[str, dict[int, float]]:
    """Return one metric of each arm of an experiment by seed, without arms that lack it; see `studied`."""
    return {
        arm: dict(found.results[metric])
        for arm, found in studied(name, data, features, scale, folder).items()
        if metric in found.results
    }


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


@dataclass(frozen=True)
class _Study:
    """What some records say about arms."""

    found: dict[str, Studied]
    used: list[Record]
    """The records of the arms, and of all learning rates that were tried for them."""

    def fullness(self) -> tuple[int, int, str]:
        """How much it covers: the arms, their trainings, and the date of its newest record."""
        seeds = sum(len(arm.seeds) for arm in self.found.values())
        return len(self.found), seeds, max((entry.date for entry in self.used), default="")


@dataclass(frozen=True)
class _Origin:
    """What records must share to be set side by side."""

    fingerprints: Mapping[str, str]
    """The digests of features and captions, by the kind of features."""
    precision: str
    vectors: str
    """The digest of the word vectors."""

    @classmethod
    def all_of(cls, entries: Iterable[Record]) -> list[_Origin]:
        """Return where records come from: every choice of one fingerprint for each kind of features."""
        fingerprints, settings = defaultdict(set), set()
        for entry in entries:
            for source in _sources(entry):
                fingerprints[source["feature_kind"]].add(source["fingerprint"])
                settings.add((entry.precision, source["vectors"]))
        return [
            cls(dict(zip(fingerprints, chosen, strict=True)), *setting)
            for chosen in itertools.product(*map(sorted, fingerprints.values()))
            for setting in sorted(settings)
        ]

    def has(self, entry: Record) -> bool:
        """Whether a record comes from here. Records without features, such as those of benchmarks, do not."""
        return all(
            "feature_kind" in source
            and self.fingerprints.get(source["feature_kind"], source["fingerprint"]) == source["fingerprint"]
            and (entry.precision, source.get("vectors")) == (self.precision, self.vectors)
            for source in _sources(entry)
        )


@dataclass(frozen=True)
class _Reader:
    """Reads the records of an experiment on some data."""

    experiment: Experiment
    data: str
    features: FeatureKind
    scale: Scale
    entries: Sequence[Record]

    def study(self, origin: _Origin | None = None) -> _Study:
        """Collect what the records say about each arm, only those of one origin if it is given."""
        changes = changes_of(self.scale, self.data)
        trained = [
            entry
            for entry in self.entries
            if entry.name not in (BASELINE, ORACLE) and (origin is None or origin.has(entry))
        ]
        used: dict[int, Record] = {}
        known: dict[tuple[str, str, int], dict[float, float]] = {}

        def tried(system: System, name: str) -> dict[float, float]:
            key = name, system.negatives, system.times_as_wide
            if key not in known:
                by_rate = tuning.recorded(system, name, changes, trained)
                used.update({id(entry): entry for several in by_rate.values() for entry in several})
                known[key] = tuning.tried(by_rate)
            return known[key]

        def recipe_of(system: System) -> Recipe | None:
            if self.scale == "lesson":
                return only_recipe(system, changes)
            return tuning.tuned(system, changes, lambda name: tried(system, name))

        found: dict[str, Studied] = {}
        for arm in self.experiment.arms:
            planned = self.experiment.trainings(arm, self.features, recipe_of)
            title = title_of(planned) if planned else ("", "")
            own = [entry for entry in trained if (entry.name, entry.config_hash) == title]
            if own:
                used.update({id(entry): entry for entry in own})
                trainings = [_trained(one, trained, tried(one.system, one.recipe.name)) for one in planned]
                baseline = self._baseline(own)
                found[arm] = Studied(arm, trainings, _by_seed(own), baseline, own[0].device, title)
        return _Study(found, list(used.values()))

    def _baseline(self, own: Iterable[Record]) -> dict[str, float]:
        """Return the linear baseline's measures on an arm's features, the best of several; {}: unknown."""
        wanted = {
            (source["fingerprint"], source["feature_kind"]) for entry in own for source in _sources(entry)
        }
        known = {
            (entry.data["fingerprint"], entry.data["feature_kind"]): entry.metrics
            for entry in self.entries
            if entry.name == BASELINE
        }
        if not wanted <= known.keys():
            return {}
        return {
            measure: max(known[features][measure] for features in wanted)
            for measure in measures_of(self.data)
            if all(measure in known[features] for features in wanted)
        }


def _fullest_study(
    arms: Mapping[str, tuple[str, str]], data: str, features: FeatureKind | None, scale: Scale, folder: Path
) -> _Study:
    """Return the study of arms, by the names that they have here, whose records may be set side by side."""
    worlds: dict[str, dict[str, _Reader]] = defaultdict(dict)
    for name in dict.fromkeys(name for name, _ in arms.values()):
        experiment = get_experiment(name)
        world = experiment.data_named(data)
        entries = records.find(folder, data=world) if folder.is_dir() else []
        kind = features or experiment.features_on(data)
        worlds[world][name] = _Reader(experiment, data, kind, scale, entries)
    studies = []
    for readers in worlds.values():
        everything = {name: reader.study() for name, reader in readers.items()}
        origins = _Origin.all_of(entry for study in everything.values() for entry in study.used)
        for origin in origins:
            of_origin = everything
            if len(origins) > 1:
                of_origin = {name: reader.study(origin) for name, reader in readers.items()}
            found = {
                called: of_origin[name].found[arm]
                for called, (name, arm) in arms.items()
                if name in of_origin and arm in of_origin[name].found
            }
            studies.append(_Study(found, [entry for study in of_origin.values() for entry in study.used]))
    return max(studies, key=_Study.fullness, default=_Study({}, []))


def _by_seed(entries: Iterable[Record]) -> dict[str, dict[int, float]]:
    """Return each metric of an arm's records by seed, and what several metrics say together."""
    metrics: dict[str, dict[int, float]] = defaultdict(dict)
    for entry in entries:
        for metric, value in entry.metrics.items():
            metrics[metric][entry.seed] = value
        for way in ONE_WAY.values():
            recalls = [f"{way}_r{k}" for k in (1, 5, 10)]
            if entry.metrics.keys() >= {*recalls}:
                metrics[f"{way}_rsum"][entry.seed] = sum(entry.metrics[recall] for recall in recalls)
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
        statistics.median(entry.seconds for entry in own) if own else 0.0,
    )


def _sources(entry: Record) -> Sequence[dict[str, Any]]:
    """Return the data of each of a record's systems."""
    sources: Sequence[dict[str, Any]] = entry.data.get("members", [entry.data])
    return sources
