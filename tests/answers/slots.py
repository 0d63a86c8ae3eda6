"""Answers to the exercises of notebook 14: right ones, and typical mistakes."""

import math
from itertools import product

import torch
from torch.nn.functional import normalize


def right_shares(keys, queries, mask):
    M = queries @ keys.mT / math.sqrt(keys.shape[-1])
    return M.softmax(1).masked_fill(~mask[:, None], 0)


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


def over_elements(keys, queries, mask):
    M = queries @ keys.mT / math.sqrt(keys.shape[-1])
    return M.masked_fill(~mask[:, None], -torch.inf).softmax(2)


def masked_before(keys, queries, mask):
    M = queries @ keys.mT / math.sqrt(keys.shape[-1])
    return M.masked_fill(~mask[:, None], -torch.inf).softmax(1)


def masked_by_large(keys, queries, mask):
    M = queries @ keys.mT / math.sqrt(keys.shape[-1])
    return M.masked_fill(~mask[:, None], -1e9).softmax(1)


def without_mask(keys, queries, mask):
    return (queries @ keys.mT / math.sqrt(keys.shape[-1])).softmax(1)


def multiplied(keys, queries, mask):
    return without_mask(keys, queries, mask) * mask[:, None]


def real_cleared(keys, queries, mask):
    return without_mask(keys, queries, mask).masked_fill(mask[:, None], 0)


def too_sharp(keys, queries, mask):
    return (queries @ keys.mT).softmax(1).masked_fill(~mask[:, None], 0)


def right_receive(slots, values, A, W_o):
    weights = A / A.sum(2, keepdim=True)
    return slots + weights @ values @ W_o


def divided_later(slots, values, A, W_o):
    return slots + (A @ (values @ W_o)) / A.sum(-1)[..., None]


def einsum_receive(slots, values, A, W_o):
    return slots + torch.einsum("bkn,bne,ed->bkd", A / A.sum(2)[:, :, None], values, W_o)


def not_normalised(slots, values, A, W_o):
    return slots + A @ values @ W_o


def no_residual(slots, values, A, W_o):
    return A / A.sum(2, keepdim=True) @ values @ W_o


def softmax_again(slots, values, A, W_o):
    return slots + A.softmax(2) @ values @ W_o


def over_slots_again(slots, values, A, W_o):
    return slots + A / A.sum(1, keepdim=True).clamp(min=1e-6) @ values @ W_o


def divided_over_slots(slots, values, A, W_o):
    return slots + A / A.sum(1, keepdim=True) @ values @ W_o


def right_overlap(weights):
    first, second = torch.triu_indices(weights.shape[1], weights.shape[1], 1)
    return torch.minimum(weights[:, first], weights[:, second]).sum(2).mean(1)


def looped_overlap(weights):
    K = weights.shape[1]
    pairs = [(i, j) for i in range(K) for j in range(i)]
    return sum(torch.minimum(weights[:, i], weights[:, j]).sum(1) for i, j in pairs) / len(pairs)


def all_but_itself(weights):
    K = weights.shape[1]
    both = torch.minimum(weights[:, None], weights[:, :, None]).sum(3)
    return (both.sum((1, 2)) - weights.sum((1, 2))) / (K * (K - 1))


def with_itself(weights):
    return torch.minimum(weights[:, None], weights[:, :, None]).sum(3).mean((1, 2))


def products(weights):
    first, second = torch.triu_indices(weights.shape[1], weights.shape[1], 1)
    return (weights[:, first] * weights[:, second]).sum(2).mean(1)


def right_smooth(v, t, alpha=16.0):
    c = alpha * torch.einsum("bkd,cld->bckl", normalize(v, dim=-1), normalize(t, dim=-1))
    return (c.logsumexp(3).mean(2) + c.logsumexp(2).mean(2)) / (2 * alpha)


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


def one_sided(v, t, alpha=16.0):
    c = alpha * torch.einsum("bkd,cld->bckl", v, t)
    return c.logsumexp(3).mean(2) / alpha


def twice(v, t, alpha=16.0):
    return 2 * right_smooth(v, t, alpha)


def summed(v, t, alpha=16.0):
    c = alpha * torch.einsum("bkd,cld->bckl", v, t)
    return (c.logsumexp(3).sum(2) + c.logsumexp(2).sum(2)) / (2 * alpha)


def not_divided(v, t, alpha=16.0):
    return alpha * right_smooth(v, t, alpha)


def overflows(v, t, alpha=16.0):
    c = (alpha * torch.einsum("bkd,cld->bckl", v, t)).exp()
    return (c.sum(3).log().mean(2) + c.sum(2).log().mean(2)) / (2 * alpha)


def hard_chamfer(v, t, alpha=16.0):
    c = torch.einsum("bkd,cld->bckl", v, t)
    return (c.amax(3).mean(2) + c.amax(2).mean(2)) / 2


def mean_inside(v, t, alpha=16.0):
    c = (alpha * torch.einsum("bkd,cld->bckl", v, t)).exp()
    return (c.mean(3).log().mean(2) + c.mean(2).log().mean(2)) / (2 * alpha)


def one_log(v, t, alpha=16.0):
    return (alpha * torch.einsum("bkd,cld->bckl", v, t)).logsumexp((2, 3)) / alpha


def no_alpha_inside(v, t, alpha=16.0):
    return right_smooth(v, t, 1.0) / alpha


def right_gradient(c, alpha=16.0):
    K, L = c.shape
    return (alpha * c).softmax(1) / (2 * K) + (alpha * c).softmax(0) / (2 * L)


def raised_gradient(c, alpha=16.0):
    e = torch.exp(alpha * (c - c.max()))
    return e / e.sum(1, keepdim=True) / (2 * len(c)) + e / e.sum(0) / (2 * c.shape[1])


def looped_gradient(c, alpha=16.0):
    g = torch.empty_like(c)
    for i, j in product(range(len(c)), range(c.shape[1])):
        row, column = (alpha * c[i]).logsumexp(0), (alpha * c[:, j]).logsumexp(0)
        g[i, j] = ((alpha * c[i, j] - row).exp() / len(c) + (alpha * c[i, j] - column).exp() / c.shape[1]) / 2
    return g


def automatic(c, alpha=16.0):
    c = c.clone().requires_grad_()
    s = ((alpha * c).logsumexp(1).mean() + (alpha * c).logsumexp(0).mean()) / (2 * alpha)
    return torch.autograd.grad(s, c)[0]


def one_term(c, alpha=16.0):
    return (alpha * c).softmax(1) / len(c)


def sizes_swapped(c, alpha=16.0):
    K, L = c.shape
    return (alpha * c).softmax(1) / (2 * L) + (alpha * c).softmax(0) / (2 * K)


def with_alpha(c, alpha=16.0):
    return alpha * right_gradient(c, alpha)


def not_halved(c, alpha=16.0):
    return 2 * right_gradient(c, alpha)


def over_all_pairs(c, alpha=16.0):
    return (alpha * c).flatten().softmax(0).view_as(c)


def without_alpha(c, alpha=16.0):
    return c.softmax(1) / (2 * len(c)) + c.softmax(0) / (2 * c.shape[1])


def alpha_left(c, alpha=16.0):
    return right_gradient(c, alpha) / alpha


def without_sizes(c, alpha=16.0):
    return ((alpha * c).softmax(1) + (alpha * c).softmax(0)) / 2


def one_term_halved(c, alpha=16.0):
    K, L = c.shape
    return (alpha * c).softmax(1) / K + (alpha * c).softmax(0) / (2 * L)


RIGHT = {
    "14.shares": (right_shares, looped_shares, einsum_shares),
    "14.receive": (right_receive, divided_later, einsum_receive),
    "14.break": (3 / 8, 0.375, torch.tensor(0.375)),
    "14.overlap": (right_overlap, looped_overlap, all_but_itself),
    "14.smooth": (right_smooth, looped_smooth, lifted_smooth),
    "14.gradient": (right_gradient, raised_gradient, looped_gradient),
    "14.collapse": ("MIL", "match probability", "Smooth-Chamfer"),
    "14.cost": (4 * 4 * 1024, 16.4e3, 16384.0, torch.tensor(16384)),
    "14.explore": (
        ("I expect that more rounds spread the slots.", "They did, by a little, from one seed."),
        ["without the global feature it gets worse", "it did get worse, by a lot"],
        ("alpha 1 collapses the sets", "not in these few steps"),
    ),
}
"""For each exercise, answers that must pass: the solution, and the same written in other ways."""

WRONG = {
    "14.shares": (
        over_elements,
        masked_before,
        masked_by_large,
        without_mask,
        multiplied,
        too_sharp,
        real_cleared,
    ),
    "14.receive": (not_normalised, no_residual, softmax_again, over_slots_again, divided_over_slots),
    "14.break": (0.0, 3 / 32, 0.25, 0.6, 0.625, 0.75, 8.0),
    "14.overlap": (with_itself, products, lambda weights: weights.sum(2).mean(1)),
    "14.smooth": (
        one_sided,
        twice,
        summed,
        not_divided,
        overflows,
        hard_chamfer,
        mean_inside,
        one_log,
        no_alpha_inside,
    ),
    "14.gradient": (
        one_term,
        sizes_swapped,
        with_alpha,
        not_halved,
        over_all_pairs,
        without_alpha,
        alpha_left,
        without_sizes,
        one_term_halved,
        automatic,
    ),
    "14.collapse": ("none of them", 4, ""),
    "14.cost": (1024, 4096, 8192, 32768, 12),
    "14.explore": ("it gets worse", ("", "it did get worse"), ("I expect a change", "I expect a change")),
}
"""Typical mistakes, each of which must fail."""
