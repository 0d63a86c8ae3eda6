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

from vsecore.data.files import write_atomically
from vsecore.mining.blocks import Search
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

    def resume(self, search: Search) -> None:
        """Put back what was found, so that the search goes on from there, if there is such a file."""
        if not self.path.is_file():
            return
        try:
            with np.load(self.path, allow_pickle=False) as stored:
                if (str(stored["identity"]), tuple(stored["block"])) != (self.identity, search.block):
                    self._start_over("belongs to another model, other data, other numbers or other blocks")
                    return
                found = [torch.from_numpy(stored[name]) for name in ("texts", "pictures", "floor")]
            search.restore(*found)
        except (ValueError, TypeError, OSError, EOFError, KeyError, zipfile.BadZipFile):
            self._start_over("is damaged")

    def keep(self, search: Search) -> None:
        """Write how far the search has got, if the last time was long enough ago."""
        if time.monotonic() - self.saved < self.seconds:
            return
        with write_atomically(self.path) as file:
            np.savez(
                file,
                identity=np.array(self.identity),
                block=np.array(search.block),
                texts=search.texts[: search.done].cpu().numpy(),
                pictures=search.best_pictures.keep().cpu().numpy(),
                floor=search.best_pictures.floor.cpu().numpy(),
            )
        self.saved = time.monotonic()

    def remove(self) -> None:
        """Remove the file: the search is finished."""
        self.path.unlink(missing_ok=True)

    def _start_over(self, why: str) -> None:
        print(f"{self.path} {why}: mining starts over", file=sys.stderr)
