"""Answers to the exercises of notebook 09, written differently from the references."""

import torch


def hinge(margin, positive, negative):
    return (margin - positive + negative).clamp(min=0)


def stacked_triplet(positive, online, offline, *margins):
    margins = margins or (0.2, 0.0)
    bars = torch.tensor([margins[0]] * 2 + [margins[1]] * 2)[:, None]
    return torch.relu(bars - positive + torch.stack([*online, *offline])).sum()


def looped_triplet(positive, online, offline, margin=0.2, offline_margin=0.0):
    total = torch.zeros(())
    for row in range(len(positive)):
        for negatives, bar in ((online, margin), (offline, offline_margin)):
            for negative in negatives:
                total = total + torch.relu(bar - positive[row] + negative[row])
    return total


def swapped(positive, online, offline, margin=0.2, offline_margin=0.0):
    near = [hinge(margin, one, positive) for one in online]
    return torch.stack([*near, *(hinge(offline_margin, one, positive) for one in offline)]).sum()


def pairs_by_products(positive, of_text, of_picture, offline_margin=0.0):
    pair = (of_picture[0] @ of_text[1].T).diag()
    swapped = (of_text[0] @ of_picture[1].T).diag()
    return torch.relu(offline_margin - positive + torch.stack([pair, swapped])).sum()


def pairs_by_einsum(positive, of_text, of_picture, offline_margin=0.0):
    costs = [
        torch.relu(offline_margin - positive + torch.einsum("bd,bd->b", v, t))
        for v, t in ((of_text[0], of_picture[1]), (of_picture[0], of_text[1]))
    ]
    return sum(cost.sum() for cost in costs)


def weights_by_division(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    return torch.dot(torch.relu(margin + online - positive), beta * alpha - offline + online) / alpha


def looped_weights(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    rows = zip(positive, online, offline, strict=True)
    return sum((beta - (o - a) / alpha) * torch.relu(margin - s + a) for s, a, o in rows)


def as_in_the_paper(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    near = torch.where(margin - positive + online > 0, 1.0, 0.0)
    far = torch.where(offline - positive > 0, 1.0, 0.0)
    return [
        near * ((offline - online) / alpha - beta) - far,
        near * (beta * alpha + margin - positive - offline + 2 * online) / alpha,
        far - torch.relu(margin - positive + online) / alpha,
    ]


def looped_gradient(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    rows = []
    for s, a, o in zip(positive, online, offline, strict=True):
        d = torch.zeros(3)
        if margin - s + a > 0:
            d[0] -= beta - (o - a) / alpha
            d[1] += beta - (o - a) / alpha + (margin - s + a) / alpha
            d[2] -= (margin - s + a) / alpha
        if o - s > 0:
            d[0] -= 1
            d[2] += 1
        rows.append(d)
    return tuple(torch.stack(rows).T)


RIGHT = {
    "09.triplet": [stacked_triplet, looped_triplet],
    "09.pairs": [pairs_by_products, pairs_by_einsum],
    "09.weights": [weights_by_division, looped_weights],
    "09.gradient": [as_in_the_paper, looped_gradient],
    "09.break": [[0.5] * 7, torch.ones(7), (0.2, 0.9, 0.4, 0.1, 0.2, -1, 0)],
}
