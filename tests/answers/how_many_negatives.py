"""Answers to the exercises of notebook 11: right ones, and typical mistakes."""

import math

import numpy as np
import torch
from torch.nn.functional import cross_entropy, softplus


def right_loss(S, K, temperature=0.05):
    own = S.diag()[:, None]
    others = S.masked_fill(torch.eye(len(S), dtype=torch.bool), -torch.inf)
    hardest = others.topk(K, dim=1).values, others.topk(K, dim=0).values.T
    logits = [torch.cat([own, hard], dim=1) / temperature for hard in hardest]
    return -sum(one.log_softmax(1)[:, 0].mean() for one in logits)


def looped_loss(S, K, temperature=0.05):
    terms = []
    for line, place in [*zip(S, range(len(S)), strict=True), *zip(S.T, range(len(S)), strict=True)]:
        others = torch.cat([line[:place], line[place + 1 :]]) / temperature
        wrong = others.sort(descending=True).values[:K].logsumexp(0)
        terms.append(softplus(wrong - line[place] / temperature))
    return torch.stack(terms).sum() / len(S)


def by_cross_entropy(S, K, temperature=0.05):
    total = 0
    for scores in (S, S.T):
        order = (scores - 10 * torch.eye(len(S))).argsort(1, descending=True)[:, :K]
        logits = torch.cat([scores.diag()[:, None], scores.gather(1, order)], dim=1)
        total = total + cross_entropy(logits / temperature, torch.zeros(len(S), dtype=torch.long))
    return total


def one_way(S, K, temperature=0.05):
    others = S.masked_fill(torch.eye(len(S), dtype=torch.bool), -torch.inf)
    logits = torch.cat([S.diag()[:, None], others.topk(K, dim=1).values], dim=1) / temperature
    return -logits.log_softmax(1)[:, 0].mean()


def without_mask(S, K, temperature=0.05):
    logits = S / temperature
    wrong = [logits.topk(min(K, len(S)), dim=dim).values.logsumexp(dim) for dim in (1, 0)]
    return sum(softplus(one - logits.diag()).mean() for one in wrong)


def zero_for_a_mask(S, K, temperature=0.05):
    """Hides the pair behind a 0, reads its similarity anew, and so lets it in where negatives are below 0."""
    filled = S.masked_fill(torch.eye(len(S), dtype=torch.bool), 0)
    total = 0
    for scores, hidden in ((S, filled), (S.T, filled.T)):
        picked = scores.gather(1, hidden.argsort(1, descending=True)[:, :K])
        logits = torch.cat([S.diag()[:, None], picked], dim=1) / temperature
        total = total - logits.log_softmax(1)[:, 0].mean()
    return total


def all_negatives(S, K, temperature=0.05):
    return right_loss(S, len(S) - 1, temperature)


def right_k(S):
    B = len(S)
    others = S.masked_fill(torch.eye(B, dtype=torch.bool), 0)
    gamma = float(S.diag().mean() + (-others).exp().mean())
    return max(1, min(math.floor(B * math.cos(max(gamma, 0) ** 1.25)) + 1, B - 1))


def torch_k(S):
    B = len(S)
    uniform = ((-S).exp().sum() - (-S.diag()).exp().sum() + B) / B**2
    gamma = (S.trace() / B + uniform).double().clamp(min=0)
    return ((B * torch.cos(gamma**1.25)).floor().long() + 1).clamp(max=B - 1).clamp(min=1)


def looped_k(S):
    B = len(S)
    align = sum(S[i, i].item() for i in range(B)) / B
    uniform = sum(
        1.0 if i == j else math.exp(-x) for i, row in enumerate(S.tolist()) for j, x in enumerate(row)
    )
    gamma = align + uniform / B**2
    K = int(np.floor(B * np.cos(gamma**1.25))) + 1 if gamma > 0 else B + 1
    return sorted((1, K, B - 1))[1] if B > 2 else 1


def printed_k(S):
    gamma = float(S.diag().mean() + S.exp().mean().log())
    return max(1, min(math.floor(len(S) * math.cos(gamma * math.pi / 4)), len(S) - 1))


def unbounded_k(S):
    others = S.masked_fill(torch.eye(len(S), dtype=torch.bool), 0)
    gamma = float(S.diag().mean() + (-others).exp().mean())
    return math.floor(len(S) * math.cos(max(gamma, 0) ** 1.25)) + 1


def with_the_pairs_k(S):
    gamma = float(S.diag().mean() + (-S).exp().mean())
    return max(1, min(math.floor(len(S) * math.cos(max(gamma, 0) ** 1.25)) + 1, len(S) - 1))


def without_the_power_k(S):
    others = S.masked_fill(torch.eye(len(S), dtype=torch.bool), 0)
    gamma = float(S.diag().mean() + (-others).exp().mean())
    return max(1, min(math.floor(len(S) * math.cos(max(gamma, 0))) + 1, len(S) - 1))


def negative_power_k(S):
    others = S.masked_fill(torch.eye(len(S), dtype=torch.bool), 0)
    gamma = float(S.diag().mean() + (-others).exp().mean())
    return max(1, min(math.floor(len(S) * math.cos(gamma**1.25)) + 1, len(S) - 1))


FLOOR = 2 * math.log(2)

RIGHT = {
    "11.loss": [right_loss, looped_loss, by_cross_entropy],
    "11.k": [24, 24.0, torch.tensor(24)],
    "11.rule": [right_k, torch_k, looped_k],
    "11.fall": ["at once", "evenly", "later", "hardly"],
    "11.break": [FLOOR, torch.tensor(FLOOR), 1.386],
    "11.explore": [
        ("it learns more slowly", "rsum 200 against 475"),
        ["no difference is expected", "no difference, 474 and 475"],
        ("a higher temperature helps the schedule", "it did not, see the curves"),
    ],
}
WRONG = {
    "11.loss": [
        lambda S, K, temperature=0.05: right_loss(S, K, temperature).item(),
        one_way,
        without_mask,
        zero_for_a_mask,
        all_negatives,
        lambda S, K, temperature=0.05: right_loss(S, K, 0.05),
        lambda S, K, temperature=0.05: right_loss(S.detach(), K, temperature),
    ],
    "11.k": [23, 23.3, 35, 127, 70, 0],
    "11.rule": [
        lambda S: float(right_k(S)),
        printed_k,
        without_the_power_k,
        with_the_pairs_k,
        unbounded_k,
        negative_power_k,
    ],
    "11.fall": ["falls", "sooner", 3, ""],
    "11.break": [0, FLOOR / 2, 80, 128 * FLOOR, 1],
    "11.explore": [
        "it learns more slowly",
        ("slower", "rsum 200 against 475"),
        ("it learns more slowly", "yes"),
        5,
    ],
}
