"""Answers to the exercises of notebook 00, written differently from the references."""


def by_list(v, query, k):
    unit = [row / row.norm() for row in v]
    return sorted(range(len(v)), key=lambda row: -float(unit[row] @ query))[:k]


RIGHT = {
    "00.search": [by_list],
}
