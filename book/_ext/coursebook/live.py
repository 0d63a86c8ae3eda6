"""The search on the first notebook's page: what its script needs, written from the first engine's weights.

A page that is opened as a file may load scripts and pictures and nothing else, so the engine is a script.
`book/_static/live.js` reads the sentence, ranks the pictures and shows them.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from course.engine import first_engine
from vsecore import scenes
from vsecore.model import VSE
from vsecore.training import encode

EXAMPLES = (
    "two boats on the lake",
    "a red kite above the beach",
    "a girl holding a balloon",
    "a snowman beside a tree",
    "three sheep on the farm",
    "a yellow bus in the street",
)
"""What the buttons ask. The page says of which pictures these are true; other sentences it cannot parse."""

PLACE = """<div class="live-search">
<p class="live-fallback">Type a sentence, and the pictures that fit it best appear. This search runs in your
browser and needs JavaScript, which is off here. The cells below show what it finds.</p>
</div>
"""
"""What the page holds where JavaScript is off; the script puts the search in its place."""


def put_search_first(source: str) -> str:
    """Put the place of the search below the title, if this cell's Markdown begins with the page's title."""
    if not source.startswith("# "):
        return source
    title, _, rest = source.partition("\n")
    return f"{title}\n\n{PLACE}\n{rest.lstrip()}"


def lay_live(folder: Path) -> None:
    """Write the engine as a script, `engine.js`, and each picture of the test split beside it.

    The same weights give the same script, byte for byte.

    Raises:
        FileNotFoundError: a file of the engine is missing.
        ValueError: a file of the engine is damaged, or an example holds a word that it does not know.
    """
    folder.mkdir(parents=True)
    model, vocabulary = first_engine()
    shown = scenes.pictures("test")
    index = encode(model, scenes.load(train=1, dev=1).test, vocabulary)[0].vectors  # (Ni, D)
    if index is None:
        raise ValueError("the first engine gives no vector of a picture, which the page compares")
    index = index / index.norm(dim=1, keepdim=True)
    for example in EXAMPLES:
        tokens, _ = vocabulary.encode([example])
        if (tokens == vocabulary.unknown).any():
            raise ValueError(f"EXAMPLES has {example!r}, with a word that the first engine does not know")
    engine = {
        "words": vocabulary.words,
        "captions": [picture.captions[-1].text for picture in shown],
        "index": packed(index),
        "examples": [
            [example, [row for row, picture in enumerate(shown) if scenes.holds(form, picture.scene)]]
            for example, form in ((example, scenes.parse(example)) for example in EXAMPLES)
        ],
        **caption_tower(model),
    }
    script = f"window.vseLiveEngine = {json.dumps(engine, separators=(',', ':'), sort_keys=True)};\n"
    (folder / "engine.js").write_text(script, encoding="utf-8")
    for row, pixels in enumerate(scenes.pixels("test")):
        Image.fromarray(pixels).save(folder / f"{row}.webp", quality=75)


def caption_tower(model: VSE) -> dict[str, object]:
    """Return the caption tower for JSON: word vectors, and the GRU of each direction, packed.

    Args:
        model: its captions are read by a `BiGRUEncoder` and pooled by their mean.
    """
    weights = {
        name.removeprefix("text_encoder."): value
        for name, value in model.state_dict().items()
        if name.startswith("text_encoder.")
    }
    grus = {
        direction: {
            "input": packed(weights[f"{direction}.weight_ih_l0"]),
            "state": packed(weights[f"{direction}.weight_hh_l0"]),
            "inputBias": weights[f"{direction}.bias_ih_l0"].tolist(),
            "stateBias": weights[f"{direction}.bias_hh_l0"].tolist(),
        }
        for direction in ("forwards", "backwards")
    }
    return {"embedding": packed(weights["embedding.weight"]), **grus}


def packed(matrix: Tensor) -> dict[str, object]:
    """Pack a matrix (N, D) for JSON as two int8 matrices: eight bits, and eight for what they leave over.

    A row is `scale * (coarse + fine / 254)`. The coarse part alone would keep scores within 1e-2 as well, but
    pictures that are almost equally near would change places: of 500 captions, 22 would find other first ten.

    Returns:
        `shape`, one `scale` a row, and `coarse` and `fine` in base 64, row after row.
    """
    scale = matrix.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127  # (N,)
    scaled = matrix.double() / scale.double()[:, None]  # (N, D), within 127
    coarse = scaled.round()
    fine = ((scaled - coarse) * 254).round()
    return {
        "shape": list(matrix.shape),
        "scale": scale.tolist(),
        "coarse": _base64(coarse),
        "fine": _base64(fine),
    }


def _base64(numbers: Tensor) -> str:
    return base64.b64encode(numbers.numpy().astype(np.int8).tobytes()).decode("ascii")
