"""What search costs, and what it keeps of the exact answer, from thousands of pictures to a million.

Run as: OMP_NUM_THREADS=1 python tests/benchmarks/search.py --index DIR --photographs FLICKR8K
    [--sizes 100000 1000000] [--record]

Real vectors are those of an index of Flickr8k's pictures, and its captions are the queries. For more pictures
than there are, vectors are made: those of the index, each with noise added, until there are enough. Their
numbers say what storage and time cost. They do not say that recall is as good for as many real pictures.

Two questions:
- time and recall: seconds to build, bytes a vector, milliseconds a query (one at a time, the median) and the
  share of the exact ten that is found. A Qdrant server is not measured here; FAISS's graph (HNSW) is.
- the trap: codebooks and cells learned from pictures alone, asked by captions and by pictures, beside those
  learned from as many examples of which half are captions.

What becomes of sets of vectors is measured by `proposals.py`.
"""

import statistics
import time
from pathlib import Path

import faiss
import numpy as np
from harness import benchmark, table

from course.approximate import flat, quantised, recall, top
from vsecore.data.karpathy import load_karpathy
from vsecore.search import Index

NOISE = 0.5
"""Length of the noise that is added to a unit vector to make another."""
KINDS = {
    "flat": "Flat",
    "sq8": "SQ8",
    "pq128x4": "PQ128x4",
    "ivf_flat": "IVF{cells},Flat",
    "ivf_sq8": "IVF{cells},SQ8",
    "hnsw": "HNSW32,Flat",
}
TRAPS = ("SQ4", "PQ16", "PQ128x4", "IVF128,Flat", "IVF128,SQ8")
HNSW_MOST = 100_000  # its graph of a million takes too long to build here
EXAMPLES = 16_384  # the most that codebooks and cells are learned from


def more_of(vectors, count):
    dice, made = np.random.default_rng(0), np.empty((count, vectors.shape[1]), np.float32)
    for start in range(0, count, 65_536):
        stop = min(start + 65_536, count)
        noise = dice.standard_normal((stop - start, vectors.shape[1]), np.float32)
        noise *= NOISE / np.linalg.norm(noise, axis=1, keepdims=True)
        some = vectors[dice.integers(0, len(vectors), stop - start)] + noise
        made[start:stop] = some / np.linalg.norm(some, axis=1, keepdims=True)
    return made


def index_of(kind, vectors, examples, probes):
    index = quantised(kind, vectors, examples)
    if hasattr(index, "nprobe"):
        index.nprobe = probes
    return index


def one_by_one(index, queries):
    """Ask one query after the other; return the median milliseconds, and what was found."""
    top(index, queries[:1])
    took, found = [], []
    for query in queries:
        began = time.perf_counter()
        found.append(top(index, query[None])[0])
        took.append(time.perf_counter() - began)
    return 1000 * statistics.median(took), np.stack(found)


def cost(vectors, queries, name):
    count = len(vectors)
    examples = vectors[np.random.default_rng(1).permutation(count)[:EXAMPLES]]
    cells, rows = 2 ** round(np.log2(np.sqrt(count))), {}
    exact = top(flat(vectors), queries)
    for kind, told in KINDS.items():
        if kind == "hnsw" and count > HNSW_MOST:
            continue
        began = time.perf_counter()
        index = index_of(told.format(cells=cells), vectors, examples, 16)
        built = time.perf_counter() - began
        ms, found = one_by_one(index, queries)
        rows[kind] = {
            "build_seconds": built,
            "bytes_a_vector": len(faiss.serialize_index(index)) / count,
            "ms_a_query": ms,
            "recall_at_10": recall(found, exact),
        }
    table([{f"{name}, {count:,} vectors": kind, **row} for kind, row in rows.items()])
    return {f"{name}_{kind}_{key}": value for kind, row in rows.items() for key, value in row.items()}


def trap(pictures, captions, queries):
    """Compare indexes that saw only pictures with those that saw captions too; return recalls by name."""
    dice, half, metrics = np.random.default_rng(2), len(pictures) // 2, {}
    mixed = np.concatenate([side[dice.permutation(len(side))[:half]] for side in (pictures, captions)])
    asked = {"by_captions": queries, "by_pictures": pictures[dice.permutation(len(pictures))[: len(queries)]]}
    for kind in TRAPS:
        for seen, examples in (("pictures", pictures), ("both", mixed)):
            index = index_of(kind, pictures, examples, 4)
            for way, asking in asked.items():
                name = f"trap_{kind.lower().replace(',', '_')}_{way}_learned_from_{seen}"
                metrics[name] = recall(top(index, asking), top(flat(pictures), asking))
    means = [side.mean(0) / np.linalg.norm(side.mean(0)) for side in (pictures, captions)]
    return metrics | {"trap_cosine_of_the_means": float(means[0] @ means[1])}


def measure(options):
    splits, index = load_karpathy(options.photographs), Index.load(options.index)
    pictures = index.all_vectors()[1]
    chosen = splits["test"].captions[::5][: options.queries], splits["train"].captions[::7][:4096]
    queries, learned = (np.stack([index.engine.sentence(one) for one in some]) for some in chosen)
    metrics = cost(pictures, queries, "real") | trap(pictures, learned, queries)
    for size in options.sizes:
        metrics |= cost(more_of(pictures, size), queries, f"made_{size}")
    options.data = {"name": "flickr8k", "pictures": len(pictures)}
    return metrics


if __name__ == "__main__":
    benchmark(
        "search",
        measure,
        "Search over Flickr8k's pictures (real) and over vectors made from them by adding noise (made_...): "
        "seconds to build, bytes a vector, median milliseconds of one query, share of the exact ten. trap: "
        "recall of indexes whose codebooks or cells were learned from pictures alone, or from as many "
        "examples, half of them captions.",
        index=Path,
        photographs=Path,
        sizes=[100_000, 1_000_000],
        queries=200,
    )
