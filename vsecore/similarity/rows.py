"""Attention row by row: each picture with one caption."""

from __future__ import annotations

import torch
from torch import Tensor

from vsecore.embedding import Embedding
from vsecore.similarity.fragments import Fragments, elements, fragments


def paired(v: Embedding, t: Embedding) -> tuple[Fragments, Fragments]:
    """Make pictures and captions ready to be compared row by row.

    Raises:
        ValueError: the numbers of rows differ, or as `fragments.fragments`.
    """
    pictures, captions = fragments(elements("v", v), v.mask, elements("t", t), t.mask)
    rows = len(pictures.elements), len(captions.elements)
    if rows[0] != rows[1]:
        raise ValueError(f"v and t have {rows[0]} and {rows[1]} rows: they must have the same number")
    with torch.autocast(pictures.elements.device.type, enabled=False):
        return pictures.with_gram(), captions.with_gram()


def row_affinities(context: Fragments, query: Fragments) -> Tensor:
    """Compute the cosines of each context's elements with those of the query in the same row.

    Returns:
        (B, S, L, 1), as `fragments.affinities` with one query for each context.
    """
    with torch.autocast(context.elements.device.type, enabled=False):
        return (context.elements @ query.elements.mT).unsqueeze(-1)


def normalised(weights: Tensor, query: Fragments) -> Tensor:
    """Scale raw weights (B, S, L, 1) to add up to one over S, with 0 for a query's padding: (B, S, L)."""
    shares = (weights / weights.sum(1, keepdim=True)).squeeze(-1)  # (B, S, L)
    return shares if query.mask is None else torch.where(query.mask.unsqueeze(1), shares, 0)
