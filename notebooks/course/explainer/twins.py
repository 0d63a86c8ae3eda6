"""A trained system as plain data for the explainer's JavaScript: parts by name, packed weights, an index.

The twins of the parts stand in `page`. A system with a part that has none is refused by its name.
"""

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsecore.data.files import write_whole
from vsecore.data.splits import Split
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.words import Tokenizer
from vsecore.embedding import unit
from vsecore.model import VSE
from vsecore.recipes import ImageTower, Part, Recipe, TextTower
from vsecore.recipes.recipe import PARTS
from vsecore.scoring import encode

_BLOCKS = "layers heads hidden positions drop"
TWINS = {
    "image.encoder": {"grid": "drop", "patch": "drop", "region": ""},
    "text.encoder": {
        "gru": "word_dim minimum_count",
        "transformer": f"{_BLOCKS} word_dim minimum_count longest left_padding",
    },
    "reasoner": {"transformer": _BLOCKS},
    "pool": dict.fromkeys(("mean", "max", "seq2seq", "adpool", "gpo"), "")
    | {
        "projected": "batch_norm pool=mean",
        "slots": "slots iterations hidden heads drop expansion positions "
        "global_pool=mean global_pool=max global_pool=seq2seq",
    },
    "similarity": dict.fromkeys(("cosine", "mil", "chamfer"), "")
    | {"smooth_chamfer": "alpha", "cross_attention": "direction=t2i smooth lse negative_slope aggregate"},
}
"""The parts that have a twin in JavaScript, with the options that it takes, or the values that it knows."""


def exported(
    model: VSE, recipe: Recipe, tokenizer: Tokenizer, test: Split, name: str = ""
) -> dict[str, object]:
    """Return a system for JSON, with the embedded pictures of a split as its index."""
    parts = parts_of(recipe)
    if not isinstance(tokenizer, Vocabulary):
        raise ValueError(f"{recipe.name} reads word pieces, which have no JavaScript twin")
    return {
        "name": name or recipe.name,
        "features": recipe.features,
        "parts": parts,
        "words": tokenizer.words,
        "weights": {
            key: packed(value) if value.ndim == 2 else _numbers(value)
            for key, value in model.state_dict().items()
            if value.ndim and not key.endswith("num_batches_tracked")
        },
    } | index(model, test, tokenizer)


def parts_of(recipe: Recipe) -> dict[str, Any]:
    """Return the parts of a recipe by name, with the options that differ from the defaults."""
    if recipe.shared is not None:
        raise ValueError(f"{recipe.name}: a reasoner that both towers share has no JavaScript twin")
    towers: dict[str, ImageTower | TextTower] = {"image": recipe.image, "text": recipe.text}
    return {
        side: {
            "encoder": _part(recipe, f"{side}.encoder", tower.encoder),
            "reasoner": tower.reasoner and _part(recipe, f"{side}.reasoner", tower.reasoner),
            "pool": tower.pool and _part(recipe, f"{side}.pool", tower.pool),
        }
        for side, tower in towers.items()
    } | {"similarity": _part(recipe, "similarity", recipe.similarity)}


def _part(recipe: Recipe, place: str, part: Part) -> dict[str, Any]:
    registry, twins = PARTS[place], TWINS.get(place) or TWINS[place.partition(".")[2]]
    if part.name not in twins:
        raise ValueError(
            f"{recipe.name}: {registry.kind} {part.name!r} has no JavaScript twin: "
            f"there are {', '.join(sorted(twins))}"
        )
    options, known = registry.changed(part.name, part.options), twins[part.name].split()
    for option, value in options.items():
        if option not in known and f"{option}={value}" not in known:
            raise ValueError(f"{recipe.name}: {part.name!r} with {option}={value!r} has no JavaScript twin")
    return {"name": part.name, "options": options}


def index(model: VSE, test: Split, tokenizer: Tokenizer) -> dict[str, object]:
    """Embed the pictures of a split: their unit vectors below each other, and how many each has."""
    first = np.unique(test.owner, return_index=True)[1]  # one caption a picture, since none is looked at
    captions = [test.captions[row] for row in first]
    few = replace(test, captions=captions, owner=test.owner[first], caption_ids=None)
    pictures = encode(model, few, tokenizer)[0]
    if pictures.vectors is None:
        rows = unit(pictures.needed("elements"))  # (n, N, D)
    else:
        rows = pictures.vectors if pictures.vectors.ndim == 3 else pictures.vectors.unsqueeze(1)  # (n, K, D)
    real = torch.ones(rows.shape[:2], dtype=torch.bool) if pictures.mask is None else pictures.mask
    return {"index": packed(rows[real]), "counts": real.sum(1).tolist()}


def packed(matrix: Tensor) -> dict[str, object]:
    """Pack a matrix (N, D) for JSON as two int8 matrices: eight bits, and eight for what they leave over.

    A row is `scale * (coarse + fine / 254)`; without `fine` pictures that are almost equally near would
    change places. The matrices are in base 64, row after row; `fine` is left out if it is zero.
    """
    scale = matrix.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127  # (N,)
    scaled = matrix.double() / scale.double()[:, None]  # (N, D), within 127
    coarse = scaled.round()
    fine = ((scaled - coarse) * 254).round()
    parts = {"shape": list(matrix.shape), "scale": _numbers(scale), "coarse": _base64(coarse)}
    return parts | ({"fine": _base64(fine)} if fine.any() else {})


def _numbers(vector: Tensor) -> list[float]:
    return [float(f"{value:.9g}") for value in vector.tolist()]  # nine digits are a float32


def _base64(numbers: Tensor) -> str:
    return base64.b64encode(numbers.numpy().astype(np.int8).tobytes()).decode("ascii")


def write_script(folder: Path, name: str, content: object) -> Path:
    """Write a script NAME.js that hands something over: a page opened as a file can load nothing else."""
    path = folder / f"{name}.js"
    given = json.dumps(content, separators=(",", ":"), sort_keys=True)
    write_whole(path, f"vseTake({json.dumps(name)}, {given});\n")
    return path


def script_name(told: str) -> str:
    """Return a name for a run's script: letters, digits, "-" and "_", and none of the explainer's own."""
    return f"run-{re.sub(r'[^A-Za-z0-9_-]+', '-', told)}"
