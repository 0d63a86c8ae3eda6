"""Answers to the exercises of notebook 06: right ones, and typical mistakes."""

import math

import torch
from torch.nn import functional as F


def right_pooling(x, mask, W):
    logits = (W @ x.mT).masked_fill(~mask[:, None], -torch.inf)
    alpha = logits.softmax(-1)
    return alpha @ x, alpha


def looped_pooling(x, mask, W):
    pools, weights = [], []
    for row, real in zip(x, mask, strict=True):
        alpha = torch.zeros(len(W), len(row))
        alpha[:, real] = torch.softmax(W @ row[real].T, dim=1)
        weights.append(alpha)
        pools.append(alpha[:, real] @ row[real])
    return torch.stack(pools), torch.stack(weights)


def by_exponentials(x, mask, W):
    logits = torch.einsum("pd,bnd->bpn", W, x)
    logits = logits.where(mask[:, None], torch.tensor(-1e9))
    share = (logits - logits.amax(-1, keepdim=True)).exp() * mask[:, None]
    alpha = share / share.sum(-1, keepdim=True)
    return torch.einsum("bpn,bnd->bpd", alpha, x), alpha


def over_pools(x, mask, W):
    alpha = (W @ x.mT).masked_fill(~mask[:, None], -torch.inf).softmax(1)
    return alpha @ x, alpha


def without_a_mask(x, mask, W):
    alpha = (W @ x.mT).softmax(-1)
    return alpha @ x, alpha


def masked_by_zero(x, mask, W):
    alpha = ((W @ x.mT) * mask[:, None]).softmax(-1)
    return alpha @ x, alpha


def cut_off(x, mask, W):
    pools, alpha = right_pooling(x, mask, W)
    return pools.detach() + 0 * W.sum(), alpha


def right_loss(p, q, caption, picture, margin=0.2):
    p, q = F.normalize(p, dim=-1), F.normalize(q, dim=-1)
    own = (p * q).sum(-1)
    costs = margin + (p * q[caption]).sum(-1) - own, margin + (p[picture] * q).sum(-1) - own
    return costs[0].clamp(min=0).sum() + costs[1].clamp(min=0).sum()


def looped_loss(p, q, caption, picture, margin=0.2):
    total = torch.zeros(())
    for b in range(len(p)):
        for i in range(p.shape[1]):
            own = F.cosine_similarity(p[b, i], q[b, i], dim=0)
            for negative in (
                F.cosine_similarity(p[b, i], q[caption[b], i], dim=0),
                F.cosine_similarity(p[picture[b], i], q[b, i], dim=0),
            ):
                total = total + torch.relu(margin + negative - own)
    return total


def by_matrices(p, q, caption, picture, margin=0.2):
    p, q = p / p.norm(dim=-1, keepdim=True), q / q.norm(dim=-1, keepdim=True)
    S = torch.einsum("bpd,cpd->bcp", p, q)
    rows = torch.arange(len(p))
    own = S[rows, rows]
    return ((margin + S[rows, caption] - own).relu() + (margin + S[picture, rows] - own).relu()).sum()


def one_direction(p, q, caption, picture, margin=0.2):
    p, q = F.normalize(p, dim=-1), F.normalize(q, dim=-1)
    return (margin + (p * q[caption]).sum(-1) - (p * q).sum(-1)).relu().sum()


def not_scaled(p, q, caption, picture, margin=0.2):
    own = (p * q).sum(-1)
    return (
        (margin + (p * q[caption]).sum(-1) - own).relu() + (margin + (p[picture] * q).sum(-1) - own).relu()
    ).sum()


def own_hardest(p, q, caption, picture, margin=0.2):
    S = torch.einsum("bpd,cpd->pbc", F.normalize(p, dim=-1), F.normalize(q, dim=-1))
    own = S.diagonal(dim1=1, dim2=2)
    hidden = S.masked_fill(torch.eye(len(p)) > 0, -torch.inf)
    return (margin + hidden.amax(1) - own).relu().sum() + (margin + hidden.amax(2) - own).relu().sum()


def averaged_first(p, q, caption, picture, margin=0.2):
    p, q = F.normalize(p, dim=-1), F.normalize(q, dim=-1)
    own = (p * q).sum(-1).mean(1)
    caption_cost = margin + (p * q[caption]).sum(-1).mean(1) - own
    return (caption_cost.relu() + (margin + (p[picture] * q).sum(-1).mean(1) - own).relu()).sum()


def right_attend(x, y, mask):
    logits = (x @ y.mT).masked_fill(~mask[:, None], -torch.inf)
    return logits.softmax(-1) @ y


def looped_attend(x, y, mask):
    rows = []
    for mine, others, real in zip(x, y, mask, strict=True):
        kept = others[real]
        rows.append(torch.stack([torch.softmax(kept @ one, 0) @ kept for one in mine]))
    return torch.stack(rows)


def by_einsum(x, y, mask):
    products = torch.einsum("bnd,bld->bnl", x, y).where(mask[:, None, :], torch.tensor(-torch.inf))
    return torch.einsum("bnl,bld->bnd", F.softmax(products, dim=2), y)


RIGHT = {
    "06.pool": [right_pooling, looped_pooling, by_exponentials],
    "06.hinge": [right_loss, looped_loss, by_matrices],
    "06.equal": ["a", "b", " C "],
    "06.attend": [right_attend, looped_attend, by_einsum],
    "06.even": [math.e / (math.e + 9 / math.e), 0.451, torch.tensor(0.4509)],
    "06.break": [torch.tensor([2.0, -3.0]), [3.0, -1.0], (1, -2)],
    "06.explore": [
        ("two pools will agree better", "they did, in this one run"),
        ["fewer pools will rank better", "the difference is smaller than I thought"],
        ("I expect no difference at all", "both numbers are nearly the same"),
    ],
}
WRONG = {
    "06.pool": [
        lambda x, mask, W: right_pooling(x, mask, W)[0],
        lambda x, mask, W: right_pooling(x, mask, W)[::-1],
        lambda x, mask, W: right_pooling(x, mask, W / 2),
        over_pools,
        without_a_mask,
        masked_by_zero,
        cut_off,
    ],
    "06.hinge": [
        lambda p, q, caption, picture, margin=0.2: right_loss(p, q, caption, picture, margin) * torch.ones(2),
        lambda p, q, caption, picture, margin=0.2: right_loss(p, q, caption, picture, margin) / 5,
        lambda p, q, caption, picture, margin=0.2: right_loss(p, q, caption, picture),
        lambda p, q, caption, picture, margin=0.2: right_loss(p, q, picture, caption, margin),
        lambda p, q, caption, picture, margin=0.2: torch.tensor(
            right_loss(p, q, caption, picture, margin).item()
        ),
        one_direction,
        not_scaled,
        own_hardest,
        averaged_first,
    ],
    "06.equal": [1, "they stay equal", "d"],
    "06.attend": [
        lambda x, y, mask: right_attend(x, y, mask).mean(1),
        lambda x, y, mask: (x @ y.mT).masked_fill(~mask[:, None], -torch.inf).softmax(1) @ y,
        lambda x, y, mask: (x @ y.mT / 2).masked_fill(~mask[:, None], -torch.inf).softmax(-1) @ y,
        lambda x, y, mask: (x @ y.mT).softmax(-1) @ y,
        lambda x, y, mask: (x @ y.mT) @ y,
        lambda x, y, mask: right_attend(x, y, mask).detach() + 0 * y.sum(),
    ],
    "06.even": [45.1, 0.232, 0.1, 1.0, math.e / (math.e + 10 / math.e), -0.45],
    "06.break": [
        0,
        torch.zeros(2),
        torch.tensor([9.0, -9.0]),
        torch.tensor([-2.0, -3.0]),
        torch.tensor([2.0, 3.0]),
        torch.tensor([1.0, -0.5]),
    ],
    "06.explore": [("only one text",), ("a", "b c"), ("two pools will agree", "they did"), (1, 2)],
}
