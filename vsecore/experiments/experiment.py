"""An experiment as plain data: what is compared with what, and at what scale on two cores."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vsecore.data.splits import FeatureKind
from vsecore.experiments.tuning import at_rate
from vsecore.recipes import Recipe, get


@dataclass(frozen=True)
class Member:
    """One system of an ensemble."""

    features: FeatureKind
    again: int = 0  # 1, 2, ...: the same system, trained once more from another seed


@dataclass(frozen=True)
class Arm:
    """One system of an experiment."""

    variants: str = ""  # of the experiment's recipe, as `recipes.get` reads them: "+gpo+paper_rate"
    published: str = ""  # what `assets/published.json` calls it; "": the paper has no number
    members: tuple[Member, ...] = ()  # their similarities are averaged; empty: one, on the features asked for


@dataclass(frozen=True)
class Experiment:
    """Systems that differ in one thing."""

    question: str
    source: str  # where the paper asks it
    recipe: str  # what all arms are variants of; "{features}" stands for what an element is
    arms: dict[str, Arm]  # by the name that the paper gives them

    def systems(self, arm: str, features: FeatureKind) -> list[tuple[str, Member]]:
        """What an arm consists of: one system, or the members of an ensemble, each by its recipe's name.

        Raises:
            ValueError: the arm is unknown.
        """
        if arm not in self.arms:
            raise ValueError(f"arm {arm!r} is unknown: there are {', '.join(self.arms)}")
        chosen = self.arms[arm]
        return [
            (self.recipe.format(features=member.features) + chosen.variants, member)
            for member in chosen.members or (Member(features),)
        ]

    def trainings(
        self,
        arm: str,
        features: FeatureKind,
        scale: Mapping[str, Any],
        rates: Mapping[str, float] | None = None,
    ) -> list[PlannedTraining]:
        """What an arm trains, at a scale.

        Args:
            arm: its name.
            features: for members that do not name their own.
            scale: changes to the recipes.
            rates: the learning rate of each recipe, by its name; None: the scale's.

        Raises:
            ValueError: the arm is unknown, or the scale does not fit a recipe.
        """
        return [
            PlannedTraining(get(name, scale) if rates is None else at_rate(name, scale, rates[name]), member)
            for name, member in self.systems(arm, features)
        ]


@dataclass(frozen=True)
class PlannedTraining:
    """A recipe, with the features and the seed that it is trained on."""

    recipe: Recipe
    member: Member

    def seed(self, seed: int) -> int:
        """The seed of a training; a repeated one has its own, far from the usual 0, 1, 2."""
        return seed + 1000 * self.member.again


#: Scales the papers' recipes, made for days on a GPU, down to minutes on two cores. All arms share it.
LESSON_SCALE: dict[str, dict[str, Any]] = {
    "scenes": {
        "dim": 128,
        "text.encoder.word_dim": 64,
        "training.epochs": 3,
        "training.learning_rate": 2e-3,
        "training.decay_epochs": 2,
    },
    "flickr8k": {
        "dim": 128,
        "text.encoder.word_dim": 50,
        "training.epochs": 3,
        "training.learning_rate": 2e-3,
        "training.schedule": "cosine",
    },
}

#: Long enough for every system to level off, with a schedule that ends low and learning rates of their own.
FAIR_SCALE: dict[str, dict[str, Any]] = {
    "scenes": {
        "dim": 128,
        "text.encoder.word_dim": 64,
        "training.epochs": 15,
        "training.schedule": "cosine",
    },
    "flickr8k": {
        "dim": 512,
        "text.encoder.word_dim": 300,
        "training.epochs": 15,
        "training.schedule": "cosine",
    },
}


def lesson_scale(data: str) -> dict[str, Any]:
    """`LESSON_SCALE` of some data; raises ValueError if there is none."""
    if data not in LESSON_SCALE:
        raise ValueError(f"no scale is known for data {data!r}: there are {', '.join(LESSON_SCALE)}")
    return LESSON_SCALE[data]


def title_of(trainings: Sequence[PlannedTraining]) -> tuple[str, str]:
    """The name and the digest of an arm's record; a single system has those of its recipe."""
    if len(trainings) == 1:
        return trainings[0].recipe.name, trainings[0].recipe.hash()
    parts = [f"{training.recipe.hash()}-{training.member.again}" for training in trainings]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return " and ".join(training.recipe.name for training in trainings), digest
