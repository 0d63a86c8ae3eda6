"""The exercises of notebook 03, *The joint space*."""

import torch

from course.checks.comparing import equals, holds, like, same, shape
from course.checks.kinds import break_it, code, compute, explore, predict
from vsecore.evaluation import evaluate, map_at_r, ranks


def caption_ranks(S, owner):
    return ranks(S, owner)[1]


def picture_ranks(S, owner):
    return ranks(S, owner)[0]


def one_less(S, owner):
    own = torch.arange(len(S))[:, None] == owner
    return (S.masked_fill(~own, -torch.inf).amax(1, keepdim=True) <= S).sum(1) - 1


def scores(each=5, shift=0.0, ties=False, perfect=False):
    """Similarities (40, C) of pictures with so many captions each, and the owners, in random order."""
    generator = torch.Generator().manual_seed(each)
    owner = torch.arange(40).repeat_interleave(each)
    if perfect:
        return torch.eye(40).repeat_interleave(each, 1), owner
    if each > 1:
        owner = owner[torch.randperm(len(owner), generator=generator)]
    S = torch.randn(40, len(owner), generator=generator) + shift
    return (S.round() if ties else S), owner


def hidden_by_zero(S, owner):
    own = torch.arange(len(S))[:, None] == owner
    best = S * own
    return (~own & (best.amax(1, keepdim=True) <= S)).sum(1), (~own & (best.amax(0) <= S)).sum(0)


HIDES_TOO_HIGH = (
    "You hid some similarities by a number, and then took it for the largest: similarities may be below "
    "zero, and here also below -1. What is lower than all of them?"
)
HIGH, LOW = {"each": 1, "shift": 10.0}, {"each": 1, "shift": -10.0}

CAPTIONS = {
    "Return one rank for each caption, (Nc,).": shape(),
    "A perfect system has rank 0 everywhere: leave out a caption's own picture.": same(perfect=True, each=1),
    "With one caption a picture, count how many pictures in the column score higher.": same(each=1),
    "Captions come in any order: `owner` says which row has the own picture of a column.": same(),
    "Ties count against the system: another picture with the same score comes first.": same(ties=True),
    HIDES_TOO_HIGH: like(lambda *given: hidden_by_zero(*given)[1], right_on=HIGH, wrong_on=LOW),
}

RANKS = {
    "Return one rank for each picture, (Ni,).": shape(),
    "A perfect system has rank 0 everywhere: leave out a picture's own caption.": same(perfect=True, each=1),
    "With one caption a picture, count how many other captions in the row score higher.": same(each=1),
    "With five captions a picture, find its own by `owner`, take the best, count none of them.": same(),
    "Ties count against the system: another caption with the same score comes first.": same(ties=True),
    HIDES_TOO_HIGH: like(lambda *given: hidden_by_zero(*given)[0], right_on=HIGH, wrong_on=LOW),
    "Two of a picture's own captions may tie for the best, and then taking one away is not enough: leave all "
    "of its own out of the count.": like(one_less, ties=True),
}

MEDIAN = {
    "A median rank is a whole number and counts from 1: round down, then add one.": holds(
        lambda answer: int(answer) == answer >= 1 or float(answer) in (1.5, 2.5)
    ),
    "Sort the six ranks and look at the two in the middle.": equals(2),
    "That is the middle; tables round it down and count from 1.": 1.5,
    "You counted from 1; tables also round down.": 2.5,
    "You rounded down; but the best rank in a table is 1.": 1,
    "That is the mean: one bad rank pulls it far. Take the middle.": like(40 / 6, 46 / 6, tolerance=0.05),
    "Sort the ranks before you look for their middle.": 8,
}


def precision(shown):
    """The average precision at R of one query, whose items are shown in this order, (n,) bool."""
    places = torch.arange(len(shown), 0, -1, dtype=torch.float32)  # scores in the order shown
    return map_at_r(places[None], shown[None])


def shown(order="10110"):
    return (torch.tensor([item == "1" for item in order]),)


PRECISION = {
    "Return a number; the best order has all relevant items first, and gives 1.": same(order="110"),
    "Nothing relevant among the first R gives 0: later ones do not count; divide by R.": same(order="0011"),
    "Only places with a relevant item add their precision, and the sum is divided by R.": same(),
    "Divide by R, the number of all relevant items, also when some come after place R.": same(
        *({"order": order} for order in ("101101", "1001", "01011"))
    ),
    "That is R-precision: it forgets the order within the first R.": lambda x: x[: x.sum()].sum() / x.sum(),
}

LIMIT = {
    "Give a percentage: the worst of the four captions alone would give 25, the best 100.": holds(
        lambda answer: 25 <= float(answer) <= 100 or abs(float(answer) - 11 / 16) < 0.01
    ),
    "For each caption, what is the chance that its own picture comes first? Take the mean.": equals(68.75),
    "That is right as a fraction; R@1 is a percentage.": 11 / 16,
    "That is four own pictures out of eight true ones. Recall is a mean over captions.": 50,
    "A true picture is always first. R@1 asks for the own one.": 100,
}

OWNER = torch.arange(100) // 5
PERFECT = (torch.arange(20)[:, None] == OWNER).float()

BREAK = {
    "Scores have one row for each picture and one column for each caption: (20, 100).": holds(
        lambda answer: answer.shape == (20, 100), wrong=[torch.zeros(20)]
    ),
    "vsecore refuses a score that is not a number. Ordinary numbers can do it.": holds(
        lambda answer: not answer.isnan().any(), wrong=[torch.full((20, 100), torch.nan)]
    ),
    "For some caption another picture still scores higher. When is no score higher than another?": holds(
        lambda answer: not (answer > answer[OWNER, torch.arange(100)]).any(),
        wrong=[torch.arange(20.0)[:, None].expand(20, 100)],
    ),
    "vsecore finds some own pictures: for some captions your scores put the own picture first.": holds(
        lambda answer: evaluate(answer, OWNER)["t2i_r1"] == 0, wrong=[PERFECT * (OWNER == 3)]
    ),
    "That is a perfect system: it knows which pairs belong together. Yours should know nothing.": like(
        PERFECT, when=lambda answer: evaluate(answer, OWNER)["t2i_r1"] == 100
    ),
    "Transpose it: one row for each picture, one column for each caption.": like(
        torch.zeros(100, 20), when=lambda answer: answer.shape == (100, 20)
    ),
}

EXERCISES = {
    "03.captions": code("The rank of a caption", 8, CAPTIONS, caption_ranks, scores, difficulty="easy"),
    "03.median": compute("A median rank", 4, MEDIAN, difficulty="easy"),
    "03.ranks": code(
        "The rank of a picture", 10, RANKS, picture_ranks, scores, defined_above=("caption_ranks",)
    ),
    "03.folds": predict("Ten times as many pictures", 2, "a", "b", "c", "d"),
    "03.precision": code("Average precision at R", 10, PRECISION, precision, shown),
    "03.limit": compute("The limit of R@1", 5, LIMIT, tolerance=0.1),
    "03.explore": explore("Change one thing", 15),
    "03.break": break_it("Break it", 6, BREAK, solution=torch.zeros(20, 100)),
}
