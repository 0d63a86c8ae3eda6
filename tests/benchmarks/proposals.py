"""What is lost when quick similarities of sets propose pictures, and the model's own ranks them.

Run as: OMP_NUM_THREADS=1 python tests/benchmarks/proposals.py --run RUN --features FOLDER [--record]

Of the exact similarity's ten best, the share among those that MaxSim proposes, that the means of the sets
propose, or that each of them proposes half of. All pictures of dev and test are asked for by at most 500
captions of each.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from harness import benchmark

from vsecore.data.features import open_precomp
from vsecore.embedding import Embedding
from vsecore.scoring import encode
from vsecore.similarity import max_sim
from vsecore.training import evaluate_split, load_run


@torch.inference_mode()
def measure(options):
    run, dataset = load_run(options.run), open_precomp(options.features)
    pictures, captions = [], []
    for split in (dataset.dev, dataset.test):
        v, t = encode(run.model, split, run.tokenizer)
        if v.vectors is None or v.vectors.dim() != 3 or t.vectors is None:
            sys.exit(f"{run.recipe.name} does not compare sets: name a run that does")
        pictures.append(v.vectors)
        captions.append(t.vectors[:: -(-len(t.vectors) // 500)])
    v, t = torch.cat(pictures), torch.cat(captions)
    exact = run.model.scores(Embedding(v), Embedding(t)).topk(10, 0).indices.numpy()
    ways = {"max_sim": max_sim(v, t), "means": v.mean(1) @ t.mean(1).T}  # (pictures, captions)
    metrics = {"pictures": len(v), "captions": len(t), "elements": v.shape[1]}
    metrics["rsum"] = evaluate_split(run.model, dataset.test, run.tokenizer)["rsum"]
    for count in (10, 20, 50, 100, 200):
        among = {way: scores.topk(count, 0).indices.numpy() for way, scores in ways.items()}
        among["both"] = np.concatenate([one[: count // 2] for one in among.values()])
        for way, rows in among.items():
            shares = [np.isin(exact[:, one], rows[:, one]).mean() for one in range(len(t))]
            metrics[f"kept_of_{count}_by_{way}"] = float(np.mean(shares))
    options.config, options.data = run.recipe.portable(), run.data
    return metrics


if __name__ == "__main__":
    benchmark(
        "proposals",
        measure,
        "Share of the exact ten pictures among those that MaxSim, the means of the sets, or each of them "
        "half, propose, for captions of dev and test; and the rsum of the run on test.",
        run=Path,
        features=Path,
    )
