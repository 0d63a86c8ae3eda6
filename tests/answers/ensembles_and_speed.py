"""Answers to the exercises of notebook 12: right ones, and typical mistakes."""

import torch
from torch.nn.functional import normalize


def right_embedding(pictures, captions, weights):
    shares = [weight / sum(weights) for weight in weights]
    return tuple(
        torch.cat(
            [share**0.5 * normalize(rows, dim=-1) for share, rows in zip(shares, side, strict=True)], -1
        )
        for side in (pictures, captions)
    )


def normalised_at_the_end(pictures, captions, weights):
    def whole(side):
        parts = [
            rows / rows.norm(dim=1, keepdim=True) * weight**0.5
            for rows, weight in zip(side, weights, strict=True)
        ]
        return normalize(torch.hstack(parts), dim=1)

    return whole(pictures), whole(captions)


def filled_in(pictures, captions, weights):
    made = []
    for side in (pictures, captions):
        out = torch.zeros(len(side[0]), sum(rows.shape[1] for rows in side), dtype=side[0].dtype)
        begin = 0
        for rows, weight in zip(side, weights, strict=True):
            end = begin + rows.shape[1]
            for row in range(len(rows)):
                scale = (weight / sum(weights)) ** 0.5 / rows[row].square().sum().sqrt()
                out[row, begin:end] = scale * rows[row]
            begin = end
        made.append(out)
    return made


def parts(pictures, captions, weights, scale, length=True):
    """The right answer with another scale for each part."""
    return tuple(
        torch.cat(
            [
                scale(weight, sum(weights)) * (normalize(rows, dim=-1) if length else rows)
                for rows, weight in zip(side, weights, strict=True)
            ],
            -1,
        )
        for side in (pictures, captions)
    )


RIGHT = {
    "12.lead": [1.5**0.5, torch.tensor(1.2247), 1 / (2 / 3) ** 0.5],
    "12.count": [7200 / 66, torch.tensor(109.09), 10_000 * 720 * 1024 / (30_000 * 1024 + 50 * 720 * 1024)],
    "12.one": [right_embedding, normalised_at_the_end, filled_in],
    "12.break": [3 / 2**0.5, torch.tensor(2.1213), 1.5 / 0.5**0.5],
}
WRONG = {
    "12.lead": [3**0.5, 1.5, 1.5**-0.5, 1.1, 4],
    "12.count": [200, 7200 / 46, 3600 / 48, 240, 7200, 50],
    "12.one": [
        lambda pictures, captions, weights: (sum(pictures), sum(captions)),
        lambda *given: parts(*given, lambda weight, total: (weight / total) ** 0.5, length=False),
        lambda *given: parts(*given, lambda weight, total: weight),
        lambda *given: parts(*given, lambda weight, total: 1.0),
        lambda *given: parts(*given, lambda weight, total: weight**0.5),
        lambda *given: [side / 2**0.5 for side in right_embedding(*given)],
    ],
    "12.break": [1.5, 3, 3 * 2**0.5, 0, 2.5],
}
