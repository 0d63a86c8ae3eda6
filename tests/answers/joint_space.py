"""Answers to the exercises of notebook 03: right ones, and typical mistakes."""

import torch


def right_captions(S, owner):
    own = S[owner, torch.arange(len(owner))]
    return (own <= S).sum(0) - 1


def looped_captions(S, owner):
    return [
        sum(bool(S[row, c] >= S[owner[c], c]) for row in range(len(S)) if row != owner[c])
        for c in range(len(owner))
    ]


def captions_by_gather(S, owner):
    own = S.gather(0, owner[None])
    mine = torch.arange(len(S))[:, None] == owner
    return ((own <= S) & ~mine).sum(0)


def captions_with_own(S, owner):
    return right_captions(S, owner) + 1


def strict_captions(S, owner):
    own = S[owner, torch.arange(len(owner))]
    return (own < S).sum(0)


def captions_of_the_diagonal(S, owner):
    own = S[torch.arange(len(owner)) // (len(owner) // len(S)), torch.arange(len(owner))]
    return (own <= S).sum(0) - 1


def captions_hidden_by_zero(S, owner):
    mine = torch.arange(len(S))[:, None] == owner
    return (((S * mine).amax(0) <= S) & ~mine).sum(0)


def right_ranks(S, owner):
    own = owner == torch.arange(len(S))[:, None]
    best = torch.where(own, S, -torch.inf).amax(1)
    return (torch.where(own, -torch.inf, S) >= best[:, None]).sum(1)


def looped_ranks(S, owner):
    found = []
    for row in range(len(S)):
        best = max(S[row, column] for column in range(len(owner)) if owner[column] == row)
        found.append(
            sum(bool(S[row, c] >= best) for c in range(len(owner)) if owner[c] != row),
        )
    return found


def ranks_by_lists(S, owner):
    return torch.tensor([int((row[owner != i] >= row[owner == i].max()).sum()) for i, row in enumerate(S)])


def strict_ranks(S, owner):
    own = owner == torch.arange(len(S))[:, None]
    best = torch.where(own, S, -torch.inf).amax(1)
    return (best[:, None] < S).sum(1)


def ranks_with_own(S, owner):
    return right_ranks(S, owner) + 1


def ranks_of_the_first(S, owner):
    first = torch.stack([(owner == row).nonzero()[0, 0] for row in range(len(S))])
    own = owner == torch.arange(len(S))[:, None]
    mine = S.gather(1, first[:, None])
    return ((mine <= S) & ~own).sum(1)


def ranks_hidden_by_zero(S, owner):
    own = owner == torch.arange(len(S))[:, None]
    return (torch.where(own, -torch.inf, S) >= (S * own).amax(1)[:, None]).sum(1)


def ranks_hidden_by_minus_one(S, owner):
    own = owner == torch.arange(len(S))[:, None]
    best = S.masked_fill(~own, -1).amax(1)
    return ((best[:, None] <= S) & ~own).sum(1)


def sorted_ranks(S, owner):
    order = S.argsort(1, descending=True)
    return (owner[order] == torch.arange(len(S))[:, None]).int().argmax(1)


def right_precision(shown):
    R, found, total = sum(shown), 0, 0.0
    for place, relevant in enumerate(shown[:R], start=1):
        found += relevant
        total += found / place if relevant else 0
    return total / R


def precision_by_tensor(shown):
    r = torch.tensor(shown)[: sum(shown)].double()
    return (r * r.cumsum(0) / torch.arange(1, len(r) + 1)).mean()


def precision_by_lists(shown):
    R = sum(shown)
    return sum(sum(shown[: i + 1]) / (i + 1) for i in range(R) if shown[i]) / R


def whole_list(shown):
    return sum(sum(shown[: i + 1]) / (i + 1) for i in range(len(shown)) if shown[i]) / sum(shown)


def r_precision(shown):
    return sum(shown[: sum(shown)]) / sum(shown)


def every_place(shown):
    R = sum(shown)
    return sum(sum(shown[: i + 1]) / (i + 1) for i in range(R)) / R


def by_those_found(shown):
    R = sum(shown)
    return sum(sum(shown[: i + 1]) / (i + 1) for i in range(R) if shown[i]) / max(1, sum(shown[:R]))


RIGHT = {
    "03.captions": [right_captions, looped_captions, captions_by_gather],
    "03.folds": ["b", "A", " c "],
    "03.limit": [68.75, 100 * 11 / 16, torch.tensor(68.75)],
    "03.explore": [
        ("R@10 will agree better.", "It agrees a little better."),
        ["I expect no difference at all", "there is one, from picture to text"],
        ("The rsum agrees as well as R@1.", "It does, for the systems of this notebook."),
    ],
    "03.median": [2, 2.0, torch.tensor(2)],
    "03.ranks": [right_ranks, looped_ranks, ranks_by_lists],
    "03.precision": [right_precision, precision_by_tensor, precision_by_lists],
    "03.break": [
        torch.zeros(20, 100),
        torch.full((20, 100), -7, dtype=torch.int64),
        torch.arange(100.0).expand(20, 100),
    ],
}
WRONG = {
    "03.captions": [
        strict_captions,
        captions_with_own,
        captions_of_the_diagonal,
        captions_hidden_by_zero,
        lambda S, owner: right_ranks(S, owner),
    ],
    "03.folds": [3, "e", "a or b", 0.5],
    "03.limit": [0.6875, 50, 100, 75, 400],
    "03.explore": [
        ("more", "It agrees a little better."),
        ("R@10 will agree better.", "yes"),
        ("The same text twice.", "The same text twice."),
        ("only one text here",),
        (1, 2),
    ],
    "03.median": [1.5, 2.5, 1, 40 / 6, 8, 3, 0],
    "03.ranks": [
        strict_ranks,
        ranks_with_own,
        ranks_of_the_first,
        sorted_ranks,
        ranks_hidden_by_zero,
        ranks_hidden_by_minus_one,
        lambda S, owner: right_ranks(S, owner).double().mean(),
    ],
    "03.precision": [whole_list, r_precision, every_place, by_those_found, lambda shown: 100.0],
    "03.break": [
        torch.rand(20, 100),
        (torch.arange(20)[:, None] == torch.arange(100) // 5).float(),
        torch.zeros(100, 20),
        torch.full((20, 100), torch.nan),
        (torch.arange(20)[:, None] == torch.arange(100) // 5).float().clamp(max=0.0) + torch.rand(20, 1),
    ],
}
