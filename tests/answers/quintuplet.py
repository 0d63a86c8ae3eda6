"""Answers to the exercises of notebook 09: right ones, and typical mistakes."""

import torch


def hinge(margin, positive, negative):
    return (margin - positive + negative).clamp(min=0)


def right_triplet(positive, online, offline, margin=0.2, offline_margin=0.0):
    near = hinge(margin, positive, online[0]) + hinge(margin, positive, online[1])
    far = hinge(offline_margin, positive, offline[0]) + hinge(offline_margin, positive, offline[1])
    return (near + far).sum()


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


def right_pairs(positive, of_text, of_picture, offline_margin=0.0):
    (own_picture, text), (picture, own_text) = of_text, of_picture
    pair, swapped = (picture * text).sum(-1), (own_picture * own_text).sum(-1)
    return (hinge(offline_margin, positive, pair) + hinge(offline_margin, positive, swapped)).sum()


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


def owners_apart(positive, of_text, of_picture, offline_margin=0.0):
    return right_pairs(positive, (of_picture[0], of_text[1]), (of_text[0], of_picture[1]), offline_margin)


def one_pair(positive, of_text, of_picture, offline_margin=0.0):
    return hinge(offline_margin, positive, (of_picture[0] * of_text[1]).sum(-1)).sum()


def one_hinge(positive, of_text, of_picture, offline_margin=0.0):
    both = (of_picture[0] * of_text[1]).sum(-1) + (of_text[0] * of_picture[1]).sum(-1)
    return hinge(offline_margin, positive, both).sum()


def by_matrices(positive, of_text, of_picture, offline_margin=0.0):
    pair, own = of_picture[0] @ of_text[1].T, of_text[0] @ of_picture[1].T
    return sum(hinge(offline_margin, positive[:, None], one).sum() for one in (pair, own))


def right_weights(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    return ((beta - (offline - online) / alpha) * hinge(margin, positive, online)).sum()


def weights_by_division(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    return torch.dot(torch.relu(margin + online - positive), beta * alpha - offline + online) / alpha


def looped_weights(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    rows = zip(positive, online, offline, strict=True)
    return sum((beta - (o - a) / alpha) * torch.relu(margin - s + a) for s, a, o in rows)


def wrong_sign(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    return ((beta - (online - offline) / alpha) * hinge(margin, positive, online)).sum()


def against_positive(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    return ((beta - (offline - positive) / alpha) * hinge(margin, positive, online)).sum()


def clamped(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    weight = (beta - (offline - online) / alpha).clamp(min=0)
    return (weight * hinge(margin, positive, online)).sum()


def detached(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    weight = (beta - (offline - online) / alpha).detach()
    return (weight * hinge(margin, positive, online)).sum() + 0 * offline.sum()


def sums_multiplied(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    return (beta - (offline - online) / alpha).sum() * hinge(margin, positive, online).sum()


def right_gradient(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    gap = margin - positive + online
    weight = beta - (offline - online) / alpha
    open_online, open_offline = (gap > 0).float(), (offline > positive).float()
    return (
        -open_online * weight - open_offline,
        open_online * (weight + gap / alpha),
        open_offline - open_online * gap / alpha,
    )


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


def constant_weight(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    weight = beta - (offline - online) / alpha
    near, far = (margin - positive + online > 0).float(), (offline > positive).float()
    return -near * weight - far, near * weight, far


def last_two_swapped(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    first, second, third = right_gradient(positive, online, offline, margin, beta, alpha)
    return first, third, second


def without_alpha(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    gap = margin - positive + online
    near, far = (gap > 0).float(), (offline > positive).float()
    weight = beta - (offline - online) / alpha
    return -near * weight - far, near * (weight + gap), far - near * gap


def margin_in_both(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    first, second, third = right_gradient(positive, online, offline, margin, beta, alpha)
    far, wide = (offline > positive).float(), (margin - positive + offline > 0).float()
    return first + far - wide, second, third - far + wide


def by_autograd(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    found = [one.clone().requires_grad_() for one in (positive, online, offline)]
    loss = right_weights(*found, margin, beta, alpha) + hinge(0.0, found[0], found[2]).sum()
    return torch.autograd.grad(loss, found)


RIGHT = {
    "09.triplet": [right_triplet, stacked_triplet, looped_triplet],
    "09.shared": ["a", "b", " C "],
    "09.pairs": [right_pairs, pairs_by_products, pairs_by_einsum],
    "09.weights": [right_weights, weights_by_division, looped_weights],
    "09.gradient": [right_gradient, as_in_the_paper, looped_gradient],
    "09.negative": [0.55, torch.tensor(0.55), 0.1 + 1.5 * 0.3],
    "09.break": [[0.5] * 7, torch.ones(7), (0.2, 0.9, 0.4, 0.1, 0.2, -1, 0)],
    "09.explore": [
        ("a smaller alpha weighs more sharply", "it ended lower, in this one run"),
        ["shorter lists hold more true captions", "the difference is smaller than I thought"],
        ("I expect no difference at all", "both numbers are nearly the same"),
    ],
}
WRONG = {
    "09.triplet": [
        lambda *found: right_triplet(*found) * torch.ones(2),
        lambda *found: right_triplet(*found) / 6,
        lambda *found: right_triplet(*found[:3]),
        lambda *found: right_triplet(*found[:3], 0.2, 0.2),
        lambda positive, online, offline, *margins: right_triplet(
            positive, online, [positive - 9] * 2, *margins
        ),
        lambda positive, online, offline, *margins: right_triplet(
            positive, [positive - 9] * 2, offline, *margins
        ),
        lambda *found: torch.tensor(right_triplet(*found).item()),
    ],
    "09.shared": [1, "the second", "e"],
    "09.pairs": [
        owners_apart,
        one_pair,
        one_hinge,
        lambda *sides: right_pairs(*sides).expand(2),
        lambda *sides: right_pairs(*sides[:3]),
        lambda *sides: right_pairs(*sides) / len(sides[0]),
        lambda *sides: torch.tensor(right_pairs(*sides).item()),
    ],
    "09.weights": [
        wrong_sign,
        against_positive,
        clamped,
        detached,
        lambda *found: right_weights(*found[:3]),
        lambda *found: right_weights(*found) * torch.ones(2),
    ],
    "09.gradient": [
        constant_weight,
        by_autograd,
        lambda *found: [-one for one in right_gradient(*found)],
        lambda *found: right_gradient(*found[:3]),
        lambda *found: right_gradient(*found)[:2],
        lambda *found: right_gradient(*found)[::-1],
    ],
    "09.negative": [0.45, -0.35, 0.1, 3.0, 1.45],
    "09.break": [
        [0.5] * 6,
        [0.9, 0.1, 0.2, 0, 0, 0, 0],
        [0.1, 0.2, 0.3, 0.9, 0, 0, 0],
        [5] * 7,
        [0.5, 0.6, 0.1, 0, 0, 0, 0],
    ],
    "09.explore": [("only one text",), ("a", "b c"), ("it will learn faster", "it did"), (1, 2)],
}
