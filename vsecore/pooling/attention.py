"""Attention by a learned question: what do I want to know of this set?"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from vsecore.masking import check_dim, check_elements, without_padding


class AttentionPool(nn.Module):
    """Several heads each ask the set one learned question, and weigh the elements by how well they answer.

    A head compares its question with a key of each element; a softmax of the scaled products gives the
    weights, and the head's answer is the weighted mean of the elements' values. A last layer joins the heads'
    answers.

    Args:
        dim: width D of the elements.
        heads: how many questions, a divisor of D.

    Raises:
        ValueError: dim is not a whole number of at least 1, or the heads do not divide it.

    Source: Radford et al. 2021 (CLIP), section 2.4, whose question is the mean of the elements; Lee et al.
    2019 (Set Transformer), section 3.2, whose question is learned, as here. CLIP adds positions to the cells
    of its grid. The elements of a set have none.
    """

    def __init__(self, dim: int, heads: int = 8) -> None:
        super().__init__()
        check_dim(dim)
        if not isinstance(heads, int) or isinstance(heads, bool) or heads < 1 or dim % heads:
            raise ValueError(f"heads must be a whole number that divides dim = {dim}, got {heads!r}")
        self.dim = dim
        self.heads = heads
        self.question = nn.Parameter(torch.randn(heads, dim // heads))
        self.key = nn.Linear(dim, dim, bias=False)  # a bias would change no weight
        self.value = nn.Linear(dim, dim)
        self.joined = nn.Linear(dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D); raises ValueError as `check_elements` does."""
        check_elements(x, mask, self.dim)
        x = without_padding(x, mask)
        keys, values = (self._by_head(layer(x)) for layer in (self.key, self.value))  # (B, H, N, D/H)
        questions = self.question.to(keys.dtype).view(1, self.heads, 1, -1).expand(len(x), -1, -1, -1)
        real = None if mask is None else mask[:, None, None, :]  # (B, 1, 1, N)
        answers = functional.scaled_dot_product_attention(questions, keys, values, real)  # (B, H, 1, D/H)
        return self.joined(answers.reshape(len(x), self.dim))

    def _by_head(self, x: Tensor) -> Tensor:
        """(B, N, D) as (B, H, N, D/H)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
