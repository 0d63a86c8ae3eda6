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
from vsecore.experiments.ledger import studied
from vsecore.experiments.running import RESULTS
from vsecore.experiments.set_vectors import LOG_VARIANCES
from vsecore.experiments.statistics import Doubts, Verdict, corrected, doubts, judge, together

Judgement = Literal[Verdict, "too small to say", "not tried"]


@dataclass(frozen=True)
class Outcome:
    """What the records say about a claim on some data."""

    claim: Claim
    differences: Mapping[str, Sequence[float]]
    """By measure: the system minus the other one, for each common seed."""
    shut: Sequence[Shut]
    """The gates that keep it from being judged."""
    judgement: Judgement
    by_measure: Mapping[str, Verdict] = field(default_factory=dict)
    """Empty unless it is judged."""
    remark: str = ""
    """Set if the weaker arm is finished but not above the linear baseline."""

    @property
    def in_words(self) -> str:
        """The verdict in words: for a question of ours, which no paper answers, yes or no."""
        if self.judgement == "too small to say":
            return f"too small to say: {', '.join(dict.fromkeys(gate.gate for gate in self.shut))}"
        words: str = self.judgement
        if self.claim.kind == "our question":
            words = {"reproduced": "yes", "contradicted": "no"}.get(words, words)
        return f"{words}, {self.remark}" if self.remark else words


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
    by_experiment: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims(work, data):
        if experiment in ("", claim.experiment):
            by_experiment[claim.experiment].append(claim)
    found = []
    for name, several in by_experiment.items():
        of_arms = studied(name, data, features, folder=folder)
        compared = [_Comparison.of(claim, of_arms, data) for claim in several]
        family = [claim for claim in claims(data=data) if claim.experiment == name]
        verdicts = _by_measure([case for case in compared if case.shut == []], family, data)
        found += [_outcome(case, verdicts[case.claim], data) for case in compared]
    return found


@dataclass(frozen=True)
class _Comparison:
    """A claim and the two arms that it compares."""

    claim: Claim
    first: Studied | None
    """The arm of the system; None: it has no record."""
    second: Studied | None
    """The other arm; in a claim about one system alone, an arm whose measure is 0."""
    shut: list[Shut] | None
    """The gates that are shut; None: an arm has no record."""
    measures: tuple[str, ...]

    @classmethod
    def of(cls, claim: Claim, found: Mapping[str, Studied], data: str) -> _Comparison:
        first, second = found.get(claim.system), found.get(claim.against)
        if claim.about in ALONE and first is not None:
            second = gates.zero(first, data, claim.about)
        shut: list[Shut] | None = None
        if never := gates.never(claim, data):
            shut, first, second = [never], None, None
        elif first is not None and second is not None:
            shut = gates.shut(first, second, data, claim.when, claim.about)
        return cls(claim, first, second, shut, measures_of(data, claim.when, claim.about))

    def doubts(self, measure: str) -> Doubts:
        """Return the doubts about the difference in a measure; the claim can be judged."""
        assert self.first is not None and self.second is not None
        if self.claim.about in ALONE:
            margin = ALONE[self.claim.about]
        elif measure in LOG_VARIANCES:  # a difference of logarithms is a share already
            margin = MARGIN
        else:
            shared = self.first.seeds & self.second.seeds
            margin = LOSS_MARGIN if measure in CONTRAST else MARGIN
            margin *= statistics.mean(self.second.results[measure][seed] for seed in shared)
        return doubts(differences(self.first, self.second, measure), margin)


def _by_measure(
    judged: Sequence[_Comparison], family: Sequence[Claim], data: str
) -> dict[Claim, dict[str, Verdict]]:
    """Judge each claim by each measure, with Holm's correction over all claims of its kind in the family."""
    found: dict[Claim, dict[str, Verdict]] = defaultdict(dict)
    for measure in dict.fromkeys(measure for case in judged for measure in case.measures):
        for no_worse in (True, False):
            alike = [
                claim
                for claim in family
                if measure in measures_of(data, claim.when, claim.about)
                and (claim.kind == "no worse") == no_worse
            ]
            asked = [case for case in judged if case.claim in alike]
            left = corrected([case.doubts(measure) for case in asked], len(alike))
            for case, remaining in zip(asked, left, strict=True):
                found[case.claim][measure] = judge(remaining, case.claim.kind)
    return found


def _outcome(case: _Comparison, by_measure: Mapping[str, Verdict], data: str) -> Outcome:
    if case.shut is None:
        return Outcome(case.claim, {}, (), "not tried")
    if case.first is None or case.second is None:  # it can never be judged on these data
        return Outcome(case.claim, {}, case.shut, "too small to say")
    by_seed = {measure: differences(case.first, case.second, measure) for measure in case.measures}
    if case.shut:
        return Outcome(case.claim, by_seed, case.shut, "too small to say")
    weaker, remark = gates.weaker(case.first, case.second), ""
    if gates.above_baseline(weaker, data):
        remark = "against a baseline that failed" if weaker is case.second else "but the system itself failed"
    return Outcome(case.claim, by_seed, [], together(list(by_measure.values())), by_measure, remark)


def differences(first: Studied, second: Studied, measure: str) -> list[float]:
    """Return one arm minus the other, for each seed that both have, in order."""
    one, other = (arm.results.get(measure, {}) for arm in (first, second))
    return [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]
