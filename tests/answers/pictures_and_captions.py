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


def consistent(given, claimed, facts):
    used = [thing for things in given for thing in things]
    pairs = [(name, a, b) for name, i, j in claimed for a in given[i] for b in given[j]]
    return len(set(used)) == len(used) and all(pair in facts for pair in pairs)


def consistent_by_sets(given, claimed, facts):
    pairs = {(name, a, b) for name, i, j in claimed for a, b in itertools.product(given[i], given[j])}
    return len(set().union(*given)) == sum(map(len, given)) and pairs <= set(facts)


def consistent_by_loops(given, claimed, facts):
    seen = set()
    for things in given:
        for thing in things:
            if thing in seen:
                return False
            seen.add(thing)
    for name, i, j in claimed:
        for a in given[i]:
            for b in given[j]:
                if (name, a, b) not in facts:
                    return False
    return True


def content_with_one_of_a_group(given, claimed, facts):
    return consistent(given, [], facts) and all(
        any((name, a, b) in facts for a in given[i] for b in given[j]) for name, i, j in claimed
    )


def as_if_entities_were_things(given, claimed, facts):
    return consistent(given, [], facts) and set(claimed) <= set(facts)


def without_direction(given, claimed, facts):
    both = [*facts, *((name, b, a) for name, a, b in facts)]
    return consistent(given, claimed, both)


def looking_at_neighbours_only(given, claimed, facts):
    new = all(one != other for one, other in itertools.pairwise(given))
    return new and all((name, a, b) in facts for name, i, j in claimed for a in given[i] for b in given[j])


def as_if_a_picture_had_one_caption(truth, owner, batch):
    pictures = truth.shape[1]
    return batch * (batch - 1) * (truth.sum() - len(truth)) / (pictures * (pictures - 1))


EXPECTED, FOUND = "Fewer, since the terse one is left out", "Fewer by almost a half"

RIGHT = {
    "01.true": [consistent, consistent_by_sets, consistent_by_loops],
    "01.predict": ["relations", "Place first", " detail "],
    "01.explore": [(EXPECTED, FOUND), [FOUND, EXPECTED], ("I expect no change", "And none was seen")],
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
    "01.true": [
        lambda given, claimed, facts: False,
        lambda given, claimed, facts: True,
        lambda given, claimed, facts: consistent(given, [], facts),
        lambda given, claimed, facts: [consistent(given, claimed, facts)],
        content_with_one_of_a_group,
        as_if_entities_were_things,
        without_direction,
        looking_at_neighbours_only,
    ],
    "01.predict": ["nobody", 7, "relations or detail"],
    "01.explore": [("", ""), (EXPECTED, "yes"), (EXPECTED, EXPECTED), 3],
    "01.share": [0, 0.4, 60, 33.33, 22.2, 4, 25],
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
