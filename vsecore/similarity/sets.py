"""Similarities of embedding sets: a picture and a caption are several vectors each.

All of them begin with the cosine of every element of one set with every element of the other, and differ in
what they make of these K·L numbers. `mil` takes the largest, `match_probability` treats all alike, `chamfer`
and `smooth_chamfer` look for each element's best partners in both directions, `max_sim` in one.

The cosines of a block of sets come from one matrix product. Those of all sets are never in memory together.
They lie as (K, b, L, c): the elements of b pictures and c captions.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vsecore.embedding import Embedding
from vsecore.similarity.attention import check_one_of, check_positive
from vsecore.similarity.cosine import unit

MEMORY = {"cpu": 2**22, "cuda": 2**28}
"""Bytes of the cosines of one block. On a CPU they should stay in its cache."""
KEPT = {"cpu": 2**27, "cuda": 2**32}
"""Bytes of cosines that training may keep for the backward pass; if there are more, it computes each block
twice."""
LARGEST = 80.0
"""The largest `alpha` for which exp(alpha) and exp(-alpha) fit into float32, with thousands of elements."""

Reduce = Literal["mean", "sum"]
Direction = Literal["t2i", "i2t"]
Score = Callable[[Tensor], Tensor]


def mil(v: Tensor, t: Tensor) -> Tensor:
    """Similarity of two embedding sets: the cosine of their nearest two elements.

    Only that pair learns, so most elements of a set may never learn anything (sparse supervision); see
    `smooth_chamfer`, in which all of them do. Pairs that are equally near share the gradient.

    Args:
        v: picture sets, (B, K, D). Need not be unit vectors.
        t: caption sets, (C, L, D).

    Returns:
        (B, C) similarities in [-1, 1], in float32 at least, under autocast too.

    Raises:
        ValueError: a shape or type is wrong, a set is empty, or the widths differ.

    Source: Song and Soleymani 2019 (PVSE), as in Kim et al. 2023, section 3.3.
    """
    return _compare(v, t, _mil)


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

    Raises:
        ValueError: a shape or type is wrong, a set is empty, the widths differ, or scale or shift holds more
            than one number.

    Source: Chun et al. 2021 (PCME), section 3, with cosines as in Kim et al. 2023, section 3.3.
    """
    check_one_of("reduce", reduce, ("mean", "sum"))
    for name, number in (("scale", scale), ("shift", shift)):
        if isinstance(number, Tensor) and number.numel() != 1:
            raise ValueError(f"{name} is {tuple(number.shape)}: it must be one number")
    return _compare(v, t, lambda cosines: _match_probability(cosines, scale, shift, reduce))


def chamfer(v: Tensor, t: Tensor) -> Tensor:
    """Similarity of two embedding sets: each element with its nearest in the other set, both ways.

    The mean over the pictures' elements and the mean over the captions' count half each. An element that is
    nobody's nearest still learns from its own nearest; pairs that are not nearest either way learn nothing.

    Args:
        v: picture sets, (B, K, D). Need not be unit vectors.
        t: caption sets, (C, L, D).

    Returns:
        (B, C) similarities in [-1, 1], in float32 at least, under autocast too.

    Raises:
        ValueError: a shape or type is wrong, a set is empty, or the widths differ.

    Source: Kim et al. 2023, section 3.3: eq. 7 with the maximum in the place of log-sum-exp.
    """
    return _compare(v, t, _chamfer)


def smooth_chamfer(v: Tensor, t: Tensor, alpha: float = 16.0) -> Tensor:
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

    Raises:
        ValueError: a shape or type is wrong, a set is empty, the widths differ, or alpha <= 0.

    Source: Kim et al. 2023, eq. 6 and 7.
    """
    check_positive("alpha", alpha)
    return _compare(v, t, lambda cosines: _smooth_chamfer(cosines, alpha))


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

    Raises:
        ValueError: a shape or type is wrong, a set is empty, the widths differ, or an option is unknown.

    Source: Khattab and Zaharia 2020 (ColBERT), eq. 3.
    """
    _check_max_sim(direction, reduce)
    return _compare(v, t, lambda cosines: _max_sim(cosines, direction, reduce))


# What each similarity makes of cosines (K, b, L, c): the scores (b, c). The cosines may be overwritten.


def _mil(cosines: Tensor) -> Tensor:
    return cosines.amax(2).amax(0)


def _match_probability(
    cosines: Tensor, scale: Tensor | float, shift: Tensor | float, reduce: Reduce
) -> Tensor:
    probabilities = (cosines * scale).add_(shift).sigmoid_()  # (K, b, L, c)
    return probabilities.mean((0, 2)) if reduce == "mean" else probabilities.sum((0, 2))


def _chamfer(cosines: Tensor) -> Tensor:
    of_pictures = cosines.amax(2).mean(0)  # (b, c)   each picture element's nearest caption element
    of_captions = cosines.amax(0).mean(1)  # (b, c)   and back
    return (of_pictures + of_captions) / 2


def _smooth_chamfer(cosines: Tensor, alpha: float) -> Tensor:
    logits = cosines.mul_(alpha)
    if alpha <= LARGEST:  # both directions from the same exponentials, the slowest step
        raised = logits.exp_()
        of_pictures, of_captions = raised.sum(2).log(), raised.sum(0).log()  # (K, b, c), (b, L, c)
    else:
        of_pictures, of_captions = logits.logsumexp(2), logits.logsumexp(0)
    return (of_pictures.mean(0) + of_captions.mean(1)) / (2 * alpha)  # eq. 7


def _max_sim(cosines: Tensor, direction: Direction, reduce: Reduce) -> Tensor:
    # (L, b, c) for captions as queries, or (K, b, c) for pictures
    best = cosines.amax(0).transpose(0, 1) if direction == "t2i" else cosines.amax(2)
    return best.sum(0) if reduce == "sum" else best.mean(0)


def _check_max_sim(direction: str, reduce: str) -> None:
    check_one_of("direction", direction, ("t2i", "i2t"))
    check_one_of("reduce", reduce, ("mean", "sum"))


def _compare(v: Tensor, t: Tensor, score: Score) -> Tensor:
    """Score all picture sets (B, K, D) with all caption sets (C, L, D), block by block: (B, C)."""
    dtype = _check_sets(v, t)
    device = v.device.type
    (_, k, _), (_, n, _) = v.shape, t.shape
    pictures_at_once, captions_at_once = _block(v, t, dtype)
    cosines = v.shape[:2].numel() * t.shape[:2].numel() * dtype.itemsize
    again = torch.is_grad_enabled() and cosines > KEPT.get(device, KEPT["cpu"])

    def scored(p: Tensor, q: Tensor) -> Tensor:
        return score((p @ q.T).view(k, len(p) // k, n, len(q) // n))

    with torch.autocast(device, enabled=False):
        pictures = [_stacked(part, dtype) for part in v.split(pictures_at_once)]
        columns = []
        for part in t.split(captions_at_once):
            captions = _stacked(part, dtype)
            rows = [
                checkpoint(scored, block, captions, use_reentrant=False, preserve_rng_state=False)
                if again
                else scored(block, captions)
                for block in pictures
            ]
            columns.append(torch.cat(rows))
        return torch.cat(columns, 1)


def _stacked(sets: Tensor, dtype: torch.dtype) -> Tensor:
    """Scale elements to length one and stack them, all first ones before all second ones: (K·b, D)."""
    return unit(sets.to(dtype)).transpose(0, 1).flatten(0, 1)


def _block(v: Tensor, t: Tensor, dtype: torch.dtype) -> tuple[int, int]:
    """How many pictures and captions to compare at a time."""
    most = max(1, MEMORY.get(v.device.type, MEMORY["cpu"]) // dtype.itemsize)
    elements = min(max(1, v.shape[:2].numel()), isqrt(most))  # of pictures; a side of a square, unless few
    captions = most // elements
    pictures = most // min(max(1, t.shape[:2].numel()), captions)
    return max(1, pictures // v.shape[1]), max(1, captions // t.shape[1])


def _check_sets(v: Tensor, t: Tensor) -> torch.dtype:
    """Refuse what are not sets, and return the type to compare them in: float32 at least."""
    for name, x in (("v", v), ("t", t)):
        if x.ndim != 3 or not x.is_floating_point() or x.shape[1] == 0:
            raise ValueError(
                f"{name} is {x.dtype} {tuple(x.shape)}: it must be floating point (sets, elements, D), with "
                "at least one element a set"
            )
    if v.shape[2] != t.shape[2]:
        raise ValueError(f"v is {tuple(v.shape)} and t is {tuple(t.shape)}: they must have the same width")
    return torch.promote_types(torch.promote_types(v.dtype, t.dtype), torch.float32)


class _SetSimilarity(nn.Module):
    """What the modules share: all with all, or row by row. Each says what it makes of cosines, in `score`.

    Attributes:
        reads: what it reads of an `Embedding`.
        block: how many pictures and captions evaluation compares at a time.
    """

    reads = "vectors"
    block = (1024, 8192)

    def score(self, cosines: Tensor) -> Tensor:
        """Turn the cosines of b pictures' elements with c captions', (K, b, L, c), into scores (b, c)."""
        raise NotImplementedError

    def forward(self, v: Embedding, t: Embedding) -> Tensor:
        """Compare every picture with every caption: (B, C).

        Raises:
            ValueError: there are no vectors, they are no sets, or the widths differ.
        """
        return _compare(_sets("v", v), _sets("t", t), self.score)

    def pairs(self, v: Embedding, t: Embedding) -> Tensor:
        """Compare each picture with the caption of its row: (B,).

        Raises:
            ValueError: the numbers of rows differ, or as `forward`.
        """
        pictures, captions = _sets("v", v), _sets("t", t)
        dtype = _check_sets(pictures, captions)
        rows = len(pictures), len(captions)
        if rows[0] != rows[1]:
            raise ValueError(f"v and t have {rows[0]} and {rows[1]} rows: they must have the same number")
        with torch.autocast(pictures.device.type, enabled=False):
            cosines = unit(pictures.to(dtype)) @ unit(captions.to(dtype)).mT  # (B, K, L)
            return self.score(cosines.permute(1, 2, 0).unsqueeze(1)).squeeze(0)  # (K, 1, L, B) -> (B,)


def _sets(name: str, embedding: Embedding) -> Tensor:
    """Return the sets of an embedding, (B, K, D)."""
    if embedding.vectors is None:
        raise ValueError(f"{name}.vectors is None: it must be sets (rows, elements, D) from the tower's pool")
    return embedding.vectors


class Mil(_SetSimilarity):
    """`mil` of the two sides' sets."""

    def score(self, cosines: Tensor) -> Tensor:
        """As in `mil`."""
        return _mil(cosines)


class MatchProbability(_SetSimilarity):
    """`match_probability` of the two sides' sets, with scale and shift that are learned.

    Args:
        scale: where the scale begins.
        shift: where the shift begins.
        learned: False keeps both where they begin, and so does the released code of Kim et al. 2023, whose
            optimiser never sees them.
        reduce: "mean" or "sum", as in `match_probability`.

    Source: Kim et al. 2023, section 3.3; where scale and shift begin is from the released code.
    """

    def __init__(
        self, scale: float = 1.0, shift: float = 0.0, learned: bool = True, reduce: Reduce = "mean"
    ) -> None:
        super().__init__()
        check_one_of("reduce", reduce, ("mean", "sum"))
        self.scale = nn.Parameter(torch.tensor(float(scale)), requires_grad=learned)
        self.shift = nn.Parameter(torch.tensor(float(shift)), requires_grad=learned)
        self.reduce = reduce

    def score(self, cosines: Tensor) -> Tensor:
        """As in `match_probability`."""
        return _match_probability(cosines, self.scale, self.shift, self.reduce)


class Chamfer(_SetSimilarity):
    """`chamfer` of the two sides' sets."""

    def score(self, cosines: Tensor) -> Tensor:
        """As in `chamfer`."""
        return _chamfer(cosines)


class SmoothChamfer(_SetSimilarity):
    """`smooth_chamfer` of the two sides' sets.

    Args:
        alpha: sharpness, > 0.

    Raises:
        ValueError: alpha <= 0.
    """

    def __init__(self, alpha: float = 16.0) -> None:
        super().__init__()
        check_positive("alpha", alpha)
        self.alpha = alpha

    def score(self, cosines: Tensor) -> Tensor:
        """As in `smooth_chamfer`."""
        return _smooth_chamfer(cosines, self.alpha)


class MaxSim(_SetSimilarity):
    """`max_sim` of the two sides' sets.

    Args:
        direction: "t2i" or "i2t", as in `max_sim`.
        reduce: "sum" or "mean", likewise. To learn with a margin, take "mean".

    Raises:
        ValueError: an option is unknown.
    """

    def __init__(self, direction: Direction = "t2i", reduce: Reduce = "sum") -> None:
        super().__init__()
        _check_max_sim(direction, reduce)
        self.direction = direction
        self.reduce = reduce

    def score(self, cosines: Tensor) -> Tensor:
        """As in `max_sim`."""
        return _max_sim(cosines, self.direction, self.reduce)
