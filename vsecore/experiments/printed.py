"""What papers print about the arms of experiments, always on the same test pictures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from vsecore import records
from vsecore.experiments.claims import SUBJECTS, Claim
from vsecore.experiments.experiment import Experiment, get_experiment

TEST_PICTURES = {
    "flickr30k, 1,000 test pictures": "Flickr30K",
    "coco, 5,000 test pictures": "COCO 5K",
    "coco, mean of five folds of 1,000 test pictures": "COCO 1K",
    "coco, 1,000 test pictures": "1,000 pictures of COCO",
    "flickr8k, 1,000 test pictures": "Flickr8k",
}
"""Short names of the test pictures of published rows."""


def printed_rows(experiment: Experiment, data: str, pictures: int) -> tuple[dict[str, float], str]:
    """Return the rsum that papers print for each arm, and the name of the test pictures that it is of.

    If papers print arms on as many test pictures of the same data as ours, these are taken, and else those
    that `printed_sums` takes. The field's folders are called `coco_precomp` and `f30k_precomp`.
    """
    sums, name = _by_pictures(_rows(experiment)), data.removesuffix("_precomp")
    same = f"{'flickr30k' if name == 'f30k' else name}, {pictures:,} test pictures"
    chosen = same if same in sums else _fullest(sums)
    return sums.get(chosen, {}), TEST_PICTURES.get(chosen, "")


def printed_sums(experiment: Experiment, about: str = "both ways") -> dict[str, float]:
    """Return the rsum that papers print for each arm, all on the same test pictures; or add up the recalls.

    The test set with the most arms is used; on a tie that of COCO, and all 5,000 pictures rather than folds.
    For retrieval in one direction, it is the sum of its three recalls; {} for what recalls do not tell.
    """
    sums = _by_pictures(_rows(experiment), about)
    return sums.get(_fullest(sums), {})


def printed_difference(claim: Claim) -> tuple[float, str] | None:
    """Return the difference that a paper prints for a claim, and the test pictures that it is of.

    Returns:
        The difference of two rsums, or of the recalls of one direction, and a name such as "COCO 5K"; None
        if the paper does not print both on the same pictures.
    """
    rows = _rows(get_experiment(claim.experiment))
    pair = {arm: rows[arm] for arm in claim.arms} | ({claim.system: claim.printed} if claim.printed else {})
    sums = {pictures: found for pictures, found in _by_pictures(pair, claim.about).items() if len(found) == 2}
    if not sums:
        return None
    pictures = _fullest(sums)
    return sums[pictures][claim.system] - sums[pictures][claim.against], TEST_PICTURES[pictures]


def _rows(experiment: Experiment) -> dict[str, str]:
    return {arm: entry.published for arm, entry in experiment.arms.items()}


def _by_pictures(rows: Mapping[str, str], about: str = "both ways") -> dict[str, dict[str, float]]:
    """Return printed sums by test pictures, then by arm, of the arms whose published rows are named."""
    sums: dict[str, dict[str, float]] = defaultdict(dict)
    recalls = SUBJECTS[about].recalls
    for row in records.published():
        total = row.rsum if row.printed_rsum is None else row.printed_rsum
        if about != "both ways":
            total = sum(row.metrics[one] for one in recalls) if {*recalls} <= row.metrics.keys() else None
        for arm, named in rows.items():
            if recalls and row.system == named and total is not None:
                sums[row.data][arm] = total
    return sums


def _fullest(sums: Mapping[str, Mapping[str, float]]) -> str:
    """Return the test pictures with the most arms; on a tie COCO's, and all 5,000 rather than folds."""
    return max(sums, key=lambda data: (len(sums[data]), data.startswith("coco"), "5,000" in data), default="")
