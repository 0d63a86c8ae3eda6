"""Answers to the exercises of notebook 14, written differently from the references."""

from itertools import product

import torch


def looped_shares(keys, queries, mask):
    shared = []
    for key, query, real in zip(keys, queries, mask, strict=True):
        M = key @ query.T / key.shape[1] ** 0.5
        A = torch.zeros_like(M)
        A[real] = M[real].softmax(1)
        shared.append(A.T)
    return torch.stack(shared)


def einsum_shares(keys, queries, mask):
    raised = torch.einsum("bnd,bkd->bkn", keys, queries).div(keys.shape[2] ** 0.5).exp()
    return torch.where(mask[:, None], raised / raised.sum(1, keepdim=True), 0.0)


def divided_later(slots, values, A, W_o):
    return slots + (A @ (values @ W_o)) / A.sum(-1)[..., None]


def einsum_receive(slots, values, A, W_o):
    return slots + torch.einsum("bkn,bne,ed->bkd", A / A.sum(2)[:, :, None], values, W_o)


def looped_overlap(weights):
    K = weights.shape[1]
    pairs = [(i, j) for i in range(K) for j in range(i)]
    return sum(torch.minimum(weights[:, i], weights[:, j]).sum(1) for i, j in pairs) / len(pairs)


def all_but_itself(weights):
    K = weights.shape[1]
    both = torch.minimum(weights[:, None], weights[:, :, None]).sum(3)
    return (both.sum((1, 2)) - weights.sum((1, 2))) / (K * (K - 1))


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


def lifted_smooth(v, t, alpha=16.0):
    c = alpha * (v[:, None] @ t[None].mT)
    top = c.amax((2, 3), keepdim=True)
    raised = (c - top).double().exp()
    sides = raised.sum(3).log().mean(2) + raised.sum(2).log().mean(2)
    return ((sides + 2 * top[..., 0, 0]) / (2 * alpha)).to(v.dtype)


def raised_gradient(c, alpha=16.0):
    e = torch.exp(alpha * (c - c.max()))
    return e / e.sum(1, keepdim=True) / (2 * len(c)) + e / e.sum(0) / (2 * c.shape[1])


def looped_gradient(c, alpha=16.0):
    g = torch.empty_like(c)
    for i, j in product(range(len(c)), range(c.shape[1])):
        row, column = (alpha * c[i]).logsumexp(0), (alpha * c[:, j]).logsumexp(0)
        g[i, j] = ((alpha * c[i, j] - row).exp() / len(c) + (alpha * c[i, j] - column).exp() / c.shape[1]) / 2
    return g


RIGHT = {
    "14.shares": [looped_shares, einsum_shares],
    "14.receive": [divided_later, einsum_receive],
    "14.overlap": [looped_overlap, all_but_itself],
    "14.smooth": [looped_smooth, lifted_smooth],
    "14.gradient": [raised_gradient, looped_gradient],
}
