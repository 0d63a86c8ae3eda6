"""Answers to the exercises of notebook 02: right ones, and typical mistakes."""

import torch
from torch import nn


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


RIGHT = {
    "02.count": [
        8_146_944,
        sum(p.numel() for p in nn.GRU(300, 1024, bidirectional=True).parameters()),
        torch.tensor(6 * 1024 * (300 + 1024 + 2)),
    ],
    "02.mean": [by_where, by_loop, by_nanmean, as_a_product],
    "02.break": [1, 1.0, torch.tensor(0.99999)],
}
WRONG = {
    "02.count": [
        6 * 1024 * (300 + 1024),
        6 * 1024 * (300 + 1024 + 1),
        3 * 1024 * (300 + 1024 + 2),
        8 * 1024 * (300 + 1024 + 2),
        2 * 1024 * (300 + 1024 + 2),
        1024,
        8_000_000,
    ],
    "02.mean": [
        lambda x, mask: by_where(x, mask).mean(),
        lambda x, mask: by_where(x, mask) * mask.sum(1, keepdim=True),
        divided_by_all,
        summed_with_padding,
        from_the_left,
        multiplied,
        lambda x, mask: by_where(x, mask).detach(),
    ],
    "02.break": [0, -1, 0.97, 0.5, 4],
}
