"""Experiments as plain data, from `assets/experiments.yml`: what is compared, and the trainings it takes."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from vsecore.data.files import read_bytes
from vsecore.data.splits import FeatureKind
from vsecore.experiments.scales import ONE_KIND, SCENES, WORLDS, as_printed, at_scale
from vsecore.paths import assets
from vsecore.recipes import Recipe, get
from vsecore.training.identity import digest
from vsecore.typed import Strict, from_json, unknown

CELLS: tuple[FeatureKind, ...] = ("grid", "pixels")
"""The features whose elements are the cells of a grid: a network's, which learns too or does not."""


@dataclass(frozen=True)
class Arm(Strict):
    """One system of an experiment."""

    variants: str = ""
    """The variants of the recipe that it takes, in the form of `recipes.get`: "+gpo+max_violation"."""
    published: str = ""
    """Its name in `assets/published.json`; "": the paper has no number."""
    members: tuple[FeatureKind, ...] = ()
    """The features of an ensemble's systems, whose similarities are averaged. A kind that is repeated stands
    for the same system, trained again from another seed. Empty: one system, on the experiment's features."""
    best_of: tuple[str, ...] = ()
    """Alternatives, each after `variants`: the best of them on the development split is taken. So a setting
    is tuned."""
    mean_of: tuple[str, ...] = ()
    """Variants on the same features, whose similarities are averaged: an ensemble."""
    recipe: str = ""
    """The recipe that it varies; "": the experiment's."""
    mined_by: str = ""
    """The arm, one system, whose model of the same seed mines its offline negatives."""
    times_as_wide: int = 1
    """The width of its joint space, as a multiple of that of the others; its GRU keeps their width."""
    times_as_long: int = 1
    """Its number of epochs, as a multiple of that of the others, where these are too few for it to level off;
    at the paper's scale, all are trained as long as the paper says."""
    at_rate_of: str = ""
    """The arm, one system, whose tuned learning rate it takes; "": it has its own."""
    only_false: bool = False
    """Mined negatives that are true of their anchor are left out: this needs a known truth."""
    on_cells: str = ""
    """The variants that it takes instead where elements are the cells of a grid; "": the same."""


@dataclass(frozen=True)
class System:
    """One system of an arm: the recipes that it may have, and what it is trained on."""

    recipes: tuple[str, ...]
    """Names, as `recipes.get` reads them. Of several, the best on the development split is taken."""
    features: FeatureKind
    again: int = 0
    """1, 2, ...: the same system, trained again from another seed."""
    times_as_wide: int = 1
    """The width of its joint space, as a multiple of that of the other systems."""
    times_as_long: int = 1
    """Its number of epochs, likewise."""
    miner: Training | None = None
    """Its model, trained from the same seed, mines the offline negatives. One first round serves all arms
    that are compared, so that they differ in the second round alone."""
    only_false: bool = False
    """Whether negatives that are true of their anchor are left out."""

    def changes(self, shared: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the changes to its recipes, from those that all systems of the experiment share."""
        own = dict(shared)
        if self.times_as_wide > 1:
            dim = int(shared.get("dim") or get(self.recipes[0]).dim)
            # A recurrent network as wide would take the square of that in computation.
            own |= {"dim": self.times_as_wide * dim, "text.encoder.states": dim}
        if self.times_as_long > 1:
            epochs = shared.get("training.epochs") or get(self.recipes[0]).training.epochs
            own["training.epochs"] = self.times_as_long * int(epochs)
        return own

    def at(self, changes: Mapping[str, Any]) -> list[Recipe]:
        """Return its recipes with the changes that all systems of the experiment share."""
        return [at_scale(name, self.changes(changes)) for name in self.recipes]

    @property
    def negatives(self) -> str:
        """What tells its offline negatives from others: what mines them, and what is left out; "": none."""
        return "" if self.miner is None else self.miner.digest + (" only false" if self.only_false else "")

    def digest(self, recipe: str) -> str:
        """Return the digest of a training: its recipe's hash, or a digest of that and of the negatives."""
        return recipe if self.miner is None else digest(f"{recipe}\n{self.negatives}".encode())


@dataclass(frozen=True)
class Training:
    """A recipe, with the features, the seed and the offline negatives that it is trained on."""

    recipe: Recipe
    system: System

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that tell it from others, on whatever data and from whatever seed."""
        return self.system.digest(self.recipe.hash())

    def seed(self, seed: int) -> int:
        """Return the seed of this training; a repeated one has its own, far from the usual 0, 1, 2."""
        return seed + 1000 * self.system.again


@dataclass(frozen=True)
class Experiment(Strict):
    """Systems that differ in one thing."""

    question: str
    source: str
    """Where the paper asks this question."""
    recipe: str
    """The recipe of all arms that do not name their own; "{features}" stands for the kind of features."""
    arms: dict[str, Arm]
    """The systems, by the names that the paper gives them."""
    features: FeatureKind = "grid"
    """The features that its systems read, if the data have several kinds; see `features_on`."""
    pairs: bool = False
    """Whether pictures that differ in relations alone are told apart is measured too: see `pair_scores`."""
    probes: bool = False
    """Whether it also measures more than recalls: see `probes`."""
    follows_losses: bool = False
    """Whether it also records losses and multipliers in training, see `watching`."""
    world: str = SCENES
    """The world of its scenes, one of `WORLDS`."""

    @property
    def miners(self) -> set[str]:
        """The arms that mine the offline negatives of others."""
        return {arm.mined_by for arm in self.arms.values()} - {""}

    def as_printed(self, data: str = "") -> Experiment:
        """Return it as papers have its recipes on some data, without what only small trainings need."""
        arms = {
            name: replace(
                arm,
                variants=as_printed(arm.variants, data),
                recipe=as_printed(arm.recipe, data),
                on_cells=as_printed(arm.on_cells, data),
                mean_of=tuple(as_printed(one, data) for one in arm.mean_of),
                times_as_long=1,
                at_rate_of="",
            )
            for name, arm in self.arms.items()
        }
        return replace(self, recipe=as_printed(self.recipe, data), arms=arms)

    def data_named(self, data: str) -> str:
        """Return the name that its records give some data: the scenes are those of its own world."""
        return self.world if data in WORLDS else data

    def trains_on(self, arm: str, data: str, kinds: Collection[FeatureKind] = ()) -> bool:
        """Whether an arm can be trained on some data: they must have its features, and the truth if it asks.

        `kinds` are the kinds of features of the data; none: see `ONE_KIND`, and all where it names none.
        """
        kinds = kinds or {kind for name, kind in ONE_KIND.items() if name == data}
        chosen = self.arms[arm]
        has_features = not kinds or set(chosen.members) <= {*kinds}
        return has_features and (not chosen.only_false or data in WORLDS)

    def features_on(self, data: str) -> FeatureKind:
        """Return the kind of features that its systems see on some data unless another is asked for."""
        return ONE_KIND.get(data, self.features)

    def systems(self, arm: str, features: FeatureKind) -> list[System]:
        """Return the systems of an arm, without what mines for them: one, or the members of an ensemble."""
        if arm not in self.arms:
            raise unknown("arm", arm, self.arms)
        chosen, found = self.arms[arm], []
        members = chosen.members or (features,)
        of_each: list[tuple[str, ...]] = [(one,) for one in chosen.mean_of] or [chosen.best_of or ("",)]
        for place, kind in enumerate(members):
            base = (chosen.recipe or self.recipe).format(features=kind)
            base += chosen.on_cells if kind in CELLS and chosen.on_cells else chosen.variants
            for variants in of_each:
                names = tuple(base + one for one in variants)
                again = members[:place].count(kind)
                found.append(System(names, kind, again, chosen.times_as_wide, chosen.times_as_long))
        return found

    def trainings(
        self, arm: str, features: FeatureKind, recipe_of: Callable[[System], Recipe | None]
    ) -> list[Training]:
        """Return the trainings of an arm, one for each of its systems; none if a recipe is not known yet.

        `recipe_of` says a system's recipe, see `only_recipe` and `tuning.tuned`, or None. Members that do not
        name their own features have those given.
        """
        planned = []
        for system in self.systems(arm, features):
            if mined_by := self.arms[arm].mined_by:
                miners = self.trainings(mined_by, features, recipe_of)
                if not miners:
                    return []
                system = replace(system, miner=miners[0], only_false=self.arms[arm].only_false)
            recipe = recipe_of(system)
            if recipe is None:
                return []
            if other := self.arms[arm].at_rate_of:
                tuned = self.trainings(other, features, recipe_of)
                if not tuned:
                    return []
                rate = tuned[0].recipe.training.learning_rate
                recipe = recipe.override({"training.learning_rate": rate})
            planned.append(Training(recipe, system))
        return planned


def only_recipe(system: System, changes: Mapping[str, Any]) -> Recipe | None:
    """Return the recipe of a system, with changes; None if there are several to choose from on dev."""
    return system.at(changes)[0] if len(system.recipes) == 1 else None


def title_of(trainings: Sequence[Training]) -> tuple[str, str]:
    """Return the name and the digest of an arm's record; a single system has those of its recipe."""
    if len(trainings) == 1:
        return trainings[0].recipe.name, trainings[0].digest
    parts = [f"{training.digest}-{training.system.again}" for training in trainings]
    names = [training.recipe.name for training in trainings]
    return " and ".join(names), digest("\n".join(parts).encode())


def read_asset(path: Path, kind: Any) -> Any:
    """Read a YAML file whose content must be of a given type; a ValueError says where it is not."""
    return _checked(path.name, read_bytes(path), kind)


@functools.lru_cache(maxsize=8)  # parsing YAML is slow, and every page asks for all claims
def _checked(name: str, text: bytes, kind: Any) -> Any:
    return from_json(name, json.dumps(yaml.safe_load(text)), kind)


BY_WORK: dict[str, dict[str, Experiment]] = read_asset(
    assets() / "experiments.yml", dict[str, dict[str, Experiment]]
)
"""The experiments on each work, by its key; ideas of other papers are added to 2AD."""
EXPERIMENTS = {name: experiment for several in BY_WORK.values() for name, experiment in several.items()}
"""The experiments of all papers, by name."""


def get_experiment(name: str) -> Experiment:
    """Return the experiment with this name; raise ValueError if there is none."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS, "vse experiments")
    return EXPERIMENTS[name]
