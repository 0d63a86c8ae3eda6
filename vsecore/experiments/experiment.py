"""An experiment as plain data: what is compared with what."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vsecore.data.splits import FeatureKind
from vsecore.recipes import Recipe


@dataclass(frozen=True)
class Member:
    """One system of an ensemble."""

    features: FeatureKind
    again: int = 0  # 1, 2, ...: the same system, trained once more from another seed


@dataclass(frozen=True)
class Arm:
    """One system of an experiment."""

    variants: str = ""  # of the experiment's recipe, as `recipes.get` reads them: "+gpo+max_violation"
    published: str = ""  # what `assets/published.json` calls it; "": the paper has no number
    members: tuple[Member, ...] = ()  # their similarities are averaged; empty: one, on the features asked for
    best_of: tuple[str, ...] = ()  # variants too: the one that does best on the development split is taken


@dataclass(frozen=True)
class Candidates:
    """What one system of an arm may be: its recipe, or several of which the best on dev is taken."""

    recipes: tuple[str, ...]  # names, as `recipes.get` reads them
    member: Member


@dataclass(frozen=True)
class Experiment:
    """Systems that differ in one thing."""

    question: str
    source: str  # where the paper asks it
    recipe: str  # what all arms are variants of; "{features}" stands for what an element is
    arms: dict[str, Arm]  # by the name that the paper gives them

    def systems(self, arm: str, features: FeatureKind) -> list[Candidates]:
        """What an arm consists of: one system, or the members of an ensemble.

        Raises:
            ValueError: the arm is unknown.
        """
        if arm not in self.arms:
            raise ValueError(f"arm {arm!r} is unknown: there are {', '.join(self.arms)}")
        chosen = self.arms[arm]
        return [
            Candidates(
                tuple(
                    self.recipe.format(features=member.features) + variants
                    for variants in chosen.best_of or (chosen.variants,)
                ),
                member,
            )
            for member in chosen.members or (Member(features),)
        ]

    def trainings(
        self, arm: str, features: FeatureKind, recipe_of: Callable[[Candidates], Recipe | None]
    ) -> list[PlannedTraining]:
        """What an arm trains.

        Args:
            arm: its name.
            features: for members that do not name their own.
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
        """The seed of a training; a repeated one has its own, far from the usual 0, 1, 2."""
        return seed + 1000 * self.member.again


def title_of(trainings: Sequence[PlannedTraining]) -> tuple[str, str]:
    """The name and the digest of an arm's record; a single system has those of its recipe."""
    if len(trainings) == 1:
        return trainings[0].recipe.name, trainings[0].recipe.hash()
    parts = [f"{training.recipe.hash()}-{training.member.again}" for training in trainings]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return " and ".join(training.recipe.name for training in trainings), digest
