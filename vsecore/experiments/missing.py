"""What is missing before the claims can be judged: the trainings, how long they take, and training them.

A training that several claims need is counted once, and trained once. `train_missing` may be killed at any
moment: each training that ends is recorded, and one that was killed goes on where it was last saved.
"""

import math
import multiprocessing
import os
import statistics
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from vsecore.data.splits import Dataset, FeatureKind
from vsecore.experiments import gates, ledger, tuning
from vsecore.experiments.experiment import BY_WORK, Experiment, System, get_experiment, title_of
from vsecore.experiments.recording import asked_of_record
from vsecore.experiments.running import RESULTS, run
from vsecore.experiments.scales import changes_of
from vsecore.experiments.tables import markdown_table
from vsecore.experiments.verdicts import outcomes
from vsecore.recipes import Recipe
from vsecore.records import Record
from vsecore.stopping import leave_to_parent

Key = tuple[str, str, int]
"""What tells a training from all others: the name of its data, its digest and its seed."""
Trainings = Mapping[Key, float]
"""Trainings that are lacking, and the seconds of each; `nan`: nobody knows yet."""
DATA = ("scenes", "flickr8k")
"""The data that claims are tried on."""


def lacking(experiment: Experiment, arm: str, data: str, entries: Sequence[Record]) -> dict[Key, str]:
    """Return the fair trainings that an arm lacks, each with its recipe's name.

    The best rates are taken to be those that look best so far. Each recipe is tried at three rates or more
    from one seed; the other seeds follow. An arm whose negatives are mined lacks what its miner lacks, and an
    ensemble all its members, whose runs may still be kept.
    """
    changes, lacks = changes_of("fair", experiment.data_named(data)), dict[tuple[str, int], str]()
    recorded = {(entry.name, entry.config_hash, entry.seed): entry.metrics.keys() for entry in entries}

    def recipe_of(system: System) -> Recipe:
        found = {
            name: tuning.tried(tuning.recorded(system, name, changes, entries)) for name in system.recipes
        }
        for name, tried in found.items():
            for rate in tuning.still_to_try(tried):
                lacks[tuning.digest_at(system, name, changes, rate), tuning.SEED] = name
        best = max(found, key=lambda name: max(found[name].values(), default=0.0))
        rate = tuning.best(found[best] or {tuning.FIRST[1]: 0.0})
        return tuning.at_rate(best, system.changes(changes), rate)

    planned = experiment.trainings(arm, experiment.features_on(data), recipe_of)
    asked = asked_of_record(experiment, planned, experiment.data_named(data))
    for seed in range(gates.seeds_wanted(data)):
        key = (*title_of(planned), seed)
        if key in recorded and asked <= recorded[key]:
            continue
        for training in planned:
            lacks[training.digest, training.seed(seed)] = training.recipe.name
            by = training.system.miner
            if by and (by.recipe.name, by.digest, by.seed(seed)) not in recorded:
                lacks[by.digest, by.seed(seed)] = by.recipe.name
    return {(experiment.data_named(data), *key): name for key, name in lacks.items()}


def survey(
    work: str, data: str, folder: Path = RESULTS
) -> tuple[int, Sequence[Mapping[tuple[str, str], Trainings]]]:
    """Return how many claims of a paper are judged on some data, and for each other what its arms lack.

    That is by experiment and arm. Claims that the data cannot answer are left out.
    """
    found = outcomes(work, data, folder=folder)
    results = [outcome for outcome in found if not gates.never(outcome.claim, data)]
    names = dict.fromkeys([*BY_WORK[work], *(outcome.claim.experiment for outcome in results)])
    entries = {name: ledger.study(name, data, None, "fair", folder)[1] for name in names}

    def usual(entry: Record) -> float:
        """Return the seconds that it would have taken at the usual length and width."""
        shared, config = changes_of("fair", entry.data["name"]), entry.config
        length = shared["training.epochs"] / config["training"]["epochs"]
        return float(entry.seconds * length * (shared["dim"] / config["dim"]))

    def seconds_of(recipe: str, name: str) -> float:
        """Take as long as the quickest of the recipe, else of its base recipe, else the median of all.

        Whatever else a machine does only makes a training slower; one that diverged was not timed.
        """
        timed = [
            one for many in entries.values() for one in many if one.seconds and "members" not in one.config
        ]
        own = [entry for entry in entries[name] if entry.name == recipe and entry.seconds]
        alike = own or [one for one in timed if one.name.partition("+")[0] == recipe.partition("+")[0]]
        return min(map(usual, alike)) if alike else statistics.median([*map(usual, timed)] or [math.nan])

    @cache
    def lacks_of(name: str, arm: str) -> Trainings:
        experiment = get_experiment(name)
        longer = {  # than usual; what mines for it is not
            recipe: one.times_as_long * one.times_as_wide
            for one in experiment.systems(arm, experiment.features_on(data))
            for recipe in one.recipes
        }
        found = lacking(experiment, arm, data, entries[name])
        return {key: longer.get(recipe, 1) * seconds_of(recipe, name) for key, recipe in found.items()}

    lacks = [
        {(one.claim.experiment, arm): lacks_of(one.claim.experiment, arm) for arm in one.claim.arms}
        for one in results
        if one.shut
    ]
    return len(results) - len(lacks), lacks


def union(several: Iterable[Trainings]) -> Trainings:
    """Return trainings that are lacking in several places, each once."""
    return {key: seconds for trainings in several for key, seconds in trainings.items()}


def summary(folder: Path = RESULTS) -> str:
    """Return how many claims are judged as a Markdown table, by paper and data, and what the others lack.

    A claim that the data cannot answer is not listed there. "More" are those that no training at this scale
    would open.
    """
    heads = ["work", "data", "listed", "judged", "open", "more", "trainings", "hours"]
    lines, judged, listed = [], 0, 0
    for work in BY_WORK:
        for data in DATA:
            known, lacks = survey(work, data, folder)
            trainings = union(arms for claim in lacks for arms in claim.values())
            claims, more = known + len(lacks), sum(not any(one.values()) for one in lacks)
            counts = map(str, (claims, known, len(lacks), more, len(trainings)))
            lines.append([work, data, *counts, _hours(trainings)])
            judged, listed = judged + known, listed + claims
    return f"{markdown_table(heads, lines)}\n\n{judged} of {listed} claims judged"


def _hours(trainings: Trainings) -> str:
    total = sum(trainings.values())
    return "unknown" if math.isnan(total) else f"{total / 3600:.1f}"


def train_missing(
    data: str,
    open_data: Callable[[str, FeatureKind], Dataset],
    *,
    at: str = "",
    folder: Path = RESULTS,
    jobs: int = 1,
    log: Callable[[str], None] = print,
) -> None:
    """Train what the papers' claims still lack, arm by arm, those of the cheapest claim first.

    Args:
        data: the name of the data, such as "scenes".
        open_data: opens data, by name or where they are, with a kind of features; processes import it.
        at: where the data are; "": the scenes of each experiment's world.
        folder: of the records.
        jobs: how many arms are trained at once, each by a process with one thread and the lowest priority.
        log: called with a line about what comes next, and about an arm that cannot be trained.
    """

    def cost(claim: Mapping[tuple[str, str], Trainings]) -> tuple[float, int]:
        trainings = union(claim.values())
        seconds = sum(trainings.values())
        return (math.inf if math.isnan(seconds) else seconds), len(trainings)

    done, at_work = set[tuple[str, str]](), dict[Future[Any], tuple[str, str, Trainings]]()
    with executor(jobs) as pool:
        while True:
            lacks = [claim for work in BY_WORK for claim in survey(work, data, folder)[1]]
            arms = [one for claim in sorted(lacks, key=cost) for one in claim.items() if one[1]]
            left = union(trainings for _, trainings in arms)
            for (name, arm), trainings in arms:
                busy = union(others for *_, others in at_work.values())
                if len(at_work) == jobs or (name, arm) in done or busy.keys() & trainings.keys():
                    continue
                done.add((name, arm))
                where = partial(open_data, at or get_experiment(name).data_named(data))
                seeds, say = range(gates.seeds_wanted(data)), partial(print, flush=True)
                started = pool.submit(run, name, where, arms=[arm], seeds=seeds, folder=folder, log=say)
                at_work[started] = name, arm, trainings
                log(
                    f"next: {arm} of {name}, {len(trainings)} trainings in {_hours(trainings)} hours; "
                    f"all {len(left)} take {_hours(left)} hours, shared by {jobs} processes"
                )
            if not at_work:
                return
            for ended in wait(at_work, return_when=FIRST_COMPLETED).done:
                name, arm, _ = at_work.pop(ended)
                try:
                    ended.result()
                except (ValueError, OSError, FloatingPointError) as error:  # the others can be trained
                    log(f"{arm} of {name} is left: {error}")


def executor(jobs: int) -> Executor:
    """Return a pool of processes that end with this one, even if it is killed."""
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, spawn, initializer=_stand_back)


def _stand_back() -> None:
    """Take one thread, no GPU and the lowest priority, and end when the parent process has ended."""

    def follow() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
            os._exit(1)

    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # not used yet; a GPU's precision would find no stored record
    os.nice(19)
    torch.set_num_threads(1)
    leave_to_parent()
    threading.Thread(target=follow, daemon=True).start()
