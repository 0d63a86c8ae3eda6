"""What the records say about an experiment: its arms, as they were studied, and a table of them."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsecore import records
from vsecore.data.splits import FeatureKind
from vsecore.experiments import tuning
from vsecore.experiments.catalogue import get_experiment
from vsecore.experiments.claims import FOLLOWED, About, Claim
from vsecore.experiments.experiment import Candidates, Experiment, Mined, PlannedTraining, title_of
from vsecore.experiments.gates import EARLY, ONE_WAY, Studied, Training, measures_of
from vsecore.experiments.references import BASELINE, ORACLE
from vsecore.experiments.running import RESULTS
from vsecore.experiments.scales import Scale, changes_of, recipe_at
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
    same precision. If an experiment has several such groups of records, the one with the most arms is
    taken; on a tie the one with the most trainings, and then the newest.

    Args:
        name: the experiment's name.
        data: the name of the data, such as "flickr8k"; "scenes" are those of the experiment's world.
        features: the kind of features; None: the experiment's.
        scale: "fair" or "lesson".
        folder: the folder of records.

    Raises:
        ValueError: the experiment is unknown.
    """
    wanted = (name, data, features, scale, _entries(name, data, folder))
    return _best_study(wanted, _study(*wanted)).found


def used(name: str, data: str, folder: Path = RESULTS) -> list[Record]:
    """Return the records of fair trainings that `studied` takes, those at other learning rates too."""
    wanted: _Wanted = (name, data, None, "fair", _entries(name, data, folder))
    return _best_study(wanted, _study(*wanted)).used


def side_by_side(
    arms: Mapping[str, tuple[str, str]],
    data: str,
    features: FeatureKind | None = None,
    scale: Scale = "fair",
    folder: Path = RESULTS,
) -> dict[str, Studied]:
    """Collect arms of several experiments, all from the same features, captions and so on; see `studied`.

    Trainings in other worlds, or on other features, are left out: if there are several such groups of
    records, the one with the most arms is taken, and so on as there.

    Args:
        arms: an experiment and one of its arms, by the name that each has here.
        data: the name of the data.
        features: the kind of features; None: each experiment's.
        scale: "fair" or "lesson".
        folder: the folder of records.

    Raises:
        ValueError: an experiment is unknown.
    """
    worlds: dict[str, dict[str, _Wanted]] = defaultdict(dict)
    for name in dict.fromkeys(name for name, _ in arms.values()):
        wanted = (name, data, features, scale, _entries(name, data, folder))
        worlds[get_experiment(name).data_named(data)][name] = wanted
    studies = []
    for experiments in worlds.values():
        for origin in _origins(entry for wanted in experiments.values() for entry in _study(*wanted).used):
            of_origin = {name: _study(*wanted, origin=origin) for name, wanted in experiments.items()}
            found = {
                called: of_origin[name].found[arm]
                for called, (name, arm) in arms.items()
                if name in of_origin and arm in of_origin[name].found
            }
            studies.append(_Study(found, [entry for study in of_origin.values() for entry in study.used]))
    return max(studies, key=_Study.fullness, default=_Study({}, [])).found


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


def printed_rows(experiment: Experiment, data: str, pictures: int) -> tuple[dict[str, float], str]:
    """Return the rsum that papers print for each arm, and the test pictures that it is of.

    Args:
        experiment: whose arms.
        data: the name of our data. If papers print arms on as many test pictures of the same, these are
            taken, and else those with the most arms; see `printed_sums`.
        pictures: how many test pictures our data have.
    """
    sums = _printed_by_data({arm: entry.published for arm, entry in experiment.arms.items()}, "both ways")
    same = f"{data}, {pictures:,} test pictures"
    chosen = same if same in sums else _fullest(sums) if sums else same
    return sums.get(chosen, {}), _TEST_PICTURES[chosen] if chosen in sums else ""


def printed_sums(experiment: Experiment, about: About = "both ways") -> dict[str, float]:
    """Return the rsum that papers print for each arm, all on the same test pictures; or add up the recalls.

    The test set with the most arms is used; on a tie that of COCO, and all 5,000 pictures rather than folds.

    Args:
        experiment: whose arms.
        about: for retrieval in one direction, the sum of its three recalls; for what recalls do not tell, {}.
    """
    if about in _NOT_IN_RECALLS:
        return {}
    sums = _printed_by_data({arm: entry.published for arm, entry in experiment.arms.items()}, about)
    return sums[_fullest(sums)] if sums else {}


def printed_difference(claim: Claim) -> tuple[float, str] | None:
    """Return the difference that a paper prints for a claim, and the test pictures that it is of.

    Returns:
        The difference of two rsums, or of the recalls of one direction, and a name such as "COCO 5K"; None
        if the paper does not print both on the same pictures.
    """
    if claim.when != "at the end" or claim.about in _NOT_IN_RECALLS:
        return None
    arms = get_experiment(claim.experiment).arms
    rows = {
        claim.system: claim.printed or arms[claim.system].published,
        claim.against: arms[claim.against].published,
    }
    sums = {data: found for data, found in _printed_by_data(rows, claim.about).items() if len(found) == 2}
    if not sums:
        return None
    data = _fullest(sums)
    return sums[data][claim.system] - sums[data][claim.against], _TEST_PICTURES[data]


_NOT_IN_RECALLS: frozenset[About] = FOLLOWED | {"first place", "relations", "spread"}
"""What the recalls that papers print do not tell."""

_TEST_PICTURES = {
    "flickr30k, 1,000 test pictures": "Flickr30K",
    "coco, 5,000 test pictures": "COCO 5K",
    "coco, mean of five folds of 1,000 test pictures": "COCO 1K",
    "coco, 1,000 test pictures": "1,000 pictures of COCO",
    "flickr8k, 1,000 test pictures": "Flickr8k",
}
"""Short names of the test pictures of published rows."""


def _printed_by_data(rows: Mapping[str, str], about: About) -> dict[str, dict[str, float]]:
    """Return printed sums by test pictures, then by arm, of the arms whose published rows are named."""
    sums: dict[str, dict[str, float]] = defaultdict(dict)
    for row in records.published():
        for arm, named in rows.items():
            both = row.rsum if row.printed_rsum is None else row.printed_rsum
            if row.system == named and both is not None:
                sums[row.data][arm] = (
                    both
                    if about == "both ways"
                    else sum(row.metrics[f"{ONE_WAY[about]}_r{k}"] for k in (1, 5, 10))
                )
    return sums


def _fullest(sums: Mapping[str, Mapping[str, float]]) -> str:
    """Return the test pictures with the most arms; on a tie COCO's, and all 5,000 rather than folds."""
    return max(sums, key=lambda data: (len(sums[data]), data.startswith("coco"), "5,000" in data))


@dataclass(frozen=True)
class _Study:
    """What some records say about an experiment."""

    found: dict[str, Studied]  # by arm
    used: list[Record]  # those of its arms, and those of the learning rates that were tried

    def fullness(self) -> tuple[int, int, str]:
        """How much it has: arms, trainings of them, and the date of its newest record."""
        seeds = sum(len(arm.seeds) for arm in self.found.values())
        return len(self.found), seeds, max((entry.date for entry in self.used), default="")


@dataclass(frozen=True)
class _Origin:
    """What records must share to be set side by side."""

    fingerprints: Mapping[str, str]  # of features and captions, by the kind of features
    precision: str
    vectors: str  # the digest of the word vectors

    def has(self, entry: Record) -> bool:
        """Whether a record comes from here. Those of benchmarks, say, name no features: they do not."""
        return all(
            "feature_kind" in source
            and self.fingerprints.get(source["feature_kind"], source["fingerprint"]) == source["fingerprint"]
            and (entry.precision, source.get("vectors")) == (self.precision, self.vectors)
            for source in _sources(entry)
        )


_Wanted = tuple[str, str, FeatureKind | None, Scale, Sequence[Record]]  # what `_study` takes


def _entries(name: str, data: str, folder: Path) -> list[Record]:
    """Return all records of some data, in the world of an experiment."""
    named = get_experiment(name).data_named(data)
    return records.find(folder, data=named) if folder.is_dir() else []


def _best_study(wanted: _Wanted, everything: _Study) -> _Study:
    """Return the fullest study whose records may be set side by side."""
    origins = _origins(everything.used)
    if len(origins) < 2:
        return everything
    return max((_study(*wanted, origin=origin) for origin in origins), key=_Study.fullness)


def _origins(entries: Iterable[Record]) -> list[_Origin]:
    """Return where records come from: every choice of one fingerprint for each kind of features."""
    fingerprints, settings = defaultdict(set), set()
    for entry in entries:
        for source in _sources(entry):
            fingerprints[source["feature_kind"]].add(source["fingerprint"])
            settings.add((entry.precision, source["vectors"]))
    return [
        _Origin(dict(zip(fingerprints, chosen, strict=True)), *setting)
        for chosen in itertools.product(*map(sorted, fingerprints.values()))
        for setting in sorted(settings)
    ]


def _study(
    name: str,
    data: str,
    features: FeatureKind | None,
    scale: Scale,
    entries: Sequence[Record],
    origin: _Origin | None = None,
) -> _Study:
    """Collect what records say about each arm, only those of one origin if it is given."""
    experiment, changes = get_experiment(name), changes_of(scale, data)
    features = features or experiment.features_on(data)
    trained = [
        entry
        for entry in entries
        if entry.name not in (BASELINE, ORACLE) and (origin is None or origin.has(entry))
    ]
    used: dict[int, Record] = {}
    known: dict[tuple[str, str, int], dict[float, float]] = {}

    def tried(recipe: str, mined: Mined | None, dim: int) -> dict[float, float]:
        key = recipe, mined.digest if mined else "", dim
        if key not in known:
            by_rate = tuning.recorded(recipe, {**changes, "dim": dim}, trained, mined)
            used.update({id(entry): entry for several in by_rate.values() for entry in several})
            known[key] = tuning.tried(by_rate)
        return known[key]

    def recipe_of(candidates: Candidates) -> Recipe | None:
        if scale == "lesson":
            return recipe_at(candidates, changes)
        dim = candidates.changes(changes)["dim"]
        return tuning.tuned(candidates, changes, lambda name: tried(name, candidates.mined, dim))

    found: dict[str, Studied] = {}
    for arm in experiment.arms:
        planned = experiment.trainings(arm, features, recipe_of)
        if not planned:
            continue
        title = title_of(planned)
        mine = [entry for entry in trained if (entry.name, entry.config_hash) == title]
        if not mine:
            continue
        used.update({id(entry): entry for entry in mine})
        found[arm] = Studied(
            arm,
            [
                _training(training, trained, tried(training.recipe.name, training.mined, training.recipe.dim))
                for training in planned
            ],
            _by_seed(mine),
            _baseline(mine, entries, data),
            mine[0].device,
            title,
        )
    return _Study(found, list(used.values()))


def _by_seed(mine: Iterable[Record]) -> dict[str, dict[int, float]]:
    """Return each metric of an arm's records by seed, and what several metrics say together."""
    metrics: dict[str, dict[int, float]] = defaultdict(dict)
    for entry in mine:
        for metric, value in entry.metrics.items():
            metrics[metric][entry.seed] = value
        for way in ONE_WAY.values():
            recalls = [entry.metrics.get(f"{way}_r{k}") for k in (1, 5, 10)]
            if None not in recalls:
                metrics[f"{way}_rsum"][entry.seed] = sum(value for value in recalls if value is not None)
        if curve := tuning.development_curve(entry):
            metrics[EARLY][entry.seed] = statistics.mean(curve[: max(len(curve) // 3, 1)])
    return metrics


def _training(planned: PlannedTraining, entries: Iterable[Record], tried: Mapping[float, float]) -> Training:
    """Collect what is recorded about one system."""
    recipe, digest = planned.recipe, planned.digest
    mine = [entry for entry in entries if (entry.name, entry.config_hash) == (recipe.name, digest)]
    return Training(
        recipe.name,
        tried,
        [curve for entry in mine if (curve := tuning.development_curve(entry))],
        recipe.training.epochs >= get(recipe.name).training.epochs,
        statistics.median(entry.seconds for entry in mine) if mine else 0.0,
    )


def _baseline(mine: Iterable[Record], entries: Iterable[Record], data: str) -> dict[str, float]:
    """Return the linear baseline's measures on these records' features, the best of several; {}: unknown."""
    wanted = {(source["fingerprint"], source["feature_kind"]) for entry in mine for source in _sources(entry)}
    known = {
        (entry.data["fingerprint"], entry.data["feature_kind"]): entry.metrics
        for entry in entries
        if entry.name == BASELINE
    }
    if not wanted <= known.keys():
        return {}
    return {
        measure: max(known[features][measure] for features in wanted)
        for measure in measures_of(data)
        if all(measure in known[features] for features in wanted)
    }


def _sources(entry: Record) -> Sequence[dict[str, Any]]:
    """Return the data of each of a record's systems."""
    sources: Sequence[dict[str, Any]] = entry.data.get("members", [entry.data])
    return sources
