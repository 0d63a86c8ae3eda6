"""Answers to the exercises of notebook 05, written differently from the references."""

import torch
from torch.nn import functional as F


def norm(x):
    return F.layer_norm(x, x.shape[-1:])


def network(x, widen, narrow):
    return (x @ widen.T).relu() @ narrow.T


def attended(x, mask, ask, heads):
    q, k, u = (x @ ask.T).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    fit = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask[:, None, None], -torch.inf)
    return (fit.softmax(-1) @ u).transpose(1, 2).flatten(2)


def by_parts(x, mask, ask, join, widen, narrow, heads):
    z = x + attended(norm(x), mask, ask, heads) @ join.T
    return z + network(norm(z), widen, narrow)


def by_row(x, mask, ask, join, widen, narrow, heads):
    out = torch.zeros_like(x)
    for row, real in enumerate(mask):
        own = x[row : row + 1, real]
        out[row, real] = by_parts(own, real[None, real], ask, join, widen, narrow, heads)[0]
    return out


def by_filling(tokens, mask, shift):
    moved, real = torch.zeros_like(tokens), torch.zeros_like(mask)
    for row, (far, count) in enumerate(zip(shift.tolist(), mask.sum(1).tolist(), strict=True)):
        moved[row, far : far + count] = tokens[row, :count]
        real[row, far : far + count] = True
    return moved, real


RIGHT = {
    "05.block": [by_row],
    "05.padding": [by_filling],
}
