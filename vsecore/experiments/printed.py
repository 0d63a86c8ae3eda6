"""What papers print about the arms of experiments, always on the same test pictures."""

from collections import defaultdict
from collections.abc import Mapping

from vsecore import records
from vsecore.experiments.claims import SUBJECTS, Claim
from vsecore.experiments.experiment import EXPERIMENTS, Experiment, get_experiment
from vsecore.experiments.measures import SIDES, alone
from vsecore.experiments.scales import as_published
from vsecore.recipes import RECIPES, VARIANTS, Recipe, get

ALL_OF_COCO, FOLDS_OF_COCO = "coco, 5,000 test pictures", "coco, mean of five folds of 1,000 test pictures"
TEST_PICTURES = {
    "flickr30k, 1,000 test pictures": "Flickr30K",
    ALL_OF_COCO: "COCO 5K",
    FOLDS_OF_COCO: "COCO 1K",
    "coco, 1,000 test pictures": "1,000 pictures of COCO",
    "flickr8k, 1,000 test pictures": "Flickr8k",
}
"""Short names of the test pictures of published rows."""


def printed_rows(
    experiment: Experiment, data: str = "", pictures: int = 0, about: str = "both ways"
) -> tuple[dict[str, float], str]:
    """Return the rsum that papers print for each arm, and the name of the test pictures that it is of.

    If papers print arms on as many test pictures of the same data as ours, these are taken (all of COCO's
    5,000 are also tested in folds: whichever has more arms), and else those with the most arms. For
    retrieval in one direction, it is the sum of its three recalls; {} for what recalls do not tell.
    """
    sums, same = _by_pictures(_rows(experiment), about), _pictures_of(data, pictures)
    ours = {same, FOLDS_OF_COCO} if same == ALL_OF_COCO else {same}
    chosen = _fullest({one: found for one, found in sums.items() if one in ours} or sums)
    return sums.get(chosen, {}), TEST_PICTURES.get(chosen, "")


def printed_sets(experiment: Experiment) -> dict[str, dict[str, float]]:
    """Return what a paper prints on Flickr30K of each arm whose sets it takes apart, vector by vector."""
    rows = {row.system: row for row in records.published() if alone(SIDES[0], 1) in row.metrics}
    return {arm: _metrics(rows[row]) for arm, row in _rows(experiment).items() if row in rows}


def printed_metrics(recipe: Recipe, data: str, pictures: int) -> dict[str, float]:
    """Return what a paper prints of a recipe as it is, on as many test pictures of the same data; or {}."""
    base, *variants = recipe.name.split("+")
    if base not in RECIPES or not {*variants} <= {*VARIANTS} or get(recipe.name).hash() != recipe.hash():
        return {}
    trained = recipe.features == "pixels"  # whether the network behind the cells learns too
    named = {
        arm.published
        for experiment in (one.as_printed(data) for one in EXPERIMENTS.values())
        for title, arm in experiment.arms.items()
        if (experiment.features == "pixels") == trained
        if [one.recipes for one in experiment.systems(title, recipe.features)] == [(recipe.name,)]
    }
    return next(
        (
            _metrics(row)
            for row in records.published()
            if row.system in named and row.data == _pictures_of(data, pictures)
            if row.backbone.startswith("grid" if trained else recipe.features)
        ),
        {},
    )


def printed_difference(claim: Claim) -> tuple[float, str] | None:
    """Return the difference that a paper prints for a claim, in rsum or in the recalls of one direction.

    With it comes the name of the test pictures, such as "COCO 5K"; None: it has not both on the same ones.
    """
    rows = _rows(get_experiment(claim.experiment))
    pair = {arm: rows[arm] for arm in claim.arms} | ({claim.system: claim.printed} if claim.printed else {})
    sums = {pictures: found for pictures, found in _by_pictures(pair, claim.about).items() if len(found) == 2}
    if not sums:
        return None
    pictures = _fullest(sums)
    return sums[pictures][claim.system] - sums[pictures][claim.against], TEST_PICTURES.get(pictures, "")


def _pictures_of(data: str, pictures: int) -> str:
    """Return what a published row calls test pictures."""
    return f"{as_published(data)}, {pictures:,} test pictures"


def _metrics(row: records.Published) -> dict[str, float]:
    return row.metrics | ({} if row.rsum is None else {"rsum": row.rsum})


def _rows(experiment: Experiment) -> dict[str, str]:
    return {arm: entry.published for arm, entry in experiment.arms.items()}


def _by_pictures(rows: Mapping[str, str], about: str) -> dict[str, dict[str, float]]:
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
