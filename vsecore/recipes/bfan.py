"""BFAN: attention in both directions that leaves out what is irrelevant."""

from typing import Any, Literal

from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower, Training


def bfan(feature: Literal["grid", "region"]) -> Recipe:
    """Describe BFAN-prob."""
    return Recipe(
        name=f"bfan_{feature}_gru",
        source=(
            "Liu et al. 2019 (BFAN) and its released commands for Flickr30K: width, batch, smoothing, "
            "15 epochs at one learning rate; Adam, margin and gradient clipping as in Lee et al. 2018 "
            "(SCAN), on whose code it is built; an epoch of all negatives before the hardest from Chen "
            "et al. 2021's code"
            + (", and its encoder of regions in place of a projection" if feature == "region" else "")
        ),
        image=ImageTower(encoder=Part(feature), pool=None),
        text=TextTower(encoder=Part("gru"), pool=None),
        similarity=Part("focal_attention", {"focus": "prob"}),
        training=Training(epochs=15),
    )


VARIANTS: dict[str, dict[str, Any]] = {
    "equal": {"similarity": Part("focal_attention", {"focus": "equal"})},
}
"""The paper's other system; its full model is the mean of both."""
