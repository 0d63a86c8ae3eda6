"""The exercises of notebook 17, *All together*."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, one_of
from vsecore.experiments.statistics import SIGNIFICANCE, doubts, holm

# ---------------------------------------------------------------- two p-values

_CASES = ([3.0, 5.0, 4.0, 6.5, 2.0], [-1.0, 0.4, 0.2, -0.3, 0.1], [-8.0, -6.0, -9.5], [1.0, -2.0, 4.0, 0.5])
"""Differences of two systems by seed: surely above 0, surely near it, surely below, and unclear."""


def _p_values(differences: Sequence[float], margin: float) -> tuple[float, float]:
    """How surprising the differences are if the true mean is 0, and if it is outside the margin."""
    found = doubts(differences, margin)
    return found.equal, found.far


def _both(answer: Callable[..., Any], differences: Sequence[float], margin: float) -> tuple[float, float]:
    equal, far = answer(list(differences), margin)
    return float(equal), float(far)


def _agrees(answer: Callable[..., Any], which: int, margin: float, cases: Sequence[Any] = _CASES) -> bool:
    return all(
        near(_both(answer, case, margin)[which], _p_values(case, margin)[which], 1e-6) for case in cases
    )


def _is(answer: Callable[..., Any], which: int, wrong: Callable[[Sequence[float], float], float]) -> bool:
    """Whether one of its numbers is what a known mistake gives."""
    return all(near(_both(answer, case, 2.0)[which], wrong(case, 2.0), 1e-6) for case in _CASES)


def _by_spread(differences: Sequence[float], margin: float) -> float:
    """The p-value with the spread of single seeds in place of the error of their mean."""
    from scipy.stats import t

    mean, spread = statistics.mean(differences), statistics.stdev(differences)
    return float(2 * t.sf(abs(mean) / spread, len(differences) - 1))


def _with_all(differences: Sequence[float], margin: float) -> float:
    """The p-value with as many degrees of freedom as seeds."""
    from scipy.stats import t

    mean, spread = statistics.mean(differences), statistics.stdev(differences)
    return float(2 * t.sf(abs(mean) / (spread / len(differences) ** 0.5), len(differences)))


def _nearer_side(differences: Sequence[float], margin: float) -> float:
    found = doubts(differences, margin)
    sides = (found.worse, doubts([-one for one in differences], margin).worse)
    return min(sides)


# ---------------------------------------------------------------- Holm's correction

_FAMILIES = ([0.03], [0.04, 0.01, 0.3], [0.02, 0.021, 0.5, 0.004], [0.6, 0.5, 0.7])


def _corrected(answer: Callable[..., Any], families: Sequence[Sequence[float]], more: int = 0) -> bool:
    return all(
        [round(float(p), 9) for p in answer(list(family), len(family) + more)]
        == [round(p, 9) for p in holm(family, len(family) + more)]
        for family in families
    )


def _gives(answer: Callable[..., Any], wrong: Callable[[Sequence[float]], list[float]]) -> bool:
    return all(
        torch.allclose(
            torch.tensor([float(p) for p in answer(list(family), len(family))]), torch.tensor(wrong(family))
        )
        for family in _FAMILIES[1:]
    )


def _bonferroni(family: Sequence[float]) -> list[float]:
    return [min(1.0, len(family) * p) for p in family]


def _without_maximum(family: Sequence[float]) -> list[float]:
    order = sorted(family)
    return [min(1.0, (len(family) - order.index(p)) * p) for p in family]


def _not_capped(family: Sequence[float]) -> list[float]:
    largest, raised = 0.0, {}
    for rank, p in enumerate(sorted(family)):
        largest = max(largest, (len(family) - rank) * p)
        raised[p] = largest
    return [raised[p] for p in family]


# ---------------------------------------------------------------- wins out of nothing

_STUDIES = 100
_RATES, _SEEDS = 6, 5
_WINS = 15  # of the studies; a choice made beforehand wins two or three


def _study(number: int) -> tuple[Tensor, Tensor]:
    """Results of two systems that are equally good, (rates, seeds) each."""
    generator = torch.Generator().manual_seed(number)
    return tuple(
        400 + 2 * torch.randn(_RATES, _SEEDS, generator=generator, dtype=torch.float64) for _ in range(2)
    )  # type: ignore[return-value]


def _chosen(answer: Callable[..., Any], number: int) -> list[float]:
    ours, theirs = _study(number)
    return [float(one) for one in answer(ours.clone(), theirs.clone())]


def _from_the_table(answer: Callable[..., Any]) -> bool:
    """Whether each difference is one of the seed's, of some rate of ours and some rate of theirs."""
    for number in range(5):
        ours, theirs = _study(number)
        possible = ours[:, None] - theirs  # (rates, rates, seeds)
        chosen = torch.tensor(_chosen(answer, number), dtype=torch.float64)
        if not bool(((possible - chosen).abs() < 1e-6).any(0).any(0).all()):
            return False
    return True


def _best_and_worst(ours: Tensor, theirs: Tensor) -> Tensor:
    return ours.max(0).values - theirs.min(0).values


def _wins(answer: Callable[..., Any]) -> int:
    """How many studies of equal systems it turns into a win that looks sure."""
    found = 0
    for number in range(_STUDIES):
        left = doubts(_chosen(answer, number), 0.0)
        found += left.equal < SIGNIFICANCE and left.mean > 0
    return found


# ---------------------------------------------------------------- ideas combined


def _parts_of(combine: Callable[..., Any]) -> Any:
    """What a learner makes of VSE++: reasoners, pools, losses, and whether all else stayed."""
    import operator

    from vsecore.recipes import Recipe, get

    plain = get("vsepp_grid_gru")
    made = combine(plain)
    if not isinstance(made, Recipe):
        return made
    parts = [
        ["" if part is None else part.name for part in both]
        for both in ((made.image.reasoner, made.text.reasoner), (made.image.pool, made.text.pool))
    ]
    rest = operator.attrgetter("image.encoder", "text.encoder", "similarity", "training", "dim", "shared")
    return [*parts, [part.name for part in made.losses], rest(made) == rest(plain)]


def _combine(recipe: Any) -> Any:
    """VSE++ with a Transformer over its regions, AdPool and AdOpt."""
    pools = {"image.pool": "adpool", "text.pool": "adpool"}
    return recipe.override(pools | {"image.reasoner": "transformer", "losses": "adopt"})


EXERCISES: dict[str, Exercise] = {
    "17.p_values": Exercise(
        "Two p-values",
        "code",
        12,
        (
            Trial(
                lambda answer: len(_both(answer, _CASES[0], 2.0)) == 2,
                "Return two numbers: first the p-value for a true mean of 0, then that for one outside the "
                "margin.",
            ),
            Trial(
                lambda answer: _agrees(answer, 0, 2.0),
                "The first is not right yet: how many errors of the mean is the mean away from 0, whatever "
                "its sign? Both tails count.",
            ),
            Trial(
                lambda answer: _agrees(answer, 1, 2.0),
                "The second is not right yet: test the mean against minus the margin from above and against "
                "the margin from below, one tail each, and take the larger p-value.",
            ),
            Trial(
                lambda answer: all(_agrees(answer, which, margin) for which in (0, 1) for margin in (0.5, 9)),
                "It must hold for any margin.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _is(answer, 0, _by_spread),
                "That is the spread of single seeds. The mean of n seeds has an error of the spread divided "
                "by the root of n.",
            ),
            Trial(
                lambda answer: _is(answer, 0, _with_all),
                "The spread was measured on the same n values, so n - 1 degrees of freedom are left.",
            ),
            Trial(
                lambda answer: _is(answer, 0, lambda case, margin: _p_values(case, margin)[0] / 2),
                "That counts one tail: a difference in the other direction would have surprised as much.",
            ),
            Trial(
                lambda answer: _agrees(answer, 0, 2.0) and _is(answer, 1, _nearer_side),
                "That is the smaller of the two. A tie must be sure on both sides, so the larger counts.",
            ),
        ),
        reference=_p_values,
        instead=("ttest_1samp", "ttest_rel"),
        message="Right. One test asks whether there is a difference, the other whether it is too small to "
        "matter.",
    ),
    "17.chance": Exercise(
        "Twenty questions",
        "compute",
        4,
        (
            Trial(
                lambda answer: 0 < float(answer) < 1,
                "A chance is between 0 and 1.",
            ),
            Trial(
                lambda answer: near(answer, 1 - 0.95**20, 5e-3),
                "First the chance that a single question raises no false alarm; then that none of twenty "
                "does.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 1.0, 1e-6),
                "Twenty times a twentieth counts the alarms to expect, not the chance of at least one.",
            ),
            Trial(
                lambda answer: near(answer, 0.95**20, 5e-3),
                "That is the chance that none of them raises a false alarm.",
            ),
            Trial(
                lambda answer: near(answer, 100 * (1 - 0.95**20), 0.5),
                "That is right in percent: answer with a share.",
            ),
        ),
        difficulty="easy",
    ),
    "17.holm": Exercise(
        "Holm's correction",
        "code",
        10,
        (
            Trial(
                lambda answer: _corrected(answer, _FAMILIES[:1]),
                "With one question nothing changes. Return a list, also of one number.",
            ),
            Trial(
                lambda answer: _corrected(answer, [[0.3, 0.01]]),
                "The smallest of two is doubled and the other stays, each in the place where it stood.",
            ),
            Trial(
                lambda answer: _corrected(answer, _FAMILIES),
                "None may be larger than 1, nor smaller than the one before it in order of size.",
            ),
            Trial(
                lambda answer: _corrected(answer, _FAMILIES, more=3),
                "`questions` may be larger than the number of p-values: the smallest is multiplied by it.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _gives(answer, _bonferroni),
                "That multiplies all by the number of questions (Bonferroni). Holm's factors fall by one "
                "from each to the next.",
            ),
            Trial(
                lambda answer: _gives(answer, lambda family: sorted(holm(family))),
                "The numbers are right, but sorted: give each back in its own place.",
            ),
            Trial(
                lambda answer: _gives(answer, _without_maximum),
                "A larger p-value came out smaller than the one before it: keep the largest so far.",
            ),
            Trial(
                lambda answer: _gives(answer, _not_capped),
                "A probability is at most 1.",
            ),
        ),
        reference=holm,
        message="Right. With it, all answers of an experiment together err as rarely as one.",
    ),
    "17.break": Exercise(
        "A win out of nothing",
        "break",
        8,
        (
            Trial(
                lambda answer: len(_chosen(answer, 0)) == _SEEDS,
                "Return one difference for each seed.",
            ),
            Trial(
                _from_the_table,
                "Each difference must be one of ours minus one of theirs, from the same seed: choose, but "
                "invent nothing.",
            ),
            Trial(
                lambda answer: _wins(answer) > 5,
                "That wins hardly more often than an honest choice. Use what the results tell you.",
            ),
            Trial(
                lambda answer: _wins(answer) >= _WINS,
                f"It wins more often than it should, but in fewer than {_WINS} of {_STUDIES} studies. What "
                "else can you choose: of theirs, or seed by seed?",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: all(
                    torch.allclose(
                        torch.tensor(_chosen(answer, number), dtype=torch.float64),
                        ours[ours.mean(1).argmax()] - theirs[theirs.mean(1).argmax()],
                    )
                    for number in range(5)
                    for ours, theirs in [_study(number)]
                ),
                "That gives both systems the same choice, which is nearly fair. Be less fair.",
            ),
        ),
        reference=_best_and_worst,
        message="Right, and a warning: nothing in the published numbers would show it.",
    ),
    "17.combine": Exercise(
        "Three ideas in one recipe",
        "code",
        8,
        (
            Trial(
                lambda answer: len(answer()) == 4,
                "Return the recipe that `recipe.override` makes of the changes.",
            ),
            Trial(
                lambda answer: answer()[0] == ["transformer", ""],
                "The Transformer reasons in the pictures' tower alone: the field is `image.reasoner`.",
            ),
            Trial(
                lambda answer: answer()[1] == ["adpool", "adpool"],
                "AdPool belongs into both towers: the fields are `image.pool` and `text.pool`.",
            ),
            Trial(
                lambda answer: answer()[2] == ["adopt"],
                "`losses` should be AdOpt alone, in place of the triplet loss.",
            ),
            Trial(
                lambda answer: answer()[3],
                "The encoders, the similarity and the training stay as they are.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: "triplet" in answer()[2] and len(answer()[2]) > 1,
                "The triplet loss is still among the losses: AdOpt takes its place.",
            ),
            Trial(
                lambda answer: answer()[1] in (["adpool", "mean"], ["mean", "adpool"]),
                "Only one tower has AdPool.",
            ),
        ),
        reference=_combine,
        caller=_parts_of,
        message="Right. A system is a row of choices, and so is this one.",
    ),
    "17.predict": Exercise(
        "Do gains add up?",
        "predict",
        2,
        one_of("more", "as much", "less"),
        difficulty="easy",
        message=NOTED,
    ),
    "17.cost": Exercise(
        "What opens a gate",
        "compute",
        5,
        (
            Trial(
                lambda answer: len(answer) == 2,
                "Two numbers are wanted: trainings, and minutes.",
            ),
            Trial(
                lambda answer: float(answer[0]) == 6,
                "How many seeds does each system lack? The seeds of one must be those of the other.",
            ),
            Trial(
                lambda answer: near(answer[1], 48, 0.5),
                "The trainings are right. Each system's own take as long as its others did.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: tuple(map(float, answer)) == (4.0, 40.0),
                "That is for B alone. A has three of five seeds.",
            ),
            Trial(
                lambda answer: float(answer[0]) == 10,
                "Five seeds of each are ten trainings, but four are recorded already.",
            ),
        ),
        difficulty="easy",
    ),
    "17.explore": Exercise("Your own combination", "explore", 15, EXPLORED, message="Noted."),
}
