"""PVSE: sets predicted by PIE-Net, of which the nearest two vectors are compared."""

from typing import Literal

from vsecore.recipes.dive import WORDS
from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower, Training


def pvse(feature: Literal["grid", "region"]) -> Recipe:
    """Describe PVSE with two vectors for a picture and two for a caption."""
    return Recipe(
        name=f"pvse_{feature}",
        source=(
            "Song and Soleymani 2019 (PVSE), its released command for COCO and the defaults of its code: two "
            "vectors, width, word vectors of width 300, margin, the hardest negative from the first epoch "
            "on, the mean over pairs, weights of discrepancy and diversity, batch, learning rate, 30 epochs, "
            "gradient clipping. "
            "Chosen: Adam and a fall after 15 epochs, where the code takes AMSGrad and halves the rate "
            "when the development split stagnates. GloVe vectors: give their file as vectors"
            + ("; regions, where the paper has the cells of a grid" if feature == "region" else "")
        ),
        image=ImageTower(
            encoder=Part(feature),
            pool=Part("pie_net", {"slots": 2, "global_pool": "mean" if feature == "grid" else "max"}),
        ),
        text=TextTower(encoder=WORDS, pool=Part("pie_net", {"slots": 2, "global_pool": "seq2seq"})),
        similarity=Part("mil"),
        losses=(
            Part("triplet", {"margin": 0.1, "warmup_epochs": 0, "reduction": "mean"}),
            Part("mmd", weight=0.01),
            Part("gram_diversity", weight=0.1),
        ),
        training=Training(batch_size=256),
    )
