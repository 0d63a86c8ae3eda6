"""A folder of mined negatives: two arrays, and what made them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from vsecore.data.files import read_json, write_atomically
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.splits import Split

NEGATIVES = "negatives.json"
AGAIN = "mine again, into another folder"
Whole = Annotated[int, Field(ge=1)]


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
    texts: Whole
    """How many captions each picture gets, if there are so many."""
    pictures: Whole
    """How many pictures each caption gets, if there are so many."""


@dataclass(frozen=True)
class _Stored:
    """What `negatives.json` holds."""

    identity: NegativesIdentity
    arrays: dict[str, str]
    versions: dict[str, str] = field(default_factory=dict)


SPOKEN = {
    "model": "the model",
    "recipe": "recipe",
    "split": "split",
    "data": "the data's pictures, features or captions",
    "tokenizer": "the tokenizer's words",
    "texts": "texts",
    "pictures": "pictures",
}
"""How a message calls each field; those that begin with "the" keep only a digest."""


def save_negatives(
    folder: Path, negatives: OfflineNegatives, identity: NegativesIdentity, versions: Mapping[str, str]
) -> None:
    """Write mined negatives. `negatives.json` comes last, so that a folder with it is whole."""
    digests = {}
    for name in ("texts", "pictures"):
        rows = np.ascontiguousarray(getattr(negatives, name), dtype=np.int32)
        with write_atomically(folder / f"{name}.npy") as file:
            np.save(file, rows, allow_pickle=False)
        digests[name] = _digest(rows)
    with write_atomically(folder / NEGATIVES, "w") as file:
        json.dump(asdict(_Stored(identity, digests, dict(versions))), file, indent=2)


def load_negatives(
    folder: str | Path, split: Split, *, expected: NegativesIdentity | None = None
) -> OfflineNegatives:
    """Read mined negatives, and check that they belong to a split.

    They may have been mined by a teacher: a different model, with a different tokenizer.

    Args:
        folder: where `mine` wrote.
        split: the split that was mined.
        expected: what else must be the same, see `negatives_identity`; None: only the data.

    Returns:
        The negatives.

    Raises:
        FileNotFoundError: the folder holds no finished mining, or a file is missing.
        ValueError: the negatives are of other data, or of something else than expected, or a file is damaged;
            the message names what differs.
    """
    folder = Path(folder)
    stored = _read(folder)
    if expected is not None:
        _compare(folder, stored.identity, expected, [field.name for field in fields(NegativesIdentity)])
    told = stored.identity
    if (told.split, told.data) != (split.name, split.fingerprint()):
        wanted = NegativesIdentity(**{**asdict(told), "split": split.name, "data": split.fingerprint()})
        _compare(folder, told, wanted, ["split", "data"])
    negatives = OfflineNegatives(
        *(_array(folder / f"{name}.npy", stored.arrays.get(name, "")) for name in ("texts", "pictures"))
    )
    negatives.check(split)
    return negatives


def stored_identity(folder: Path) -> NegativesIdentity | None:
    """Return what the finished negatives of a folder depend on; None: there are none."""
    return _read(folder).identity if (folder / NEGATIVES).is_file() else None


def _read(folder: Path) -> _Stored:
    path = folder / NEGATIVES
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} holds no finished mining (it has no {NEGATIVES}): name a folder that vse mine wrote"
        )
    stored: _Stored = read_json(path, _Stored)
    return stored


def _array(path: Path, digest: str) -> np.ndarray:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: {AGAIN}")
    try:
        rows = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path} is damaged ({error}): {AGAIN}") from error
    if not isinstance(rows, np.ndarray) or rows.dtype != np.int32 or _digest(rows) != digest:
        raise ValueError(f"{path} is damaged (it has changed since it was mined): {AGAIN}")
    return rows


def _digest(rows: np.ndarray) -> str:
    digest = hashlib.sha256(f"{rows.dtype} {rows.shape}".encode())
    digest.update(np.ascontiguousarray(rows).data)
    return digest.hexdigest()


def _compare(folder: Path, found: NegativesIdentity, wanted: NegativesIdentity, names: list[str]) -> None:
    differences = [
        difference(name, getattr(found, name), getattr(wanted, name))
        for name in names
        if getattr(found, name) != getattr(wanted, name)
    ]
    if differences:
        raise ValueError(f"{folder} holds other negatives ({'; '.join(differences)}): {AGAIN}")


def difference(name: str, found: Any, wanted: Any) -> str:
    """Say how a field differs."""
    spoken = SPOKEN[name]
    if spoken.startswith("the "):
        return f"{spoken}: not the same"
    return f"{spoken}: {found!r} in the folder, {wanted!r} now"
