"""What search costs, and what it keeps of the exact answer, from thousands of pictures to a million.

Run as: OMP_NUM_THREADS=1 python tests/benchmarks/search.py --index DIR --photographs FLICKR8K
    [--sizes 100000 1000000] [--record]

Real vectors are those of an index of Flickr8k's pictures, and its captions are the queries. For more pictures
than there are, vectors are made: those of the index, each with noise added, until there are enough. Their
numbers say what storage and time cost. They do not say that recall is as good for as many real pictures.

Two questions:
- time and recall: seconds to build, bytes a vector, milliseconds a query (one at a time, the median) and the
  share of the exact ten that is found. A Qdrant server brings a graph (HNSW), and is not measured here;
  FAISS's HNSW is.
- the trap: codebooks and cells learned from pictures alone, asked by captions and by pictures, beside those
  learned from as many examples of which half are captions.

What becomes of sets of vectors is measured by `proposals.py`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vsecore import records
from vsecore.data.karpathy import load_karpathy
from vsecore.search import Engine, Index
from vsecore.search.reference import flat, quantised, recall, top

ROOT = Path(__file__).resolve().parents[2]
QUERIES = 200
NOISE = 0.5
"""Length of the noise that is added to a unit vector to make another."""
KINDS = {
    "sq8": "SQ8",
    "pq128x4": "PQ128x4",
    "ivf_flat": "IVF{cells},Flat",
    "ivf_sq8": "IVF{cells},SQ8",
    "hnsw": "HNSW32,Flat",
}
HNSW_MOST = 100_000  # its graph of a million takes too long to build here
EXAMPLES = 16_384  # the most that codebooks and cells are learned from
PROBES = 16


def embed_captions(engine: Engine, captions: list[str]) -> np.ndarray:
    """Embed sentences, one at a time, as a search does."""
    return np.stack([engine.sentence(caption) for caption in captions])


def more_of(vectors: np.ndarray, count: int) -> np.ndarray:
    """Make vectors out of those that are there, by adding noise."""
    dice = np.random.default_rng(0)
    made = np.empty((count, vectors.shape[1]), np.float32)
    for start in range(0, count, 65_536):
        stop = min(start + 65_536, count)
        noise = dice.standard_normal((stop - start, vectors.shape[1]), np.float32)
        noise *= NOISE / np.linalg.norm(noise, axis=1, keepdims=True)
        some = vectors[dice.integers(0, len(vectors), stop - start)] + noise
        made[start:stop] = some / np.linalg.norm(some, axis=1, keepdims=True)
    return made


def one_by_one(search: Callable[[np.ndarray], np.ndarray], queries: np.ndarray) -> tuple[float, np.ndarray]:
    """Ask one query after the other; return the median milliseconds, and what was found."""
    search(queries[:1])
    took, found = [], []
    for row in range(len(queries)):
        began = time.perf_counter()
        found.append(search(queries[row : row + 1])[0])
        took.append(time.perf_counter() - began)
    return 1000 * statistics.median(took), np.stack(found)


def bytes_a_vector(index: Any, count: int) -> float:
    """Return how long FAISS's index is when it is written, for each vector."""
    import faiss

    return len(faiss.serialize_index(index)) / count


def probing(index: Any) -> Any:
    """Let an index of cells look into some of them."""
    if hasattr(index, "nprobe"):
        index.nprobe = PROBES
    return index


def cost(vectors: np.ndarray, queries: np.ndarray, name: str) -> dict[str, float]:
    """Print a table of one size; return its numbers by name."""
    count = len(vectors)
    print(f"\n{name}: {count:,} vectors of {vectors.shape[1]}, {len(queries)} captions as queries")
    print("| | build, s | bytes a vector | ms a query | of the exact ten |\n| --- | --- | --- | --- | --- |")
    began = time.perf_counter()
    reference = flat(vectors)
    built = time.perf_counter() - began
    ms, exact = one_by_one(lambda query, index=reference: top(index, query), queries)
    rows = {"flat": (built, bytes_a_vector(reference, count), ms, 1.0)}
    del reference
    examples = vectors[np.random.default_rng(1).permutation(count)[:EXAMPLES]]
    cells = 2 ** round(np.log2(np.sqrt(count)))
    for kind, told in KINDS.items():
        if kind == "hnsw" and count > HNSW_MOST:
            continue
        began = time.perf_counter()
        index = probing(quantised(told.format(cells=cells), vectors, examples))
        built = time.perf_counter() - began
        ms, found = one_by_one(lambda query, index=index: top(index, query), queries)
        rows[kind] = built, bytes_a_vector(index, count), ms, recall(found, exact)
    metrics = {}
    for kind, row in rows.items():
        print(f"| {kind} | " + " | ".join(f"{value:.4g}" for value in row) + " |", flush=True)
        keys = ("build_seconds", "bytes_a_vector", "ms_a_query", "recall_at_10")
        metrics |= {
            f"{name}_{kind}_{key}": float(f"{value:.4g}") for key, value in zip(keys, row, strict=True)
        }
    return metrics


def trap(pictures: np.ndarray, captions: np.ndarray, queries: np.ndarray) -> dict[str, float]:
    """Compare indexes that saw only pictures with those that saw captions too; return recalls by name."""
    dice = np.random.default_rng(2)
    half = len(pictures) // 2
    mixed = np.concatenate(
        [pictures[dice.permutation(len(pictures))[:half]], captions[dice.permutation(len(captions))[:half]]]
    )
    asked = {"by_captions": queries, "by_pictures": pictures[dice.permutation(len(pictures))[: len(queries)]]}
    reference, metrics = flat(pictures), {}
    print(f"\nof the exact ten, {len(mixed):,} examples: pictures alone | half of them captions")
    for kind in ("SQ4", "PQ16", "PQ128x4", "IVF128,Flat", "IVF128,SQ8"):
        indexes = {"pictures": quantised(kind, pictures, pictures), "both": quantised(kind, pictures, mixed)}
        for index in indexes.values():
            if hasattr(index, "nprobe"):
                index.nprobe = 4
        for way, asking in asked.items():
            exact = top(reference, asking)
            kept = {seen: recall(top(index, asking), exact) for seen, index in indexes.items()}
            print(f"| {kind} | {way} | {kept['pictures']:.3f} | {kept['both']:.3f} |", flush=True)
            for seen, value in kept.items():
                name = kind.lower().replace(",", "_")
                metrics[f"trap_{name}_{way}_learned_from_{seen}"] = round(value, 4)
    means = [pictures.mean(0), captions.mean(0)]
    metrics["trap_cosine_of_the_means"] = round(
        float(means[0] @ means[1] / np.linalg.norm(means[0]) / np.linalg.norm(means[1])), 4
    )
    print(f"cosine of the mean picture and the mean caption: {metrics['trap_cosine_of_the_means']:.3f}")
    return metrics


def main() -> None:
    """Measure; with --record, write the numbers down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--index", type=Path, required=True, help="an index of Flickr8k's pictures")
    parser.add_argument("--photographs", type=Path, required=True, help="Flickr8k, for its captions")
    parser.add_argument("--sizes", type=int, nargs="*", default=[100_000, 1_000_000], help="made vectors")
    parser.add_argument("--record", action="store_true", help="write a record into assets/results")
    options = parser.parse_args()
    os.environ.setdefault("VSECORE_BATCH", "1")
    began, splits = time.perf_counter(), load_karpathy(options.photographs)
    index = Index.load(options.index)
    pictures = index.all_vectors()[1]
    queries = embed_captions(index.engine, splits["test"].captions[::5][:QUERIES])
    learned = embed_captions(index.engine, splits["train"].captions[::7][:4096])
    metrics = cost(pictures, queries, "real")
    metrics |= trap(pictures, learned, queries)
    for size in options.sizes:
        metrics |= cost(more_of(pictures, size), queries, f"made_{size}")
    if options.record:
        entry = records.record(
            "benchmark_search",
            config={
                "sizes": options.sizes,
                "noise": NOISE,
                "queries": QUERIES,
                "probes": PROBES,
                "model": index.engine.model.__class__.__name__ + f" of width {pictures.shape[1]}",
            },
            config_hash="",
            data={"name": "flickr8k", "pictures": len(pictures)},
            seed=0,
            metrics=metrics,
            seconds=time.perf_counter() - began,
            note="Search over Flickr8k's pictures (real) and over vectors made from them by adding noise "
            "(made_...): seconds to build, bytes a vector, median milliseconds of one query, share of the "
            "exact ten. trap: recall of indexes whose codebooks or cells were learned from pictures alone, "
            "or from as many examples, half of them captions.",
        )
        print(f"\nWrote {records.write(entry, ROOT / 'assets' / 'results').relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
