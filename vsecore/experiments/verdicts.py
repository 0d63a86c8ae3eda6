"""The papers' claims, each with a verdict from the records, or with the gates that are shut."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vsecore.experiments import gates
from vsecore.experiments.claims import Claim, claims
from vsecore.experiments.gates import Shut
from vsecore.experiments.ledger import Studied, race, studied
from vsecore.experiments.running import RESULTS
from vsecore.experiments.statistics import Doubts, Verdict, corrected, doubts, judge, together

Judgement = Literal[Verdict, "too small to say", "not tried"]
Pair = tuple[Studied, Studied | None]
"""What a claim is about: two arms, or one alone."""


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
    """Empty unless it is judged measure by measure."""
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
        return f"{words}, {self.remark}" if self.remark and not self.claim.fails else words


def outcomes(work: str, data: str, folder: Path = RESULTS) -> list[Outcome]:
    """Judge a paper's claims by the records of fair trainings on some data, see `gates` and `statistics`.

    With the same seed, both arms of a claim saw the same batches, so their difference is taken seed by seed.
    What a claim is about has its own measures, see `claims.SUBJECTS`. Each is tested by itself, with Holm's
    correction over all claims of an experiment that it judges, judged or not yet; if the measures disagree
    the verdict is "mixed". "not tried": an arm has no record.
    """
    by_experiment: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims(work, data):
        by_experiment[claim.experiment].append(claim)
    found = []
    for name, several in by_experiment.items():
        arms = studied(name, data, folder=folder)
        looked_at = [_first_look(claim, arms, data) for claim in several]
        judged = {one.claim: pair for one, pair in looked_at if pair is not None and not one.shut}
        verdicts = _by_measure(judged, [one for one in claims(data=data) if one.experiment == name], data)
        for outcome, pair in looked_at:
            by_measure = verdicts.get(outcome.claim)
            if pair is not None and by_measure is not None:
                if outcome.claim.fails:
                    # By any other measure, at least one seed has learned.
                    below = gates.measures_below(pair[1] or pair[0], data, max)
                    by_measure = {
                        one: said if one in below else "contradicted" for one, said in by_measure.items()
                    }
                verdict, remark = together(list(by_measure.values())), _remark(pair, data)
                outcome = Outcome(outcome.claim, outcome.differences, (), verdict, by_measure, remark)
            found.append(outcome)
    return found


def _first_look(claim: Claim, arms: Mapping[str, Studied], data: str) -> tuple[Outcome, Pair | None]:
    """Return a claim with the gates that are shut, and the arms that it is about, if they have records."""
    if never := gates.never(claim, data):
        return Outcome(claim, {}, [never], "too small to say"), None
    if untried := [arm for arm in claim.arms if arm not in arms]:
        gate = Shut(f"fair trainings of {' and '.join(untried)}", "none yet")
        return Outcome(claim, {}, [gate], "not tried"), None
    first, second = arms[claim.system], arms.get(claim.against)
    if second is not None and claim.about == "epochs to pass":
        first, second = race(first, second)
    by_seed = {measure: differences(first, second, measure) for measure in claim.subject.measures_on(data)}
    shut = list(gates.shut(first, second, data, claim.about))
    return Outcome(claim, by_seed, shut, "too small to say"), (first, second)


def _by_measure(
    judged: Mapping[Claim, Pair], family: Sequence[Claim], data: str
) -> dict[Claim, dict[str, Verdict]]:
    """Judge each claim by each measure, with Holm's correction over all claims of the family that have it."""
    found: dict[Claim, dict[str, Verdict]] = {claim: {} for claim in judged}
    for measure in dict.fromkeys(measure for claim in judged for measure in claim.subject.measures_on(data)):
        alike = [claim for claim in family if measure in claim.subject.measures_on(data)]
        asked = [claim for claim in judged if claim in alike]
        left = corrected([_doubts(claim, *judged[claim], measure) for claim in asked], len(alike))
        for claim, remaining in zip(asked, left, strict=True):
            found[claim][measure] = judge(remaining, claim.kind)
    return found


def _doubts(claim: Claim, first: Studied, second: Studied | None, measure: str) -> Doubts:
    margin = claim.subject.margin
    if second is not None and not claim.subject.absolute:
        margin *= statistics.mean(second.results[measure][seed] for seed in first.seeds & second.seeds)
    return doubts(differences(first, second, measure), margin)


def _remark(pair: Pair, data: str) -> str:
    """Say which arm failed to beat the linear baseline; "": none."""
    weaker = gates.weaker([arm for arm in pair if arm is not None])
    if not any(gates.below_baseline(weaker, data)):
        return ""
    return "against a baseline that failed" if weaker is pair[1] else "but the system itself failed"


def differences(first: Studied, second: Studied | None, measure: str = "rsum") -> list[float]:
    """Return one arm minus the other, for each seed that both have, in order; None: the arm itself."""
    one = first.results.get(measure, {})
    other = dict.fromkeys(one, 0.0) if second is None else second.results.get(measure, {})
    return [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]
