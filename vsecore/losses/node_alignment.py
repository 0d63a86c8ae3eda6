"""Alignment of the elements themselves: two losses beside that of the pooled vectors.

Both take the hardest negatives of the global scores: a picture and the caption that the model confuses it
with must also differ in their parts.
"""

import math
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vsecore.arguments import Count, NotNegative, Shape, checked
from vsecore.embedding import unit
from vsecore.losses.pairs import Positives, Scores, check_pairs
from vsecore.losses.step import Loss, Step
from vsecore.masking import checked_elements, widened, without_padding

ROWS = 16  # pictures that meet all captions at a time, where positive pairs cannot be listed


class NodePooling(nn.Module):
    """Pool a set of any size to P vectors, each by an attention of its own.

    Pool i weighs element j by α_ij = softmax over j of w_i·x_j and sums: p_i = Σ_j α_ij x_j. With weights
    of 0 every pool is the mean.

    Args:
        dim: width D of the elements.
        pools: how many pools, P.

    Source: Yan 2019, section 2.5.1.
    """

    @checked
    def __init__(self, dim: Count, pools: Count) -> None:
        super().__init__()
        self.dim = dim
        # Weights of about unit length: on elements of any width, the first logits are of their size.
        self.weight = nn.Parameter(torch.randn(pools, dim) / math.sqrt(dim))

    def weights(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return how much each pool takes of each element, (B, P, N); rows add up to 1, padding gets 0."""
        x = widened(checked_elements(x, mask, self.dim))
        with torch.autocast(x.device.type, enabled=False):  # half precision keeps two digits
            logits = self.weight.to(x.dtype) @ x.mT  # (B, P, N)
            if mask is not None:
                logits = torch.where(mask.unsqueeze(1), logits, -torch.inf)
            return logits.softmax(-1)  # (B, P, N)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, P, D), in float32 at least; raises ValueError as `weights` does."""
        with torch.autocast(x.device.type, enabled=False):
            return self.weights(x, mask) @ widened(without_padding(x, mask))


@checked
def node_pooling_loss(
    pictures: Annotated[Tensor, Shape("B P D")],
    captions: Annotated[Tensor, Shape("C P D")],
    scores: Scores,
    margin: NotNegative = 0.2,
    positives: Positives = None,
) -> Tensor:
    """Hinge loss for each pool: pool i of a picture must be nearer to its caption's than to a negative's.

    The negative is the same for all pools: the hardest one of the global scores. Pairs that belong together
    are never each other's negatives.

    Args:
        pictures: pools of pictures, (B, P, D). Need not be unit vectors: they are compared by their cosine.
        captions: pools of captions, (C, P, D).
        scores: the global similarities, (B, C); they only choose the negatives, and get no gradient.
        margin: by how much a positive must win, >= 0.
        positives: bool, (B, C), True where picture and caption belong together; the diagonal if None.

    Returns:
        The loss, a scalar: the sum over pools, positive pairs and both directions, as the paper writes it and
        as `triplet` sums. A pair without any negative adds 0.

    Source: Yan 2019, section 2.5.1.
    """
    pictures, captions = widened(pictures), widened(captions)
    hardest = _hardest(scores, positives)
    with torch.autocast(pictures.device.type, enabled=False):  # half precision keeps two digits
        cosines = torch.einsum("bpd,cpd->pbc", unit(pictures), unit(captions))  # (P, B, C)
        caption = cosines.gather(2, hardest.caption.expand(len(cosines), -1).unsqueeze(2))  # (P, B, 1)
        picture = cosines.gather(1, hardest.picture.expand(len(cosines), -1).unsqueeze(1))  # (P, 1, C)
        caption = torch.where(hardest.of_picture.unsqueeze(1), caption, -torch.inf)
        picture = torch.where(hardest.of_caption, picture, -torch.inf)
        cost = (margin + caption - cosines).relu() + (margin + picture - cosines).relu()  # (P, B, C)
        return torch.where(hardest.positives, cost, 0).sum()


@checked
def node_cross_attention_loss(
    v: Annotated[Tensor, Shape("B N D")],
    v_mask: Annotated[Tensor, Shape("B N", "mask")] | None,
    t: Annotated[Tensor, Shape("C M D")],
    t_mask: Annotated[Tensor, Shape("C M", "mask")] | None,
    scores: Scores,
    margin: NotNegative = 0.2,
    positives: Positives = None,
) -> Tensor:
    """Hinge loss for each element: it must find itself better in its own partner than in a negative.

    Elements are scaled to length one. Element i of a picture attends to the words u_j of a caption: v'_i =
    Σ_j softmax_j(v_i·u_j) u_j, and v_i·v'_i says how well it is found there. With the picture's own caption
    that must be larger, by a margin, than with the hardest negative of the global scores. Words attend to
    elements likewise.

    Args:
        v: elements of pictures, (B, N, D).
        v_mask: bool, (B, N), True where real; None: all are.
        t: words of captions, (C, M, D).
        t_mask: bool, (C, M); None: all are.
        scores: the global similarities, (B, C); they only choose the negatives, and get no gradient.
        margin: by how much a positive must win, >= 0.
        positives: bool, (B, C), True where picture and caption belong together; the diagonal if None.

    Returns:
        The loss, a scalar: the sum over real elements, positive pairs and both directions, as the paper
        writes it. A pair without any negative adds 0.

    Source: Yan 2019, section 2.5.2.
    """
    v, t = widened(without_padding(v, v_mask)), widened(without_padding(t, t_mask))
    with torch.autocast(v.device.type, enabled=False):
        hardest = _hardest(scores, positives)
        v, t = unit(v), unit(t)
        real_v = v.new_ones(v.shape[:2], dtype=torch.bool) if v_mask is None else v_mask  # (B, N)
        real_t = t.new_ones(t.shape[:2], dtype=torch.bool) if t_mask is None else t_mask  # (C, M)
        wrong_v = _found(v @ t[hardest.caption].mT, real_t[hardest.caption].unsqueeze(1))  # (B, N)
        wrong_t = _found(t @ v[hardest.picture].mT, real_v[hardest.picture].unsqueeze(1))  # (C, M)
        # An element costs nothing if it is padding, or if there is no negative.
        wrong_v = torch.where(real_v & hardest.of_picture.unsqueeze(1), wrong_v, -torch.inf)
        wrong_t = torch.where(real_t & hardest.of_caption.unsqueeze(1), wrong_t, -torch.inf)
        # Positive pairs can be listed at once, unless a GPU would have to be asked how many there are.
        if v.device.type == "cpu" and not torch.compiler.is_compiling():
            b, c = hardest.positives.nonzero(as_tuple=True)  # (pairs,) each
            affinity = v[b] @ t[c].mT  # (pairs, N, M)
            found_v = _found(affinity, real_t[c].unsqueeze(1))  # (pairs, N)
            found_t = _found(affinity.mT, real_v[b].unsqueeze(1))  # (pairs, M)
            return (margin + wrong_v[b] - found_v).relu().sum() + (margin + wrong_t[c] - found_t).relu().sum()

        # Elsewhere a few pictures at a time meet all captions; what is not positive counts 0. The backward
        # pass computes each block again, so that only one of them is in memory.
        def block(v: Tensor, real_v: Tensor, wrong_v: Tensor, positives: Tensor) -> Tensor:
            affinity = torch.einsum("bnd,cmd->bcnm", v, t)  # (b, C, N, M)
            found_v = _found(affinity, real_t.unsqueeze(1))  # (b, C, N)
            found_t = _found(affinity.mT, real_v[:, None, None])  # (b, C, M)
            cost_v = (margin + wrong_v.unsqueeze(1) - found_v).relu().sum(2)  # (b, C)
            cost_t = (margin + wrong_t - found_t).relu().sum(2)  # (b, C)
            return torch.where(positives, cost_v + cost_t, 0).sum()

        total = v.new_zeros(())
        blocks = (x.split(ROWS) for x in (v, real_v, wrong_v, hardest.positives))
        for rows in zip(*blocks, strict=True):
            total = total + checkpoint(block, *rows, use_reentrant=False, preserve_rng_state=False)
        return total


class NodePoolingLoss(Loss):
    """`node_pooling_loss` of a step, with the pools that it learns.

    Args:
        dim: width D of the elements.
        pools: how many pools, P. The source does not say how many it has.
        margin: by how much a positive must win.
        shared: use the same weights for pictures and captions, as the source writes; False: each has its own.

    Source: Yan 2019, sections 2.5.1 and 3.4: 0.8 times this loss is added to 0.2 times the global one.
    """

    reads = ("elements",)

    @checked
    def __init__(self, dim: Count, pools: Count = 8, margin: NotNegative = 0.2, shared: bool = True) -> None:
        super().__init__()
        self.margin = margin
        self.pool = NodePooling(dim, pools)
        self.pool_captions = None if shared else NodePooling(dim, pools)

    def forward(self, step: Step) -> Tensor:
        v, t = step.v, step.t
        pictures = self.pool(v.needed("elements"), v.mask)  # (B, P, D)
        captions = (self.pool_captions or self.pool)(t.needed("elements"), t.mask)  # (C, P, D)
        return node_pooling_loss(pictures, captions, step.scores, self.margin, step.positives)


class NodeCrossAttentionLoss(Loss):
    """`node_cross_attention_loss` of a step.

    Source: Yan 2019, sections 2.5.2 and 3.4: 0.15 times this loss is added to the global one.
    """

    reads = ("elements",)

    @checked
    def __init__(self, margin: NotNegative = 0.2) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, step: Step) -> Tensor:
        v, t = step.v.needed("elements"), step.t.needed("elements")
        return node_cross_attention_loss(
            v, step.v.mask, t, step.t.mask, step.scores, self.margin, step.positives
        )


class _Hardest(NamedTuple):
    """The hardest negatives of the global scores."""

    positives: Tensor  # (B, C) bool
    caption: Tensor  # (B,)   of each picture
    picture: Tensor  # (C,)   of each caption
    of_picture: Tensor  # (B,) bool   whether the picture has a negative at all
    of_caption: Tensor  # (C,) bool


@torch.no_grad()
def _hardest(scores: Tensor, positives: Tensor | None) -> _Hardest:
    scores, positives = check_pairs(scores, positives)
    negatives = torch.where(positives, -torch.inf, scores)  # (B, C)
    some = ~positives
    return _Hardest(positives, negatives.argmax(1), negatives.argmax(0), some.any(1), some.any(0))


def _found(affinity: Tensor, real: Tensor) -> Tensor:
    """How well each vector is found among others: x_i·x'_i for x'_i = Σ_j softmax_j(x_i·y_j) y_j.

    That product is Σ_j α_ij x_i·y_j, so that x'_i need not be computed. The affinities x_i·y_j are (..., I,
    J), and `real` (..., 1, J) says which y_j count.
    """
    weights = torch.where(real, affinity, -torch.inf).softmax(-1)  # (..., I, J)
    return (weights * affinity).sum(-1)  # (..., I)
