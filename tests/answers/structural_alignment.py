"""Answers to the exercises of notebook 06, written differently from the references."""

import torch
from torch.nn import functional as F


def by_exponentials(x, mask, W):
    logits = torch.einsum("pd,bnd->bpn", W, x)
    logits = logits.where(mask[:, None], torch.tensor(-1e9))
    share = (logits - logits.amax(-1, keepdim=True)).exp() * mask[:, None]
    alpha = share / share.sum(-1, keepdim=True)
    return torch.einsum("bpn,bnd->bpd", alpha, x), alpha


def by_matrices(p, q, caption, picture, margin=0.2):
    p, q = p / p.norm(dim=-1, keepdim=True), q / q.norm(dim=-1, keepdim=True)
    S = torch.einsum("bpd,cpd->bcp", p, q)
    rows = torch.arange(len(p))
    own = S[rows, rows]
    return ((margin + S[rows, caption] - own).relu() + (margin + S[picture, rows] - own).relu()).sum()


def by_einsum(x, y, mask):
    products = torch.einsum("bnd,bld->bnl", x, y).where(mask[:, None, :], torch.tensor(-torch.inf))
    return torch.einsum("bnl,bld->bnd", F.softmax(products, dim=2), y)


RIGHT = {
    "06.pool": [by_exponentials],
    "06.hinge": [by_matrices],
    "06.attend": [by_einsum],
}
