"""Answers to the exercises of notebook 08, written differently from the references."""

import math

import numpy as np
import torch


def logarithmic_chance(top, among, drawn):
    def ways(n, k):
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    return -math.expm1(ways(among - top, drawn) - ways(among, drawn))


def where_own(scores, first, owner):
    own = owner[None] - first == torch.arange(scores.shape[0])[:, None]
    return torch.where(own, float("-inf"), scores)


def looped_merge(best, rows, scores, first):
    kept = []
    for caption, (old, named) in enumerate(zip(best.tolist(), rows.tolist(), strict=True)):
        column = [(score, first + row) for row, score in enumerate(scores[:, caption].tolist())]
        kept.append(sorted([*zip(old, named, strict=True), *column], reverse=True)[: len(old)])
    values = torch.tensor([[score for score, _ in row] for row in kept], dtype=best.dtype)
    return values, torch.tensor([[row for _, row in one] for one in kept])


def mined_in_numpy(images, captions, owner, texts=300, pictures=60, block=500):
    scores = where_own(images @ captions.T, 0, owner).numpy()
    return np.argsort(-scores, 1)[:, :texts], np.argsort(-scores.T, 1)[:, :pictures]


def set_break(texts, owner):
    for picture, row in enumerate(texts):
        own = set((owner == picture).nonzero().flatten().tolist())
        if own & set(row.tolist()):
            return True
    return False


RIGHT = {
    "08.chance": [logarithmic_chance],
    "08.own": [where_own],
    "08.merge": [looped_merge],
    "08.mine": [mined_in_numpy],
    "08.break": [set_break],
}
