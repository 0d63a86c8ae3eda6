"""Answers to the exercises of notebook 01: right ones, and typical mistakes."""

import itertools

import numpy as np


def by_formula(truth, owner, batch):
    captions, pictures = truth.shape
    foreign = truth.sum() - captions
    return batch * (batch - 1) * foreign / (captions * (pictures - 1))


def by_mask(truth, owner, batch):
    own = owner[:, None] == np.arange(truth.shape[1])
    return (batch**2 - batch) * truth[~own].mean()


def by_looking_at_every_pair(truth, owner, batch):
    cells = [truth[c, i] for c, i in itertools.product(*map(range, truth.shape)) if owner[c] != i]
    return batch * (batch - 1) * sum(map(int, cells)) / len(cells)


def as_if_a_picture_had_one_caption(truth, owner, batch):
    pictures = truth.shape[1]
    return batch * (batch - 1) * (truth.sum() - len(truth)) / (pictures * (pictures - 1))


RIGHT = {
    "01.share": [40, 100 * 4 / 10, np.float64(40.0)],
    "01.sentence": [
        "A girl holds a purple umbrella.",
        "a purple umbrella right of a brown bench",
        "A girl in green with a purple umbrella",
    ],
    "01.batch": [by_formula, by_mask, by_looking_at_every_pair],
    "01.break": [
        "There is a girl and another girl.",
        "a child and a girl on the beach",
        "A bench and another bench by the sea",
    ],
}
WRONG = {
    "01.share": [0.4, 60, 33.33, 22.2, 4, 25],
    "01.sentence": [
        "A zebra on the beach",
        "A girl holds a kite.",
        "Umbrella on the beach",
        "A girl and a bench",
        "A girl in a green coat holds a purple umbrella on the beach.",
        7,
    ],
    "01.batch": [
        lambda truth, owner, batch: batch * (batch - 1) * truth.mean(),
        lambda truth, owner, batch: by_formula(truth, owner, batch) * batch / (batch - 1 or 1),
        lambda truth, owner, batch: by_formula(truth, owner, batch) / 2,
        lambda truth, owner, batch: by_formula(truth, owner, 2) / 2,
        as_if_a_picture_had_one_caption,
    ],
    "01.break": [
        "A zebra and another zebra",
        "A girl on the beach",
        "two girls",
        "a boy",
        "a boy and a man",
    ],
}
