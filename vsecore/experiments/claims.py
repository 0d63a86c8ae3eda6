"""What the papers say: their claims that can be tested, and where their released code departs from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict

from vsecore.experiments.catalogue import get_experiment, read_asset
from vsecore.experiments.scales import WORLDS
from vsecore.paths import assets

CLAIMS = assets() / "claims.yml"
DEPARTURES = assets() / "departures.yml"

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

    work: str
    """The paper's key, such as "2ad"."""
    place: str
    """Where the paper says it."""
    words: str
    """The paper's own words; "" for a question of ours."""
    kind: Kind
    experiment: str
    system: str
    """The arm that the claim is about."""
    against: str
    """The arm that it is compared with; "": the claim is about one system alone."""
    statement: str
    """What is claimed, in a few plain words."""
    refuted_by: str
    """What would speak against it."""
    when: When = "at the end"
    about: About = "both ways"
    printed: str = ""
    """The published row of the system that is like the other's; "": its arm's."""
    photographs: bool = False
    """Whether it is tried on photographs too."""

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that it names: two, or one alone."""
        return (self.system, self.against) if self.against else (self.system,)

    def check(self) -> None:
        """Refuse a claim that cannot be tested as it stands.

        Raises:
            ValueError: it names no experiment or arm, is about something that its experiment does not
                measure, or its parts contradict each other.
        """
        experiment, said = get_experiment(self.experiment), f"{CLAIMS.name}: {self.statement!r}"
        for arm in self.arms:
            if arm not in experiment.arms:
                raise ValueError(f"{said}: experiment {self.experiment!r} has no arm {arm!r}")
        for wrong, why in (
            (self.when != "at the end" and self.about != "both ways", "early, only both ways are recorded"),
            (self.about == "relations" and not experiment.pairs, "its experiment does not look at relations"),
            (
                self.about in FOLLOWED and not experiment.follows_losses,
                "its experiment does not follow losses",
            ),
            (
                (self.against == "") != (self.about in ALONE),
                "another arm is wanted, or none for one system alone",
            ),
            (
                (self.words == "") != (self.kind == "our question"),
                "a paper's claim has its words, our question none",
            ),
        ):
            if wrong:
                raise ValueError(
                    f"{said} is of the kind {self.kind!r}, about {self.about} {self.when}, against "
                    f"{self.against!r}: {why}"
                )


def claims(work: str = "", data: str = "") -> list[Claim]:
    """Read the claims in `assets/claims.yml`.

    Args:
        work: only those of this paper; "": of all.
        data: only those that are tried on this data; "": all.

    Raises:
        ValueError: an entry lacks a field, has an unknown one, or cannot be tested, see `Claim.check`.
    """
    found: list[Claim] = read_asset(CLAIMS, list[Claim])
    for claim in found:
        claim.check()
    everywhere = data == "" or data in WORLDS
    return [one for one in found if work in ("", one.work) and (everywhere or one.photographs)]


@dataclass(frozen=True)
class Departure:
    """One point at which a paper and its released code differ."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    work: str
    """The paper's key, such as "2ad"."""
    place: str
    """Where the paper says it."""
    printed: str
    """What the paper says."""
    released: str
    """What its code does."""
    here: str
    """What this repository does."""


def departures(work: str = "") -> list[Departure]:
    """Read the entries of `assets/departures.yml`, of one paper or of all.

    Raises:
        ValueError: an entry lacks a field, has an unknown one, or leaves one empty.
    """
    found: list[Departure] = read_asset(DEPARTURES, list[Departure])
    for number, departure in enumerate(found):
        for field, words in vars(departure).items():
            if not words.strip():
                raise ValueError(f"{DEPARTURES.name}: [{number}].{field} is empty: wanted a few words")
    return [departure for departure in found if work in ("", departure.work)]
