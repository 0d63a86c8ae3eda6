"""Running an experiment: train what is not recorded yet, and record the results."""

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

from torch import Tensor

from vsecore import records
from vsecore.data.boxes import with_boxes
from vsecore.data.files import cache_folder, locked
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.sentence_targets import with_targets
from vsecore.data.splits import Dataset, FeatureKind
from vsecore.encoders import TEXT_ENCODERS
from vsecore.experiments import tuning
from vsecore.experiments.experiment import Experiment, System, Training, get_experiment, only_recipe, title_of
from vsecore.experiments.recording import Trained, asked_of_record, joined, known_beforehand, record_of
from vsecore.experiments.references import BASELINE, alike, mine_for, record_references, truth_of
from vsecore.experiments.scales import FOR_COLLECTION, WORLDS, Scale, as_published, changes_of
from vsecore.experiments.watching import Watch, observe_losses, observe_negatives
from vsecore.paths import results
from vsecore.recipes import FirstRound, Recipe
from vsecore.recipes.plain import flatten
from vsecore.training import describe_data, fit_in_rounds
from vsecore.training.distributed import best_device, make_accelerator, precision_of
from vsecore.training.identity import digest
from vsecore.training.planning import duration, plan

RESULTS = results() / "experiments"
EXTRACTED: tuple[FeatureKind, ...] = ("grid", "region", "patch")
"""The kinds of features that a folder may hold."""
TRIAL_SECONDS = 3.0
"""For how many seconds a recipe's steps are timed, to estimate how long its training will take."""
PATIENCE = 10
"""How many seconds to wait before asking again for a training that another process is running."""


@dataclass(frozen=True)
class Settings:
    """How an experiment is run: the keywords of `run`."""

    features: FeatureKind | None = None
    """The features for arms that do not name their own; None: the experiment's."""
    seeds: Sequence[int] = range(5)
    """All arms are trained from one seed before the next, so that an interrupted experiment compares like
    with like."""
    arms: Sequence[str] = ()
    """The arms to train; empty: all that can be trained at this scale and on these data."""
    scale: Scale = "fair"
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Changes to all arms' recipes, over those of the scale."""
    vectors: Callable[[Any], Tensor] | None = None
    """Makes the word vectors from the tokenizer; None: they start as noise."""
    folder: Path = RESULTS
    """The folder of records."""
    log: Callable[[str], None] = print
    """Called with a line about each result; at the scale "paper", first with what will be trained, and how
    long that takes on this machine."""
    dry_run: bool = False
    """Only say what will be trained."""


def run(
    name: str, open_data: Callable[[FeatureKind], Dataset], **settings: Any
) -> dict[str, list[records.Record]]:
    """Train every arm from every seed and record the test split; what is recorded already is left as it is.

    At the scale "fair", each system's learning rate is chosen first, on the development split (see `tuning`);
    and where an arm is the best of several recipes, so is the recipe, at the scale "paper" too. The baseline
    that the arms must beat is recorded as well: a ridge regression on the same features. Several processes
    that run it at the same time share its trainings: each takes one that no other has.

    Args:
        name: the experiment's name.
        open_data: opens the data with the kind of features that it is given, or else with the kind they have.
            Scenes must be those of the experiment's own world, under its name.
        settings: how it is run, see `Settings`.

    Returns:
        The records of each arm, seed by seed; none from a dry run.

    Raises:
        ValueError: the experiment or an arm is unknown, cannot be trained on these data or at this scale, or
            a learning rate is set although it is to be chosen; or a launcher has started several processes.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("an experiment takes no launcher: start one for each GPU, by CUDA_VISIBLE_DEVICES=0")
    chosen, experiment, open_data = Settings(**settings), get_experiment(name), cache(open_data)
    if chosen.scale == "fair" and "training.learning_rate" in chosen.changes:
        raise ValueError("training.learning_rate is set, but the scale 'fair' chooses it for each system")
    for arm in chosen.arms:
        experiment.systems(arm, experiment.features)  # raises before the data are opened
    if chosen.scale == "paper":
        data = open_data(chosen.features or experiment.features).name
        experiment = experiment.as_printed(data)
        if data not in WORLDS and as_published(data) not in FOR_COLLECTION:
            chosen.log(f"{data} is neither coco nor flickr30k: vse recipes NAME says whose settings it has")
    runner, seeds, log = _Runner(experiment, open_data, chosen), chosen.seeds, chosen.log
    systems = {arm: experiment.systems(arm, runner.features) for arm in runner.arms()}
    for arm, several in systems.items():
        recipes = [recipe for system in several for recipe in system.at(runner.changes)]
        if fields := dict.fromkeys(field for one in recipes for field in _overruled(one, chosen.changes)):
            log(f"{arm}: {', '.join(fields)} not taken as set, since its variants say otherwise")
        with_vectors = any("give their file as vectors" in one.source for one in recipes)
        if with_vectors and chosen.vectors is None and chosen.scale == "paper":
            log(f"{arm}: its word vectors begin as noise, unlike the paper's: give --vectors")
        first, *others = [runner.opened(system.features).test for system in several]
        if not all(first.shows_the_same(other) for other in others):  # their similarities are averaged
            raise ValueError(f"arm {arm!r} needs the same test captions of all features, in the same order")
    if chosen.folder.is_dir():
        runner.alike = alike(records.find(chosen.folder, name=BASELINE))
    if chosen.dry_run or chosen.scale == "paper":
        runner.announce(systems, seeds)
    if chosen.dry_run:
        return {}
    chosen.folder.mkdir(parents=True, exist_ok=True)  # so that a bad path fails now, not after hours
    for kind in dict.fromkeys(system.features for several in systems.values() for system in several):
        record_references(runner.opened(kind), chosen.folder, log)
    runner.alike = alike(records.find(chosen.folder, name=BASELINE))  # with what was just measured
    before = None
    while True:
        planned = _shared(
            systems, lambda arm: experiment.trainings(arm, runner.features, runner.recipe_of), log
        )
        for arm in [arm for arm, trainings in planned.items() if not trainings]:
            if chosen.arms:
                raise ValueError(
                    f"arm {arm!r} is the best of several on dev: the scale 'lesson' chooses none"
                )
            del planned[arm]
        each = [(seed, arm) for seed in seeds for arm in planned]
        try:
            found = _shared(each, lambda one: runner.record(one[1], planned[one[1]], one[0]), log)  # noqa: B023
            return {arm: [found[seed, arm] for seed in seeds] for arm in planned}
        except FloatingPointError as error:
            if chosen.scale != "fair" or planned == before:
                raise
            log(f"{error}; so the next best learning rate is taken, from every seed")
            before = planned
            runner.tuned.clear()


def _shared(items: Iterable[Any], work: Callable[[Any], Any], log: Callable[[str], None]) -> dict[Any, Any]:
    """Do some work for each item, last for those that another process has, and return each result."""
    done, items, say_once = dict[Any, Any](), list(items), cache(log)
    while left := [item for item in items if item not in done]:
        before = len(done)
        for item in left:
            with suppress(BlockingIOError):
                done[item] = work(item)
        if len(done) == before:
            say_once("waiting for what other processes train")
            time.sleep(PATIENCE)
    return {item: done[item] for item in items}


def _overruled(recipe: Recipe, changes: Mapping[str, Any]) -> list[str]:
    """Return the changes that a recipe does not show: its variants come after what all arms share.

    Width, epochs and lists of negatives are left out, of which an arm may have a multiple of what is set.
    """
    multiples = ("dim", "training.epochs", "first_round")
    changes = {name: new for name, new in changes.items() if not name.startswith(multiples)}
    has = wanted = flatten(recipe.to_dict())
    with suppress(ValueError):  # a part is not there
        changed = recipe.override(changes)
        if changed.hash() == recipe.hash():
            return []
        wanted = flatten(changed.to_dict())
    return [field for field in changes if field not in has or has[field] != wanted[field]]


class _Runner:
    """Trains what is not recorded yet, and records it."""

    def __init__(
        self, experiment: Experiment, open_data: Callable[[FeatureKind], Dataset], settings: Settings
    ) -> None:
        self.experiment, self.settings = experiment, settings
        self.opened = open_data
        self.with_targets = cache(lambda kind: with_targets(self.opened(kind)))
        first = self.opened(settings.features or experiment.features)
        self.data, self.features = first.name, first.feature_kind
        self.changes = {**changes_of(settings.scale, self.data), **settings.changes}
        several = {arm for arm in experiment.arms if len(experiment.systems(arm, experiment.features)) > 1}
        self.used_again = {  # systems that mine, or are members of an ensemble: their runs stay
            recipe
            for arm in experiment.miners | several
            for kind in get_args(FeatureKind)
            for system in experiment.systems(arm, kind)
            for recipe in system.recipes
        }
        self.precision = precision_of(make_accelerator())
        self.trained: dict[tuple[str, int], Trained] = {}
        self.seed: int | None = None  # that they were trained for
        self.alike: Mapping[str, str] = {}  # fingerprints, see `references.alike`
        self.words: dict[tuple[str, FeatureKind], tuple[Any, Tensor | None]] = {}
        self.lists: dict[tuple[str, FeatureKind, int, int, int], OfflineNegatives] = {}
        self.tuned: dict[tuple[str, str], dict[float, float]] = {}

    def arms(self) -> Sequence[str]:
        """Return the arms to train; refuse scenes of another world, and arms that the data cannot serve."""
        data, experiment, kinds = self.data, self.experiment, list[FeatureKind]()  # scenes have all kinds
        if data in WORLDS and data != experiment.world:
            raise ValueError(f"the data are {data!r}: this experiment must have {experiment.world!r}")
        if data not in WORLDS:
            kinds = [self.features]
            if self.features != "pixels":
                kinds += [kind for kind in EXTRACTED if self.opened(kind).feature_kind == kind]
        able = [arm for arm in experiment.arms if experiment.trains_on(arm, data, kinds)]
        for arm in {*self.settings.arms} - {*able}:
            lack = "their truth is unknown" if experiment.arms[arm].only_false else "they lack features"
            raise ValueError(f"arm {arm!r} cannot be trained on data {data!r}: {lack}")
        first_with: dict[Any, str] = {}  # arms may differ only in what suits small trainings, see `FOR_SMALL`
        for arm in able:
            one = experiment.arms[arm]
            borrowed = one.at_rate_of if self.settings.scale == "fair" else ""
            systems = experiment.systems(arm, self.features)
            first_with.setdefault((*systems, one.mined_by, one.only_false, borrowed), arm)
        wanted = self.settings.arms or list(first_with.values())
        lacking = {arm: why for arm in wanted if (why := self._lacks_boxes(arm))}
        for arm, why in lacking.items():
            if self.settings.arms or len(lacking) == len(wanted):
                raise FileNotFoundError(why)
            self.settings.log(f"{arm} is left out: {why}")
        return [arm for arm in wanted if arm not in lacking]

    def _lacks_boxes(self, arm: str) -> str:
        """Return why an arm that reads where regions lie cannot be trained on a folder; "": it can."""
        for system in self.experiment.systems(arm, self.features):
            if any(recipe.image.boxes for recipe in system.at(self.changes)):
                try:
                    with_boxes(self.opened(system.features))
                except FileNotFoundError as error:
                    return str(error)
        return ""

    def announce(self, systems: Mapping[str, Sequence[System]], seeds: Sequence[int]) -> None:
        """Say what will be trained, and how long it takes on this machine.

        Where something is chosen on dev first, it is as if nothing were recorded yet.
        """
        fair, log = self.settings.scale == "fair", self.settings.log
        took = dict[tuple[str, str], float]()  # by a recipe's hash and the kind of features
        times = dict[tuple[tuple[str, str], str, int], int]()
        for arm, several in systems.items():
            known = self.experiment.trainings(arm, self.features, lambda one: only_recipe(one, self.changes))
            left = [seed for seed in seeds if fair or not known or not self.recorded(known, seed)]
            if not left:
                log(f"{arm}: recorded already")
                continue
            tried = len(tuning.FIRST) - (tuning.SEED in left) if fair else 0  # one is the run of its seed
            each, keys = len(left) + tried, list[tuple[tuple[str, str], str, int]]()
            trainings = [Training(recipe, one) for one in several for recipe in one.at(self.changes)]
            chosen = self.experiment.arms[arm]
            if chosen.mined_by:  # so there is no first round
                (system,) = self.experiment.systems(chosen.mined_by, self.features)
                miners = [Training(recipe, system) for recipe in system.at(self.changes)]
                trainings = [
                    Training(
                        replace(one.recipe, first_round=None),
                        replace(one.system, miner=miners[0], only_false=chosen.only_false),
                    )
                    for one in trainings
                ]
                if chosen.mined_by not in systems:
                    trainings += miners
            for training in trainings:
                kind = training.recipe.hash(), training.system.features
                keys.append(key := (kind, training.digest, training.system.again))
                times[key] = max(each, times.get(key, 0))
                if kind not in took:
                    cost = plan(training.recipe, self.dataset(training), seconds=TRIAL_SECONDS)
                    took[kind] = cost.seconds
            count, seconds = each * len(keys), each * sum(took[kind] for kind, *_ in keys)
            log(f"{arm}: {count} training{'s' if count > 1 else ''}, {duration(seconds)}")
        total = duration(sum(count * took[kind] for (kind, *_), count in times.items()))
        log(f"in all, counting once what several arms share: {total}")

    def recipe_of(self, system: System) -> Recipe | None:
        """Return a system's recipe; by the scale, the best on dev of several recipes or learning rates."""
        if self.settings.scale == "fair":
            return tuning.tuned(system, self.changes, lambda name: self.tune(system, name))
        if self.settings.scale == "lesson" or len(system.recipes) == 1:
            return only_recipe(system, self.changes)
        return max(system.at(self.changes), key=lambda recipe: self.on_dev(recipe.name, recipe, system))

    def tune(self, system: System, name: str) -> dict[float, float]:
        """Return the best rsum on dev at each learning rate that a recipe must be tried at, from one seed."""
        key = name, tuning.digest_at(system, name, self.changes, tuning.FIRST[0])
        tried = self.tuned.setdefault(key, {})  # some rates, if another process was at the next one
        if tuning.still_to_try(tried):
            title = f"{name} without true negatives" if system.only_false else name

            def train(rate: float) -> float:
                recipe = tuning.at_rate(name, system.changes(self.changes), rate)
                return self.on_dev(f"{title} at {rate:g}", recipe, replace(system, again=0))

            tuning.search(train, results=tried)
            rates_tried = ", ".join(
                f"{rate:g}" if tried[rate] >= 0 else f"{rate:g} (diverged)" for rate in sorted(tried)
            )
            self.settings.log(f"{title}: learning rate {tuning.best(tried):g}, of {rates_tried}")
        return tried

    def on_dev(self, title: str, recipe: Recipe, system: System) -> float:
        """Train a recipe from the seed for tuning, and return its best rsum on dev."""
        training = Training(recipe, system)
        if self.has_diverged(training):
            return -math.inf
        entry = self.record(title, [training], tuning.SEED, for_tuning=True)
        self.trained.clear()
        return max(tuning.development_curve(entry))

    def has_diverged(self, training: Training) -> bool:
        """Whether a training diverged from any seed, asked for now or not: tables take no such rate."""

        def but_seed(data: Mapping[str, Any]) -> dict[str, Any]:
            return known_beforehand(data, self.alike) | {"mined_by": ""}  # the digest tells what mined

        folder, name = self.settings.folder / tuning.DIVERGED, training.recipe.name
        found = {"name": name, "config_hash": training.digest, "precision": self.precision}
        entries = records.find(folder, **found) if folder.is_dir() else []
        source = but_seed(self._source(training, tuning.SEED))
        return any(but_seed(entry.data) == source for entry in entries)

    def record(
        self, title: str, trainings: Sequence[Training], seed: int, *, for_tuning: bool = False
    ) -> records.Record:
        """Return the record of an arm, which is trained first if there is none.

        For tuning, a record with only the usual metrics will do. A BlockingIOError says that another process
        is training it, and may record it.
        """
        if seed != self.seed:
            self.trained.clear()  # the systems that several ensembles of a seed shared
        self.seed = seed
        asked = set() if for_tuning else asked_of_record(self.experiment, trainings, self.data)
        sources = [self._source(training, seed) for training in trainings]
        runs = [self._run_folder(training, seed) for training in trainings]
        lock = digest("\n".join(run.name for run in runs).encode()) + ".lock"
        folder, scale, log = self.settings.folder, self.settings.scale, self.settings.log
        # From the look at the records to the record, or another process would train or measure it again.
        with locked(cache_folder("experiments"), "is training in", wait=False, name=lock):
            same = self.recorded(trainings, seed)
            entry = next((one for one in same if asked <= one.metrics.keys()), None)
            if entry is not None:
                log(f"{title}, seed {seed}: recorded already")
            else:
                parts = [self.train(training, seed) for training in trainings]
                test = self.opened(trainings[0].system.features).test
                entry = record_of(trainings, parts, sources, test, seed)
                records.write(entry, folder)
                for old in same:  # of the same training, but without what was asked for
                    if old.file_name != entry.file_name:
                        (folder / old.file_name).unlink(missing_ok=True)
                for training, run in zip(trainings, runs, strict=True):
                    if scale != "paper" and training.recipe.name not in self.used_again:
                        _remove(run)
                log(f"{title}, seed {seed}: rsum {entry.metrics['rsum']:.1f} in {entry.seconds:.0f} s")
        for run in runs:  # which took days, and of which more may be asked: CxC, ECCV
            if scale == "paper" and run.is_dir():
                log(f"run: {run}")
        return entry

    def recorded(self, trainings: Sequence[Training], seed: int) -> list[records.Record]:
        """Return the records of an arm from a seed, on the same data and in the same precision."""
        folder, (name, digest) = self.settings.folder, title_of(trainings)
        known = known_beforehand(joined([self._source(training, seed) for training in trainings]), self.alike)
        found = {"name": name, "config_hash": digest, "seed": seed, "precision": self.precision}
        entries = records.find(folder, **found) if folder.is_dir() else []
        return [entry for entry in entries if known_beforehand(entry.data, self.alike) == known]

    def train(self, training: Training, seed: int) -> Trained:
        """Train a system and measure it, or return it if it was just trained."""
        key = training.digest, training.seed(seed)
        if key in self.trained:
            return self.trained[key]
        data, folder, experiment = self.dataset(training), self._run_folder(training, seed), self.experiment
        tokenizer, vectors = self._words(training)
        negatives, begun = self._mine(training, data, seed), None
        miner, first = training.system.miner, training.recipe.first_round
        if miner is not None and first is not None and first.keeps_weights:  # its model is trained further
            begun = dict(self.train(miner, seed).run.model.cpu().state_dict())
        watch = Watch(folder, (observe_negatives, *([observe_losses] if experiment.follows_losses else [])))
        try:
            run = fit_in_rounds(
                training.recipe,
                data,
                folder=folder,
                resume=True,
                tokenizer=tokenizer,
                vectors=vectors,
                negatives=negatives,
                weights=begun,
                callback=watch,
                seed=training.seed(seed),
            )
        except FloatingPointError:
            if self.settings.scale == "fair":
                gone = records.record(
                    name=training.recipe.name,
                    config=training.recipe.portable(),
                    config_hash=training.digest,
                    data=self._source(training, seed),
                    seed=training.seed(seed),
                    metrics={tuning.DIVERGED: 1},
                    seconds=0.0,
                    note="it diverged",
                    precision=self.precision,
                )
                records.write(gone, self.settings.folder / tuning.DIVERGED)
            raise
        trained = Trained.measure(run, data, experiment, watch.steps(), negatives)
        if training.recipe.name in self.used_again:  # of the others, scores and weights would fill the memory
            self.trained[key] = trained
        return trained

    def _mine(self, training: Training, data: Dataset, seed: int) -> OfflineNegatives | None:
        """Mine a training's offline negatives with the model of another training; None: nothing to mine."""
        miner = training.system.miner
        if miner is None:
            return None
        first = training.recipe.first_round or FirstRound()  # the usual lists, if another system mines them
        key = (training.system.negatives, data.feature_kind, seed, first.texts, first.pictures)
        if key not in self.lists:
            run = self.train(miner, seed).run
            truth = truth_of(data.train, data.name) if training.system.only_false else None
            model = run.model.to(best_device())
            mined = mine_for(model, data.train, run.tokenizer, first.texts, first.pictures, truth)
            self.lists = {key: mined}  # most arms that follow each other share one; more would take memory
        return self.lists[key]

    def _run_folder(self, training: Training, seed: int) -> Path:
        """Return where the run of a system is kept: one that was killed goes on from there."""
        source = json.dumps(self._source(training, seed), sort_keys=True)
        data = digest(f"{self.precision}\n{source}".encode())
        name = f"{training.recipe.name}-{training.digest}-{data}-seed{training.seed(seed)}"
        return cache_folder("experiments") / name

    def dataset(self, training: Training) -> Dataset:
        """Return what a system is trained on: with sentence targets or boxes if it needs them."""
        opened = self.with_targets if training.recipe.predicts_targets else self.opened
        data = opened(training.system.features)
        return with_boxes(data) if training.recipe.image.boxes else data

    def _words(self, training: Training) -> tuple[Any, Tensor | None]:
        """Return the tokenizer of a system, and the word vectors that it starts with, if any."""
        encoder, vectors = training.recipe.text.encoder, self.settings.vectors
        key = repr(encoder), training.system.features
        if key not in self.words:  # counting the words of all captions, and reading vectors, take a while
            tokenizer = training.recipe.tokenizer(self.dataset(training).train.captions)
            takes_them = TEXT_ENCODERS.takes(encoder.name, "vectors")
            self.words[key] = tokenizer, vectors(tokenizer) if vectors and takes_them else None
        return self.words[key]

    def _source(self, training: Training, seed: int) -> dict[str, Any]:
        """Describe what a system is trained on in the form that its record has."""
        found: dict[str, Any] = describe_data(self.dataset(training), *self._words(training))
        if miner := training.system.miner:
            found["mined_by"] = f"{miner.recipe.name} {miner.digest}, seed {miner.seed(seed)}"
            if training.system.only_false:
                found["left_out"] = "negatives that are true of their anchor"
        return found


def _remove(folder: Path) -> None:
    """Remove a run. It is renamed first, so that no half of one is left where the next would begin."""
    if folder.is_dir():
        gone = folder.with_name(f".{folder.name}")
        shutil.rmtree(gone, ignore_errors=True)  # of a removal that was stopped
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
