"""The exercises of notebook 19, *From a folder to an engine*."""

from operator import itemgetter

import numpy as np

from course.checks.comparing import between, equals, like, passed, same
from course.checks.kinds import break_it, code, compute, explore, predict


def exact_search(vectors, query, k, block):
    scores, rows = np.empty(0), np.empty(0, dtype=int)
    for start in range(0, len(vectors), block):
        part = vectors[start : start + block] @ query
        scores = np.concatenate([scores, part])
        rows = np.concatenate([rows, start + np.arange(len(part))])
        best = np.argsort(-scores, kind="stable")[:k]
        scores, rows = scores[best], rows[best]
    return scores, rows


def searched(search, count, k, block, shift=0.0):
    """What a search finds in a file of vectors, and the most rows that it asked for at once."""

    class File:
        """Vectors on a disk: they can be sliced, and counted."""

        def __init__(self, rows):
            self.rows, self.most, self.shape, self.dtype = rows, 0, rows.shape, rows.dtype

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, chosen):
            part = self.rows[chosen]
            self.most = max(self.most, len(part) if part.ndim == 2 else 1)
            return part

        def __array__(self, dtype=None, copy=None):
            self.most = len(self.rows)
            return np.asarray(self.rows, dtype=dtype)

    dice = np.random.default_rng([count, k])
    query = dice.standard_normal(6).astype(np.float32)
    rows = dice.standard_normal((count, 6)).astype(np.float32) + np.float32(shift) * query
    file = File(rows)
    found = search(file, query, k, block)
    if not isinstance(found, tuple | list) or len(found) != 2:
        return found
    scores, places = found
    return [float(one) for one in scores], [int(one) for one in places], file.most


def sizes(count=40, k=5, block=8, shift=0.0):
    return count, k, block, shift


ONE_BLOCK = {"count": 20, "k": 4, "block": 20}
FOUND = itemgetter(0, 1)

EXACT = {
    "Return two things of k entries each: the scores and the rows.": same(
        ONE_BLOCK, by=lambda made: (len(made[0]), len(made[1]))
    ),
    "In one block, these are not the k largest dot products and rows, best first.": same(ONE_BLOCK, by=FOUND),
    "In one block it is right, in several it is not. The best so far must compete with each new block, and "
    "row 0 of a block is not row 0 of the file.": same(by=FOUND),
    "The last block may be shorter, and k larger than a block.": same({"count": 47}, {"k": 12}, by=FOUND),
    "Never ask for more than `block` rows at once: slice the vectors.": same(by=lambda made: made[2] <= 8),
    "With fewer than k vectors, return all that there are. Scores may all be below zero, so do not begin "
    "with zeros.": same(
        {"count": 3, "k": 10, "block": 2}, {"k": 12, "shift": -9.0}, by=FOUND, tolerance=1e-3
    ),
    "Right. Memory need not hold more than a block and the best so far, however long the file is.": passed,
}


def search_cells(query, centres, members, vectors, k, probes):
    nearest = np.argsort(-(centres @ query))[:probes]
    rows = np.concatenate([members[cell] for cell in nearest])
    return rows[np.argsort(-(vectors[rows] @ query))[:k]]


def random_vectors(count, width=6, seed=0):
    return np.random.default_rng([seed, count, width]).standard_normal((count, width)).astype(np.float32)


def cells(k=4, probes=2, seed=0, empty=False):
    """A query, five cells of forty vectors, k and probes; the first cell to look into may be empty."""
    vectors, centres = random_vectors(40, seed=seed), random_vectors(5, seed=seed + 50)
    query = random_vectors(1, seed=seed + 100)[0]
    if empty:
        centres[0] = 9 * query
    of = (vectors @ centres[empty:].T).argmax(1) + empty
    return query, centres, [np.flatnonzero(of == cell) for cell in range(5)], vectors, k, probes


def places(query, centres, members, vectors, k, probes):
    rows = np.concatenate([members[cell] for cell in np.argsort(-(centres @ query))[:probes]])
    return np.argsort(-(vectors[rows] @ query))[:k]


SEEDS = [{"seed": seed} for seed in range(8)]

CELLS = {
    "With all cells probed, return the k best rows of all, best first.": same(*SEEDS, probes=5, by=np.ravel),
    "With one probe, look only at the rows of the cell whose centre has the largest dot product with the "
    "query. It need not be the nearest: centres differ in length.": same(*SEEDS, probes=1, by=np.ravel),
    "With several probes, put the rows of all these cells together before you choose the best.": same(
        *SEEDS, {"probes": 3}, by=np.ravel
    ),
    "If the cells hold fewer than k rows, return all of them.": same(*SEEDS, k=30, probes=1, by=np.ravel),
    "A cell may be empty.": same(*SEEDS, k=3, empty=True, by=np.ravel),
    "Those are places in the list of rows that you looked at. Return the rows themselves.": like(
        places, by=np.ravel, probes=5
    ),
    "Right. This is an inverted file.": passed,
}


def to_levels(vectors, low, high):
    return np.round((vectors - low) / (high - low) * 255).clip(0, 255).astype(np.uint8)


def ranges(outside=False):
    """Vectors, and the lowest and highest value of each dimension, which some of them may leave.

    No value lies in the middle between two levels.
    """
    vectors = random_vectors(30, 4) * np.array([1, 5, 0.1, 2], np.float32) + np.float32(3)
    low, high = vectors.min(0), vectors.max(0)
    cut = 0.2 * (high - low) * outside
    return vectors, low + cut, high - cut


def scaled(vectors, low, high):
    return (vectors - low) / (high - low) * 255


LEVELS = {
    "Return an array of the vectors' shape, of type uint8: `codes.astype(np.uint8)`.": same(
        by=lambda codes: (np.shape(codes), str(np.asarray(codes).dtype))
    ),
    "`low` must become level 0, `high` level 255, in each dimension its own, and everything between them the "
    "nearest level.": same(),
    "A value below `low` gets level 0, and one above `high` level 255.": same(outside=True),
    "You cut the decimals off: half of all values get the level below the nearest. Round.": (
        lambda *given: scaled(*given).clip(0, 255).astype(np.uint8)
    ),
    "A value outside the range wraps around: level 256 becomes level 0. Limit the levels before you make "
    "bytes of them.": like(lambda *given: scaled(*given).round().astype(int).astype(np.uint8), outside=True),
    "Right. A quarter of the floats' memory.": passed,
}

BYTES = {
    "Floats would take 2,048 bytes. A code takes fewer.": between(0, 2048.5),
    "How many bits tell 16 codewords apart? There are 128 parts, and a byte has eight bits.": equals(64),
    "512 is the number of bits, or of numbers. A byte has eight bits.": 512,
    "That would be a byte for each part. One of 16 needs less than a byte.": 128,
    "16 codewords need 4 bits, not 16: a number from 0 to 15.": 256,
    "Right. That is a thirty-second of the floats.": passed,
}


def scores_from_codes(query, codebooks, codes):
    parts = query.reshape(len(codebooks), -1)
    table = np.einsum("md,mwd->mw", parts, codebooks)
    return table[np.arange(len(codebooks)), codes].sum(1)


def coded(parts=3, words=4, width=2):
    """A query, a codebook for each part, and the codes of nine vectors."""
    dice = np.random.default_rng([parts, words, width])
    query, codebooks = dice.standard_normal(parts * width), dice.standard_normal((parts, words, width))
    return query, codebooks, dice.integers(0, words, (9, parts))


SCORES = {
    "Return one score for each vector, (n,).": same(by=np.shape),
    "With a single part, the score is the dot product of the query and the codeword that the code "
    "names.": same(parts=1, width=3),
    "With several parts, each has its own run of neighbouring numbers of the query and its own codebook. Add "
    "up what the parts give.": same({}, {"parts": 4, "words": 3, "width": 5}),
    "There may be more than 256 codewords.": same(parts=2, words=300, width=1),
    "Right. A score now takes M look-ups and no multiplication.": passed,
}

BREAK = {
    "Count pictures: there are 999 left.": between(-0.001, 999.001),
    "Which rows still have the name that belongs to them? Rows count from zero.": equals(749),
    "Those 250 stand before the gap and keep their names.": 250,
    "Nearly. Rows count from zero, so 250 pictures stand before the one that is gone.": like(750, 748),
    "All pictures after the gap move up by one row, and the names do not.": like(1, 0),
}

PLAN = {
    "Answer in GB, billions of bytes: it is more than a half and less than a hundred.": between(0.5, 100),
    "How many bytes does one picture take, the numbers of its vector and its own? There are ten million of "
    "them.": equals(5.2, tolerance=0.05),
    "Those are bytes. A GB is a billion of them.": 5.2e9,
    "The picture's own number is missing: eight bytes each.": like(5.12, tolerance=0.005),
    "That is four bytes for each number. Here it is one.": like(20.56, 20.48),
    "Those are gigabits.": 41.6,
}

EXERCISES = {
    "19.exact": code("Search block by block", 12, EXACT, exact_search, sizes, caller=searched),
    "19.cells": code("Search in cells", 12, CELLS, search_cells, cells),
    "19.levels": code("A byte for each dimension", 8, LEVELS, to_levels, ranges, difficulty="easy"),
    "19.bytes": compute("How many bytes", 4, BYTES, difficulty="easy"),
    "19.table": code("Scores from codes", 12, SCORES, scores_from_codes, coded),
    "19.trap": predict(
        "Which examples to learn from?",
        2,
        "pictures alone",
        "half captions",
        "captions alone",
        "no difference",
    ),
    "19.break": break_it("Rows as names", 4, BREAK, difficulty="easy"),
    "19.plan": compute("Ten million", 4, PLAN, difficulty="easy", tolerance=0.1),
    "19.explore": explore("Cells and codes together", 15),
}
