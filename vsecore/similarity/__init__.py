"""Similarities: how near a picture is to a caption.

A recipe names a class, a `Similarity`: it takes two embeddings and compares every picture with every caption
(`forward`), or row by row (`pairs`). The function beside it takes tensors. `cosine` compares one
vector of each; `mil`, `match_probability`, `chamfer`, `smooth_chamfer` and `max_sim` compare sets of vectors;
`cross_attention` and `focal_attention` compare their elements, cells or regions with words.

All refuse an argument of a wrong shape, type or range, and on a CPU a row without a real element, with a
`ValueError` that names it. Results are in float32 at least, under autocast too.
"""

from vsecore.embedding import unit
from vsecore.registry import Registry
from vsecore.similarity.alignments import AttentionFiltration, GraphReasoning
from vsecore.similarity.base import Similarity
from vsecore.similarity.bidirectional_attention import FocalAttention, focal_attention
from vsecore.similarity.cosines import Cosine, cosine
from vsecore.similarity.sets import (
    Chamfer,
    MatchProbability,
    MaxSim,
    Mil,
    SmoothChamfer,
    chamfer,
    match_probability,
    max_sim,
    mil,
    smooth_chamfer,
)
from vsecore.similarity.stacked_attention import CrossAttention, cross_attention

SIMILARITIES = Registry(
    "similarity",
    {
        "cosine": Cosine,
        "cross_attention": CrossAttention,
        "focal_attention": FocalAttention,
        "mil": Mil,
        "match_probability": MatchProbability,
        "chamfer": Chamfer,
        "smooth_chamfer": SmoothChamfer,
        "max_sim": MaxSim,
        "graph_reasoning": GraphReasoning,
        "attention_filtration": AttentionFiltration,
    },
    context=("dim",),
    base=Similarity,
)
"""Every similarity by its name in recipes."""

__all__ = [
    "SIMILARITIES",
    *SIMILARITIES.class_names(),
    "Similarity",
    "chamfer",
    "cosine",
    "cross_attention",
    "focal_attention",
    "match_probability",
    "max_sim",
    "mil",
    "smooth_chamfer",
    "unit",
]
