"""Answers to the exercises of notebook 12, written differently from the references."""

import torch
from torch.nn.functional import cosine_similarity, normalize


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


def cross_attention(elements, words, smooth=9.0):
    v, t = normalize(elements, dim=-1), normalize(words, dim=-1)
    affinity = torch.einsum("nrd,wd->nwr", v, t).clamp(min=0)
    share = (smooth * normalize(affinity, dim=1)).softmax(-1)
    return cosine_similarity(share @ v, t, dim=-1).mean(-1)


def masked_rerank(quick, elements, words, k):
    closely = torch.full_like(quick, -torch.inf)
    candidates = quick.argsort(descending=True)[:k]
    closely[candidates] = cross_attention(elements[candidates], words)
    return closely.topk(k).indices


RIGHT = {
    "12.one": [filled_in],
    "12.rerank": [masked_rerank],
}
