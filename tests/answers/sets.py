"""Answers to the exercises of notebook 13: right ones, and typical mistakes."""

import math

import torch
from torch.nn.functional import cosine_similarity, normalize


def right_heads(x, mask, W1, W2):
    x = x.masked_fill(~mask[:, :, None], 0)
    logits = ((x @ W1).tanh() @ W2).masked_fill(~mask[:, :, None], -torch.inf)
    return logits.softmax(1).mT @ x


def looped_heads(x, mask, W1, W2):
    found = []
    for rows, real in zip(x, mask, strict=True):
        weights = (torch.tanh(rows[real] @ W1) @ W2).softmax(0)
        found.append(weights.T @ rows[real])
    return torch.stack(found)


def exponential_heads(x, mask, W1, W2):
    x = torch.where(mask[..., None], x, 0)
    shares = torch.tanh(torch.einsum("bnd,dh->bnh", x, W1)) @ W2
    shares = shares.sub(shares.amax(1, keepdim=True)).exp() * mask[..., None]
    return torch.einsum("bnk,bnd->bkd", shares / shares.sum(1, keepdim=True), x)


def heads_without_tanh(x, mask, W1, W2):
    return (x @ W1 @ W2).masked_fill(~mask[..., None], -torch.inf).softmax(1).mT @ x


def over_heads(x, mask, W1, W2):
    return ((x @ W1).tanh() @ W2).softmax(2).mT @ x


def unmasked_heads(x, mask, W1, W2):
    return ((x @ W1).tanh() @ W2).softmax(1).mT @ x


def uncleared_heads(x, mask, W1, W2):
    logits = ((x @ W1).tanh() @ W2).masked_fill(~mask[..., None], -torch.inf)
    return logits.softmax(1).mT @ x


def real_hidden(x, mask, W1, W2):
    x = x.masked_fill(mask[..., None], 0)
    return ((x @ W1).tanh() @ W2).masked_fill(mask[..., None], -torch.inf).softmax(1).mT @ x


def real_hidden_only_in_softmax(x, mask, W1, W2):
    return ((x @ W1).tanh() @ W2).masked_fill(mask[..., None], -torch.inf).softmax(1).mT @ x


def real_cleared(x, mask, W1, W2):
    return right_heads(x.masked_fill(mask[..., None], 0), mask, W1, W2)


def cosines(v, t):
    return torch.einsum("bkd,cld->bckl", normalize(v, dim=-1), normalize(t, dim=-1))


def right_mil(v, t):
    return cosines(v, t).amax((2, 3))


def broadcast_mil(v, t):
    pairs = cosine_similarity(v[:, None, :, None], t[None, :, None, :], dim=-1)
    return pairs.max(3).values.max(2).values


def looped_mil(v, t):
    v, t = normalize(v, dim=-1), normalize(t, dim=-1)
    return torch.stack([torch.stack([(one @ other.T).max() for other in t]) for one in v])


def chamfer_for_mil(v, t):
    c = cosines(v, t)
    return (c.amax(3).mean(2) + c.amax(2).mean(2)) / 2


def mil_of_other_lengths(v, t):
    return torch.einsum("bkd,cld->bckl", normalize(v, dim=1), normalize(t, dim=1)).amax((2, 3))


def mean_vectors_first(v, t):
    return normalize(v.mean(1), dim=-1) @ normalize(t.mean(1), dim=-1).T


def shift_inside(v, t, scale, shift):
    return (scale * (cosines(v, t) + shift)).sigmoid().mean((2, 3))


def shift_subtracted(v, t, scale, shift):
    return (scale * cosines(v, t) - shift).sigmoid().mean((2, 3))


def right_match(v, t, scale, shift):
    return (scale * cosines(v, t) + shift).sigmoid().mean((2, 3))


def broadcast_match(v, t, scale, shift):
    pairs = cosine_similarity(v[:, None, :, None], t[None, :, None, :], dim=-1)
    return (1 / (1 + (-scale * pairs - shift).exp())).flatten(2).mean(2)


def looped_match(v, t, scale, shift):
    v, t = normalize(v, dim=-1), normalize(t, dim=-1)
    rows = [[(one @ other.T * scale + shift).sigmoid().mean() for other in t] for one in v]
    return torch.stack([torch.stack(row) for row in rows])


def right_variance(sets):
    return 1 - normalize(sets, dim=-1).mean(1).norm(dim=-1)


def divided_variance(sets):
    directions = sets / sets.norm(dim=-1, keepdim=True)
    return 1 - directions.mean(dim=1).square().sum(-1).sqrt()


def paired_variance(sets):
    x = normalize(sets, dim=-1)
    return 1 - (x @ x.mT).mean((1, 2)).clamp(min=0).sqrt()


def squared_length(sets):
    return 1 - normalize(sets, dim=-1).mean(1).square().sum(-1)


def mean_cosine(sets):
    x, k = normalize(sets, dim=-1), sets.shape[1]
    return 1 - ((x @ x.mT).sum((1, 2)) - k) / (k * (k - 1))


def ordinary_variance(sets):
    return normalize(sets, dim=-1).var(1).mean(-1)


RIGHT = {
    "13.fits": ["1", "10", " 50 ", 10],
    "13.compromise": [0.5, math.cos(math.radians(60)), torch.tensor(0.5)],
    "13.heads": [right_heads, looped_heads, exponential_heads],
    "13.mil": [right_mil, broadcast_mil, looped_mil],
    "13.sparse": [(1, 2), [1, 2], torch.tensor([1, 2])],
    "13.match": [right_match, broadcast_match, looped_match],
    "13.variance": [right_variance, divided_variance, paired_variance],
    "13.break": [1, 1.0, torch.tensor(1)],
    "13.explore": [
        ("it will open the sets", "it opened them in two seeds"),
        ["With two slots less is spread.", "It was so for captions only."],
        ("No difference is to be expected", "None was to be seen"),
    ],
}
WRONG = {
    "13.fits": ["100", 100, "about ten", ["1", "10"]],
    "13.compromise": [-0.5, 0, 60, math.cos(60), 0.866, 0.87],
    "13.heads": [
        lambda x, mask, W1, W2: right_heads(x, mask, W1, W2).mean(1),
        lambda x, mask, W1, W2: right_heads(x, mask, W1, W2) * 2,
        heads_without_tanh,
        over_heads,
        unmasked_heads,
        uncleared_heads,
        real_hidden,
        real_hidden_only_in_softmax,
        real_cleared,
        lambda x, mask, W1, W2: right_heads(x, mask, W1, W2.detach()),
    ],
    "13.mil": [
        lambda v, t: cosines(v, t).amax(),
        lambda v, t: cosines(v, t).mean((2, 3)),
        lambda v, t: cosines(v, t).amax(3).mean(2),
        lambda v, t: torch.einsum("bkd,cld->bckl", v, t).amax((2, 3)),
        chamfer_for_mil,
        mil_of_other_lengths,
        mean_vectors_first,
        lambda v, t: right_mil(v.detach(), t),
    ],
    "13.sparse": [(16, 8), (4, 8), (4, 4), (8, 8), (1, 1), (2, 2), (1, 2, 3), (1, 8)],
    "13.match": [
        lambda v, t, scale, shift: right_match(v, t, scale, shift).mean(),
        lambda v, t, scale, shift: (scale * cosines(v, t) + shift).sigmoid().sum((2, 3)),
        lambda v, t, scale, shift: (scale * cosines(v, t).mean((2, 3)) + shift).sigmoid(),
        shift_inside,
        shift_subtracted,
        lambda v, t, scale, shift: right_match(v.detach(), t, scale, shift),
    ],
    "13.variance": [
        lambda sets: right_variance(sets).mean(),
        lambda sets: normalize(sets, dim=-1).mean(1).norm(dim=-1),
        lambda sets: 1 - sets.mean(1).norm(dim=-1),
        lambda sets: sets.var(1).mean(-1),
        squared_length,
        mean_cosine,
        ordinary_variance,
        lambda sets: right_variance(sets.detach()),
    ],
    "13.break": [4, 2, 0, 2.5, 100],
    "13.explore": [
        ("yes", "it went up early"),
        ("it will go up", "up"),
        ("it will go up", "it will go up"),
        ["it will go up"],
        3,
    ],
}
