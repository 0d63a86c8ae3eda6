"""The exercises of notebook 08, *Offline negatives*."""

import math

import torch
from torch import inf

from course.checks.comparing import between, equals, holds, like, passed, same, shape
from course.checks.kinds import break_it, code, compute, explore, predict
from vsecore.similarity import unit


def chance(top, among, drawn):
    return 1 - math.comb(among - top, drawn) / math.comb(among, drawn)


ODDS = {
    "Return one number, a chance between 0 and 1.": holds(
        lambda answer: 0 <= float(answer(3, 10, 4)) <= 1, wrong=[lambda *given: 7]
    ),
    "If half of the negatives are drawn, the hardest is among them with a chance of one half.": same(
        top=1, among=12, drawn=6, tolerance=1e-3
    ),
    "In how many ways can you draw so that all of them miss the hardest ones? In how many ways at all?": same(
        {}, {"top": 2, "among": 30, "drawn": 5}, tolerance=3e-4
    ),
    "For large numbers it is wrong: `math.comb` stays exact.": same(top=100, among=566_410, drawn=127),
    "Nearly: that draws the same negative again and again. A "
    "batch draws each at most once.": lambda top, among, drawn: 1 - (1 - top / among) ** drawn,
    "That is the chance of none of them. We want that of at least one.": lambda *given: 1 - chance(*given),
    "Adding the chances of all draws counts a batch twice in which two of them hit. For many draws the sum "
    "exceeds 1.": lambda top, among, drawn: drawn * top / among,
}


def hide_own(scores, first, owner):
    rows = torch.arange(first, first + len(scores), device=scores.device)
    return scores.masked_fill(rows[:, None] == owner, -torch.inf)


def block(first=0, owner=(0, 0, 1, 1, 1, 2, 3, 3, 4, 4, 4)):
    """Scores (2, 11) of two pictures, the number of the first one, and whose the captions are."""
    return 2 * uniform(2, 11) - 1, first, torch.tensor(owner)


def uniform(*size, seed=1):
    return torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


OWN = {
    "Return a matrix of the same shape, (b, Nc).": shape(),
    "Each picture's own captions, and only they, get minus infinity.": same(),
    "In a later block, the first row is picture number `first`.": same(first=3),
    "The captions may stand in any order: let `owner` say whose they are.": same(
        first=1, owner=(4, 1, 0, 3, 1, 2, 4, 0, 3, 1, 4)
    ),
    "Zero is above many similarities: use minus infinity.": lambda *x: hide_own(*x).nan_to_num(neginf=0.0),
    "Some scores became NaN: minus infinity times zero is no number. Replace the scores instead, by "
    "`masked_fill` or `where`.": like(
        lambda scores, first, owner: scores + (owner == first) * -inf,
        when=lambda answer: answer(*block()).isnan().any(),
    ),
    "You count five captions for each picture. A picture may have more or fewer: use `owner`.": (
        lambda scores, first, owner: hide_own(scores, first, torch.arange(len(owner)) // 5)
    ),
}


def merge(best, rows, scores, first):
    new = torch.arange(first, first + len(scores), device=scores.device).expand(len(best), -1)
    joined = torch.cat([best, scores.T], 1)  # (Nc, k + b)
    best, places = joined.topk(best.shape[1], 1)
    return best, torch.cat([rows, new], 1).gather(1, places)


def running(seed=3, empty=False):
    """The best 3 of pictures 0 to 4 for each of 6 captions, and the block of pictures 5 to 8.

    If empty, there is nothing yet, and the block of pictures 0 to 3 has scores below zero.
    """
    scores = uniform(9, 6, seed=seed)
    best, rows = scores[:5].T.topk(3, 1)
    return (best - inf, 0 * rows, scores[5:] - 1, 0) if empty else (best, rows, scores[5:], 5)


MERGE = {
    "Return two tensors, the scores and the rows, both of the shape of `best`.": shape(),
    "Put the running best and the block's scores side by side, (Nc, k + b), and keep the largest k of each "
    "caption. The block has the captions in its columns.": same(by=0),
    "The scores are right. Put the numbers of the pictures side by side in the same way, and `gather` those "
    "that were kept. The block begins with picture number `first`.": same(
        *({"seed": seed} for seed in (3, 4, 5))
    ),
    "It must also work at the start, where all scores in `best` are minus infinity.": same(empty=True, by=1),
    "`topk` returns places in the joined table. Look up which pictures stand there.": (
        lambda best, rows, scores, first: torch.cat([best, scores.T], 1).topk(best.shape[1], 1)
    ),
    "You keep the best of this block; earlier ones are lost.": lambda b, *rest: merge(b - inf, *rest),
    "Right. What is kept never grows, however many blocks there are.": passed,
}


def mine(images, captions, owner, texts=300, pictures=60, block=500):
    best = torch.full((len(captions), pictures), -torch.inf, dtype=images.dtype)  # (Nc, k)
    rows = torch.zeros(len(captions), pictures, dtype=torch.long)  # (Nc, k)
    hardest = []
    for first in range(0, len(images), block):
        scores = hide_own(images[first : first + block] @ captions.T, first, owner)  # (b, Nc)
        hardest.append(scores.topk(texts, 1).indices)  # (b, k)
        best, rows = merge(best, rows, scores, first)
    return torch.cat(hardest), rows


def world(block=9, seed=1):
    """Nine pictures and 20 captions (of unit length), the captions' owners in no order, and 4, 3, block."""
    generator = torch.Generator().manual_seed(seed)
    sides = [unit(torch.randn(rows, 5, generator=generator, dtype=torch.float64)) for rows in (9, 20)]
    owner = torch.cat([torch.arange(9), torch.randint(9, (11,), generator=generator)])
    return *sides, owner[torch.randperm(20, generator=generator)], 4, 3, block


def has_own(texts, owner):
    return bool((owner[texts] == torch.arange(len(texts))[:, None]).any())


MINE = {
    "Return captions for each picture, (Ni, texts), and pictures for each caption, (Nc, pictures).": shape(),
    "In one block: are the captions the hardest of each picture, hardest first, none of its own? Hide its "
    "own before you look for the largest.": same(by=0),
    "The captions are right. Now the pictures: the running best starts at minus infinity, and each block is "
    "merged into it.": same(by=1),
    "One block is right. In several, the rows of a block are complete, but its columns see only some of the "
    "pictures; and the first row of a block is picture `first`.": same(block=3),
    "The last block may be smaller than the others.": same(block=4, seed=2),
    "A caption's list holds its own picture: hide it in this direction too.": (
        lambda images, captions, owner, texts, pictures, block: (
            mine(images, captions, owner, texts, pictures, block)[0],
            (images @ captions.T).topk(pictures, 0).indices.T,
        )
    ),
    "Right. The package does the same, on any device.": passed,
}

MATRIX = 113_287 * 566_435 * 4 / 1e9
"""Gigabytes of COCO's similarities, four bytes each."""

BILL = {
    "It is many gigabytes: pictures times captions times four bytes.": between(1, inf),
    "Multiply pictures, captions and four bytes. A gigabyte is a billion bytes.": equals(MATRIX, 4),
    "That is the number of similarities. Each takes four bytes.": MATRIX / 4,
    "That is in bytes: divide by a billion.": MATRIX * 1e9,
    "You divided by 2**30, which gives gibibytes. A gigabyte is a billion bytes.": MATRIX * 1e9 / 2**30,
    "There are five captions for each picture: 566,435 in all.": MATRIX / 5,
}


def lists(texts=((2, 5), (0, 4), (6, 1), (1, 2)), owner=(0, 0, 1, 1, 2, 2, 3, 3)):
    return torch.tensor(texts), torch.tensor(owner)


BREAK = {
    "Here no list holds a caption of its own picture: return False.": same(by=bool),
    "Picture 0 owns captions 0 and 1. If caption 1 is in its list, return True.": same(
        texts=[[1, 5], [0, 4], [6, 1], [3, 2]], by=bool
    ),
    "One wrong entry anywhere is enough: here it is the last of the last list.": same(
        texts=[[2, 5], [0, 4], [6, 1], [3, 7]], by=bool
    ),
    "Caption 2 does not belong to picture 2: captions and pictures are numbered separately. Look up the "
    "caption's owner.": same(texts=[[3, 6], [0, 7], [2, 6], [1, 3]], by=bool),
    "The captions may stand in any order: `owner` says whose they are.": same(
        {"texts": [[0, 1], [2, 3], [4, 5], [6, 7]]},
        {"texts": [[0, 1], [2, 3], [4, 6], [5, 7]]},
        owner=(3, 1, 2, 0, 3, 1, 2, 0),
        by=bool,
    ),
    "Right. This test knows nothing of how the lists were made.": passed,
}

EXERCISES = {
    "08.place": predict("Where does it stand?", 3, "16", "156", "1,560", "7,800"),
    "08.chance": code(
        "The chance of a top hundred", 12, ODDS, chance, lambda top=3, among=10, drawn=4: (top, among, drawn)
    ),
    "08.own": code("Hide what belongs to a picture", 6, OWN, hide_own, block, difficulty="easy"),
    "08.merge": code("Merge a block into the running best", 12, MERGE, merge, running),
    "08.mine": code("Both directions from one pass", 12, MINE, mine, world),
    "08.bill": compute("The whole matrix", 4, BILL, difficulty="easy", tolerance=1),
    "08.break": break_it("A test that fails", 8, BREAK, reference=has_own, inputs=lists),
    "08.explore": explore("Change one thing", 15),
}
