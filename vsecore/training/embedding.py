"""What a trained model makes of a split: its scores, its table row."""

from __future__ import annotations

import torch
from torch import Tensor

from vsecore.data.splits import Split
from vsecore.embedding import Embedding
from vsecore.encoding import Captions, encode
from vsecore.evaluation import evaluate
from vsecore.model import VSE


@torch.inference_mode()
def score_split(model: VSE, split: Split, tokenizer: Captions, batch_size: int = 256) -> Tensor:
    """Compare every picture of a split with every caption, in blocks, on the model's device.

    Returns:
        Similarities (Ni, Nc), float32 on the CPU.
    """
    return score_embedded(model, *encode(model, split, tokenizer, batch_size))


@torch.inference_mode()
def score_embedded(model: VSE, v: Embedding, t: Embedding) -> Tensor:
    """Compare every embedded picture with every embedded caption, in blocks, on the model's device.

    Returns:
        Similarities (Ni, Nc), float32 on the CPU.
    """
    device = next(model.parameters()).device
    rows, columns = model.block
    scores = torch.empty(len(v), len(t))
    for left in range(0, len(t), columns):
        captions = t[left : left + columns].to(device)
        for top in range(0, len(v), rows):
            block = model.scores(v[top : top + rows].to(device), captions)
            scores[top : top + rows, left : left + columns] = block
    return scores


def evaluate_split(
    model: VSE,
    split: Split,
    tokenizer: Captions,
    folds: int | None = None,
    batch_size: int = 256,
) -> dict[str, float]:
    """Compute recalls, ranks and rsum of a model on a split (see `evaluation.evaluate`)."""
    return evaluate(score_split(model, split, tokenizer, batch_size), split.owner, folds)
