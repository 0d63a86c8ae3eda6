"""Answers to the exercises of notebook 11: right ones, and typical mistakes."""

import math

import torch
from torch.nn.functional import cross_entropy, softplus


def right_siblings(S, positives, K, temperature=0.05):
    logits = S / temperature
    others = logits.masked_fill(positives, -torch.inf)
    captions = others.topk(K, dim=1).values.logsumexp(1, keepdim=True)
    pictures = others.topk(K, dim=0).values.logsumexp(0, keepdim=True)
    return (softplus(captions - logits) + softplus(pictures - logits))[positives].mean()


def looped_siblings(S, positives, K, temperature=0.05):
    prices = []
    for b, c in positives.nonzero().tolist():
        for line, hidden in ((S[b], positives[b]), (S[:, c], positives[:, c])):
            hardest = line[~hidden].sort(descending=True).values[:K]
            logits = torch.cat([S[b, c].view(1), hardest]) / temperature
            prices.append(logits.logsumexp(0) - logits[0])
    return torch.stack(prices).sum() / positives.sum()


def by_cross_entropy(S, positives, K, temperature=0.05):
    rows, columns = positives.nonzero(as_tuple=True)
    own = S[rows, columns][:, None]
    others = S.where(~positives, torch.tensor(-1e4))
    total = 0
    for negatives in (others[rows], others[:, columns].T):
        logits = torch.cat([own, negatives.topk(K, dim=1).values], dim=1) / temperature
        total = total + cross_entropy(logits, torch.zeros(len(rows), dtype=torch.long))
    return total


def one_way(S, positives, K, temperature=0.05):
    logits = S / temperature
    captions = logits.masked_fill(positives, -torch.inf).topk(K, dim=1).values.logsumexp(1, keepdim=True)
    return softplus(captions - logits)[positives].mean()


def all_negatives(S, positives, K, temperature=0.05):
    return right_siblings(S, positives, int((~positives).sum(0).min()), temperature)


def diagonal_only(S, positives, K, temperature=0.05):
    own = torch.zeros_like(positives)
    own[range(len(S)), positives.float().argmax(1)] = True
    logits = S / temperature
    others = logits.masked_fill(own, -torch.inf)
    captions = others.topk(K, dim=1).values.logsumexp(1, keepdim=True)
    pictures = others.topk(K, dim=0).values.logsumexp(0, keepdim=True)
    return (softplus(captions - logits) + softplus(pictures - logits))[positives].mean()


FLOOR = 2 * math.log1p(math.exp(4))

RIGHT = {
    "11.k": [(124, 24), [124.0, 24.0], torch.tensor([124, 24])],
    "11.bottom": [-400, torch.tensor(-400.0), -4 / 0.01],
    "11.siblings": [right_siblings, looped_siblings, by_cross_entropy],
    "11.break": [FLOOR, torch.tensor(FLOOR), 8.036],
}
WRONG = {
    "11.k": [124, (24, 124), (124, 23), (124.4, 23.3), (127, 24), (124, 70)],
    "11.bottom": [0, 400, -100, -200, 1],
    "11.siblings": [
        lambda S, positives, K, temperature=0.05: right_siblings(S, positives, K).item(),
        one_way,
        all_negatives,
        diagonal_only,
        lambda S, positives, K, temperature=0.05: right_siblings(S, positives, K, 0.05),
        lambda S, positives, K, temperature=0.05: right_siblings(S.detach(), positives, K, temperature),
    ],
    "11.break": [0, 2 * math.log(2), FLOOR / 2, 128 * FLOOR, -1],
}
