"""Running an experiment: train what is not recorded yet, and record the results."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vsecore import records
from vsecore.data.splits import Dataset, FeatureKind, Split
from vsecore.evaluation import ensemble, evaluate
from vsecore.experiments import tuning
from vsecore.experiments.catalogue import get_experiment
from vsecore.experiments.experiment import Candidates, Member, PlannedTraining, title_of
from vsecore.experiments.pairs import METRICS, pair_accuracy, pair_scores, relation_pairs, told_by_left_right
from vsecore.experiments.references import on_truth, record_references
from vsecore.experiments.scales import Scale, changes_of, recipe_at
from vsecore.losses import Rule, negatives_kept
from vsecore.paths import results
from vsecore.recipes import Recipe
from vsecore.training import Event, Run, describe_data, fit_in_rounds, score_split
from vsecore.training.distributed import best_device, make_accelerator, precision_of

RULES: tuple[Rule, ...] = ("released", "printed")
RESULTS = results() / "experiments"
MADE = ("negatives", "weights")
"""What the first of two rounds leaves: it follows from the recipe, the data and the seed."""


def run(
    name: str,
    open_data: Callable[[FeatureKind], Dataset],
    *,
    features: FeatureKind | None = None,
    seeds: Iterable[int] = range(5),
    arms: Sequence[str] = (),
    scale: Scale = "fair",
    settings: Mapping[str, Any] | None = None,
    vectors: Callable[[Any], Tensor] | None = None,
    folder: Path = RESULTS,
    tell: Callable[[str], None] = print,
) -> None:
    """Train every arm from every seed and record the test split; what is recorded already is left as it is.

    At the scale "fair", each system's learning rate is chosen first, on the development split (see `tuning`).
    The baseline that the arms must beat is recorded too: a ridge regression on the same features.

    Args:
        name: the experiment's name.
        open_data: opens the data with the kind of features that it is given.
        features: the features for arms that do not name their own; None: the experiment's.
        seeds: one run each, seed by seed, so that an interrupted experiment has complete comparisons.
        arms: only these; empty: all that the scale can train.
        scale: "fair" or "lesson".
        settings: changes to all arms' recipes in place of the scale's own.
        vectors: makes the word vectors from the tokenizer; None: they start as noise.
        folder: the folder of records.
        tell: called with a line about each result.

    Raises:
        ValueError: the experiment or an arm is unknown, there is no scale for this data, or a learning rate
            is set although it is to be chosen.
    """
    experiment = get_experiment(name)
    if scale == "fair" and settings is not None and "training.learning_rate" in settings:
        raise ValueError("training.learning_rate is set, but the scale 'fair' chooses it for each system")
    opened = cache(open_data)
    features = features or experiment.features_on(opened(experiment.features).name)
    systems = {arm: experiment.systems(arm, features) for arm in arms or experiment.arms}
    changes = changes_of(scale, opened(features).name) if settings is None else settings
    folder.mkdir(parents=True, exist_ok=True)  # so that a bad path fails now, not after hours
    workshop = _Workshop(opened, vectors, folder, tell, experiment.pairs)
    for kind in dict.fromkeys(part.member.features for parts in systems.values() for part in parts):
        record_references(opened(kind), folder, tell)

    @cache
    def tried(recipe: str, kind: FeatureKind) -> dict[float, float]:
        return workshop.tune(recipe, kind, changes)

    def recipe_of(candidates: Candidates) -> Recipe | None:
        if scale == "lesson":
            return recipe_at(candidates, changes)
        return tuning.tuned(candidates, changes, lambda name: tried(name, candidates.member.features))

    planned = {arm: experiment.trainings(arm, features, recipe_of) for arm in systems}
    if not arms:  # a lesson's scale cannot choose between recipes
        planned = {arm: trainings for arm, trainings in planned.items() if trainings}
    for arm, trainings in planned.items():
        if not trainings:
            raise ValueError(f"arm {arm!r} is the best of several on dev: only the scale 'fair' chooses it")
    for seed in seeds:
        for arm, trainings in planned.items():
            workshop.record(arm, trainings, seed)
        workshop.forget()  # the systems that several ensembles of a seed shared


class _Workshop:
    """Trains what is not recorded yet, and records it."""

    def __init__(
        self,
        opened: Callable[[FeatureKind], Dataset],
        vectors: Callable[[Any], Tensor] | None,
        folder: Path,
        tell: Callable[[str], None],
        pairs: bool,
    ) -> None:
        self.pairs = pairs
        self.opened, self.vectors, self.folder, self.tell = opened, vectors, folder, tell
        self.precision = precision_of(make_accelerator())
        self.trained: dict[tuple[str, int], _Trained] = {}

    def tune(self, name: str, features: FeatureKind, changes: Mapping[str, Any]) -> dict[float, float]:
        """Return the best rsum on dev at each learning rate that a recipe must be tried at, from one seed."""
        results: dict[float, float] = {}
        while rates := tuning.still_to_try(results):
            for rate in rates:
                planned = PlannedTraining(tuning.at_rate(name, changes, rate), Member(features))
                entry = self.record(f"{name} at {rate:g}", [planned], tuning.SEED)
                results[rate] = max(tuning.development_curve(entry))
                self.forget()
        self.tell(
            f"{name}: learning rate {tuning.best(results):g}, of "
            f"{', '.join(f'{rate:g}' for rate in sorted(results))}"
        )
        return results

    def record(self, title: str, trainings: Sequence[PlannedTraining], seed: int) -> records.Record:
        """Return the record of an arm, which is trained first if there is none."""
        sources = [_sources(training, self.opened, self.vectors, seed) for training in trainings]
        name, digest = title_of(trainings)
        found = records.find(self.folder, name=name, config_hash=digest, seed=seed, precision=self.precision)
        for entry in found:
            if (
                _known_beforehand(entry.data) == _data(sources)
                and self._pair_metrics(entry.data["name"]) <= entry.metrics.keys()
            ):
                self.tell(f"{title}, seed {seed}: recorded already")
                return entry
        parts = []
        for training in trainings:
            key = (training.recipe.hash(), training.seed(seed))
            if key not in self.trained:
                data = self.opened(training.member.features)
                pairs = relation_pairs(data.feature_kind) if self._pair_metrics(data.name) else None
                self.trained[key] = _train(training, data, self.vectors, seed, pairs)
            parts.append(self.trained[key])
        test = self.opened(trainings[0].member.features).test
        entry = _recorded(name, digest, parts, test, sources, seed)
        records.write(entry, self.folder)
        self.tell(f"{title}, seed {seed}: rsum {entry.metrics['rsum']:.1f} in {entry.seconds:.0f} s")
        return entry

    def _pair_metrics(self, data: str) -> set[str]:
        """Return what a record must have beyond the usual; another experiment's may lack it."""
        return set(METRICS) if self.pairs and data == "scenes" else set()

    def forget(self) -> None:
        """Forget the trained systems, to free their memory."""
        self.trained.clear()


@dataclass(frozen=True)
class _Trained:
    run: Run
    scores: Tensor  # (Ni, Nc), of the test split
    pairs: Tensor | None  # (P, 2, 2, C), see `pairs`; None: not asked for
    followed: dict[str, float]


def _train(
    training: PlannedTraining,
    data: Dataset,
    vectors: Callable[[Any], Tensor] | None,
    seed: int,
    pairs: Split | None,
) -> _Trained:
    watch = _Watch()
    tokenizer = training.recipe.tokenizer(data.train.captions)
    run = fit_in_rounds(
        training.recipe,
        data,
        tokenizer=tokenizer,
        vectors=None if vectors is None else vectors(tokenizer),
        callback=watch,
        seed=training.seed(seed),
    )
    model = run.model.to(best_device())
    scores = score_split(model, data.test, tokenizer)
    of_pairs = None if pairs is None else pair_scores(model, pairs, tokenizer)
    return _Trained(run, scores, of_pairs, watch.metrics())


def _recorded(
    title: str,
    digest: str,
    parts: Sequence[_Trained],
    test: Split,
    sources: Sequence[dict[str, Any]],
    seed: int,
) -> records.Record:
    """Make the record of an arm: of its one system, or of the mean of its members' similarities."""
    scores = ensemble(*(part.scores for part in parts))
    metrics = evaluate(scores, test.owner) | on_truth(scores, test, _data(sources)["name"])
    pairs, told = [part.pairs for part in parts if part.pairs is not None], ""
    if pairs:
        metrics |= pair_accuracy(torch.stack(pairs).mean(0), told_by_left_right())
        told = f" and on {2 * len(pairs[0])} that are pairs which differ in one relation"
    if len(parts) == 1:
        note = f"best epoch on dev, evaluated on {len(test)} test pictures{told}; {_Watch.note}"
        return records.record_run(parts[0].run, metrics | parts[0].followed, note)
    return records.record(
        title,
        config={"members": [part.run.recipe.portable() for part in parts]},
        config_hash=digest,
        data=_data(sources),
        seed=seed,
        metrics=metrics,
        seconds=sum(part.run.timings["seconds"] for part in parts),
        note=f"mean similarity of {len(parts)} systems, evaluated on {len(test)} test pictures{told}; "
        f"seeds {', '.join(str(part.run.seed) for part in parts)}; the seconds are of all",
        device=parts[0].run.device,
        precision=parts[0].run.precision,
        processes=parts[0].run.processes,
    )


def _sources(
    training: PlannedTraining,
    opened: Callable[[FeatureKind], Dataset],
    vectors: Callable[[Any], Tensor] | None,
    seed: int,
) -> dict[str, Any]:
    """Describe what a system is trained on in the form that its record has."""
    data = opened(training.member.features)
    tokenizer = training.recipe.tokenizer(data.train.captions)
    begin = None if vectors is None else vectors(tokenizer)
    found: dict[str, Any] = describe_data(data, tokenizer, begin)
    return found


def _data(sources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a record's entry for the data: one system's, or the name and the entries of all members."""
    if len(sources) == 1:
        return sources[0]
    return {"name": sources[0]["name"], "members": sources}


def _known_beforehand(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's entry for the data without what the training itself made: see `fit_in_rounds`."""
    known = {field: value for field, value in data.items() if field not in MADE}
    if "members" in known:
        known["members"] = [_known_beforehand(member) for member in known["members"]]
    return known


class _Watch:
    """Follows a training: after each epoch the rsum on dev, and the negatives that each rule keeps."""

    note = (
        "after each epoch the rsum on dev, and how many negatives either rule of AdOpt keeps, the mean over "
        "its batches"
    )

    def __init__(self) -> None:
        self.rsum: list[float] = []
        self.kept: dict[tuple[Rule, int], list[Tensor]] = defaultdict(list)

    def __call__(self, event: Event) -> None:
        if event.metrics is not None:
            self.rsum.append(event.metrics["rsum"])
            return
        for rule in RULES:  # read at the end: reading one now would wait for a GPU
            self.kept[rule, event.epoch].append(negatives_kept(event.scores, rule, event.positives))

    def metrics(self) -> dict[str, float]:
        followed = {f"dev_rsum_{epoch + 1}": rsum for epoch, rsum in enumerate(self.rsum)}
        return followed | {
            f"negatives_{rule}_{epoch + 1}": statistics.mean(int(k) for k in kept)
            for (rule, epoch), kept in self.kept.items()
        }
