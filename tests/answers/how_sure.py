"""Answers to the exercises of notebook 04 about how sure a result is, written unlike the references."""

import torch
from scipy.stats import t as student


def by_tensors(differences, margin):
    x = torch.tensor(differences, dtype=torch.float64)
    error = x.std() / len(x) ** 0.5
    scores = torch.stack([x.mean().abs(), margin - x.mean().abs()]) / error
    equal, far = (float(p) for p in student.sf(scores.numpy(), len(x) - 1))
    return [2 * equal, far]


def by_definition(p_values, questions):
    """For each: the largest of its own factor times it and of those before it."""
    return [
        min(1.0, max((questions - sum(r < q for r in p_values)) * q for q in p_values if q <= p))
        for p in p_values
    ]


def best_seeds_of_ours(ours, theirs):
    return [float(max(ours[:, seed]) - theirs[0, seed]) for seed in range(ours.shape[1])]


RIGHT = {
    "04.p_values": [by_tensors],
    "04.holm": [by_definition],
    "04.win": [best_seeds_of_ours],
}
