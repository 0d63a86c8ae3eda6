"""Answers to the exercises of notebook 16, written differently from the references."""

import torch
from torch.nn.functional import normalize


def masked_decode(z, W1, W2, W3):
    for weight in (W1, W2):
        z = torch.einsum("cd,hd->ch", z, weight)
        z = z * (z > 0)
    return torch.einsum("ch,th->ct", z, W3)


def half_a_square(pred, target):
    gap = normalize(pred, dim=1) - normalize(target, dim=1)
    return gap.square().sum(1).mean() / 2


def in_a_tensor(rec, bound, initial=1.0, lr=5e-3, momentum=0.9, maximum=100.0):
    g = torch.as_tensor(rec) / bound - 1
    used, velocity = [torch.tensor(float(initial))], g[0]
    for one in g[1:]:
        used.append((used[-1] + lr * velocity).clamp(0, maximum))
        velocity = momentum * velocity + (1 - momentum) * one
    return torch.stack(used)


RIGHT = {
    "16.decoder": [masked_decode],
    "16.loss": [half_a_square],
    "16.multiplier": [in_a_tensor],
}
