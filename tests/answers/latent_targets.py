"""Answers to the exercises of notebook 16: right ones, and typical mistakes."""

import torch
from torch.nn.functional import cosine_similarity, linear, normalize, relu


def right_decode(z, W1, W2, W3):
    inner = (z @ W1.T).relu()
    inner = (inner @ W2.T).relu()
    return inner @ W3.T


def nested_decode(z, W1, W2, W3):
    return linear(relu(linear(relu(linear(z, W1)), W2)), W3)


def masked_decode(z, W1, W2, W3):
    for weight in (W1, W2):
        z = torch.einsum("cd,hd->ch", z, weight)
        z = z * (z > 0)
    return torch.einsum("ch,th->ct", z, W3)


def relu_at_the_end(z, W1, W2, W3):
    return right_decode(z, W1, W2, W3).relu()


def linear_layers(z, W1, W2, W3):
    return z @ W1.T @ W2.T @ W3.T


def sigmoid_layers(z, W1, W2, W3):
    return ((z @ W1.T).sigmoid() @ W2.T).sigmoid() @ W3.T


def one_relu(z, W1, W2, W3):
    return (z @ W1.T).relu() @ W2.T @ W3.T


def transposed(z, W1, W2, W3):
    return z @ W1 @ W2 @ W3


def detached_decode(z, W1, W2, W3):
    return right_decode(z.detach(), W1, W2, W3)


def right_loss(pred, target):
    return (1 - (normalize(pred, dim=1) * normalize(target, dim=1)).sum(1)).mean()


def library_loss(pred, target):
    return 1 - cosine_similarity(pred, target, dim=1).mean()


def half_a_square(pred, target):
    gap = normalize(pred, dim=1) - normalize(target, dim=1)
    return gap.square().sum(1).mean() / 2


def the_cosine(pred, target):
    return 1 - right_loss(pred, target)


def summed_loss(pred, target):
    return len(pred) * right_loss(pred, target)


def not_scaled(pred, target):
    return (1 - (pred * target).sum(1)).mean()


def all_pairs(pred, target):
    return (1 - normalize(pred, dim=1) @ normalize(target, dim=1).T).mean()


def one_each(pred, target):
    return 1 - cosine_similarity(pred, target, dim=1)


def detached_loss(pred, target):
    return right_loss(pred.detach(), target)


def right_path(rec, bound, initial=1.0, lr=5e-3, momentum=0.9, maximum=100.0):
    value, velocity, used = initial, None, []
    for one in rec:
        used.append(value)
        g = one / bound - 1
        velocity = g if velocity is None else momentum * velocity + (1 - momentum) * g
        value = min(max(value + lr * velocity, 0.0), maximum)
    return used


def by_an_optimizer(rec, bound, initial=1.0, lr=5e-3, momentum=0.9, maximum=100.0):
    value = torch.tensor(float(initial))
    ascent = torch.optim.SGD([value], lr, momentum=momentum, dampening=momentum, maximize=True)
    used = []
    for one in rec:
        used.append(value.clone())
        value.grad = torch.tensor(one / bound - 1)
        ascent.step()
        value.clamp_(0, maximum)
    return torch.stack(used)


def in_a_tensor(rec, bound, initial=1.0, lr=5e-3, momentum=0.9, maximum=100.0):
    g = torch.as_tensor(rec) / bound - 1
    used, velocity = [torch.tensor(float(initial))], g[0]
    for one in g[1:]:
        used.append((used[-1] + lr * velocity).clamp(0, maximum))
        velocity = momentum * velocity + (1 - momentum) * one
    return torch.stack(used)


def stepped_first(rec, bound, initial=1.0, lr=5e-3, momentum=0.9, maximum=100.0):
    return right_path([*rec, 0.0], bound, initial, lr, momentum, maximum)[1:]


def descends(rec, bound, initial=1.0, lr=5e-3, momentum=0.9, maximum=100.0):
    return right_path([2 * bound - one for one in rec], bound, initial, lr, momentum, maximum)


def by_difference(rec, bound, initial=1.0, lr=5e-3, momentum=0.9, maximum=100.0):
    return right_path(rec, bound, initial, lr * bound, momentum, maximum)


def dampened_first(rec, bound, initial=1.0, lr=5e-3, momentum=0.9, maximum=100.0):
    value, velocity, used = initial, 0.0, []
    for one in rec:
        used.append(value)
        velocity = momentum * velocity + (1 - momentum) * (one / bound - 1)
        value = min(max(value + lr * velocity, 0.0), maximum)
    return used


def undampened(rec, bound, initial=1.0, lr=5e-3, momentum=0.9, maximum=100.0):
    value, velocity, used = initial, 0.0, []
    for one in rec:
        used.append(value)
        velocity = momentum * velocity + (one / bound - 1)
        value = min(max(value + lr * velocity, 0.0), maximum)
    return used


def no_momentum(rec, bound, initial=1.0, lr=5e-3, momentum=0.9, maximum=100.0):
    return right_path(rec, bound, initial, lr, 0.0, maximum)


def free(rec, bound, initial=1.0, lr=5e-3, momentum=0.9, maximum=100.0):
    raw, velocity, used = initial, None, []
    for one in rec:
        used.append(min(max(raw, 0.0), maximum))
        g = one / bound - 1
        velocity = g if velocity is None else momentum * velocity + (1 - momentum) * g
        raw += lr * velocity
    return used


RIGHT = {
    "16.decoder": (right_decode, nested_decode, masked_decode),
    "16.loss": (right_loss, library_loss, half_a_square),
    "16.weight": (5, 1 / 0.2, torch.tensor(5.0)),
    "16.multiplier": (right_path, by_an_optimizer, in_a_tensor),
    "16.windup": (300, 301, torch.tensor(300.0)),
    "16.bounds": ("0.1", "0.3", " 0.6"),
    "16.break": (0.001, 0.0015, torch.tensor(1e-4)),
    "16.cost": (2_490_368, 2 * 1024**2 + 1024 * 384, torch.tensor(2490368)),
    "16.explore": (
        ("I expect that a higher bound changes little.", "It changed the sum by less than a seed does."),
        ["a free multiplier winds up", "it did not, in so few steps"],
        ("a slower multiplier helps less", "the sum stayed where it was"),
    ),
}
"""For each exercise, answers that must pass: the solution, and the same written in other ways."""

WRONG = {
    "16.decoder": (relu_at_the_end, linear_layers, sigmoid_layers, one_relu, transposed, detached_decode),
    "16.loss": (the_cosine, summed_loss, not_scaled, all_pairs, one_each, detached_loss),
    "16.weight": (0.2, 4, 1, 25),
    "16.multiplier": (
        stepped_first,
        descends,
        by_difference,
        dampened_first,
        undampened,
        no_momentum,
        free,
        lambda rec, bound, **options: rec[0],
    ),
    "16.windup": (500, 150, 0, 1000, 12),
    "16.bounds": ("0.15", "none of them", ""),
    "16.break": (0, 0.5, 0.01, -1),
    "16.cost": (1_441_792, 4_980_736, 2_490, 1_048_576),
    "16.explore": ("it gets worse", ("", "it did get worse"), ("I expect a change", "I expect a change")),
}
"""Typical mistakes, each of which must fail."""
