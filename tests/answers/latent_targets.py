"""Answers to the exercises of notebook 16, written differently from the references."""

import torch


def in_a_tensor(rec, bound, initial=1.0, lr=5e-3, momentum=0.9, maximum=100.0):
    g = torch.as_tensor(rec) / bound - 1
    used, velocity = [torch.tensor(float(initial))], g[0]
    for one in g[1:]:
        used.append((used[-1] + lr * velocity).clamp(0, maximum))
        velocity = momentum * velocity + (1 - momentum) * one
    return torch.stack(used)


RIGHT = {
    "16.multiplier": [in_a_tensor],
}
