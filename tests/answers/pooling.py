"""Answers to the exercises of notebook 10: right ones, and typical mistakes."""

import math

import numpy as np
import torch


def right_kmax(x, mask, k):
    top = x.masked_fill(~mask[:, :, None], -torch.inf).topk(min(k, x.shape[1]), dim=1).values
    there = top > -torch.inf
    return top.masked_fill(~there, 0).sum(1) / there.sum(1)


def looped_kmax(x, mask, k):
    pooled = []
    for row, real in zip(x, mask, strict=True):
        found = row[real].sort(dim=0, descending=True).values[:k]
        pooled.append(found.mean(0))
    return torch.stack(pooled)


def weighed_kmax(x, mask, k):
    low = torch.finfo(x.dtype).min
    u = torch.where(mask[:, :, None], x, low).sort(dim=1, descending=True).values
    place = torch.arange(x.shape[1])
    taken = (place < k) & (place < mask.sum(1, keepdim=True))
    theta = taken.float() / taken.sum(1, keepdim=True)
    return (theta[:, :, None] * torch.where(taken[:, :, None], u, 0)).sum(1)


def zero_padded(x, mask, k):
    return (x * mask[:, :, None]).topk(min(k, x.shape[1]), dim=1).values.mean(1)


def refuses_small(x, mask, k):
    return x.masked_fill(~mask[:, :, None], -torch.inf).topk(k, dim=1).values.mean(1)


def divides_by_k(x, mask, k):
    top = x.masked_fill(~mask[:, :, None], -torch.inf).topk(min(k, x.shape[1]), dim=1).values
    return top.where(top > -torch.inf, 0).sum(1) / top.shape[1]


def counts_from_the_left(x, mask, k):
    pooled = []
    for row, count in zip(x, mask.sum(1).tolist(), strict=True):
        pooled.append(row[:count].sort(dim=0, descending=True).values[:k].mean(0))
    return torch.stack(pooled)


def multiplies(x, mask, k):
    hidden = x * mask[:, :, None] - 1e4 * ~mask[:, :, None]
    top = hidden.topk(min(k, x.shape[1]), dim=1).values
    there = top > -1e3
    return top.where(there, 0).sum(1) / there.sum(1)


RIGHT = {
    "10.weights": [
        torch.tensor([[10.0, 0.0], [0.0, 20.0]]),
        [[5, 5], [0, 10]],
        np.array([[100.0, 0.0], [0.0, 7.0]]),
    ],
    "10.kmax": [right_kmax, looped_kmax, weighed_kmax],
    "10.break": [10 / 12, torch.tensor(5 / 6), (4 * 2 + 2 * 1) / (4 + 2 + 6 * math.exp(0))],
}
WRONG = {
    "10.weights": [
        [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]],
        [[0.0, 0.0], [0.0, 0.0]],
        [[1.0, 0.0], [0.0, 1.0]],
        [[0.0, 10.0], [0.0, 20.0]],
        [[10.0, 0.0], [20.0, 0.0]],
        [[10.0, 0.0], [0.0, -20.0]],
        [10.0, 0.0],
    ],
    "10.kmax": [
        lambda x, mask, k: right_kmax(x, mask, k).mean(),
        lambda x, mask, k: x.mean(1),
        zero_padded,
        refuses_small,
        divides_by_k,
        counts_from_the_left,
        multiplies,
        lambda x, mask, k: right_kmax(x.detach(), mask, k),
    ],
    "10.break": [10 / 6, 10 / 14, 3 / 8, 1.5, 4],
}
