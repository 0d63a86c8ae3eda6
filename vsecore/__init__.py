"""Visual-semantic embedding, from the parts that teach it to the loop that trains it.

>>> import vsecore
>>> model = vsecore.load("runs/first")
>>> model.similarity(model.encode_images(["pool.jpg"]), model.encode_texts(["a dog swims"]))
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vsecore.retriever import Retriever

__version__ = "0.1.0"


def load(
    run_or_recipe: str | Path,
    *,
    features: str | Path | None = None,
    backbone: str = "",
    weights: str | Path | None = None,
    parts: str | Path | None = None,
) -> Retriever:
    """Load a model for pictures and sentences of your own.

    Args:
        run_or_recipe: the folder of a trained run; or a recipe of CLIP or SigLIP, or such a model's folder,
            to be used as it is.
        features: for a run that reads features, the folder on which it was trained, which names the network
            that made them. None: the folder that `vse train` noted, if it is still there.
        backbone: or that network's name.
        weights: a file of that network's weights; None: its published ones.
        parts: a Python file that registers parts of the run's own. None: it has none, or they are registered,
            or you have named the file on this machine before.

    Raises:
        FileNotFoundError: the run, the model or the weights are missing.
        ValueError: a file is damaged; the features or the weights are others than those of the training; or
            the recipe must be trained first.
    """
    from vsecore.data.files import expanded
    from vsecore.recipes.own_parts import load_parts  # brings PyTorch
    from vsecore.retriever import Retriever

    if parts is not None:
        load_parts(parts)
    if (expanded(run_or_recipe) / "run.json").is_file():
        return Retriever.of_run(run_or_recipe, features=features, backbone=backbone, weights=weights)
    return Retriever.of_recipe(str(run_or_recipe))
