"""Answers to the exercises of notebook 12: right ones, and typical mistakes."""

import torch
from torch.nn.functional import cosine_similarity, normalize


def right_embedding(several, weights=None):
    weights = weights or [1] * len(several)
    shares = [(weight / sum(weights)) ** 0.5 for weight in weights]
    parts = [share * normalize(x, dim=1) for share, x in zip(shares, several, strict=True)]
    return torch.cat(parts, dim=1)


def normalised_at_the_end(several, weights=None):
    parts = [
        rows / rows.norm(dim=1, keepdim=True) * weight**0.5
        for rows, weight in zip(several, weights or [2.0] * len(several), strict=True)
    ]
    return normalize(torch.hstack(parts), dim=1)


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


def parts(several, weights, scale, length=True):
    """The right answer with another scale for each part."""
    weights = weights or [1] * len(several)
    return torch.cat(
        [
            scale(weight, sum(weights)) * (normalize(rows, dim=-1) if length else rows)
            for rows, weight in zip(several, weights, strict=True)
        ],
        -1,
    )


def cross_attention(elements, words, smooth=9.0):
    v, t = normalize(elements, dim=-1), normalize(words, dim=-1)
    affinity = torch.einsum("nrd,wd->nwr", v, t).clamp(min=0)
    share = (smooth * normalize(affinity, dim=1)).softmax(-1)
    return cosine_similarity(share @ v, t, dim=-1).mean(-1)


def right_rerank(quick, elements, words, k):
    candidates = quick.topk(k).indices
    closely = cross_attention(elements[candidates], words)
    return candidates[closely.argsort(descending=True)]


def sorted_rerank(quick, elements, words, k):
    rows = sorted(range(len(quick)), key=lambda row: -float(quick[row]))[:k]
    return sorted(rows, key=lambda row: -float(cross_attention(elements[[row]], words)))


def masked_rerank(quick, elements, words, k):
    closely = torch.full_like(quick, -torch.inf)
    candidates = quick.argsort(descending=True)[:k]
    closely[candidates] = cross_attention(elements[candidates], words)
    return closely.topk(k).indices


def places_of_candidates(quick, elements, words, k):
    candidates = quick.topk(k).indices
    return cross_attention(elements[candidates], words).argsort(descending=True)


def worst_first(quick, elements, words, k):
    candidates = quick.topk(k).indices
    return candidates[cross_attention(elements[candidates], words).argsort()]


def always_four(quick, elements, words, k):
    return right_rerank(quick, elements, words, 4)


RIGHT = {
    "12.gain": ["RGP", "PPP", "the same"],
    "12.lead": [1.5**0.5, torch.tensor(1.2247), 1 / (2 / 3) ** 0.5],
    "12.one": [right_embedding, normalised_at_the_end, filled_in],
    "12.break": [3 / 2**0.5, torch.tensor(2.1213), 1.5 / 0.5**0.5],
    "12.rerank": [right_rerank, sorted_rerank, masked_rerank],
    "12.explore": [
        ("P should count more than the others", "rsum 455 against 450"),
        ("without R it gets worse", "it did get worse, 444 against 450"),
        ("no difference is expected", "the sums differ by less than one"),
    ],
}
WRONG = {
    "12.gain": ["RG", "both", 3, ""],
    "12.lead": [3**0.5, 1.5, 1.5**-0.5, 1.1, 4],
    "12.one": [
        lambda several, weights=None: sum(several),
        lambda several, weights=None: parts(
            several, weights, lambda weight, total: (weight / total) ** 0.5, length=False
        ),
        lambda several, weights=None: parts(several, weights, lambda weight, total: weight),
        lambda several, weights=None: parts(several, weights, lambda weight, total: 1.0),
        lambda several, weights=None: parts(several, weights, lambda weight, total: weight**0.5),
        lambda several, weights=None: right_embedding(several),
    ],
    "12.break": [1.5, 3, 3 * 2**0.5, 0, 2.5],
    "12.rerank": [
        lambda quick, elements, words, k: quick.topk(k).indices,
        lambda quick, elements, words, k: cross_attention(elements, words).topk(k).indices,
        lambda quick, elements, words, k: quick.argsort(descending=True),
        places_of_candidates,
        worst_first,
        always_four,
    ],
    "12.explore": [
        "P should count more",
        ("more", "rsum 455 against 450"),
        ("P should count more", "yes"),
        5,
    ],
}
