"""Answers to the exercises of notebook 17: right ones, and typical mistakes."""

import statistics

import numpy as np
import torch
from scipy import stats
from scipy.stats import t as student


def right_p_values(differences, margin):
    n = len(differences)
    mean, error = statistics.mean(differences), statistics.stdev(differences) / n**0.5
    equal = 2 * student.sf(abs(mean) / error, n - 1)
    far = max(student.sf((margin + side * mean) / error, n - 1) for side in (1, -1))
    return equal, far


def by_numpy(differences, margin):
    x = np.asarray(differences)
    error = x.std(ddof=1) / np.sqrt(len(x))
    tail = stats.t(len(x) - 1)
    low, high = tail.sf((x.mean() + margin) / error), tail.cdf((x.mean() - margin) / error)
    return 2 * tail.cdf(-abs(x.mean() / error)), np.maximum(low, high)


def by_tensors(differences, margin):
    x = torch.tensor(differences, dtype=torch.float64)
    error = x.std() / len(x) ** 0.5
    scores = torch.stack([x.mean().abs(), margin - x.mean().abs()]) / error
    equal, far = (float(p) for p in student.sf(scores.numpy(), len(x) - 1))
    return [2 * equal, far]


def by_spread(differences, margin):
    n, mean, spread = len(differences), statistics.mean(differences), statistics.stdev(differences)
    far = max(student.sf((margin + side * mean) / spread, n - 1) for side in (1, -1))
    return 2 * student.sf(abs(mean) / spread, n - 1), far


def with_all(differences, margin):
    n = len(differences)
    mean, error = statistics.mean(differences), statistics.stdev(differences) / n**0.5
    return 2 * student.sf(abs(mean) / error, n), student.sf((margin - abs(mean)) / error, n)


def one_tail(differences, margin):
    equal, far = right_p_values(differences, margin)
    return equal / 2, far


def signed(differences, margin):
    n = len(differences)
    mean, error = statistics.mean(differences), statistics.stdev(differences) / n**0.5
    return 2 * student.sf(mean / error, n - 1), right_p_values(differences, margin)[1]


def smaller_of_two(differences, margin):
    n = len(differences)
    mean, error = statistics.mean(differences), statistics.stdev(differences) / n**0.5
    far = min(student.sf((margin + side * mean) / error, n - 1) for side in (1, -1))
    return right_p_values(differences, margin)[0], far


def right_holm(p_values, questions):
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    raised, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (questions - rank) * p_values[place]))
        raised[place] = largest
    return raised


def by_maximum(p_values, questions):
    p = np.asarray(p_values)
    order = p.argsort(kind="stable")
    raised = np.maximum.accumulate(p[order] * (questions - np.arange(len(p)))).clip(max=1)
    return raised[order.argsort()].tolist()


def by_definition(p_values, questions):
    """For each: the largest of its own factor times it and of those before it."""
    return [
        min(1.0, max((questions - sum(r < q for r in p_values)) * q for q in p_values if q <= p))
        for p in p_values
    ]


def bonferroni(p_values, questions):
    return [min(1.0, questions * p) for p in p_values]


def sorted_holm(p_values, questions):
    return sorted(right_holm(p_values, questions))


def without_maximum(p_values, questions):
    ranks = {p: rank for rank, p in enumerate(sorted(p_values))}
    return [min(1.0, (questions - ranks[p]) * p) for p in p_values]


def not_capped(p_values, questions):
    order, largest, raised = sorted(p_values), 0.0, {}
    for rank, p in enumerate(order):
        largest = max(largest, (questions - rank) * p)
        raised[p] = largest
    return [raised[p] for p in p_values]


def of_its_own_length(p_values, questions):
    return right_holm(p_values, len(p_values))


def best_and_worst_seeds(ours, theirs):
    return ours.max(0).values - theirs.min(0).values


def best_and_worst_rates(ours, theirs):
    return ours[ours.mean(1).argmax()] - theirs[theirs.mean(1).argmin()]


def best_seeds_of_ours(ours, theirs):
    return [float(max(ours[:, seed]) - theirs[0, seed]) for seed in range(ours.shape[1])]


def honest(ours, theirs):
    return ours[0] - theirs[0]


def best_of_both(ours, theirs):
    return ours[ours.mean(1).argmax()] - theirs[theirs.mean(1).argmax()]


def best_of_ours(ours, theirs):
    return ours[ours.mean(1).argmax()] - theirs[0]


def right_combination(recipe):
    changes = {"image.pool": "adpool", "text.pool": "adpool", "losses": ["adopt"]}
    return recipe.override(changes | {"image.reasoner": "transformer"})


def step_by_step(recipe):
    for tower in ("image", "text"):
        recipe = recipe.override({f"{tower}.pool": {"name": "adpool"}})
    return recipe.override({"losses.triplet": "adopt"}).override({"image.reasoner": "transformer"})


def by_content(recipe):
    content = recipe.to_dict()
    for tower in ("image", "text"):
        content[tower]["pool"] = {"name": "adpool"}
    content["image"]["reasoner"] = {"name": "transformer"}
    return recipe.from_dict(content | {"losses": [{"name": "adopt"}]})


def with_triplet(recipe):
    return right_combination(recipe).override({"losses": ["triplet", "adopt"]})


def one_pool(recipe):
    return right_combination(recipe).override({"text.pool": "mean"})


RIGHT = {
    "17.p_values": [right_p_values, by_numpy, by_tensors],
    "17.holm": [right_holm, by_maximum, by_definition],
    "17.chance": [1 - 0.95**20, torch.tensor(0.6415), 0.64],
    "17.break": [best_and_worst_seeds, best_and_worst_rates, best_seeds_of_ours],
    "17.combine": [right_combination, step_by_step, by_content],
    "17.predict": ["more", "As much", "less"],
    "17.cost": [(6, 48), [6.0, 48.0], (torch.tensor(6), 48)],
    "17.explore": [
        ("GPO should do as well as AdPool", "the sum is nearly the same"),
        ("without a bound it learns slower", "it did not, 460 against 455"),
        ("k-max is not worse than AdPool", "it is a little better, from one seed"),
    ],
}
WRONG = {
    "17.p_values": [by_spread, with_all, one_tail, signed, smaller_of_two, lambda *_: 0.5],
    "17.holm": [bonferroni, sorted_holm, without_maximum, not_capped, of_its_own_length, lambda *_: [0.5]],
    "17.chance": [1.0, 0.95**20, 64.15, 0.05, 2],
    "17.break": [
        honest,
        best_of_both,
        best_of_ours,
        lambda ours, theirs: ours[0] - theirs[0] + 10,
        lambda ours, theirs: ours.max() - theirs.min(),
        lambda ours, theirs: (ours[0] - theirs[0])[:3],
    ],
    "17.combine": [
        with_triplet,
        one_pool,
        lambda recipe: recipe,
        lambda recipe: right_combination(recipe).override({"text.reasoner": "transformer"}),
        lambda recipe: right_combination(recipe).override({"training.epochs": 1}),
        lambda recipe: recipe.override({"image.pool": "adpol"}),
    ],
    "17.predict": ["the sum", 3, ""],
    "17.cost": [(4, 40), (10, 70), (6, 42), 6, (5, 48)],
    "17.explore": [
        "GPO should do as well",
        ("more", "rsum 455 against 450"),
        ("GPO should do as well", "yes"),
        5,
    ],
}
