"""An experiment as plain data: what is compared with what."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vsecore.data.splits import FeatureKind
from vsecore.experiments.worlds import SCENES, WORLDS
from vsecore.recipes import FirstRound, Recipe, get

ONE_KIND: dict[str, FeatureKind] = {"flickr8k": "grid"}
"""Data that come with one kind of features."""


@dataclass(frozen=True)
class Member:
    """One system of an ensemble."""

    features: FeatureKind
    again: int = 0  # 1, 2, ...: the same system, trained again from another seed


@dataclass(frozen=True)
class Arm:
    """One system of an experiment."""

    variants: str = ""  # of the experiment's recipe, in the form of `recipes.get`: "+gpo+max_violation"
    published: str = ""  # its name in `assets/published.json`; "": the paper has no number
    members: tuple[Member, ...] = ()  # of an ensemble, by mean similarity; empty: one system, on its features
    best_of: tuple[str, ...] = ()  # variants, of which the best on the development split is taken
    mean_of: tuple[str, ...] = ()  # variants on the same features, an ensemble by mean similarity
    recipe: str = ""  # which it varies; "": the experiment's
    mined_by: str = ""  # the arm, one system, whose model of the same seed mines its offline negatives
    times_as_wide: int = 1  # its joint space, as a multiple of that of the others
    only_false: bool = False  # mined negatives that are true of their anchor are left out: needs known truth
    on_cells: str = ""  # the variants where elements are the cells of a grid; "": the same as elsewhere

    def variants_on(self, features: FeatureKind) -> str:
        """Return the variants that it has on some kind of features."""
        return self.on_cells if features == "grid" and self.on_cells else self.variants


@dataclass(frozen=True)
class Candidates:
    """The recipes that one system of an arm may have: one, or several of which the best on dev is taken."""

    recipes: tuple[str, ...]  # names, as `recipes.get` reads them
    member: Member
    mined: Mined | None = None  # where its offline negatives come from, if another training mines them
    times_as_wide: int = 1  # the joint space, as a multiple of that of the other systems

    def changes(self, shared: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the changes to its recipes, from those that all systems of the experiment share."""
        if self.times_as_wide == 1:
            return shared
        dim = int(shared.get("dim", get(self.recipes[0]).dim))
        return {**shared, "dim": self.times_as_wide * dim}


@dataclass(frozen=True)
class Experiment:
    """Systems that differ in one thing."""

    question: str
    source: str  # where the paper asks this question
    recipe: str  # which arms vary that name none of their own; "{features}" stands for the kind of features
    arms: dict[str, Arm]  # by the names that the paper gives them
    features: FeatureKind = "grid"  # of its systems, where the data have several kinds; see `features_on`
    pairs: bool = False  # whether pictures that differ in one relation are told apart too, see `pairs`
    probes: bool = False  # whether more is asked than who is found: see `probe` and `graded`
    follows_losses: bool = False  # whether its losses and multipliers are followed too, see `constraint`
    world: str = SCENES  # which of `WORLDS` its scenes are

    def data_named(self, data: str) -> str:
        """Return the name that its records give some data: the scenes are those of its own world.

        Args:
            data: the name of the data, where "scenes" stands for the scenes of any world.
        """
        return self.world if data in WORLDS else data

    def trains_on(self, arm: str, data: str, kinds: Collection[FeatureKind] = ()) -> bool:
        """Whether an arm can be trained on some data: they must have its features, and the truth if it asks.

        One that leaves out true negatives must know them.

        Args:
            arm: the arm's name.
            data: the name of the data.
            kinds: the kinds of features that they have; none: see `ONE_KIND`, and all where it names none.
        """
        kinds = kinds or {kind for name, kind in ONE_KIND.items() if name == data}
        chosen = self.arms[arm]
        has_features = not kinds or all(member.features in kinds for member in chosen.members)
        return has_features and (not chosen.only_false or data in WORLDS)

    def features_on(self, data: str) -> FeatureKind:
        """Return the kind of features that its systems see unless another is asked for.

        Args:
            data: the name of the data, which may come with one kind alone.
        """
        return ONE_KIND.get(data, self.features)

    def systems(self, arm: str, features: FeatureKind) -> list[Candidates]:
        """Return the systems of an arm: one, or the members of an ensemble.

        Raises:
            ValueError: the arm is unknown.
        """
        if arm not in self.arms:
            raise ValueError(f"arm {arm!r} is unknown: there are {', '.join(self.arms)}")
        chosen = self.arms[arm]
        recipe = chosen.recipe or self.recipe
        parts = [
            (member, chosen.best_of or (chosen.variants_on(member.features),))
            for member in chosen.members or (Member(features),)
        ]
        if chosen.mean_of:
            parts = [(Member(features), (variants,)) for variants in chosen.mean_of]
        return [
            Candidates(
                tuple(recipe.format(features=member.features) + variants for variants in several),
                member,
                times_as_wide=chosen.times_as_wide,
            )
            for member, several in parts
        ]

    def trainings(
        self, arm: str, features: FeatureKind, recipe_of: Callable[[Candidates], Recipe | None]
    ) -> list[PlannedTraining]:
        """Return the trainings of an arm.

        Args:
            arm: the arm's name.
            features: the features for members that do not name their own.
            recipe_of: the recipe of a system, see `scales.recipe_at` and `tuning.tuned`; None: not known yet.

        Returns:
            One for each of its systems; none if a recipe is not known yet.

        Raises:
            ValueError: the arm is unknown.
        """
        planned = []
        for candidates in self.systems(arm, features):
            if miner := self.arms[arm].mined_by:
                by = self.trainings(miner, features, recipe_of)
                if not by:
                    return []
                candidates = replace(candidates, mined=Mined(by[0], self.arms[arm].only_false))
            recipe = recipe_of(candidates)
            if recipe is None:
                return []
            planned.append(PlannedTraining(recipe, candidates.member, candidates.mined))
        return planned


@dataclass(frozen=True)
class PlannedTraining:
    """A recipe, with the features, the seed and the offline negatives that it is trained on."""

    recipe: Recipe
    member: Member
    mined: Mined | None = None

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits: the recipe's hash, or that of it and of what mines its negatives."""
        return digest_of(self.recipe.hash(), self.mined)

    def seed(self, seed: int) -> int:
        """Return the seed of this training; a repeated one has its own, far from the usual 0, 1, 2."""
        return seed + 1000 * self.member.again


@dataclass(frozen=True)
class Mined:
    """Where the offline negatives of a training come from.

    One first round serves all arms that are compared, so that they differ in the second round alone.
    """

    by: PlannedTraining  # its model, trained from the same seed, mines
    only_false: bool = False  # whether negatives that are true of their anchor are left out

    @property
    def digest(self) -> str:
        """What tells it from others: the digest of the training that mines, and what is left out."""
        return f"{self.by.digest}{' only false' if self.only_false else ''}"


def at_scale(name: str, changes: Mapping[str, Any]) -> Recipe:
    """Return a recipe with the changes that a scale makes to all systems.

    Lists of 300 captions and 60 pictures are a small share of the training sets that AOQ mines, and a large
    one of 4,000 pictures. `first_round.texts` and `first_round.pictures` are what stands for these 300 and
    60; lists of other lengths shrink as much, and systems without lists are left alone.

    Args:
        name: the recipe's name, in the form of `recipes.get`.
        changes: in the form of `recipes.get`.
    """
    lists = {field: int(value) for field, value in changes.items() if field in _LISTS}
    recipe = get(name, {field: value for field, value in changes.items() if field not in lists})
    if recipe.first_round is None:
        return recipe
    own = {"first_round.texts": recipe.first_round.texts, "first_round.pictures": recipe.first_round.pictures}
    return recipe.override(
        {field: max(1, round(length * own[field] / _LISTS[field])) for field, length in lists.items()}
    )


_LISTS = {"first_round.texts": FirstRound().texts, "first_round.pictures": FirstRound().pictures}
"""How long the paper's lists are."""


def digest_of(recipe: str, mined: Mined | None) -> str:
    """Return the digest of a training: its recipe's hash, or that of it and of what mines its negatives."""
    if mined is None:
        return recipe
    return hashlib.sha256(f"{recipe}\n{mined.digest}".encode()).hexdigest()[:12]


def title_of(trainings: Sequence[PlannedTraining]) -> tuple[str, str]:
    """Return the name and the digest of an arm's record; a single system has those of its recipe."""
    if len(trainings) == 1:
        return trainings[0].recipe.name, trainings[0].digest
    parts = [f"{training.digest}-{training.member.again}" for training in trainings]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return " and ".join(training.recipe.name for training in trainings), digest
