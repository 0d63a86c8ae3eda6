"""The exercises of notebook 00, *Start here*."""

import torch
from torch.nn.functional import normalize

from course.checks.comparing import between, equals, holds, like, same
from course.checks.kinds import break_it, code, compute, explore, predict
from vsecore.similarity import cosine

RANK = {
    "A place is a whole number, and the best place is 1.": holds(lambda answer: int(answer) == answer >= 1),
    "Sort the similarities from high to low and find 0.4 among them.": equals(3),
    "You counted from 0, or missed one that scores higher.": 2,
    "Did you sort from low to high? The most similar comes first.": 4,
}


def nearest(v, query, k):
    return cosine(v, query[None])[:, 0].topk(k).indices.tolist()


def of_lengths(scale=9.0, k=3):
    """Twenty vectors, whose lengths differ by up to `scale`, a query, and k."""
    generator = torch.Generator().manual_seed(0)
    v, query = torch.randn(20, 8, generator=generator), torch.randn(8, generator=generator)
    return normalize(v, dim=1) * (scale * torch.rand(20, 1, generator=generator) + 1), query, k


SEARCH = {
    "Return the numbers of k rows.": same({}, {"k": 7}, by=len),
    "The k most similar come first: sort from high to low.": same(scale=0.0),
    "These are the similarities; return the numbers of their rows.": like(
        lambda v, *_: v[0].tolist(), when=lambda answer: any(float(row) % 1 for row in answer(*of_lengths()))
    ),
    "In your search long vectors win: compare by cosine, not by dot product. Divide each row by its own "
    "length; a norm without `dim` is one number for the whole matrix.": same(),
}

BREAK = {
    "Give a percentage above 0: the captions of one picture do find it.": between(0, 100.001),
    "Of 5,000 captions, how many own the picture that always wins?": equals(0.1),
    "That is right as a share; give it in percent.": 0.001,
    "You counted one caption: the winning picture owns five of them.": 0.02,
    "The winner comes first for every query, but is right only for its own captions.": 100,
}

EXERCISES = {
    "00.rank": compute("Read a ranking", 2, RANK, difficulty="easy"),
    "00.predict": predict("A prediction", 2, "own", "true", "the same"),
    "00.search": code(
        "Write the search", 8, SEARCH, nearest, of_lengths, difficulty="easy", defined_above=("search",)
    ),
    "00.break": break_it("Forget the lengths", 5, BREAK, tolerance=1e-4),
    "00.explore": explore("Change one thing", 15),
}
