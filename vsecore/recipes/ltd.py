"""LTD: a small baseline, and what keeps its captions' vectors from leaving facts out."""

from dataclasses import replace
from typing import Any, Literal

from vsecore.recipes import vsrn as vsrns
from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower, Training

BOUNDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
"""The bounds of the latent target that the paper tries."""
BOUNDS_OF_WORDS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 20.0)
"""The bounds of the input target that the paper tries, in nats for a caption; and one that a caption of ten
words can meet with two nats for each."""


def ltd(feature: Literal["grid", "region"]) -> Recipe:
    """Describe the paper's baseline; a variant adds a target to it."""
    where = "a convolutional map's cells" if feature == "grid" else "regions"
    return Recipe(
        name=f"ltd_{feature}_gru",
        source=(
            "Bleeker, Yates and de Rijke 2023 (LTD), section 4.2: the mean of a picture's features, a BiGRU, "
            "a projection head of two layers for each, InfoNCE and its temperature, batch, learning rate and "
            "its fall by a cosine, 60 epochs, five averaged snapshots. Its released code: width, words of "
            "width 300, gradient clipping; in variants, the hardest negative from the first epoch on. "
            "Chosen: features as they were extracted "
            f"({where}), where the paper trains a ResNet-50 too from epoch 31 on; the mean of the BiGRU's "
            "states, where the release takes those at the last word; Adam, where it takes AdamP; one cosine "
            "over all epochs, where it begins a second, ten times lower. GloVe vectors: give their file as "
            "vectors"
        ),
        image=ImageTower(encoder=Part(feature), pool=Part("projected")),
        text=TextTower(encoder=Part("gru"), pool=Part("projected")),
        losses=(Part("info_nce"),),
        training=Training(
            epochs=60,
            schedule="cosine",
            snapshots=5,
        ),
    )


def vsrn(feature: Literal["grid", "region"]) -> Recipe:
    """Describe VSRN as the paper trains it; a variant adds a target to it."""
    system = vsrns.vsrn(feature)
    return replace(
        system,
        name=f"ltd_{system.name}",
        source=(
            "Bleeker, Yates and de Rijke 2023 (LTD), section 4.2: the caption encoder of its baseline, width "
            "1024, no decoder of captions. Its released code: the hardest negative from the first epoch on, "
            "and in a variant the batch normalisation of a picture's vector. "
            f"The rest is VSRN: {system.source}"
        ),
        dim=1024,
        text=ltd(feature).text,
        losses=(_TRIPLET,),
    )


def _with(*losses: Part) -> dict[str, Any]:
    """Train by several losses in place of the recipe's own."""
    return {"losses": [{"name": part.name, "options": part.options} for part in losses]}


def _two_digits(bound: float) -> str:
    """Write 0.05 as "005", for the name of a variant."""
    return f"{bound:.2f}".replace(".", "")


_CONTRAST, _TRIPLET = Part("info_nce"), Part("triplet", {"warmup_epochs": 0})
_LATENT, _INPUT = Part("latent_target"), Part("input_target")

VARIANTS: dict[str, dict[str, Any]] = {
    # Table 1: a term of the loss, or a constraint with the bound that was best on Flickr30K.
    "itd": _with(_CONTRAST, _INPUT),
    "itd_constraint": _with(_CONTRAST, Part("input_target", {"bound": 6.0})),
    "ltd": _with(_CONTRAST, _LATENT),
    "ltd_constraint": _with(_CONTRAST, Part("latent_target", {"bound": 0.2})),
    # The bounds that the paper tries: after "ltd_constraint" or "itd_constraint".
    **{f"bound_{_two_digits(bound)}": {"losses.latent_target.bound": bound} for bound in BOUNDS},
    **{
        f"bound_of_words_{bound:g}".replace(".", "_"): {"losses.input_target.bound": bound}
        for bound in BOUNDS_OF_WORDS
    },
    # Table 2: the triplet loss, with a normalisation that keeps vectors from becoming all alike.
    "batch_norm": {"image.pool.batch_norm": True, "text.pool.batch_norm": True},
    # Table 3: the released code normalises VSRN's vector of a picture over the batch.
    "picture_norm": {"image.pool.batch_norm": True},
    # Tables 2 and 3: the same beside a triplet loss, in any system with one vector for a caption. The hardest
    # negative counts from the first epoch on.
    "triplet": _with(_TRIPLET),
    "triplet_ltd": _with(_TRIPLET, _LATENT),
    "triplet_ltd_constraint": _with(_TRIPLET, Part("latent_target", {"bound": 0.2})),
    # What the released code does otherwise: only the value that is used is kept between 0 and 100.
    "free_multiplier": {"losses.latent_target.projected": False},
    # Without the averaged snapshots.
    "without_averaging": {"training.snapshots": 0},
}
"""What the paper compares: changes to a recipe."""
