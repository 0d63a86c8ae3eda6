"""Answers to the exercises of notebook 05: right ones, and typical mistakes."""

import math

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


def by_head(x, mask, ask, join, widen, narrow, heads):
    wanted = [part.chunk(heads) for part in ask.chunk(3)]
    normal, answers = norm(x), []
    for w_q, w_k, w_u in zip(*wanted, strict=True):
        fit = (normal @ w_q.T) @ (normal @ w_k.T).mT / math.sqrt(len(w_q))
        fit = torch.where(mask[:, None], fit, -1e9)
        answers.append(fit.softmax(-1) @ (normal @ w_u.T))
    z = x + torch.cat(answers, -1) @ join.T
    return z + F.linear(F.relu(F.linear(norm(z), widen)), narrow)


def by_row(x, mask, ask, join, widen, narrow, heads):
    out = torch.zeros_like(x)
    for row, real in enumerate(mask):
        own = x[row : row + 1, real]
        out[row, real] = by_parts(own, real[None, real], ask, join, widen, narrow, heads)[0]
    return out


def as_printed(x, mask, ask, join, widen, narrow, heads):
    z = x + attended(norm(x), mask, ask, heads) @ join.T
    return x + network(norm(z), widen, narrow)


def norm_last(x, mask, ask, join, widen, narrow, heads):
    z = norm(x + attended(x, mask, ask, heads) @ join.T)
    return norm(z + network(z, widen, narrow))


def no_norm(x, mask, ask, join, widen, narrow, heads):
    z = x + attended(x, mask, ask, heads) @ join.T
    return z + network(z, widen, narrow)


def no_residual(x, mask, ask, join, widen, narrow, heads):
    z = attended(norm(x), mask, ask, heads) @ join.T
    return network(norm(z), widen, narrow)


def no_mask(x, mask, ask, join, widen, narrow, heads):
    return by_parts(x, torch.ones_like(mask), ask, join, widen, narrow, heads)


def no_relu(x, mask, ask, join, widen, narrow, heads):
    z = x + attended(norm(x), mask, ask, heads) @ join.T
    return z + norm(z) @ widen.T @ narrow.T


def no_root(x, mask, ask, join, widen, narrow, heads):
    q, k, u = (norm(x) @ ask.T).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    fit = (q @ k.mT).masked_fill(~mask[:, None, None], -torch.inf)
    z = x + (fit.softmax(-1) @ u).transpose(1, 2).flatten(2) @ join.T
    return z + network(norm(z), widen, narrow)


def shared_out(share):
    def block(x, mask, ask, join, widen, narrow, heads):
        q, k, u = (norm(x) @ ask.T).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        z = x + (share(q @ k.mT, mask) @ u).transpose(1, 2).flatten(2) @ join.T
        return z + network(norm(z), widen, narrow)

    return block


def hides_the_real(products, mask):
    return (products / 2).masked_fill(mask[:, None, None], -torch.inf).softmax(-1)


def first_not_normal(x, mask, ask, join, widen, narrow, heads):
    z = x + attended(x, mask, ask, heads) @ join.T
    return z + network(norm(z), widen, narrow)


def not_joined(x, mask, ask, join, widen, narrow, heads):
    z = x + attended(norm(x), mask, ask, heads)
    return z + network(norm(z), widen, narrow)


def one_head(x, mask, ask, join, widen, narrow, heads):
    return by_parts(x, mask, ask, join, widen, narrow, 1)


def by_gather(tokens, mask, shift):
    source = (torch.arange(tokens.shape[1]) - shift[:, None]) % tokens.shape[1]
    return tokens.gather(1, source), mask.gather(1, source)


def by_rolling(tokens, mask, shift):
    moved = [[row.roll(int(far)) for row, far in zip(table, shift, strict=True)] for table in (tokens, mask)]
    return torch.stack(moved[0]), torch.stack(moved[1])


def by_filling(tokens, mask, shift):
    moved, real = torch.zeros_like(tokens), torch.zeros_like(mask)
    for row, (far, count) in enumerate(zip(shift.tolist(), mask.sum(1).tolist(), strict=True)):
        moved[row, far : far + count] = tokens[row, :count]
        real[row, far : far + count] = True
    return moved, real


def mask_stays(tokens, mask, shift):
    return by_gather(tokens, mask, shift)[0], mask


def words_stay(tokens, mask, shift):
    return tokens, by_gather(tokens, mask, shift)[1]


RIGHT = {
    "05.predict": ["one", "None", " two "],
    "05.block": [by_parts, by_head, by_row],
    "05.padding": [by_gather, by_rolling, by_filling],
    "05.break": [8, 8.0, torch.tensor(8.0)],
    "05.ablation": [
        ("Only captions with positions cannot be enough.", "It stayed at one half, from one seed."),
        ("One head will do as well.", "It came within the interval of four."),
        ("The mean will learn more slowly than the maximum.", "After these steps it was still at chance."),
    ],
}
WRONG = {
    "05.predict": ["four of them", 1, "some"],
    "05.block": [
        lambda *given: by_parts(*given).mean(1),
        as_printed,
        norm_last,
        no_norm,
        no_residual,
        no_mask,
        no_relu,
        no_root,
        one_head,
        shared_out(hides_the_real),
        shared_out(lambda products, mask: (products / 8**0.5).softmax(-1)),
        shared_out(lambda products, mask: (products / 4).softmax(-1)),
        shared_out(lambda products, mask: (products / 2).softmax(-2)),
        first_not_normal,
        not_joined,
        lambda *given: by_parts(*given).detach(),
    ],
    "05.padding": [
        lambda tokens, mask, shift: by_gather(tokens, mask, shift)[0],
        mask_stays,
        words_stay,
        lambda tokens, mask, shift: by_gather(tokens, mask, -shift),
        lambda tokens, mask, shift: by_gather(tokens, mask, shift[:1].expand(len(shift))),
        lambda tokens, mask, shift: by_gather(tokens, mask, shift + 1),
    ],
    "05.break": [64, 1, -8, 32],
    "05.ablation": [("x", "y"), ("It gets worse with one head.", "yes"), "It was as I thought."],
}
