"""The papers' claims, each with a verdict from the records, or with the gates that are shut."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from vsecore.data.splits import FeatureKind
from vsecore.experiments import gates
from vsecore.experiments.claims import Claim, claims
from vsecore.experiments.gates import Shut, Studied
from vsecore.experiments.ledger import studied
from vsecore.experiments.running import RESULTS
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
    What a claim is about has its own measures, see `claims.SUBJECTS`. Each is tested by itself, with Holm's
    correction over all claims of an experiment that it judges, judged or not yet; if the measures disagree
    the verdict is "mixed". "not tried": an arm has no record.

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
        arms = studied(name, data, features, folder=folder)
        pairs = {claim: _pair(claim, arms, data) for claim in several}
        first_look = [_first_look(claim, pair, arms, data) for claim, pair in pairs.items()]
        judged = {
            one.claim: pair for one in first_look if not one.shut and (pair := pairs[one.claim]) is not None
        }
        family = [claim for claim in claims(data=data) if claim.experiment == name]
        verdicts = _by_measure(judged, family, data)
        found += [
            _judged(one, *judged[one.claim], verdicts[one.claim], data) if one.claim in judged else one
            for one in first_look
        ]
    return found


def _pair(claim: Claim, arms: Mapping[str, Studied], data: str) -> tuple[Studied, Studied] | None:
    """Return the arms that a claim compares, where one about a system alone is held against 0."""
    first, second = arms.get(claim.system), arms.get(claim.against)
    if first is not None and claim.subject.alone:
        second = gates.zero(first, data, claim.about)
    return None if first is None or second is None else (first, second)


def _first_look(
    claim: Claim, pair: tuple[Studied, Studied] | None, arms: Mapping[str, Studied], data: str
) -> Outcome:
    """Return the outcome of a claim whose gates may be shut; one that can be judged is judged later."""
    if never := gates.never(claim, data):
        return Outcome(claim, {}, [never], "too small to say")
    if pair is None:
        untried = " and ".join(arm for arm in claim.arms if arm not in arms)
        return Outcome(claim, {}, [Shut(f"fair trainings of {untried}", "none yet")], "not tried")
    by_seed = {measure: differences(*pair, measure) for measure in claim.measures_of(data)}
    return Outcome(claim, by_seed, gates.shut(*pair, data, claim.when, claim.about), "too small to say")


def _by_measure(
    judged: Mapping[Claim, tuple[Studied, Studied]], family: Sequence[Claim], data: str
) -> dict[Claim, dict[str, Verdict]]:
    """Judge each claim by each measure, with Holm's correction over all claims of its kind in the family."""
    found: dict[Claim, dict[str, Verdict]] = {claim: {} for claim in judged}
    for measure in dict.fromkeys(measure for claim in judged for measure in claim.measures_of(data)):
        for no_worse in (True, False):
            alike = [
                claim
                for claim in family
                if measure in claim.measures_of(data) and (claim.kind == "no worse") == no_worse
            ]
            asked = [claim for claim in judged if claim in alike]
            left = corrected([_doubts(claim, *judged[claim], measure) for claim in asked], len(alike))
            for claim, remaining in zip(asked, left, strict=True):
                found[claim][measure] = judge(remaining, claim.kind)
    return found


def _doubts(claim: Claim, first: Studied, second: Studied, measure: str) -> Doubts:
    margin = claim.subject.margin
    if not claim.subject.absolute:
        shared = first.seeds & second.seeds
        margin *= statistics.mean(second.results[measure][seed] for seed in shared)
    return doubts(differences(first, second, measure), margin)


def _judged(
    outcome: Outcome, first: Studied, second: Studied, by_measure: Mapping[str, Verdict], data: str
) -> Outcome:
    weaker, remark = gates.weaker(first, second), ""
    if gates.above_baseline(weaker, data):
        remark = "against a baseline that failed" if weaker is second else "but the system itself failed"
    verdict = together(list(by_measure.values()))
    return replace(outcome, judgement=verdict, by_measure=by_measure, remark=remark)


def differences(first: Studied, second: Studied, measure: str) -> list[float]:
    """Return one arm minus the other, for each seed that both have, in order."""
    one, other = (arm.results.get(measure, {}) for arm in (first, second))
    return [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]
