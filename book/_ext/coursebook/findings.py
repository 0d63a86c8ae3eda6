"""What the records say of a paper, read once for its page."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from vsecore import records
from vsecore.data.splits import FeatureKind
from vsecore.experiments import (
    FAIR_SCALE,
    Experiment,
    Outcome,
    Scale,
    Studied,
    get_experiment,
    left_out,
    outcomes,
    studied,
    table,
)
from vsecore.experiments.catalogue import BY_WORK
from vsecore.experiments.missing import Survey, usual_seconds
from vsecore.experiments.references import ORACLE
from vsecore.records import Record

DATA = {"scenes": "drawn scenes", "flickr8k": "Flickr8k"}
"""The data that papers are tried on, and what a reader calls them."""
KINDS: tuple[FeatureKind, ...] = get_args(FeatureKind)


@dataclass(frozen=True)
class Findings:
    """All that the records say of a paper; by data, then by experiment."""

    experiments: Sequence[str]  # their names
    trained: Sequence[Record]  # one for each training, at any scale, but for the repeated ones of ensembles
    ensembles: Sequence[Record]
    outcomes: Mapping[str, Sequence[Outcome]]
    fair: Mapping[str, Mapping[str, Mapping[str, Studied]]]
    lesson: Mapping[str, Mapping[str, Mapping[str, Studied]]]
    tables: Mapping[str, Mapping[str, str]]  # where an arm is in `fair`
    elsewhere: Mapping[str, Mapping[str, Mapping[str, str]]]  # tables by kind of features, but for its own
    oracles: Mapping[str, float]  # the rsum of the oracle by data, where the truth is known
    left_out: Sequence[Record]  # trainings on other features or words than the rest of their experiment
    surveys: Mapping[str, Survey]  # what is judged, and what the other claims lack
    named: Mapping[str, str]  # what records call the data: the scenes are those of the paper's world

    @classmethod
    def read(cls, work: str, folder: Path) -> Findings:
        """Read all records of a paper; without a folder, there are none.

        Raises:
            ValueError: a record or a claim is damaged, or records do not fit together; or the experiments of
                the paper have different worlds of scenes, so that no oracle would be that of all.
        """
        names = list(BY_WORK[work])
        worlds = {get_experiment(name).world for name in names}
        if len(worlds) != 1:
            raise ValueError(f"the worlds of {work!r} are {sorted(worlds)}: its experiments must share one")
        named = {data: get_experiment(names[0]).data_named(data) for data in DATA}
        fair = {data: {name: studied(name, data, folder=folder) for name in names} for data in DATA}
        entries = records.find(folder) if folder.is_dir() else []
        recipes = _recipes(names)
        mine = [
            entry
            for entry in entries
            if _bases(entry.name) <= recipes and entry.data["name"] in named.values()
        ]
        return cls(
            names,
            [entry for entry in mine if "training" in entry.config],
            [entry for entry in mine if "members" in entry.config],
            {data: outcomes(work, data, folder=folder) for data in DATA},
            fair,
            {
                data: {name: studied(name, data, scale="lesson", folder=folder) for name in names}
                for data in DATA
            },
            {
                data: {name: table(name, data, folder=folder) for name in names if fair[data][name]}
                for data in DATA
            },
            {data: {name: _elsewhere(name, data, mine, folder) for name in names} for data in DATA},
            {
                data: entry.metrics["rsum"]
                for data in DATA
                for entry in entries
                if entry.name == ORACLE and entry.data["name"] == named[data]  # the same for all features
            },
            list(
                {
                    entry.file_name: entry
                    for name in names
                    for data in DATA
                    for scale in get_args(Scale)
                    for entry in left_out(name, data, scale=scale, folder=folder)
                }.values()
            ),
            {data: Survey.of(work, data, folder) for data in DATA},
            named,
        )

    def seconds(self, data: str, experiment: str = "") -> float:
        """What a fair training of an experiment takes; if it has none, of any on these data, else `nan`."""
        its_own = usual_seconds(self.fair[data][experiment].values()) if experiment else math.nan
        if not math.isnan(its_own):
            return its_own
        return usual_seconds(arm for arms in self.fair[data].values() for arm in arms.values())

    def fair_trainings(self, data: str) -> int:
        """How many trainings at the fair scale are recorded, those of an ensemble's repeated members too."""
        named = self.named[data]
        alone = sum(entry.data["name"] == named and is_fair(entry.config, data) for entry in self.trained)
        repeated = set()
        for entry in self.ensembles:
            met: Counter[str] = Counter()
            for member in entry.config["members"]:
                told = json.dumps(member, sort_keys=True)
                if entry.data["name"] == named and is_fair(member, data) and met[told]:
                    repeated.add((told, entry.seed, met[told]))
                met[told] += 1
        return alone + len(repeated)


def printed_kinds(experiment: Experiment) -> set[str]:
    """The kinds of features that the systems of an experiment see in the paper."""
    systems = {arm.published for arm in experiment.arms.values() if arm.published}
    backbones = [row.backbone for row in records.published() if row.system in systems]
    return {kind for kind in KINDS for backbone in backbones if kind in backbone}


def _recipes(names: Sequence[str]) -> set[str]:
    """The names of all recipes that some experiments vary, on any features, without variants."""
    return {
        base
        for experiment in map(get_experiment, names)
        for arm in experiment.arms
        for kind in KINDS
        for system in experiment.systems(arm, kind)
        for recipe in system.recipes
        for base in _bases(recipe)
    }


def _bases(name: str) -> set[str]:
    """The recipes of a record by its name, without variants: one, or those of an ensemble's members."""
    return {part.partition("+")[0] for part in name.split(" and ")}


def _elsewhere(name: str, data: str, entries: Sequence[Record], folder: Path) -> dict[str, str]:
    """An experiment's tables on other features than its own, where two arms or more have fair trainings."""
    experiment = get_experiment(name)
    if all(arm.members for arm in experiment.arms.values()):
        return {}  # its arms name their own features
    named = experiment.data_named(data)
    seen = {entry.data.get("feature_kind") for entry in entries if entry.data["name"] == named}
    return {
        kind: table(name, data, kind, folder=folder)
        for kind in KINDS
        if kind in seen - {experiment.features_on(data)} and len(studied(name, data, kind, folder=folder)) > 1
    }


def is_fair(config: Mapping[str, Any], data: str) -> bool:
    """Whether a training was as long as the fair scale asks for.

    Args:
        config: its recipe, as a record keeps it.
        data: the name of the data.
    """
    epochs: int = config["training"]["epochs"]
    return epochs == FAIR_SCALE[data]["training.epochs"]
