"""Answers to the exercises of notebook 04: right ones, and typical mistakes."""

import torch


def right_siblings(S, positives, margin=0.2):
    negatives = S.masked_fill(positives, -torch.inf)
    caption, picture = negatives.amax(1, keepdim=True), negatives.amax(0, keepdim=True)
    return ((margin + caption - S).clamp(min=0) + (margin + picture - S).clamp(min=0))[positives].sum()


def looped_siblings(S, positives, margin=0.2):
    total = torch.zeros(())
    for b, c in positives.nonzero().tolist():
        row = [S[b, j] for j in range(S.shape[1]) if not positives[b, j]]
        column = [S[i, c] for i in range(S.shape[0]) if not positives[i, c]]
        total = total + (margin + max(row) - S[b, c]).relu() + (margin + max(column) - S[b, c]).relu()
    return total


def by_rows_of_pairs(S, positives, margin=0.2):
    hidden = S.where(~positives, torch.tensor(-2.0))
    picture, caption = positives.nonzero(as_tuple=True)
    own = S[picture, caption]
    worst = torch.stack([hidden[picture].max(dim=1).values, hidden[:, caption].max(dim=0).values])
    return torch.relu(margin + worst - own).sum()


def one_caption_a_picture(S, positives, margin=0.2):
    first = positives.float().argmax(1)
    return right_siblings(S[:, first], positives[:, first], margin)


def diagonal_only(S, positives, margin=0.2):
    own = torch.zeros_like(positives)
    own[range(len(S)), positives.float().argmax(1)] = True
    negatives = S.masked_fill(own, -torch.inf)
    caption, picture = negatives.amax(1, keepdim=True), negatives.amax(0, keepdim=True)
    return ((margin + caption - S).relu() + (margin + picture - S).relu())[positives].sum()


RIGHT = {
    "04.read": [0.4, torch.tensor(0.4), 0.1 + 0.3],
    "04.siblings": [right_siblings, looped_siblings, by_rows_of_pairs],
    "04.break": [51.2, torch.tensor(51.2), 2 * 128 * 0.2],
}
WRONG = {
    "04.read": [-0.1, 0.1, 0.8, 0.2],
    "04.siblings": [
        lambda S, positives, margin=0.2: right_siblings(S, positives) * torch.ones(2),
        lambda S, positives, margin=0.2: right_siblings(S, positives) / 2,
        diagonal_only,
        one_caption_a_picture,
        lambda S, positives, margin=0.2: right_siblings(S, positives, 0.2),
        lambda S, positives, margin=0.2: right_siblings(S, positives, margin).item(),
    ],
    "04.break": [0, 25.6, 0.2, 128],
}
