"""The papers' claims that this repository can test, each in the paper's own words."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Literal

import yaml
from pydantic import ConfigDict

from vsecore.experiments.catalogue import get_experiment
from vsecore.paths import assets
from vsecore.typed import from_json

CLAIMS = assets() / "claims.yml"

Kind = Literal["better", "no worse", "the same", "our question"]
"""What a claim says about its first system: that a measure is higher, not lower, or neither; "our question":
one that a reader will ask, not the paper."""
When = Literal["at the end", "early in training"]
"""When a claim compares its systems."""
About = Literal[
    "both ways",
    "caption retrieval",
    "image retrieval",
    "first place",
    "relations",
    "spread",
    "contrastive loss",
    "bound",
    "fall of the multiplier",
    "return of the multiplier",
]
"""What a claim is about: retrieval in both directions or in one, pairs that rank first in both, pictures that
differ in one relation, how widely the vectors of an embedding set point, the contrastive loss of the
training, or how the training of one system went: how near its reconstruction loss came to the bound, what is
left of its multiplier at the end, or how often that rose again from 0."""
ALONE: dict[About, float] = {
    "bound": 5.0,
    "fall of the multiplier": 1.0,
    "return of the multiplier": 0.5,
}
"""What a claim about one system alone is about, whose measure is held against 0; and how far from 0 is too
little to matter, set before any verdict: percent of the bound, percent of the multiplier's highest value, and
times that it rose from 0."""

FOLLOWED: frozenset[About] = frozenset({"contrastive loss", *ALONE})
"""What is known only where an experiment follows the losses of its trainings."""


@dataclass(frozen=True)
class Claim:
    """A statement of a paper on one arm of an experiment: better than another, no worse, or the same."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    work: str  # the paper's key, such as "2ad"
    place: str  # where the paper says it
    words: str  # the paper's own words; "" for a question of ours
    kind: Kind
    experiment: str
    system: str  # the arm that the claim is about
    against: str  # the arm that it is compared with; "": the claim is about one system alone
    statement: str  # what is claimed, in a few plain words
    refuted_by: str  # what would speak against it
    when: When = "at the end"
    about: About = "both ways"
    printed: str = ""  # the published row of the system that is like the other's; "": its arm's
    photographs: bool = False  # whether it is tried on photographs too

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that it names: two, or one alone."""
        return (self.system, self.against) if self.against else (self.system,)


def claims(work: str = "") -> list[Claim]:
    """Read the claims in `assets/claims.yml`, of one paper or of all.

    Raises:
        ValueError: an entry lacks a field, has an unknown one, names no experiment or arm, or is about
            something that its experiment does not measure.
    """
    found = _checked(CLAIMS.name, CLAIMS.read_text(encoding="utf-8"))
    for claim in found:
        for arm in claim.arms:
            if arm not in get_experiment(claim.experiment).arms:
                raise ValueError(f"{CLAIMS.name}: experiment {claim.experiment!r} has no arm {arm!r}")
        if claim.when != "at the end" and claim.about != "both ways":
            raise ValueError(
                f"{CLAIMS.name}: {claim.statement!r} is about {claim.about} {claim.when}: wanted one or the "
                "other, since early in training only the rsum of both directions is recorded"
            )
        if claim.about == "relations" and not get_experiment(claim.experiment).pairs:
            raise ValueError(f"{CLAIMS.name}: experiment {claim.experiment!r} does not look at relations")
        if (claim.against == "") != (claim.about in ALONE):
            raise ValueError(
                f"{CLAIMS.name}: {claim.statement!r} is about {claim.about} and against {claim.against!r}: "
                "wanted another arm, or none for what is about one system alone"
            )
        if claim.about in FOLLOWED and not get_experiment(claim.experiment).follows_losses:
            raise ValueError(f"{CLAIMS.name}: experiment {claim.experiment!r} does not follow the losses")
        if (claim.words == "") != (claim.kind == "our question"):
            raise ValueError(
                f"{CLAIMS.name}: {claim.statement!r} is of the kind {claim.kind!r}: wanted the paper's words "
                "for what it claims, and none for a question of ours"
            )
    return [claim for claim in found if work in ("", claim.work)]


@functools.lru_cache(maxsize=1)
def _checked(name: str, text: str) -> list[Claim]:
    """Check the text of all claims once: parsing YAML is slow, and every page asks for them."""
    found: list[Claim] = from_json(name, json.dumps(yaml.safe_load(text)), list[Claim])
    return found
