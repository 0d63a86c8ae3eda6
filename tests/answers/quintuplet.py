"""Answers to the exercises of notebook 09, written differently from the references."""

import torch


def stacked_triplet(positive, online, offline, *margins):
    margins = margins or (0.2, 0.0)
    bars = torch.tensor([margins[0]] * 2 + [margins[1]] * 2)[:, None]
    return torch.relu(bars - positive + torch.stack([*online, *offline])).sum()


def pairs_by_products(positive, of_text, of_picture, offline_margin=0.0):
    pair = (of_picture[0] @ of_text[1].T).diag()
    swapped = (of_text[0] @ of_picture[1].T).diag()
    return torch.relu(offline_margin - positive + torch.stack([pair, swapped])).sum()


def weights_by_division(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    return torch.dot(torch.relu(margin + online - positive), beta * alpha - offline + online) / alpha


def as_in_the_paper(positive, online, offline, margin=0.2, beta=1.5, alpha=0.3):
    near = torch.where(margin - positive + online > 0, 1.0, 0.0)
    far = torch.where(offline - positive > 0, 1.0, 0.0)
    return [
        near * ((offline - online) / alpha - beta) - far,
        near * (beta * alpha + margin - positive - offline + 2 * online) / alpha,
        far - torch.relu(margin - positive + online) / alpha,
    ]


RIGHT = {
    "09.triplet": [stacked_triplet],
    "09.pairs": [pairs_by_products],
    "09.weights": [weights_by_division],
    "09.gradient": [as_in_the_paper],
    "09.break": [[0.5] * 7, torch.ones(7), (0.2, 0.9, 0.4, 0.1, 0.2, -1, 0)],
}
