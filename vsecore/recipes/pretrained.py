"""CLIP and SigLIP: towers trained on pairs from the web, as they are (zero-shot) or trained further."""

from pathlib import Path

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


LOSSES = {
    "clip": (
        "scaled_info_nce",
        "Radford et al. 2021 (CLIP): towers, loss with a learned temperature of at most 100, AdamW and a "
        "cosine schedule",
    ),
    "siglip": (
        "sigmoid",
        "Zhai et al. 2023 (SigLIP): towers, the sigmoid loss with a learned scale and bias",
    ),
}
"""The loss that each kind was trained with and goes on with, by the type that its `config.json` names."""


def towers(kind: str, name: str, weights: str, dim: int) -> Recipe:
    """Describe the towers of CLIP or SigLIP, which go on with the loss that they were trained with."""
    loss, source = LOSSES[kind]
    encoder = Part(kind, {"weights": weights})
    return Recipe(
        name=name,
        source=(
            f"{source}. Chosen for training further on few pictures: the learning rate, its warm-up, 5 "
            "epochs, the batch, cuts of at least nine tenths of a picture, no mirror images"
        ),
        dim=dim,
        image=ImageTower(encoder=encoder),
        text=TextTower(encoder=encoder),
        losses=(Part(loss),),
        training=TRAINING,
    )


def of_folder(folder: str | Path) -> Recipe:
    """Describe the pair of towers in a folder; the recipe is named after the folder.

    Raises:
        FileNotFoundError: the folder has no `config.json`.
        ValueError: it holds another kind of model.
    """
    folder = Path(folder).expanduser()
    config = read_config(folder / "config.json")
    return towers(config.model_type, folder.resolve().name, str(folder), width_of(config))


def is_folder(name: str) -> bool:
    """Whether a name is a folder with a model's configuration, and not the folder of a run."""
    folder = Path(name).expanduser()
    return (folder / "config.json").is_file() and not (folder / "run.json").exists()
