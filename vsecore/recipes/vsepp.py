"""VSE++: the systems that everything else is compared with."""

from typing import Literal

from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower

Feature = Literal["grid", "region", "patch"]
Reader = Literal["gru", "bert"]

READERS = {"gru": Part("gru"), "bert": Part("bert", {"weights": "bert-base-uncased"})}
"""The two caption encoders of the field's tables."""


def vsepp(feature: Feature, text: Reader) -> Recipe:
    """Describe VSE++ on one kind of features, with one kind of caption encoder."""
    sources = {
        "grid": "a convolutional map's cells in place of its mean",
        "region": "regions and their encoder from Chen et al. 2021 (VSE-infinity)",
        "patch": "a vision transformer's patches as in Zhang et al. 2022 (2AD)",
        "gru": "BiGRU from Lee et al. 2018 (SCAN), words pooled by their mean",
        "bert": "BERT and its tenth of the learning rate from Chen et al. 2021",
    }
    return Recipe(
        name=f"vsepp_{feature}_{text}",
        source=(
            "Faghri et al. 2018 (VSE++): margin, Adam, learning rate and its fall after 15 of 30 "
            f"epochs, batch, widths; gradient clipping from its code; {sources[feature]}; {sources[text]}; "
            "an epoch of all negatives before the hardest from Chen et al. 2021's code"
        ),
        image=ImageTower(encoder=Part(feature)),
        text=TextTower(encoder=READERS[text]),
    )
