"""Mining by a trained model, whatever its similarity."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import numpy as np
import torch

from vsecore.data.files import progress
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.splits import Split
from vsecore.data.words import TokenizedCaptions
from vsecore.encoding import Captions, encode
from vsecore.mining.best import Best
from vsecore.mining.folder import NegativesIdentity, load_negatives, save_negatives, stored_identity
from vsecore.mining.pairs import Own
from vsecore.mining.vectors import BUDGET, BYTES
from vsecore.model import VSE


@torch.inference_mode()
def mine(
    model: VSE,
    split: Split,
    tokenizer: Captions,
    texts: int = 300,
    pictures: int = 60,
    *,
    folder: str | Path | None = None,
    recipe: str = "",
    batch_size: int = 256,
    budget: int = BUDGET,
) -> OfflineNegatives:
    """Find the captions of a split that a model finds most similar to each picture, and the other way round.

    Every picture is compared with every caption, in blocks, on the model's device; each block serves both
    directions. See `mine_offline_negatives` for what counts as a negative, and what happens if there are
    fewer than asked for.

    Args:
        model: a trained model with any similarity.
        split: the pictures and captions, usually the training split.
        tokenizer: the one that the model was trained with, or this split's captions already tokenised by it.
        texts: how many captions each picture gets.
        pictures: how many pictures each caption gets.
        folder: where the negatives are kept. If it holds those of the same model and data already, they are
            read instead. Those of another model or other data are refused. None: nowhere.
        recipe: what the model is, in your own words, to be kept in the folder.
        batch_size: how many are embedded at a time.
        budget: how many bytes a block of scores, and what is made of it, may take.

    Returns:
        The negatives, hardest first.

    Raises:
        ValueError: a score is NaN or infinite, there are no negatives, or the folder holds others.
    """
    tokens = tokenizer
    if not isinstance(tokens, TokenizedCaptions):
        tokens = TokenizedCaptions.encode(tokens, split.captions)
    folder = None if folder is None else Path(folder)
    identity = None if folder is None else negatives_identity(model, split, tokens, texts, pictures, recipe)
    if folder is not None and stored_identity(folder) is not None:
        return load_negatives(folder, split, expected=identity)

    own = Own(split.owner, len(split), len(split.captions))
    kept = own.most(texts, pictures)
    v, t = encode(model, split, tokens, batch_size)
    device = next(model.parameters()).device
    best_texts, best_pictures = Best(len(v), kept[0], device), Best(len(t), kept[1], device)
    rows, columns = model.block
    while rows * columns * BYTES > budget:
        rows, columns = max(1, rows // 2), max(1, columns // 2)
    for top in progress(range(0, len(v), rows), desc="mining", unit="block", leave=False):
        some = v[top : top + rows].to(device)
        for left in range(0, len(t), columns):
            scores = model.scores(some, t[left : left + columns].to(device)).float()  # (b, c)
            if not scores.isfinite().all():
                raise ValueError(
                    f"scores of pictures {top} to {top + len(scores) - 1} hold NaN or infinity: they must "
                    "be finite numbers"
                )
            own.leave_out(scores, top, left)
            best_texts.add(scores, top, left)
            best_pictures.add(scores.T.contiguous(), left, top)
    found = OfflineNegatives(best_texts.rows.cpu().numpy(), best_pictures.rows.cpu().numpy())
    if folder is not None and identity is not None:
        save_negatives(folder, found, identity, _versions())
    return found


def negatives_identity(
    model: VSE, split: Split, tokenizer: Captions, texts: int = 300, pictures: int = 60, recipe: str = ""
) -> NegativesIdentity:
    """Return what the negatives that `mine` would find depend on, for `load_negatives(expected=...)`."""
    tokens = tokenizer
    if not isinstance(tokens, TokenizedCaptions):
        tokens = TokenizedCaptions.encode(tokens, split.captions)
    words = hashlib.sha256(tokens.lengths.astype("<i8").tobytes() + tokens.numbers.astype("<i4").tobytes())
    return NegativesIdentity(
        model=_model_digest(model),
        recipe=recipe,
        split=split.name,
        data=split.fingerprint(),
        tokenizer=words.hexdigest(),
        texts=texts,
        pictures=pictures,
    )


def _model_digest(model: VSE) -> str:
    """Return a sha256 of the model's weights and of its similarity's settings."""
    settings = {
        name: value
        for name, value in sorted(vars(model.similarity).items())
        if not name.startswith("_") and name != "training" and isinstance(value, str | int | float | tuple)
    }
    digest = hashlib.sha256(f"{type(model.similarity).__name__} {settings}".encode())
    for name, weight in sorted(model.state_dict().items()):
        array = weight.detach().cpu().contiguous()
        digest.update(f"{name} {array.dtype} {tuple(array.shape)}".encode())
        digest.update(array.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__}
