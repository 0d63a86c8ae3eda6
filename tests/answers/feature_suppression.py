"""Answers to the exercises of notebook 15: right ones, and typical mistakes."""

import math

import torch
from torch.nn.functional import cross_entropy


def found(S, owner, k):
    return (S[owner, torch.arange(len(owner))] <= S).sum(0) <= k


def right_reliance(right, swapped, owner, k=10):
    lost = found(right, owner, k) & ~found(swapped, owner, k)
    return lost.sum() / found(right, owner, k).sum()


def looped_reliance(right, swapped, owner, k=10):
    before = lost = 0
    for caption, own in enumerate(owner.tolist()):
        ranks = []
        for S in (right, swapped):
            others = torch.cat([S[:own, caption], S[own + 1 :, caption]])
            ranks.append(int((others >= S[own, caption]).sum()))
        before += ranks[0] < k
        lost += ranks[0] < k <= ranks[1]
    return lost / before


def share_kept(right, swapped, owner, k=10):
    return found(swapped, owner, k)[found(right, owner, k)].float().mean()


def one_minus_kept(right, swapped, owner, k=10):
    return 1 - share_kept(right, swapped, owner, k)


def of_all_captions(right, swapped, owner, k=10):
    return (found(right, owner, k) & ~found(swapped, owner, k)).float().mean()


def two_counts(right, swapped, owner, k=10):
    return 1 - found(swapped, owner, k).sum() / found(right, owner, k).sum()


def off_by_one(right, swapped, owner, k=10):
    return right_reliance(right, swapped, owner, k - 1)


def ties_in_favour(right, swapped, owner, k=10):
    columns = torch.arange(len(owner))
    before, after = ((S[owner, columns] < S).sum(0) < k for S in (right, swapped))
    return (before & ~after).sum() / before.sum()


def always_ten(right, swapped, owner, k=10):
    return right_reliance(right, swapped, owner, 5)


def right_probe(z, said, alpha=1.0):
    z, said = z - z.mean(0), said - said.mean(0)
    return torch.linalg.solve(z.T @ z + alpha * torch.eye(z.shape[1]), z.T @ said)


def inverted_probe(z, said, alpha=1.0):
    z, said = z - z.mean(0), said - said.mean(0)
    return (z.T @ z + alpha * torch.eye(z.shape[1])).inverse() @ (z.T @ said)


def probe_of_captions(z, said, alpha=1.0):
    """The same by a matrix of captions with captions, for whoever knows it."""
    z, said = z - z.mean(0), said - said.mean(0)
    return z.T @ torch.linalg.solve(z @ z.T + alpha * torch.eye(len(z)), said)


def without_means(z, said, alpha=1.0):
    return torch.linalg.solve(z.T @ z + alpha * torch.eye(z.shape[1]), z.T @ said)


def without_alpha(z, said, alpha=1.0):
    return torch.linalg.lstsq(z - z.mean(0), said - said.mean(0)).solution


def of_the_mean(z, said, alpha=1.0):
    return right_probe(z, said, alpha * len(z))


def alpha_everywhere(z, said, alpha=1.0):
    z, said = z - z.mean(0), said - said.mean(0)
    return torch.linalg.solve(z.T @ z + alpha, z.T @ said)


def right_pulls(q, v, own, tau=0.05):
    weights = -(v @ q / tau).softmax(0)
    weights[own] += 1
    return weights @ v, weights[:, None] * q


def spelled_out(q, v, own, tau=0.05):
    exponentials = torch.exp(torch.mv(v, q) / tau)
    Z = exponentials / exponentials.sum()
    dq, dv = (1 - Z[own]) * v[own], torch.empty_like(v)
    for row in range(len(v)):
        dv[row] = (1 - Z[own]) * q if row == own else -Z[row] * q
        if row != own:
            dq = dq - Z[row] * v[row]
    return dq, dv


def by_one_hot(q, v, own, tau=0.05):
    target = torch.nn.functional.one_hot(torch.tensor(own), len(v))
    pull = target - torch.log_softmax(v @ q / tau, 0).exp()
    return (pull[:, None] * v).sum(0), torch.outer(pull, q)


def pushes(q, v, own, tau=0.05):
    return tuple(-one for one in right_pulls(q, v, own, tau))


def gradients(q, v, own, tau=0.05):
    return tuple(-one / tau for one in right_pulls(q, v, own, tau))


def no_temperature(q, v, own, tau=0.05):
    return right_pulls(q, v, own, 1.0)


def full_pull(q, v, own, tau=0.05):
    weights = -(v @ q / tau).softmax(0)
    weights[own] = 1
    return weights @ v, weights[:, None] * q


def never_pulled(q, v, own, tau=0.05):
    weights = -(v @ q / tau).softmax(0)
    return weights @ v, weights[:, None] * q


def negatives_alone(q, v, own, tau=0.05):
    logits = v @ q / tau
    logits[own] = -torch.inf
    weights = -logits.softmax(0)
    weights[own] = 1
    return weights @ v, weights[:, None] * q


def automatic(q, v, own, tau=0.05):
    q, v = q.clone().requires_grad_(), v.clone().requires_grad_()
    loss = -(v @ q / tau).log_softmax(0)[own]
    return tuple(-tau * one for one in torch.autograd.grad(loss, (q, v)))


def right_places(logits, words, mask):
    log_p = logits.log_softmax(2).gather(2, words[:, :, None])[:, :, 0]
    return -log_p.masked_fill(~mask, 0).sum(0) / mask.sum(0)


def crossed_places(logits, words, mask):
    costs = cross_entropy(logits.transpose(1, 2), words, reduction="none")
    return torch.where(mask, costs, 0).sum(0) / mask.sum(0)


def place_by_place(logits, words, mask):
    return torch.stack(
        [
            cross_entropy(logits[mask[:, place], place], words[mask[:, place], place])
            for place in range(words.shape[1])
        ]
    )


def all_costs(logits, words):
    return -logits.log_softmax(2).gather(2, words[:, :, None])[:, :, 0]


def summed(logits, words, mask):
    return (all_costs(logits, words) * mask).sum(0)


def over_all_captions(logits, words, mask):
    return (all_costs(logits, words) * mask).mean(0)


def padding_counts(logits, words, mask):
    return all_costs(logits, words).mean(0)


def padding_times_zero(logits, words, mask):
    return (all_costs(logits, words) * mask).sum(0) / mask.sum(0)


def logits_alone(logits, words, mask):
    return -(logits.gather(2, words[:, :, None])[:, :, 0] * mask).sum(0) / mask.sum(0)


def probabilities(logits, words, mask):
    return ((-all_costs(logits, words)).exp() * mask).sum(0) / mask.sum(0)


def of_each_caption(logits, words, mask):
    return (all_costs(logits, words) * mask).sum(1) / mask.sum(1)


LEFT = 63 * math.exp(-10) / (1 + 63 * math.exp(-10))

RIGHT = {
    "15.guess": ("right", "swapped", " Gone "),
    "15.reliance": (right_reliance, looped_reliance, one_minus_kept),
    "15.probe": (right_probe, inverted_probe, probe_of_captions),
    "15.gradient": (right_pulls, spelled_out, by_one_hot),
    "15.vanish": (LEFT, 63 * math.exp(-10), torch.tensor(0.00285)),
    "15.break": (0.5, 2 / math.log(63) + 1e-6, torch.tensor(1.0)),
    "15.share": (255 / 32, 7.97, torch.tensor(8.0)),
    "15.places": (right_places, crossed_places, place_by_place),
    "15.explore": (
        ("I expect that a wider vector relies on it less.", "It relied on it as much as before."),
        ["a warm temperature changes little", "it found less in all three tests"],
        ("the triplet loss stops sooner", "it relied on the marks a little more"),
    ),
}
"""For each exercise, answers that must pass: the solution, and the same written in other ways."""

WRONG = {
    "15.guess": ("none", "all of them", ""),
    "15.reliance": (
        share_kept,
        of_all_captions,
        two_counts,
        off_by_one,
        ties_in_favour,
        always_ten,
        lambda right, swapped, owner, k=10: found(right, owner, k),
    ),
    "15.probe": (
        without_means,
        without_alpha,
        of_the_mean,
        alpha_everywhere,
        lambda z, said, alpha=1.0: right_probe(z, said),
        lambda z, said, alpha=1.0: right_probe(z, said, alpha).T,
    ),
    "15.gradient": (
        pushes,
        gradients,
        no_temperature,
        full_pull,
        never_pulled,
        negatives_alone,
        automatic,
        lambda q, v, own, tau=0.05: right_pulls(q, v, own, tau)[0],
    ),
    "15.vanish": (1 - LEFT, math.exp(-10), 0.9745, 0.002897, 0.01, 0),
    "15.break": (0.05, 0.4, 0, -1),
    "15.share": (0.125, 7, 255, 4, 0),
    "15.places": (
        summed,
        over_all_captions,
        padding_counts,
        padding_times_zero,
        logits_alone,
        probabilities,
        of_each_caption,
    ),
    "15.explore": ("it gets worse", ("", "it did get worse"), ("I expect a change", "I expect a change")),
}
"""Typical mistakes, each of which must fail."""
