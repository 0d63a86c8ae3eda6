"""Answers to the exercises of notebook 08: right ones, and typical mistakes."""

import math

import numpy as np
import torch


def right_chance(top, among, drawn):
    return 1 - math.comb(among - top, drawn) / math.comb(among, drawn)


def step_by_step_chance(top, among, drawn):
    missed = 1.0
    for one in range(drawn):
        missed *= (among - top - one) / (among - one)
    return 1 - missed


def logarithmic_chance(top, among, drawn):
    def ways(n, k):
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    return -math.expm1(ways(among - top, drawn) - ways(among, drawn))


def right_own(scores, first, owner):
    rows = torch.arange(first, first + len(scores))
    return scores.masked_fill(rows[:, None] == owner, -torch.inf)


def looped_own(scores, first, owner):
    for row in range(len(scores)):
        scores[row, owner == first + row] = -torch.inf
    return scores


def where_own(scores, first, owner):
    own = owner[None] - first == torch.arange(scores.shape[0])[:, None]
    return torch.where(own, float("-inf"), scores)


def five_each(scores, first, owner):
    return right_own(scores, first, torch.arange(len(owner)) // 5)


def right_merge(best, rows, scores, first):
    new = torch.arange(first, first + len(scores)).expand(len(best), -1)
    best, places = torch.cat([best, scores.T], 1).topk(best.shape[1], 1)
    return best, torch.cat([rows, new], 1).gather(1, places)


def sorted_merge(best, rows, scores, first):
    k, block = best.shape[1], scores.T
    names = first + torch.arange(block.shape[1]).repeat(len(best), 1)
    joined, order = torch.cat((block, best), dim=-1).sort(dim=-1, descending=True)
    return joined[:, :k], torch.take_along_dim(torch.cat((names, rows), -1), order[:, :k], -1)


def looped_merge(best, rows, scores, first):
    kept = []
    for caption, (old, named) in enumerate(zip(best.tolist(), rows.tolist(), strict=True)):
        column = [(score, first + row) for row, score in enumerate(scores[:, caption].tolist())]
        kept.append(sorted([*zip(old, named, strict=True), *column], reverse=True)[: len(old)])
    values = torch.tensor([[score for score, _ in row] for row in kept], dtype=best.dtype)
    return values, torch.tensor([[row for _, row in one] for one in kept])


def smallest(best, rows, scores, first):
    found, kept = right_merge(-best, rows, -scores, first)
    return -found, kept


def right_mine(images, captions, owner, texts=300, pictures=60, block=500):
    best = torch.full((len(captions), pictures), -torch.inf, dtype=images.dtype)
    rows = torch.zeros(len(captions), pictures, dtype=torch.long)
    hardest = []
    for first in range(0, len(images), block):
        scores = right_own(images[first : first + block] @ captions.T, first, owner)
        hardest.append(scores.topk(texts, 1).indices)
        best, rows = right_merge(best, rows, scores, first)
    return torch.cat(hardest), rows


def mined_whole(images, captions, owner, texts=300, pictures=60, block=500):
    scores = right_own(images @ captions.T, 0, owner)
    return scores.topk(texts).indices, scores.T.topk(pictures).indices


def mined_in_numpy(images, captions, owner, texts=300, pictures=60, block=500):
    scores = right_own(images @ captions.T, 0, owner).numpy()
    return np.argsort(-scores, 1)[:, :texts], np.argsort(-scores.T, 1)[:, :pictures]


def mined_without_hiding(images, captions, owner, texts=300, pictures=60, block=500):
    scores = images @ captions.T
    return scores.topk(texts).indices, scores.T.topk(pictures).indices


def mined_last_block(images, captions, owner, texts=300, pictures=60, block=500):
    hardest = []
    for first in range(0, len(images), block):
        scores = right_own(images[first : first + block] @ captions.T, first, owner)
        hardest.append(scores.topk(texts, 1).indices)
        found = scores.T.topk(min(pictures, len(scores)), 1).indices + first
    return torch.cat(hardest), found


def mined_first_rows(images, captions, owner, texts=300, pictures=60, block=500):
    found = [
        mined_whole(images[first : first + block], captions, owner, texts, 1)
        for first in range(0, len(images), block)
    ]
    return torch.cat([one[0] for one in found]), mined_whole(images, captions, owner, texts, pictures)[1]


def counts_from_zero(images, captions, owner, texts=300, pictures=60, block=500):
    hardest = []
    for first in range(0, len(images), block):
        scores = right_own(images[first : first + block] @ captions.T, 0, owner)
        hardest.append(scores.topk(texts, 1).indices)
    return torch.cat(hardest), mined_whole(images, captions, owner, texts, pictures)[1]


def right_break(texts, owner):
    return bool((owner[texts] == torch.arange(len(texts))[:, None]).any())


def looped_break(texts, owner):
    return any(
        int(owner[caption]) == picture for picture, row in enumerate(texts.tolist()) for caption in row
    )


def set_break(texts, owner):
    for picture, row in enumerate(texts):
        own = set((owner == picture).nonzero().flatten().tolist())
        if own & set(row.tolist()):
            return True
    return False


RIGHT = {
    "08.place": ["156", "16", "1,560"],
    "08.chance": [right_chance, step_by_step_chance, logarithmic_chance],
    "08.own": [right_own, looped_own, where_own],
    "08.merge": [right_merge, sorted_merge, looped_merge],
    "08.mine": [right_mine, mined_whole, mined_in_numpy],
    "08.bill": [113_287 * 566_435 * 4 / 1e9, 257, torch.tensor(256.7)],
    "08.break": [right_break, looped_break, set_break],
    "08.explore": [
        ("longer lists are less hard", "the lead grew with the depth"),
        ("a batch of 512 finds harder ones", "its place fell to a quarter"),
        ("fewer of them will be true", "at depth 1000 fewer were true"),
    ],
}
WRONG = {
    "08.place": ["first", 156, "", ["156"]],
    "08.chance": [
        lambda top, among, drawn: 1 - (1 - top / among) ** drawn,
        lambda top, among, drawn: 1 - right_chance(top, among, drawn),
        lambda top, among, drawn: top / among,
        lambda top, among, drawn: drawn * top / among,
        lambda top, among, drawn: 7,
    ],
    "08.own": [
        lambda scores, first, owner: right_own(scores, first, owner)[0],
        lambda scores, first, owner: right_own(scores, 0, owner),
        lambda scores, first, owner: scores,
        lambda scores, first, owner: right_own(scores, first, owner).nan_to_num(neginf=0.0),
        lambda scores, first, owner: scores.masked_fill(
            right_own(scores, first, owner) > -torch.inf, -torch.inf
        ),
        lambda scores, first, owner: right_own(scores, first, owner.sort().values),
    ],
    "08.merge": [
        lambda best, rows, scores, first: right_merge(best, rows, scores, 0),
        lambda best, rows, scores, first: torch.cat([best, scores.T], 1).topk(best.shape[1], 1),
        lambda best, rows, scores, first: (scores.T.topk(3, 1).values, scores.T.topk(3, 1).indices + first),
        lambda best, rows, scores, first: (best, rows),
        lambda best, rows, scores, first: (best[:, :2], rows[:, :2]),
    ],
    "08.mine": [
        mined_without_hiding,
        mined_last_block,
        mined_first_rows,
        lambda images, captions, owner, texts, pictures, block: mined_whole(
            images, captions, owner, texts, pictures
        )[::-1],
        lambda images, captions, owner, texts, pictures, block: [
            one.flip(1) for one in mined_whole(images, captions, owner, texts, pictures)
        ],
    ],
    "08.bill": [64.2, 256.7e9, 51.3, 1, 33],
    "08.break": [
        lambda texts, owner: not right_break(texts, owner),
        lambda texts, owner: bool((texts == torch.arange(len(texts))[:, None]).any()),
        lambda texts, owner: bool((owner[texts[:, 0]] == torch.arange(len(texts))).any()),
        lambda texts, owner: False,
        lambda texts, owner: bool((texts // 2 == torch.arange(len(texts))[:, None]).any()),
    ],
    "08.explore": [
        "longer lists are less hard",
        ("harder", "its place fell to a quarter"),
        ("longer lists are less hard", "yes"),
        7,
    ],
}
