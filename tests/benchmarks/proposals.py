"""What is lost when quick similarities of sets propose pictures, and the model's own ranks them.

Run as: OMP_NUM_THREADS=1 python tests/benchmarks/proposals.py --run RUN --features FOLDER [--record]

Of the exact similarity's ten best, the share among those that MaxSim proposes, that the means of the sets
propose, or that each of them proposes half of. All pictures of dev and test are asked for by a fifth or less
of their captions.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from vsecore import records
from vsecore.data.features import open_precomp
from vsecore.embedding import Embedding
from vsecore.encoding import encode
from vsecore.similarity import max_sim
from vsecore.training import Run, evaluate_split, load_run

ROOT = Path(__file__).resolve().parents[2]
PROPOSED = (10, 20, 50, 100, 200)
CAPTIONS = 500
"""The most captions of each split."""


def kept(run: Run, features: Path) -> dict[str, float]:
    """Print and return the shares, and how good the run is."""
    dataset = open_precomp(features)
    pictures, captions = [], []
    for split in (dataset.dev, dataset.test):
        v, t = encode(run.model, split, run.tokenizer)
        if v.vectors is None or v.vectors.dim() != 3 or t.vectors is None:
            raise ValueError(f"{run.recipe.name} does not compare sets: name a run that does")
        pictures.append(v.vectors)
        captions.append(t.vectors[:: -(-len(t.vectors) // CAPTIONS)])
    v, t = torch.cat(pictures), torch.cat(captions)
    exact = run.model.scores(Embedding(v), Embedding(t)).topk(10, 0).indices.numpy()
    ways = {"max_sim": max_sim(v, t), "means": v.mean(1) @ t.mean(1).T}  # (pictures, captions)
    metrics = {"pictures": len(v), "captions": len(t), "elements": v.shape[1]}
    metrics["rsum"] = round(evaluate_split(run.model, dataset.test, run.tokenizer)["rsum"], 2)
    print(f"{run.recipe.name}: {metrics}")
    for count in PROPOSED:
        among = {way: scores.topk(count, 0).indices.numpy() for way, scores in ways.items()}
        among["both"] = np.concatenate([one[: count // 2] for one in among.values()])
        for way, rows in among.items():
            share = float(np.mean([np.isin(exact[:, one], rows[:, one]).mean() for one in range(len(t))]))
            print(f"{way} proposes {count}: {share:.4f} of the exact ten")
            metrics[f"kept_of_{count}_by_{way}"] = round(share, 5)
    return metrics


def main() -> None:
    """Measure; with --record, write the numbers down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="a run whose similarity compares sets")
    parser.add_argument("--features", type=Path, required=True, help="the features that it was trained on")
    parser.add_argument("--record", action="store_true", help="write a record into assets/results")
    options = parser.parse_args()
    began, run = time.perf_counter(), load_run(options.run)
    with torch.inference_mode():
        metrics = kept(run, options.features)
    if options.record:
        entry = records.record(
            "benchmark_proposals",
            config=run.recipe.portable(),
            config_hash="",
            data=run.data,
            seed=run.seed,
            metrics=metrics,
            seconds=time.perf_counter() - began,
            note="Share of the exact ten pictures among those that MaxSim, the means of the sets, or each of "
            "them half, propose, for captions of dev and test; and the rsum of the run on test.",
        )
        print(f"\nWrote {records.write(entry, ROOT / 'assets' / 'results').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
