"""The papers' claims, each with a verdict from the records, or with the gates that are shut."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vsecore.data.splits import FeatureKind
from vsecore.experiments import gates
from vsecore.experiments.claims import ALONE, Claim, claims
from vsecore.experiments.constraint import CONTRAST
from vsecore.experiments.gates import LOSS_MARGIN, MARGIN, Shut, Studied, measures_of
from vsecore.experiments.ledger import printed_difference, studied
from vsecore.experiments.running import RESULTS
from vsecore.experiments.set_variance import LOG_VARIANCES
from vsecore.experiments.statistics import Doubts, Verdict, corrected, doubts, judge, together

Judgement = Literal[Verdict, "too small to say", "not tried"]


@dataclass(frozen=True)
class Outcome:
    """What the records say about a claim on some data."""

    claim: Claim
    differences: Mapping[str, Sequence[float]]  # by measure: system minus the other, for each common seed
    shut: Sequence[Shut]  # the gates that keep it from being judged
    judgement: Judgement
    by_measure: Mapping[str, Verdict] = field(default_factory=dict)  # empty unless it is judged
    remark: str = ""  # set if the weaker arm is finished but not above the linear baseline

    @property
    def told(self) -> str:
        """The verdict in words: for a question of ours, which no paper answers, yes or no."""
        if self.judgement == "too small to say":
            return f"too small to say: {', '.join(dict.fromkeys(gate.gate for gate in self.shut))}"
        said: str = self.judgement
        if self.claim.kind == "our question":
            said = {"reproduced": "yes", "contradicted": "no"}.get(said, said)
        return f"{said}, {self.remark}" if self.remark else said


def outcomes(
    work: str, data: str, experiment: str = "", features: FeatureKind | None = None, folder: Path = RESULTS
) -> list[Outcome]:
    """Judge a paper's claims by the records of fair trainings on some data, see `gates` and `statistics`.

    With the same seed, both arms of a claim saw the same batches, so their difference is taken seed by seed.
    A claim about early training, one direction, the first place, relations, sets or losses has measures of
    its own, see `gates.measures_of`; one about a system alone compares its measure with 0. Each measure is
    tested by itself, with Holm's correction over all claims of an experiment that it judges, judged or not
    yet; if the measures disagree the verdict is "mixed". "not tried": an arm has no record.

    Args:
        work: the key of a paper, such as "2ad".
        data: the name of the data.
        experiment: only claims of this experiment; "": of all.
        features: the kind of features; None: each experiment's own.
        folder: the folder of records.
    """
    chosen: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims(work):
        if experiment in ("", claim.experiment):
            chosen[claim.experiment].append(claim)
    return [
        outcome
        for name, its_claims in chosen.items()
        for outcome in _judged(
            its_claims,
            [claim for claim in claims() if claim.experiment == name],
            studied(name, data, features, folder=folder),
            data,
        )
    ]


def _judged(
    several: Sequence[Claim], everything: Sequence[Claim], found: Mapping[str, Studied], data: str
) -> list[Outcome]:
    """Return the outcomes of several claims of one experiment; `everything` is all its claims."""
    shut: list[list[Shut] | None] = []
    for claim in several:
        first, second = _arms(claim, found, data)
        if never := gates.never(claim, data):
            shut.append([never])
        elif first is None or second is None:
            shut.append(None)
        else:
            shut.append(gates.shut(first, second, data, claim.when, claim.about))
    judged = [claim for claim, gates_shut in zip(several, shut, strict=True) if gates_shut == []]
    by_measure: dict[Claim, dict[str, Verdict]] = {claim: {} for claim in judged}
    for measure in dict.fromkeys(measure for claim in judged for measure in _measures(claim, data)):
        for no_worse in (True, False):
            alike = [
                claim
                for claim in everything
                if measure in _measures(claim, data) and (claim.kind == "no worse") == no_worse
            ]
            family = [claim for claim in judged if claim in alike]
            left = [_doubts(claim, found, data, measure) for claim in family]
            for claim, remaining in zip(family, corrected(left, len(alike)), strict=True):
                by_measure[claim][measure] = judge(remaining, claim.kind)
    held = []
    for claim, gates_shut in zip(several, shut, strict=True):
        if gates_shut is None:
            held.append(Outcome(claim, {}, (), "not tried"))
            continue
        if gates.never(claim, data):
            held.append(Outcome(claim, {}, gates_shut, "too small to say"))
            continue
        first, second = _arms(claim, found, data)
        assert first is not None and second is not None  # else it is not tried
        held.append(
            Outcome(
                claim,
                {measure: differences(first, second, measure) for measure in _measures(claim, data)},
                gates_shut,
                "too small to say" if gates_shut else together(list(by_measure[claim].values())),
                {} if gates_shut else by_measure[claim],
                "" if gates_shut else _remark(first, second, data),
            )
        )
    return held


def _arms(claim: Claim, found: Mapping[str, Studied], data: str) -> tuple[Studied | None, Studied | None]:
    """Return the two arms that a claim compares, None where one has no record; 0 stands for a second one."""
    first = found.get(claim.system)
    if claim.about in ALONE:
        return first, None if first is None else gates.zero(first, data, claim.about)
    return first, found.get(claim.against)


def _measures(claim: Claim, data: str) -> tuple[str, ...]:
    return measures_of(data, claim.when, claim.about)


def _remark(first: Studied, second: Studied, data: str) -> str:
    """Return the remark on a comparison whose weaker arm is below the linear baseline."""
    weaker = gates.weaker(first, second)
    if not gates.is_below_baseline(weaker, data):
        return ""
    return "against a baseline that failed" if weaker is second else "but the system itself failed"


def differences(first: Studied, second: Studied, measure: str) -> list[float]:
    """Return one arm minus the other, for each seed that both have, in order."""
    one, other = (arm.results.get(measure, {}) for arm in (first, second))
    return [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]


def _doubts(claim: Claim, found: Mapping[str, Studied], data: str, measure: str) -> Doubts:
    first, second = _arms(claim, found, data)
    assert first is not None and second is not None  # only a claim that can be judged has doubts
    if claim.about in ALONE:
        margin = ALONE[claim.about]
    elif measure in LOG_VARIANCES:  # a difference of logarithms is a share already
        margin = MARGIN
    else:
        shared = first.seeds & second.seeds
        margin = LOSS_MARGIN if measure in CONTRAST else MARGIN
        margin *= statistics.mean(second.results[measure][seed] for seed in shared)
    return doubts(differences(first, second, measure), margin)


def verdicts(
    work: str, data: str, experiment: str = "", features: FeatureKind | None = None, folder: Path = RESULTS
) -> str:
    """Return a paper's claims as a Markdown table: its difference, ours, and the verdict.

    A line below the table lists the claims that are not tried.
    """
    lines = [
        "| claim | difference in the paper | here, mean over seeds | spread | seeds | verdict |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    untried = []
    for outcome in outcomes(work, data, experiment, features, folder):
        if outcome.judgement == "not tried":
            untried.append(outcome.claim.statement)
            continue
        claim: Claim = outcome.claim
        found: Sequence[float] = next(iter(outcome.differences.values()), ())
        paper = printed_difference(claim)
        cells = [
            f"{claim.statement} ({claim.place})",
            "–" if paper is None else f"{paper[0]:+.1f} ({paper[1]})",
            f"{statistics.mean(found):+.1f}" if found else "–",
            f"{statistics.stdev(found):.1f}" if len(found) > 1 else "–",
            str(len(found)),
            outcome.told,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(lines) if len(lines) > 2 else ""
    rest = f"Not tried: {'; '.join(untried)}." if untried else ""
    return "\n\n".join(part for part in (table, rest) if part)
