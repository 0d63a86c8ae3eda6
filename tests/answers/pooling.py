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


def hidden_by_minus_five(x, mask, k):
    top = x.masked_fill(~mask[:, :, None], -5.0).topk(min(k, x.shape[1]), dim=1).values
    there = top > -5
    return top.where(there, 0).sum(1) / there.sum(1)


def multiplies(x, mask, k):
    hidden = x * mask[:, :, None] - 1e9 * ~mask[:, :, None]
    top = hidden.topk(min(k, x.shape[1]), dim=1).values
    there = top > -1e8
    return top.where(there, 0).sum(1) / there.sum(1)


def right_gpo(places, gru, linear):
    forwards, backwards = gru(places)[0].chunk(2, -1)
    return (linear((forwards + backwards) / 2).squeeze(-1) / 0.1).softmax(0)


def averaged_gpo(places, gru, linear):
    states = gru(places[None])[0].unflatten(-1, (2, -1)).mean(2)
    return torch.softmax(10 * linear(states), 1)[0, :, 0]


def exponential_gpo(places, gru, linear):
    states, _ = gru(places)
    numbers = (linear(states[:, :32]) + linear(states[:, 32:])).flatten() * 5
    shares = torch.exp(numbers - numbers.max())
    return shares / shares.sum()


def too_even(places, gru, linear):
    forwards, backwards = gru(places)[0].chunk(2, -1)
    return linear((forwards + backwards) / 2).squeeze(-1).softmax(0)


def multiplied_gpo(places, gru, linear):
    forwards, backwards = gru(places)[0].chunk(2, -1)
    return (linear((forwards + backwards) / 2).squeeze(-1) * 0.1).softmax(0)


def too_sharp(places, gru, linear):
    forwards, backwards = gru(places)[0].chunk(2, -1)
    return (linear(forwards + backwards).squeeze(-1) / 0.1).softmax(0)


def only_forwards(places, gru, linear):
    return (linear(gru(places)[0][:, :32]).squeeze(-1) / 0.1).softmax(0)


def no_softmax(places, gru, linear):
    forwards, backwards = gru(places)[0].chunk(2, -1)
    return linear((forwards + backwards) / 2).squeeze(-1) / 0.1


def right_token(u, mask, W_tok):
    logits = (u @ W_tok).masked_fill(~mask[..., None], -torch.inf)
    return (logits.softmax(1) * u).sum(1)


def looped_token(u, mask, W_tok):
    pooled = []
    for rows, real in zip(u, mask, strict=True):
        theta = (rows[real] @ W_tok).softmax(0)
        pooled.append((theta * rows[real]).sum(0))
    return torch.stack(pooled)


def divided_token(u, mask, W_tok):
    logits = torch.where(mask, (u @ W_tok).squeeze(-1), -1e9)
    shares = (logits - logits.amax(1, keepdim=True)).exp()
    return torch.einsum("bn,bnd->bd", shares / shares.sum(1, keepdim=True), u)


def unmasked_token(u, mask, W_tok):
    return ((u @ W_tok).softmax(1) * u).sum(1)


def masked_too_late(u, mask, W_tok):
    return ((u @ W_tok).softmax(1) * mask[..., None] * u).sum(1)


def over_dimensions(u, mask, W_tok):
    return ((u * W_tok.T).softmax(2) * u).sum(1)


def without_softmax(u, mask, W_tok):
    return ((u @ W_tok) * u).sum(1)


def right_balance(token, x, mask, W_bal):
    shares = x.masked_fill(~mask[..., None], -torch.inf).softmax(1)
    embedding = (shares * x.masked_fill(~mask[..., None], 0)).sum(1)
    both = torch.stack([token, embedding], 1)
    return ((both @ W_bal).softmax(1) * both).sum(1)


def looped_balance(token, x, mask, W_bal):
    embedding = torch.stack(
        [(one[real].softmax(0) * one[real]).sum(0) for one, real in zip(x, mask, strict=True)]
    )
    part = torch.sigmoid((token - embedding) @ W_bal)
    return part * token + (1 - part) * embedding


def stacked_last(token, x, mask, W_bal):
    low = torch.where(mask[..., None], x, -1e4)
    shares = low.exp() / low.exp().sum(1, keepdim=True)
    both = torch.stack([token, (shares * low).sum(1)], -1)
    omega = (both * W_bal[None]).sum(1, keepdim=True).softmax(-1)
    return (omega * both).sum(-1)


def unmasked_balance(token, x, mask, W_bal):
    return right_balance(token, x, torch.ones_like(mask), W_bal)


def leaks(token, x, mask, W_bal):
    shares = (x - 9 * ~mask[..., None]).softmax(1)
    both = torch.stack([token, (shares * x).sum(1)], 1)
    return ((both @ W_bal).softmax(1) * both).sum(1)


def swapped(token, x, mask, W_bal):
    both = torch.stack([token, soft(x, mask)], 1)
    return ((both @ W_bal).softmax(1).flip(1) * both).sum(1)


def soft(x, mask):
    return (x.masked_fill(~mask[..., None], -torch.inf).softmax(1) * x).sum(1)


def adds_nan(token, x, mask, W_bal):
    both = torch.stack([token, soft(x, mask)], 1)
    return ((both @ W_bal).softmax(1) * both).sum(1)


def across_dimensions(token, x, mask, W_bal):
    both = torch.stack([token, (x.softmax(2) * x).sum(1)], 1)
    return ((both @ W_bal).softmax(1) * both).sum(1)


def even(token, x, mask, W_bal):
    return (token + soft(x, mask)) / 2


RIGHT = {
    "10.weights": [
        torch.tensor([[10.0, 0.0], [0.0, 20.0]]),
        [[5, 5], [0, 10]],
        np.array([[100.0, 0.0], [0.0, 7.0]]),
    ],
    "10.kmax": [right_kmax, looped_kmax, weighed_kmax],
    "10.gpo": [right_gpo, averaged_gpo, exponential_gpo],
    "10.double": ["mean", "AdPool", "GPO"],
    "10.token": [right_token, looped_token, divided_token],
    "10.balance": [right_balance, looped_balance, stacked_last],
    "10.explore": [
        ("it will stay near a half", "it stayed near a half"),
        ["With a higher rate it saturates earlier.", "It did, in two of three seeds."],
        ("No difference is to be expected", "None was to be seen"),
    ],
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
        hidden_by_minus_five,
        lambda x, mask, k: right_kmax(x.detach(), mask, k),
    ],
    "10.break": [10 / 6, 10 / 14, 3 / 8, 1.5, 4],
    "10.gpo": [
        lambda places, gru, linear: linear(gru(places)[0][:, :32]),
        no_softmax,
        only_forwards,
        too_even,
        multiplied_gpo,
        too_sharp,
        lambda places, gru, linear: right_gpo(places, gru, linear).detach(),
    ],
    "10.double": ["median", 4, ["mean", "GPO"], ("GPO",)],
    "10.token": [
        lambda u, mask, W_tok: right_token(u, mask, W_tok).mean(),
        over_dimensions,
        without_softmax,
        lambda u, mask, W_tok: u.mean(1),
        unmasked_token,
        masked_too_late,
        lambda u, mask, W_tok: right_token(u, mask, W_tok.detach()),
    ],
    "10.balance": [
        lambda token, x, mask, W_bal: token.mean(),
        across_dimensions,
        even,
        swapped,
        unmasked_balance,
        leaks,
        adds_nan,
        lambda token, x, mask, W_bal: right_balance(token, x, mask, W_bal.detach()),
    ],
    "10.explore": [
        ("yes", "it went up early"),
        ("it will go up", "up"),
        ("it will go up", "it will go up"),
        ["it will go up"],
        3,
    ],
}
