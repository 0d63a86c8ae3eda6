"""Answers to the exercises of notebook 07: right ones, and typical mistakes."""

import math

import torch
from torch.nn import functional as F


def affinities(queries, context):
    return F.normalize(queries, dim=1) @ F.normalize(context, dim=1).T


def right_weights(queries, context, smooth=9.0):
    affinity = F.leaky_relu(affinities(queries, context), 0.1)
    return (smooth * F.normalize(affinity, dim=0)).softmax(1)


def written_out_weights(queries, context, smooth=9.0):
    q = queries / queries.norm(dim=-1, keepdim=True)
    c = context / context.norm(dim=-1, keepdim=True)
    s = torch.einsum("nd,md->nm", q, c)
    s = torch.where(s > 0, s, 0.1 * s)
    s = s / s.square().sum(0).sqrt()
    shares = torch.exp(smooth * s)
    return shares / shares.sum(1, keepdim=True)


def looped_weights(queries, context, smooth=9.0):
    rows = torch.stack([F.cosine_similarity(query[None], context, dim=1) for query in queries])
    rows = torch.maximum(rows, 0.1 * rows)
    columns = [column / column.norm() for column in rows.T]
    return torch.softmax(smooth * torch.stack(columns, 1), dim=-1)


def weights_by(affinity, smooth=9.0, over=0, shared=1):
    return (smooth * F.normalize(affinity, dim=over)).softmax(shared)


def right_score(weights, queries, context, lse=6.0):
    read = weights @ F.normalize(context, dim=1)
    relevance = F.cosine_similarity(read, queries, dim=1)
    return (lse * relevance).logsumexp(0) / lse


def written_out_score(weights, queries, context, lse=6.0):
    unit = context / context.norm(dim=1, keepdim=True)
    read = torch.einsum("nm,md->nd", weights, unit)
    r = (read * queries).sum(1) / read.norm(dim=1) / queries.norm(dim=1)
    return torch.log(torch.exp(lse * r).sum()) / lse


def looped_score(weights, queries, context, lse=6.0):
    unit, total = F.normalize(context, dim=-1), 0.0
    for row, query in zip(weights, queries, strict=True):
        read = sum(share * vector for share, vector in zip(row, unit, strict=True))
        total = total + torch.exp(lse * torch.dot(F.normalize(read, dim=0), F.normalize(query, dim=0)))
    return total.log() / lse


def right_focus(weights, focus="prob"):
    trust = weights.sqrt() if focus == "prob" else torch.ones_like(weights)
    lead = weights * trust.sum(1, keepdim=True) - (weights * trust).sum(1, keepdim=True)
    kept = weights * ((lead > 0) | (weights == weights.amax(1, keepdim=True)))
    return kept / kept.sum(1, keepdim=True)


def pairwise_focus(weights, focus="prob"):
    trust = weights**0.5 if focus == "prob" else weights**0
    lead = ((weights[:, :, None] - weights[:, None, :]) * trust[:, None, :]).sum(2)
    lead = lead.scatter(1, weights.argmax(1, keepdim=True), 1.0)
    largest = weights == weights.max(1, keepdim=True).values
    kept = torch.where((lead > 0) | largest, weights, 0.0)
    return F.normalize(kept, p=1, dim=1)


def barred_focus(weights, focus="prob"):
    if focus == "equal":
        bar = weights.mean(1, keepdim=True)
    else:
        bar = (weights * weights.sqrt()).sum(1, keepdim=True) / weights.sqrt().sum(1, keepdim=True)
    bar = torch.minimum(bar, weights.amax(1, keepdim=True) * (1 - 1e-6))
    kept = weights.masked_fill(weights <= bar, 0)
    return kept / kept.sum(1, keepdim=True)


def never_keeps_the_largest(weights, focus="prob"):
    trust = weights.sqrt() if focus == "prob" else torch.ones_like(weights)
    lead = weights * trust.sum(1, keepdim=True) - (weights * trust).sum(1, keepdim=True)
    kept = weights * (lead > 1e-9)
    return kept / kept.sum(1, keepdim=True)


def right_fast(weights, affinity, gram):
    return (weights * affinity).sum(1) / ((weights @ gram) * weights).sum(1).sqrt()


def einsum_fast(weights, affinity, gram):
    square = torch.einsum("ni,ij,nj->n", weights, gram, weights)
    return torch.einsum("ni,ni->n", weights, affinity) * square**-0.5


def looped_fast(weights, affinity, gram):
    return torch.stack([a @ s / (a @ gram @ a) ** 0.5 for a, s in zip(weights, affinity, strict=True)])


RIGHT = {
    "07.weights": [right_weights, written_out_weights, looped_weights],
    "07.score": [right_score, written_out_score, looped_score],
    "07.word": [0.5, torch.tensor(0.5), math.exp(9) / (2 * math.exp(9) + 1)],
    "07.divide": ["affinity", "weight", "The same"],
    "07.break": [math.e / (math.e + 35), 0.0721, torch.tensor(0.072)],
    "07.focus": [right_focus, pairwise_focus, barred_focus],
    "07.fast": [right_fast, einsum_fast, looped_fast],
    "07.bill": [1.24e6 / (2 * 36 * 1024), 17, torch.tensor(16.8)],
    "07.explore": [
        ("the mean will be a little worse", "rsum fell by three"),
        ("without the clip nothing changes", "it did not change much"),
        ("a sharper softmax finds more", "twenty found less than nine"),
    ],
}
WRONG = {
    "07.weights": [
        lambda queries, context, smooth=9.0: right_weights(queries, context, smooth).sum(1),
        lambda queries, context, smooth=9.0: weights_by(
            F.leaky_relu(affinities(queries, context), 0.1), smooth, over=1
        ),
        lambda queries, context, smooth=9.0: weights_by(
            F.leaky_relu(affinities(queries, context), 0.1), smooth, shared=0
        ),
        lambda queries, context, smooth=9.0: weights_by(affinities(queries, context).relu(), smooth),
        lambda queries, context, smooth=9.0: weights_by(affinities(queries, context), smooth),
        lambda queries, context, smooth=9.0: (
            smooth * F.leaky_relu(affinities(queries, context), 0.1)
        ).softmax(1),
        lambda queries, context, smooth=9.0: weights_by(F.leaky_relu(queries @ context.T, 0.1), smooth),
        lambda queries, context, smooth=9.0: right_weights(queries, context),
    ],
    "07.score": [
        lambda weights, queries, context, lse=6.0: F.cosine_similarity(
            weights @ F.normalize(context, dim=1), queries, dim=1
        ),
        lambda weights, queries, context, lse=6.0: F.cosine_similarity(
            weights @ F.normalize(context, dim=1), queries, dim=1
        ).mean(),
        lambda weights, queries, context, lse=6.0: lse * right_score(weights, queries, context, lse),
        lambda weights, queries, context, lse=6.0: (
            (lse * F.cosine_similarity(weights @ context, queries, dim=1)).logsumexp(0) / lse
        ),
        lambda weights, queries, context, lse=6.0: (
            (lse * (weights @ F.normalize(context, dim=1) * F.normalize(queries, dim=1)).sum(1)).logsumexp(0)
            / lse
        ),
        lambda weights, queries, context, lse=6.0: right_score(weights, queries, context),
        lambda weights, queries, context, lse=6.0: right_score(weights, queries, context.detach(), lse),
    ],
    "07.word": [0.989, 1 / 3, 1.0, 0.7, 2],
    "07.divide": ["both", 1, ["weight"], ""],
    "07.break": [1 / 36, math.e / (math.e + 35 / math.e), 0.9957, 0.5, 0, math.e / (math.e + 36)],
    "07.focus": [
        lambda weights, focus="prob": weights.sum(1),
        lambda weights, focus="prob": weights,
        lambda weights, focus="prob": weights * (right_focus(weights, focus) > 0),
        lambda weights, focus="prob": right_focus(weights, "equal"),
        lambda weights, focus="prob": right_focus(weights, "equal" if focus == "prob" else "prob"),
        never_keeps_the_largest,
    ],
    "07.fast": [
        lambda weights, affinity, gram: (weights * affinity).sum(),
        lambda weights, affinity, gram: (weights * affinity).sum(1),
        lambda weights, affinity, gram: (weights * affinity).sum(1) / ((weights @ gram) * weights).sum(1),
        lambda weights, affinity, gram: (weights * affinity).sum(1) / weights.square().sum(1).sqrt(),
        lambda weights, affinity, gram: affinity.sum(1),
    ],
    "07.bill": [33.6, 75.6, 12, 1000],
    "07.explore": [
        "the mean will be worse",
        ("worse", "rsum fell by three"),
        ("the mean will be worse", "yes"),
        7,
    ],
}
