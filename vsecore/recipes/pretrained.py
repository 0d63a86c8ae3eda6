"""CLIP and SigLIP: towers trained on pairs from the web, as they are (zero-shot) or trained further."""

from pathlib import Path
from typing import Any

from vsecore.encoders.pretrained_towers import read_config, width_of
from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower, Training

TRAINING = Training(
    epochs=5,
    optimizer="AdamW",
    learning_rate=1e-5,
    pretrained_factor=1.0,
    weight_decay=0.1,
    warmup_steps=200,
    schedule="cosine",
    clip_norm=1.0,
)


def clip(name: str, weights: str, dim: int) -> Recipe:
    """Describe CLIP, which goes on with the loss and the temperature that it was trained with."""
    return _towers(
        name,
        "clip",
        weights,
        dim,
        "scaled_info_nce",
        "Radford et al. 2021 (CLIP): towers, loss with a learned temperature of at most 100, AdamW and a "
        "cosine schedule",
    )


def siglip(name: str, weights: str, dim: int) -> Recipe:
    """Describe SigLIP, which goes on with the sigmoid loss, its scale and its bias."""
    return _towers(
        name,
        "siglip",
        weights,
        dim,
        "sigmoid",
        "Zhai et al. 2023 (SigLIP): towers, the sigmoid loss with a learned scale and bias",
    )


KINDS = {"clip": clip, "siglip": siglip}
"""What describes a pair of towers, by the type that its `config.json` names."""


def of_folder(folder: str | Path) -> Recipe:
    """Describe the pair of towers in a folder; the recipe is named after the folder.

    Raises:
        FileNotFoundError: the folder has no `config.json`.
        ValueError: it holds another kind of model.
    """
    folder = Path(folder).expanduser()
    config = read_config(folder / "config.json")
    return KINDS[config.model_type](folder.resolve().name, str(folder), width_of(config))


def is_folder(name: str) -> bool:
    """Whether a name is a folder with a model's configuration, and not the folder of a run."""
    folder = Path(name).expanduser()
    return (folder / "config.json").is_file() and not (folder / "run.json").exists()


def _towers(name: str, kind: str, weights: str, dim: int, loss: str, source: str) -> Recipe:
    options: dict[str, Any] = {"weights": weights}
    return Recipe(
        name=name,
        source=(
            f"{source}. Chosen for training further on few pictures: the learning rate, its warm-up, 5 "
            "epochs, the batch, cuts of at least nine tenths of a picture, no mirror images"
        ),
        dim=dim,
        image=ImageTower(encoder=Part(kind, options)),
        text=TextTower(encoder=Part(kind, options)),
        losses=(Part(loss),),
        training=TRAINING,
    )
