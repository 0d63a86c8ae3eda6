"""Answers to the exercises of notebook 19: right ones, and typical mistakes."""

import heapq

import numpy as np
import torch


def right_exact(vectors, query, k, block):
    scores, rows = np.empty(0), np.empty(0, dtype=int)
    for start in range(0, len(vectors), block):
        part = vectors[start : start + block] @ query
        scores = np.concatenate([scores, part])
        rows = np.concatenate([rows, start + np.arange(len(part))])
        best = np.argsort(-scores)[:k]
        scores, rows = scores[best], rows[best]
    return scores, rows


def exact_by_heap(vectors, query, k, block):
    best = []
    for start in range(0, len(vectors), block):
        for place, vector in enumerate(vectors[start : start + block]):
            best.append((float(vector @ query), start + place))
        best = heapq.nlargest(k, best)
    return [score for score, _ in best], [row for _, row in best]


def exact_by_torch(vectors, query, k, block):
    asked = torch.from_numpy(query)
    scores, rows = torch.empty(0), torch.empty(0, dtype=torch.long)
    for start in range(0, len(vectors), block):
        part = torch.from_numpy(vectors[start : start + block]) @ asked
        scores = torch.cat([scores, part])
        rows = torch.cat([rows, torch.arange(start, start + len(part))])
        scores, best = scores.topk(min(k, len(scores)))
        rows = rows[best]
    return scores, rows


def whole_file(vectors, query, k, block):
    scores = vectors[:] @ query
    rows = np.argsort(-scores)[:k]
    return scores[rows], rows


def rows_of_blocks(vectors, query, k, block):
    scores, rows = np.empty(0), np.empty(0, dtype=int)
    for start in range(0, len(vectors), block):
        part = vectors[start : start + block] @ query
        scores = np.concatenate([scores, part])
        rows = np.concatenate([rows, np.arange(len(part))])
        best = np.argsort(-scores)[:k]
        scores, rows = scores[best], rows[best]
    return scores, rows


def last_block_alone(vectors, query, k, block):
    for start in range(0, len(vectors), block):
        part = vectors[start : start + block] @ query
        best = np.argsort(-part)[:k]
    return part[best], start + best


def smallest(vectors, query, k, block):
    scores = np.concatenate([vectors[i : i + block] @ query for i in range(0, len(vectors), block)])
    rows = np.argsort(scores)[:k]
    return scores[rows], rows


def padded_by_zeros(vectors, query, k, block):
    scores, rows = np.zeros(k), np.zeros(k, dtype=int)
    for start in range(0, len(vectors), block):
        part = vectors[start : start + block] @ query
        scores = np.concatenate([scores, part])
        rows = np.concatenate([rows, start + np.arange(len(part))])
        best = np.argsort(-scores)[:k]
        scores, rows = scores[best], rows[best]
    return scores, rows


def right_cells(query, centres, members, vectors, k, probes):
    nearest = np.argsort(-(centres @ query))[:probes]
    rows = np.concatenate([members[cell] for cell in nearest])
    return rows[np.argsort(-(vectors[rows] @ query))[:k]]


def cells_by_sorting(query, centres, members, vectors, k, probes):
    order = sorted(range(len(centres)), key=lambda cell: -float(centres[cell] @ query))
    rows = [int(row) for cell in order[:probes] for row in members[cell]]
    return sorted(rows, key=lambda row: -float(vectors[row] @ query))[:k]


def cells_by_mask(query, centres, members, vectors, k, probes):
    scores = np.full(len(vectors), -np.inf)
    for cell in np.argsort(centres @ query)[::-1][:probes]:
        scores[members[cell]] = vectors[members[cell]] @ query
    best = np.argsort(-scores)[:k]
    return best[np.isfinite(scores[best])]


def everything(query, centres, members, vectors, k, probes):
    return np.argsort(-(vectors @ query))[:k]


def places(query, centres, members, vectors, k, probes):
    nearest = np.argsort(-(centres @ query))[:probes]
    rows = np.concatenate([members[cell] for cell in nearest])
    return np.argsort(-(vectors[rows] @ query))[:k]


def first_cell_alone(query, centres, members, vectors, k, probes):
    rows = members[(centres @ query).argmax()]
    return rows[np.argsort(-(vectors[rows] @ query))[:k]]


def farthest_cells(query, centres, members, vectors, k, probes):
    nearest = np.argsort(centres @ query)[:probes]
    rows = np.concatenate([members[cell] for cell in nearest])
    return rows[np.argsort(-(vectors[rows] @ query))[:k]]


def cells_by_distance(query, centres, members, vectors, k, probes):
    nearest = np.argsort(((centres - query) ** 2).sum(1))[:probes]
    rows = np.concatenate([members[cell] for cell in nearest])
    return rows[np.argsort(-(vectors[rows] @ query))[:k]]


def not_ranked(query, centres, members, vectors, k, probes):
    nearest = np.argsort(-(centres @ query))[:probes]
    return np.concatenate([members[cell] for cell in nearest])[:k]


def right_table(query, codebooks, codes):
    parts = query.reshape(len(codebooks), -1)
    table = np.einsum("md,mwd->mw", parts, codebooks)
    return table[np.arange(len(codebooks)), codes].sum(1)


def table_by_loop(query, codebooks, codes):
    width = codebooks.shape[2]
    scores = np.zeros(len(codes))
    for part, book in enumerate(codebooks):
        table = book @ query[part * width : (part + 1) * width]
        scores += table[codes[:, part]]
    return scores


def built_again(query, codebooks, codes):
    parts = len(codebooks)
    vectors = codebooks[np.arange(parts), codes].reshape(len(codes), -1)
    return vectors @ query


def first_book(query, codebooks, codes):
    parts = query.reshape(len(codebooks), -1)
    table = parts @ codebooks[0].T
    return table[np.arange(len(codebooks)), codes].sum(1)


def interleaved(query, codebooks, codes):
    parts = query.reshape(-1, len(codebooks)).T
    table = np.einsum("md,mwd->mw", parts, codebooks)
    return table[np.arange(len(codebooks)), codes].sum(1)


def mean_of_parts(query, codebooks, codes):
    return right_table(query, codebooks, codes) / len(codebooks)


def parts_apart(query, codebooks, codes):
    parts = query.reshape(len(codebooks), -1)
    table = np.einsum("md,mwd->mw", parts, codebooks)
    return table[np.arange(len(codebooks)), codes]


def in_a_byte(query, codebooks, codes):
    return right_table(query, codebooks, codes.astype(np.uint8))


def right_levels(vectors, low, high):
    return np.round((vectors - low) / (high - low) * 255).clip(0, 255).astype(np.uint8)


def levels_by_half(vectors, low, high):
    inside = np.minimum(np.maximum(vectors, low), high)
    return np.floor((inside - low) * (255 / (high - low)) + 0.5).astype("uint8")


def levels_by_search(vectors, low, high):
    codes = np.empty(vectors.shape, np.uint8)
    for column in range(vectors.shape[1]):
        levels = np.linspace(low[column], high[column], 256)
        codes[:, column] = abs(vectors[:, column, None] - levels).argmin(1)
    return codes


def cut_off(vectors, low, high):
    return ((vectors - low) / (high - low) * 255).clip(0, 255).astype(np.uint8)


def wrapped(vectors, low, high):
    return np.round((vectors - low) / (high - low) * 255).astype(int).astype(np.uint8)


def one_range(vectors, low, high):
    return right_levels(vectors, low.min(), high.max())


def still_floats(vectors, low, high):
    return np.round((vectors - low) / (high - low) * 255).clip(0, 255)


RIGHT = {
    "19.exact": [right_exact, exact_by_heap, exact_by_torch],
    "19.cells": [right_cells, cells_by_sorting, cells_by_mask],
    "19.bytes": [64, 128 * 4 / 8, torch.tensor(64.0)],
    "19.table": [right_table, table_by_loop, built_again],
    "19.trap": ["pictures alone", "Half captions", "no difference"],
    "19.levels": [right_levels, levels_by_half, levels_by_search],
    "19.break": [749, 749.0, torch.tensor(749)],
    "19.plan": [5.2, 10_000_000 * 520 / 1e9, torch.tensor(5.2)],
    "19.explore": [
        ("Half the bytes lose more than a quarter", "captions keep 40 %"),
        ("more probes always keep more", "yes, at twice the work"),
        ("no difference is expected", "it fell for captions only"),
    ],
}
WRONG = {
    "19.exact": [whole_file, rows_of_blocks, last_block_alone, smallest, padded_by_zeros],
    "19.cells": [everything, places, first_cell_alone, farthest_cells, cells_by_distance, not_ranked],
    "19.bytes": [512, 128, 256, 2048, 32, -1],
    "19.table": [first_book, interleaved, mean_of_parts, parts_apart, in_a_byte],
    "19.trap": ["captions", "soon", 3, ""],
    "19.levels": [cut_off, wrapped, one_range, still_floats],
    "19.break": [250, 750, 748, 1, 0, 999, -1],
    "19.plan": [5.2e9, 5.12, 20.56, 20.48, 41.6, 0.1, 8],
    "19.explore": ["more", ("fewer", "captions keep 40 %"), ("captions keep 40 %", "captions keep 40 %"), 5],
}
