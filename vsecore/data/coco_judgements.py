"""What people say fits together in COCO's 5K test split: its own captions, CxC and ECCV Caption.

The lists come with the package `eccv_caption`, so that nothing is fetched; the package also measures the two
benchmarks, from ranked lists of COCO's numbers.
"""

import contextlib
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from vsecore.arguments import checked

Benchmark = Literal["coco", "cxc", "eccv"]
Lists = dict[int, list[int]]
"""COCO's number of a query, and the numbers of items: those that are right, or those found, best first."""


@dataclass(frozen=True)
class SplitIds:
    """COCO's 5K test split in Karpathy's order, whose consecutive fifths are the folds of COCO 1K."""

    pictures: np.ndarray
    """(5000,) int64: COCO's numbers of the pictures."""
    captions: np.ndarray
    """(25000,) int64: COCO's numbers of the captions, those of one picture next to each other."""
    owner: np.ndarray
    """(25000,) int64: the row in `pictures` that each caption belongs to."""


@cache
def split_ids() -> SplitIds:
    """Return COCO's numbers for the 5K test split, and which caption belongs to which picture."""
    package = _package()
    captions = np.asarray(package.coco_ids, np.int64)  # (25000,)
    owners = [package.coco_gts["t2i"][int(number)][0] for number in captions]
    rows = {picture: row for row, picture in enumerate(dict.fromkeys(owners))}  # in the order of the split
    return SplitIds(np.array(list(rows)), captions, np.array([rows[picture] for picture in owners]))


@checked
def right_items(benchmark: Benchmark) -> tuple[Lists, Lists]:
    """Return the items that a benchmark counts as right: of each picture captions, of each caption pictures.

    "coco": each picture's own five captions; "cxc": what the raters of Crisscrossed Captions found to fit,
    for every picture and nearly every caption; "eccv": what models proposed and people confirmed, for 1,261
    pictures and 1,332 captions.

    Source: Lin et al. 2014; Parekh et al. 2021; Chun et al. 2022.
    """
    lists = getattr(_package(), f"{benchmark}_gts")
    return lists["i2t"], lists["t2i"]


def places(name: str, given: Sequence[Any], wanted: np.ndarray) -> np.ndarray:
    """Find the position of each wanted number (n,) among those given, as numbers or text: (n,) int64."""
    numbers = np.asarray(given)
    if numbers.dtype.kind == "U" and all(number.isdecimal() for number in given):
        numbers = numbers.astype(np.int64)
    known = numbers.dtype.kind in "iu" and numbers.shape == wanted.shape
    if not known or not np.array_equal(np.sort(numbers), np.sort(wanted)):
        raise ValueError(
            f"{name} is {numbers.dtype} {numbers.shape}: wanted COCO's {len(wanted)} test numbers, each once"
        )
    order = np.argsort(numbers)
    return order[np.searchsorted(numbers, wanted, sorter=order)]


def measure(benchmark: Benchmark, captions: Lists, pictures: Lists) -> dict[str, float]:
    """Measure with `eccv_caption` the captions found for each picture, best first, and the same for captions.

    They are as many as are right, and at least 10. Recalls are in percent, with `rsum` for "cxc"; as
    fractions there are `i2t_r_precision` and, for "eccv", `i2t_map_at_r`, and the same for t2i.
    """
    eccv = (("r1", "r1", 100), ("rprecision", "r_precision", 1), ("map_at_r", "map_at_r", 1))
    names = eccv if benchmark == "eccv" else tuple((f"r{k}", f"r{k}", 100) for k in (1, 5, 10))
    wanted = [f"eccv_{name}" for name, _, _ in eccv] if benchmark == "eccv" else ["cxc_recalls"]
    # The package's own progress bars cannot be turned off for ECCV, so their output is thrown away.
    with contextlib.redirect_stderr(io.StringIO()):
        found = _package().compute_all_metrics(captions, pictures, target_metrics=wanted, Ks=(1, 5, 10))
    row = {
        f"{way}_{ours}": scale * float(found[f"{benchmark}_{theirs}"][way])
        for way in ("i2t", "t2i")
        for theirs, ours, scale in names
    }
    if benchmark == "cxc":
        row["rsum"] = sum(row.values())
        for way, lists, right in zip(("i2t", "t2i"), (captions, pictures), right_items("cxc"), strict=True):
            hits = [len({*found[: len(right[query])]} & {*right[query]}) for query, found in lists.items()]
            row[f"{way}_r_precision"] = float(
                np.mean([n / len(right[q]) for q, n in zip(lists, hits, strict=True)])
            )
    return row


@cache
def _package() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about a faster JSON reader that is not installed
        from eccv_caption import Metrics
    return Metrics()
