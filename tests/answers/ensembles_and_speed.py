"""Answers to the exercises of notebook 12, written differently from the references."""

import torch


def filled_in(several, weights=None):
    weights = [1.0 for _ in several] if weights is None else weights
    out = torch.zeros(len(several[0]), sum(rows.shape[1] for rows in several), dtype=several[0].dtype)
    begin = 0
    for rows, weight in zip(several, weights, strict=True):
        end = begin + rows.shape[1]
        for row in range(len(rows)):
            scale = (weight / sum(weights)) ** 0.5 / rows[row].square().sum().sqrt()
            out[row, begin:end] = scale * rows[row]
        begin = end
    return out


RIGHT = {
    "12.one": [filled_in],
}
