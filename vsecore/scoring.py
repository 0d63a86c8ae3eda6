"""What a model makes of a whole split: its embeddings (`encode`), its scores, its table row."""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from vsecore.data.splits import Split
from vsecore.data.words import TokenizedCaptions, Tokenizer
from vsecore.embedding import Embedding, joined
from vsecore.evaluation import evaluate
from vsecore.model import VSE

PIXELS_AT_A_TIME = 32
"""How many pictures a network sees at once at most: its maps of them need far more memory than features."""

Captions = Tokenizer | TokenizedCaptions
"""The tokenizer that a model was trained with, or a split's captions already tokenised by it."""


@contextlib.contextmanager
def evaluating(model: VSE) -> Iterator[torch.device]:
    """Evaluate a model on its device, which is yielded; its mode, training or not, comes back in the end."""
    was_training = model.training
    model.eval()
    try:
        yield next(model.parameters()).device
    finally:
        model.train(was_training)


@torch.inference_mode()
def encode(
    model: VSE, split: Split, tokenizer: Captions, batch_size: int = 256
) -> tuple[Embedding, Embedding]:
    """Embed a split: every picture once, every caption once, in the split's order.

    The result does not depend on the batch size. The model's mode, training or not, stays as it is.

    Returns:
        The Ni pictures and the Nc captions, float32 on the CPU: what the model's similarity reads, its
        vectors or its elements, and nothing else.
    """
    at_a_time = min(batch_size, PIXELS_AT_A_TIME) if split.has_pixels else batch_size
    tokens = TokenizedCaptions.encode(tokenizer, split.captions)
    order = np.argsort(tokens.lengths, kind="stable")  # similar lengths together: little padding
    pictures, captions = [], []
    with evaluating(model) as device:
        for start in range(0, len(split), at_a_time):
            embedded = model.encode_pictures(*_pictures(split, start, at_a_time, device), model.compares)
            pictures.append(read_by_similarity(model, embedded))
        for start in range(0, len(order), batch_size):
            numbers, mask = tokens.rows(order[start : start + batch_size])  # (b, L) each
            embedded = model.encode_captions(numbers.to(device), mask.to(device))
            captions.append(read_by_similarity(model, embedded))
    return joined(pictures), joined(captions)[torch.from_numpy(np.argsort(order))]


@torch.inference_mode()
def score_split(model: VSE, split: Split, tokenizer: Captions, batch_size: int = 256) -> Tensor:
    """Compare every picture of a split with every caption: (Ni, Nc), float32 on the CPU."""
    return score_embedded(model, *encode(model, split, tokenizer, batch_size))


@torch.inference_mode()
def score_embedded(model: VSE, v: Embedding, t: Embedding) -> Tensor:
    """Compare embedded pictures with embedded captions, in blocks on the model's device: (Ni, Nc)."""
    rows, columns = model.similarity.block
    scores = torch.empty(len(v), len(t))
    with evaluating(model) as device:  # a similarity may drop out and normalise over its batch: SGRAF's do
        for left in range(0, len(t), columns):
            captions = t[left : left + columns].to(device)
            for top in range(0, len(v), rows):
                block = model.scores(v[top : top + rows].to(device), captions)
                scores[top : top + rows, left : left + columns] = block
    return scores


def evaluate_split(model: VSE, split: Split, tokenizer: Captions) -> dict[str, float]:
    """Compute recalls, ranks and rsum of a model on a split (see `evaluation.evaluate`)."""
    return evaluate(score_split(model, split, tokenizer), split.owner)


def _pictures(split: Split, start: int, count: int, device: torch.device) -> tuple[Tensor, Tensor | None]:
    rows = slice(start, start + count)
    pictures = torch.from_numpy(np.array(split.pictures[rows])).to(device)  # (b, N, F) or (b, 3, H, W)
    if pictures.is_floating_point():
        pictures = pictures.float()  # only on the device: half precision is half as much to copy
    if split.picture_counts is None:
        return pictures, None
    return pictures, torch.from_numpy(split.real_elements(rows)).to(device)  # (b, N)


def read_by_similarity(model: VSE, embedding: Embedding) -> Embedding:
    """Keep what the similarity reads, on the CPU; elements always with their mask."""
    read = embedding.only(model.compares).float().to("cpu")
    if read.elements is not None and read.mask is None:
        read.mask = torch.ones(read.elements.shape[:2], dtype=torch.bool)
    return read
