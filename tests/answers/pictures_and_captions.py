"""Answers to the exercises of notebook 01, written differently from the references."""

import itertools


def consistent_by_sets(given, claimed, facts):
    pairs = {(name, a, b) for name, i, j in claimed for a, b in itertools.product(given[i], given[j])}
    return len(set().union(*given)) == sum(map(len, given)) and pairs <= set(facts)


def by_looking_at_every_pair(truth, owner, batch):
    cells = [truth[c, i] for c, i in itertools.product(*map(range, truth.shape)) if owner[c] != i]
    return batch * (batch - 1) * sum(map(int, cells)) / len(cells)


RIGHT = {
    "01.true": [consistent_by_sets],
    "01.sentence": ["a purple umbrella right of a brown bench", "A girl in green with a purple umbrella"],
    "01.batch": [by_looking_at_every_pair],
    "01.break": ["a child and a girl on the beach", "A bench and another bench by the sea"],
}
