"""What turns pictures and sentences into vectors for an index: a model with all that must stand before it."""

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vsecore.data.files import digest_of
from vsecore.data.picture_files import decoded_ahead
from vsecore.data.weights import add_tensors
from vsecore.data.words import Tokenizer
from vsecore.embedding import Embedding
from vsecore.model import VSE
from vsecore.retriever import READS_FEATURES, Retriever
from vsecore.similarity import Cosine
from vsecore.training.identity import tokenizer_digest


@dataclass(frozen=True)
class Seen:
    """What became of one picture file."""

    path: Path
    size: int = 0
    """Its length in bytes."""
    changed: int = 0
    """When it was last written, in nanoseconds."""
    digest: str = ""
    """Sha256 of its bytes."""
    vectors: np.ndarray | None = None
    """One unit vector (D,) or a set of them (K, D), float32; None: the file could not be read."""
    problem: str = ""


class Engine(Retriever):
    """A retriever whose vectors an index can keep: its model compares vectors."""

    def __init__(self, model: VSE, tokenizer: Tokenizer, name: str, **others: Any) -> None:
        if model.compares != ("vectors",):
            raise ValueError(
                f"{name} compares {' and '.join(model.compares)} of every picture with every sentence, which "
                "no index can save: choose a model that compares vectors"
            )
        super().__init__(model, tokenizer, name, **others)
        if self.backbone is None and model.view is None:  # an index needs it at once
            raise ValueError(f"{name} {READS_FEATURES}")

    @functools.cached_property
    def fingerprint(self) -> str:
        """A sha256 over all that decides the vectors: weights, words, the network before, the cut."""
        digest = hashlib.sha256(tokenizer_digest(self.tokenizer).encode())
        digest.update(repr(self.model.view).encode())
        add_tensors(digest, self.model.state_dict())
        if self.backbone is not None:
            before = f"{self.backbone.fingerprint()} {self.backbone.picture_size} {self.dtype}"
            digest.update(before.encode())
        return digest.hexdigest()

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        """What a sentence becomes: (D,), or (K, D) for a set."""
        return tuple(self.sentence("a picture").shape)

    @property
    def has_sets(self) -> bool:
        """Whether pictures and sentences become sets of vectors."""
        return len(self.shape) == 2

    @property
    def by_cosine(self) -> bool:
        """Whether the model compares single vectors by their cosine, as nearly all do."""
        return not self.has_sets and isinstance(self.model.similarity, Cosine)

    def sentence(self, text: str) -> np.ndarray:
        """Embed a sentence: a unit vector (D,) or a set of them (K, D), float32."""
        if not text.strip():
            raise ValueError("the sentence is empty: write what the picture should show")
        return _vectors(self.encode_texts([text]))[0]

    def picture(self, path: str | Path) -> np.ndarray:
        """Embed a picture's file as `sentence` does a sentence."""
        return _vectors(self.encode_images([path]))[0]

    def pictures(self, files: Sequence[Path], batch_size: int = 32) -> Iterator[list[Seen]]:
        """Embed picture files, batch by batch, in their order. A broken one has a `problem` instead."""
        if self.backbone is not None and self.backbone.longest is not None:
            batch_size = 1  # pictures that keep their proportions do not fit into one tensor
        batches = [files[start : start + batch_size] for start in range(0, len(files), batch_size)]
        yield from map(self._embed, decoded_ahead(self._read, batches))

    def features(self, files: Sequence[Path]) -> np.ndarray:
        """Return what the model reads of picture files, (n, N, F), rounded as in training."""
        pixels = (torch.from_numpy(np.stack([self._decode(path)])) for path in files)
        with self._lock, torch.inference_mode():
            return np.concatenate([self._features(one).cpu().numpy().astype(self.dtype) for one in pixels])

    def compare(self, vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
        """Compare n pictures, (n, D) or (n, K, D), with one query by the model's own similarity: (n,)."""
        pictures, queries = (Embedding(torch.from_numpy(x)) for x in (vectors, query[None]))
        return self.similarity(pictures, queries)[:, 0].numpy()

    def _read(self, path: Path) -> tuple[Seen, np.ndarray | None]:
        """Decode a picture, (H, W, 3) or (3, H, W) uint8, and note which version of the file it is.

        The version is noted first, so that the next `Index.add` sees a change that comes in between.
        """
        seen = Seen(path)
        try:
            status = path.stat()
            seen = Seen(path, status.st_size, status.st_mtime_ns)
            return replace(seen, digest=digest_of(path).hex()), self._decode(path)
        except (ValueError, OSError) as error:
            return replace(seen, problem=str(error)), None

    def _embed(self, read: list[tuple[Seen, np.ndarray | None]]) -> list[Seen]:
        whole = [pixels for _, pixels in read if pixels is not None]
        if not whole:
            return [seen for seen, _ in read]
        with self._lock, torch.inference_mode():
            vectors = iter(_vectors(self._embedded(whole)))
        return [seen if pixels is None else replace(seen, vectors=next(vectors)) for seen, pixels in read]


def _vectors(embedding: Embedding) -> np.ndarray:
    """Return the vectors of an embedding, (B, D) or (B, K, D), float32 and finite."""
    assert embedding.vectors is not None  # the engine refuses models without
    vectors = embedding.vectors.float().cpu().numpy()
    if not np.isfinite(vectors).all():
        raise FloatingPointError("the model's vectors are not finite: train the model again")
    return np.ascontiguousarray(vectors)
