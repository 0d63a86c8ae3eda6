"""SCAN: words attend to regions, or regions to words, and the score is how well each is answered."""

from typing import Literal

from torch import Tensor

from vsecore.arguments import Fraction, Positive, checked
from vsecore.embedding import Embedding
from vsecore.similarity.attended import Aggregate, aggregate_cosines, attended_cosines, shares
from vsecore.similarity.base import Similarity
from vsecore.similarity.fragments import Fragments, compare, of_elements, query_mask, row_cosines

Direction = Literal["t2i", "i2t"]


def cross_attention(
    v: Tensor,
    v_mask: Tensor | None,
    t: Tensor,
    t_mask: Tensor | None,
    direction: Direction = "t2i",
    smooth: Positive = 9.0,
    aggregate: Aggregate = "lse",
    lse: Positive = 6.0,
    negative_slope: Fraction = 0.1,
) -> Tensor:
    """Compute SCAN's stacked cross attention: each query element looks for its own view of the context.

    From text to image ("t2i") the words are the queries and the regions the context; from image to text it is
    the other way round. A query element's weights over the context are a softmax of `smooth` times the
    affinities, the cosines of elements, after the negative ones are clipped and each context element's
    affinities are divided by their norm over the query's elements. A query element scores its cosine with the
    weighted sum of the context's elements, and the pair scores their smooth maximum or mean.

    The paper prints [s]₊ for the clip; its released code keeps a tenth of what is negative, which is our
    default too.

    It costs one matrix product and some work on the cosines, not on the vectors. For one vector on each side
    see `cosine`, which lets search compare millions; for both directions at once, `focal_attention`.

    Args:
        v: the pictures' elements, (B, N, D). Need not be unit vectors.
        v_mask: bool, (B, N), True where an element is real; None: all are.
        t: the captions' words, (C, M, D).
        t_mask: bool, (C, M), or None.
        direction: "t2i" or "i2t". For i2t on Flickr30K the released commands have smooth=4 and lse=5.
        smooth: how sharp the attention is, > 0.
        aggregate: "lse", the smooth maximum, or "mean".
        lse: how sharp the smooth maximum is, > 0.
        negative_slope: what remains of a negative affinity, from 0 (as printed) to 1.

    Returns:
        (B, C) scores, in float32 at least, under autocast too. Padding changes nothing.

    Source: Lee et al. 2018 (SCAN), section 3.1; the leak from its released code.
    """
    scan = CrossAttention(direction, smooth, aggregate, lse, negative_slope)
    return scan(Embedding(None, v, v_mask), Embedding(None, t, t_mask))


class CrossAttention(Similarity):
    """`cross_attention` of the two sides' elements, with its options."""

    reads = "elements"

    @checked
    def __init__(
        self,
        direction: Direction = "t2i",
        smooth: Positive = 9.0,
        aggregate: Aggregate = "lse",
        lse: Positive = 6.0,
        negative_slope: Fraction = 0.1,
    ) -> None:
        super().__init__()
        self.direction = direction
        self.smooth = smooth
        self.aggregate: Aggregate = aggregate
        self.lse = lse
        self.negative_slope = negative_slope

    def forward(self, v: Embedding, t: Embedding) -> Tensor:
        scores = compare(*self._sides(v, t), self._score, grams="context")
        return scores if self.direction == "t2i" else scores.T

    def pairs(self, v: Embedding, t: Embedding) -> Tensor:
        context, query = self._sides(v, t)
        context = context.with_gram()  # before the cosines: gradients are added up in the opposite order
        return self._score(row_cosines(context, query), context, query).squeeze(1)

    def weights(self, v: Embedding, t: Embedding) -> Tensor:
        """Say where each picture and the caption of its row look at each other.

        Returns:
            (B, M, N): from text to image each word's weights over the picture's elements, which add up to one
            along N; from image to text each element's weights over the words, which add up to one along M.
            Padding has 0. Without gradient.
        """
        context, query = self._sides(v, t)
        cosines = row_cosines(context, query)  # (B, S, L, 1)
        weights = shares(cosines, self.smooth, self.negative_slope, context.mask, query.mask)  # (B, S, L)
        return weights.mT if self.direction == "t2i" else weights

    def _sides(self, v: Embedding, t: Embedding) -> tuple[Fragments, Fragments]:
        """Return the side that is attended to, the context, and the one that asks, the query."""
        pictures, captions = of_elements(v, t)
        return (pictures, captions) if self.direction == "t2i" else (captions, pictures)

    def _score(self, cosines: Tensor, context: Fragments, query: Fragments) -> Tensor:
        answered = attended_cosines(
            cosines, context.gram, self.smooth, self.negative_slope, context.mask
        )  # (K, L, Q)
        return aggregate_cosines(answered, query_mask(query, cosines), self.aggregate, self.lse)  # (K, Q)
