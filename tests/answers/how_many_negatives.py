"""Answers to the exercises of notebook 11, written differently from the references."""

import math

import numpy as np
import torch
from torch.nn.functional import cross_entropy


def by_cross_entropy(S, K, temperature=0.05):
    total = 0
    for scores in (S, S.T):
        order = (scores - 10 * torch.eye(len(S))).argsort(1, descending=True)[:, :K]
        logits = torch.cat([scores.diag()[:, None], scores.gather(1, order)], dim=1)
        total = total + cross_entropy(logits / temperature, torch.zeros(len(S), dtype=torch.long))
    return total


def looped_k(S):
    B = len(S)
    align = sum(S[i, i].item() for i in range(B)) / B
    uniform = sum(
        1.0 if i == j else math.exp(-x) for i, row in enumerate(S.tolist()) for j, x in enumerate(row)
    )
    gamma = align + uniform / B**2
    K = int(np.floor(B * np.cos(gamma**1.25))) + 1 if gamma > 0 else B + 1
    return sorted((1, K, B - 1))[1] if B > 2 else 1


RIGHT = {
    "11.loss": [by_cross_entropy],
    "11.rule": [looped_k],
}
