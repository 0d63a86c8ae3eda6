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


def gathered_rounds(module, local, whole, mask):
    x = module.norm_local(local)
    slots = torch.stack([module.start] * len(x))
    for _ in range(module.iterations):
        A = looped_shares(module.key(x), module.query(module.norm_slots(slots)), mask)
        slots = slots + module.out(A @ module.value(x) / A.sum(2)[..., None])
        slots = module.mlp(module.norm_update(slots)) + slots
    return module.norm_global(whole).unsqueeze(1) + module.norm_last(slots)


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
    "14.loop": [gathered_rounds],
    "14.smooth": [looped_smooth],
    "14.gradient": [raised_gradient],
}
