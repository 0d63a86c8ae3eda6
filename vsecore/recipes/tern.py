"""TERN: Transformers over regions and words whose last layers are the same for both."""

from typing import Any, Literal

from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower, Training
from vsecore.recipes.thesis import CELLS

WIDTHS: dict[str, Any] = {"heads": 4, "norm_last": True}
"""What all of its layers have; their hidden width of 2048 is twice the joint width, as is the default."""

TEXTS = {
    "bert": Part("bert", {"weights": "bert-base-uncased"}),
    "words": Part("transformer", {"heads": 4, "left_padding": False}),
}
"""Its caption encoder, and one for machines that have no BERT."""


def tern(feature: Literal["grid", "region"], text: Literal["bert", "words"]) -> Recipe:
    """Describe TERN: each tower's first element is its vector, and no element sees the other tower.

    In front of a picture stands a learned element; a caption begins with BERT's [CLS], or with the token for
    its start. A region's features end in the edges and sides of its box; cells have learned positions.
    """
    chosen = {
        "bert": "",
        "words": "; in place of BERT a Transformer of two layers over word vectors, and its learning rate",
    }
    positions = {"positions": CELLS} if feature == "grid" else {}
    return Recipe(
        name=f"tern_{feature}_{text}",
        source=(
            "Messina et al. 2020 (TERN), released configuration: four layers for pictures, two shared ones, "
            "four heads, hidden width, dropout, widths, Adam, learning rate (for BERT too) and its warm-up, "
            "batch, 30 epochs without a fall of the rate, gradient clipping, margin. The rest is chosen: "
            "pictures are projected before their four layers and not after, by the region encoder of Chen et "
            "al. 2021 (VSE-infinity); boxes are joined to the features before that, where the release joins "
            "and projects them; BERT's last layer, where the release takes the sixth; an epoch of all "
            f"negatives before the hardest from Chen et al. 2021's code{chosen[text]}"
        ),
        image=ImageTower(
            encoder=Part(feature),
            reasoner=Part("transformer", {"layers": 4, "cls": True, **positions, **WIDTHS}),
            pool=Part("first"),
            boxes=feature == "region",
        ),
        text=TextTower(encoder=TEXTS[text], pool=Part("first")),
        shared=Part("transformer", {"layers": 2, **WIDTHS}),
        training=Training(
            epochs=30,
            batch_size=80,
            learning_rate=2e-6 if text == "bert" else 1e-4,
            pretrained_factor=1.0,
            warmup_steps=1000,
            schedule="constant",
        ),
    )
