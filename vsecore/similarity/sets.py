"""Similarities of embedding sets: a picture and a caption are several vectors each.

All of them begin with the cosine of every element of one set with every element of the other, and differ in
what they make of these K·L numbers. Picture sets `v` are (B, K, D) and caption sets `t` (C, L, D), of any
length; the similarities are (B, C), in float32 at least, under autocast too. `mil` takes the largest,
`match_probability` treats all alike, `chamfer` and `smooth_chamfer` look for each element's best partners in
both directions, `max_sim` in one.

Each is a class whose `score` reads the cosines of b pictures' elements with c captions', (b, K, L, c), and a
function of tensors with the same options.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from vsecore.arguments import Finite, Positive, check_numbers, checked
from vsecore.embedding import Embedding
from vsecore.similarity.base import Similarity
from vsecore.similarity.fragments import MEMORY as OF_ELEMENTS
from vsecore.similarity.fragments import Memory, compare, fragments, row_cosines

MEMORY = OF_ELEMENTS | {"cpu": Memory(2**22, 2**27)}
"""On a CPU the cosines of a block should stay in its cache."""
LARGEST = 80.0
"""The largest `alpha` for which exp(alpha) and exp(-alpha) fit into float32, with thousands of elements."""

Reduce = Literal["mean", "sum"]
Direction = Literal["t2i", "i2t"]


def mil(v: Tensor, t: Tensor) -> Tensor:
    """Similarity of two embedding sets: the cosine of their nearest two elements.

    Only that pair learns, so most elements of a set may never learn anything (sparse supervision); see
    `smooth_chamfer`, in which all of them do. Pairs that are equally near share the gradient.

    Source: Song and Soleymani 2019 (PVSE), as in Kim et al. 2023, section 3.3.
    """
    return _all_with_all(v, t, Mil().score)


@checked
def match_probability(
    v: Tensor, t: Tensor, scale: Tensor | float, shift: Tensor | float, reduce: Reduce = "mean"
) -> Tensor:
    """Similarity of two embedding sets: how likely two elements match, whichever we take.

    Two elements with cosine c match with probability σ(scale · c + shift). Every pair counts alike, so that
    all elements of a set are pulled to the same place, and sets collapse. `smooth_chamfer` keeps them apart.

    Args:
        v: picture sets, (B, K, D). Need not be unit vectors.
        t: caption sets, (C, L, D).
        scale: how fast the probability grows with the cosine: a number, or a tensor that holds one.
        shift: its logit at a right angle, likewise.
        reduce: "mean" over the pairs of elements, as the text and the released code have it; or their "sum",
            as the formula is printed, which is K·L times as large.

    Returns:
        (B, C), in float32 at least, under autocast too; the mean lies in [0, 1].

    Source: Chun et al. 2021 (PCME), section 3, with cosines as in Kim et al. 2023, section 3.3.
    """
    check_numbers(scale=scale, shift=shift)
    return _all_with_all(v, t, lambda cosines: _match(cosines, scale, shift, reduce))


def chamfer(v: Tensor, t: Tensor) -> Tensor:
    """Similarity of two embedding sets: each element with its nearest in the other set, both ways.

    The mean over the pictures' elements and the mean over the captions' count half each. An element that is
    nobody's nearest still learns from its own nearest; pairs that are not nearest either way learn nothing.

    Source: Kim et al. 2023, section 3.3: eq. 7 with the maximum in the place of log-sum-exp.
    """
    return _all_with_all(v, t, Chamfer().score)


def smooth_chamfer(v: Tensor, t: Tensor, alpha: Positive = 16.0) -> Tensor:
    """Similarity of two embedding sets: every pair counts, and near pairs count more.

    A smooth maximum (log-sum-exp) pairs each element with the other set, both ways, so that all elements
    learn (unlike `mil`) and none is pulled to the mean of the others (unlike `match_probability`).

    Args:
        v: picture sets, (B, K, D). Need not be unit vectors.
        t: caption sets, (C, L, D).
        alpha: sharpness, > 0. As it grows this becomes `chamfer`.

    Returns:
        (B, C) similarities, in float32 at least, under autocast too. With K = L = 1 the cosine; with more
        elements above `chamfer`, by at most (log K + log L) / (2 · alpha).

    Source: Kim et al. 2023, eq. 6 and 7.
    """
    return _all_with_all(v, t, SmoothChamfer(alpha).score)


def max_sim(v: Tensor, t: Tensor, direction: Direction = "t2i", reduce: Reduce = "sum") -> Tensor:
    """Late interaction: each element of the query finds its best element of the document.

    This is one side of `chamfer`, which is the mean of both directions with reduce="mean". What a document
    has beyond the query costs it nothing here; `chamfer` asks each of its elements for a partner too.

    Args:
        v: picture sets, (B, K, D). Need not be unit vectors.
        t: caption sets, (C, L, D).
        direction: "t2i": the captions are the queries; "i2t": the pictures are.
        reduce: "sum" over the query's elements, as in ColBERT; or their "mean", which ranks alike and keeps
            to the scale of the cosine, as a margin needs it.

    Returns:
        (B, C), in float32 at least, under autocast too.

    Source: Khattab and Zaharia 2020 (ColBERT), eq. 3.
    """
    return _all_with_all(v, t, MaxSim(direction, reduce).score)


class SetSimilarity(Similarity):
    """Base class of similarities of sets, whose elements are all real."""

    reads = "vectors"
    block = (1024, 8192)

    def score(self, cosines: Tensor) -> Tensor:
        """Turn cosines (b, K, L, c) into scores (b, c). The cosines may be overwritten."""
        raise NotImplementedError

    def forward(self, v: Embedding, t: Embedding) -> Tensor:
        return _all_with_all(v.needed("vectors"), t.needed("vectors"), self.score)

    def pairs(self, v: Embedding, t: Embedding) -> Tensor:
        sides = fragments(v.needed("vectors"), None, t.needed("vectors"), None)
        return self.score(row_cosines(*sides)).squeeze(1)


class Mil(SetSimilarity):
    """`mil` of the two sides' sets."""

    def score(self, cosines: Tensor) -> Tensor:
        return cosines.amax(2).amax(1)


class MatchProbability(SetSimilarity):
    """`match_probability` of the two sides' sets, with scale and shift that are learned.

    Args:
        scale: where the scale begins.
        shift: where the shift begins.
        learned: False keeps both where they begin, and so does the released code of Kim et al. 2023, whose
            optimiser never sees them.
        reduce: "mean" or "sum", as in `match_probability`.

    Source: Kim et al. 2023, section 3.3; where scale and shift begin is from the released code.
    """

    @checked
    def __init__(
        self, scale: Finite = 1.0, shift: Finite = 0.0, learned: bool = True, reduce: Reduce = "mean"
    ) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(float(scale)), requires_grad=learned)
        self.shift = nn.Parameter(torch.tensor(float(shift)), requires_grad=learned)
        self.reduce = reduce

    def score(self, cosines: Tensor) -> Tensor:
        return _match(cosines, self.scale, self.shift, self.reduce)


class Chamfer(SetSimilarity):
    """`chamfer` of the two sides' sets."""

    def score(self, cosines: Tensor) -> Tensor:
        of_pictures = cosines.amax(2).mean(1)  # (b, c)   each picture element's nearest caption element
        of_captions = cosines.amax(1).mean(1)  # (b, c)   and back
        return (of_pictures + of_captions) / 2


class SmoothChamfer(SetSimilarity):
    """`smooth_chamfer` of the two sides' sets, with its option."""

    @checked
    def __init__(self, alpha: Positive = 16.0) -> None:
        super().__init__()
        self.alpha = alpha

    def score(self, cosines: Tensor) -> Tensor:
        logits = cosines.mul_(self.alpha)
        if self.alpha <= LARGEST:  # both directions from the same exponentials, the slowest step
            raised = logits.exp_()
            of_pictures, of_captions = raised.sum(2).log(), raised.sum(1).log()  # (b, K, c), (b, L, c)
        else:
            of_pictures, of_captions = logits.logsumexp(2), logits.logsumexp(1)
        return (of_pictures.mean(1) + of_captions.mean(1)) / (2 * self.alpha)  # eq. 7


class MaxSim(SetSimilarity):
    """`max_sim` of the two sides' sets, with its options. To learn with a margin, take `reduce="mean"`."""

    @checked
    def __init__(self, direction: Direction = "t2i", reduce: Reduce = "sum") -> None:
        super().__init__()
        self.direction = direction
        self.reduce = reduce

    def score(self, cosines: Tensor) -> Tensor:
        best = cosines.amax(1 if self.direction == "t2i" else 2)  # (b, L, c) or (b, K, c), of the queries
        return best.sum(1) if self.reduce == "sum" else best.mean(1)


def _match(cosines: Tensor, scale: Tensor | float, shift: Tensor | float, reduce: Reduce) -> Tensor:
    probabilities = (cosines * scale).add_(shift).sigmoid_()  # (b, K, L, c)
    return probabilities.mean((1, 2)) if reduce == "mean" else probabilities.sum((1, 2))


def _all_with_all(v: Tensor, t: Tensor, score: Callable[[Tensor], Tensor]) -> Tensor:
    """Compare every set (B, K, D) with every set (C, L, D), by what is made of their cosines: (B, C)."""
    sides = fragments(v, None, t, None)
    return compare(*sides, lambda cosines, *_: score(cosines), memory=MEMORY)
