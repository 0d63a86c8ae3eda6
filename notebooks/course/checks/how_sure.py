"""The exercises of notebook 04, *Learning to rank*, that are about how sure a result is."""

import statistics

import torch

from course.checks.comparing import holds, like, passed, same
from course.checks.kinds import break_it, code
from vsecore.experiments.statistics import SIGNIFICANCE, doubts, holm

CASES = ([3.0, 5.0, 4.0, 6.5, 2.0], [-1.0, 0.4, 0.2, -0.3, 0.1], [-8.0, -6.0, -9.5], [1.0, -2.0, 4.0, 0.5])
"""Differences of two systems by seed: surely above 0, surely near it, surely below, and unclear."""
ALL = [{"case": case} for case in range(4)]


def p_values(differences, margin):
    """How surprising the differences are if the true mean is 0, and if it is outside the margin."""
    found = doubts(differences, margin)
    return found.equal, found.beyond


def seeds(case=0, margin=2.0):
    return list(CASES[case]), margin


def first_by(root=0.5, tails=2):
    """Make two p-values of which the first may be wrong."""

    def found(differences, margin):
        from scipy.stats import t

        n = len(differences)
        away = abs(statistics.mean(differences)) / (statistics.stdev(differences) / n**root)
        return float(tails * t.sf(away, n - 1)), p_values(differences, margin)[1]

    return found


P_VALUES = {
    "Return two numbers: first the p-value for a true mean of 0, then that for one outside the margin.": same(
        by=len
    ),
    "The first is not right yet: how many errors of the mean is the mean away from 0, whatever its sign? "
    "Both tails count.": same(*ALL, by=0),
    "The second is not right yet: test the mean against minus the margin from above and against the margin "
    "from below, one tail each, and take the larger p-value.": same(*ALL, by=1),
    "It must hold for any margin.": same(*(case | {"margin": margin} for case in ALL for margin in (0.5, 9))),
    "That is the spread of single seeds. The mean of n seeds has an error of the spread divided by the root "
    "of n.": like(first_by(root=0), by=0),
    "That counts one tail: a difference in the other direction would have surprised as much.": like(
        first_by(tails=1), by=0
    ),
    "Right. One test asks whether there is a difference, the other whether it is too small to "
    "matter.": passed,
}


def family(p=(0.02, 0.021, 0.6, 0.004, 0.55), more=0):
    return list(p), len(p) + more


FAMILIES = [{}, {"p": [0.04, 0.01, 0.3]}, {"p": [0.02, 0.021, 0.5, 0.004]}, {"p": [0.6, 0.5, 0.7]}]

HOLM = {
    "With one question nothing changes. Return a list, also of one number.": same(p=[0.03]),
    "The smallest of two is doubled and the other stays, each in the place where it stood.": same(
        p=[0.3, 0.01]
    ),
    "None may be larger than 1, nor smaller than the one before it in order of size.": same(*FAMILIES),
    "`questions` may be larger than the number of p-values: the smallest is multiplied by it.": same(
        *FAMILIES, more=3
    ),
    "That multiplies all by the number of questions (Bonferroni). Holm's factors fall by one from each to "
    "the next.": lambda p, questions: [min(1.0, questions * one) for one in p],
    "The numbers are right, but sorted: give each back in its own place.": lambda *given: sorted(
        holm(*given)
    ),
    "Right. With it, all answers of an experiment together err as rarely as one.": passed,
}

STUDIES, RATES, SEEDS = 100, 6, 5
WINS = 15  # of the studies; a choice made beforehand wins two or three


def study(number=0):
    """Results of two systems that are equally good, (rates, seeds) each."""
    generator = torch.Generator().manual_seed(number)
    ours, theirs = (
        400 + 2 * torch.randn(RATES, SEEDS, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    return ours, theirs


def chosen(answer, number):
    return [float(one) for one in answer(*study(number))]


def from_the_table(answer, number):
    """Whether each difference is one of the seed's, of some rate of ours and some rate of theirs."""
    ours, theirs = study(number)
    possible = ours[:, None] - theirs  # (rates, rates, seeds)
    made = torch.tensor(chosen(answer, number), dtype=torch.float64)
    return bool(((possible - made).abs() < 1e-6).any(0).any(0).all())


def best_and_worst(ours, theirs):
    return ours.max(0).values - theirs.min(0).values


def best_rate(results):
    return results[results.mean(1).argmax()]


def wins(answer):
    """How many studies of equal systems it turns into a win that looks sure."""
    left = [doubts(chosen(answer, number), 0.0) for number in range(STUDIES)]
    return sum(one.equal < SIGNIFICANCE and one.mean > 0 for one in left)


BREAK = {
    "Return one difference for each seed.": holds(
        lambda answer: len(chosen(answer, 0)) == SEEDS, wrong=[lambda ours, theirs: (ours[0] - theirs[0])[:3]]
    ),
    "Each difference must be one of ours minus one of theirs, from the same seed: choose, but invent "
    "nothing.": holds(
        lambda answer: all(from_the_table(answer, number) for number in range(5)),
        wrong=[lambda ours, theirs: ours[0] - theirs[0] + 10],
    ),
    "That wins hardly more often than an honest choice. Use what the results tell you.": holds(
        lambda answer: wins(answer) > 5, wrong=[lambda ours, theirs: ours[0] - theirs[0]]
    ),
    f"It wins more often than it should, but in fewer than {WINS} of {STUDIES} studies. What else can you "
    "choose: of theirs, or seed by seed?": holds(
        lambda answer: wins(answer) >= WINS, wrong=[lambda ours, theirs: best_rate(ours) - theirs[0]]
    ),
    "That gives both systems the same choice, which is nearly fair. Be less fair.": lambda ours, theirs: (
        best_rate(ours) - best_rate(theirs)
    ),
    "Right, and a warning: nothing in the published numbers would show it.": passed,
}

EXERCISES = {
    "04.p_values": code(
        "Two p-values", 12, P_VALUES, p_values, seeds, instead=("ttest_1samp", "ttest_rel"), tolerance=1e-6
    ),
    "04.holm": code("Holm's correction", 10, HOLM, holm, family, tolerance=1e-8),
    "04.win": break_it("A win out of nothing", 8, BREAK, reference=best_and_worst, inputs=study),
}
