"""How good a retrieval is: ranks, recalls, and metrics for many-to-many relevance.

Ties always count against the model, so that a collapsed one, whose scores are all the same, gets 0. Wrong
shapes and types are refused with a ValueError, and so are NaN and a picture without a caption.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsecore.arguments import Count, checked
from vsecore.data import coco_judgements
from vsecore.typed import short

Matrix = Tensor | np.ndarray
BLOCK = 2**23  # scores looked at in one go: tens of megabytes, however large the matrix


def ranks(scores: Matrix, owner: Matrix) -> tuple[Tensor, Tensor]:
    """Return the rank of the best own item, for every picture and for every caption.

    A rank counts from 0: it is the number of items, own ones left out, that score at least as high as the
    best own item. The matrix is read in blocks of rows, so a memory map will do.

    Args:
        scores: similarities, (Ni, Nc), of any real type, on any device.
        owner: the picture each caption belongs to, (Nc,), in any order.

    Returns:
        i2t (Ni,), captions for each picture, and t2i (Nc,), pictures for each caption; int64, on the CPU.
    """
    owner, own = _check_owner(scores, owner)  # (Nc,) each
    best = own.new_empty(len(scores)).scatter_reduce(0, owner, own, "amax", include_self=False)  # (Ni,)
    i2t, t2i = owner.new_zeros(len(scores)), torch.zeros_like(owner)
    for start, block in _score_blocks(scores):  # (b, Nc)
        rows = slice(start, start + len(block))
        i2t[rows] = (block >= best[rows, None]).sum(1, dtype=torch.int32)
        t2i += (block >= own).sum(0, dtype=torch.int32)
    # The counts include own items: a caption's picture, or a picture's best caption and its ties.
    i2t.scatter_add_(0, owner, -(own == best[owner]).to(torch.int64))
    return i2t.cpu(), (t2i - 1).cpu()


def recalls(ranks: Matrix) -> dict[str, float]:
    """Return the percentage of queries whose best own item is among the first 1, 5 and 10: "r1", "r5", "r10".

    Ranks count from 0, (n,), as `ranks` gives them; others are refused.
    """
    ranks = torch.as_tensor(ranks).detach().cpu().numpy()
    if ranks.ndim != 1 or ranks.size == 0 or ranks.dtype.kind not in "iu" or ranks.min() < 0:
        raise ValueError(f"ranks are {ranks.dtype} {ranks.shape}: they must be whole numbers >= 0, (n,)")
    return {f"r{k}": 100 * float((ranks < k).mean()) for k in (1, 5, 10)}


def cross_retrieval_ranks(scores: Matrix, owner: Matrix) -> Tensor:
    """Return the worse of the two ranks of every pair: among other captions, and among other pictures.

    A picture meets more captions than a caption meets pictures, so the rank among captions is divided by how
    many captions a picture has on average. Arguments, counting from 0 and ties are as in `ranks`, but each
    pair has ranks of its own, not the best of its picture.

    Returns:
        float64 (Nc,), on the CPU: the larger of the two ranks of each caption with its own picture.

    Source: Chen, Deng and Luo 2020 (AOQ), section 4.3, where ranks count from 1.
    """
    owner, own = _check_owner(scores, owner)  # (Nc,) each
    among_captions = torch.zeros_like(owner)  # (Nc,)
    among_pictures = torch.full_like(owner, -1)  # a caption's own picture is counted below
    for start, block in _score_blocks(scores):  # (b, Nc)
        among_pictures += (block >= own).sum(0)
        for row, line in enumerate(block, start):  # (Nc,)
            mine = owner == row
            among_captions[mine] = (line[~mine] >= own[mine, None]).sum(1)
    return torch.maximum(among_captions * (len(scores) / len(owner)), among_pictures.double()).cpu()


@checked
def evaluate(scores: Matrix, owner: Matrix, folds: Count | None = None) -> dict[str, float]:
    """Compute the usual table row of image-text retrieval.

    Args:
        scores: similarities, (Ni, Nc).
        owner: the picture each caption belongs to, (Nc,).
        folds: average over so many consecutive folds of the pictures, each with its own captions. COCO 1K is
            the 5K test split with folds=5.

    Returns:
        `i2t_r1 i2t_r5 i2t_r10 t2i_r1 t2i_r5 t2i_r10` in percent, `rsum`, the sum of these six, and the median
        and mean ranks counted from 1, `i2t_medr t2i_medr i2t_meanr t2i_meanr`. i2t looks for captions, t2i
        for pictures.

    Raises:
        ValueError: as `ranks`, or the pictures cannot be cut into so many equal folds.
    """
    owner, folds = _check_owner(scores, owner)[0].cpu(), folds or 1
    if len(scores) % folds:
        raise ValueError(f"folds must divide the {len(scores)} pictures, got {folds}")
    return _mean_over_folds(scores, owner, torch.arange(len(scores)).view(folds, -1))


def ensemble(*scores: Tensor, weights: Sequence[float] = ()) -> Tensor:
    """Combine several systems into one by the mean of their similarities.

    With cosines the result is one embedding too: the systems' unit vectors concatenated, divided by the
    square root of the number of systems.

    Args:
        scores: a matrix (Ni, Nc) of each system, of the same pictures and captions in the same order.
        weights: how much each system counts, > 0; none: all the same.

    Returns:
        (Ni, Nc), in the type of the first.

    Source: Zhang et al. 2022 (2AD), section 4.3.
    """
    if len({matrix.shape for matrix in scores}) != 1:
        shapes = [tuple(matrix.shape) for matrix in scores]
        raise ValueError(f"scores are {shapes}: they must be matrices of one shape (Ni, Nc)")
    each = weights or (1,) * len(scores)
    if len(each) != len(scores) or not all(0 < weight < math.inf for weight in each):
        raise ValueError(f"weights are {list(each)}: wanted a positive number for each of {len(scores)}")
    total = scores[0] * each[0]
    for matrix, weight in zip(scores[1:], each[1:], strict=True):  # each takes half a gigabyte for COCO
        total.add_(matrix, alpha=weight)
    return total.div_(sum(each))


def r_precision(scores: Matrix, relevance: Matrix) -> float:
    """Return the fraction relevant among the first R items, where R items are relevant.

    Rows are queries. The other direction is the transpose of both matrices.

    Args:
        scores: similarities, (B, C).
        relevance: bool, (B, C).

    Returns:
        The mean over the queries, from 0 to 1. A query with nothing relevant is refused.

    Source: Musgrave et al. 2020 (A metric learning reality check); Chun et al. 2022 (ECCV Caption).
    """
    found = _first_relevant(scores, relevance)
    return sum(float((gains.sum(1) / count).sum()) for gains, count in found) / len(scores)


def map_at_r(scores: Matrix, relevance: Matrix) -> float:
    """Compute mean average precision at R: `r_precision` that also counts the order within the first R.

    1/R · Σ_{i ≤ R} P(i), where P(i) is the precision of the first i items if the i-th is relevant, else 0.
    """
    total = 0.0
    for gains, count in _first_relevant(scores, relevance):
        precision = gains.cumsum(1) / torch.arange(1, gains.shape[1] + 1, device=gains.device)  # (b, R)
        total += float(((precision * gains).sum(1) / count).sum())
    return total / len(scores)


@checked
def ndcg(scores: Matrix, relevance: Matrix, k: Count = 25) -> float:
    """Compute the normalised discounted cumulative gain of the first k, for relevance in degrees.

    The gain is 2^relevance - 1, the discount log2(place + 1), with places counted from 1. The sum is divided
    by that of the best order. Rows are queries. The other direction is the transpose of both matrices.

    Args:
        scores: similarities, (B, C).
        relevance: degrees >= 0, (B, C); NaN marks a missing one, which counts as 0.
        k: how many items are looked at, >= 1.

    Returns:
        The mean over the queries, from 0 to 1. A query with nothing relevant counts 0.

    Source: Järvelin and Kekäläinen 2002; k = 25 as in Messina et al. 2020 (TERN).
    """
    _check_matrix("scores", scores)
    _check_matrix("relevance", relevance, ("bool", "real"), tuple(scores.shape))
    k = min(k, scores.shape[1])
    total = 0.0
    for (start, block), (_, degrees) in zip(_score_blocks(scores), _blocks(relevance), strict=True):
        degrees = degrees.to(block.device, torch.float64).nan_to_num(0.0, posinf=torch.inf)  # (b, C)
        wrong = ((degrees < 0) | degrees.isinf()).any(1)  # (b,)
        _refuse_rows("relevance must not be below 0 or infinite", wrong, start)
        discount = torch.arange(2, k + 2, device=block.device, dtype=torch.float64).log2()  # (k,)
        gain = ((2 ** _ranked(block, degrees, k) - 1) / discount).sum(1)  # (b,)
        ideal = ((2 ** degrees.topk(k).values - 1) / discount).sum(1)  # (b,)
        total += float(torch.where(ideal > 0, gain / ideal, 0).sum())
    return total / len(scores)


def coco_benchmarks(scores: Matrix, image_ids: Sequence[Any], caption_ids: Sequence[Any]) -> dict[str, float]:
    """Compute the four tables of COCO's 5K test split: COCO 1K, COCO 5K, CxC and ECCV Caption.

    COCO 1K and 5K ask for a picture's own captions, CxC and ECCV Caption for all that people found to fit.
    Rows and columns may be in any order.

    Args:
        scores: similarities, (5000, 25000). A memory map will do.
        image_ids: COCO's number of each row, (5000,), as numbers or as text, like `Split.picture_ids`.
        caption_ids: COCO's number of each column, (25000,): `sentid` in Karpathy's JSON, `id` in COCO's own.
            If rows and columns are in Karpathy's order, `coco_judgements.split_ids()` has both.

    Returns:
        What `evaluate` returns, as `coco_1k_i2t_r1` and so on (mean over the five folds) and as
        `coco_5k_...`; `cxc_i2t_r1` to `cxc_t2i_r10` and `cxc_rsum`; `eccv_i2t_r1`: in percent. As fractions
        `cxc_i2t_r_precision`, `eccv_i2t_r_precision` and `eccv_i2t_map_at_r`. The same for t2i.

    Source: Karpathy and Fei-Fei 2015 (1K, 5K); Parekh et al. 2021 (CxC); Chun et al. 2022 (ECCV Caption),
    whose package `eccv_caption` measures the last two; Bleeker et al. 2023 for R-precision on CxC.
    """
    split = coco_judgements.split_ids()
    _check_matrix("scores", scores, shape=(len(split.pictures), len(split.captions)))
    # The position of each picture and each caption of the split in the matrix.
    rows = coco_judgements.places("image_ids", image_ids, split.pictures)  # (5000,)
    columns = coco_judgements.places("caption_ids", caption_ids, split.captions)  # (25000,)
    owner = np.empty(len(columns), np.int64)
    owner[columns] = rows[split.owner]

    tables = {
        "coco_1k": _mean_over_folds(scores, torch.from_numpy(owner), torch.from_numpy(rows).view(5, -1)),
        "coco_5k": evaluate(scores, owner),
    }
    names = split.pictures[rows.argsort()], split.captions[columns.argsort()]  # by row, by column
    for benchmark in ("cxc", "eccv"):
        captions, pictures = coco_judgements.right_items(benchmark)
        tables[benchmark] = coco_judgements.measure(
            benchmark, _first_found(scores, *names, captions), _first_found(scores.T, *names[::-1], pictures)
        )
    return {f"{name}_{key}": value for name, table in tables.items() for key, value in table.items()}


def _table_row(i2t: Tensor, t2i: Tensor) -> dict[str, float]:
    both = {"i2t": i2t.numpy(), "t2i": t2i.numpy()}
    row = {f"{way}_{key}": value for way, found in both.items() for key, value in recalls(found).items()}
    row["rsum"] = sum(row.values())
    for way, found in both.items():
        row[f"{way}_medr"] = float(np.floor(np.median(found)) + 1)
        row[f"{way}_meanr"] = float(found.mean() + 1)
    return row


def _mean_over_folds(scores: Matrix, owner: Tensor, folds: Tensor) -> dict[str, float]:
    """Return the mean of the folds' table rows; each row of `folds` (f, size) names the pictures of one."""
    tables = []
    for fold in folds:
        pictures = fold.sort().values  # (size,)
        inside = torch.isin(owner, pictures).nonzero().flatten()  # (about Nc / f,)
        part = scores[_as_slice(pictures)][:, _as_slice(inside)]  # (size, about Nc / f)
        tables.append(_table_row(*ranks(part, torch.searchsorted(pictures, owner[inside]))))
    return {key: float(np.mean([table[key] for table in tables])) for key in tables[0]}


def _first_found(
    scores: Matrix, queries: np.ndarray, items: np.ndarray, right: coco_judgements.Lists
) -> coco_judgements.Lists:
    """Return the first items found for each query that has right ones: as many as any has, at least 10."""
    k = max(10, *map(len, right.values()))
    asked = np.flatnonzero(np.isin(queries, list(right)))  # (q,)
    place = {int(number): column for column, number in enumerate(items)}
    found: coco_judgements.Lists = {}
    for start, block in _score_blocks(scores[_as_slice(torch.from_numpy(asked))]):  # (b, C)
        numbers = queries[asked[start : start + len(block)]].tolist()
        # Two of ECCV's captions are the sixth of their picture, and so not among the 25,000.
        hits = ((row, item) for row, number in enumerate(numbers) for item in right[number])
        pairs = [(row, place[item]) for row, item in hits if item in place]
        # Degrees that are larger for right items and differ for all columns, so that `_ranked` gives columns.
        degrees = torch.arange(len(items), dtype=torch.float32).repeat(len(block), 1)  # (b, C)
        degrees[tuple(torch.tensor(pairs).T)] += len(items)
        columns = _ranked(block, degrees.to(block.device), k).to(torch.int64).cpu() % len(items)  # (b, k)
        found |= zip(numbers, items[columns.numpy()].tolist(), strict=True)
    return found


def _first_relevant(scores: Matrix, relevance: Matrix) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for blocks of queries whether each of the first R items is relevant, (b, largest R), and R."""
    _check_matrix("scores", scores)
    _check_matrix("relevance", relevance, ("bool",), tuple(scores.shape))
    for (start, block), (_, relevant) in zip(_score_blocks(scores), _blocks(relevance), strict=True):
        relevant = relevant.to(block.device)
        count = relevant.sum(1)  # (b,)
        _refuse_rows("relevance must not lack a relevant item", count == 0, start)
        largest = int(count.max())
        gains = _ranked(block, relevant.to(torch.float64), largest)  # (b, largest)
        inside = torch.arange(largest, device=block.device) < count[:, None]  # (b, largest)
        yield gains * inside, count


def _ranked(scores: Tensor, relevance: Tensor, k: int) -> Tensor:
    """Return the relevance of each row's first k items, (b, k); of equal scores, the least relevant first."""
    top, items = scores.topk(k)  # (b, k) each
    degrees = relevance.gather(1, items)  # (b, k)
    order = degrees.sort(dim=1, stable=True).indices
    order = order.gather(1, top.gather(1, order).sort(dim=1, descending=True, stable=True).indices)
    degrees = degrees.gather(1, order)
    last = top[:, -1:]  # (b, 1)
    if int((scores >= last).sum(1, dtype=torch.int32).max()) == k:
        return degrees
    # Among the items that tie with the k-th, topk took any; the least relevant ones belong there.
    tied = torch.where(scores == last, relevance, torch.inf).topk(k, largest=False).values  # (b, k) ascending
    above = (top > last).sum(1, keepdim=True)  # (b, 1)
    place = torch.arange(k, device=scores.device) - above  # (b, k)   among the tied; negative above them
    return torch.where(place < 0, degrees, tied.gather(1, place.clamp(min=0)))


def _blocks(matrix: Matrix) -> Iterator[tuple[int, Tensor]]:
    """Yield the rows of a matrix in blocks, each with the number of its first row; arrays are copied."""
    rows = max(1, BLOCK // matrix.shape[1])
    for start in range(0, matrix.shape[0], rows):
        block = matrix[start : start + rows]
        yield start, block.detach() if isinstance(block, Tensor) else torch.from_numpy(np.array(block))


def _score_blocks(scores: Matrix) -> Iterator[tuple[int, Tensor]]:
    """Yield `_blocks`, and refuse NaN: no comparison with it is true, so it would pass for a good rank."""
    for start, block in _blocks(scores):
        _refuse_rows("scores must not be NaN", block.isnan().any(1), start)
        yield start, block


def _refuse_rows(message: str, wrong: Tensor, start: int) -> None:
    """Refuse a block of rows if one of them is wrong, (b,) bool; `start` is the number of its first row."""
    if wrong.any():
        raise ValueError(f"{message}, as it is in row {start + int(wrong.nonzero()[0])}")


def _as_slice(wanted: Tensor) -> slice | np.ndarray:
    """Return wanted rows or columns, (n,) ascending; as a slice, which copies nothing, if without gaps."""
    first, last = int(wanted[0]), int(wanted[-1])
    return slice(first, last + 1) if last - first + 1 == len(wanted) else wanted.numpy()


def _check_matrix(
    name: str, x: object, kinds: tuple[str, ...] = ("real",), shape: tuple[int, ...] | None = None
) -> None:
    """Refuse what is no matrix of numbers; `shape`: that of the matrix that it goes with."""
    if not isinstance(x, Matrix):
        raise ValueError(f"{name} is {short(x)}: it must be a tensor or an array")
    if _kind(x) not in kinds or x.ndim != 2 or 0 in x.shape or tuple(x.shape) != (shape or tuple(x.shape)):
        wanted = shape or "with two axes, not empty"
        raise ValueError(f"{name} is {x.dtype} {tuple(x.shape)}: it must be {' or '.join(kinds)}, {wanted}")


def _kind(x: Matrix) -> str:
    """Return "bool", "real" (numbers that can be ordered), or "other"."""
    if x.dtype in (torch.bool, np.dtype(bool)):
        return "bool"
    real = not x.is_complex() if isinstance(x, Tensor) else x.dtype.kind in "fiu"
    return "real" if real else "other"


def check_owner(owner: Matrix, pictures: int, captions: int) -> Tensor:
    """Return the picture of each caption, (Nc,) int64 on the CPU, after checking that it is one."""
    owner = torch.as_tensor(owner).detach().cpu()
    if owner.shape != (captions,) or _kind(owner) != "real" or owner.is_floating_point():
        raise ValueError(
            f"owner is {owner.dtype} {tuple(owner.shape)}: it must be whole numbers ({captions},)"
        )
    owner = owner.to(torch.int64)
    if int(owner.min()) < 0 or int(owner.max()) >= pictures:
        raise ValueError(f"owner has {owner.min()} to {owner.max()}: it must name rows, 0 to {pictures - 1}")
    return owner


def _check_owner(scores: Matrix, owner: Matrix) -> tuple[Tensor, Tensor]:
    """Return for each caption its picture and its score with it, (Nc,) each, on the scores' device."""
    _check_matrix("scores", scores)
    pictures, captions = scores.shape
    owner = check_owner(owner, pictures, captions)
    if not (count := owner.bincount(minlength=pictures)).all():
        raise ValueError(f"owner gives picture {int(count.argmin())} no caption: each must have one")
    if isinstance(scores, Tensor):
        owner = owner.to(scores.device)
        return owner, scores.detach()[owner, torch.arange(captions, device=scores.device)]
    return owner, torch.from_numpy(np.array(scores[owner.numpy(), np.arange(captions)]))
