"""SGRAF: similarity vectors of words and of the whole, brought together by a graph or by a gate."""

from typing import Any, Literal

from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower, Training


def sgraf(feature: Literal["grid", "region"]) -> Recipe:
    """Describe SGR, the half that reasons over a graph; the variant `filtration` is the other half."""
    return Recipe(
        name=f"sgraf_{feature}_gru",
        source=(
            "Diao et al. 2021 (SGRAF) and its released code: widths, steps, dropout, margin, Adam, gradient "
            "clipping; learning rate and its fall after 10 of 20 epochs as for COCO; an epoch of all "
            "negatives before the hardest from Chen et al. 2021's code"
            + (", and its encoder of regions in place of a projection" if feature == "region" else "")
        ),
        image=ImageTower(encoder=Part(feature), pool=None),
        text=TextTower(encoder=Part("gru"), pool=None),
        similarity=Part("graph_reasoning"),
        training=Training(epochs=20, learning_rate=2e-4, decay_epochs=10),
    )


VARIANTS: dict[str, dict[str, Any]] = {"filtration": {"similarity": Part("attention_filtration")}}
"""The system's other half; its full model is the mean of both."""
