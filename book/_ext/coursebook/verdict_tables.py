"""A paper's claims with their verdicts, and what keeps the others from being judged."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import get_args

from course.grading.plain import folded
from coursebook.findings import DATA, Findings
from coursebook.wording import seeds, signed, spread, table, trainings
from vsecore.experiments import Claim, Outcome, Shut, get_experiment, missing
from vsecore.experiments.claims import ALONE, FOLLOWED
from vsecore.experiments.constraint import ABOVE_BOUND, CONTRAST, LEFT, RETURNS
from vsecore.experiments.gates import EARLY, FIRST_PLACE
from vsecore.experiments.ledger import printed_difference
from vsecore.experiments.verdicts import Judgement


def verdicts(found: Findings) -> str:
    """All claims, those with the same words of the paper together."""
    everywhere = list(zip(*(found.outcomes[data] for data in DATA), strict=True))  # one entry a claim
    groups: dict[tuple[str, ...], list[tuple[Outcome, ...]]] = defaultdict(list)
    for one in everywhere:
        claim = one[0].claim
        same = (claim.words, claim.place, claim.kind) if claim.words else ("", claim.experiment)
        groups[same].append(one)
    lines = ["## The verdicts", counted(found.outcomes)]
    if all(one.judgement in ("not tried", "too small to say") for several in everywhere for one in several):
        lines.append(
            "No claim can be judged yet. The tables say what will be asked, and what would refute it."
        )
    lines.append(
        'The column "the paper" has the difference between the two rsums that it prints for the same test '
        "pictures, if it prints both. The columns for our data have the verdict and, for each measure, the "
        "mean difference ± its standard deviation over the seeds, and what this measure says by itself. "
        '"To text" means searching captions with a picture, "to picture" the reverse. "Early rsum" is the '
        "mean rsum on the development split over the first third of the epochs."
    )
    if any(one[0].claim.about != "both ways" for one in everywhere):
        lines.append(
            "Where a claim is about one direction of retrieval, the paper's difference is that of the three "
            'recalls of this direction, and so are ours ("recalls to text", "recalls to picture"), beside '
            'its mAP@R. Where it is about the first place, "first both ways" is the share of pairs, in '
            "percent, that score higher than each with another picture's caption and each with another "
            'picture. Where it is about relations, "right picture of two" and "right caption of two" say how '
            "often a system prefers the right one, in percent, where two pictures differ in one relation "
            'alone. Only the drawn scenes have such pictures. Where it is about spread, "log variance" is '
            "the mean logarithm of the circular variance of the embedding sets: the further below 0, the "
            "more their vectors look the same."
        )
    if any(one[0].claim.about in FOLLOWED for one in everywhere):
        lines.append(
            'Where a claim is about losses in training, "contrastive loss" is the mean over all steps, and '
            "then that over the last epoch. A claim about one system alone compares its measure with 0: "
            '"above its bound" is how far the reconstruction loss of the last epoch is above the bound, in '
            'percent of the bound; "λ left" is the multiplier at the end, in percent of its highest '
            'value; "returns" is how often it rose again from 0.'
        )
    for (words, *rest), several in groups.items():
        claim = several[0][0].claim
        if words:
            lines.append(f"> {words}\n>\n> — {rest[0]}. *The claim: {_kind(claim)}*")
        else:
            lines.append(f"**Our own questions.** {get_experiment(claim.experiment).question}")
        rows = [
            [_claimed(one[0].claim), one[0].claim.refuted_by, _paper(one[0].claim), *map(_ours, one)]
            for one in several
        ]
        head = "the paper's claim" if words else "is it true that"
        lines.append(table([head, "what would refute it", "the paper", *DATA.values()], rows, "verdicts"))
    return "\n\n".join(lines)


def _kind(claim: Claim) -> str:
    """What a claim says of its system's measure."""
    if claim.about in ALONE:
        return "it is above 0." if claim.kind == "better" else "it is 0, within the margin."
    return _KINDS[claim.kind]


_KINDS = {
    "better": "it is better.",
    "no worse": "it is no worse.",
    "the same": "it is the same.",
}


def counted(outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """How often each verdict came out, by data."""
    counts = {data: Counter(outcome.judgement for outcome in outcomes[data]) for data in DATA}
    said = [verdict for verdict in get_args(Judgement) if any(counts[data][verdict] for data in DATA)]
    rows = [[verdict, *(str(counts[data][verdict]) for data in DATA)] for verdict in said]
    return table(["verdict", *(f"claims, on {name}" for name in DATA.values())], rows)


def in_short(title: str, outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """All claims of a paper in one table, without their words: where each stands, its difference and ours.

    Args:
        title: the table opens at a click on it.
        outcomes: of the same claims, by data.
    """
    everywhere = zip(*(outcomes[data] for data in DATA), strict=True)
    rows = [
        [
            f"{one[0].claim.statement}{'' if one[0].claim.words else '?'}<br>*{one[0].claim.place}*",
            _paper(one[0].claim),
            *map(_ours, one),
        ]
        for one in everywhere
    ]
    return folded(title, table(["claim, or our question", "the paper", *DATA.values()], rows))


def _claimed(claim: Claim) -> str:
    return claim.statement if claim.words else f"{claim.statement}?<br>*{claim.place}*"


def _paper(claim: Claim) -> str:
    """The difference that the paper prints."""
    printed = printed_difference(claim)
    return "–" if printed is None else f"{signed(printed[0])} ({printed[1]})"


def _ours(outcome: Outcome) -> str:
    """The verdict and the differences that it rests on."""
    lines = [f"**{outcome.told}**"]
    if outcome.judgement == "not tried":
        lines.append("at the fair scale")
    for measure, values in outcome.differences.items():
        if values:
            said = f": {outcome.by_measure[measure]}" if measure in outcome.by_measure else ""
            digits = 3 if measure in CONTRAST else 1
            told = signed(statistics.mean(values), digits) + spread(values, digits)
            lines.append(f"{_MEASURES[measure]} {told}{said}")
    if counted := max((len(values) for values in outcome.differences.values()), default=0):
        lines.append(seeds(counted))
    return "<br>".join(lines)


_MEASURES = {
    "rsum": "rsum",
    "i2t_map_at_r": "mAP@R to text",
    "t2i_map_at_r": "mAP@R to picture",
    EARLY: "early rsum",
    "i2t_rsum": "recalls to text",
    "t2i_rsum": "recalls to picture",
    FIRST_PLACE: "first both ways",
    "pairs_t2i": "right picture of two",
    "pairs_i2t": "right caption of two",
    "log_variance_pictures": "log variance, pictures",
    "log_variance_texts": "log variance, captions",
    **dict(zip(CONTRAST, ("contrastive loss", "contrastive loss at the end"), strict=True)),
    ABOVE_BOUND: "above its bound",
    LEFT: "λ left",
    RETURNS: "returns",
}


def shut_gates(found: Findings) -> str:
    """Which gate keeps a claim from being judged, and what would open it."""
    lines = [
        "## What is still missing",
        "These claims are not judged yet. Beside each are the gates that are shut, the trainings that "
        "would open them and the hours that these take on the same device as before, if all goes well. If "
        "the best learning rate is at the edge of those tried, another one must be tried. A training that "
        "several claims need is counted in each of their rows. Where the number is 0, more trainings would "
        "not help.",
    ]
    for data, called in DATA.items():
        rows = []
        for outcome in found.outcomes[data]:
            name = outcome.claim.experiment
            entries = found.surveys[data].entries[name]
            if shut := missing(outcome, found.fair[data][name], data, found.seconds(data, name), entries):
                rows.append(_missing_row(outcome.claim, shut))
        lines.append(f"### On {called}")
        if not rows:
            lines.append("Nothing: every claim is judged.")
            continue
        lines += [_remaining(found, data), table(["claim", "shut, and why", "trainings", "hours"], rows)]
    return "\n\n".join(lines)


def _remaining(found: Findings, data: str) -> str:
    """What all claims take together, each training counted once."""
    lacking, done, seconds = found.surveys[data].trainings, found.fair_trainings(data), found.seconds(data)
    lines = [f"All claims together lack {trainings(len(lacking))} at the fair scale; {done} are recorded."]
    if math.isnan(seconds):
        lines.append("How long one takes is not known yet.")
    else:
        hours = sum(lacking.values()) / 3600
        lines.append(
            f"Half of these took less than {seconds / 60:.1f} minutes, so about {hours:.0f} hours are left."
        )
    return " ".join(lines)


def _missing_row(claim: Claim, shut: Sequence[Shut]) -> list[str]:
    seconds = sum(gate.seconds for gate in shut)
    return [
        claim.statement,
        "<br>".join(f"*{gate.gate}*: {gate.why}" for gate in shut),
        str(sum(gate.trainings for gate in shut)),
        "unknown" if math.isnan(seconds) else f"{seconds / 3600:.1f}",
    ]
