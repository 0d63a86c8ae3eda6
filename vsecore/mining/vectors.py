"""Mining by the inner product of vectors."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.mining.again import Rows, Score
from vsecore.mining.best import SPARE, rows_of
from vsecore.mining.blocks import Search
from vsecore.mining.half import settle
from vsecore.mining.pairs import Own, whole
from vsecore.mining.threads import workers_on

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
BUDGET = 2**28
"""Bytes that a block of scores, and what is made of it, may take."""
BYTES = 64
"""Of each score of a block, at most: the score, and what is made of it."""
ROWS = 1024
"""Pictures of a block, at most: its captions are then so many that they are a good sample."""


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
    size = _block(block, len(v), len(t), budget)
    kept = own.most(texts, pictures)
    if precision == "auto":
        precision = "bfloat16" if v.device.type == "cuda" else "float32"
    # No score, nor a part of its sum, exceeds the product of the lengths.
    large = not float(v.norm(dim=1).max()) * float(t.norm(dim=1).max()) < torch.finfo(torch.float32).max / 4
    product, workers = _product(v, t, size), workers_on(v.device)
    with torch.autocast(v.device.type, enabled=False):  # else some products would be in half precision
        if precision == "float32" or large:  # the bound of half precision would decide nothing
            search = Search(product, own, kept, size, v.device, large, "scale the vectors down")
            found = search.run(workers)
        else:
            dtype = HALF[precision]
            wide = own.most(texts + max(texts // 2, SPARE), pictures + max(pictures // 2, SPARE))
            rough = _product(v.to(dtype), t.to(dtype), size)
            with _summed_in_float32():
                near = Search(rough, own, wide, size, v.device, False, "").run(workers)
            found = (
                settle(near[0], kept[0], v, t, own, True, dtype, product, size),
                settle(near[1], kept[1], t, v, own, False, dtype, product, size),
            )
    return OfflineNegatives(*(rows_of(keys).cpu().numpy() for keys in found))


def _product(v: Tensor, t: Tensor, block: tuple[int, int]) -> Score:
    """Return what computes blocks of the product v tᵀ; each thread always in the same memory."""
    memory = threading.local()

    def score(pictures: Rows, captions: Rows) -> Tensor:
        if not hasattr(memory, "numbers"):  # fresh memory for each block would cost time
            memory.numbers = v.new_empty(min(block[0], len(v)) * min(block[1], len(t)))
        some, others = v[pictures], t[captions]
        out = memory.numbers[: len(some) * len(others)].view(len(some), len(others))
        return torch.mm(some, others.T, out=out)  # (b, c)

    return score


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
        rows = min(pictures, ROWS)
        return rows, max(1, min(captions, budget // (BYTES * rows)))
    if not isinstance(block, tuple | list):
        block = (block, block)
    elif len(block) != 2:
        raise ValueError(f"block is {block}: it must be one whole number, or two")
    return whole("block", block[0]), whole("block", block[1])
