"""An experiment as plain data: what is compared with what."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vsecore.data.splits import FeatureKind
from vsecore.recipes import Recipe

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


@dataclass(frozen=True)
class Candidates:
    """The recipes that one system of an arm may have: one, or several of which the best on dev is taken."""

    recipes: tuple[str, ...]  # names, as `recipes.get` reads them
    member: Member


@dataclass(frozen=True)
class Experiment:
    """Systems that differ in one thing."""

    question: str
    source: str  # where the paper asks this question
    recipe: str  # which arms vary that name none of their own; "{features}" stands for the kind of features
    arms: dict[str, Arm]  # by the names that the paper gives them
    features: FeatureKind = "grid"  # of its systems, where the data have several kinds; see `features_on`
    pairs: bool = False  # whether pictures that differ in one relation are told apart too, see `pairs`

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
        recipe, alternatives = chosen.recipe or self.recipe, chosen.best_of or (chosen.variants,)
        parts = [(member, alternatives) for member in chosen.members]
        parts = parts or [(Member(features), (variants,)) for variants in chosen.mean_of]
        return [
            Candidates(
                tuple(recipe.format(features=member.features) + variants for variants in several), member
            )
            for member, several in parts or [(Member(features), alternatives)]
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
            recipe = recipe_of(candidates)
            if recipe is None:
                return []
            planned.append(PlannedTraining(recipe, candidates.member))
        return planned


@dataclass(frozen=True)
class PlannedTraining:
    """A recipe, with the features and the seed that it is trained on."""

    recipe: Recipe
    member: Member

    def seed(self, seed: int) -> int:
        """Return the seed of this training; a repeated one has its own, far from the usual 0, 1, 2."""
        return seed + 1000 * self.member.again


def title_of(trainings: Sequence[PlannedTraining]) -> tuple[str, str]:
    """Return the name and the digest of an arm's record; a single system has those of its recipe."""
    if len(trainings) == 1:
        return trainings[0].recipe.name, trainings[0].recipe.hash()
    parts = [f"{training.recipe.hash()}-{training.member.again}" for training in trainings]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return " and ".join(training.recipe.name for training in trainings), digest
