"""Sides whose pictures and captions are several vectors each, compared in blocks that fit into memory.

All such similarities begin with the cosine of every element of one side with every element of the other, from
one matrix product a block. On a CPU, rows with about as many real elements are put together, so that little
padding is computed. On a GPU nobody asks how many elements a row has, since every step would have to wait for
the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import isqrt
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vsecore.arguments import Shape, checked
from vsecore.embedding import Embedding, unit
from vsecore.masking import promoted, real_first, without_padding
from vsecore.similarity.base import check_rows


class Memory(NamedTuple):
    """Bytes of cosines: of one block, and of all blocks that training may keep for the backward pass.

    What is made of a block takes up to six times as much at its peak. If there are more cosines than may be
    kept, each block is computed twice.
    """

    block: int
    kept: int


MEMORY = {"cpu": Memory(2**24, 2**28), "cuda": Memory(2**28, 2**32)}
GROUP = 2**17
"""Numbers that rows of about the same length must have together to become a group of their own."""


@dataclass(frozen=True)
class Fragments:
    """One side of a comparison: the elements of some pictures, or of some captions.

    Attributes:
        elements: (R, N, D), each of length one; padding is 0.
        mask: bool (R, N), True where an element is real; None: all are.
        gram: the cosines of each row's elements with each other, (R, N, N); empty if nobody needs them.
    """

    elements: Tensor
    mask: Tensor | None = None
    gram: Tensor = field(default_factory=lambda: torch.empty(0))

    def with_gram(self) -> Fragments:
        """Return the same elements with their cosines with each other."""
        with torch.autocast(self.elements.device.type, enabled=False):
            return replace(self, gram=self.elements @ self.elements.mT)

    def split(self, most: int) -> list[Fragments]:
        """Split the rows so that no part has more than about so many elements."""
        rows = max(1, most // self.elements.shape[1])
        elements = self.elements.split(rows)
        masks = [None] * len(elements) if self.mask is None else self.mask.split(rows)
        return [Fragments(part, mask) for part, mask in zip(elements, masks, strict=True)]


Score = Callable[[Tensor, Fragments, Fragments], Tensor]
"""Makes scores (K, Q) of cosines (K, S, L, Q) and both sides."""


@checked
def fragments(
    v: Annotated[Tensor, Shape("B* N D")],
    v_mask: Annotated[Tensor, Shape("B* N", "mask")] | None,
    t: Annotated[Tensor, Shape("C* M D")],
    t_mask: Annotated[Tensor, Shape("C* M", "mask")] | None,
) -> tuple[Fragments, Fragments]:
    """Check both sides, and scale their elements to length one, in float32 at least."""
    sides = []
    for x, mask in zip(promoted(v, t), (v_mask, t_mask), strict=True):
        x = without_padding(x, mask)
        if mask is not None and mask.device.type == "cpu" and bool(mask.all()):
            mask = None
        sides.append(Fragments(unit(x), mask))
    return sides[0], sides[1]


def of_elements(v: Embedding, t: Embedding) -> tuple[Fragments, Fragments]:
    """Return the elements of both sides as `fragments` does."""
    return fragments(v.needed("elements"), v.mask, t.needed("elements"), t.mask)


def row_cosines(context: Fragments, query: Fragments) -> Tensor:
    """Compute the cosines of each context's elements with those of its own row's query, (B, S, L, 1)."""
    check_rows(context.elements, query.elements)
    with torch.autocast(context.elements.device.type, enabled=False):
        return (context.elements @ query.elements.mT).unsqueeze(-1)


def query_mask(query: Fragments, cosines: Tensor) -> Tensor | None:
    """Return a query's mask as it lies beside the cosines: (1, L, Q), or (B, L, 1) row by row."""
    if query.mask is None:
        return None
    by_row = cosines.shape[3] == 1 and len(cosines) == len(query.mask)
    return query.mask.unsqueeze(-1) if by_row else query.mask.T.unsqueeze(0)


def compare(
    context: Fragments,
    query: Fragments,
    score: Score,
    grams: Literal["none", "context", "both"] = "none",
    memory: dict[str, Memory] = MEMORY,
) -> Tensor:
    """Compare K rows of one side with Q rows of the other, block by block: (K, Q).

    `score` compares some rows of each side, whose `gram` it reads as `grams` says. What is next to each other
    in memory stays together, whatever it sums over; it may overwrite the cosines. Limits of memory are by the
    type of the device; a CPU's, if they do not name it.
    """
    device, size = context.elements.device.type, context.elements.element_size()
    limits = memory.get(device, memory["cpu"])
    contexts, k_place = by_length(context)
    queries, q_place = by_length(query)
    total = [sum(group.elements.shape[:2].numel() for group in side) for side in (contexts, queries)]
    again = torch.is_grad_enabled() and total[0] * total[1] * size > limits.kept
    block = max(1, limits.block // size)
    most_queries = block // min(max(1, total[0]), isqrt(block))  # a square, unless one side is small
    most_contexts = block // min(max(1, total[1]), most_queries)

    def scored(k: Fragments, q: Fragments) -> Tensor:
        (rows, s, d), (columns, n, _) = k.elements.shape, q.elements.shape
        flat = q.elements.transpose(0, 1).reshape(n * columns, d)  # (L·Q, D)
        return score((k.elements.reshape(rows * s, d) @ flat.T).view(rows, s, n, columns), k, q)

    with torch.autocast(device, enabled=False):
        k_blocks = [part for group in contexts for part in group.split(most_contexts)]
        q_blocks = [part for group in queries for part in group.split(most_queries)]
        if grams != "none":
            k_blocks = [part.with_gram() for part in k_blocks]
        if grams == "both":
            q_blocks = [part.with_gram() for part in q_blocks]
        rows = [
            torch.cat(
                [checkpoint(scored, k, q, use_reentrant=False) if again else scored(k, q) for q in q_blocks],
                1,
            )
            for k in k_blocks
        ]
        scores = torch.cat(rows)
    if k_place is not None:
        scores = scores[k_place]
    return scores if q_place is None else scores[:, q_place]


def by_length(side: Fragments) -> tuple[list[Fragments], Tensor | None]:
    """Put rows of about the same length together, with no more padding than they need.

    Return the groups, and where each row of the side has gone; None: all are where they were.
    """
    x, mask = side.elements, side.mask
    if mask is None or mask.device.type != "cpu" or not len(x):
        return [side], None
    lengths, order = mask.sum(1).sort(stable=True)  # (R,) each
    packed = real_first(x, mask)[order]  # (R, N, D)   real elements before padding
    sides, start, counts = [], 0, lengths.tolist()
    for stop, longest in enumerate(counts, start=1):
        if stop == len(counts) or (counts[stop] > longest and (stop - start) * longest * x.shape[2] >= GROUP):
            kept = torch.arange(longest) < lengths[start:stop, None]  # (r, longest)
            part = packed[start:stop, :longest]
            sides.append(Fragments(part, None if bool(kept.all()) else kept))
            start = stop
    return sides, order.argsort()
