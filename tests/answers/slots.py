"""Answers to the exercises of notebook 14, written differently from the references."""

import torch


def looped_shares(keys, queries, mask):
    shared = []
    for key, query, real in zip(keys, queries, mask, strict=True):
        M = key @ query.T / key.shape[1] ** 0.5
        A = torch.zeros_like(M)
        A[real] = M[real].softmax(1)
        shared.append(A.T)
    return torch.stack(shared)


def divided_later(slots, values, A, W_o):
    return slots + (A @ (values @ W_o)) / A.sum(-1)[..., None]


def looped_overlap(weights):
    K = weights.shape[1]
    pairs = [(i, j) for i in range(K) for j in range(i)]
    return sum(torch.minimum(weights[:, i], weights[:, j]).sum(1) for i, j in pairs) / len(pairs)


def looped_smooth(v, t, alpha=16.0):
    rows = []
    for one in v:
        row = []
        for other in t:
            c = alpha * one @ other.T
            sides = c.logsumexp(1).sum() / len(one) + c.logsumexp(0).sum() / len(other)
            row.append(sides / (2 * alpha))
        rows.append(torch.stack(row))
    return torch.stack(rows)


def raised_gradient(c, alpha=16.0):
    e = torch.exp(alpha * (c - c.max()))
    return e / e.sum(1, keepdim=True) / (2 * len(c)) + e / e.sum(0) / (2 * c.shape[1])


RIGHT = {
    "14.shares": [looped_shares],
    "14.receive": [divided_later],
    "14.overlap": [looped_overlap],
    "14.smooth": [looped_smooth],
    "14.gradient": [raised_gradient],
}
