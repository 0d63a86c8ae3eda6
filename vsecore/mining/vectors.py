"""Mining by the inner product of vectors."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.mining.again import search_again
from vsecore.mining.best import NOTHING, SPARE, Best, rows_of
from vsecore.mining.half import settle
from vsecore.mining.pairs import Own, whole
from vsecore.mining.threads import on_threads

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
BUDGET = 2**28
"""Bytes that a block of scores, and what is made of it, may take."""
BYTES = 64
"""Of each score of a block, at most: the score, and what is made of it."""


@torch.inference_mode()
def mine_offline_negatives(
    images: Tensor | np.ndarray,
    captions: Tensor | np.ndarray,
    owner: Tensor | np.ndarray,
    texts: int = 300,
    pictures: int = 60,
    *,
    block: int | tuple[int, int] | None = None,
    budget: int = BUDGET,
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
) -> OfflineNegatives:
    """Find the captions that score highest with each picture, and the pictures for each caption.

    A score is the inner product of the two vectors in float32, which for unit vectors is the cosine. The
    search is exact: it looks at every pair, in blocks, and each block serves both directions. A true pair is
    never among the negatives. Among equal scores the lower row comes first.

    Args:
        images: (Ni, D), on any device.
        captions: (Nc, D), on the same device.
        owner: the picture of each caption, (Nc,), in any order; pictures may have different numbers of
            captions.
        texts: how many captions each picture gets. If some picture has fewer negatives, all get that many.
        pictures: how many pictures each caption gets; if there are fewer, all of them.
        block: how many pictures are compared with how many captions at a time; a single number means both.
            None: chosen by the budget. The answer does not depend on it.
        budget: how many bytes a block, and what is made of it, may take if `block` is None. On a CPU each of
            torch's threads has a block of its own.
        precision: of the products that find candidates. What half precision cannot decide, float32 does, so
            that the answer is float32's, see `mining.half`. "auto" takes bfloat16 on a GPU.

    Returns:
        Rows, int32: texts (Ni, k) and pictures (Nc, k), hardest first.

    Raises:
        ValueError: shapes do not fit, a number or a score is NaN or infinite, an option is not among those
            allowed, or there are no negatives.

    Source: Chen, Deng and Luo 2020 (AOQ), section 3.2.
    """
    if precision not in ("auto", "float32", *HALF):
        raise ValueError(f'precision is {precision!r}: it must be "auto", "float32", "bfloat16" or "float16"')
    v, t = _checked("images", images), _checked("captions", captions)
    if v.shape[1] != t.shape[1] or v.device != t.device:
        raise ValueError(
            f"captions is {tuple(t.shape)} on {t.device}: it must have the width and the device of images, "
            f"{tuple(v.shape)} on {v.device}"
        )
    own = Own(owner, len(v), len(t))
    rows, columns = _block(block, len(v), len(t), budget)
    texts, pictures = own.most(texts, pictures)
    if precision == "auto":
        precision = "bfloat16" if v.device.type == "cuda" else "float32"
    # No score, nor a part of its sum, exceeds the product of the lengths.
    large = not float(v.norm(dim=1).max()) * float(t.norm(dim=1).max()) < torch.finfo(torch.float32).max / 4
    if precision == "float32" or large:  # the bound of half precision would decide nothing
        found = _search(v, t, own, (texts, pictures), rows, columns, large)
    else:
        dtype = HALF[precision]
        wide = own.most(texts + max(texts // 2, SPARE), pictures + max(pictures // 2, SPARE))
        with _summed_in_float32():
            near = _search(v.to(dtype), t.to(dtype), own, wide, rows, columns)
        found = (
            settle(near[0], texts, v, t, own, True, dtype),
            settle(near[1], pictures, t, v, own, False, dtype),
        )
    return OfflineNegatives(*(rows_of(keys).cpu().numpy() for keys in found))


def _search(
    v: Tensor, t: Tensor, own: Own, kept: tuple[int, int], rows: int, columns: int, large: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the keys of the best captions of each picture, and of the best pictures of each caption.

    Large: vectors so long that a score may be too large for float32; then each block is checked.
    """
    texts = torch.empty(len(v), kept[0], dtype=torch.int64, device=v.device)
    pictures = torch.empty(len(t), kept[1], dtype=torch.int64, device=v.device)
    best_pictures = Best(len(t), kept[1], v.device, dealt=len(v))  # of captions in the order of the blocks
    tops, lefts = _deal(len(v), rows), _deal(len(t), columns)
    first = [0, *itertools.accumulate(map(len, lefts))]
    locks = [threading.Lock() for _ in lefts]

    def work(worker: int, workers: int) -> Iterator[None]:
        """Compare a share of the pictures with all captions."""
        memory = v.new_empty(len(tops[0]) * len(lefts[0]))  # of a block; fresh memory would cost time
        begin = worker * len(lefts) // workers  # so that workers are rarely at the same captions
        for top in tops[worker::workers]:
            some = v[top.start :: top.step]
            best_texts = Best(len(some), kept[0], v.device, dealt=len(t))
            for turn in range(len(lefts)):
                number = (begin + turn) % len(lefts)
                left = lefts[number]
                others = t[left.start :: left.step]
                scores = memory[: len(some) * len(others)].view(len(some), len(others))  # (b, c)
                torch.mm(some, others.T, out=scores)
                if large and not scores.isfinite().all():
                    raise ValueError(
                        f"scores of pictures {top[0]} to {top[-1]} are not finite numbers: scale the "
                        "vectors down"
                    )
                own.leave_out(scores, top, left)
                best_texts.add(scores, 0, left)
                with locks[number]:
                    best_pictures.add(scores, first[number], top, dim=0)
                yield
            texts[top.start :: top.step] = best_texts.keep()

    on_threads(work, min(len(tops), torch.get_num_threads()) if v.device.type == "cpu" else 1)
    keys = best_pictures.keep().split([len(left) for left in lefts])
    for left, some in zip(lefts, keys, strict=True):
        pictures[left.start :: left.step] = some
    search_again(texts, _unfilled(texts), v, t, own, of_pictures=True)
    search_again(pictures, _unfilled(pictures), t, v, own, of_pictures=False)
    return texts, pictures


def _deal(rows: int, size: int) -> list[range]:
    """Deal rows like cards into as few blocks of at most `size` as possible: each is a fair sample."""
    blocks = -(-rows // size)
    return [range(first, rows, blocks) for first in range(blocks)]


def _unfilled(keys: Tensor) -> Tensor:
    """Return the rows of the anchors that found fewer items than they should."""
    return (keys[:, -1] == NOTHING).nonzero().squeeze(1)


@contextlib.contextmanager
def _summed_in_float32() -> Iterator[None]:
    """Keep a GPU from rounding partial sums to half precision, which the bound does not allow for."""
    settings = torch.backends.cuda.matmul
    before = settings.allow_bf16_reduced_precision_reduction, settings.allow_fp16_reduced_precision_reduction
    settings.allow_bf16_reduced_precision_reduction = False
    settings.allow_fp16_reduced_precision_reduction = False
    try:
        yield
    finally:
        settings.allow_bf16_reduced_precision_reduction = before[0]
        settings.allow_fp16_reduced_precision_reduction = before[1]


def _checked(name: str, vectors: Tensor | np.ndarray) -> Tensor:
    """Return vectors as float32, after checking them."""
    x = torch.as_tensor(vectors).detach()
    if x.ndim != 2 or 0 in x.shape or not x.is_floating_point():
        raise ValueError(f"{name} is {x.dtype} {tuple(x.shape)}: it must be floats (rows, D), none of them 0")
    x = x.float()
    lowest, highest = x.aminmax()  # NaN if any is
    if not (lowest.isfinite() and highest.isfinite()):
        raise ValueError(f"{name} holds NaN or infinity: it must be finite numbers")
    return x


def _block(block: int | tuple[int, int] | None, pictures: int, captions: int, budget: int) -> tuple[int, int]:
    """Return how many pictures and captions to compare at a time."""
    if block is None:
        rows = min(pictures, 1024)
        return rows, max(1, min(captions, budget // (BYTES * rows)))
    if not isinstance(block, tuple | list):
        block = (block, block)
    elif len(block) != 2:
        raise ValueError(f"block is {block}: it must be one whole number, or two")
    return whole("block", block[0]), whole("block", block[1])
