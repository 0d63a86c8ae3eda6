"""PCME: a picture and a caption are Gaussians, and whether two match has a probability."""

from typing import Any, Literal

from vsecore.recipes.dive import WORDS
from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower, Training


def pcme(feature: Literal["grid", "region"]) -> Recipe:
    """Describe PCME, compared by the means of its Gaussians.

    The means are all that a search needs. The variances matter in training, and say how sure a caption is.
    """
    return Recipe(
        name=f"pcme_{feature}",
        source=(
            "Chun et al. 2021 (PCME) and its released configuration for COCO: width, word vectors of width "
            "300, samples, the weight of the divergence, a tenth of the words left out in training, batch, "
            "learning rate and its cosine, 30 epochs before the network of pictures is trained, gradient "
            "clipping. Chosen: Adam in place of AdamP; means are compared, one of the paper's own "
            "measures. GloVe vectors: give their file as vectors"
            + ("; regions, where the paper has the cells of a grid" if feature == "region" else "")
        ),
        image=ImageTower(
            encoder=Part(feature),
            pool=Part("gaussian", {"global_pool": "mean" if feature == "grid" else "max"}),
        ),
        text=TextTower(encoder=WORDS, pool=Part("gaussian", {"global_pool": "seq2seq"}), word_drop=0.1),
        losses=(Part("soft_contrastive"),),
        training=Training(schedule="cosine"),
    )


VARIANTS: dict[str, dict[str, Any]] = {
    "without_divergence": {"losses.soft_contrastive.kl_weight": 0.0},
    "one_sample": {"losses.soft_contrastive.samples": 1},
}
"""Without what keeps the variances from vanishing, and with fewer samples: changes to a recipe."""
