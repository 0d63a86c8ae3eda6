"""What the records say: an experiment as a table, and a paper's claims with a verdict each."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import yaml

from vsecore import records
from vsecore.data.splits import FeatureKind
from vsecore.experiments.catalogue import get_experiment
from vsecore.experiments.experiment import Experiment, lesson_scale, title_of
from vsecore.experiments.running import RESULTS
from vsecore.paths import assets

CLAIMS = assets() / "claims.yml"

Verdict = Literal["reproduced", "not on this data", "contradicted", "not tried"]
SIGNIFICANCE = 0.05  # of a one-sided paired t-test


@dataclass(frozen=True)
class Claim:
    """A statement of a paper that one arm of an experiment is better than another."""

    work: str  # its key, such as "2ad"
    place: str  # in the paper
    statement: str
    experiment: str
    better: str  # an arm
    worse: str  # another
    metric: str = "rsum"


@dataclass(frozen=True)
class Outcome:
    """What the records say about a claim on some data."""

    claim: Claim
    differences: list[float]  # better minus worse, for each seed that both arms have
    verdict: Verdict


def claims(work: str = "") -> list[Claim]:
    """The claims of `assets/claims.yml`, of one paper or of all.

    Raises:
        ValueError: an entry lacks a field, has an unknown one, or names no experiment or arm.
    """
    found = []
    known = {field.name for field in fields(Claim)}
    for entry in yaml.safe_load(CLAIMS.read_text(encoding="utf-8")):
        if odd := (known ^ entry.keys()) - {"metric"}:
            raise ValueError(
                f"{CLAIMS.name}: {entry} has missing or unknown fields: {', '.join(sorted(odd))}"
            )
        claim = Claim(**entry)
        for arm in (claim.better, claim.worse):
            if arm not in get_experiment(claim.experiment).arms:
                raise ValueError(f"{CLAIMS.name}: experiment {claim.experiment!r} has no arm {arm!r}")
        if work in ("", claim.work):
            found.append(claim)
    return found


def measured(
    name: str, data: str, features: FeatureKind = "grid", metric: str = "rsum", folder: Path = RESULTS
) -> dict[str, dict[int, float]]:
    """The records of an experiment: the metric of each arm by seed. Arms without a record are left out.

    Args:
        name: of the experiment.
        data: the name of the data, such as "flickr8k".
        features: what an element is.
        metric: a metric of the records.
        folder: of the records.

    Raises:
        ValueError: the experiment is unknown, or its records come from different data or word vectors.
    """
    experiment, scale = get_experiment(name), lesson_scale(data)
    entries = records.find(folder, data=data) if folder.is_dir() else []
    found, sources = {}, defaultdict(set)
    for arm in experiment.arms:
        identified = title_of(experiment.trainings(arm, features, scale))
        chosen = [entry for entry in entries if (entry.name, entry.config_hash) == identified]
        for entry in chosen:
            for source in entry.data.get("members", [entry.data]):
                kind, parts = source.get("feature_kind", ""), ("fingerprint", "vectors")
                sources[kind].add((entry.precision, *(source.get(part, "") for part in parts)))
        if by_seed := {entry.seed: entry.metrics[metric] for entry in chosen if metric in entry.metrics}:
            found[arm] = by_seed
    for kind, different in sources.items():
        if len(different) > 1:
            raise ValueError(
                f"records of {name} in {folder.name} come from {len(different)} different sets of {kind} "
                "features, captions or word vectors: keep each in a folder of its own"
            )
    return found


def table(name: str, data: str, features: FeatureKind = "grid", folder: Path = RESULTS) -> str:
    """An experiment as a Markdown table: rsum and place of each arm, the paper's and ours, the best first.

    The spread is the standard deviation over the seeds. Places count only the systems that both have.
    """
    experiment, found = get_experiment(name), measured(name, data, features, folder=folder)
    ours = {arm: statistics.mean(by_seed.values()) for arm, by_seed in found.items()}
    paper = {arm: rsum for arm, rsum in printed_sums(experiment).items() if arm in found}
    shared = {arm: ours[arm] for arm in paper}  # places count only the systems that both have
    places = {
        whose: {arm: 1 + sum(other > value for other in numbers.values()) for arm, value in numbers.items()}
        for whose, numbers in (("paper", paper), ("ours", shared))
    }
    lines = [
        "| system | rsum in the paper | its place there | rsum here | spread | its place here | seeds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for arm in sorted(found, key=lambda arm: -ours[arm]):
        by_seed = list(found[arm].values())
        cells = [
            arm,
            f"{paper[arm]:.1f}" if arm in paper else "–",
            str(places["paper"].get(arm, "–")),
            f"{ours[arm]:.1f}",
            f"{statistics.stdev(by_seed):.1f}" if len(by_seed) > 1 else "–",
            str(places["ours"].get(arm, "–")),
            str(len(by_seed)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def outcomes(
    work: str, data: str, experiment: str = "", features: FeatureKind = "grid", folder: Path = RESULTS
) -> list[Outcome]:
    """Test a paper's claims on the records of some data.

    With the same seed, both arms of a claim saw the same batches, so their difference is taken seed by seed
    and tested against 0 by a paired t-test in each direction, at 5 %. "reproduced": above 0; "contradicted":
    below; "not on this data": these seeds cannot decide. With fewer than two seeds a claim is "not tried".

    Args:
        work: the key of a paper, such as "2ad".
        data: the name of the data.
        experiment: only claims of this experiment; "": of all.
        features: what an element is.
        folder: of the records.
    """
    held = []
    for claim in claims(work):
        if experiment not in ("", claim.experiment):
            continue
        found = measured(claim.experiment, data, features, claim.metric, folder)
        better, worse = (found.get(arm, {}) for arm in (claim.better, claim.worse))
        differences = [better[seed] - worse[seed] for seed in sorted(better.keys() & worse.keys())]
        held.append(Outcome(claim, differences, verdict(differences)))
    return held


def verdict(differences: Sequence[float]) -> Verdict:
    """The verdict on the claim that differences, one per seed, are above 0 (see `outcomes`)."""
    if len(differences) < 2:
        return "not tried"
    if len(set(differences)) == 1:  # no spread to test against
        return (
            "reproduced"
            if differences[0] > 0
            else "contradicted"
            if differences[0] < 0
            else "not on this data"
        )
    from scipy.stats import ttest_1samp  # takes a second, and only this needs it

    if ttest_1samp(differences, 0, alternative="greater").pvalue < SIGNIFICANCE:
        return "reproduced"
    if ttest_1samp(differences, 0, alternative="less").pvalue < SIGNIFICANCE:
        return "contradicted"
    return "not on this data"


def verdicts(
    work: str, data: str, experiment: str = "", features: FeatureKind = "grid", folder: Path = RESULTS
) -> str:
    """The claims of a paper with its difference, ours and the verdict, as a Markdown table."""
    lines = [
        "| claim | in the paper | here, mean of the differences | spread | seeds | verdict |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for outcome in outcomes(work, data, experiment, features, folder):
        claim, differences = outcome.claim, outcome.differences
        paper = printed_sums(get_experiment(claim.experiment))
        told = claim.metric == "rsum" and {claim.better, claim.worse} <= paper.keys()
        cells = [
            f"{claim.statement} ({claim.place})",
            f"{paper[claim.better] - paper[claim.worse]:+.1f}" if told else "–",
            f"{statistics.mean(differences):+.1f}" if differences else "–",
            f"{statistics.stdev(differences):.1f}" if len(differences) > 1 else "–",
            str(len(differences)),
            outcome.verdict,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def printed_sums(experiment: Experiment) -> dict[str, float]:
    """The rsum that papers print for each arm, all on the same test pictures of COCO.

    The test set with the most arms is used; on a tie, all 5,000 pictures rather than folds of them.
    """
    sums: dict[str, dict[str, float]] = defaultdict(dict)  # by the data
    for row in records.published():
        for arm, named in experiment.arms.items():
            if row.system != named.published or not row.data.startswith("coco"):
                continue
            if row.printed_rsum is not None:
                sums[row.data][arm] = row.printed_rsum
    if not sums:
        return {}
    return sums[max(sums, key=lambda data: (len(sums[data]), "5,000" in data))]
