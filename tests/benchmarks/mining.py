"""What mining costs: over the bare product in the same blocks, and beside FAISS's exact search.

Run as: OMP_NUM_THREADS=2 python tests/benchmarks/mining.py [--record] [--pictures 20000] [--captions 100000]

Random unit vectors; FAISS searches once each way, and its answers are compared with ours. With a GPU, COCO's
size is mined on it too. COCO's time on this processor is estimated: its multiplications at the product's
rate, and for each score what selecting took here.
"""

import time

import faiss
import numpy as np
import torch
from harness import benchmark, extra_mb, noise, take_turns
from torch.nn.functional import normalize

from vsecore.mining import mine_offline_negatives
from vsecore.mining.vectors import BUDGET, BYTES, ROWS

TEXTS, PICTURES = 300, 60
COCO = (113_287, 566_435, 1024)


def product(v, t):
    columns = BUDGET // (BYTES * ROWS)
    memory = v.new_empty(ROWS * columns)
    for some in v.split(ROWS):
        for others in t.split(columns):
            torch.mm(some, others.T, out=memory[: len(some) * len(others)].view(len(some), len(others)))


def faiss_search(v, t, most):
    """FAISS's exact search both ways, own items among what it finds."""
    faiss.omp_set_num_threads(torch.get_num_threads())
    found = []
    for queries, items, k in ((v, t, TEXTS + most), (t, v, PICTURES + 1)):
        index = faiss.IndexFlatIP(items.shape[1])
        index.add(items.numpy())
        found.append(index.search(queries.numpy(), k)[1])
    return found[0], found[1]


def agreement(mined, theirs, own):
    """The share of our negatives that FAISS names too; rounding may let near ties change places."""
    rows = zip(mined, theirs, own, strict=True)
    hits = sum(len(np.intersect1d(ours, row[~hidden][: len(ours)])) for ours, row, hidden in rows)
    return hits / mined.size


def measure(options):
    pictures, captions = options.pictures, options.captions
    v = normalize(noise(pictures, options.dim), dim=1)
    t = normalize(noise(captions, options.dim, seed=1), dim=1)
    owner = np.arange(captions) * pictures // captions
    most = int(np.bincount(owner).max())

    def mined():
        return mine_offline_negatives(v, t, owner, TEXTS, PICTURES)

    tasks = {"product": lambda: product(v, t), "mining": mined, "faiss": lambda: faiss_search(v, t, most)}
    metrics = {"mining_extra_mb": extra_mb(mined)}
    medians = {name: times.medians for name, times in take_turns(tasks, options.turns).items()}
    metrics["product_seconds"], metrics["product_processor_seconds"] = medians["product"]
    for name in ("mining", "faiss"):
        metrics[f"{name}_over_product"] = medians[name][0] / medians["product"][0]
        metrics[f"{name}_processor_over_product"] = medians[name][1] / medians["product"][1]
    ours, (texts, others) = mine_offline_negatives(v, t, owner, TEXTS, PICTURES), faiss_search(v, t, most)
    metrics["texts_agreement"] = agreement(ours.texts, texts, owner[texts] == np.arange(pictures)[:, None])
    metrics["pictures_agreement"] = agreement(ours.pictures, others, others == owner[:, None])
    pairs = COCO[0] * COCO[1] / (pictures * captions)
    whole = pairs * COCO[2] / options.dim * medians["product"][0]
    metrics["coco_product_seconds_estimate"] = whole
    # Selecting depends on the number of scores, not on their width.
    metrics["coco_seconds_estimate"] = whole + pairs * (medians["mining"][0] - medians["product"][0])
    return metrics | (on_gpu() if torch.cuda.is_available() else {})


def on_gpu():
    v, t = (normalize(torch.randn(n, COCO[2], device="cuda"), dim=1) for n in COCO[:2])
    owner = np.arange(COCO[1]) * COCO[0] // COCO[1]
    mine_offline_negatives(v[:4096], t[:20480], np.arange(20480) // 5)  # chooses kernels
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    mine_offline_negatives(v, t, owner, TEXTS, PICTURES, block=(1024, 2**17))
    taken = time.perf_counter() - began
    return {"gpu_coco_seconds": taken, "gpu_peak_mb": torch.cuda.max_memory_allocated() / 1e6}


if __name__ == "__main__":
    benchmark(
        "mining",
        measure,
        "Mining in both directions, and FAISS's exact search once each way, as multiples of the bare product "
        "by the clock and by the processor's seconds; the share of our negatives that FAISS names too; and "
        "the seconds that the training split of COCO would take on this processor.",
        pictures=20_000,
        captions=100_000,
        dim=256,
        threads=2,
        turns=1,
    )
