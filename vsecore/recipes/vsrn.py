"""VSRN: regions reason in a graph, a recurrent network reads them and generates the captions."""

from typing import Any, Literal

from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower, Training


def vsrn(feature: Literal["grid", "region"]) -> Recipe:
    """Describe one model of VSRN; the paper's best rows average the scores of two."""
    return Recipe(
        name=f"vsrn_{feature}",
        source=(
            "Li et al. 2019 (VSRN), section 4.2 and its released code: width 2048, word vectors of width "
            "300, batch, margin, Adam, learning rate and its fall after 15 of 30 epochs, gradient "
            "clipping, the decoder's widths; elements scaled to length one over their features, where the "
            "released code scales over the elements; an epoch of all negatives before the hardest from Chen "
            "et al. 2021's code, where VSRN's takes the hardest from the first epoch on; "
            + (
                "regions and their encoder from Chen et al. 2021 (VSE-infinity) in place of a projection"
                if feature == "region"
                else "a convolutional map's cells in place of regions"
            )
        ),
        dim=2048,
        image=ImageTower(encoder=Part(feature), reasoner=Part("region_graph"), pool=Part("gru_last")),
        text=TextTower(encoder=Part("forward_gru"), pool=Part("last")),
        losses=(Part("triplet"), Part("captioning")),
        training=Training(),
    )


VARIANTS: dict[str, dict[str, Any]] = {
    # What each part is worth. Without the graph, a recurrent network reads the elements as they are encoded.
    "without_graph": {"image.reasoner": None},
    "without_captioning": {"losses": Part("triplet")},
    # For one processor: at its released width, the decoder takes nine tenths of a step.
    "small_decoder": {"losses.captioning.hidden": 128, "losses.captioning.word_dim": 64},
    # What the released code does otherwise.
    "hardest_first": {"losses.triplet.warmup_epochs": 0},
    "released_normalisation": {"image.reasoner.released_normalisation": True},
}
"""What the paper removes, and changes of scale, by name: changes to a recipe."""
