"""The exercises of notebook 19, *From a folder to an engine*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, one_of

_WITHOUT_LAST = 999 - 250
_GIGABYTES = 10_000_000 * (512 + 8) / 1e9


def _vectors(count: int, width: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, count, width]).standard_normal((count, width)).astype(np.float32)


# ---------------------------------------------------------------- exact search


def _exact_search(vectors: Any, query: np.ndarray, k: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    scores, rows = np.empty(0), np.empty(0, dtype=int)
    for start in range(0, len(vectors), block):
        part = vectors[start : start + block] @ query
        scores = np.concatenate([scores, part])
        rows = np.concatenate([rows, start + np.arange(len(part))])
        best = np.argsort(-scores, kind="stable")[:k]
        scores, rows = scores[best], rows[best]
    return scores, rows


def _searched(search: Callable[..., Any], count: int, k: int, block: int, shift: float = 0.0) -> Any:
    """What a search finds in a file of vectors, and the most rows that it asked for at once."""
    import numpy as np

    class File:
        """Vectors on a disk: they can be sliced, and counted."""

        def __init__(self, rows: np.ndarray) -> None:
            self.rows, self.most, self.shape, self.dtype = rows, 0, rows.shape, rows.dtype

        def __len__(self) -> int:
            return len(self.rows)

        def __getitem__(self, chosen: Any) -> np.ndarray:
            part = self.rows[chosen]
            self.most = max(self.most, len(part) if part.ndim == 2 else 1)
            return part

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
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


def _finds(answer: Callable[..., Any], *case: Any) -> bool:
    scores, rows, _ = answer(*case)
    wanted_scores, wanted_rows, _ = _searched(_exact_search, *case)
    return rows == wanted_rows and np.allclose(scores, wanted_scores, atol=1e-5)


def _finds_rows_of_blocks(answer: Callable[..., Any]) -> bool:
    """Whether the rows are counted from each block's beginning."""
    rows, wanted = answer(40, 5, 8)[1], _searched(_exact_search, 40, 5, 8)[1]
    return rows != wanted and rows == [row % 8 for row in wanted]


def _smallest(vectors: Any, query: np.ndarray, k: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    scores, rows = _exact_search(vectors, -query, k, block)
    return -scores, rows


def _finds_smallest(answer: Callable[..., Any]) -> bool:
    return bool(answer(20, 4, 20)[1] == _searched(_smallest, 20, 4, 20)[1])


# ---------------------------------------------------------------- search in cells


def _search_cells(
    query: np.ndarray,
    centres: np.ndarray,
    members: list[np.ndarray],
    vectors: np.ndarray,
    k: int,
    probes: int,
) -> np.ndarray:
    nearest = np.argsort(-(centres @ query))[:probes]
    rows = np.concatenate([members[cell] for cell in nearest])
    found: np.ndarray = rows[np.argsort(-(vectors[rows] @ query))[:k]]
    return found


def _cells(seed: int, cells: int = 5, empty: bool = False) -> tuple[Any, ...]:
    vectors, centres = _vectors(40, seed=seed), _vectors(cells, seed=seed + 50)
    query = _vectors(1, seed=seed + 100)[0]
    if empty:  # the cell that the query looks into first has nothing in it
        centres[0] = 9 * query
    of = (vectors @ centres[1:].T).argmax(1) + 1 if empty else (vectors @ centres.T).argmax(1)
    return query, centres, [np.flatnonzero(of == cell) for cell in range(cells)], vectors


def _in_cells(
    answer: Callable[..., Any],
    k: int,
    probes: int,
    expected: Callable[..., Any] = _search_cells,
    empty: bool = False,
) -> bool:
    for seed in range(4):
        case = _cells(seed, empty=empty)
        found = np.asarray(answer(*case, k, probes)).reshape(-1)
        if found.tolist() != np.asarray(expected(*case, k, probes)).tolist():
            return False
    return True


def _nearest_by_distance(
    query: Any, centres: Any, members: Any, vectors: Any, k: int, probes: int
) -> np.ndarray:
    nearest = np.argsort(((centres - query) ** 2).sum(1))[:probes]
    rows = np.concatenate([members[cell] for cell in nearest])
    found: np.ndarray = rows[np.argsort(-(vectors[rows] @ query))[:k]]
    return found


def _places(query: Any, centres: Any, members: Any, vectors: Any, k: int, probes: int) -> np.ndarray:
    """The places among the rows that were looked at, not the rows."""
    nearest = np.argsort(-(centres @ query))[:probes]
    rows = np.concatenate([members[cell] for cell in nearest])
    found: np.ndarray = np.argsort(-(vectors[rows] @ query))[:k]
    return found


def _everything(query: Any, centres: Any, members: Any, vectors: Any, k: int, probes: int) -> np.ndarray:
    found: np.ndarray = np.argsort(-(vectors @ query))[:k]
    return found


def _unsorted(query: Any, centres: Any, members: Any, vectors: Any, k: int, probes: int) -> np.ndarray:
    nearest = np.argsort(-(centres @ query))[:probes]
    return np.concatenate([members[cell] for cell in nearest])[:k]


# ---------------------------------------------------------------- codes


def _scores_from_codes(query: np.ndarray, codebooks: np.ndarray, codes: np.ndarray) -> np.ndarray:
    parts = query.reshape(len(codebooks), -1)
    table = np.einsum("md,mwd->mw", parts, codebooks)
    found: np.ndarray = table[np.arange(len(codebooks)), codes].sum(1)
    return found


def _coded(parts: int, words: int, width: int, count: int = 9) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    dice = np.random.default_rng([parts, words, width])
    query = dice.standard_normal(parts * width)
    codebooks = dice.standard_normal((parts, words, width))
    return query, codebooks, dice.integers(0, words, (count, parts))


def _from_codes(
    answer: Callable[..., Any], *sizes: int, expected: Callable[..., Any] = _scores_from_codes
) -> bool:
    case = _coded(*sizes)
    scores, wanted = np.asarray(answer(*case), dtype=float), expected(*case)
    return scores.shape == wanted.shape and np.allclose(scores, wanted, atol=1e-6)


def _first_book_alone(query: np.ndarray, codebooks: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Every part is looked up in the first part's codebook."""
    return _scores_from_codes(query, np.repeat(codebooks[:1], len(codebooks), 0), codes)


def _interleaved(query: np.ndarray, codebooks: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Part j takes every M-th number of the query, not a run of them."""
    return _scores_from_codes(query.reshape(-1, len(codebooks)).T.reshape(-1), codebooks, codes)


def _mean_of_parts(query: np.ndarray, codebooks: np.ndarray, codes: np.ndarray) -> np.ndarray:
    return _scores_from_codes(query, codebooks, codes) / len(codebooks)


# ---------------------------------------------------------------- levels


def _to_levels(vectors: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    codes: np.ndarray = np.round((vectors - low) / (high - low) * 255).clip(0, 255).astype(np.uint8)
    return codes


def _ranges(outside: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors, and the lowest and highest value of each dimension, which some of them leave."""
    vectors = _vectors(30, 4) * np.array([1, 5, 0.1, 2], np.float32) + np.float32(3)
    low, high = vectors.min(0), vectors.max(0)
    width = high - low
    return (vectors, low + 0.2 * width, high - 0.2 * width) if outside else (vectors, low, high)


def _levels(
    answer: Callable[..., Any], outside: bool = False, expected: Callable[..., Any] = _to_levels
) -> bool:
    case = _ranges(outside)
    given, wanted = np.asarray(answer(*case)), expected(*case)
    # A value in the middle between two levels may go to either.
    halves = abs((case[0] - case[1]) / (case[2] - case[1]) * 255 % 1 - 0.5) < 1e-3
    return given.shape == wanted.shape and bool((halves | (given == wanted)).all())


def _cut_off(vectors: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    codes: np.ndarray = ((vectors - low) / (high - low) * 255).clip(0, 255).astype(np.uint8)
    return codes


def _wrapped(vectors: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    codes: np.ndarray = np.round((vectors - low) / (high - low) * 255).astype(int).astype(np.uint8)
    return codes


def _one_range(vectors: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return _to_levels(vectors, low.min(), high.max())


EXERCISES: dict[str, Exercise] = {
    "19.exact": Exercise(
        "Search block by block",
        "code",
        12,
        (
            Trial(
                lambda answer: len(answer(20, 4, 20)[0]) == len(answer(20, 4, 20)[1]) == 4,
                "Return two things of k entries each: the scores and the rows.",
            ),
            Trial(
                lambda answer: _finds(answer, 20, 4, 20),
                "In a single block, these are not the k largest dot products and their rows, the best first.",
            ),
            Trial(
                lambda answer: _finds(answer, 40, 5, 8),
                "In one block it is right, in several it is not. The best so far must compete with each "
                "new block, and row 0 of a block is not row 0 of the file.",
            ),
            Trial(
                lambda answer: _finds(answer, 43, 5, 8) and _finds(answer, 40, 12, 8),
                "The last block may be shorter, and k may be larger than a block.",
            ),
            Trial(
                lambda answer: answer(40, 5, 8)[2] <= 8,
                "Never ask for more than `block` rows at once: slice the vectors.",
            ),
            Trial(
                lambda answer: _finds(answer, 3, 10, 2) and _finds(answer, 40, 12, 8, -9.0),
                "With fewer than k vectors, return all that there are. Scores may all be below zero, so do "
                "not begin with zeros.",
            ),
        ),
        mistakes=(
            Trial(
                _finds_smallest,
                "Those are the smallest dot products.",
            ),
            Trial(
                _finds_rows_of_blocks,
                "The rows are counted from the beginning of their block. Add where the block starts.",
            ),
        ),
        reference=_exact_search,
        caller=_searched,
        message="Right. Memory holds a block and the best so far, however long the file is.",
    ),
    "19.cells": Exercise(
        "Search in cells",
        "code",
        12,
        (
            Trial(
                lambda answer: _in_cells(answer, 4, 5),
                "With all cells probed, return the k best rows of all, the best first.",
            ),
            Trial(
                lambda answer: _in_cells(answer, 4, 1),
                "With one probe, look only at the rows of the cell whose centre has the largest dot product "
                "with the query.",
            ),
            Trial(
                lambda answer: _in_cells(answer, 4, 2) and _in_cells(answer, 4, 3),
                "With several probes, put the rows of all these cells together before you choose the best.",
            ),
            Trial(
                lambda answer: _in_cells(answer, 30, 1),
                "If the cells hold fewer than k rows, return those that there are.",
            ),
            Trial(
                lambda answer: _in_cells(answer, 3, 2, empty=True),
                "A cell may be empty.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _in_cells(answer, 4, 2, _everything),
                "You compared the query with every vector: that is the exact search. Look into `probes` "
                "cells only.",
            ),
            Trial(
                lambda answer: _in_cells(answer, 4, 5, _places),
                "Those are places in the list of rows that you looked at. Return the rows themselves.",
            ),
            Trial(
                lambda answer: _in_cells(answer, 4, 5, _unsorted),
                "Those are the first rows of the cells, not the best. Compare each with the query.",
            ),
            Trial(
                lambda answer: _in_cells(answer, 4, 2, _nearest_by_distance),
                "You chose the centres by distance. The cells were made by dot products, and centres need "
                "not have length one.",
            ),
        ),
        reference=_search_cells,
        message="Right. This is an inverted file.",
    ),
    "19.levels": Exercise(
        "A byte for each number",
        "code",
        8,
        (
            Trial(
                lambda answer: (
                    np.asarray(answer(*_ranges(False))).shape == (30, 4)
                    and np.asarray(answer(*_ranges(False))).dtype == np.uint8
                ),
                "Return an array of the vectors' shape, of type uint8: `codes.astype(np.uint8)`.",
            ),
            Trial(
                lambda answer: _levels(answer),
                "`low` must become level 0, `high` level 255, in each dimension its own, and everything "
                "between them the nearest level.",
            ),
            Trial(
                lambda answer: _levels(answer, outside=True),
                "A value below `low` gets level 0, and one above `high` level 255.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _levels(answer, expected=_cut_off),
                "You cut the decimals off: half of all values get the level below the nearest. Round.",
            ),
            Trial(
                lambda answer: _levels(answer, expected=_one_range),
                "You used one range for all dimensions. Each has its own.",
            ),
            Trial(
                lambda answer: _levels(answer) and _levels(answer, outside=True, expected=_wrapped),
                "A value outside the range wraps around: level 256 becomes level 0. Limit the levels before "
                "you make bytes of them.",
            ),
        ),
        difficulty="easy",
        reference=_to_levels,
        message="Right. A quarter of the floats' memory.",
    ),
    "19.bytes": Exercise(
        "How many bytes",
        "compute",
        4,
        (
            Trial(
                lambda answer: 0 < float(answer) <= 2048,
                "Floats would take 2,048 bytes. A code takes fewer.",
            ),
            Trial(
                lambda answer: near(answer, 64, 1e-6),
                "How many bits tell one of 16 codewords from the others? There are 128 parts, and a byte has "
                "eight bits.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 512, 1e-6),
                "512 is the number of bits, or of numbers. A byte has eight bits.",
            ),
            Trial(
                lambda answer: near(answer, 128, 1e-6),
                "That would be a byte for each part. One of 16 needs less than a byte.",
            ),
            Trial(
                lambda answer: near(answer, 256, 1e-6),
                "16 codewords need 4 bits, not 16: a number from 0 to 15.",
            ),
        ),
        difficulty="easy",
        message="Right. That is a thirty-second of the floats.",
    ),
    "19.table": Exercise(
        "Scores from codes",
        "code",
        12,
        (
            Trial(
                lambda answer: np.asarray(answer(*_coded(3, 4, 2))).shape == (9,),
                "Return one score for each vector, (n,).",
            ),
            Trial(
                lambda answer: _from_codes(answer, 1, 4, 3),
                "With a single part, the score is the dot product of the query and the codeword that the "
                "code names.",
            ),
            Trial(
                lambda answer: _from_codes(answer, 3, 4, 2) and _from_codes(answer, 4, 3, 5),
                "With several parts, each has its own run of the query's numbers and its own codebook. Add "
                "up what the parts give.",
            ),
            Trial(
                lambda answer: _from_codes(answer, 2, 300, 1),
                "There may be more than 256 codewords.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _from_codes(answer, 3, 4, 2, expected=_first_book_alone),
                "You looked every part up in the first codebook. Each part has its own.",
            ),
            Trial(
                lambda answer: _from_codes(answer, 3, 4, 2, expected=_interleaved),
                "Part j is a run of neighbouring numbers of the query, not every M-th number.",
            ),
            Trial(
                lambda answer: _from_codes(answer, 3, 4, 2, expected=_mean_of_parts),
                "That is the mean over parts. A dot product is the sum.",
            ),
        ),
        reference=_scores_from_codes,
        message="Right. A score now takes M look-ups and no multiplication.",
    ),
    "19.trap": Exercise(
        "What mends it?",
        "predict",
        2,
        one_of("pictures alone", "half captions", "captions alone", "no difference"),
        difficulty="easy",
        message=NOTED,
    ),
    "19.break": Exercise(
        "Rows as names",
        "break",
        4,
        (
            Trial(
                lambda answer: 0 <= float(answer) <= 999,
                "Count pictures: there are 999 left.",
            ),
            Trial(
                lambda answer: near(answer, _WITHOUT_LAST, 1e-6),
                "Which rows still have the name that belongs to them? Rows count from zero.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 250, 1e-6),
                "Those 250 stand before the gap and keep their names.",
            ),
            Trial(
                lambda answer: near(answer, 750, 1e-6) or near(answer, 748, 1e-6),
                "Nearly. Rows count from zero, so 250 pictures stand before the one that is gone.",
            ),
            Trial(
                lambda answer: near(answer, 1, 1e-6) or near(answer, 0, 1e-6),
                "All pictures after the gap move up by one row, and the names do not.",
            ),
        ),
        difficulty="easy",
    ),
    "19.plan": Exercise(
        "Ten million",
        "compute",
        4,
        (
            Trial(
                lambda answer: 0.5 < float(answer) < 100,
                "Answer in GB, billions of bytes: it is more than a half and less than a hundred.",
            ),
            Trial(
                lambda answer: near(answer, _GIGABYTES, 0.05),
                "How many bytes does one picture take, the numbers of its vector and its own? There are ten "
                "million of them.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, _GIGABYTES * 1e9, 1e8),
                "Those are bytes. A GB is a billion of them.",
            ),
            Trial(
                lambda answer: near(answer, 5.12, 0.005),
                "The picture's own number is missing: eight bytes each.",
            ),
            Trial(
                lambda answer: near(answer, 20.56, 0.1) or near(answer, 20.48, 0.05),
                "That is four bytes for each number. Here it is one.",
            ),
            Trial(
                lambda answer: near(answer, 41.6, 0.1),
                "Those are gigabits.",
            ),
        ),
        difficulty="easy",
    ),
    "19.explore": Exercise("Change one thing", "explore", 15, EXPLORED, message="Noted."),
}
