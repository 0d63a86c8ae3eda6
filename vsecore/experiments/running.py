"""Running an experiment: train what is not recorded yet, and record the results."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from vsecore import records
from vsecore.data.boxes import with_boxes
from vsecore.data.files import cache_folder
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.sentence_targets import with_targets
from vsecore.data.splits import Dataset, FeatureKind, Split
from vsecore.evaluation import cross_retrieval_ranks, ensemble, evaluate
from vsecore.experiments import constraint, tuning
from vsecore.experiments.catalogue import get_experiment
from vsecore.experiments.constraint import CONTRAST, asked_of
from vsecore.experiments.experiment import (
    Candidates,
    Experiment,
    Member,
    Mined,
    PlannedTraining,
    at_scale,
    title_of,
)
from vsecore.experiments.first_round import mine_for, shares_true
from vsecore.experiments.gates import FIRST_PLACE
from vsecore.experiments.graded import GRADED, graded
from vsecore.experiments.pairs import METRICS, pair_accuracy, pair_scores, relation_pairs, told_by_left_right
from vsecore.experiments.probe import FACTS, probe_metric, probes
from vsecore.experiments.references import on_truth, record_references, truth_of
from vsecore.experiments.scales import Scale, changes_of, recipe_at
from vsecore.experiments.set_elements import element_sums
from vsecore.experiments.set_variance import LOG_VARIANCES, log_variances
from vsecore.experiments.watching import Watch, by_epoch
from vsecore.experiments.worlds import WORLDS, collection_of
from vsecore.losses import Rule, negatives_kept
from vsecore.paths import results
from vsecore.recipes import FirstRound, Recipe
from vsecore.training import Event, Run, describe_data, fit_in_rounds, score_split
from vsecore.training.distributed import best_device, make_accelerator, precision_of
from vsecore.training.planning import duration, plan

RULES: tuple[Rule, ...] = ("released", "printed")
RESULTS = results() / "experiments"
MADE = ("negatives", "weights", "targets")
"""What comes from the recipe, the data and the seed, and so does not tell two trainings apart: what the first
of two rounds leaves, and sentence targets, whose last digits differ from one processor to another."""

EXTRACTED: tuple[FeatureKind, ...] = ("grid", "region", "patch")
"""The kinds of features that a folder may hold."""

PROBE = 3.0
"""How many seconds the steps of a recipe are tried to say how long its training will take."""
PATIENCE = 10
"""How many seconds pass before a training that another process is at is asked for again."""


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
    dry_run: bool = False,
) -> dict[str, list[records.Record]]:
    """Train every arm from every seed and record the test split; what is recorded already is left as it is.

    At the scale "fair", each system's learning rate is chosen first, on the development split (see `tuning`);
    and where an arm is the best of several recipes, so is the recipe, at the scale "paper" too. The baseline
    that the arms must beat is recorded as well: a ridge regression on the same features.

    Args:
        name: the experiment's name.
        open_data: opens the data with the kind of features that it is given, or with what kind they have;
            scenes in the experiment's own world, and with its name.
        features: the features for arms that do not name their own; None: the experiment's.
        seeds: one run each, seed by seed, so that an interrupted experiment has complete comparisons.
        arms: only these; empty: all that can be trained at this scale and on these data.
        scale: "paper", "fair" or "lesson".
        settings: changes to all arms' recipes, over those of the scale.
        vectors: makes the word vectors from the tokenizer; None: they start as noise.
        folder: the folder of records.
        tell: called with a line about each result; at the scale "paper", first with what will be trained, and
            how long that takes on this machine.
        dry_run: only tell that.

    Returns:
        The records of each arm, seed by seed; none from a dry run.

    Raises:
        ValueError: the experiment or an arm is unknown, the scenes are those of another world, an arm asks
            for features or a truth that the data lack, or a learning rate is set although it is to be chosen.
    """
    experiment = get_experiment(name)
    if scale == "fair" and settings is not None and "training.learning_rate" in settings:
        raise ValueError("training.learning_rate is set, but the scale 'fair' chooses it for each system")
    for arm in arms:
        experiment.systems(arm, features or experiment.features)  # raises before the data are opened
    opened = cache(open_data)
    first = opened(features or experiment.features)
    data, features = first.name, first.feature_kind
    kinds: list[FeatureKind] = []  # scenes have all
    if data not in WORLDS:
        kinds = [
            features,
            *(kind for kind in EXTRACTED if features != "pixels" and opened(kind).feature_kind == kind),
        ]
    chosen = arms or [arm for arm in experiment.arms if experiment.trains_on(arm, data, kinds)]
    systems = {arm: experiment.systems(arm, features) for arm in chosen}
    _check_data(experiment, chosen, data, kinds)
    changes = {**changes_of(scale, collection_of(data)), **(settings or {})}
    seeds = list(seeds)
    workshop = _Workshop(opened, vectors, folder, tell, experiment)
    if dry_run or scale == "paper":
        again = len(seeds) + (len(tuning.FIRST) if scale == "fair" else 0)
        workshop.announce(systems, changes, again)
    if dry_run:
        return {}
    folder.mkdir(parents=True, exist_ok=True)  # so that a bad path fails now, not after hours
    for kind in dict.fromkeys(part.member.features for parts in systems.values() for part in parts):
        record_references(opened(kind), folder, tell)

    def recipe_of(candidates: Candidates) -> Recipe | None:
        if scale == "fair":
            return tuning.tuned(candidates, changes, lambda name: workshop.tune(name, candidates, changes))
        if scale == "paper":
            return workshop.best_of(candidates, changes)
        return recipe_at(candidates, changes)

    planned = {arm: experiment.trainings(arm, features, recipe_of) for arm in systems}
    if not arms:  # a lesson's scale cannot choose between recipes
        planned = {arm: trainings for arm, trainings in planned.items() if trainings}
    for arm, trainings in planned.items():
        if not trainings:
            raise ValueError(f"arm {arm!r} is the best of several on dev: the scale 'lesson' chooses none")
    found: dict[str, list[records.Record]] = {arm: [] for arm in planned}
    for seed in seeds:
        for arm, trainings in planned.items():
            found[arm].append(workshop.record(arm, trainings, seed))
        workshop.forget()  # the systems that several ensembles of a seed shared
    return found


def _check_data(
    experiment: Experiment, arms: Iterable[str], data: str, kinds: Collection[FeatureKind]
) -> None:
    """Refuse scenes of another world, and arms that need a truth that is not known."""
    if data in WORLDS and data != experiment.world:
        raise ValueError(f"the data are {data!r}: this experiment must have {experiment.world!r}")
    for arm in arms:
        if not experiment.trains_on(arm, data, kinds):
            raise ValueError(
                f"arm {arm!r} leaves out true negatives, but the truth of data {data!r} is not known"
                if experiment.arms[arm].only_false
                else f"arm {arm!r} has features that data {data!r} lack"
            )


def asked_of_record(experiment: Experiment, trainings: Sequence[PlannedTraining], data: str) -> set[str]:
    """Return what a record of an experiment must have beyond the usual; another experiment's may lack it."""
    asked = set(METRICS) if experiment.pairs and data == "scenes" else set()
    if experiment.probes:
        asked |= {*GRADED} | ({probe_metric(fact) for fact in FACTS} if data in WORLDS else set())
    if experiment.follows_losses and len(trainings) == 1:
        asked |= asked_of(trainings[0].recipe)
    return asked


class _Workshop:
    """Trains what is not recorded yet, and records it."""

    def __init__(
        self,
        opened: Callable[[FeatureKind], Dataset],
        vectors: Callable[[Any], Tensor] | None,
        folder: Path,
        tell: Callable[[str], None],
        experiment: Experiment,
    ) -> None:
        self.experiment = experiment
        self.miners = {arm.mined_by for arm in experiment.arms.values()} - {""}
        several = {arm for arm in experiment.arms if len(experiment.systems(arm, experiment.features)) > 1}
        self.used_again = {  # systems that mine, or are members of an ensemble: their runs stay
            recipe
            for arm in self.miners | several
            for kind in get_args(FeatureKind)
            for system in experiment.systems(arm, kind)
            for recipe in system.recipes
        }
        self.opened, self.vectors, self.folder, self.tell = opened, vectors, folder, tell
        self.with_targets = cache(lambda kind: with_targets(opened(kind)))
        self.precision = precision_of(make_accelerator())
        self.trained: dict[tuple[str, int], _Trained] = {}
        self.lists: dict[tuple[str, FeatureKind, int, int, int], OfflineNegatives] = {}
        self.tuned: dict[tuple[str, FeatureKind, str, int], dict[float, float]] = {}

    def announce(
        self, systems: Mapping[str, Sequence[Candidates]], changes: Mapping[str, Any], times: int
    ) -> None:
        """Tell what will be trained, and how long it takes on this machine if nothing of it is recorded yet.

        Args:
            systems: those of each arm.
            changes: to all recipes.
            times: how often each is trained.
        """
        seconds: dict[tuple[str, FeatureKind], float] = {}
        for arm, parts in systems.items():
            of_arm = 0.0
            for candidates in parts:
                for name in candidates.recipes:
                    recipe = at_scale(name, candidates.changes(changes))
                    key = recipe.hash(), candidates.member.features
                    if key not in seconds:
                        data = self._data(PlannedTraining(recipe, candidates.member))
                        seconds[key] = plan(recipe, data, seconds=PROBE).seconds
                    of_arm += times * seconds[key]
            count = times * sum(len(part.recipes) for part in parts)
            self.tell(f"{arm}: {count} training{'s' if count > 1 else ''}, {duration(of_arm)}")
        self.tell(f"in all, counting once what several arms share: {duration(times * sum(seconds.values()))}")

    def tune(self, name: str, candidates: Candidates, changes: Mapping[str, Any]) -> dict[float, float]:
        """Return the best rsum on dev at each learning rate that a recipe must be tried at, from one seed."""
        mined, features, own = candidates.mined, candidates.member.features, candidates.changes(changes)
        key = name, features, mined.digest if mined else "", candidates.times_as_wide
        results = self.tuned.setdefault(key, {})
        if not tuning.still_to_try(results):
            return results
        while rates := tuning.still_to_try(results):
            for rate in rates:
                planned = PlannedTraining(tuning.at_rate(name, own, rate), Member(features), mined)
                called = f"{_called(name, mined)} at {rate:g}"
                entry = self.record(called, [planned], tuning.SEED, for_tuning=True)
                results[rate] = max(tuning.development_curve(entry))
                self.forget()
        self.tell(
            f"{_called(name, mined)}: learning rate {tuning.best(results):g}, of "
            f"{', '.join(f'{rate:g}' for rate in sorted(results))}"
        )
        return results

    def best_of(self, candidates: Candidates, changes: Mapping[str, Any]) -> Recipe:
        """Return the recipe of a system, the best on dev if there are several, each trained from one seed."""
        own = candidates.changes(changes)
        recipes = [at_scale(name, own) for name in candidates.recipes]
        if len(recipes) == 1:
            return recipes[0]

        def rsum_on_dev(recipe: Recipe) -> float:
            planned = PlannedTraining(recipe, candidates.member, candidates.mined)
            entry = self.record(recipe.name, [planned], tuning.SEED, for_tuning=True)
            return max(tuning.development_curve(entry))

        return max(recipes, key=rsum_on_dev)

    def record(
        self, title: str, trainings: Sequence[PlannedTraining], seed: int, *, for_tuning: bool = False
    ) -> records.Record:
        """Return the record of an arm, which is trained first if there is none.

        Args:
            title: its name in the messages.
            trainings: of its systems.
            seed: of the experiment.
            for_tuning: whether a record with only the usual metrics will do.
        """
        data = self._data(trainings[0]).name
        asked = set[str]() if for_tuning else asked_of_record(self.experiment, trainings, data)
        sources = [self._sources(training, seed) for training in trainings]
        name, digest = title_of(trainings)
        found = records.find(self.folder, name=name, config_hash=digest, seed=seed, precision=self.precision)
        same = [
            entry for entry in found if _known_beforehand(entry.data) == _known_beforehand(_data(sources))
        ]
        for entry in same:
            if asked <= entry.metrics.keys():
                self.tell(f"{title}, seed {seed}: recorded already")
                return entry
        parts = [self._train(training, seed) for training in trainings]
        test = self.opened(trainings[0].member.features).test
        entry = _recorded(name, digest, parts, test, sources, seed)
        records.write(entry, self.folder)
        for training in trainings:
            if training.recipe.name not in self.used_again:
                shutil.rmtree(self._kept(training, seed), ignore_errors=True)
        for old in same:  # of the same training, but without what was asked for
            if old.file_name != entry.file_name:
                (self.folder / old.file_name).unlink(missing_ok=True)
        self.tell(f"{title}, seed {seed}: rsum {entry.metrics['rsum']:.1f} in {entry.seconds:.0f} s")
        return entry

    def _train(self, training: PlannedTraining, seed: int) -> _Trained:
        """Train a system, or return it if it was just trained."""
        key = (training.digest, training.seed(seed))
        if key not in self.trained:
            data = self._data(training)
            pairs = (
                relation_pairs(data.feature_kind) if self.experiment.pairs and data.name == "scenes" else None
            )
            negatives, folder = self._mine(training, data, seed), self._kept(training, seed)
            while True:
                with contextlib.suppress(BlockingIOError):  # another process trains the same now
                    self.trained[key] = _train(
                        training,
                        data,
                        self.vectors,
                        seed,
                        pairs,
                        negatives=negatives,
                        folder=folder,
                        recalls=bool(self.miners),
                        probed=self.experiment.probes,
                        follows_losses=self.experiment.follows_losses,
                    )
                    break
                time.sleep(PATIENCE)
        return self.trained[key]

    def _mine(self, training: PlannedTraining, data: Dataset, seed: int) -> OfflineNegatives | None:
        """Mine a training's offline negatives with the model of another training; None: nothing to mine."""
        if training.mined is None:
            return None
        if not training.recipe.learns_offline:
            raise ValueError(f"recipe {training.recipe.name!r} learns from no offline negatives: mine none")
        first = training.recipe.first_round or FirstRound()  # the usual lists, if another system mines them
        key = (training.mined.digest, data.feature_kind, seed, first.texts, first.pictures)
        if key not in self.lists:
            miner = self._train(training.mined.by, seed).run
            truth = truth_of(data.train, data.name, "train") if training.mined.only_false else None
            found = mine_for(
                miner.model.to(best_device()), data.train, miner.tokenizer, first.texts, first.pictures, truth
            )
            self.lists = {key: found}  # most arms that follow each other share one; more would take memory
        return self.lists[key]

    def _kept(self, training: PlannedTraining, seed: int) -> Path:
        """Return where the run of a system is kept: one that was killed goes on from there.

        It stays there where other arms need it: systems that mine, and members of ensembles.
        """
        sources = json.dumps(self._sources(training, seed), sort_keys=True)
        told = hashlib.sha256(f"{self.precision}\n{sources}".encode()).hexdigest()[:12]
        name = f"{training.recipe.name}-{training.digest}-{told}-seed{training.seed(seed)}"
        return cache_folder("experiments") / name

    def _data(self, training: PlannedTraining) -> Dataset:
        """Return what a system is trained on: with sentence targets if it predicts them."""
        opened = self.with_targets if training.recipe.predicts_targets else self.opened
        data = opened(training.member.features)
        return with_boxes(data) if training.recipe.image.boxes else data

    def _sources(self, training: PlannedTraining, seed: int) -> dict[str, Any]:
        """Describe what a system is trained on in the form that its record has."""
        data = self._data(training)
        tokenizer = training.recipe.tokenizer(data.train.captions)
        begin = None if self.vectors is None else self.vectors(tokenizer)
        found: dict[str, Any] = describe_data(data, tokenizer, begin)
        if mined := training.mined:
            found["mined_by"] = f"{mined.by.recipe.name} {mined.by.digest}, seed {mined.by.seed(seed)}"
            if mined.only_false:
                found["left_out"] = "negatives that are true of their anchor"
        return found

    def forget(self) -> None:
        """Forget the trained systems, to free their memory."""
        self.trained.clear()


@dataclass(frozen=True)
class _Trained:
    run: Run
    scores: Tensor  # (Ni, Nc), of the test split
    pairs: Tensor | None  # (P, 2, 2, C), see `pairs`; None: not asked for
    followed: dict[str, float]
    mined: dict[str, float] = field(default_factory=dict)  # see `shares_true`
    told: dict[str, float] = field(
        default_factory=dict
    )  # `log_variances`, `element_sums`, `probes`, `graded`


def _train(
    training: PlannedTraining,
    data: Dataset,
    vectors: Callable[[Any], Tensor] | None,
    seed: int,
    pairs: Split | None,
    *,
    negatives: OfflineNegatives | None,
    folder: Path,
    recalls: bool,
    probed: bool,
    follows_losses: bool,
) -> _Trained:
    """Train a system.

    Args:
        training: what to train.
        data: what to train it on.
        vectors: makes the word vectors; None: they start as noise.
        seed: of the experiment.
        pairs: pictures that differ in one relation, if they are looked at.
        negatives: its offline negatives; None: it has none, or mines its own after a first round.
        folder: where the run is kept, and taken up again if it was killed.
        recalls: whether the recalls at 1 on dev are followed too.
        probed: whether more is asked than who is found: see `probe` and `graded`.
        follows_losses: whether its losses and its multiplier are followed, see `constraint`.
    """
    watch = Watch(folder, (_look, constraint.look) if follows_losses else (_look,))
    tokenizer = training.recipe.tokenizer(data.train.captions)
    run = fit_in_rounds(
        training.recipe,
        data,
        folder=folder,
        resume=True,
        tokenizer=tokenizer,
        vectors=None if vectors is None else vectors(tokenizer),
        negatives=negatives,
        callback=watch,
        seed=training.seed(seed),
    )
    model = run.model.to(best_device())
    scores = score_split(model, data.test, tokenizer)
    of_pairs = None if pairs is None else pair_scores(model, pairs, tokenizer)
    truth = None if negatives is None else truth_of(data.train, data.name, "train")
    shares = {} if negatives is None or truth is None else shares_true(negatives, truth)
    told = log_variances(model, data.test, tokenizer) | element_sums(model, data.test, tokenizer)
    told |= probes(model, data, tokenizer) | graded(scores, data.test) if probed else {}
    steps = watch.steps()
    followed = _curves(run, recalls) | _negatives(steps)
    if follows_losses:
        followed |= constraint.metrics(steps)
    return _Trained(run, scores, of_pairs, followed, shares, told)


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
    metrics["parameters"] = sum(weight.numel() for part in parts for weight in part.run.model.parameters())
    metrics[FIRST_PLACE] = 100 * float((cross_retrieval_ranks(scores, test.owner) == 0).double().mean())
    pairs, told = [part.pairs for part in parts if part.pairs is not None], ""
    if pairs:
        metrics |= pair_accuracy(torch.stack(pairs).mean(0), told_by_left_right())
        told = f" and on {2 * len(pairs[0])} that are pairs which differ in one relation"
    if len(parts) == 1:
        note = f"best epoch on dev, evaluated on {len(test)} test pictures{told}; {FOLLOWED}"
        if parts[0].followed.keys() >= {*CONTRAST}:
            note += f"; {constraint.NOTE}"
        if "mined_by" in sources[0]:
            note += "; the seconds are those of the second round"
        if parts[0].mined:
            note += "; of the mined texts and pictures, how many are true of their anchor, in percent"
        if parts[0].told.keys() & {*LOG_VARIANCES}:
            note += (
                "; of each side's sets, the mean logarithm of the circular variance, and the rsum with one "
                "vector alone or left out"
            )
        if parts[0].told.keys() & {*GRADED}:
            note += "; R-precision, and nDCG of the first 25 by ROUGE-L, in percent"
        if any(name.startswith("probe_") for name in parts[0].told):
            note += (
                "; how well linear probes read from captions' vectors what the captions say, the mean area "
                "under the curve in percent"
            )
        measured = metrics | parts[0].followed | parts[0].mined | parts[0].told
        entry = records.record_run(parts[0].run, measured, note)
        return replace(entry, config_hash=digest, data=entry.data | sources[0])
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


def _called(name: str, mined: Mined | None) -> str:
    """Return what a line about a system calls it."""
    return f"{name} without true negatives" if mined and mined.only_false else name


def _curves(run: Run, recalls: bool) -> dict[str, float]:
    """Return the rsum on dev after each epoch, and the recalls at 1 if they are asked for."""
    followed = ("rsum", "i2t_r1", "t2i_r1") if recalls else ("rsum",)
    return {
        f"dev_{metric}_{number}": entry[metric]
        for number, entry in enumerate(run.history, start=1)
        for metric in followed
    }


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


FOLLOWED = (
    "after each epoch the rsum on dev, and how many negatives either rule of AdOpt keeps, the mean over its "
    "batches"
)


def _look(event: Event) -> dict[str, Tensor | float]:
    """Return how many negatives each rule of AdOpt keeps of a step."""
    return {f"negatives_{rule}": negatives_kept(event.scores, rule, event.positives) for rule in RULES}


def _negatives(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return how many negatives each rule keeps, the mean over the steps of each epoch."""
    return {
        f"negatives_{rule}_{epoch + 1}": statistics.mean(kept)
        for rule in RULES
        for epoch, kept in by_epoch(steps, f"negatives_{rule}").items()
    }
