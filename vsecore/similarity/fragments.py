"""The elements of pictures and captions, made ready to be compared in blocks that fit into memory.

On a CPU, rows with about as many real elements are put together, so that little padding is computed. On a GPU
nobody asks how many elements a row has, since every step would have to wait for the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import isqrt

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vsecore.embedding import Embedding
from vsecore.similarity.cosine import unit

MEMORY = {"cpu": 2**24, "cuda": 2**28}
"""Bytes of the affinities of one block; at its peak it takes about six times as much."""
KEPT = {"cpu": 2**28, "cuda": 2**32}
"""Bytes of affinities that training may keep for the backward pass, with about as much again twice over;
if there are more, it computes each block twice."""
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
    mask: Tensor | None
    gram: Tensor = field(default_factory=lambda: torch.empty(0))

    def with_gram(self) -> Fragments:
        """Return the same elements with their cosines with each other."""
        return replace(self, gram=self.elements @ self.elements.mT)

    def split(self, most: int) -> list[Fragments]:
        """Split the rows so that no part has more than about so many elements."""
        rows = max(1, most // self.elements.shape[1])
        elements = self.elements.split(rows)
        masks = [None] * len(elements) if self.mask is None else self.mask.split(rows)
        return [Fragments(part, mask) for part, mask in zip(elements, masks, strict=True)]


def fragments(
    v: Tensor, v_mask: Tensor | None, t: Tensor, t_mask: Tensor | None
) -> tuple[Fragments, Fragments]:
    """Check both sides, and scale their elements to length one, in float32 at least.

    Whether every row has a real element is only checked on a CPU.

    Raises:
        ValueError: the shapes or types are wrong, the widths differ, or a row has no real element.
    """
    for name, x, mask in (("v", v, v_mask), ("t", t, t_mask)):
        _check(name, x, mask)
    if v.shape[2] != t.shape[2]:
        raise ValueError(f"v is {tuple(v.shape)} and t is {tuple(t.shape)}: they must have the same width")
    dtype = torch.promote_types(torch.promote_types(v.dtype, t.dtype), torch.float32)
    sides = []
    for x, mask in ((v, v_mask), (t, t_mask)):
        x = x.to(dtype)
        if mask is not None:
            x = torch.where(mask.unsqueeze(-1), x, 0)  # also where the padding is NaN
            if mask.device.type == "cpu" and bool(mask.all()):
                mask = None
        sides.append(Fragments(unit(x), mask))
    return sides[0], sides[1]


def elements(name: str, embedding: Embedding) -> Tensor:
    """Return an embedding's elements.

    Raises:
        ValueError: it holds none.
    """
    if embedding.elements is None:
        raise ValueError(f"{name}.elements is None: it must be (rows, elements, D)")
    return embedding.elements


def affinities(context: Fragments, query: Fragments) -> Tensor:
    """Compute the cosine of every context element with every query element, in one product.

    Returns:
        (K, S, L, Q) for K rows of S context elements and Q rows of L query elements. Whatever is summed
        later, over S or over L, what lies next to each other in memory stays together.
    """
    (k, s, d), (q, n, _) = context.elements.shape, query.elements.shape
    columns = query.elements.transpose(0, 1).reshape(n * q, d)  # (L·Q, D)
    return (context.elements.reshape(k * s, d) @ columns.T).view(k, s, n, q)


def compare(
    context: Fragments,
    query: Fragments,
    score: Callable[[Fragments, Fragments], Tensor],
    both_ways: bool = False,
) -> Tensor:
    """Compare all rows of one side with all rows of the other, block by block.

    Args:
        context: K rows.
        query: Q rows.
        score: compares some rows of each side, to (k, q).
        both_ways: `score` uses the queries as contexts too, and so needs their `gram`.

    Returns:
        (K, Q).
    """
    device, size = context.elements.device.type, context.elements.element_size()
    contexts, k_place = _groups(context)
    queries, q_place = _groups(query)
    total = [sum(group.elements.shape[:2].numel() for group in side) for side in (contexts, queries)]
    kept = KEPT.get(device, KEPT["cpu"])
    learns = torch.is_grad_enabled() and (context.elements.requires_grad or query.elements.requires_grad)
    again = learns and total[0] * total[1] * size > kept
    block = max(1, MEMORY.get(device, MEMORY["cpu"]) // size)
    most_queries = block // min(max(1, total[0]), isqrt(block))
    most_contexts = block // min(max(1, total[1]), most_queries)

    def scored(k: Fragments, q: Fragments) -> Tensor:
        return checkpoint(score, k, q, use_reentrant=False) if again else score(k, q)

    k_blocks = [part.with_gram() for group in contexts for part in group.split(most_contexts)]
    q_blocks = [part for group in queries for part in group.split(most_queries)]
    if both_ways:
        q_blocks = [part.with_gram() for part in q_blocks]
    rows = [torch.cat([scored(k, q) for q in q_blocks], 1) for k in k_blocks]
    scores = torch.cat(rows)
    if k_place is not None:
        scores = scores[k_place]
    return scores if q_place is None else scores[:, q_place]


def _groups(side: Fragments) -> tuple[list[Fragments], Tensor | None]:
    """Put rows of about the same length together, with no more padding than they need.

    Returns:
        The groups, and where each row of the side has gone; None: all are where they were.
    """
    x, mask = side.elements, side.mask
    if mask is None or mask.device.type != "cpu" or not len(x):
        return [side], None
    lengths, order = mask.sum(1).sort(stable=True)  # (R,) each
    real = (~mask).to(torch.uint8).argsort(dim=1, stable=True)  # (R, N)   real elements before padding
    groups, start = [], 0
    counts = lengths.tolist()
    for stop in range(1, len(counts) + 1):
        longest = counts[stop - 1]
        ends = stop == len(counts) or (
            counts[stop] > longest and (stop - start) * longest * x.shape[2] >= GROUP
        )
        if ends:
            chosen = order[start:stop]
            groups.append((chosen, real[chosen, :longest]))  # (r,), (r, longest)
            start = stop
    places = [(rows.unsqueeze(1) * x.shape[1] + columns).flatten() for rows, columns in groups]
    packed = x.flatten(0, 1).index_select(0, torch.cat(places)).split([len(place) for place in places])
    sides = []
    for (rows, columns), part in zip(groups, packed, strict=True):
        kept = mask[rows].gather(1, columns)  # (r, longest)
        whole = bool(kept.all())
        sides.append(Fragments(part.view(*columns.shape, -1), None if whole else kept))
    return sides, order.argsort()


def _check(name: str, x: Tensor, mask: Tensor | None) -> None:
    if x.ndim != 3 or not x.is_floating_point() or x.shape[1] == 0:
        raise ValueError(
            f"{name} is {x.dtype} {tuple(x.shape)}: it must be floating point (rows, elements, D), "
            "with at least one element a row"
        )
    if mask is None:
        return
    if mask.dtype != torch.bool or mask.shape != x.shape[:2]:
        raise ValueError(
            f"{name}_mask is {mask.dtype} {tuple(mask.shape)}: it must be bool {tuple(x.shape[:2])} to go "
            f"with {name} {tuple(x.shape)}"
        )
    if mask.device.type == "cpu":
        empty = (~mask.any(1)).nonzero().flatten()
        if len(empty):
            raise ValueError(
                f"{name}_mask is False in all of row {int(empty[0])}: it must have a True in each"
            )
