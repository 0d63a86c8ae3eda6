"""Mining by a trained model, whatever its similarity."""

import contextlib
import hashlib
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import SkipValidation
from torch import Tensor

from vsecore.arguments import Count, checked
from vsecore.data.files import expanded, locked, progress
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.splits import Split
from vsecore.data.weights import add_tensors
from vsecore.data.words import TokenizedCaptions
from vsecore.embedding import Embedding
from vsecore.mining.blocks import Search, workers_on
from vsecore.mining.folder import (
    NEGATIVES,
    STATE,
    MiningState,
    NegativesIdentity,
    load_negatives,
    save_negatives,
)
from vsecore.mining.topk import rows_of
from vsecore.mining.vectors import BUDGET, BYTES, ROWS
from vsecore.model import VSE
from vsecore.scoring import Captions, encode, evaluating
from vsecore.similarity import Cosine

PASSING = ("training", "name_or_path", "gradient_checkpointing", "keep_attention")
"""Attributes of modules that change no score: the mode, where BERT was read from, how it saves memory, and
what it keeps to be looked at."""


@checked
@torch.inference_mode()
def mine(
    model: VSE,
    split: Split,
    tokenizer: Annotated[Captions, SkipValidation],
    texts: Count = 300,
    pictures: Count = 60,
    *,
    folder: str | Path | None = None,
    recipe: str = "",
) -> OfflineNegatives:
    """Find the captions of a split that a model finds most similar to each picture, and the other way round.

    Every picture is compared with every caption, in blocks, on the model's device; each block serves both
    directions. See `mine_offline_negatives` for what counts as a negative, and for the numbers of `texts` and
    `pictures`. The hardest negatives come first.

    The `folder` keeps them, together with what the model is in your own words (`recipe`). If it holds those
    of the same model and data already, they are read instead; those of another model or other data are
    refused. A search that was stopped, or killed, goes on where it last saved; if the model or
    the data have changed, it starts over and says so.
    """
    tokens = TokenizedCaptions.encode(tokenizer, split.captions)
    with contextlib.ExitStack() as stack:
        state = None
        if folder is not None:
            folder = expanded(folder)
            identity = negatives_identity(model, split, tokens, texts, pictures, recipe)
            if (folder / NEGATIVES).is_file():
                return load_negatives(folder, split, expected=identity)
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder, "is mining into", wait=False))
            state = MiningState(folder / STATE, identity)
        stack.enter_context(evaluating(model))
        embedded = encode(model, split, tokens)
        search, workers = search_embedded(model, *embedded, split.owner, (texts, pictures))
        if state is not None:
            state.resume(search)
        bar = progress(total=len(split), initial=search.done, desc="mining", unit="picture")
        stack.callback(bar.close)

        def after() -> None:
            bar.update(search.done - bar.n)
            if state is not None:
                state.keep(search)

        found = OfflineNegatives(*(rows_of(keys).cpu().numpy() for keys in search.run(workers, after)))
        if state is not None:
            save_negatives(state.path.parent, found, identity)
            state.path.unlink(missing_ok=True)
    return found


def search_embedded(
    model: VSE, v: Embedding, t: Embedding, owner: np.ndarray, wanted: tuple[int, int] = (300, 60)
) -> tuple[Search, int]:
    """Return a search of embedded pictures and captions, which stay on the CPU, and its number of workers."""
    device = next(model.parameters()).device
    rows, columns = model.similarity.block
    rows = min(rows, ROWS)
    block = rows, min(columns, BUDGET // (BYTES * rows))

    def score(pictures: slice, captions: slice) -> Tensor:
        scores = model.scores(v[pictures].to(device), t[captions].to(device)).float().contiguous()  # (b, c)
        # The sum is fast, and not finite if a score is not, though it may be too large otherwise.
        if not scores.sum().isfinite() and not scores.isfinite().all():
            raise ValueError("some scores are not finite numbers: look for NaN in the model's weights")
        return scores

    # Comparing single vectors is one product, after which only one thread would select. What compares
    # elements or sets keeps all threads busy by itself, and needs much more memory.
    workers = workers_on(device) if isinstance(model.similarity, Cosine) else 1
    return Search(score, torch.from_numpy(owner), len(v), wanted, block, device), workers


def negatives_identity(
    model: VSE, split: Split, tokenizer: Captions, texts: int = 300, pictures: int = 60, recipe: str = ""
) -> NegativesIdentity:
    """Return what the negatives that `mine` would find depend on, for `load_negatives(expected=...)`."""
    tokens = TokenizedCaptions.encode(tokenizer, split.captions)
    words = hashlib.sha256(tokens.lengths.astype("<i8").tobytes() + tokens.numbers.astype("<i4").tobytes())
    return NegativesIdentity(
        model=_model_digest(model),
        recipe=recipe,
        split=split.name,
        data=split.fingerprint(),
        tokenizer=words.hexdigest(),
        texts=int(texts),
        pictures=int(pictures),
    )


def _model_digest(model: VSE) -> str:
    """Return a sha256 of the model's weights and of the settings of all its modules."""
    digest = hashlib.sha256()
    for place, module in model.named_modules():
        digest.update(f"{place} {type(module).__name__} {_settings(module)}".encode())
    add_tensors(digest, model.state_dict())
    return digest.hexdigest()


def _settings(module: torch.nn.Module) -> dict[str, Any]:
    """Return the numbers and words that a module keeps beside its weights, such as the k of k-max pooling."""

    def plain(value: Any) -> Any:  # equal settings are written alike: 1 and 1.0, say
        if isinstance(value, tuple):
            return tuple(map(plain, value))
        return float(value) if isinstance(value, int | float) else str(value)

    return {
        name: plain(value)
        for name, value in sorted(vars(module).items())
        if not name.startswith("_") and name not in PASSING and isinstance(value, str | int | float | tuple)
    }
