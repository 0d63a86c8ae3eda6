"""What the papers say: their claims that can be tested, and where their released code departs from them."""

from dataclasses import dataclass
from typing import Literal

from vsecore.experiments.experiment import read_asset
from vsecore.experiments.measures import GRADED, LOG_VARIANCES, LOST_ALONE, LOST_WITHOUT
from vsecore.experiments.scales import SCENES, WORLDS
from vsecore.experiments.watching import ABOVE_BOUND, CONTRAST, LEFT, RETURNS
from vsecore.paths import assets
from vsecore.typed import Strict

CLAIMS = assets() / "claims.yml"
DEPARTURES = assets() / "departures.yml"

Kind = Literal["better", "no worse", "the same", "our question"]
"""What a claim says about its first system: that a measure is higher, not lower, or neither; "our question":
one that a reader will ask, not the paper."""

MARGIN = 0.01
"""Differences below this share of a measure are too small to matter; set before any verdict."""
LOSS_MARGIN = 0.05
"""The same for losses in training, which vary more from batch to batch."""
FIRST_PLACE = "both_r1"
"""The percentage of pairs whose cross-retrieval rank is 0."""
EARLY = "early_rsum"
"""The mean rsum on the development split over the first third of the epochs."""
PASSED = {"i2t_r1": "passed_i2t_r1", "t2i_r1": "passed_t2i_r1"}
"""By recall on the development split: minus the epochs in which a system passes another, see `race`."""


@dataclass(frozen=True)
class Subject:
    """What a claim may be about: the measures that judge it, and when a difference in them matters."""

    measures: tuple[str, ...]
    on_scenes: tuple[str, ...] = ()
    """Those that count too where it is known which captions are true of which pictures."""
    margin: float = MARGIN
    """What is too small to matter, as a share of the other system's measure."""
    absolute: bool = False
    """Whether the margin is in the measure's own unit instead."""
    recalls: tuple[str, ...] = ()
    """The recalls that it adds up, which papers print; (): recalls do not tell."""

    def measures_on(self, data: str) -> tuple[str, ...]:
        """Return the measures that count on some data."""
        return self.measures + (self.on_scenes if data == SCENES else ())


def _retrieval(*ways: str) -> Subject:
    """Retrieval is judged by the sum of its recalls and, on the truth, by mAP@R."""
    total = "rsum" if len(ways) > 1 else f"{ways[0]}_rsum"
    recalls = tuple(f"{way}_r{k}" for way in ways for k in (1, 5, 10))
    return Subject((total,), tuple(f"{way}_map_at_r" for way in ways), recalls=recalls)


RETRIEVAL = _retrieval("i2t", "t2i")
SUBJECTS: dict[str, Subject] = {
    "both ways": RETRIEVAL,
    "caption retrieval": _retrieval("i2t"),
    "image retrieval": _retrieval("t2i"),
    "early in training": Subject((EARLY,)),
    "epochs to pass": Subject(tuple(PASSED.values()), absolute=True, margin=0.5),  # epochs
    "first place": Subject((FIRST_PLACE,)),  # of a pair, in both directions
    "spread": Subject(LOG_VARIANCES, absolute=True),  # a difference of logarithms is a share already
    "one vector of a set": Subject(LOST_ALONE, absolute=True, margin=1.0),  # percent of the rsum
    "the weakest vector": Subject((LOST_WITHOUT,), absolute=True, margin=1.0),
    "whole rankings": Subject(GRADED),
    "contrastive loss": Subject(CONTRAST, margin=LOSS_MARGIN),
    "bound": Subject((ABOVE_BOUND,), absolute=True, margin=5.0),  # percent of the bound
    "reach of the bound": Subject((ABOVE_BOUND,), absolute=True, margin=5.0),
    "fall of the multiplier": Subject((LEFT,), absolute=True, margin=1.0),  # percent of its highest value
    "return of the multiplier": Subject((RETURNS,), absolute=True, margin=0.5),  # times that it rose from 0
}
"""What a claim may be about, by the words that `assets/claims.yml` has for it."""


@dataclass(frozen=True)
class Claim(Strict):
    """A statement of a paper on one arm of an experiment: better than another, no worse, or the same."""

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
    """The arm that it is compared with; "": none, since it is about one system alone."""
    statement: str
    """What is claimed, in a few plain words."""
    refuted_by: str
    """What would speak against it."""
    about: str = "both ways"
    """One of `SUBJECTS`."""
    printed: str = ""
    """The published row of the system that is like the other's; "": its arm's."""
    photographs: bool = False
    """Whether it is tried on photographs too."""
    fails: bool = False
    """Whether the paper says that the other system's training fails: then every seed of it must stay below
    the baseline, by each measure."""

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that it names: two, or one alone."""
        return (self.system, self.against) if self.against else (self.system,)

    @property
    def subject(self) -> Subject:
        """What it is about."""
        return SUBJECTS[self.about]


def claims(work: str = "", data: str = "") -> list[Claim]:
    """Read the claims in `assets/claims.yml`; a ValueError says where one is damaged.

    Args:
        work: only those of this paper; "": of all.
        data: only those that are tried on this data; "": all.
    """
    found: list[Claim] = read_asset(CLAIMS, list[Claim])
    everywhere = data == "" or data in WORLDS
    return [one for one in found if work in ("", one.work) and (everywhere or one.photographs)]


@dataclass(frozen=True)
class Departure(Strict):
    """One point at which a paper and its released code differ."""

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
    """Read the entries of `assets/departures.yml`, of one paper or of all."""
    found: list[Departure] = read_asset(DEPARTURES, list[Departure])
    return [departure for departure in found if work in ("", departure.work)]
