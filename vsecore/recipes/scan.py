"""SCAN: words attend to regions, or regions to words."""

from typing import Any, Literal

from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower


def scan(feature: Literal["grid", "region"]) -> Recipe:
    """Describe SCAN from text to image with the smooth maximum.

    The ensemble that its authors report averages the scores of the variants `t2i_mean` and `i2t`.
    """
    return Recipe(
        name=f"scan_{feature}_gru",
        source=(
            "Lee et al. 2018 (SCAN): width, margin, batch, Adam, gradient clipping; learning rate and its "
            "fall after 15 of 30 epochs as for Flickr30K; for each variant the smoothing of its released "
            "commands; the leak of the clip from its released code; an epoch of all negatives before the "
            "hardest from Chen et al. 2021's code"
            + (", and its encoder of regions in place of a projection" if feature == "region" else "")
        ),
        image=ImageTower(encoder=Part(feature), pool=None),
        text=TextTower(encoder=Part("gru"), pool=None),
        similarity=Part("cross_attention"),
    )


VARIANTS: dict[str, dict[str, Any]] = {
    "i2t": {"similarity": Part("cross_attention", {"direction": "i2t", "smooth": 4.0, "lse": 5.0})},
    "t2i_mean": {"similarity": Part("cross_attention", {"aggregate": "mean"})},
    "i2t_mean": {
        "similarity": Part("cross_attention", {"direction": "i2t", "smooth": 4.0, "aggregate": "mean"})
    },
    "printed_clip": {"similarity.negative_slope": 0.0},
}
"""The paper's other directions and aggregates, and the clip as it is printed."""
