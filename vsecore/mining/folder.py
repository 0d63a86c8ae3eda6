"""A folder of mined negatives: two arrays and what made them; before that, how far the search has got."""

import hashlib
import json
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vsecore.arguments import Count
from vsecore.data.files import expanded, read_json, write_atomically, write_json
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.splits import Split
from vsecore.mining.blocks import Search

NEGATIVES = "negatives.json"
STATE = "mining.npz"
MINE_AGAIN = "mine again, into another folder"
SAVE_SECONDS = 300
"""How much of a search may be lost when it is killed."""


@dataclass(frozen=True)
class NegativesIdentity:
    """What mined negatives depend on; two with the same identity are the same."""

    model: str
    """A digest of the model's weights and of its modules' settings."""
    recipe: str
    """What the model is, in the words of whoever mined; may be empty."""
    split: str
    """The name of the split: "train"."""
    data: str
    """The split's fingerprint."""
    tokenizer: str
    """A digest of the split's captions as the tokenizer numbers them."""
    texts: Count
    """How many captions each picture gets, if there are so many."""
    pictures: Count
    """How many pictures each caption gets, if there are so many."""


@dataclass(frozen=True)
class _Stored:
    """What `negatives.json` holds."""

    identity: NegativesIdentity
    arrays: dict[str, str]
    """A digest of each array."""


def save_negatives(folder: Path, negatives: OfflineNegatives, identity: NegativesIdentity) -> None:
    """Write mined negatives. `negatives.json` comes last, so that a folder with it is whole."""
    digests = {}
    for name in ("texts", "pictures"):
        rows = np.ascontiguousarray(getattr(negatives, name), dtype=np.int32)
        with write_atomically(folder / f"{name}.npy") as file:
            np.save(file, rows, allow_pickle=False)
        digests[name] = _digest(rows)
    write_json(folder / NEGATIVES, asdict(_Stored(identity, digests)), indent=2)


def load_negatives(
    folder: str | Path, split: Split, *, expected: NegativesIdentity | None = None
) -> OfflineNegatives:
    """Read mined negatives, and check that they belong to a split.

    They may have been mined by a teacher: a different model, with a different tokenizer. `expected` says what
    else must be the same (see `negatives_identity`); what differs, or is damaged, is named.
    """
    folder = expanded(folder)
    if not (folder / NEGATIVES).is_file():
        raise FileNotFoundError(
            f"{folder} holds no finished mining (it has no {NEGATIVES}): name a folder that vse mine wrote"
        )
    stored: _Stored = read_json(folder / NEGATIVES, _Stored)
    found = stored.identity
    for wanted in (expected or found, replace(found, split=split.name, data=split.fingerprint())):
        if found != wanted:
            differences = "; ".join(
                f"{name}: {value} in the folder, {getattr(wanted, name)} now"
                for name, value in asdict(found).items()
                if value != getattr(wanted, name)
            )
            raise ValueError(f"{folder} holds other negatives ({differences}): {MINE_AGAIN}")
    negatives = OfflineNegatives(
        *(_array(folder / f"{name}.npy", stored.arrays.get(name, "")) for name in ("texts", "pictures"))
    )
    negatives.check(split)
    return negatives


def _array(path: Path, digest: str) -> np.ndarray:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: {MINE_AGAIN}")
    rows = None
    with suppress(Exception):  # numpy has no end of errors for what is damaged
        rows = np.load(path, allow_pickle=False)
    if not isinstance(rows, np.ndarray) or rows.dtype != np.int32 or _digest(rows) != digest:
        raise ValueError(f"{path} is damaged: {MINE_AGAIN}")
    return rows


def _digest(rows: np.ndarray) -> str:
    digest = hashlib.sha256(f"{rows.dtype} {rows.shape}".encode())
    digest.update(np.ascontiguousarray(rows).data)
    return digest.hexdigest()


class MiningState:
    """How far a search has got, so that one that was stopped goes on: a file that is replaced as a whole.

    A search goes on only with the same identity.
    """

    def __init__(self, path: Path, identity: NegativesIdentity) -> None:
        self.path = path
        self.identity = json.dumps(asdict(identity) | {"version": 2}, sort_keys=True)
        self.saved = time.monotonic()

    def resume(self, search: Search) -> None:
        """Let the search go on from the file, if there is one that belongs to it."""
        if not self.path.is_file():
            return
        try:
            with np.load(self.path, allow_pickle=False) as stored:
                if (str(stored["identity"]), tuple(stored["block"])) == (self.identity, search.block):
                    search.restore(dict(stored))
                    return
            why = "belongs to another model, other data, other numbers or other blocks"
        except Exception:  # numpy has no end of errors for what is damaged
            why = "is damaged"
        print(f"{self.path} {why}: mining starts over", file=sys.stderr)

    def keep(self, search: Search) -> None:
        """Write how far the search has got, if the last time was long enough ago."""
        if time.monotonic() - self.saved < SAVE_SECONDS:
            return
        state: dict[str, Any] = search.state()
        with write_atomically(self.path) as file:
            np.savez(file, identity=self.identity, block=search.block, **state)
        self.saved = time.monotonic()
