"""Answers to the exercises of notebook 19, written differently from the references."""

import heapq

import numpy as np
import torch


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


def levels_by_half(vectors, low, high):
    inside = np.minimum(np.maximum(vectors, low), high)
    return np.floor((inside - low) * (255 / (high - low)) + 0.5).astype("uint8")


def levels_by_search(vectors, low, high):
    codes = np.empty(vectors.shape, np.uint8)
    for column in range(vectors.shape[1]):
        levels = np.linspace(low[column], high[column], 256)
        codes[:, column] = abs(vectors[:, column, None] - levels).argmin(1)
    return codes


RIGHT = {
    "19.exact": [exact_by_heap, exact_by_torch],
    "19.cells": [cells_by_sorting, cells_by_mask],
    "19.table": [table_by_loop, built_again],
    "19.levels": [levels_by_half, levels_by_search],
}
