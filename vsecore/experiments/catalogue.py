"""The experiments as plain data: what is held beside what, and how small it is made for two cores."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vsecore.data.splits import FeatureKind
from vsecore.recipes import Recipe, get


@dataclass(frozen=True)
class Member:
    """One system of an ensemble."""

    features: FeatureKind
    again: int = 0  # 1, 2, ...: the same system, trained once more from another seed


@dataclass(frozen=True)
class Arm:
    """One system of an experiment."""

    variants: str = ""  # of the experiment's recipe, as `recipes.get` reads them: "+gpo"
    published: str = ""  # what `assets/published.json` calls it; "": the paper has no number
    members: tuple[Member, ...] = ()  # their similarities are averaged; empty: one, on the features asked for
    changes: dict[str, Any] = field(default_factory=dict)  # to the recipe, after those that all arms share


@dataclass(frozen=True)
class Experiment:
    """Systems that differ in one thing."""

    question: str
    source: str  # where the paper asks it
    recipe: str  # what all arms are variants of, "{features}" standing for what an element is
    arms: dict[str, Arm]  # by the name that the paper gives them

    def systems(self, arm: str, features: FeatureKind, scale: Mapping[str, Any]) -> list[System]:
        """What an arm trains, at a scale: one system, or the members of an ensemble."""
        if arm not in self.arms:
            raise ValueError(f"arm {arm!r} is unknown: there are {', '.join(self.arms)}")
        chosen = self.arms[arm]
        systems = []
        for member in chosen.members or (Member(features),):
            recipe = get(self.recipe.format(features=member.features) + chosen.variants)
            systems.append(System(recipe.override({**scale, **chosen.changes}), member))
        return systems


@dataclass(frozen=True)
class System:
    """A recipe, and where and from which seed it is trained."""

    recipe: Recipe
    member: Member

    def seed(self, seed: int) -> int:
        """The seed of a training: a repeated one has its own, far from those that people count to."""
        return seed + 1000 * self.member.again


PAPER_RATE = {"training.learning_rate": 5e-4}

EXPERIMENTS: dict[str, Experiment] = {
    "2ad_pooling": Experiment(
        "Which pooler is best under the same loss?",
        "Zhang et al. 2022 (2AD), tables 4 and A.1",
        "2ad_{features}_gru",
        {
            "AdPool": Arm("", "VSE+2AD (R, BiGRU)"),
            "GPO": Arm("+gpo", "VSE+2AD with GPO"),
            "SelfAttn": Arm("+self_attention", "VSE+2AD with SelfAttn"),
            "SoftPool": Arm("+soft", "VSE+2AD with SoftPool"),
            "Manual": Arm("+manual", "VSE+2AD with Manual"),
            "GCN": Arm("+gcn", "VSE+2AD with GCN"),
            "AdaPool": Arm("+ada", "VSE+2AD with AdaPool"),
            "Seq2Seq": Arm("+seq2seq", "VSE+2AD with Seq2Seq"),
            "LIP": Arm("+lip", "VSE+2AD with LIP"),
            "mean": Arm("+mean", "VSE+2AD without AdPool"),
            "max": Arm("+max"),
            "5-max": Arm("+kmax"),
        },
    ),
    "2ad_parts": Experiment(
        "What is each part of 2AD worth?",
        "Zhang et al. 2022 (2AD), table 3",
        "2ad_{features}_gru",
        {
            "all": Arm("", "VSE+2AD (R, BiGRU)"),
            "without token level": Arm("+without_token", "VSE+2AD without token level"),
            "without embedding level": Arm("+without_embedding", "VSE+2AD without embedding level"),
            "without AdPool": Arm("+mean", "VSE+2AD without AdPool"),
            "without AdOpt": Arm("+without_adopt", "VSE+2AD without AdOpt"),
        },
    ),
    "2ad_balance": Experiment(
        "Must the balance of AdPool's two levels be learned?",
        "Zhang et al. 2022 (2AD), table C-2",
        "2ad_{features}_gru",
        {
            "learned": Arm("", "VSE+2AD (R, BiGRU)"),
            "token 0.25": Arm("+share_25", "VSE+2AD with weights 0.25 and 0.75"),
            "token 0.5": Arm("+share_50", "VSE+2AD with weights 0.5 and 0.5"),
            "token 0.75": Arm("+share_75", "VSE+2AD with weights 0.75 and 0.25"),
            "random": Arm("+share_random", "VSE+2AD with random weights"),
            "learned, per dimension": Arm("+per_dimension"),
        },
    ),
    "2ad_negatives": Experiment(
        "How many negatives should a step learn from?",
        "Zhang et al. 2022 (2AD), table 3, figures A.2-1 and C-2",
        "2ad_{features}_gru",
        {
            "AdOpt, released": Arm("", "VSE+2AD (R, BiGRU)"),
            "AdOpt, printed rule": Arm("+printed_rule"),
            "AdOpt, all as printed": Arm("+as_printed"),
            "hardest triplet": Arm("+without_adopt", "VSE+2AD without AdOpt"),
            "max violation": Arm("+max_violation"),
            # The hinge suffers from large steps most: a control at the paper's own learning rate.
            "hardest triplet, slower": Arm("+without_adopt", changes=PAPER_RATE),
            "max violation, slower": Arm("+max_violation", changes=PAPER_RATE),
            "AdOpt, released, slower": Arm("", changes=PAPER_RATE),
            "InfoNCE, all": Arm("+info_nce"),
            "always 1": Arm("+negatives_1"),
            "always 4": Arm("+negatives_4"),
            "always 16": Arm("+negatives_16"),
            "always 64": Arm("+negatives_64"),
            "always 127": Arm("+negatives_127"),
        },
    ),
    "2ad_systems": Experiment(
        "Is the whole better than the systems that it stands on?",
        "Zhang et al. 2022 (2AD), table 1, coco",
        "2ad_{features}_gru",
        {
            "VSE+2AD": Arm("", "VSE+2AD (R, BiGRU)"),
            "VSE∞": Arm("+gpo+max_violation", "VSE∞ (R, BiGRU)"),
            "VSE++": Arm("+mean+max_violation", "VSE++ (R, BiGRU)"),
        },
    ),
    "2ad_ensembles": Experiment(
        "Do different features make a better ensemble than the same features again?",
        "Zhang et al. 2022 (2AD), table 1, coco; repeated systems are this course's control",
        "2ad_{features}_gru",
        {
            "R": Arm("", "VSE+2AD (R, BiGRU)", (Member("region"),)),
            "G": Arm("", "", (Member("grid"),)),
            "P": Arm("", "", (Member("patch"),)),
            "RG": Arm("", "VSE+2AD (RG, BiGRU)", (Member("region"), Member("grid"))),
            "RGP": Arm("", "VSE+2AD (RGP, BiGRU)", (Member("region"), Member("grid"), Member("patch"))),
            "RR": Arm("", "", (Member("region"), Member("region", 1))),
            "RRR": Arm("", "", (Member("region"), Member("region", 1), Member("region", 2))),
            "GGG": Arm("", "", (Member("grid"), Member("grid", 1), Member("grid", 2))),
        },
    ),
}
"""Every experiment by its name."""

#: What brings the papers' recipes, made for days on a GPU, down to minutes on two cores. All arms share it.
LESSON_SCALE: dict[str, dict[str, Any]] = {
    "scenes": {
        "dim": 128,
        "text.word_dim": 64,
        "training.epochs": 3,
        "training.learning_rate": 2e-3,
        "training.decay_epochs": 2,
    },
    "flickr8k": {
        "dim": 128,
        "text.word_dim": 50,
        "training.epochs": 3,
        "training.learning_rate": 2e-3,
        "training.schedule": "cosine",
    },
}


def get_experiment(name: str) -> Experiment:
    """The experiment of a name; raises ValueError where there is none."""
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment {name!r} is unknown: there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def lesson_scale(data: str) -> dict[str, Any]:
    """`LESSON_SCALE` of some data; raises ValueError where there is none."""
    if data not in LESSON_SCALE:
        raise ValueError(f"no scale is known for data {data!r}: there are {', '.join(LESSON_SCALE)}")
    return LESSON_SCALE[data]


def title_of(systems: Sequence[System]) -> tuple[str, str]:
    """The name and the digest of an arm's record; a single system has those of its recipe."""
    if len(systems) == 1:
        return systems[0].recipe.name, systems[0].recipe.hash()
    parts = [f"{system.recipe.hash()}-{system.member.again}" for system in systems]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return " and ".join(system.recipe.name for system in systems), digest
