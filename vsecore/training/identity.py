"""What identifies a run: its recipe, data, seed and precision, as `run.json` keeps them."""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from vsecore.arguments import Count, Whole
from vsecore.data.files import read_bytes
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.splits import Dataset
from vsecore.data.words import Tokenizer
from vsecore.recipes import Recipe
from vsecore.recipes.own_parts import PartsFile, find_parts
from vsecore.recipes.plain import flatten
from vsecore.typed import from_json, short

RUN = "run.json"
START_OVER_HINT = "put the run's own file back, or train again in another folder"
ENCODERS = ("image_encoder", "text_encoder")
"""Subfolders in which a run keeps its encoders' architectures."""


@dataclass(frozen=True)
class DataIdentity:
    """The data that a run was trained on, see `describe_data`."""

    name: str
    fingerprint: str
    feature_dim: Count
    tokenizer: str
    vectors: str
    feature_kind: str = ""
    targets: str = ""
    negatives: str = ""
    weights: str = ""
    network: str = ""


@dataclass(frozen=True)
class Identity:
    """What `run.json` holds; a run of an older version may lack what has a default."""

    recipe: dict[str, Any]
    data: DataIdentity
    seed: Whole
    precision: Literal["float32", "bfloat16"] = "float32"
    parts: tuple[PartsFile, ...] = ()
    """The files of its own parts."""


def describe_data(
    data: Dataset,
    tokenizer: Tokenizer,
    vectors: Tensor | None = None,
    negatives: OfflineNegatives | None = None,
    weights: Mapping[str, Tensor] | None = None,
) -> dict[str, Any]:
    """Describe the data of a run for its record: names, and digests of everything that is read."""
    described = {
        "name": data.name,
        "fingerprint": data.fingerprint(),
        "feature_kind": data.feature_kind,
        "feature_dim": data.feature_dim,
        "tokenizer": tokenizer_digest(tokenizer),
        "vectors": "" if vectors is None else digest(vectors.detach().float().cpu().numpy().tobytes()),
    }
    if data.network:
        described["network"] = data.network
    if data.train.targets is not None:
        described["targets"] = digest(np.ascontiguousarray(data.train.targets).tobytes())
    if negatives is not None:
        described["negatives"] = digest(negatives.texts.tobytes() + negatives.pictures.tobytes())
    if weights is not None:
        content = (weights[name].detach().cpu().numpy().tobytes() for name in sorted(weights))
        described["weights"] = digest(b"".join(content))
    return described


def check_features(run: Path, trained: Mapping[str, Any], source: object, data: Dataset) -> None:
    """Refuse data from some source that a run in a folder cannot read, since another network made them.

    `trained` is what `describe_data` returned when the run was trained; older runs do not name the network.
    """
    then, now = trained.get("network", ""), data.network
    reads, has = f"width {trained['feature_dim']}", f"width {data.feature_dim}"
    if reads == has and then and now:
        reads, has = then, now
    if reads != has:
        raise ValueError(
            f"{run} reads features of {reads}, and {source} has features of {has}: name features of the "
            "network that it was trained with"
        )


def read_identity(folder: Path) -> dict[str, Any]:
    """Read and check what identifies a run, as plain data; load its own parts, see `find_parts`."""
    path = folder / RUN
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no run (it has no {RUN}): name the folder of a training")
    find_parts(folder, from_json(str(path), path.read_bytes(), Identity).parts)
    content: dict[str, Any] = {"precision": "float32", **json.loads(path.read_bytes())}
    read_recipe(folder, content)
    return content


def read_recipe(folder: Path, identity: Mapping[str, Any]) -> Recipe:
    """Read the recipe of a run; a ValueError if it is damaged or names a part that is not known here."""
    try:
        return Recipe.from_dict(identity["recipe"])
    except ValueError as error:
        own = "; a part of your own must be registered first: name its file with --parts, or import it"
        remedy = own if "is unknown:" in str(error) else ""
        raise ValueError(f"{folder / RUN}: {error}{remedy}") from error


def digest_beside(folder: Path, identity: Mapping[str, Any]) -> str:
    """Return a digest of the files beside a checkpoint, which holds it, so that a mix-up is noticed.

    It covers `run.json`, which names the tokenizer's digest, and the architectures of the encoders, but no
    setting that has its default: later versions may add some.
    """
    recipe = read_recipe(folder, identity)
    content = [recipe.name, recipe.source, recipe.hash(), identity["data"], identity["seed"]]
    found = hashlib.sha256(json.dumps([*content, identity["precision"]], sort_keys=True).encode())
    for path in sorted(path for name in ENCODERS for path in (folder / name).glob("[!.]*")):
        found.update(read_bytes(path))
    return found.hexdigest()


def tokenizer_digest(tokenizer: Tokenizer, kept: Path | None = None) -> str:
    """Return a digest of the files that a tokenizer saves, or of the same files in a run's folder, `kept`."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        paths = sorted(Path(folder).iterdir())
        return digest(b"".join(read_bytes((kept or path.parent) / path.name) for path in paths))


def check_tokenizer(folder: Path, tokenizer: Tokenizer, identity: Mapping[str, Any]) -> None:
    """Refuse a run's folder whose tokenizer is missing, or not the one that `run.json` names."""
    if tokenizer_digest(tokenizer, folder) != identity["data"]["tokenizer"]:
        raise ValueError(f"{folder} holds another tokenizer than its {RUN} names: {START_OVER_HINT}")


def digest(content: bytes) -> str:
    """Return twelve hexadecimal digits that change with the content."""
    return hashlib.sha256(content).hexdigest()[:12]


def compare(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to resume a run with other settings; the ValueError names all that differ."""
    # Settings that were added since then, and options that are left out, have their defaults in both.
    # A file of parts may have changed, in another part; `find_parts` says so. A source is no setting.
    then, today = (
        flatten({**side, "recipe": {**recipe, "source": None}, "parts": None})
        for side, recipe in ((before, read_recipe(folder, before).portable()), (now, now["recipe"]))
    )
    differences = []
    for name in sorted(then.keys() | today.keys()):
        if then.get(name) != today.get(name):
            had, has = (short(side[name]) if name in side else "not set" for side in (then, today))
            differences.append(f"{name.removeprefix('recipe.')}: {had} in the run, {has} now")
    if differences:
        raise ValueError(
            f"{folder} holds another run ({'; '.join(differences)}): resume with the same, choose another "
            f"folder, or train it further into another one (--init {folder})"
        )
