"""What the papers say: their claims that can be tested, and where their released code departs from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, StringConstraints

from vsecore.experiments.experiment import get_experiment, read_asset
from vsecore.experiments.graded import GRADED
from vsecore.experiments.scales import SCENES, WORLDS
from vsecore.experiments.set_vectors import LOG_VARIANCES, LOST_ALONE, LOST_WITHOUT
from vsecore.experiments.watching import ABOVE_BOUND, CONTRAST, LEFT, RETURNS
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
    "one vector of a set",
    "the weakest vector",
    "whole rankings",
    "contrastive loss",
    "bound",
    "fall of the multiplier",
    "return of the multiplier",
]
"""What a claim is about, see `SUBJECTS`."""

MARGIN = 0.01
"""Differences below this share of a measure are too small to matter; set before any verdict."""
LOSS_MARGIN = 0.05
"""The same for losses in training, which vary more from batch to batch."""
FIRST_PLACE = "both_r1"
"""The percentage of pairs whose cross-retrieval rank is 0."""
EARLY = "early_rsum"
"""Judges claims about early training: the mean rsum on dev over the first third of the epochs."""


@dataclass(frozen=True)
class Subject:
    """What a claim may be about: the measures that judge it, and when a difference in them matters."""

    measures: tuple[str, ...] = ()
    on_scenes: tuple[str, ...] = ()
    """Those that count too where it is known which captions are true of which pictures."""
    margin: float = MARGIN
    """What is too small to matter, as a share of the other system's measure."""
    absolute: bool = False
    """Whether the margin is in the measure's own unit instead."""
    alone: bool = False
    """Whether it is about one system, whose measure is held against 0."""
    followed: bool = False
    """Whether it is known only where an experiment follows the losses of its trainings."""
    recalls: tuple[str, ...] = ()
    """The recalls that it adds up, which papers print; (): recalls do not tell."""

    def of(self, data: str, when: When = "at the end") -> tuple[str, ...]:
        """Return the measures that count on some data; (): the data cannot answer."""
        if when == "early in training":
            return (EARLY,)
        return self.measures + (self.on_scenes if data == SCENES else ())


def _retrieval(*ways: str) -> Subject:
    """Retrieval is judged by the sum of its recalls and, on the truth, by mAP@R."""
    total = "rsum" if len(ways) > 1 else f"{ways[0]}_rsum"
    recalls = tuple(f"{way}_r{k}" for way in ways for k in (1, 5, 10))
    return Subject((total,), tuple(f"{way}_map_at_r" for way in ways), recalls=recalls)


def _multiplier(measure: str, margin: float) -> Subject:
    return Subject((measure,), margin=margin, absolute=True, alone=True, followed=True)


SUBJECTS: dict[About, Subject] = {
    "both ways": _retrieval("i2t", "t2i"),
    "caption retrieval": _retrieval("i2t"),
    "image retrieval": _retrieval("t2i"),
    "first place": Subject((FIRST_PLACE,)),
    "relations": Subject(on_scenes=("pairs_t2i", "pairs_i2t")),
    "spread": Subject(LOG_VARIANCES, absolute=True),  # a difference of logarithms is a share already
    "one vector of a set": Subject(LOST_ALONE, absolute=True, margin=1.0, alone=True),  # percent of the rsum
    "the weakest vector": Subject((LOST_WITHOUT,), absolute=True, margin=1.0, alone=True),
    "whole rankings": Subject(GRADED),
    "contrastive loss": Subject(CONTRAST, margin=LOSS_MARGIN, followed=True),
    "bound": _multiplier(ABOVE_BOUND, 5.0),  # percent of the bound
    "fall of the multiplier": _multiplier(LEFT, 1.0),  # percent of its highest value
    "return of the multiplier": _multiplier(RETURNS, 0.5),  # times that it rose from 0
}
"""Retrieval in both directions or in one, pairs that rank first in both, pictures that differ in one
relation, how widely the vectors of an embedding set point, how much is lost with one of them alone or without
the weakest, R-precision and nDCG, the contrastive loss of the training, or how the training of one system
went: how near its reconstruction loss came to the bound, what is left of its multiplier at the end, or how
often that rose again from 0."""


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

    @property
    def subject(self) -> Subject:
        """What it is about, and the measures of that."""
        return SUBJECTS[self.about]

    def measures_of(self, data: str) -> tuple[str, ...]:
        """Return the measures that judge it on some data."""
        return self.subject.of(data, self.when)

    def check(self) -> None:
        """Refuse a claim that cannot be tested as it stands, with a ValueError that says why."""
        experiment, subject = get_experiment(self.experiment), self.subject
        for right, wanted in (
            ({*self.arms} <= {*experiment.arms}, f"its arms must be some of {', '.join(experiment.arms)}"),
            (self.when == "at the end" or self.about == "both ways", "early, only both ways are recorded"),
            (self.about != "relations" or experiment.pairs, "its experiment does not look at relations"),
            (not subject.followed or experiment.follows_losses, "its experiment does not follow losses"),
            (bool(self.against) != subject.alone, "another arm is wanted, or none for one system alone"),
            ((self.kind == "our question") != bool(self.words), "only a paper's claim has words"),
        ):
            if not right:
                raise ValueError(f"{CLAIMS.name}: {self} cannot be tested: {wanted}")


def claims(work: str = "", data: str = "") -> list[Claim]:
    """Read the claims in `assets/claims.yml`; a ValueError says where one is damaged or cannot be tested.

    Args:
        work: only those of this paper; "": of all.
        data: only those that are tried on this data; "": all.
    """
    found: list[Claim] = read_asset(CLAIMS, list[Claim])
    for claim in found:
        claim.check()
    everywhere = data == "" or data in WORLDS
    return [one for one in found if work in ("", one.work) and (everywhere or one.photographs)]


Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


@dataclass(frozen=True)
class Departure:
    """One point at which a paper and its released code differ."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    work: Words
    """The paper's key, such as "2ad"."""
    place: Words
    """Where the paper says it."""
    printed: Words
    """What the paper says."""
    released: Words
    """What its code does."""
    here: Words
    """What this repository does."""


def departures(work: str = "") -> list[Departure]:
    """Read the entries of `assets/departures.yml`, of one paper or of all."""
    found: list[Departure] = read_asset(DEPARTURES, list[Departure])
    return [departure for departure in found if work in ("", departure.work)]
