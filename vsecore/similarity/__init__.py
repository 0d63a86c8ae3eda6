"""Similarities: how near a picture is to a caption.

The functions compare tensors. A thin module wraps each, so that a recipe can name it: it takes two embeddings
and compares every picture with every caption (`forward`), or row by row (`pairs`). `cosine` compares one
vector of each; `cross_attention` and `focal_attention` compare their elements, cells or regions with words.
"""

from vsecore.registry import Registry
from vsecore.similarity.cosine import Cosine, cosine, unit
from vsecore.similarity.cross_attention import CrossAttention, cross_attention
from vsecore.similarity.focal_attention import FocalAttention, focal_attention

__all__ = [
    "SIMILARITIES",
    "Cosine",
    "CrossAttention",
    "FocalAttention",
    "cosine",
    "cross_attention",
    "focal_attention",
    "unit",
]

SIMILARITIES = Registry(
    "similarity",
    {"cosine": Cosine, "cross_attention": CrossAttention, "focal_attention": FocalAttention},
    context=("dim",),
)
"""Every similarity by its name in recipes."""
