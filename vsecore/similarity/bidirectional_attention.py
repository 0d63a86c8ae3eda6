"""BFAN: attention that leaves out what matters less than the rest, in both directions."""

from typing import Literal

import torch
from torch import Tensor

from vsecore.arguments import Positive, checked
from vsecore.embedding import Embedding
from vsecore.similarity.attended import Choice, aggregate_cosines, attended_cosines, shares
from vsecore.similarity.base import Similarity
from vsecore.similarity.fragments import Fragments, compare, of_elements, query_mask, row_cosines

Focus = Literal["equal", "prob"]

NEGATIVE_SLOPE = 0.1  # what remains of a negative affinity, as in SCAN's released code and BFAN's


def focal_attention(
    v: Tensor,
    v_mask: Tensor | None,
    t: Tensor,
    t_mask: Tensor | None,
    focus: Focus = "equal",
    smooth: Positive = 20.0,
) -> Tensor:
    """Compute BFAN's focal attention: irrelevant elements get no weight at all.

    As in `cross_attention`, each query element has weights a over the context's elements. An element stays
    only if it is more relevant than the rest, F_j = Σ_t (a_j − a_t) g(a_t) > 0, with g = 1 ("equal": its
    weight is above the mean) or g(a) = √a ("prob": relevant elements count more in the comparison). The
    largest always stays, so that one element, or several that are all the same, work too. The score is the
    mean cosine of words with what they attend to, plus that of regions.

    The choice of elements carries no gradient; the weights of those that stay do.

    Args:
        v: the pictures' elements, (B, N, D). Need not be unit vectors.
        v_mask: bool, (B, N), True where an element is real; None: all are.
        t: the captions' words, (C, M, D).
        t_mask: bool, (C, M), or None.
        focus: "equal" or "prob". The paper's full model is the mean of both, trained apart.
        smooth: how sharp the attention is, > 0.

    Returns:
        (B, C) scores from -2 to 2, in float32 at least, under autocast too. Padding changes nothing.

    Source: Liu et al. 2019 (BFAN) and its released code.
    """
    bfan = FocalAttention(focus, smooth)
    return bfan(Embedding(None, v, v_mask), Embedding(None, t, t_mask))


class FocalAttention(Similarity):
    """`focal_attention` of the two sides' elements, with its options."""

    reads = "elements"

    @checked
    def __init__(self, focus: Focus = "equal", smooth: Positive = 20.0) -> None:
        super().__init__()
        self.focus = focus
        self.smooth = smooth

    def forward(self, v: Embedding, t: Embedding) -> Tensor:
        def score(cosines: Tensor, pictures: Fragments, captions: Fragments) -> Tensor:
            by_words = self._mean_cosine(cosines, pictures, captions)  # (b, c)
            back = cosines.permute(3, 2, 1, 0).contiguous()  # (c, M, N, b)   no second product
            return by_words + self._mean_cosine(back, captions, pictures).T

        return compare(*of_elements(v, t), score, grams="both")

    def pairs(self, v: Embedding, t: Embedding) -> Tensor:
        pictures, captions = (side.with_gram() for side in of_elements(v, t))
        by_words = self._mean_cosine(row_cosines(pictures, captions), pictures, captions)  # (B, 1)
        by_regions = self._mean_cosine(row_cosines(captions, pictures), captions, pictures)  # (B, 1)
        return (by_words + by_regions).squeeze(1)

    def weights(self, v: Embedding, t: Embedding) -> Tensor:
        """Return each word's weights over the elements of its row's picture, after refocusing: (B, M, N).

        They add up to one along N. Padding and what is left out have 0. They have no gradient.
        """
        pictures, captions = of_elements(v, t)
        cosines, choose = row_cosines(pictures, captions), self._choice(pictures)
        return shares(cosines, self.smooth, NEGATIVE_SLOPE, pictures.mask, captions.mask, choose).mT

    def _mean_cosine(self, cosines: Tensor, context: Fragments, query: Fragments) -> Tensor:
        """Compute the mean cosine of a query's elements with what they attend to, (K, Q)."""
        answered = attended_cosines(
            cosines, context.gram, self.smooth, NEGATIVE_SLOPE, context.mask, self._choice(context)
        )  # (K, L, Q)
        return aggregate_cosines(answered, query_mask(query, cosines), "mean", 1.0)

    def _choice(self, context: Fragments) -> Choice:
        """Return what says which of the weights (K, S, L, Q) of a context's elements are relevant.

        Whether F > 0 does not depend on the scale of the weights. Equal weights differ by rounding, which the
        softmax has made up to `smooth` times as large: for a query of one element every affinity is 1 or
        below 0, so that they often are equal.
        """

        def relevant(weights: Tensor) -> Tensor:
            rounding = 16 * max(1.0, self.smooth) * torch.finfo(weights.dtype).eps
            if self.focus == "equal":
                count = weights.shape[1] if context.mask is None else context.mask.sum(1)[:, None, None, None]
                bar = weights.sum(1, keepdim=True) / count  # (K, 1, L, Q)
            else:
                trust = weights.sqrt()  # 0 in the padding
                total = trust.sum(1, keepdim=True)
                bar = trust.mul_(weights).sum(1, keepdim=True) / total
            largest = weights.amax(1, keepdim=True)
            return (weights > bar).logical_or_(weights >= (1 - rounding) * largest)

        return relevant
