"""Answers to the exercises of notebook 10, written differently from the references."""

import numpy as np
import torch


def looped_kmax(x, mask, k):
    pooled = []
    for row, real in zip(x, mask, strict=True):
        found = row[real].sort(dim=0, descending=True).values[:k]
        pooled.append(found.mean(0))
    return torch.stack(pooled)


def exponential_gpo(places, gru, linear):
    states, _ = gru(places)
    numbers = (linear(states[:, :32]) + linear(states[:, 32:])).flatten() * 5
    shares = torch.exp(numbers - numbers.max())
    return shares / shares.sum()


def divided_token(u, mask, W_tok):
    logits = torch.where(mask, (u @ W_tok).squeeze(-1), -1e9)
    shares = (logits - logits.amax(1, keepdim=True)).exp()
    return torch.einsum("bn,bnd->bd", shares / shares.sum(1, keepdim=True), u)


def looped_balance(token, x, mask, W_bal):
    embedding = torch.stack(
        [(one[real].softmax(0) * one[real]).sum(0) for one, real in zip(x, mask, strict=True)]
    )
    part = torch.sigmoid((token - embedding) @ W_bal)
    return part * token + (1 - part) * embedding


RIGHT = {
    "10.weights": [
        torch.tensor([[10.0, 0.0], [0.0, 20.0]]),
        [[5, 5], [0, 10]],
        np.array([[100.0, 0.0], [0.0, 7.0]]),
    ],
    "10.kmax": [looped_kmax],
    "10.gpo": [exponential_gpo],
    "10.token": [divided_token],
    "10.balance": [looped_balance],
}
