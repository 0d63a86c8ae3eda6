"""What a sentence encoder makes of captions: targets that a caption's vector must allow to predict."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from vsecore.arguments import checked
from vsecore.data.files import cache_folder, digest_of, in_batch, locked, progress, write_atomically
from vsecore.data.language_models import MINILM, model_folder
from vsecore.data.splits import Dataset
from vsecore.data.words import checked_sentences

MODEL = MINILM
"""The paper's sentence encoder; it comes with the extra "offline"."""
READ = ("*.safetensors", "config.json", "tokenizer.json", "modules.json", "1_Pooling/config.json")
"""The files of a model that decide what it makes of a sentence."""

BATCH = 64
"""How many captions are read at a time."""


@checked
def sentence_targets(
    captions: Sequence[str], model: str | Path = MODEL, device: str | None = None
) -> np.ndarray:
    """Return the sentence encoder's vector of each caption, (C, T) float32.

    A caption that occurs twice is read once. The vectors are kept in the cache, under a name that changes
    with the model's files and the captions.

    Args:
        captions: C sentences.
        model: a folder, or a model's name, see `language_models.model_folder`; "all-mpnet-base-v2" is another
            that the paper names.
        device: where, such as "cuda"; None: on a GPU if there is one.

    Raises:
        FileNotFoundError: the model is not a folder, and cannot be downloaded.
        ValueError: captions is empty, or the folder holds no sentence encoder.

    Source: Reimers and Gurevych 2019 (Sentence-BERT); as targets, Bleeker, Yates and de Rijke 2023 (LTD),
    section 3.4.4.
    """
    folder, sentences = model_folder(model), np.asarray(checked_sentences(captions), dtype=object)
    distinct, places = np.unique(sentences, return_inverse=True)
    model_digest = hashlib.sha256()
    for path in (path for pattern in READ for path in sorted(folder.glob(pattern))):
        model_digest.update(path.relative_to(folder).as_posix().encode() + digest_of(path))
    key = json.dumps([model_digest.hexdigest(), *distinct], ensure_ascii=False)
    kept = cache_folder("sentence_targets")
    path = kept / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.npy"
    with locked(kept, "is reading captions into"):
        if not path.is_file():
            found = _read(folder, distinct.tolist(), device)
            with write_atomically(path) as file:
                np.save(file, found, allow_pickle=False)
    return np.asarray(np.load(path, allow_pickle=False)[places], dtype=np.float32)


def with_targets(data: Dataset, model: str | Path = MODEL, device: str | None = None) -> Dataset:
    """Return a dataset whose training split has `sentence_targets`; the others need none."""
    targets = sentence_targets(data.train.captions, model, device=device)
    return replace(data, train=replace(data.train, targets=targets))


def _read(folder: Path, captions: list[str], device: str | None) -> np.ndarray:
    """Encode captions with the model in a folder, (C, T)."""
    from sentence_transformers import SentenceTransformer  # takes seconds to import
    from transformers.utils import logging

    if in_batch():
        logging.disable_progress_bar()  # the bar would end up in a stored notebook
    try:
        encoder = SentenceTransformer(
            str(folder),
            device=device,
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{folder} holds no sentence encoder that can be read: {reason}") from error
    by_length = np.argsort([len(caption) for caption in captions], kind="stable")[::-1]
    blocks = [by_length[first : first + BATCH] for first in range(0, len(captions), BATCH)]
    found = np.empty((len(captions), encoder.get_embedding_dimension() or 0), np.float32)
    for block in progress(blocks, desc="sentence targets", unit="batch"):
        found[block] = encoder.encode(
            [captions[row] for row in block], batch_size=BATCH, show_progress_bar=False
        )
    return found
