"""How long the systems of the scoreboard take for a query: encode a caption, compare it with the pictures.

Run as: OMP_NUM_THREADS=1 python tests/benchmarks/queries.py [--record]

The pictures of the test split are encoded before. The weights are random, since times do not depend on them.
"""

import numpy as np
import torch
from harness import Times, benchmark

from course.standings import found, recipe_of
from vsecore import scenes


@torch.inference_mode()
def measure(options):
    test = scenes.load(train=1, dev=1, features="region").test.subset(options.pictures)
    counts = np.asarray(test.picture_counts)
    mask = torch.arange(test.pictures.shape[1]) < torch.from_numpy(counts)[:, None]  # (B, N)
    pictures = torch.from_numpy(np.array(test.pictures, np.float32))  # (B, N, F)
    metrics = {}
    for name, arm in found("17").items():
        if (recipe := recipe_of(arm)) is None:
            continue
        tokenizer = recipe.tokenizer(test.captions)
        model = recipe.build(test.pictures.shape[2], tokenizer).eval()
        v, times = model.encode_pictures(pictures, mask), Times()
        for caption in test.captions[: 5 * options.captions : 5]:
            tokens = tokenizer.encode([caption])
            times.time(lambda: model.scores(v, model.encode_captions(*tokens)))  # noqa: B023
        metrics[name] = 1000 * times.medians[1]
    options.data = {"name": "scenes"}
    return metrics


if __name__ == "__main__":
    benchmark(
        "queries",
        measure,
        "The processor's milliseconds for a query, one thread, the median over captions: to encode a caption "
        "and compare it with pictures that are encoded, for the rows of the scoreboard that are one system.",
        pictures=1000,
        captions=30,
    )
