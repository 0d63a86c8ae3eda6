"""How far a search has got, so that one that was stopped goes on."""

from __future__ import annotations

import json
import sys
import time
import zipfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vsecore.data.files import write_atomically
from vsecore.mining.best import Best
from vsecore.mining.folder import NegativesIdentity

STATE = "mining.npz"


class MiningState:
    """A search on disk: one file that is only replaced as a whole.

    Args:
        path: the file.
        identity: what the search depends on; it goes on only with the same.
        seconds: how often it is written.
    """

    def __init__(self, path: Path, identity: NegativesIdentity, seconds: float) -> None:
        self.path, self.seconds = path, seconds
        self.identity = json.dumps(asdict(identity), sort_keys=True)
        self.saved = time.monotonic()

    def resume(self, texts: Tensor, best_pictures: Best) -> int:
        """Put back what was found, and return how many pictures are done; 0: start from the beginning.

        Args:
            texts: the captions of the pictures that are done, (n, k) int32, to be filled.
            best_pictures: the pictures found for each caption, to be filled.
        """
        if not self.path.is_file():
            return 0
        try:
            with np.load(self.path, allow_pickle=False) as stored:
                if str(stored["identity"]) != self.identity:
                    return self._start_over("belongs to another model, other data or other numbers")
                done, found, keys = int(stored["done"]), stored["texts"], stored["keys"]
        except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile):
            return self._start_over("is damaged")
        if found.shape != (done, texts.shape[1]) or keys.shape != (len(best_pictures.keys), best_pictures.k):
            return self._start_over("is damaged")
        texts[:done] = torch.from_numpy(found)
        best_pictures.restore(torch.from_numpy(keys))
        return done

    def keep(self, done: int, texts: Tensor, best_pictures: Best) -> None:
        """Write how far the search has got, if the last time was long enough ago."""
        if time.monotonic() - self.saved < self.seconds:
            return
        with write_atomically(self.path) as file:
            np.savez(
                file,
                identity=np.array(self.identity),
                done=np.array(done),
                texts=texts[:done].numpy(),
                keys=best_pictures.keep().cpu().numpy(),
            )
        self.saved = time.monotonic()

    def remove(self) -> None:
        """Remove the file: the search is finished."""
        self.path.unlink(missing_ok=True)

    def _start_over(self, why: str) -> int:
        print(f"{self.path} {why}: mining starts over", file=sys.stderr)
        return 0
