"""Answers to the exercises of notebook 02: right ones, and typical mistakes."""

import math

import torch
from torch.nn import functional as F


def by_where(x, mask):
    return torch.where(mask[..., None], x, 0).sum(1) / mask.sum(1, keepdim=True)


def by_loop(x, mask):
    return torch.stack([row[real].mean(0) for row, real in zip(x, mask, strict=True)])


def by_nanmean(x, mask):
    return x.masked_fill(~mask[..., None], torch.nan).nanmean(1)


def as_a_product(x, mask):
    shares = mask / mask.sum(1, keepdim=True)
    return torch.einsum("bn,bnd->bd", shares, x.masked_fill(mask.logical_not()[..., None], 0))


def all_elements(x, mask):
    return x.mean(1)


def divided_by_all(x, mask):
    return torch.where(mask[..., None], x, 0).mean(1)


def summed_with_padding(x, mask):
    return x.sum(1) / mask.sum(1, keepdim=True)


def from_the_left(x, mask):
    return torch.stack([row[: int(real.sum())].mean(0) for row, real in zip(x, mask, strict=True)])


def multiplied(x, mask):
    return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def by_parts(x, h, W, U, w, u):
    W_r, W_z, W_n = W.chunk(3)
    U_r, U_z, U_n = U.chunk(3)
    w_r, w_z, w_n = w.chunk(3)
    u_r, u_z, u_n = u.chunk(3)
    r = torch.sigmoid(x @ W_r.T + w_r + h @ U_r.T + u_r)
    z = torch.sigmoid(x @ W_z.T + w_z + h @ U_z.T + u_z)
    return torch.lerp(torch.tanh(x @ W_n.T + w_n + r * (h @ U_n.T + u_n)), h, z)


def by_linear(x, h, W, U, w, u):
    of_word, of_past = F.linear(x, W, w), F.linear(h, U, u)
    D = h.shape[1]
    r, z = torch.sigmoid(of_word[:, : 2 * D] + of_past[:, : 2 * D]).chunk(2, 1)
    proposal = torch.tanh(of_word[:, 2 * D :] + r * of_past[:, 2 * D :])
    return proposal + z * (h - proposal)


def by_row(x, h, W, U, w, u):
    return torch.stack([by_parts(x[None, i], h[None, i], W, U, w, u)[0] for i in range(len(x))])


def mixed(x, h, W, U, w, u):
    of_word, of_past = (x @ W.T + w).chunk(3, -1), (h @ U.T + u).chunk(3, -1)
    r, z = torch.sigmoid(of_word[0] + of_past[0]), torch.sigmoid(of_word[1] + of_past[1])
    return (1 - z) * h + z * torch.tanh(of_word[2] + r * of_past[2])


def other_order(x, h, W, U, w, u):
    of_word, of_past = (x @ W.T + w).chunk(3, -1), (h @ U.T + u).chunk(3, -1)
    z, r = torch.sigmoid(of_word[0] + of_past[0]), torch.sigmoid(of_word[1] + of_past[1])
    return z * h + (1 - z) * torch.tanh(of_word[2] + r * of_past[2])


def as_printed(x, h, W, U, w, u):
    of_word, of_past = (x @ W.T + w).chunk(3, -1), (h @ U.T + u).chunk(3, -1)
    r, z = torch.sigmoid(of_word[0] + of_past[0]), torch.sigmoid(of_word[1] + of_past[1])
    past = (r * h) @ U.chunk(3)[2].T + u.chunk(3)[2]
    return z * h + (1 - z) * torch.tanh(of_word[2] + past)


def without_reset(x, h, W, U, w, u):
    of_word, of_past = (x @ W.T + w).chunk(3, -1), (h @ U.T + u).chunk(3, -1)
    z = torch.sigmoid(of_word[1] + of_past[1])
    return z * h + (1 - z) * torch.tanh(of_word[2] + of_past[2])


def bias_outside_the_gate(x, h, W, U, w, u):
    of_word, of_past = (x @ W.T + w).chunk(3, -1), (h @ U.T).chunk(3, -1)
    b = u.chunk(3)
    r, z = torch.sigmoid(of_word[0] + of_past[0] + b[0]), torch.sigmoid(of_word[1] + of_past[1] + b[1])
    return z * h + (1 - z) * torch.tanh(of_word[2] + r * of_past[2] + b[2])


def by_mask(q, k, u, mask):
    fit = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask[:, None, None], -torch.inf)
    return fit.softmax(-1) @ u


def by_exponentials(q, k, u, mask):
    fit = torch.einsum("chid,chjd->chij", q, k) / math.sqrt(q.shape[-1])
    fit = torch.where(mask[:, None, None, :], fit, -1e9)
    shares = (fit - fit.amax(-1, keepdim=True)).exp()
    return torch.einsum("chij,chjd->chid", shares / shares.sum(-1, keepdim=True), u)


def by_caption(q, k, u, mask):
    found = []
    for one, keys, values, real in zip(q, k, u, mask, strict=True):
        fit = one @ keys[:, real].mT * keys.shape[-1] ** -0.5
        found.append(fit.softmax(-1) @ values[:, real])
    return torch.stack(found)


def no_root(q, k, u, mask):
    return (q @ k.mT).masked_fill(~mask[:, None, None], -torch.inf).softmax(-1) @ u


def whole_width(q, k, u, mask):
    return (q @ k.mT / q.shape[-1]).masked_fill(~mask[:, None, None], -torch.inf).softmax(-1) @ u


def over_queries(q, k, u, mask):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-2) @ u


def no_mask(q, k, u, mask):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ u


def masked_afterwards(q, k, u, mask):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) * mask[:, None, None] @ u


def filled_with_zero(q, k, u, mask):
    return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask[:, None, None], 0).softmax(-1) @ u


RIGHT = {
    "02.mean": [by_where, by_loop, by_nanmean, as_a_product],
    "02.far": ["rarely", "Half the time", " mostly "],
    "02.explore": [
        ("The colour is read as well as the kind.", "It was read nearly as well."),
        ("The nearest thing is easier than the farthest one.", "It was, and from all three."),
        ("Regions will not know the nearest thing.", "They knew a little of it."),
    ],
    "02.gru": [by_parts, by_linear, by_row],
    "02.attention": [by_mask, by_exponentials, by_caption],
    "02.break": [1, 1.0, torch.tensor(0.99999)],
}
WRONG = {
    "02.mean": [
        lambda x, mask: by_where(x, mask).mean(),
        lambda x, mask: by_where(x, mask) * mask.sum(1, keepdim=True),
        divided_by_all,
        summed_with_padding,
        from_the_left,
        multiplied,
        lambda x, mask: by_where(x, mask).detach(),
    ],
    "02.far": ["often", 0.5, "never"],
    "02.explore": [("x", "y"), ("The colour is easy to read.", "yes"), "It was as I thought."],
    "02.gru": [
        lambda x, h, W, U, w, u: by_parts(x, h, W, U, w, u).mean(),
        mixed,
        other_order,
        as_printed,
        without_reset,
        bias_outside_the_gate,
        lambda x, h, W, U, w, u: by_parts(x, h, W, U, w, u).detach(),
    ],
    "02.attention": [
        lambda q, k, u, mask: by_mask(q, k, u, mask).sum(2),
        no_root,
        whole_width,
        over_queries,
        no_mask,
        masked_afterwards,
        filled_with_zero,
        lambda q, k, u, mask: by_mask(q, k, u, mask).detach(),
    ],
    "02.break": [0, -1, 0.97, 0.5, 4],
}
