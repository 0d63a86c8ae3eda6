"""Answers to the exercises of notebook 04, written differently from the references."""

import torch


def looped_sum(S, margin=0.2):
    total = torch.zeros(())
    for i in range(len(S)):
        for j in range(len(S)):
            if i != j:
                total = total + (margin + S[i, j] - S[i, i]).relu() + (margin + S[j, i] - S[i, i]).relu()
    return total


def by_hand_of_gradients(picture_tower, caption_tower, loss, optimizer, batch):
    weights = [*picture_tower.parameters(), *caption_tower.parameters()]
    cost = loss(picture_tower(batch.pictures) @ caption_tower(batch.tokens, batch.token_mask).T)
    for weight, slope in zip(weights, torch.autograd.grad(cost, weights), strict=True):
        weight.grad = slope
    optimizer.step()
    return cost.detach().item()


def by_rows_of_pairs(S, positives, margin=0.2):
    hidden = S.where(~positives, torch.tensor(-2.0))
    picture, caption = positives.nonzero(as_tuple=True)
    own = S[picture, caption]
    worst = torch.stack([hidden[picture].max(dim=1).values, hidden[:, caption].max(dim=0).values])
    return torch.relu(margin + worst - own).sum()


RIGHT = {
    "04.all": [looped_sum],
    "04.siblings": [by_rows_of_pairs],
    "04.step": [by_hand_of_gradients],
    "04.break": [0.8 * torch.kron(torch.eye(2), torch.ones(2, 2)) - 0.3],
}
