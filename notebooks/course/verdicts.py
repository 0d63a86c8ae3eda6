"""What came out for each paper, and its claims in words: for the evidence pages."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from course.wording import counted, reach, signed
from vsecore.experiments import Claim, Outcome
from vsecore.experiments.claims import EARLY, FIRST_PLACE, PASSED
from vsecore.experiments.measures import GRADED, LOST_ALONE, LOST_WITHOUT
from vsecore.experiments.printed import printed_difference
from vsecore.experiments.verdicts import Judgement
from vsecore.experiments.watching import ABOVE_BOUND, CONTRAST, LEFT, RETURNS

DATA = {"scenes": "drawn scenes", "flickr8k": "Flickr8k"}
"""The data that papers are tried on, and what a reader calls them."""


@dataclass(frozen=True)
class Work:
    """A paper that has a page.

    Attributes:
        cited: entries in the book's references, with commas between them.
        source: how `assets/published.json` names the paper whose tables are looked at for misprints.
        summary: what came out, in three sentences; {0} is the difference in rsum of the first claim in
            `rests_on`, and so on through `on_photographs`.
        findings: what each experiment found, by name, with the same numbers.
        rests_on: the claims that they speak of, by their statements, with their verdicts on scenes.
        on_photographs: the same, with their verdicts on Flickr8k.
    """

    title: str
    cited: str
    source: str
    notebooks: list[str]
    summary: str
    findings: Mapping[str, str] = field(default_factory=dict)
    rests_on: Mapping[str, Judgement] = field(default_factory=dict)
    on_photographs: Mapping[str, Judgement] = field(default_factory=dict)


_FILE = Path(__file__).with_name("works.yml")
WORKS = {key: Work(**entry) for key, entry in yaml.safe_load(_FILE.read_text(encoding="utf-8")).items()}
"""The papers that have a page, by key."""


def side_by_side(outcomes: Mapping[str, Sequence[Outcome]]) -> list[tuple[Outcome, Outcome | None]]:
    """Return each claim's outcomes on the scenes and on Flickr8k; None: it is not tried there."""
    photographs = {one.claim: one for one in outcomes["flickr8k"]}
    return [(one, photographs.get(one.claim)) for one in outcomes["scenes"]]


def is_judged(outcome: Outcome | None) -> bool:
    """Whether a claim is tried, and all its gates were open."""
    return outcome is not None and outcome.judgement not in ("too small to say", "not tried")


def printed(claim: Claim) -> str:
    """Return the difference that the paper prints."""
    printed = printed_difference(claim)
    return "–" if printed is None else f"{signed(printed[0])} ({printed[1]})"


def ours(outcome: Outcome | None) -> str:
    """Return the verdict and the differences that it rests on; a dash if the claim is not tried."""
    if outcome is None:
        return "–"
    lines = [f"**{outcome.in_words}**"]
    for measure, values in outcome.differences.items():
        if values:
            said = f": {outcome.by_measure[measure]}" if measure in outcome.by_measure else ""
            digits = 3 if measure in CONTRAST else 1
            difference = signed(statistics.mean(values), digits) + reach(values, digits)
            lines.append(f"{CALLED[measure]} {difference}{said}")
    if count := max((len(values) for values in outcome.differences.values()), default=0):
        lines.append(counted(count, "seed"))
    return "<br>".join(lines)


CALLED = {
    "rsum": "rsum",
    "i2t_map_at_r": "mAP@R to text",
    "t2i_map_at_r": "mAP@R to picture",
    EARLY: "early rsum",
    **dict(zip(PASSED.values(), ("epochs to spare, R@1 to text", "the same to picture"), strict=True)),
    "i2t_rsum": "recalls to text",
    "t2i_rsum": "recalls to picture",
    FIRST_PLACE: "first both ways",
    "log_variance_pictures": "log variance, pictures",
    "log_variance_texts": "log variance, captions",
    **dict(zip(GRADED, ("R-precision", "nDCG"), strict=True)),
    **dict(
        zip(LOST_ALONE, ("% lost with one picture vector", "% lost with one caption vector"), strict=True)
    ),
    LOST_WITHOUT: "% lost without the weakest picture vector",
    **dict(zip(CONTRAST, ("contrastive loss", "contrastive loss at the end"), strict=True)),
    ABOVE_BOUND: "above its bound",
    LEFT: "λ left",
    RETURNS: "returns",
}
"""What a reader calls a measure."""
