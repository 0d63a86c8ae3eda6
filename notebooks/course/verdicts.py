"""What came out for each paper, and its claims in a table: what notebooks and evidence pages share."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from course.wording import seeds, signed, spread
from vsecore.experiments import Claim, Outcome
from vsecore.experiments.claims import EARLY, FIRST_PLACE
from vsecore.experiments.graded import GRADED
from vsecore.experiments.printed import printed_difference
from vsecore.experiments.set_vectors import LOST_ALONE, LOST_WITHOUT
from vsecore.experiments.verdicts import Judgement
from vsecore.experiments.watching import ABOVE_BOUND, CONTRAST, LEFT, RETURNS

DATA = {"scenes": "drawn scenes", "flickr8k": "Flickr8k"}
"""The data that papers are tried on, and what a reader calls them."""


@dataclass(frozen=True)
class Work:
    """A paper that has a page."""

    title: str
    cited: str
    """Entries in the book's references, with commas between them."""
    source: str
    """How `assets/published.json` names the paper whose tables are looked at for misprints."""
    notebooks: tuple[str, ...]
    """Those that teach it."""
    summary: str
    """What came out, in three sentences; {0} is the difference in rsum of the first claim in `rests_on`,
    and so on through `on_photographs`."""
    rests_on: tuple[tuple[str, Judgement], ...]
    """The claims that the summary speaks of, by their statements, with their verdicts on the scenes."""
    on_photographs: tuple[tuple[str, Judgement], ...] = ()
    """The same, with their verdicts on Flickr8k."""


WORKS = {
    "2ad": Work(
        "2AD: what the paper claims, and what we measured",
        "zhang2022adpool",
        "Zhang et al. 2022",
        ("10_pooling", "11_how_many_negatives", "12_ensembles_and_speed"),
        "AdPool beats the mean by {0:.0f} and the pair of pools that the paper tuned by hand by {1:.0f}. "
        "Five seeds do not settle whether it also beats GPO or the best simple pool. AdOpt ends {2:.0f} "
        "above the hardest triplet and learns much faster early in training; whether it is better than "
        "keeping all negatives always is open. On the scenes the pool matters more than the loss, where the "
        "paper says the reverse. On Flickr8k's photographs AdPool beats the mean too ({9:+.0f}), but loses "
        "to GPO ({10:+.0f}). Averaging a system on regions with one on a grid is better than the system on "
        "regions alone.",
        (
            ("AdPool is better than the mean", "reproduced"),
            ("AdPool is better than 5-max for pictures and the mean for captions", "reproduced"),
            ("AdOpt ends higher than the hardest triplet", "reproduced"),
            ("AdPool is better than GPO", "undecided"),
            ("AdPool is better than the simple pool that is best on the development split", "undecided"),
            ("early in training, AdOpt is ahead of the hardest triplet", "reproduced"),
            ("AdOpt is better than the same loss with all negatives always", "undecided"),
            ("AdOpt matters more than AdPool", "contradicted"),
            ("regions and grid together are better than regions", "reproduced"),
        ),
        (("AdPool is better than the mean", "reproduced"), ("AdPool is better than GPO", "contradicted")),
    ),
    "relational": Work(
        "Relations and cross-attention: what the papers claim, and what we measured",
        "yan2019relational,lee2018scan,li2019vsrn",
        "Yan 2019",
        ("05_relations", "06_structural_alignment", "07_cross_attention"),
        "Transformers find a caption's picture more often than the towers of VSE++. In the thesis they are "
        "worse at finding captions; our seeds leave that open. Neither of the thesis's structural losses "
        "helps on the scenes, and node pooling makes it harder to find captions. Cross-attention is {0:.0f} "
        "above one vector a side; VSRN, with one vector, reaches a higher rsum than SCAN, but ranks pictures "
        "less well when every true picture counts.",
        (
            ("cross-attention is better than one vector for each side", "reproduced"),
            ("Transformers are better than the towers of VSE++ at image retrieval", "reproduced"),
            ("the towers of VSE++ are better than Transformers at caption retrieval", "undecided"),
            ("the system is no worse without node pooling", "reproduced"),
            ("the system is no worse without node cross-attention", "reproduced"),
            ("node pooling improves caption retrieval", "contradicted"),
            ("VSRN is better than SCAN", "mixed"),
        ),
    ),
    "aoq": Work(
        "Offline quintuplets: what the paper claims, and what we measured",
        "chen2020aoq",
        "Chen et al. 2020 (AOQ)",
        ("08_offline_negatives", "09_quintuplet"),
        "None of the paper's claims is judged yet: its lists of offline negatives were far too long for a "
        "training set of the scenes' size, and trainings with lists in proportion have only begun.",
        (),
    ),
    "dive": Work(
        "Sets of embeddings: what the paper claims, and what we measured",
        "kim2023dive",
        "Kim et al. 2023",
        ("13_sets", "14_slots"),
        "None of the paper's claims is judged yet. With a fifth of words and regions left out, as in the "
        "paper, the system learns too little on the scenes. So we leave nothing out and tune all systems "
        "again.",
        (),
    ),
    "ltd": Work(
        "Latent targets: what the paper claims, and what we measured",
        "bleeker2023ltd",
        "Bleeker et al. 2023 (LTD)",
        ("15_feature_suppression", "16_latent_targets"),
        "A latent target that is kept as a constraint adds {0:.0f} to the rsum, and is {1:.0f} above the "
        "same target as a second loss. The multiplier λ falls back to 0 once its bound of 0.2 is met. The "
        "reconstruction loss does not stop at that bound, as the paper saw it do, but falls well below it.",
        (
            ("a latent target as a constraint helps", "reproduced"),
            ("the constraint is better than the second loss", "reproduced"),
            ("λ falls back to 0 once the bound of 0.2 is met", "reproduced"),
            ("the reconstruction loss converges to its bound of 0.2", "contradicted"),
        ),
    ),
}
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
            difference = signed(statistics.mean(values), digits) + spread(values, digits)
            lines.append(f"{CALLED[measure]} {difference}{said}")
    if count := max((len(values) for values in outcome.differences.values()), default=0):
        lines.append(seeds(count))
    return "<br>".join(lines)


CALLED = {
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
