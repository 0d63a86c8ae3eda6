"""Results query by query: how sure their means are, and files of them for other tools."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from vsecore.data.files import write_atomically, write_json
from vsecore.data.splits import Split
from vsecore.embedding import Embedding
from vsecore.evaluation import ranks
from vsecore.records import RECALLS

DRAWS = 1000
"""How many times the pictures are drawn again, with replacement, for an interval."""
ENDS = (0.025, 0.975)
"""The quantiles between which an interval lies: 95 %."""
CUTS = (1, 5, 10)
"""The recalls at these are added up."""
FOUND = 10
"""How many of the first results of each query are written."""


def hits(rank: Tensor) -> np.ndarray:
    """Return 100 where the recall at 1, 5 or 10 counts a query, else 0, (n, 3). Ranks begin with 0."""
    return 100.0 * (rank.numpy()[:, None] < np.array(CUTS))


def intervals(scores: Tensor, owner: Any) -> dict[str, tuple[float, float]]:
    """Return the 95 % intervals of the six recalls and of their sum, in percent, from scores (n, Nc)."""
    i2t, t2i = ranks(scores, owner)
    return resampled(hits(i2t), hits(t2i), np.asarray(owner))


def resampled(
    of_pictures: np.ndarray, of_captions: np.ndarray, owner: np.ndarray
) -> dict[str, tuple[float, float]]:
    """Return the 95 % intervals of means over all queries, and of their sum, "rsum".

    The pictures are drawn again with replacement, each with its captions, which are no independent queries.
    Of each picture, (n, 3), and of each caption, (Nc, 3), there is what `hits` returns, or the difference of
    two systems in it.
    """
    count = len(of_pictures)
    captions = np.bincount(owner, minlength=count)
    sums = np.stack(
        [np.bincount(owner, column, minlength=count) for column in of_captions.T], axis=1
    )  # (n, 3)
    dice, means = np.random.default_rng(0), []
    for _ in range(0, DRAWS, 100):  # COCO's training split is large
        drawn = dice.multinomial(count, np.full(count, 1 / count), size=100)  # (100, n), how often
        means.append(np.hstack([drawn @ of_pictures / count, drawn @ sums / (drawn @ captions)[:, None]]))
    drawn = np.concatenate(means)  # (DRAWS, 6)
    columns = {**dict(zip(RECALLS, drawn.T, strict=True)), "rsum": drawn.sum(1)}
    ends = {name: np.quantile(column, ENDS) for name, column in columns.items()}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}


def per_query(scores: Tensor, split: Split) -> Iterator[dict[str, Any]]:
    """Yield each picture, then each caption, with the rank of its best own item and what is found first.

    Ranks count from 1. Of items with the same score, wrong ones stand first, as in the ranks.
    """
    owner, rows = np.asarray(split.owner), np.arange(len(split))
    i2t, t2i = ranks(scores, owner)
    for row, rank in enumerate(i2t.tolist()):
        found = _first(scores[row], owner == row, split.captions, "caption")
        yield {"picture": split.picture_ids[row], "rank": rank + 1, "found": found}
    for column, rank in enumerate(t2i.tolist()):
        found = _first(scores[:, column], rows == owner[column], split.picture_ids, "picture")
        own = split.picture_ids[owner[column]]
        yield {"caption": split.captions[column], "of": own, "rank": rank + 1, "found": found}


def _first(scores: Tensor, right: np.ndarray, names: Any, kind: str) -> list[dict[str, Any]]:
    values = scores.numpy()
    items = np.flatnonzero(values >= np.partition(values, -min(FOUND, len(values)))[-min(FOUND, len(values))])
    best = items[np.lexsort((right[items], -values[items]))][:FOUND]
    return [{kind: names[row], "score": float(values[row]), "right": bool(right[row])} for row in best]


def write_queries(path: Path, scores: Tensor, split: Split) -> None:
    """Write `per_query` into a file, one JSON object a line."""
    with write_atomically(path, "w") as file:
        file.writelines(f"{json.dumps(query, ensure_ascii=False)}\n" for query in per_query(scores, split))


def write_embeddings(folder: Path, v: Embedding, t: Embedding, split: Split) -> None:
    """Write what a model compares as arrays, such as `pictures_vectors.npy`, and `ids.json` with their rows.

    Vectors are (n, D) and (Nc, D), or sets (n, K, D); `owner` is the row of each caption's picture.
    """
    for side, embedding in (("pictures", v), ("captions", t)):
        arrays = {"vectors": embedding.vectors, "elements": embedding.elements, "mask": embedding.mask}
        for name, tensor in (arrays | embedding.extra).items():
            if tensor is not None:
                with write_atomically(folder / f"{side}_{name}.npy") as file:
                    np.save(file, tensor.numpy(), allow_pickle=False)
    owner = np.asarray(split.owner).tolist()
    names = {"pictures": split.picture_ids, "captions": split.captions, "owner": owner}
    write_json(folder / "ids.json", names, ensure_ascii=False)
