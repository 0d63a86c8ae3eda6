"""FAISS beside the search of the package: the exact answer, and indexes that keep a few bytes of a vector.

Codebooks are learned from examples. Pictures and sentences of one model lie in different parts of their
space, so an index that was learned from pictures alone has never seen what it will be asked with; a benchmark
(`tests/benchmarks/search.py`) measures what that costs.
"""

from typing import Any

import numpy as np


def flat(vectors: np.ndarray) -> Any:
    """Return FAISS's exact index of vectors (n, D), by inner product: every query is compared with all."""
    return quantised("Flat", vectors, vectors)


def quantised(kind: str, vectors: np.ndarray, examples: np.ndarray) -> Any:
    """Return an index of float32 vectors (n, D) that keeps codes, by inner product.

    Its kind is named as in `faiss.index_factory`: "SQ8" is a byte a number, "PQ32" 32 bytes a vector,
    "IVF256,Flat" looks into some of 256 cells only. Codebooks and cells are learned from the examples (m, D):
    some of the vectors, or queries.
    """
    import faiss

    for name, x in (("vectors", vectors), ("examples", examples)):
        if x.ndim != 2 or x.dtype != np.float32 or not len(x) or x.shape[1] != vectors.shape[1]:
            raise ValueError(f"{name} is {x.dtype} {x.shape}: wanted float32 (n, D), the same D for both")
    try:
        index = faiss.index_factory(vectors.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
        index.train(np.ascontiguousarray(examples))
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1][:200]
        raise ValueError(f"kind is {kind!r}: FAISS cannot make that of these examples ({reason})") from None
    index.add(np.ascontiguousarray(vectors))
    return index


def top(index: Any, queries: np.ndarray, k: int = 10) -> np.ndarray:
    """Return the rows of each query's k nearest vectors, (q, k), best first; -1 where there are fewer."""
    found: np.ndarray = index.search(np.ascontiguousarray(queries), k)[1]
    return found


def recall(found: np.ndarray, exact: np.ndarray) -> float:
    """Return the share of the exact top k that was found, over all queries: both (q, k)."""
    if found.shape != exact.shape:
        raise ValueError(f"found is {found.shape} and exact is {exact.shape}: wanted the same")
    kept = [len(np.intersect1d(a, b)) for a, b in zip(found, exact, strict=True)]
    return float(sum(kept) / exact.size)
