"""Answers to the exercises of notebook 00, written differently from the references."""

import torch

FOUR = "One says four words"


def by_topk(v, query, k):
    directions = v / v.norm(dim=1, keepdim=True)
    return (directions @ query).topk(k).indices.tolist()


def by_sorting(v, query, k):
    similarity = (v @ query) / (v.norm(dim=1) * query.norm())
    return similarity.argsort(descending=True)[:k]


def by_list(v, query, k):
    unit = [row / row.norm() for row in v]
    return sorted(range(len(v)), key=lambda row: -float(unit[row] @ query))[:k]


RIGHT = {
    "00.rank": [3, 3.0, torch.tensor(3)],
    "00.search": [by_topk, by_sorting, by_list],
    "00.break": [0.1, 100 / 1000, torch.tensor(0.1)],
    "00.predict": ["own", "true", "the same"],
    "00.explore": [
        (FOUR, f"{FOUR} again"),
        [FOUR, f"{FOUR} and more"],
        ("I expect no change", "And none was seen"),
    ],
}
